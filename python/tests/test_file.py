# SPDX-License-Identifier: BSD-3-Clause
"""Files agree with NumPy, and with picitool if PICITOOL names it."""
import gc
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import weakref
from pathlib import Path

import numpy as np

import pici
from pici import _dlpack, _dtypes
from test_codec import sparse


class Files(unittest.TestCase):
    def setUp(self):
        self.dir = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = self.dir / "x.pici"

    def enterContext(self, manager):  # as Python 3.11's
        result = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return result

    def open(self, **options):
        return self.enterContext(pici.open(self.path, **options))

    def one_at_a_time(self, function, work):
        """Run work(k) in four threads. The library's objects are for one thread, and the GIL is released."""
        real, inside, most = getattr(pici._codec, function), [], []

        def slowly(*args):
            inside.append(args)
            time.sleep(0.001)
            status = real(*args)
            most.append(len(inside))
            inside.pop()
            return status

        with unittest.mock.patch.object(pici._codec, function, slowly):
            threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(set(most), {1})


class Reading(Files):
    def test_not_pickled(self):
        pici.save(self.path, {"x": np.ones(3)})
        f = self.open()
        for o, words in ((f, "open it again in the worker, by its path"), (f["x"], "pass the path and the name")):
            said = rf"a pici.{type(o).__name__} is not pickled: {words}"
            self.assertRaisesRegex(TypeError, said, pickle.dumps, o)
        with pici.create(self.dir / "y") as w:
            self.assertRaisesRegex(TypeError, "a pici.Writer is not pickled", pickle.dumps, w)

    def test_roundtrip(self):
        arrays = {d.name: sparse(d.name, 30000).reshape(3, 100, 100) for d in _dtypes.ALL}
        for options in ({}, {"threads": 2, "chunk_elements": 1000}, {"format": "bitmap"}):
            with pici.create(self.path, overwrite=True, **options) as w:
                for name, x in arrays.items():
                    w.add(name, x, dtype=name)
                w.add("", np.float64(2.5))
                w.add("empty", np.zeros((3, 0, 2), np.int8))
            with pici.open(str(self.path)) as f:
                self.assertEqual(list(f), [*arrays, "", "empty"])
                self.assertEqual(len(f), len(arrays) + 2)
                f.verify()
                for name, x in arrays.items():
                    t = f[name]
                    self.assertEqual((t.name, t.dtype, t.shape, t.size), (name, name, x.shape, x.size))
                    self.assertEqual((len(t), t.ndim, t.nbytes), (3, 3, x.nbytes))
                    self.assertEqual(t.chunk_elements, options.get("chunk_elements", 1 << 20))
                    self.assertLess(0, t.stored_bytes)
                    back = t.read(to="bits")
                    self.assertEqual((back.shape, back.tobytes()), (x.shape, x.tobytes()))
                self.assertEqual((f[""].shape, f[""][()], f[""][...].shape), ((), 2.5, ()))
                self.assertRaises(TypeError, len, f[""])
                self.assertEqual(f["empty"][...].shape, (3, 0, 2))
                self.assertEqual(f["empty"].read().shape, (3, 0, 2))

    def test_names_and_attributes(self):
        names = ["plain", "", "ünïcödé", "nul\0inside", "not \udcff utf-8", "<script>"]
        attrs = {"a": b"", "bytes": bytes(range(256)), "ü": b"x" * 1000}
        with pici.create(self.path, attrs={"file": b"whole"}) as w:
            for i, name in enumerate(names):
                w.add(name, np.full(3, i, np.int8), attrs=attrs if i == 1 else None)
        f = self.open()
        self.assertEqual(list(f), names)
        for i, name in enumerate(names):
            self.assertEqual(f[name][...].tolist(), [i] * 3)
            self.assertIn(name, f)
        self.assertEqual(f.attrs, {"file": b"whole"})
        self.assertEqual((f[names[0]].attrs, f[names[1]].attrs, f[names[2]].attrs), ({}, attrs, {}))
        self.assertNotIn("no such", f)
        self.assertNotIn(5, f)
        with self.assertRaisesRegex(KeyError, "^no tensor 'plane' in .*: did you mean 'plain'[?]$"):
            f["plane"]
        with self.assertRaisesRegex(pici.NoTensorError, r"list\(file\) has all names"):
            f["quite another"]
        self.assertRaises(KeyError, f.__getitem__, 5)
        self.assertIsNone(f.get("no such"))

    def test_missing(self):
        """A name that is not there costs no search in a long file, and none in get()."""
        pici.save(self.path, {f"layer{i}": np.zeros(0) for i in range(1001)})
        with unittest.mock.patch("difflib.get_close_matches", side_effect=AssertionError("a search")):
            f = self.open()
            self.assertRaisesRegex(KeyError, r"'layer' in .*: list\(file\) has all names", f.__getitem__, "layer")
            pici.save(self.path, {"layer1": np.zeros(2)}, overwrite=True)
            f = self.open()
            self.assertIsNone(f.get("layer"))
            self.assertEqual((f.get("layer", 5), f.get("layer1", 5).shape, f.get(5)), (5, (2,), None))
        self.assertRaisesRegex(KeyError, "did you mean 'layer1'", f.__getitem__, "layer")
        self.assertNotIn("\ud800", f)
        self.assertIsNone(f.get("\ud800"))
        self.assertRaises(pici.NoTensorError, f.__getitem__, "\ud800")

    def test_indexing(self):
        x = sparse("i32", 7 * 11 * 13).reshape(7, 11, 13)
        pici.save(self.path, {"x": x}, chunk_elements=100)
        t = self.open()["x"]
        rng = np.random.default_rng(4)

        def one(n):
            kind = rng.integers(4)
            if kind == 0:
                return int(rng.integers(-n, n))
            if kind == 1:
                return np.int64(rng.integers(-n, n))
            ends = [None if rng.random() < 0.3 else int(e) for e in rng.integers(-n - 2, n + 3, 2)]
            step = None if kind == 2 else int(rng.choice([-3, -2, -1, 1, 2, 3, 20]))
            return slice(ends[0], ends[1], step)

        for _ in range(600):
            key = [one(n) for n in x.shape[: rng.integers(0, 4)]]
            if rng.random() < 0.3:
                at = int(rng.integers(0, len(key) + 1))
                key = (
                    [one(n) for n in x.shape[:at]]
                    + [...]
                    + [one(n) for n in x.shape[3 - (len(key) - at) :]][: len(key) - at]
                )
            key = tuple(key)
            want, got = x[key], t[key]
            with self.subTest(key=key):
                self.assertEqual((type(got), got.shape, got.dtype), (type(want), want.shape, want.dtype))
                np.testing.assert_array_equal(got, want)
        self.assertEqual(t[2].tolist(), x[2].tolist())
        self.assertEqual([row.sum() for row in t], [row.sum() for row in x])
        for key in ((0, 0, 0, 0), 7, -8, (..., ...), (0, 11), (slice(2), 0, 13)):
            self.assertRaises(IndexError, t.__getitem__, key)
        for key in (None, [0, 1], True, x > 0, 1.5, "x", (slice(2), [0])):
            self.assertRaises(TypeError, t.__getitem__, key)

    def test_ranges(self):
        x = sparse("f16", 10000)
        pici.save(self.path, {"x": x}, chunk_elements=999)
        for threads in (1, 3):
            t = self.open(threads=threads)["x"]
            for first, count in ((0, 0), (0, 10000), (10000, 0), (998, 2), (999, 999), (5, 9000)):
                self.assertEqual(t.read(first, count).tobytes(), x[first : first + count].tobytes())
            self.assertEqual(t.read(9000).tobytes(), x[9000:].tobytes())
            for first, count in ((0, 10001), (10001, 0), (-1, 1), (1, -1), (2**64, 0), (10001, None)):
                self.assertRaises(ValueError, t.read, first, count)

    def test_only_the_chunks_needed(self):
        """If one chunk is destroyed, reading it raises, and all others can still be read."""
        x = np.arange(1, 10001, dtype=np.int32).reshape(100, 100)
        pici.save(self.path, {"x": x, "y": x}, chunk_elements=1000, format="dense")
        raw = bytearray(self.path.read_bytes())
        at = raw.index(np.int32(5001).tobytes())  # the sixth chunk, rows 50 to 59
        raw[at] ^= 1
        self.path.write_bytes(raw)
        f = self.open()
        for name, bad in (("x", range(50, 60)), ("y", ())):
            for i in range(100):
                if i in bad:
                    with self.assertRaises(pici.ChecksumError) as caught:
                        f[name][i]
                    self.assertEqual(caught.exception.fault.rule, "body-hash")
                    self.assertLess(at - 100, caught.exception.fault.offset)
                    self.assertLess(caught.exception.fault.offset, at)
                    self.assertIn("chunk 5 of tensor 'x'", str(caught.exception))
                else:
                    np.testing.assert_array_equal(f[name][i], x[i])
        np.testing.assert_array_equal(f["x"][10:50, 3], x[10:50, 3])
        np.testing.assert_array_equal(f["x"][60:], x[60:])
        self.assertRaises(pici.ChecksumError, f["x"].__getitem__, slice(45, 65))
        self.assertRaises(pici.ChecksumError, f.verify)

    def test_arrays_and_dlpack(self):
        x = sparse("f32", 600).reshape(20, 30)
        bits = sparse("bf16", 600).reshape(20, 30)
        with pici.create(self.path) as w:
            w.add("x", x)
            w.add("b", bits, dtype="bf16")
            w.add("scalar", np.float32(7))
        f = self.open()
        self.assertEqual(np.from_dlpack(f["scalar"]).shape, ())
        np.testing.assert_array_equal(np.asarray(f["x"]), x)
        self.assertEqual(np.asarray(f["x"], np.float64).dtype, np.float64)
        np.testing.assert_array_equal(np.from_dlpack(f["x"]), x)
        back, d = _dlpack.imported(f["b"])
        self.assertEqual((d.name, back.shape, back.tobytes()), ("bf16", (20, 30), bits.tobytes()))
        self.assertEqual(pici.compress(f["b"]), pici.compress(bits, dtype="bf16"))

    def test_limit(self):
        pici.save(self.path, {"x": np.zeros(1000, np.float32)})
        f = self.open(max_bytes=400)
        self.assertEqual(f["x"][:100].size, 100)
        self.assertRaises(pici.LimitError, f["x"].__getitem__, ...)
        self.assertRaises(pici.LimitError, np.asarray, f["x"])
        self.assertEqual(self.open(max_bytes=None)["x"][...].size, 1000)

    def test_closed(self):
        pici.save(self.path, {"x": np.ones(10)})
        f = pici.open(self.path)
        t = f["x"]
        self.assertIn("x.pici", repr(f))
        f.close()
        f.close()
        for use in (lambda: t[...], lambda: f["x"], lambda: len(f), lambda: list(f), lambda: f.attrs, f.verify):
            self.assertRaisesRegex(ValueError, "closed", use)
        self.assertIn("closed", repr(f))

    def test_no_descriptor_is_left(self):
        pici.save(self.path, {"x": np.ones(10)})
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            pici.open(self.path)["x"][...]
            self.assertRaises(pici.Error, pici.open, __file__)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_errors_of_the_system(self):
        with self.assertRaises(FileNotFoundError) as caught:
            pici.open(self.path)
        self.assertIsInstance(caught.exception, pici.IoError)
        self.assertEqual((caught.exception.filename, caught.exception.status), (str(self.path), -41))
        self.assertRaises(pici.ArgumentError, pici.open, self.dir)
        self.assertRaises(ValueError, pici.open, str(self.path) + "\0.pici")
        self.assertRaisesRegex(TypeError, "neither a path nor a binary file object", pici.open, 3)

    def test_threads_take_turns(self):
        x = sparse("u32", 100000)
        pici.save(self.path, {"x": x}, chunk_elements=1000)
        t = self.open()["x"]
        wrong = []

        def work(seed):
            rng = np.random.default_rng(seed)
            for first in rng.integers(0, 99000, 20).tolist():
                if t.read(first, 500).tobytes() != x[first : first + 500].tobytes():
                    wrong.append(first)

        self.one_at_a_time("reader_read", work)
        self.assertEqual(wrong, [])


