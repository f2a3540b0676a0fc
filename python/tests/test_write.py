# SPDX-License-Identifier: BSD-3-Clause
"""Files that are written tensor by tensor: what is refused, and what a failure leaves."""
import errno
import os
import subprocess
import sys

import numpy as np

import pici
from test_codec import sparse
from test_file import Files


class Writing(Files):
    def test_pieces(self):
        x = sparse("f32", 50000).reshape(500, 100)
        pici.save(self.path, {"x": x}, chunk_elements=777)
        with pici.create(self.dir / "pieces", chunk_elements=777) as w:
            w.begin("x", (500, 100), "f32")
            for i in range(0, 500, 50):
                w.append(x[i : i + 50])
        self.assertEqual((self.dir / "pieces").read_bytes(), self.path.read_bytes())

    def test_zeros_by_value(self):
        x = np.where(np.arange(9000) % 2, -0.0, 0.0).astype(np.float32)
        x[::100] = 1
        pici.save(self.path, {"x": x, "i": np.array([-(2**31)], np.int32)}, zeros="value")
        f = self.open()
        np.testing.assert_array_equal(f["x"].read(), x)
        self.assertFalse(np.signbit(f["x"].read()).any())
        self.assertEqual(f["i"].read().tolist(), [-(2**31)])
        pici.save(self.dir / "exact", {"x": x})
        self.assertEqual(pici.load(self.dir / "exact")["x"].tobytes(), x.tobytes())
        self.assertLess(f["x"].stored_bytes, pici.open(self.dir / "exact")["x"].stored_bytes)
        self.assertRaisesRegex(ValueError, "pass 'exact'", pici.create, self.dir / "z", zeros=1)

    def test_same_bytes_at_any_thread_count(self):
        x = sparse("bf16", 50000)
        made = []
        for threads in (0, 1, 2, 5):
            with pici.create(self.path, threads=threads, chunk_elements=1000, overwrite=True) as w:
                w.add("x", x, dtype="bf16")
            made.append(self.path.read_bytes())
        self.assertEqual(made, made[:1] * 4)

    def test_threads_take_turns(self):
        with pici.create(self.path) as w:
            w.begin("x", (4000,), "u8")
            self.one_at_a_time("writer_data", lambda k: [w.append(bytes([k]) * 50) for _ in range(20)])
        pieces = self.open()["x"][...].reshape(80, 50)
        self.assertTrue((pieces == pieces[:, :1]).all())
        self.assertEqual(np.bincount(pieces[:, 0]).tolist(), [20] * 4)

    def test_threads_add(self):
        """Tensors that several threads add are whole."""
        with pici.create(self.path) as w:
            self.one_at_a_time(
                "writer_data", lambda k: [w.add(f"{k}.{i}", np.full(50, k, np.uint8)) for i in range(20)]
            )
        f = self.open()
        self.assertEqual(len(f), 80)
        for name in f:
            self.assertEqual(f[name][...].tolist(), [int(name[0])] * 50)

    def test_zstd(self):
        x = np.tile(np.arange(1, 101, dtype=np.float32), 100)
        try:
            pici.save(self.path, {"x": x}, zstd=3)
        except pici.UnsupportedError:
            self.skipTest("libpici without zstd: frames in files")
        self.assertLess(self.path.stat().st_size, x.nbytes // 4)
        self.assertEqual(self.open()["x"][...].tobytes(), x.tobytes())

    def test_whole_or_not_at_all(self):
        x = np.ones(10)
        with self.assertRaises(ZeroDivisionError):
            with pici.create(self.path) as w:
                w.add("x", x)
                1 / 0
        self.assertEqual(os.listdir(self.dir), [])
        w = pici.create(self.path)
        w.add("x", x)
        self.assertFalse(self.path.exists())
        del w
        self.assertEqual(os.listdir(self.dir), [])
        w = pici.create(self.path)
        w.begin("x", (3,), "f64")
        with self.assertRaisesRegex(pici.ArgumentError, "missing"):
            w.close()
        self.assertEqual(os.listdir(self.dir), [])
        self.assertRaisesRegex(ValueError, "closed", w.add, "y", x)
        w.close()
        w.abort()

    def ended(self, program):
        """Run a program in a process of its own, with the path as its argument."""
        return subprocess.run(
            [sys.executable, "-c", program, str(self.path)], capture_output=True, text=True, timeout=60
        )

    def test_end_of_the_program(self):
        """While a daemon thread is in a call on the writer."""
        for threads in (1, 2):
            done = self.ended(
                "import atexit, numpy, sys, threading, time\n"
                "atexit.register(time.sleep, 0.5)\n"  # the last of these, in which the thread ends its call
                "import pici\n"
                f"w = pici.create(sys.argv[1], threads={threads})\n"
                "w.begin('a', [1 << 40], 'f32')\n"
                "big = numpy.random.default_rng(1).random(1 << 22, numpy.float32)\n"
                "def work():\n"
                "    while True:\n"
                "        w.append(big)\n"
                "threading.Thread(target=work, daemon=True).start()\n"
                "time.sleep(0.3)\n"
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(self.dir), [])

    def test_closed_during_a_call(self):
        """By another thread, past the lock: the call ends, and frees the writer at its end. Others are refused."""
        said = ["opened"]  # nothing is done by then

        class Slow:
            def write(self, data):
                if not said:
                    said.append(pici._codec.close(handle))
                    for call in (pici._codec.writer_finish, lambda w: pici._codec.writer_data(w, b"")):
                        try:
                            call(handle)
                        except ValueError as e:
                            said.append(str(e))
                return len(data)

        sink = pici._streams.Sink(Slow())
        handle = pici._codec.writer_open(sink, (), 0, 1, 0, 1 << 10, 0, 0)
        said.clear()
        self.assertIsNone(pici._codec.writer_tensor(handle, b"x", 1, (1 << 16,), ()))
        pici._codec.writer_data(handle, np.random.default_rng(1).random(1 << 15).astype(np.float32))
        self.assertEqual(said, [False] + ["the pici.writer is closed"] * 2)
        self.assertRaisesRegex(ValueError, "closed", pici._codec.writer_data, handle, b"")
        self.assertTrue(pici._codec.close(handle))

    def test_forked(self):
        """The copy of a writer in a forked process leaves the file alone, at its end and before."""
        for last in ("sys.exit(0)", "del w; os._exit(0)", "w.abort(); os._exit(0)"):
            done = self.ended(
                "import numpy, os, pici, sys\n"
                "w = pici.create(sys.argv[1], overwrite=True, threads=2)\n"
                "w.add('a', numpy.ones(1 << 22))\n"
                "child = os.fork()\n"
                f"if not child: {last}\n"
                "assert os.waitpid(child, 0)[1] == 0\n"
                "w.close()\n"
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with pici.open(self.path) as f:
                self.assertEqual(f["a"].size, 1 << 22)
        self.assertEqual(os.listdir(self.dir), ["x.pici"])

    def test_existing(self):
        self.path.write_bytes(b"precious")
        with self.assertRaisesRegex(FileExistsError, "; pass overwrite=True to replace it: ") as caught:
            pici.save(self.path, {})
        self.assertIsInstance(caught.exception, pici.IoError)
        self.assertEqual(self.path.read_bytes(), b"precious")
        pici.save(self.path, {}, overwrite=True)
        self.assertEqual(list(self.open()), [])
        with pici.create(self.dir / "late") as w:
            (self.dir / "late").write_bytes(b"precious")
            self.assertRaises(FileExistsError, w.close)
        self.assertEqual((self.dir / "late").read_bytes(), b"precious")
        self.assertRaises(FileNotFoundError, pici.create, self.dir / "no" / "folder")

    def test_refusals(self):
        with pici.create(self.path) as w:
            w.add("x", np.ones(3))
            self.assertRaises(pici.ArgumentError, w.add, "x", np.ones(3))
            self.assertRaises(TypeError, w.add, "z", np.ones(3, object))
            self.assertRaisesRegex(TypeError, r"pass str\(5\)", w.add, 5, np.ones(3))
            w.begin("y", (4,), "i8")
            self.assertRaises(TypeError, w.append, np.ones(4))
            self.assertRaises(pici.ArgumentError, w.append, np.ones(5, np.int8))
            self.assertRaises(pici.ArgumentError, w.add, "z", np.ones(3))
            w.append(np.ones(4, np.int8))
            self.assertRaises(ValueError, w.begin, "z", (-1,), "i8")
            self.assertRaises(ValueError, w.begin, "z", (1,) * 33, "i8")
            self.assertRaises(ValueError, w.begin, "z", (1,), "int7")
            self.assertRaises(pici.ArgumentError, w.begin, "z", (2**62, 2), "i8")
            self.assertRaises(ValueError, w.begin, "z", (1,), "i8", attrs={"a\0b": b""})
            self.assertRaises(pici.ArgumentError, w.begin, "z", (1,), "i8", attrs={"k" * 256: b""})
        self.assertEqual(list(self.open()), ["x", "y"])
        for wrong in (
            {"chunk_elements": 0},
            {"chunk_elements": 2**22 + 1},
            {"threads": -1},
            {"format": "zip"},
            {"zstd": -1},
        ):
            self.assertRaises(ValueError, pici.create, self.dir / "wrong", **wrong)
        for attrs, error, says in (
            ({"": b""}, pici.ArgumentError, "0 bytes: pass 1 to 255"),
            ({"run": "7"}, TypeError, r"attrs\['run'\] is str, and attributes are bytes: pass value.encode\(\)"),
            ({"run": 7}, TypeError, r"is int, and attributes are bytes: pass its bytes"),
            ({7: b""}, TypeError, r"the key of an attribute is a str, not int: pass str\(7\)"),
        ):
            self.assertRaisesRegex(error, says, pici.create, self.dir / "wrong", attrs=attrs)
        self.assertEqual(os.listdir(self.dir), ["x.pici"])

    def test_full_device(self):
        for n in (3, 1 << 20):  # written at the end, and before
            with self.assertRaisesRegex(pici.IoError, "free some space") as caught:
                with pici.create("/dev/full") as w:
                    w.add("x", np.ones(n))
            self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.ENOSPC, "/dev/full"))
