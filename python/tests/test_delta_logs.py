# SPDX-License-Identifier: BSD-3-Clause
"""Logs of deltas in local folders, also compared with picitool's if PICITOOL names it."""
import fcntl
import os
import re
import subprocess
import threading
import unittest

import numpy as np

import pici
import test_deltas
from pici import _arrays, _dlpack, _dtypes, folders


class Logs(test_deltas.Deltas):
    def arrays(self, step):
        return {name: x for name, x in test_deltas.weights(step).items() if name in ("w", "mask", "scalar")}

    def log(self, states, **options):
        log = pici.DeltaLog.create(self.dir / "log", self.arrays(0))
        for step in range(1, states):
            self.assertEqual(log.append(self.arrays(step - 1), self.arrays(step), **options), step)
        return log

    def test_load(self):
        log = self.log(4, small=True, threads=2)
        self.assertEqual((log.base, log.newest, [s.number for s in log.states()]), (0, 3, [0, 1, 2, 3]))
        self.assertGreater(log.states()[0].bytes, log.states()[1].delta_bytes)
        found, number = log.load()
        self.same(found, self.arrays(3))
        self.assertEqual(number, 3)
        for step in range(4):
            for known in (None, step):
                again, number = pici.DeltaLog(self.dir / "log").load(self.arrays(step), known, threads=2)
                self.same(again, self.arrays(3))
                self.assertEqual(number, 3)
                self.assertFalse(np.shares_memory(again["w"], found["w"]))
        with self.assertRaisesRegex(pici.ArgumentError, "none of the states"):
            log.load(self.arrays(7))
        with self.assertRaisesRegex(pici.ArgumentError, "not the base of"):
            log.load(self.arrays(7), 1)
        with self.assertRaisesRegex(pici.ArgumentError, "no state 4"):
            log.load(self.arrays(3), 4)
        with self.assertRaises(pici.LimitError):
            log.load(max_bytes=100)

    def test_floats_of_8_and_4_bits(self):
        rng = np.random.default_rng(3)
        f8, packed = rng.integers(0, 256, (2, 30000), np.uint8)

        def state(step):
            moved = np.arange(30000) % 45 < step
            return {
                "f8": _dlpack.DLPackArray(f8 + moved.astype(np.uint8), _dtypes.named("f8e4m3")),
                "u8": packed ^ (moved * 16).astype(np.uint8),
            }

        log = pici.DeltaLog.create(self.dir / "log", state(0))
        for step in (1, 2, 3):
            self.assertEqual(log.append(state(step - 1), state(step)), step)
        self.assertLess(log.states()[1].delta_bytes, 60000 * 0.05)  # XORs take twice as much
        for known in (0, 2):
            found, number = log.load(state(known), to="bits")
            self.assertEqual(number, 3)
            self.assertEqual(found["u8"].tobytes(), state(3)["u8"].tobytes())
            self.assertEqual(found["f8"].tobytes(), _arrays.readable(state(3)["f8"])[0].tobytes())
        with self.assertRaisesRegex(pici.ArgumentError, "not the base of"):
            log.load(state(7), 1)

    def test_packed(self):
        whole = pici.DeltaLog.create(self.dir / "whole", self.arrays(0))
        log = pici.DeltaLog.create(self.dir / "log", self.arrays(0), pack="planes", threads=2)
        path = self.dir / "log" / "base-000000000.safetensors.pici"
        self.assertLess(path.stat().st_size, whole.states()[0].bytes)
        self.assertEqual(os.listdir(self.dir / "log").count("base-000000000.safetensors"), 0)
        for step in range(1, 4):
            self.same(log.load()[0], self.arrays(step - 1))
            log.append(self.arrays(step - 1), self.arrays(step))
        self.same(log.load()[0], self.arrays(3))
        log.compact(threads=2)
        self.assertEqual(log.base, 3)
        self.same(log.load()[0], self.arrays(3))
        self.same(log.load(self.arrays(1), 1)[0], self.arrays(3))
        with self.assertRaisesRegex(ValueError, "no pack='best'"):
            pici.DeltaLog.create(self.dir / "other", self.arrays(0), pack="best")
        (self.dir / "raw").write_bytes(b"1234")
        with self.assertRaisesRegex(ValueError, "is for .safetensors and .npy files"):
            pici.DeltaLog.create(self.dir / "other", self.dir / "raw", pack="planes")
        self.assertFalse((self.dir / "other").exists())

    def test_files(self):
        log = self.log(3)
        path = self.dir / "serving"
        self.assertEqual(log.apply(path), 2)
        for step in range(3):
            one = pici.DeltaLog.create(self.dir / f"log{step}", self.arrays(step))
            one.apply(path, force=True)
            self.assertEqual(log.apply(path), 2)
            log.apply(self.dir / "new")
            self.assertEqual(path.read_bytes(), (self.dir / "new").read_bytes())
            self.same(log.load(path)[0], self.arrays(2))
        path.write_bytes(b"other")
        with self.assertRaisesRegex(pici.ArgumentError, "none of the states"):
            log.apply(path)
        self.assertEqual(path.read_bytes(), b"other")
        self.assertEqual(log.apply(path, force=True), 2)
        np.save(self.dir / "a.npy", self.arrays(0)["w"])
        np.save(self.dir / "b.npy", self.arrays(1)["w"])
        log = pici.DeltaLog.create(self.dir / "npy", self.dir / "a.npy")
        log.append(self.dir / "a.npy", self.dir / "b.npy")
        log.apply(path, force=True)
        np.testing.assert_array_equal(np.load(path), self.arrays(1)["w"])

    def test_compact_and_refused(self):
        log = self.log(3)
        log.compact()
        self.assertEqual((log.base, log.newest), (2, 2))
        self.same(log.load()[0], self.arrays(2))
        with self.assertRaisesRegex(pici.ArgumentError, "not the newest"):
            log.append(self.arrays(1), self.arrays(3))
        log.append(self.arrays(2), self.arrays(3))
        (self.dir / "log" / "delta-000000003.pici").unlink()
        found, number = log.load(self.arrays(2), 2)  # as in a copy that is not complete
        self.same(found, self.arrays(2))
        self.assertEqual((number, log.newest), (2, 3))
        with self.assertRaises(FileExistsError):
            self.log(1)
        with self.assertRaises(FileNotFoundError):
            pici.DeltaLog(self.dir / "none")
        manifest = self.dir / "log" / "manifest"
        manifest.write_bytes(manifest.read_bytes()[:-2])
        with self.assertRaises(pici.CorruptError):
            log.load()

    def test_errors_have_no_controls(self):
        np.save(self.dir / "a.npy", self.arrays(0)["w"])
        (self.dir / "a.npy").rename(self.dir / "a.\x1b[31m")  # its extension is that of the log's base
        log = pici.DeltaLog.create(self.dir / "log", self.dir / "a.\x1b[31m")
        (base,) = (self.dir / "log").glob("base*")
        self.assertIn("\x1b", base.name)
        base.unlink()
        with self.assertRaisesRegex(pici.CorruptError, r"base-000000000\.\\x1b\[31m: is not there") as caught:
            log.apply(self.dir / "new")
        self.assertTrue(str(caught.exception).isprintable())

    def test_compacted_by_another_process_meanwhile(self):
        for call in ("apply", "load"):
            log = pici.DeltaLog.create(self.dir / call, self.arrays(0))
            reader = pici.DeltaLog(log.folder)
            reader_opens = reader._open

            def late(log=log, reader_opens=reader_opens):
                opened = reader_opens()
                if log.newest == 0:
                    log.append(self.arrays(0), self.arrays(2))
                    log.compact()  # the base that `opened` names is gone
                return opened

            reader._open = late
            if call == "apply":
                self.assertEqual(reader.apply(self.dir / "late"), 1)
                found, number = log.load(self.dir / "late")
            else:
                found, number = reader.load()
            self.assertEqual(number, 1)
            self.same(found, self.arrays(2))

    def manifest(self, change):
        """Replace the text of the manifest, and its hash."""
        path = self.dir / "log" / "manifest"
        text = change(path.read_bytes()[:-21])
        path.write_bytes(text + b"end %016x\n" % folders._sum_of_bytes(text))

    def test_numbers_of_a_manifest(self):
        log, big = self.log(1), 60_000_000_000
        self.manifest(lambda text: re.sub(rb"(first|base) 0 \d+", rb"\g<1> 0 %d" % big, text))
        with self.assertRaisesRegex(pici.LimitError, f"take {big} bytes"):
            log.load()
        with self.assertRaisesRegex(pici.LimitError, f"take {big} bytes"):
            log.load(self.arrays(0), 0)
        if os.environ.get("PICITOOL"):
            tool = [os.environ["PICITOOL"], "log", "apply", "--no-sparse", self.dir / "log", self.dir / "x"]
            done = subprocess.run(tool, capture_output=True, text=True, env=test_deltas.OWN)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, f"claims {big} bytes, more than the limit")

    def test_force_after_a_delta_of_another_base(self):
        log = self.log(2)
        old, base = self.dir / "old", self.dir / "log" / "base-000000000.safetensors"
        old.write_bytes(base.read_bytes())
        before = old.read_bytes()
        log.compact()
        delta = self.dir / "log" / "delta-000000001.pici"
        pici.save_delta(self.arrays(7), self.arrays(1), delta, overwrite=True)
        is_now = b"delta 1 %d %016x" % folders._sum(delta)
        self.manifest(lambda text: re.sub(rb"delta 1 \d+ \w+", is_now, text))
        with self.assertRaisesRegex(pici.ArgumentError, "not the base of"):
            log.apply(old)
        self.assertEqual(old.read_bytes(), before)
        self.assertEqual(log.apply(old, force=True), 1)
        self.assertEqual(old.read_bytes(), (self.dir / "log" / "base-000000001.safetensors").read_bytes())

    def test_create_waits_for_a_writer(self):
        folder = self.dir / "log"
        folder.mkdir()
        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            creating = threading.Thread(target=pici.DeltaLog.create, args=(folder, self.arrays(0)))
            creating.start()
            creating.join(0.2)
            self.assertEqual(list(folder.iterdir()), [])
        finally:
            os.close(held)
        creating.join()
        self.same(pici.DeltaLog(folder).load()[0], self.arrays(0))

    @unittest.skipUnless(os.environ.get("PICITOOL"), "logs of deltas compared with picitool's: PICITOOL is not set")
    def test_picitool(self):
        self.log(3)
        tool = [os.environ["PICITOOL"], "log"]
        subprocess.run(
            [*tool, "apply", self.dir / "log", self.dir / "x"],
            check=True,
            stderr=subprocess.DEVNULL,
            env=test_deltas.OWN,
        )
        subprocess.run([*tool, "compact", self.dir / "log"], check=True, stderr=subprocess.DEVNULL, env=test_deltas.OWN)
        log = pici.DeltaLog(self.dir / "log")
        self.assertEqual(log.base, 2)
        self.same(log.load(self.dir / "x")[0], self.arrays(2))


if __name__ == "__main__":
    unittest.main()