class Hostile(Files):
    def test_every_byte(self):
        """Any changed byte of a file raises an exception and does nothing worse."""
        pici.save(self.path, {"x": np.arange(40, dtype=np.uint8), "y": np.zeros(9)}, chunk_elements=30)
        good = self.path.read_bytes()
        for at in range(len(good)):
            bad = bytearray(good)
            bad[at] ^= 1 << at % 8
            self.path.write_bytes(bad)
            with self.assertRaises(pici.Error, msg=at) as caught:
                with pici.open(self.path) as f:
                    f.verify()
            self.assertIsNotNone(caught.exception.fault, at)
            self.assertLessEqual(caught.exception.fault.offset, len(good))
            try:
                with pici.open(self.path) as f:
                    for t in f.values():
                        t[...]
                        t.attrs
            except pici.Error:
                pass

    def test_every_length(self):
        pici.save(self.path, {"x": np.arange(40, dtype=np.uint8)})
        good = self.path.read_bytes()
        for n in range(len(good)):
            self.path.write_bytes(good[:n])
            self.assertRaises(pici.CorruptError, pici.open, self.path)

    def test_foreign(self):
        self.assertRaises(pici.CorruptError, pici.open, __file__)


class Stream(io.RawIOBase):
    """A file object that cannot seek, and reads and writes a few bytes at a time."""

    def __init__(self, data=b""):
        self.data = bytearray(data)

    def readable(self):
        return True

    def readinto(self, room):
        n = min(len(room), 1000, len(self.data))
        room[:n] = self.data[:n]
        del self.data[:n]
        return n

    def write(self, data):
        self.data += data[:1000]
        return min(len(data), 1000)


