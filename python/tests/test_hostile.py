# SPDX-License-Identifier: BSD-3-Clause
"""Invalid blocks raise the right exception with the right fault, and do nothing worse."""
import pickle
import unittest

import numpy as np

import pici
from vectors import verdicts

CLASSES = {
    "CORRUPT": pici.CorruptError,
    "VERSION": pici.VersionError,
    "CHECKSUM": pici.ChecksumError,
    "UNSUPPORTED": pici.UnsupportedError,
}


def error_of(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except pici.Error as e:
        return e
    return None


class Vectors(unittest.TestCase):
    def test_faults(self):
        seen = set()
        for name, rule, status, offset, tile, block in verdicts():
            with self.subTest(name):
                error, other = error_of(pici.verify, block), error_of(pici.decompress, block, to="bits")
                if status == "OK":
                    self.assertIsNone(error)
                    self.assertIn(type(other), (type(None), pici.LimitError))
                    continue
                for e in (error, other)[: 1 if isinstance(other, pici.LimitError) else 2]:
                    self.assertIs(type(e), CLASSES[status])
                    self.assertEqual((e.fault, e.status), ((offset, tile, rule), CLASSES[status].status))
                seen.add(rule)
        self.assertGreater(len(seen), 15)

    def test_what_an_exception_says(self):
        block = bytearray(pici.compress(np.arange(100, dtype=np.uint8), format="coo"))
        block[52] = 0  # the second position, no longer above the first
        with self.assertRaises(pici.CorruptError) as caught:
            pici.decompress(block)
        error = caught.exception
        self.assertIsInstance(error, ValueError)
        self.assertEqual((error.status, error.fault.rule, error.fault.offset), (-20, "rising", 52))
        self.assertIn("'rising'", str(error))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.fault), (type(error), str(error), error.fault))


class Damage(unittest.TestCase):
    def block(self, form):
        x = np.zeros(5000, np.int16)
        x[::97] = np.arange(1, 53)
        return x, pici.compress(x, format=form, checksum=True)

    def test_every_byte(self):
        for form in ("dense", "bitmap", "coo", "hybrid"):
            x, block = self.block(form)
            for at in range(len(block)):
                bad = bytearray(block)
                bad[at] ^= 0x10
                error = error_of(pici.decompress, bad)
                self.assertIsInstance(error, pici.Error, (form, at))
                if not isinstance(error, pici.LimitError):
                    self.assertIsNotNone(error.fault, (form, at))

    def test_every_length(self):
        for form in ("bitmap", "coo", "hybrid"):
            _, block = self.block(form)
            for n in range(len(block)):
                error = error_of(pici.decompress, block[:n])
                self.assertIsInstance(error, pici.CorruptError)
                self.assertEqual(error.fault.offset, n)
            self.assertIsInstance(error_of(pici.decompress, block + b"\0"), pici.CorruptError)

    def test_outputs_are_not_overrun(self):
        """Random bytes after valid headers: whatever the result, the memory around the output does not change."""
        rng = np.random.default_rng(3)
        for form in ("bitmap", "coo", "hybrid"):
            x, block = self.block(form)
            block = bytearray(pici.compress(x, format=form))
            for _ in range(200):
                bad = np.frombuffer(bytes(block), np.uint8).copy()
                at = rng.integers(48, bad.size, 8)
                bad[at] = rng.integers(0, 256, 8)
                room = np.full(x.size + 128, -7, np.int16)
                for call in (pici.scatter_add, pici.decompress_into, pici.apply):
                    error = error_of(call, room[64:-64], bad)
                    if error is not None:
                        self.assertIsInstance(error, pici.CorruptError)
                        self.assertIsNotNone(error.fault)
                    self.assertTrue((room[:64] == -7).all() and (room[-64:] == -7).all())

    def test_claims(self):
        """48 bytes that claim 2^60 zeros do not cause an allocation of that size."""
        claims = [case for case in verdicts() if case[0] == "coo-2^60-zeros"]
        self.assertEqual(len(claims), 1)
        block = claims[0][-1]
        self.assertEqual(pici.inspect(block).count, 2**60)
        self.assertRaises(pici.LimitError, pici.decompress, block)
        self.assertRaises((MemoryError, ValueError), pici.decompress, block, max_bytes=None)
        self.assertEqual(pici.decompress_range(block, 2**59, 3).tolist(), [0, 0, 0])
        self.assertRaises(ValueError, pici.scatter_add, np.zeros(8, np.uint32), block)
