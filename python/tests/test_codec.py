# SPDX-License-Identifier: BSD-3-Clause
"""Blocks agree with the golden vectors and with NumPy."""
import array
import mmap
import os
import pydoc
import tempfile
import threading
import timeit
import unittest

import numpy as np

import pici
from pici import _arrays, _dtypes
from vectors import roundtrips

FORMATS = ["dense", "bitmap", "coo", "hybrid", "auto"]
LENGTHS = [0, 1, 63, 64, 65, 4095, 4096, 4097, 3 * 4096 + 5, 70 * 4096]


def sparse(dtype, n, density=0.05, seed=0):
    """Elements with random bits, most of them zero, in their storage type."""
    d = _dtypes.BY_NAME[dtype]
    rng = np.random.default_rng(seed + n)
    bits = rng.integers(0, 256, n * d.storage.itemsize, np.uint8).view(d.storage)
    return np.where(rng.random(n) < density, bits, np.zeros((), d.storage)).astype(d.storage)


class Vectors(unittest.TestCase):
    def test_both_directions(self):
        blocks = 0
        for name, dtype, n, dense, made in roundtrips():
            storage = _dtypes.BY_NAME[dtype].storage
            elements = np.frombuffer(dense, storage.newbyteorder("<")).astype(storage)
            self.assertEqual(elements.size, n)
            for form, kind, block in made:
                with self.subTest(case=name, format=form, kind=kind):
                    if kind != "earlier":
                        checksum = kind == "checksum"
                        self.assertEqual(pici.compress(elements, dtype=dtype, format=form, checksum=checksum), block)
                    back = pici.decompress(block, to="bits")
                    self.assertEqual((back.dtype, back.tobytes()), (storage, elements.tobytes()))
                    blocks += 1
        self.assertGreater(blocks, 500)