class Objects(Files):
    """Binary file objects instead of paths."""

    def setUp(self):
        super().setUp()
        self.x = {"x": sparse("f32", 30000).reshape(300, 100), "y": np.arange(5)}
        pici.save(self.path, self.x, chunk_elements=1000)
        self.data = self.path.read_bytes()

    def same(self, f):
        for threads in (1, 3):
            for name, x in self.x.items():
                np.testing.assert_array_equal(f[name].read(), x)
        np.testing.assert_array_equal(f["x"][100:200, 5], self.x["x"][100:200, 5])
        f.verify()

    def test_read(self):
        with open(self.path, "rb") as plain, open(self.path, "rb", buffering=0) as raw:
            for given in (plain, raw, io.BytesIO(self.data), Stream(self.data)):
                for threads in (1, 3):
                    if isinstance(given, Stream):
                        given.data[:] = self.data
                    else:
                        given.seek(0)
                    with pici.open(given, threads=threads) as f:
                        self.same(f)
            self.assertIn(str(self.path), repr(pici.open(io.BufferedReader(io.FileIO(str(self.path))))))
        behind = io.BytesIO(b"head" + self.data)
        behind.seek(4)
        self.same(pici.open(behind))
        self.assertFalse(behind.closed)

    def test_write(self):
        with open(self.dir / "z", "wb") as plain:
            pici.save(plain, self.x, chunk_elements=1000)
        self.assertEqual((self.dir / "z").read_bytes(), self.data)
        for made in (io.BytesIO(), Stream()):
            with pici.create(made, chunk_elements=1000, threads=2) as w:
                for name, x in self.x.items():
                    w.add(name, x)
            self.assertEqual(made.getvalue() if isinstance(made, io.BytesIO) else made.data, self.data)

    def test_pipe(self):
        read, write = os.pipe()
        with open(read, "rb") as source:
            with open(write, "wb") as sink:
                pici.save(sink, {"x": np.arange(100)})
            np.testing.assert_array_equal(pici.load(source)["x"], np.arange(100))

    def test_failures(self):
        """An exception in the file object is that of the call."""

        class Failing(io.BytesIO):
            left = 2

            def read(self, n=-1):
                self.left -= 1
                if self.left < 0:
                    raise ZeroDivisionError("in read")
                return super().read(n)

            def write(self, data):
                raise ZeroDivisionError("in write")

        given = Failing(self.data)
        given.left = 0
        self.assertRaisesRegex(ZeroDivisionError, "in read", pici.open, given)
        given.left = 1000
        given.seek(0)
        f = pici.open(given)
        given.left = 0
        self.assertRaisesRegex(ZeroDivisionError, "in read", f.__getitem__, "x")
        given.left = 1000
        x = f["x"]
        given.left = 0
        self.assertRaisesRegex(ZeroDivisionError, "in read", x.read)
        given.left = 1000
        self.same(f)
        for data in (np.ones(5), np.arange(1 << 20)):
            self.assertRaisesRegex(ZeroDivisionError, "in write", pici.save, Failing(), {"x": data})
        short = io.BytesIO(self.data)
        f = pici.open(short)
        x = f["x"]
        short.truncate(100)
        self.assertRaisesRegex(EOFError, "has become shorter", x.read)
        for text in (io.StringIO(), open(self.path)):
            with text:
                self.assertRaisesRegex(TypeError, "open it with mode 'rb' or 'wb'", pici.open, text)
                self.assertRaisesRegex(TypeError, "open it with mode 'rb' or 'wb'", pici.create, text)
        for n in range(0, len(self.data), 97):
            self.assertRaises(pici.CorruptError, pici.open, io.BytesIO(self.data[:n]))
            self.assertRaises(pici.CorruptError, pici.open, Stream(self.data[:n]))

    def test_signals(self):
        """An exception of a signal handler, at any point of a call, becomes the call's exception, or comes between two
        calls. No file is wrong, and no array unread, without an exception.
        """

        class Interrupt(Exception):
            pass

        def handler(*_):
            raise Interrupt

        x = {"x": sparse("f32", 300000, 0.5)}
        whole = io.BytesIO()
        pici.save(whole, x, chunk_elements=1000)

        def write():
            made = io.BytesIO()
            pici.save(made, x, chunk_elements=1000)
            return made.getvalue()

        def read():
            return pici.load(io.BytesIO(whole.getvalue()))["x"].tobytes()

        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        for work, expected in ((write, whole.getvalue()), (read, x["x"].tobytes())):
            started = time.monotonic()
            work()
            long = time.monotonic() - started
            interrupted = 0
            for k in range(400):
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(1e-6, long * (k % 100) / 90))
                    try:
                        result = work()
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    self.assertEqual(result == expected, True, "a wrong result without an exception")
                except Interrupt:
                    interrupted += 1
            self.assertGreater(interrupted, 10)

    def test_a_file_is_free_after_a_signal(self):
        """Whenever the handler of a signal raises in a call, a thread can make the next one. And a file object that
        calls the File that reads it gets an error, and does not wait for itself."""

        class Interrupt(Exception):
            pass

        def handler(*_):
            raise Interrupt

        def try_other(f):
            other = threading.Thread(target=lambda: seen.append(len(f)), daemon=True)
            other.start()
            other.join(60)

        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        with pici.open(io.BytesIO(self.data)) as f:
            interrupted = 0
            for k in range(200):
                seen = []
                try:
                    signal.setitimer(signal.ITIMER_REAL, 5e-5 + 1e-6 * k)
                    try:
                        while True:
                            len(f)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupt:
                    interrupted += 1
                    try_other(f)
                    self.assertEqual(seen, [len(self.x)], "another thread waits for ever")
            self.assertGreater(interrupted, 10)

        class Selfish(io.BytesIO):
            def read(self, n=-1):
                if opened:
                    len(opened[0])
                return super().read(n)

        opened = []
        with pici.open(Selfish(self.data)) as f:
            opened.append(f)
            self.assertRaisesRegex(RuntimeError, "File is called by a method that it calls", lambda: f.verify())

    def test_signal_at_the_entry_of_a_callback(self):
        """What the handler of a pending signal raises before the first statement of write() or read_at()."""
        for stream, call in (
            ("Sink.write", lambda: pici.save(io.BytesIO(), self.x)),
            ("Source.read_at", lambda: pici.open(io.BytesIO(self.data))),
        ):
            name, method = stream.split(".")
            with unittest.mock.patch.object(getattr(pici._streams, name), method, side_effect=KeyboardInterrupt):
                self.assertRaises(KeyboardInterrupt, call)

    def test_counts_of_write(self):
        """What write() returns must be a number of bytes that it can have written."""

        class Odd(io.BytesIO):
            def write(self, data):
                super().write(data)
                return odd

        for odd in (0, -1, 1 << 40):
            self.assertRaisesRegex(OSError, f"write.. of the file object returned {odd} for", pici.save, Odd(), self.x)

    def test_longer_than_asked(self):
        class Longer(io.BytesIO):
            def read(self, n=-1):
                return super().read(n) + b"more"

        self.assertRaisesRegex(ValueError, "of the file object returned", pici.open, Longer(self.data))

    def test_lifetime(self):
        """A File keeps what it reads, and nothing keeps it afterwards."""
        given = io.BytesIO(self.data)
        gone = weakref.ref(given)
        t = pici.open(given)["x"]
        del given
        gc.collect()
        np.testing.assert_array_equal(t.read(), self.x["x"])
        del t
        gc.collect()
        self.assertIsNone(gone())


