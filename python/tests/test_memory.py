# SPDX-License-Identifier: BSD-3-Clause
"""Memory of large arrays is used again, but never while something refers to it."""
import gc
import threading
import time
import unittest
import unittest.mock

import numpy as np

import pici
from pici import _memory
from test_codec import sparse

N = 3 << 20  # elements of f32: 12 MiB


class Memory(unittest.TestCase):
    def setUp(self):
        pici.keep_memory(0)
        pici.keep_memory(1 << 30)
        self.addCleanup(pici.keep_memory, 1 << 30)
        self.addCleanup(pici.keep_memory, 0)
        self.x = sparse("f32", N, 0.01)
        self.block = pici.compress(self.x)

    def address(self, array):
        return array.ctypes.data

    def test_used_again(self):
        a = pici.decompress(self.block)
        first = self.address(a)
        self.assertEqual(first % (2 << 20), 0)
        a[:] = -1
        del a
        b = pici.decompress(self.block)
        self.assertEqual(self.address(b), first)
        self.assertEqual(b.tobytes(), self.x.tobytes())

    def test_not_while_it_is_used(self):
        held = [pici.decompress(self.block, threads=t) for t in (1, 2, 0)]
        part = held.pop()[5:50][::2]
        shaped = held.pop().reshape(2, -1)
        gc.collect()
        more = [pici.decompress(self.block) for _ in range(3)]
        arrays = held + [part, shaped] + more
        self.assertEqual(len({self.address(a) & ~0xFFFFF for a in arrays}), 6)
        for a in more:
            a[:] = -1
        self.assertEqual(part.tobytes(), self.x[5:50:2].tobytes())
        self.assertEqual(shaped.tobytes(), self.x.tobytes())
        self.assertEqual(held[0].tobytes(), self.x.tobytes())

    def test_how_much_is_kept(self):
        def kept():
            return [pages.bytes.size for pages in _memory._kept.values()]

        arrays = [pici.decompress(self.block) for _ in range(4)]
        pici.keep_memory(30 << 20)
        del arrays
        self.assertEqual(kept(), [12 << 20] * 2)
        pici.keep_memory(15 << 20)
        self.assertEqual(kept(), [12 << 20])
        small = pici.decompress(pici.compress(np.zeros(5 << 20, np.uint8)))  # 12 MiB are too much for 5
        self.assertEqual(kept(), [12 << 20])
        pici.keep_memory(1 << 20)
        del small
        self.assertEqual(kept(), [])
        self.assertRaises(TypeError, pici.keep_memory, 1.5)

    def test_many_threads(self):
        wrong = []

        def work(seed):
            x = sparse("f32", N, 0.01, seed)
            block = pici.compress(x)
            for _ in range(6):
                if pici.decompress(block).tobytes() != x.tobytes():
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_no_more_threads(self):
        """Where no thread can start, this one clears the pages."""
        real, started, cleared = threading.Thread.start, [], []

        def start(thread):
            if len(started) == self.most:
                raise RuntimeError("can't start new thread")
            started.append(thread)
            real(thread)

        def madvise(begin, size, advice):
            cleared.append((begin, size))
            return 0

        for self.most in (0, 1, 2):
            with unittest.mock.patch.object(threading.Thread, "start", start):
                with unittest.mock.patch.object(_memory, "_madvise", madvise):
                    _memory._clear(0, 16 << 20, 4)
            ends = sorted((begin, begin + size) for begin, size in cleared)
            self.assertEqual((ends[0][0], ends[-1][1]), (0, 16 << 20))
            self.assertEqual([e for _, e in ends[:-1]], [b for b, _ in ends[1:]])
            self.assertEqual(len(started), self.most)
            del started[:], cleared[:]

    def test_helpers_are_joined(self):
        """Threads that clear pages do not outlive the pages."""
        this = threading.current_thread()

        def madvise(*_):
            if threading.current_thread() is this:
                raise KeyboardInterrupt
            time.sleep(0.05)

        before = threading.active_count()
        with unittest.mock.patch.object(_memory, "_madvise", madvise):
            self.assertRaises(KeyboardInterrupt, _memory._clear, 0, 16 << 20, 4)
        self.assertEqual(threading.active_count(), before)

    def test_kept_changes_during_a_search(self):
        """A collection of garbage may keep memory, or take it away, while another is looked for."""

        class Kept(dict):
            def items(self):
                for item in super().items():
                    yield item
                    _memory._keep(_memory._new(4 << 20, 1))

            def get(self, key, default=None):
                if len(self) > 1:
                    self.pop(next(iter(self)))
                return super().get(key, default)

        with unittest.mock.patch.object(_memory, "_kept", Kept()):
            for _ in range(3):
                _memory._keep(_memory._new(8 << 20, 1))
            self.assertIsNone(_memory._reused(100 << 20))

    def test_lengths(self):
        for n in (_memory.LEAST - 1, _memory.LEAST, _memory.LEAST + 1, (6 << 20) - 1, 6 << 20):
            for threads in (1, 3, 100):
                a = _memory.empty(n, np.dtype("u1"), threads)
                a[:] = 7
                self.assertEqual((a.size, int(a.min())), (n, 7))
        with self.assertRaises((MemoryError, ValueError)):
            _memory.empty(1 << 61, np.dtype("u8"), 1)