class Roundtrip(unittest.TestCase):
    def test_dtypes_formats_lengths(self):
        for d in _dtypes.ALL:
            for n in LENGTHS:
                x = sparse(d.name, n)
                for form in FORMATS:
                    with self.subTest(dtype=d.name, n=n, format=form):
                        block = pici.compress(x, dtype=d.name, format=form)
                        self.assertIsInstance(block, bytes)
                        info = pici.inspect(block[:48])
                        self.assertEqual((info.dtype, info.count, info.block_bytes), (d.name, n, len(block)))
                        if form not in ("auto", "dense"):
                            self.assertEqual(info.nnz, np.count_nonzero(x.view(f"u{d.storage.itemsize}")))
                        pici.verify(block)
                        self.assertEqual(pici.decompress(block, to="bits").tobytes(), x.tobytes())

    def test_types_of_numpy(self):
        for d in _dtypes.ALL:
            if d.narrow:
                continue
            x = sparse(d.name, 5000)
            block = pici.compress(x)
            self.assertEqual(pici.inspect(block).dtype, d.name)
            self.assertEqual(pici.decompress(block).dtype, x.dtype)

    def test_threads_and_checksum(self):
        x = sparse("f32", 1 << 20)
        for form in FORMATS:
            one = pici.compress(x, format=form, checksum=True)
            for threads in (0, 2, 7):
                self.assertEqual(pici.compress(x, format=form, checksum=True, threads=threads), one)
                self.assertEqual(pici.decompress(one, threads=threads).tobytes(), x.tobytes())

    def test_any_array(self):
        x = sparse("f32", 6 * 7 * 8).reshape(6, 7, 8)
        plain = pici.compress(x)
        frozen = x.copy()
        frozen.flags.writeable = False
        unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)
        self.assertFalse(unaligned.flags.aligned)
        fortran, buffer = np.asfortranarray(x), array.array("f", x.tobytes())
        for same in (x.astype(">f4"), fortran, x[::-1][::-1], frozen, unaligned, memoryview(x), buffer):
            self.assertEqual(pici.compress(same), plain)
        self.assertEqual(pici.compress(x[:, ::2, 3]), pici.compress(x[:, ::2, 3].ravel()))
        self.assertEqual(pici.compress(np.float32(1)), pici.compress(np.ones(1, np.float32)))
        self.assertEqual(pici.inspect(pici.compress(b"")), pici.Info("dense", "u8", 0, 0, 48))
        self.assertEqual(pici.decompress(pici.compress(b"\0\1\2")).tolist(), [0, 1, 2])

    def test_dtype_by_request(self):
        bits = np.array([0, 0x3F80, 0], np.uint16)
        block = pici.compress(bits, dtype="bf16")
        self.assertEqual(pici.inspect(block).dtype, "bf16")
        for wrong, dtype in ((bits, "f32"), (bits.astype(object), None), (np.zeros(2, np.complex64), "f32")):
            with self.assertRaisesRegex(TypeError, "pass array.astype|pass dtype="):
                pici.compress(wrong, dtype=dtype)
        for what in ([1.0], 1.0, None, "text"):
            self.assertRaisesRegex(TypeError, "Pass numpy.asarray", pici.compress, what)

    def test_names_of_dtypes(self):
        """As NumPy and torch spell them, and the types themselves."""
        for d in _dtypes.ALL:
            full = d.narrow or d.storage.name
            block = pici.compress(np.zeros(3, d.storage), dtype=d.name)
            for same in (full, f"torch.{full}", *([] if d.narrow else [d.storage, d.storage.type])):
                self.assertEqual(pici.compress(np.zeros(3, d.storage), dtype=same), block, same)
        self.assertEqual(_dtypes.named("torch.float").name, "f32")
        self.assertEqual(_dtypes.named(float).name, "f64")
        self.assertEqual(_dtypes.named(bool).name, "bool")
        for wrong in ("i4", "float", "torch.qint8", "", "f32 "):
            self.assertRaisesRegex(ValueError, r"pass one of f32 \(float32\)", _dtypes.named, wrong)
        self.assertRaisesRegex(TypeError, "pass a name such as", _dtypes.named, 3.5)

    def test_bool(self):
        mask = np.arange(9000) % 7 == 0
        block = pici.compress(mask.reshape(90, 100))
        self.assertEqual(block, pici.compress(mask.view(np.uint8)))
        self.assertEqual(pici.decompress(block).dtype, np.uint8)
        back = pici.decompress(block, dtype="bool")
        self.assertEqual((back.dtype, back.tolist()), (np.dtype(bool), mask.tolist()))
        into = np.ones((90, 100), bool)
        self.assertIs(pici.decompress(block, out=into), into)
        self.assertEqual(into.ravel().tolist(), mask.tolist())
        self.assertRaisesRegex(TypeError, r"view\('u1'\)", pici.scatter_add, into, block)
        new = ~mask
        delta = pici.diff(mask, new)
        pici.apply(mask, delta)
        self.assertTrue((mask == new).all())
        seven = pici.compress(np.array([0, 7], np.uint8))
        self.assertRaisesRegex(ValueError, "7, which is no bool: pass to='bits'", pici.decompress, seven, dtype=bool)
        self.assertRaises(TypeError, pici.decompress, pici.compress(np.ones(3, np.int16)), dtype=bool)
        for to in ("dlpack", "numpy"):
            self.assertRaisesRegex(ValueError, "7, which is no bool", pici.decompress, seven, dtype=bool, to=to)
        for write in (pici.decompress_into, pici.apply):
            into = np.zeros(2, bool)
            self.assertRaisesRegex(ValueError, r"7, which is no bool: pass array.view\('u1'\)", write, into, seven)
            self.assertEqual(into.view(np.uint8).tolist(), [0, 1])
            write(into.view(np.uint8), seven)
        with self.assertRaises(pici.CorruptError):  # of the block, not of what it left
            pici.decompress_into(np.zeros(9000, bool), pici.compress(np.full(9000, 7, np.uint8), format="bitmap")[:-1])

    def test_complex(self):
        for kind, part in ((np.complex64, "f32"), (np.complex128, "f64")):
            x = np.zeros((30, 20), kind)
            x[::3, 4] = 1.5 - 2j
            x[2, 7] = -0.25j
            for same in (x, np.asfortranarray(x), x.astype(x.dtype.newbyteorder(">"))):
                block = pici.compress(same)
                info = pici.inspect(block)
                self.assertEqual((info.dtype, info.count), (part, 1200))
            back = pici.decompress(block, dtype=kind)
            self.assertEqual((back.dtype, back.shape), (x.dtype, (600,)))
            np.testing.assert_array_equal(back.reshape(x.shape), x)
            total = x.copy()
            pici.scatter_add(total, block)
            np.testing.assert_array_equal(total, 2 * x)
            self.assertEqual(pici.compress(kind(3)), pici.compress(np.array([3, 0], part.replace("f", "float"))))
        odd = pici.compress(np.ones(3, np.float32))
        self.assertRaises(TypeError, pici.decompress, odd, dtype="complex64")

    def test_any_bytes(self):
        x = sparse("u16", 9000)
        block = pici.compress(x)
        for same in (bytearray(block), memoryview(block), np.frombuffer(block, np.uint8), memoryview(b"x" + block)[1:]):
            self.assertEqual(pici.decompress(same).tobytes(), x.tobytes())
        with tempfile.TemporaryFile() as f:
            f.write(block)
            f.flush()
            with mmap.mmap(f.fileno(), len(block)) as m:
                self.assertEqual(pici.decompress(m).tobytes(), x.tobytes())
        self.assertRaises(TypeError, pici.decompress, "text")
        self.assertRaises((ValueError, BufferError), pici.decompress, np.zeros(200, np.uint8)[::2])

    def test_arguments(self):
        x = np.zeros(8, np.float32)
        block = pici.compress(x)
        self.assertRaises(ValueError, pici.compress, x, format="zip")
        self.assertRaises(ValueError, pici.compress, x, threads=-1)
        self.assertRaises(ValueError, pici.compress, x, threads=2**32)
        self.assertRaises(TypeError, pici.compress, x, threads=1.5)
        self.assertRaises(ValueError, pici.decompress, block, to="list")

    def test_help_begins_with_the_functions(self):
        shown = [line.strip() for line in pydoc.plain(pydoc.render_doc(pici)).splitlines()]
        begins = shown.index("compress(array)                     the block of an array, as bytes")
        self.assertLess(begins, 8)
        functions = [name for name in pici.__all__ if callable(getattr(pici, name)) and name.islower()]
        self.assertEqual(pici.__all__[: len(functions)], functions)
        for name in functions:
            self.assertIn(f"    {name}(", pici.__doc__)

    def test_threads_help_errors(self):
        with self.assertRaisesRegex(ValueError, r"threads is -1, not from 0 \(one for each core\)"):
            pici.compress(b"", threads=-1)