class Whole(Files):
    """load(), and types that are not the library's own."""

    def test_load(self):
        arrays = {d.name: sparse(d.name, 600).reshape(20, 30) for d in _dtypes.ALL if not d.narrow}
        arrays.update(scalar=np.float64(2.5), empty=np.zeros((3, 0), np.int8), mask=np.eye(5) > 0)
        arrays["c"] = np.eye(4).astype(np.complex64) * 1j
        arrays["z"] = np.complex128(1 - 2j)
        pici.save(self.path, arrays)
        for given in (self.path, str(self.path), io.BytesIO(self.path.read_bytes())):
            got = pici.load(given)
            self.assertEqual(list(got), list(arrays))
            for name, x in arrays.items():
                self.assertEqual((got[name].dtype, got[name].shape), (x.dtype, x.shape), name)
                np.testing.assert_array_equal(got[name], x)
        self.assertEqual(list(pici.load(self.path, names=["f32", "mask"])), ["f32", "mask"])
        with self.assertRaisesRegex(KeyError, "did you mean 'mask'"):
            pici.load(self.path, names=["masks"])
        self.assertRaisesRegex(pici.LimitError, "pass max_bytes=", pici.load, self.path, max_bytes=10000)
        self.assertRaisesRegex(ValueError, "pass 'numpy', 'bits'", pici.load, self.path, to="list")

    def test_bool_and_complex(self):
        mask = np.arange(60).reshape(3, 4, 5) % 3 == 0
        z = (np.arange(60).reshape(3, 4, 5) * (1 - 2j)).astype(np.complex64)
        with pici.create(self.path, chunk_elements=7) as w:
            w.add("mask", mask, attrs={"own": b"1"})
            w.begin("z", z.shape, "torch.complex64")
            for part in z:
                w.append(part)
            w.begin("none", (0, 2), bool)
            w.add("wide", z.astype(np.complex128), dtype="complex128")
            w.add("u8", mask, dtype="u8")
        f = self.open()
        for name, dtype in (("mask", "bool"), ("z", "complex64"), ("wide", "complex128")):
            self.assertEqual((f[name].dtype, f[name].shape, f[name].size), (dtype, (3, 4, 5), 60))
        self.assertEqual((f["none"].dtype, f["none"].shape, f["u8"].dtype), ("bool", (0, 2), "u8"))
        self.assertEqual(f["mask"].attrs, {"own": b"1", "source.dtype": b"|b1"})
        self.assertEqual((f["z"].attrs["source.dtype"], f["wide"].attrs["source.dtype"]), (b"<c8", b"<c16"))
        for name, x in (("mask", mask), ("z", z), ("wide", z.astype(np.complex128))):
            t = f[name]
            self.assertEqual(t.nbytes, x.nbytes)
            for key in (..., 1, (1, 2), (slice(0, 3, 2), 1), (2, slice(1, 3), 4), (..., 0)):
                self.assertEqual(t[key].dtype, x.dtype)
                np.testing.assert_array_equal(t[key], x[key])
            np.testing.assert_array_equal(t.read(7, 20), x.ravel()[7:27])
            self.assertEqual(_dlpack.imported(t.read(to="dlpack"))[0].tobytes(), x.tobytes())
        self.assertEqual(f["mask"].read(to="bits").dtype, np.uint8)
        with pici.create(self.dir / "no bool") as w:
            w.add("x", np.array([0, 3], np.uint8), attrs={"source.dtype": b"|b1"})
            w.add("y", np.ones((2, 3), np.float32), attrs={"source.dtype": b"<c8"})
        with pici.open(self.dir / "no bool") as f:
            self.assertRaisesRegex(ValueError, "3, which is no bool: pass to='bits'", f["x"].read)
            self.assertEqual(f["x"].read(to="bits").tolist(), [0, 3])
            self.assertEqual((f["y"].dtype, f["y"].shape), ("f32", (2, 3)))

    def test_literals_of_types(self):
        """A type in a file that is none, or does not fit, is as if it were not there."""
        x = np.arange(12, dtype=np.uint8).reshape(3, 4)
        literals = [b"", b"'O'", b"[('x','O')]", b"'<U1'", b"'S3'", b"'S0'", b"'<M8[s]'", b"('S4',(1,))", b"{}", b"1"]
        # units of which NumPy would divide by 0
        times = [b"'<M8[s/0]'", b"'<m8[0s]'", b"[('t','<m8[s/0]')]", b"[('a',[('t','<m8[s/0]')])]"]
        times += [b"'datetime64[s/0]'", b"('<M8[s/0]',(1,))", b"'\\x4d8[s/0]'"]
        times += [b"'M[s/0]'", b"[(('t','u'),'m8[s/0]')]", b"'<M8[s/00]'"]
        literals += [b"'|b1'", b"'i1'", b"'"]
        literals += [b"(" * 5000, b"-" * 9000 + b"1", b"'S4'" + b" " * 10000, b"'<f99'", b"[]", b"'\xff'"]
        with pici.create(self.path) as w:
            for i, literal in enumerate(literals):
                w.add(f"{i}", x, attrs={"source.dtype": b"|S4", "source.npy": literal})
            for i, literal in enumerate(times):
                w.add(f"time {i}", np.arange(3), attrs={"source.dtype": b"<M8[s]", "source.npy": literal})
            w.add("good", x, attrs={"source.dtype": b"|S4", "source.npy": b"'|S4'"})
        for name, got in pici.load(self.path).items():
            if name == "good":
                self.assertEqual((got.dtype, got.shape), (np.dtype("S4"), (3,)))
            elif name.startswith("time"):
                self.assertEqual((got.dtype, got.shape), (np.arange(3).dtype, (3,)))
                continue
            else:
                self.assertEqual((got.dtype, got.shape), (x.dtype, x.shape), literals[int(name)][:20])
            self.assertEqual(got.tobytes(), x.tobytes())


