# SPDX-License-Identifier: BSD-3-Clause
"""Writes zip files in the form of torch.save, without torch."""
import collections
import io
import pickle
import sys
import types
import zipfile

torch, utils, evil = (types.ModuleType(n) for n in ("torch", "torch._utils", "evil"))
sys.modules.update({m.__name__: m for m in (torch, utils, evil)})


def named(module, name, made):
    made.__module__, made.__qualname__, made.__name__ = module.__name__, name, name
    setattr(module, name, made)
    return made


rebuild = {v: named(utils, f"_rebuild_tensor_v{v}", lambda *a: None) for v in (2, 3)}
rebuild_parameter = named(utils, "_rebuild_parameter", lambda *a: None)
run = named(evil, "run", lambda path: open(path, "w"))
for n in "Float Double Half BFloat16 Bool ComplexFloat Long Untyped".split():
    named(torch, n + "Storage", type(n + "Storage", (), {}))


class Dtype:
    def __reduce__(self):
        return "float8_e4m3fn"


Dtype.__module__ = "torch"
torch.float8_e4m3fn = f8 = Dtype()
f8.__name__ = f8.__qualname__ = "float8_e4m3fn"
f8.__module__ = "torch"


class Stored:
    def __init__(self, kind, key, n):
        self.id = ("storage", getattr(torch, kind + "Storage"), key, "cpu", n)


class Call:
    def __init__(self, f, *args):
        self.f, self.args = f, args

    def __reduce__(self):
        return self.f, self.args


class Pickler(pickle.Pickler):
    def persistent_id(self, o):
        return o.id if isinstance(o, Stored) else None


def tensor(kind, key, n, shape, strides, offset=0, dtype=None):
    args = (Stored(kind, key, n), offset, shape, strides, False, collections.OrderedDict())
    return Call(rebuild[3], *args, dtype, None) if dtype else Call(rebuild[2], *args)


def save(path, value, storages, protocol=2, order="little", prefix="m", compression=zipfile.ZIP_STORED):
    f = io.BytesIO()
    Pickler(f, protocol).dump(value)
    with zipfile.ZipFile(path, "w", compression) as z:
        z.writestr(f"{prefix}/data.pkl", f.getvalue())
        z.writestr(f"{prefix}/byteorder", order)
        for k, v in storages.items():
            z.writestr(f"{prefix}/data/{k}", v)
        z.writestr(f"{prefix}/version", "3\n")


def save_old(path, value, storages, version=1001, keys=None):
    """As torch before version 1.6. storages: how many items each has, and its bytes."""
    f = io.BytesIO()
    for head in 0x1950A86A20F9469CFC6C, version, {"protocol_version": 1001, "little_endian": True}:
        pickle.dump(head, f, 2)
    Pickler(f, 2).dump(value)
    pickle.dump(list(storages) if keys is None else keys, f, 2)
    for items, data in storages.values():
        f.write(items.to_bytes(8, "little") + data)
    with open(path, "wb") as out:
        out.write(f.getvalue())