class Zeros(unittest.TestCase):
    def test_pack(self):
        rng = np.random.default_rng(5)
        x = rng.standard_normal(20000).astype(np.float32)
        plain = pici.compress(x)
        packed = pici.compress(x, pack="planes")
        fast = pici.compress(x, format="hybrid", pack="fast")
        self.assertEqual([pici.inspect(b).format for b in (plain, packed, fast)], ["dense", "packed", "packed"])
        self.assertLess(len(packed), len(plain) * 0.9)
        self.assertLess(len(fast), len(plain) * 0.9)
        self.assertEqual(pici.compress(x, format="packed"), packed)
        for block in (packed, fast):
            self.assertEqual(pici.decompress(block).tobytes(), x.tobytes())
            self.assertEqual(pici.decompress_range(block, 5000, 33).tobytes(), x[5000:5033].tobytes())
        self.assertRaises(ValueError, pici.compress, x, pack="small")
        integers = np.arange(9000, dtype=np.int32)
        self.assertEqual(pici.compress(integers, pack="planes"), pici.compress(integers))
        with tempfile.TemporaryDirectory() as folder:
            for pack in ("none", "planes", "fast"):
                path = os.path.join(folder, pack + ".pici")
                pici.save(path, {"x": x, "i": integers}, pack=pack)
                back = pici.load(path)
                self.assertEqual(back["x"].tobytes(), x.tobytes())
                self.assertEqual(back["i"].tobytes(), integers.tobytes())
            sizes = [os.path.getsize(os.path.join(folder, p + ".pici")) for p in ("none", "planes", "fast")]
            self.assertLess(max(sizes[1:]), sizes[0])

    def test_by_value(self):
        """-0.0 is stored as +0.0, of floats; integers and differences keep all bits."""
        for d in _dtypes.ALL:
            item = 8 * d.storage.itemsize
            x = sparse(d.name, 9000, 0.05).view(f"u{item // 8}")
            x[::3] = 1 << (item - 1)  # of floats, the sign alone
            plain = np.where(x == x[0], 0, x).astype(x.dtype) if d.name[0] in "fb" else x
            for form in FORMATS:
                block = pici.compress(x, dtype=d.name, format=form, zeros="value")
                self.assertEqual(block, pici.compress(plain, dtype=d.name, format=form), (d.name, form))
                room = bytearray(pici.bound(x.size, d.name, form))
                self.assertEqual(pici.compress(x, dtype=d.name, format=form, zeros="value", out=room), block)
        exact = pici.compress(np.array([-0.0]), zeros="exact")
        self.assertEqual(np.signbit(pici.decompress(exact)).tolist(), [True])
        pair = np.array([-0.0 - 0.0j, 1], np.complex64)
        self.assertFalse(np.signbit(pici.decompress(pici.compress(pair, zeros="value"))).any())
        delta = pici.diff(np.array([0.0]), np.array([-0.0]))
        self.assertEqual(pici.inspect(delta).count, 1)
        self.assertNotEqual(delta, pici.diff(np.array([0.0]), np.array([0.0])))
        self.assertRaisesRegex(ValueError, "pass 'exact' or 'value'", pici.compress, pair, zeros="none")