class Gil(Files):
    def test_released(self):
        """Opening a FIFO for writing waits for its reader, in this process: with the GIL held it would deadlock."""
        program = (
            "import os, sys, threading, pici\n"
            "fifo = sys.argv[1]\n"
            "writer = threading.Thread(target=lambda: pici.save(fifo, {'x': b'12345'}), daemon=True)\n"
            "writer.start()\n"
            "data = open(fifo, 'rb').read()\n"
            "writer.join()\n"
            "open(fifo + '.pici', 'wb').write(data)\n"
        )
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        subprocess.run([sys.executable, "-c", program, fifo], check=True, timeout=60)
        with pici.open(f"{fifo}.pici") as f:
            self.assertEqual(f["x"][...].tobytes(), b"12345")


class Masked(unittest.TestCase):
    def test_refused(self):
        """An array with a mask, which no call keeps, is refused by each."""
        x = np.ma.MaskedArray(np.arange(6.0), mask=[0, 1, 0, 0, 1, 0])
        plain, block = x.filled(0), pici.compress(np.zeros(6))
        with tempfile.TemporaryDirectory() as d:
            path = Path(d) / "x.pici"
            with pici.create(path) as w:
                w.begin("x", (6,), "f64")
                w.append(plain)
                for call in (
                    lambda: pici.compress(x),
                    lambda: pici.diff(plain, x),
                    lambda: pici.diff(x, plain),
                    lambda: pici.apply(x, block),
                    lambda: pici.decompress(block, out=x),
                    lambda: pici.scatter_add(x, block),
                    lambda: pici.topk(x, plain, k=1),
                    lambda: pici.topk(plain, x, k=1),
                    lambda: pici.save(Path(d) / "y.pici", {"x": x}),
                    lambda: pici.save_delta({}, {"x": x}, Path(d) / "z.pici"),
                    lambda: pici.save_delta({"x": x}, {}, Path(d) / "z.pici"),
                    lambda: w.append(x),
                    lambda: w.add("y", x),
                    lambda: pici.Comm.threads(1)[0].all_reduce(x),
                ):
                    self.assertRaisesRegex(ValueError, r"masked array.*x\.filled\(value\)", call)
            self.assertEqual([p.name for p in Path(d).iterdir()], ["x.pici"])


