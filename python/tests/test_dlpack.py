# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of other libraries: DLPack, torch, ml_dtypes."""
import ctypes
import gc
import importlib
import tempfile
import unittest
import unittest.mock
import weakref
from pathlib import Path

import numpy as np

import pici
from pici import _arrays, _dlpack, _dtypes
from test_codec import sparse


def installed(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch = installed("torch")
ml_dtypes = installed("ml_dtypes")


class Managed(ctypes.Structure):
    """A tensor of DLPack, and one with a version."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Managed),
    ]


class Foreign:
    """An array of another library that supports only DLPack, with or without versions."""

    def __init__(self, storage, dtype, versions=True, device=1):
        self.inner = _dlpack.DLPackArray(storage, _dtypes.BY_NAME[dtype])
        self.versions = versions
        self.device = device

    def __dlpack__(self, **wanted):
        if wanted and not self.versions:
            raise TypeError("no such argument")
        return self.inner.__dlpack__()

    def __dlpack_device__(self):
        return (self.device, 0)


class DLPack(unittest.TestCase):
    def test_in(self):
        for d in _dtypes.ALL:
            for versions in (True, False):
                x = sparse(d.name, 6000).reshape(60, 100)
                block = pici.compress(Foreign(x, d.name, versions))
                self.assertEqual(block, pici.compress(x, dtype=d.name))

    def test_in_strides_and_offsets(self):
        x = sparse("f32", 6000).reshape(60, 100)
        for part in (x[3:, 5:], x[:, ::3], x.T, x[:1, :1].reshape(()), x[5:5]):
            self.assertEqual(pici.compress(Foreign(part, "f32")), pici.compress(part))

    def test_written_in_place(self):
        for d in _dtypes.ALL:
            x, y = sparse(d.name, 5000), np.zeros(5000, d.storage)
            block = pici.compress(x, dtype=d.name)
            pici.decompress_into(Foreign(y, d.name), block)
            self.assertEqual(y.tobytes(), x.tobytes())
        y = np.ones(5000, np.float32)
        pici.scatter_add(Foreign(y, "f32"), pici.compress(y))
        self.assertTrue((y == 2).all())

    def test_out(self):
        for d in _dtypes.ALL:
            x = sparse(d.name, 5000)
            out = pici.decompress(pici.compress(x, dtype=d.name), to="dlpack")
            self.assertEqual(out.__dlpack_device__(), (1, 0))
            back, found = _dlpack.imported(out)
            self.assertEqual((found, back.tobytes()), (d, x.tobytes()))
            if not d.narrow:
                self.assertEqual(np.from_dlpack(out).tobytes(), x.tobytes())

    def test_lifetime(self):
        """Memory lives exactly as long as something refers to it."""
        x = np.arange(1000, dtype=np.float32)
        gone = weakref.ref(x)
        seen, _ = _dlpack.imported(Foreign(x, "f32"))
        part = seen[500:]
        del x, seen
        gc.collect()
        self.assertEqual(part[0], 500)
        del part
        gc.collect()
        self.assertIsNone(gone())

    def test_what_capsules_say(self):
        """Capsules that NumPy does not make: read-only, with an offset, of unknown versions and types."""
        x = np.zeros(8, np.float32)
        flags = Versioned(major=1, flags=_dlpack.READ_ONLY)
        shape = (ctypes.c_int64 * 1)(8)
        t = flags.tensor
        t.data, t.device_type, t.ndim, t.code, t.bits, t.lanes, t.shape = x.ctypes.data, 1, 1, 2, 32, 1, shape
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
            ("PyCapsule_New", ctypes.pythonapi)
        )

        class Made:
            def __dlpack__(self, **_):
                return new(ctypes.addressof(flags), b"dltensor_versioned", None)

            def __dlpack_device__(self):
                return (1, 0)

        block = pici.compress(np.ones(8, np.float32))
        self.assertEqual(pici.compress(Made()), pici.compress(x))
        self.assertRaises(ValueError, pici.scatter_add, Made(), block)
        self.assertEqual(x.tolist(), [0] * 8)
        flags.flags = 0
        pici.scatter_add(Made(), block)
        self.assertEqual(x.tolist(), [1] * 8)
        x[:] = np.arange(8)
        t.byte_offset, shape[0] = 8, 6
        self.assertEqual(pici.decompress(pici.compress(Made())).tolist(), [2, 3, 4, 5, 6, 7])
        flags.major = 2
        self.assertRaises(BufferError, pici.compress, Made())
        flags.major, t.lanes = 1, 4
        self.assertRaises(BufferError, pici.compress, Made())

    def test_refusals(self):
        x = np.zeros(8, np.float32)
        with self.assertRaisesRegex(BufferError, "device"):
            pici.compress(Foreign(x, "f32", device=2))
        used = Foreign(x, "f32")
        used.__class__ = type("Used", (Foreign,), {"__dlpack__": lambda self, **_: object()})
        self.assertRaises(BufferError, pici.compress, used)


class WithoutMlDtypes(unittest.TestCase):
    def test_says_what_to_do(self):
        block = pici.compress(np.zeros(4, np.uint16), dtype="bf16")
        with unittest.mock.patch.dict("sys.modules", {"ml_dtypes": None}):
            with self.assertRaisesRegex(ImportError, "ml_dtypes.*to='bits'"):
                pici.decompress(block)
            self.assertEqual(pici.decompress(block, to="bits").dtype, np.uint16)


@unittest.skipUnless(ml_dtypes, "no ml_dtypes: bf16 and f8 as NumPy arrays")
class MlDtypes(unittest.TestCase):
    def test_roundtrip_and_add(self):
        for d in _dtypes.ALL:
            if not d.narrow:
                continue
            dtype = np.dtype(getattr(ml_dtypes, d.narrow))
            x = sparse(d.name, 9000).view(dtype)
            block = pici.compress(x)
            self.assertEqual(pici.inspect(block).dtype, d.name)
            back = pici.decompress(block)
            self.assertEqual((back.dtype, back.tobytes()), (dtype, x.tobytes()))
            small = np.array([0, 1, 0, 0.5] * 50, dtype)
            total = np.array([2, 2, 3, 3] * 50, dtype)
            pici.scatter_add(total, pici.compress(small))
            self.assertEqual(total.astype(np.float32).tolist(), [2, 3, 3, 3.5] * 50)


@unittest.skipUnless(torch, "no torch: its tensors, in and out")
class Torch(unittest.TestCase):
    TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64"]

    def tensor(self, name, n=5000):
        bits = sparse("u8", n * torch.empty(0, dtype=getattr(torch, name)).element_size(), 0.02)
        return torch.from_numpy(bits).view(getattr(torch, name))

    def bits(self, t):
        return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

    def test_in_and_out(self):
        for name in self.TYPES:
            with self.subTest(name):
                t = self.tensor(name)
                block = pici.compress(t)
                out = pici.decompress(block, to="torch")
                self.assertEqual((out.dtype, self.bits(out)), (t.dtype, self.bits(t)))
                out = torch.from_dlpack(pici.decompress(block, to="dlpack"))
                self.assertEqual((out.dtype, self.bits(out)), (t.dtype, self.bits(t)))
                into = torch.zeros_like(t)
                pici.decompress_into(into, block)
                self.assertEqual(self.bits(into), self.bits(t))

    def test_strides(self):
        t = self.tensor("bfloat16").reshape(50, 100).t()
        self.assertEqual(pici.compress(t), pici.compress(t.contiguous()))

    def test_add(self):
        for name in ("float32", "bfloat16", "int16"):
            x = torch.zeros(9000, dtype=getattr(torch, name))
            x[::100] = 3
            total = torch.full((90, 100), 2, dtype=x.dtype)
            pici.scatter_add(total, pici.compress(x))
            self.assertTrue(torch.equal(total.reshape(-1), x + 2))

    def test_load_state_dict(self):
        """What a model saves as a dict of tensors, it loads from a file; each has its shape and dtype."""
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 5, 3), torch.nn.BatchNorm2d(5), torch.nn.Flatten(), torch.nn.Linear(20, 4).bfloat16()
        )
        state = dict(model.state_dict())
        state["mask"] = torch.arange(6).reshape(2, 3) > 2
        state["z"] = torch.full((2, 2), 1 - 2j, dtype=torch.complex64)
        for name in ("float8_e4m3fn", "float8_e5m2", "float16"):
            if hasattr(torch, name):
                state[name] = self.tensor(name, 60).reshape(3, 20)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pici"
            with pici.create(path) as w:
                for name, t in state.items():
                    f8 = name.startswith("float8")
                    w.add(name, t.view(torch.uint8) if f8 else t, dtype=t.dtype if f8 else None)
            back = pici.load(path, to="torch")
        self.assertEqual(list(back), list(state))
        for name, t in state.items():
            self.assertEqual((back[name].dtype, back[name].shape), (t.dtype, t.shape), name)
            self.assertEqual(self.bits(back[name]), self.bits(t), name)
        other = torch.nn.Sequential(
            torch.nn.Conv2d(3, 5, 3), torch.nn.BatchNorm2d(5), torch.nn.Flatten(), torch.nn.Linear(20, 4).bfloat16()
        )
        extra = set(state) - set(model.state_dict())
        other.load_state_dict({name: t for name, t in back.items() if name not in extra})
        for name, t in model.state_dict().items():
            self.assertTrue(torch.equal(other.state_dict()[name], t), name)

    def test_dtypes_of_torch(self):
        for d in _dtypes.ALL:
            dtype = getattr(torch, d.narrow or d.storage.name, None)
            if dtype is not None:
                self.assertIs(_dtypes.named(dtype), d)
                self.assertIs(_dtypes.named(str(dtype)), d)

    def test_bool_and_complex(self):
        mask = torch.arange(900) % 3 == 0
        z = torch.full((30, 2), 1 - 2j, dtype=torch.complex64)
        back = pici.decompress(pici.compress(mask), to="torch", dtype=torch.bool)
        self.assertTrue(torch.equal(back, mask))
        back = pici.decompress(pici.compress(z), to="torch", dtype=torch.complex64)
        self.assertTrue(torch.equal(back.reshape(30, 2), z))
        into = torch.zeros_like(z)
        self.assertIs(pici.decompress(pici.compress(z), out=into), into)
        self.assertTrue(torch.equal(into, z))

    def test_f8(self):
        for name, dtype in (("float8_e4m3fn", "f8e4m3"), ("float8_e5m2", "f8e5m2")):
            if not hasattr(torch, name):
                block = pici.compress(np.zeros(4, np.uint8), dtype=dtype)
                self.assertRaises(TypeError, pici.decompress, block, to="torch")
                continue
            t = self.tensor(name)
            block = pici.compress(t.view(torch.uint8), dtype=dtype)
            out = pici.decompress(block, to="torch")
            self.assertEqual((out.dtype, self.bits(out)), (t.dtype, self.bits(t)))

    def test_lazy_signs(self):
        """A conjugate or negative that torch has not computed yet is the one that it stands for, in every call."""
        z = torch.complex(torch.arange(1.0, 13), torch.arange(5.0, 17)).reshape(3, 4)
        lazy = {
            "conj": z.conj(),
            "neg": z.conj().imag,
            "both": torch._neg_view(z.conj()),
            "part": z.conj().imag[1:, ::2],
        }
        for name, x in lazy.items():
            self.assertTrue(x.is_conj() or x.is_neg())
            plain = x.resolve_conj().resolve_neg().clone()
            block = pici.compress(plain)
            self.assertEqual(pici.compress(x), block, name)
            zero = torch.zeros_like(plain)
            self.assertEqual(pici.diff(zero, x), pici.diff(zero, plain))
            self.assertEqual(pici.diff(x, zero), pici.diff(plain, zero))
            self.assertRaisesRegex(ValueError, "lazy", pici.decompress, block, out=x)
            self.assertRaisesRegex(ValueError, "lazy", pici.apply, x, pici.diff(plain, zero))
            with tempfile.TemporaryDirectory() as d:
                a, b = Path(d) / "a", Path(d) / "b"
                pici.save(a, {"x": x})
                pici.save(b, {"x": plain})
                self.assertEqual(a.read_bytes(), b.read_bytes())
                if name != "conj":
                    old = {"x": torch.zeros_like(plain.real if plain.is_complex() else plain)}
                    new = {"x": x.real if x.is_complex() else x}
                    pici.save_delta(old, new, a, overwrite=True)
                    back = pici.load_delta(old, a, to="torch")
                    self.assertTrue(torch.equal(back["x"], new["x"].resolve_neg()))
                    back = pici.load_delta(new, self.delta(d, new, old), to="torch")
                    self.assertTrue(torch.equal(back["x"], old["x"]))

    @staticmethod
    def delta(folder, old, new):
        path = Path(folder) / "delta"
        pici.save_delta(old, new, path, overwrite=True)
        return path

    def test_types_without_arithmetic(self):
        """Types that the library knows by name alone come back as such."""
        bits = torch.arange(24, dtype=torch.uint8).reshape(2, 12)
        names = {
            "float8_e8m0fnu": "f8e8m0",
            "float8_e4m3fnuz": "f8e4m3fnuz",
            "float8_e5m2fnuz": "f8e5m2fnuz",
            "float4_e2m1fn_x2": "f4e2m1x2",
            "complex32": "complex32",
        }
        given = {own: bits.view(getattr(torch, name)) for name, own in names.items() if hasattr(torch, name)}
        with tempfile.TemporaryDirectory() as d:
            path = Path(d) / "x.pici"
            pici.save(path, given)
            got = pici.load(path, to="torch")
            raw = pici.load(path, to="bits")
            with pici.open(path) as f:
                for own, t in given.items():
                    self.assertEqual((f[own].dtype, f[own].shape), (own, tuple(t.shape)))
                    self.assertEqual((got[own].dtype, got[own].shape), (t.dtype, t.shape))
                    self.assertTrue(torch.equal(got[own].view(torch.uint8), bits), own)
                    self.assertEqual(raw[own].tobytes(), bytes(range(24)))
                    block = pici.compress(t)
                    back = pici.decompress(block, to="torch", dtype=t.dtype).reshape(t.shape)
                    self.assertTrue(back.dtype == t.dtype and torch.equal(back.view(torch.uint8), bits))
                    self.assertRaisesRegex(TypeError, f"no arithmetic for {own}", pici.scatter_add, t, block)
                    self.assertRaises(TypeError, pici.Comm.threads(1)[0].all_reduce, t)
                    if own == "complex32":
                        with self.assertRaisesRegex(TypeError, own):
                            pici.save_delta({}, {"x": t}, path, overwrite=True)
                        continue
                    zero = torch.zeros_like(bits).view(t.dtype)
                    pici.save_delta({"x": zero}, {"x": t}, Path(d) / "delta", overwrite=True)
                    back = pici.load_delta({"x": zero}, Path(d) / "delta", to="torch")["x"]
                    self.assertTrue(back.dtype == t.dtype and torch.equal(back.view(torch.uint8), bits))

    def test_words_of_files(self):
        """What .safetensors and .pt files call these types."""
        words = {"F8_E8M0": "f8e8m0", "F4": "f4e2m1x2", "F6_E2M3": "f6e2m3", "float8_e5m2fnuz": "f8e5m2fnuz"}
        data = np.arange(6, dtype=np.uint8)
        with tempfile.TemporaryDirectory() as d:
            path = Path(d) / "x.pici"
            with pici.create(path) as w:
                for word in words:
                    w.add(word, data, attrs={"source.dtype": word.encode()})
            with pici.open(path) as f:
                for word, own in words.items():
                    self.assertEqual(f[word].dtype, own)
                    np.testing.assert_array_equal(f[word].read(to="bits"), data)
                    t = f[word].read(to="torch")
                    np.testing.assert_array_equal(t.view(torch.uint8).numpy(), data)
                self.assertEqual(f["F6_E2M3"].read().dtype, np.uint8)

    def test_made_of_others(self):
        class Two(torch.Tensor):
            @staticmethod
            def __new__(cls, a, b):
                return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

            def __tensor_flatten__(self):
                return ["qdata", "scale"], None

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                raise NotImplementedError

        self.assertRaisesRegex(TypeError, r"Two.*\(qdata, scale\)", pici.compress, Two(torch.ones(3), torch.ones(3)))

    def test_gradients_are_not_lost(self):
        with self.assertRaises(Exception):
            pici.compress(torch.ones(4, requires_grad=True))


class Delivery(unittest.TestCase):
    def test_refused_before_any_work(self):
        for d in _dtypes.ALL:
            self.assertRaises(ValueError, _arrays.delivery, d, "bits ")


class WithoutTorch(unittest.TestCase):
    def test_says_what_to_do(self):
        block = pici.compress(np.zeros(4))
        with unittest.mock.patch.dict("sys.modules", {"torch": None}):
            with self.assertRaisesRegex(ImportError, "to='torch' needs torch: install it, or ask for to='numpy'"):
                pici.decompress(block, to="torch")