class Out(unittest.TestCase):
    """compress(out=), decompress(out=)."""

    def test_compress(self):
        x = sparse("f32", 40000)
        for form in FORMATS:
            block = pici.compress(x, format=form, checksum=True)
            need = pici.bound(x.size, "float32", form)
            buffers = [bytearray(need), np.ones(need, np.uint8), np.ones((need + 7) // 8), memoryview(bytearray(need))]
            for out in buffers:
                made = pici.compress(x, format=form, checksum=True, out=out)
                self.assertIsInstance(made, memoryview)
                self.assertEqual(bytes(made), block)
                self.assertEqual(bytes(out)[: len(block)], block)
            exact = bytearray(len(block))
            if form == "hybrid":
                self.assertEqual(pici.compress(x, format=form, checksum=True, out=exact), block)
                with self.assertRaisesRegex(pici.SpaceError, f"the {len(block) - 1} bytes of out: {need} suffice"):
                    pici.compress(x, format=form, checksum=True, out=exact[:-1])
        self.assertRaisesRegex(ValueError, "read-only", pici.compress, x, out=bytes(need))
        self.assertRaises((TypeError, ValueError), pici.compress, x, out=np.ones((need, 2), np.uint8)[:, 0])
        self.assertRaises(pici.ArgumentError, pici.compress, x[:10], out=x)
        self.assertEqual(pici.bound(10, complex, "dense"), 48 + 160)
        for count in (-1, 2**63, 2**64 - 1):
            self.assertRaises(ValueError, pici.bound, count, complex)
        self.assertRaisesRegex(ValueError, "no block has so many", pici.bound, 2**64 - 1)

    def test_decompress(self):
        x = sparse("f64", 5000)
        block = pici.compress(x)
        out = np.ones((50, 100))
        self.assertIs(pici.decompress(block, out=out), out)
        self.assertEqual(out.tobytes(), x.tobytes())
        frozen = out.copy()
        frozen.flags.writeable = False
        self.assertRaisesRegex(ValueError, "read-only: pass one whose", pici.decompress, block, out=frozen)
        self.assertRaisesRegex(ValueError, "the block has 5000: inspect", pici.decompress, block, out=np.ones(4))
        self.assertRaisesRegex(ValueError, "row-major", pici.decompress, block, out=np.ones((100, 50)).T)
        self.assertRaisesRegex(TypeError, "f32, the block's f64", pici.decompress, block, out=np.ones(5000, "f4"))


class Parts(unittest.TestCase):
    def test_ranges(self):
        x = sparse("i32", 5 * 4096 + 17)
        rng = np.random.default_rng(1)
        for form in FORMATS:
            block = pici.compress(x, format=form)
            ends = [(0, 0), (0, x.size), (x.size, 0), (4096, 4096)]
            for first, count in ends + [(int(a), int(b)) for a, b in rng.integers(0, x.size // 2, (40, 2))]:
                part = pici.decompress_range(block, first, count)
                self.assertEqual(part.tobytes(), x[first : first + count].tobytes())
        for first, count in ((0, x.size + 1), (x.size + 1, 0), (-1, 1), (0, -1), (2**64, 0), (2**64 - 1, 2)):
            with self.assertRaisesRegex(ValueError, "of a block of 20497|not from 0"):
                pici.decompress_range(block, first, count)

    def test_limit(self):
        zeros = pici.compress(np.zeros(1 << 20, np.float32), format="coo")
        self.assertRaises(pici.LimitError, pici.decompress, zeros, max_bytes=(4 << 20) - 1)
        self.assertEqual(pici.decompress(zeros, max_bytes=4 << 20).size, 1 << 20)
        self.assertEqual(pici.decompress(zeros, max_bytes=None).size, 1 << 20)
        self.assertEqual(pici.decompress_range(zeros, 5, 2, max_bytes=8).tolist(), [0, 0])
        with self.assertRaisesRegex(pici.LimitError, "pass max_bytes=4194304, or None"):
            pici.decompress(zeros, max_bytes=1)
        many = pici.compress(np.zeros((1 << 30) + 1, np.uint8), format="coo")
        self.assertRaises(pici.LimitError, pici.decompress, many)
        self.assertEqual(_arrays.limit("auto", 1 << 21), 1 << 31)

    def test_into(self):
        x = sparse("f64", 10000)
        block = pici.compress(x)
        out = np.ones((100, 100))
        self.assertIsNone(pici.decompress_into(out, block))
        self.assertEqual(out.tobytes(), x.tobytes())
        raw = bytearray(80000)
        pici.decompress_into(raw, pici.compress(x.view(np.uint8)))
        self.assertEqual(raw, x.tobytes())


class Add(unittest.TestCase):
    def test_against_numpy(self):
        rng = np.random.default_rng(2)
        for d in _dtypes.ALL:
            if d.narrow:
                continue
            n = 3 * 4096 + 5
            if d.storage.kind == "f":
                x = np.where(rng.random(n) < 0.1, rng.standard_normal(n), 0).astype(d.storage)
                y = rng.standard_normal(n).astype(d.storage)
            else:
                x, y = sparse(d.name, n), sparse(d.name, n, 0.9, 1)
            for form in FORMATS:
                for threads in (1, 2):
                    with self.subTest(dtype=d.name, format=form):
                        total = y.copy()
                        self.assertIsNone(pici.scatter_add(total, pici.compress(x, format=form), threads=threads))
                        np.testing.assert_array_equal(total, y + x)

    def test_bf16_by_bits(self):
        one, two, big = 0x3F80, 0x4000, 0x7F7F
        total = np.array([one, one, big], np.uint16)
        pici.scatter_add(total, pici.compress(np.array([one, 0, big], np.uint16), dtype="bf16"), dtype="bf16")
        self.assertEqual(total.tolist(), [two, one, 0x7F80])

    def test_refusals(self):
        block = pici.compress(np.ones(4, np.float32))
        frozen = np.zeros(4, np.float32)
        frozen.flags.writeable = False
        for write in (pici.scatter_add, pici.decompress_into, pici.apply):
            for wrong in (np.zeros(4), np.zeros(4, np.int32), np.zeros(4, np.uint32)):
                self.assertRaises(TypeError, write, wrong, block)
            for wrong in (np.zeros(5, np.float32), np.zeros(8, np.float32)[::2], np.zeros(4, ">f4"), frozen, bytes(16)):
                self.assertRaises((ValueError, TypeError), write, wrong, block)
            self.assertRaises(TypeError, write, [0.0] * 4, block)
            for wrong in (np.zeros((2, 2), np.float32).T, np.zeros(8, np.float32)[::2]):  # no advice to lose the result
                with self.assertRaisesRegex(ValueError, r"row-major .* and assign it back by array\[...\] = copy"):
                    write(wrong, block)
        self.assertEqual(frozen.tolist(), [0] * 4)
        taken = np.zeros(4, np.uint32)
        pici.scatter_add(taken, block, dtype="f32")
        self.assertEqual(taken.view(np.float32).tolist(), [1] * 4)

    def test_overlap(self):
        x = np.zeros(100, np.uint8)
        block = pici.compress(x, format="dense")
        both = np.frombuffer(bytearray(block), np.uint8)
        with self.assertRaises(pici.ArgumentError) as caught:
            pici.scatter_add(both[20:120], both)
        self.assertIsNone(caught.exception.fault)
        self.assertIsInstance(caught.exception, ValueError)


class Delta(unittest.TestCase):
    def test_against_numpy(self):
        for d in _dtypes.ALL:
            for n in LENGTHS:
                base = sparse(d.name, n, 0.9)
                new = base ^ sparse(d.name, n, 0.02, 1) if d.storage.kind in "iu" else base.copy()
                new[::50] = sparse(d.name, n, 0.9, 2)[::50]
                unsigned = f"u{d.storage.itemsize}"
                xor = (base.view(unsigned) ^ new.view(unsigned)).view(d.storage)
                for form in FORMATS:
                    with self.subTest(dtype=d.name, n=n, format=form):
                        delta = pici.diff(base, new, dtype=d.name, format=form)
                        self.assertEqual(delta, pici.compress(xor, dtype=d.name, format=form))
                        self.assertEqual(delta, pici.diff(new, base, dtype=d.name, format=form, threads=2))
                        dst = base.copy()
                        self.assertIsNone(pici.apply(dst, delta, dtype=d.name))
                        self.assertEqual(dst.tobytes(), new.tobytes())
                        pici.apply(dst, delta, dtype=d.name, threads=2)
                        self.assertEqual(dst.tobytes(), base.tobytes())

    def test_arrays(self):
        base = sparse("f32", 600).reshape(20, 30)
        new = base + np.float32(1)
        delta = pici.diff(base, new, checksum=True)
        self.assertEqual(pici.diff(np.asfortranarray(base), new.astype(">f4"), checksum=True), delta)
        self.assertEqual(pici.inspect(pici.diff(base, base)).nnz, 0)
        self.assertRaises(ValueError, pici.diff, base, new.T)
        self.assertRaises(TypeError, pici.diff, base, new.view(np.int32))
        self.assertRaises(TypeError, pici.diff, base, new, dtype="f64")

    def test_nonzeros(self):
        rng = np.random.default_rng(4)
        for d in (np.float32, np.float16, np.uint8, np.int64):
            x = (rng.random(20000) < 0.02).astype(d) * d(3)
            for format in pici.codec._codec.FORMATS:
                if format == "packed" and d in (np.uint8, np.int64):
                    continue
                block = pici.compress(x, format=format)
                for first, count in ((0, None), (5000, 9000), (20000, 0), (3, 1)):
                    part = x[first:] if count is None else x[first : first + count]
                    at, values = pici.nonzeros(block, first, count)
                    self.assertEqual((at.dtype, values.dtype), (np.uint32, x.dtype))
                    np.testing.assert_array_equal(at, np.flatnonzero(part))
                    np.testing.assert_array_equal(values, part[at])
        signs = np.where(np.arange(9000) % 3, 0.0, -0.0).astype(np.float32)
        at, values = pici.nonzeros(pici.compress(signs, format="hybrid"), index="i64")
        np.testing.assert_array_equal(at, np.arange(0, 9000, 3))
        self.assertTrue(np.signbit(values).all())
        self.assertEqual(at.dtype, np.int64)
        self.assertRaisesRegex(ValueError, "inspect", pici.nonzeros, pici.compress(signs), 9000, 1)
        self.assertRaisesRegex(ValueError, "index='u16'", pici.nonzeros, pici.compress(signs), index="u16")
        self.assertRaises(pici.CorruptError, pici.nonzeros, pici.compress(signs)[:-1])
        block = bytearray(pici.compress(np.ones(99, np.float32), format="bitmap"))
        block[60] ^= 255
        self.assertRaises(pici.CorruptError, pici.nonzeros, block)

    def test_changes(self):
        rng = np.random.default_rng(4)
        old = (rng.standard_normal(600000).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        new = old.copy()
        changed = np.sort(rng.choice(old.size, 6000, replace=False))
        new[changed] ^= 1
        kept = old.copy()
        for small in (False, True):
            delta = pici.diff(old, new, dtype="bf16", small=small)
            at, values = pici.changes(old, delta, dtype="bf16", to="bits")
            np.testing.assert_array_equal(at, changed)
            np.testing.assert_array_equal(values, new[changed])
            at, values = pici.changes(old, delta, 100000, 500000, dtype="bf16", to="bits", index="u64")
            np.testing.assert_array_equal(at + 100000, changed[changed >= 100000])
            self.assertEqual(at.dtype, np.uint64)
            at, values = pici.changes(old, delta, dtype="bf16", to="dlpack")
            self.assertEqual(np.from_dlpack(at).dtype, np.uint32)
            self.assertRaisesRegex(ValueError, "599999 elements", pici.changes, old[1:], delta, dtype="bf16")
            self.assertRaisesRegex(TypeError, "the elements are u16", pici.changes, old, delta)
            self.assertRaises(pici.CorruptError, pici.changes, old, delta[:-1], dtype="bf16", to="bits")
        np.testing.assert_array_equal(old, kept)
        self.assertRaises(pici.CorruptError, pici.changes, np.zeros_like(old), delta, dtype="bf16", to="bits")

    def test_limit_of_changes(self):
        old = np.random.default_rng(1).standard_normal(20000).astype(np.float32)
        new = old.copy()
        new[::40] += 1
        for small in (False, True):
            delta = pici.diff(old, new, small=small)
            self.assertEqual(pici.changes(old, delta, max_bytes=500 * 8)[0].size, 500)
            with self.assertRaisesRegex(pici.LimitError, "500 elements of f32 and their positions take 4000 bytes"):
                pici.changes(old, delta, max_bytes=500 * 8 - 1)
        block = pici.compress(np.where(np.arange(new.size) % 40, np.float32(0), new))
        self.assertEqual(pici.nonzeros(block, index="u64", max_bytes=500 * 12)[0].size, 500)
        self.assertRaises(pici.LimitError, pici.nonzeros, block, index="u64", max_bytes=500 * 12 - 1)

    def test_small(self):
        rng = np.random.default_rng(1)
        weights = rng.standard_normal(50000).astype(np.float32)
        for d in (_dtypes.BY_CODE[code] for code in sorted(_dtypes.BY_CODE)):
            with self.subTest(d.name):
                base = weights.view(np.uint8)[: 1000 * d.storage.itemsize].view(d.storage)
                new = base.copy()
                new.view(np.uint8)[::97] ^= 1
                delta = pici.diff(base, new, dtype=d.name, small=True)
                self.assertLessEqual(len(delta), pici.bound(base.size, d.name, small=True))
                self.assertEqual(delta, pici.diff(base, new, dtype=d.name, small=True, threads=2))
                dst = base.copy()
                self.assertIsNone(pici.apply(dst, delta, dtype=d.name))
                self.assertEqual(dst.tobytes(), new.tobytes())
        for dtype, share in (("f4", 0.5), ("f2", 0.5)):
            base = weights.astype(dtype)
            new = (weights + 1e-5 * np.sign(rng.standard_normal(50000))).astype(dtype)
            delta = pici.diff(base, new, small=True, checksum=True)
            self.assertLess(len(delta), share * len(pici.diff(base, new)))
            dst = base.copy()
            pici.apply(dst, bytearray(delta), threads=2)
            self.assertEqual(dst.tobytes(), new.tobytes())
            self.assertRaises(pici.CorruptError, pici.apply, 1 - base, delta)  # not its base
            self.assertRaises(pici.CorruptError, pici.inspect, delta)
            self.assertRaises(pici.ChecksumError, pici.apply, base.copy(), delta[:-1] + bytes([delta[-1] ^ 1]))
            self.assertRaises(pici.CorruptError, pici.apply, base.copy(), delta[:-1])
            self.assertRaises(pici.CorruptError, pici.apply, base.copy(), delta[:31])
            self.assertRaises(ValueError, pici.apply, base[1:].copy(), delta)
            self.assertRaises(TypeError, pici.apply, base.view(f"i{base.itemsize}").copy(), delta)

    def test_shards(self):
        rng = np.random.default_rng(2)
        old = rng.standard_normal((700, 300)).astype(np.float16)
        new = old.copy()
        new[rng.random(old.shape) < 0.05] *= np.float16(1.01)
        ends = (0, 200, 201, 700)
        deltas = [
            pici.diff(old[a:b], new[a:b], small=True, offset=a, of=700, checksum=a == 200)
            for a, b in zip(ends, ends[1:])
        ]
        whole = b"".join(deltas)
        dst = old.copy()
        pici.apply(dst, whole, threads=2)
        self.assertEqual(dst.tobytes(), new.tobytes())
        at, values = pici.changes(old, whole)
        self.assertEqual(at.tolist(), np.flatnonzero(old != new).tolist())
        self.assertEqual(values.tolist(), new.reshape(-1)[at].tolist())
        for i, (a, b) in enumerate(zip(ends, ends[1:])):
            for delta in (deltas[i], whole):
                shard = old[a:b].copy()
                pici.apply(shard, delta, offset=a, of=700)
                self.assertEqual(shard.tobytes(), new[a:b].tobytes())
                flat = old[a:b].reshape(-1).copy()  # by elements
                pici.apply(flat, delta, offset=300 * a, of=300 * 700)
                self.assertEqual(flat.tobytes(), new[a:b].tobytes())
            for wrong, of in (((a + 1) % 3, 700), (a, 701)):
                self.assertRaises(pici.ArgumentError, pici.apply, shard, deltas[i], offset=wrong, of=of)
            self.assertRaises(ValueError, pici.apply, shard, deltas[i])
            self.assertEqual(shard.tobytes(), new[a:b].tobytes())
        self.assertRaises(pici.ArgumentError, pici.apply, old.copy(), whole[: len(deltas[0])])  # a shard of it
        self.assertRaises(pici.CorruptError, pici.apply, old.copy(), deltas[1] + deltas[0] + deltas[2])
        self.assertRaises(pici.ChecksumError, pici.apply, old.copy(), deltas[0] + deltas[1][:-1] + b"~" + deltas[2])
        self.assertEqual(pici.diff(old, new, small=True, offset=0, of=700), pici.diff(old, new, small=True))
        self.assertRaises(ValueError, pici.diff, old, new, small=True, offset=1)
        self.assertRaises(ValueError, pici.diff, old, new, small=True, offset=1, of=700)
        self.assertRaises(ValueError, pici.diff, old, new, offset=1, of=701)
        self.assertRaises(ValueError, pici.diff, np.float32(1), np.float32(2), small=True, offset=1, of=701)
        self.assertRaises(ValueError, pici.apply, old, pici.diff(old, new), offset=0, of=701)

    def test_columns(self):
        rng = np.random.default_rng(5)
        old = rng.standard_normal((130, 90, 2)).astype(np.float32)
        new = old.copy()
        new.view("u4")[rng.random(old.shape) < 0.05] += 1
        dst = old.copy()
        for a, b in ((0, 30), (30, 90)):
            delta = pici.diff(old[:, a:b], new[:, a:b], small=True, offset=a, of=90, axis=1)
            shard = dst[:, a:b]  # a view
            self.assertRaises(pici.ArgumentError, pici.apply, shard, delta, offset=a, of=91, axis=1)
            self.assertRaises(pici.ArgumentError, pici.apply, shard, delta, offset=(a + 30) % 60, of=90, axis=1)
            self.assertEqual(shard.tobytes(), old[:, a:b].tobytes())
            pici.apply(shard, delta, offset=a, of=90, axis=1)
            copy = np.ascontiguousarray(old[:, a:b])
            pici.apply(copy, delta, offset=a, of=90, axis=1)
            self.assertEqual(copy.tobytes(), new[:, a:b].tobytes())
        self.assertEqual(dst.tobytes(), new.tobytes())
        cuts = ((0, 30), (30, 31), (31, 90))
        for dtype in ("f4", "u1"):  # of u1, blocks
            a, b = (old, new) if dtype == "f4" else (x.view("u1")[:, :90] for x in (old, new))
            deltas = [pici.diff(a[:, i:k], b[:, i:k], small=True, offset=i, of=90, axis=1) for i, k in cuts]
            row = b"".join(deltas)
            dst = a.copy()
            pici.apply(dst, row, threads=2)
            self.assertEqual(dst.tobytes(), b.tobytes())
            dst = a.copy()
            pici.apply(dst[:, 30:], row, offset=30, of=90, axis=1)
            self.assertEqual(dst[:, 30:].tobytes(), b[:, 30:].tobytes())
            self.assertEqual(dst[:, :30].tobytes(), a[:, :30].tobytes())
            with self.assertRaises(pici.ArgumentError):
                pici.apply(dst[:, 29:], row, offset=29, of=90, axis=1)
            with self.assertRaisesRegex(pici.UnsupportedError, "columns"):
                pici.changes(a, row)
        # as many elements, counted otherwise
        delta = pici.diff(old[:, :45], new[:, :45], small=True, offset=0, of=90, axis=1)
        rows = pici.diff(old[:65], new[:65], small=True, offset=0, of=130)
        theirs = r"is of columns \[0, 90\) of 130 rows of 180 elements"
        for shard, other, axis, words in (
            (old[:65], delta, 0, rf"has elements \[0, 11700\) of 23400, .*{theirs}"),
            (old[:, :45], rows, 1, r"has columns \[0, 90\) of 130 rows.* is of elements \[0, 11700\) of 23400"),
            (old[:, :45], pici.diff(old, new, small=True), 1, r"has columns.* is of all of 23400 elements"),
        ):
            dst = shard.copy()
            with self.assertRaisesRegex(pici.ArgumentError, words):
                pici.apply(dst, other, offset=0, of=90 if axis else 130, axis=axis)
            self.assertEqual(dst.tobytes(), shard.tobytes())
        for axis in (-1, 3):
            with self.assertRaisesRegex(ValueError, "axis"):
                pici.diff(old, new, small=True, offset=0, of=90, axis=axis)
        with self.assertRaisesRegex(ValueError, "columns"):
            pici.diff(old, new, small=True, offset=1, of=90, axis=1)

    def test_floats_of_4_bits(self):
        rng = np.random.default_rng(6)
        old = rng.integers(0, 256, 20000, np.uint8)
        new = old ^ np.where(rng.random(20000) < 0.02, rng.choice([1, 16], 20000), 0).astype(np.uint8)
        plain = pici.diff(old, new, small=True)
        deltas = {name: pici.diff(old, new, small=True, dtype=name) for name in ("mxfp4", "nvfp4", "f4e2m1x2")}
        self.assertEqual(len(set(deltas.values())), 1)
        delta = deltas["mxfp4"]
        self.assertEqual((plain[4], delta[4]), (1, 3))
        parts = [
            pici.diff(old[a:b], new[a:b], small=True, dtype="mxfp4", offset=a, of=20000)
            for a, b in ((0, 7), (7, 20000))
        ]
        dst = old.copy()
        pici.apply(dst, b"".join(parts))
        self.assertEqual(dst.tobytes(), new.tobytes())
        self.assertLess(len(delta), 0.7 * len(plain))
        for dtype in (None, "nvfp4"):
            dst = old.copy()
            pici.apply(dst, delta, dtype=dtype)
            self.assertEqual(dst.tobytes(), new.tobytes())
        self.assertRaises(TypeError, pici.diff, old.view("u2"), new.view("u2"), small=True, dtype="mxfp4")

    def test_range_of_a_whole_delta(self):
        chunk = 1 << 19
        old = np.random.default_rng(3).standard_normal(2 * chunk + 100).astype(np.float32)
        new = old.copy()
        new.view("u4")[::50] += 1
        delta = pici.diff(old, new, small=True)
        shard = old[chunk:].copy()
        pici.apply(shard, delta, offset=chunk, of=old.size)
        self.assertEqual(shard.tobytes(), new[chunk:].tobytes())
        with self.assertRaises(pici.ArgumentError) as caught:  # which has a part of a chunk
            pici.apply(old[5:chunk].copy(), delta, offset=5, of=old.size)
        self.assertIn("524288", str(caught.exception))

    def test_several_at_once(self):
        rng = np.random.default_rng(4)
        steps = [rng.standard_normal(600000).astype(np.float32)]
        for _ in range(3):
            steps.append(steps[-1].copy())
            steps[-1].view("u4")[rng.integers(0, 600000, 6000)] += 1
        deltas = [pici.diff(a, b, small=True) for a, b in zip(steps, steps[1:])]
        dst = steps[0].copy()
        pici.apply(dst, *deltas, threads=2)
        self.assertEqual(dst.tobytes(), steps[3].tobytes())
        mixed = [deltas[0], pici.diff(steps[1], steps[2]), deltas[2]]
        dst = steps[0].copy()
        pici.apply(dst, *mixed)
        self.assertEqual(dst.tobytes(), steps[3].tobytes())
        self.assertRaises(ValueError, pici.apply, dst, deltas[0], pici.diff(steps[0][1:], steps[1][1:], small=True))

    def test_damaged(self):
        base = np.zeros(5000, np.int16)
        for checksum, error in ((False, pici.CorruptError), (True, pici.ChecksumError)):
            delta = bytearray(pici.diff(base, np.arange(5000, dtype=np.int16), format="bitmap", checksum=checksum))
            delta[-1:] = delta[-2:-1] = b"\0"
            with self.assertRaises(error) as caught:
                pici.apply(base.copy(), delta)
            self.assertEqual(caught.exception.fault.rule, "checksum" if checksum else "stored-zero")


class Concurrent(unittest.TestCase):
    def test_many_threads(self):
        x = [sparse("f32", 300000, 0.1, seed) for seed in range(4)]
        wrong = []

        def work(k):
            for _ in range(5):
                if pici.decompress(pici.compress(x[k], threads=2)).tobytes() != x[k].tobytes():
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class Calls(unittest.TestCase):
    @unittest.skipIf(os.environ.get("LD_PRELOAD"), "a sanitizer: the time of a small call")
    def test_small_calls(self):
        """Through ctypes, a call took 9 us and more. The least of many, since other programs may run."""
        x = sparse("f32", 256)
        block, room = pici.compress(x), bytearray(pici.bound(256))
        out = np.frombuffer(room, np.uint8)
        for call in (
            lambda: pici.compress(x),
            lambda: pici.compress(x, out=out),
            lambda: pici.decompress(block),
            lambda: pici.decompress(block, out=x),
            lambda: pici.inspect(block),
        ):
            self.assertLess(min(timeit.repeat(call, number=100, repeat=100)) / 100, 6e-6)