TOOL = os.environ.get("PICITOOL", "")


@unittest.skipUnless(TOOL and os.access(TOOL, os.X_OK), "no picitool: files of the other program")
class Tool(Files):
    def tool(self, *args):
        own = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}  # the tool has the sanitizer's runtime already
        subprocess.run([TOOL, *map(str, args)], check=True, stdout=subprocess.DEVNULL, env=own)

    def test_both_ways(self):
        x = sparse("f32", 5000).reshape(50, 100)
        np.save(self.dir / "x.npy", x)
        self.tool("compress", "-o", self.path, self.dir / "x.npy")
        f = self.open()
        (t,) = f.values()
        self.assertEqual(t[...].tobytes(), x.tobytes())
        self.assertEqual((t.shape, f.attrs["source.type"]), (x.shape, b"npy"))
        pici.save(self.dir / "y.pici", {"x": x})
        self.tool("test", self.dir / "y.pici")
        self.tool("decompress", "-o", self.dir / "y.raw", self.dir / "y.pici")
        self.assertEqual((self.dir / "y.raw").read_bytes(), x.tobytes())
        x.tofile(self.dir / "x.raw")
        self.tool("block", "encode", "-f", "hybrid", "--dtype", "f32", self.dir / "x.raw", self.dir / "x.blk")
        self.assertEqual((self.dir / "x.blk").read_bytes(), pici.compress(x, format="hybrid"))

    def test_types_and_orders_of_npy(self):
        """What the tool stores of a .npy file comes back with its type, shape and order."""
        x = sparse("f32", 6000).reshape(20, 30, 10)
        given = {
            "mask": x > 0,
            "c8": x.astype(np.complex64) * 1j,
            "big": x.astype(">c16"),
            "fortran": np.asfortranarray(x),
            "fc": np.asfortranarray(x.astype(np.complex64)),
        }
        for name, array in given.items():
            with self.subTest(name):
                np.save(self.dir / f"{name}.npy", array)
                self.tool("compress", "-o", self.dir / f"{name}.pici", self.dir / f"{name}.npy")
                with pici.open(self.dir / f"{name}.pici") as f:
                    (t,) = f.values()
                    self.assertEqual((t.shape, t.order), (x.shape, "F" if name[0] == "f" else "C"))
                    self.assertEqual(t.read().dtype, array.dtype.newbyteorder("="))
                    for key in (..., 3, (slice(2, 9), 4), (..., 7)):
                        np.testing.assert_array_equal(t[key], array[key])
                    self.assertEqual(t.read(5, 10).tobytes(), array.ravel("K")[5:15].astype(t.read().dtype).tobytes())
                    self.assertRaises(TypeError, t.__getitem__, [0, 1])

    def test_types_that_only_numpy_has(self):
        given = {
            "times": np.array([["2020-01-01", "NaT"]], "M8[ns]"),
            "days": np.arange(3).astype(">m8[D]"),
            "text": np.array([["abc", "de"], ["", "f"]]),
            "big": np.asfortranarray(np.array([["abc", "de"], ["", "f"]], ">U3")),
            "one": np.array("x"),
            "bytes": np.array([b"abc", b"d"]),
            "void": np.zeros((2, 2), "V5"),
            "rows": np.array([(1, [2, 3]), (4, [5, 6])], [("x", ">i2"), ("y", "<f4", (2,))]),
            "long": np.arange(6, dtype=np.longdouble).reshape(3, 2),
            "pairs": np.asfortranarray(np.zeros((2, 3), np.clongdouble)),
            "none": np.zeros((0, 3), "U4"),
        }
        np.savez(self.dir / "x.npz", **given)
        self.tool("compress", "-o", self.path, self.dir / "x.npz")
        found, bits = pici.load(self.path), pici.load(self.path, to="bits")
        with pici.open(self.path) as f:
            for name, x in given.items():
                with self.subTest(name):
                    native = x.dtype if name == "rows" else x.dtype.newbyteorder("=")
                    t, got = f[name], found[name]
                    self.assertEqual((got.dtype, got.shape), (native, x.shape))
                    self.assertEqual((t.dtype, t.shape, t.size, t.nbytes), (str(native), x.shape, x.size, x.nbytes))
                    wanted = x.astype(native)
                    self.assertEqual(got.tobytes(), wanted.tobytes())
                    if x.ndim:
                        self.assertEqual(t[..., :1].tobytes(), wanted[..., :1].tobytes())
                    self.assertEqual(t.read(0, 1 if x.size else 0).dtype, native)
                    # what is stored
                    self.assertIn(bits[name].dtype, (np.uint8, np.uint32, np.int64))
                    self.assertEqual(bits[name].shape[: x.ndim], x.shape)
                    self.assertEqual(bits[name].tobytes(), wanted.tobytes())
                    self.assertEqual(t.read(0, x.size, to="bits").size, bits[name].size)

    def test_bytes_after_the_array_are_no_tensor(self):
        x = sparse("f32", 5000)
        np.save(self.dir / "x.npy", x)
        with (self.dir / "x.npy").open("ab") as f:
            f.write(b"and more")
        (self.dir / "y.raw").write_bytes(x.tobytes() + b"end")
        for name, *options in (("x.npy",), ("y.raw", "--dtype", "f32")):
            self.tool("compress", "--force", "-o", self.path, *options, self.dir / name)
            self.assertEqual(list(pici.load(self.path)), ["data"])
            np.testing.assert_array_equal(pici.load(self.path)["data"], x)
            with (self.dir / name).open("rb") as given:
                own = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
                kind = name[2:]
                command = [TOOL, "compress", "--type", kind, *options, "-"]
                made = subprocess.run(command, check=True, stdin=given, stdout=subprocess.PIPE, env=own).stdout
            self.assertEqual(list(pici.load(io.BytesIO(made))), ["data"])

    def test_a_delta_is_not_loaded(self):
        x = sparse("f32", 5000)
        np.save(self.dir / "a.npy", x)
        np.save(self.dir / "b.npy", x + 1)
        self.tool("diff", "-o", self.path, self.dir / "a.npy", self.dir / "b.npy")
        self.assertRaisesRegex(ValueError, "apply it with picitool apply", pici.load, self.path)
