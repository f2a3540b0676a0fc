# SPDX-License-Identifier: BSD-3-Clause
"""broadcast and all_gatherv among threads: results, in place, lengths, requests, errors."""
import gc
import unittest

import numpy as np

import pici
import sums
from pici import _dtypes
from sums import together
from test_dlpack import installed

torch = installed("torch")
LONG = 60.0  # seconds: a test that takes so long has failed


def lengths(p, n):
    """Contributions of p ranks: some have nothing."""
    return [n * (r % 3) + (r > 1) for r in range(p)]


class Results(unittest.TestCase):
    def test_broadcast(self):
        """Every dtype and root: the root's bits on all ranks."""
        for p in (1, 2, 3, 5, 8):
            for i, d in enumerate([*sums.DTYPES, _dtypes.BOOL, *_dtypes.COMPLEX]):
                root, n = i % p, (p - 1, 5001, 40 * 4096)[i % 3]
                if d is _dtypes.BOOL:
                    x = np.arange(n) % 3 == 0
                elif d in _dtypes.COMPLEX:
                    x = np.full(n, 2 - 1j, d.name)
                else:
                    x = sums.contribution(d, n, root)
                dtype = d.name if d.narrow else None
                algorithm = ("ring", "recursive", "split", "nodes-ring", None)[i % 5]

                def work(comm):
                    mine = x.copy() if comm.rank == root else np.ones_like(x)
                    same = comm.broadcast(mine, root, dtype=dtype, algorithm=algorithm, timeout=LONG)
                    return same is mine and mine.tobytes() == x.tobytes()

                self.assertEqual(together(pici.Comm.threads(p), work), [True] * p, (d.name, p, root, algorithm))

    def test_all_gatherv(self):
        for p in (1, 2, 3, 5, 8):
            for i, d in enumerate([*sums.DTYPES, _dtypes.BOOL, *_dtypes.COMPLEX]):
                counts = lengths(p, (0, 3, 3001)[i % 3])
                if d is _dtypes.BOOL:
                    xs = [np.arange(n) % 3 == 0 for n in counts]
                elif d in _dtypes.COMPLEX:
                    xs = [np.full(n, n - 1j, d.name) for n in counts]
                else:
                    xs = [sums.contribution(d, n, r) for r, n in enumerate(counts)]
                dtype = d.name if d.narrow else None
                want = np.concatenate(xs)
                algorithm = ("ring", "recursive", "split", "nodes-recursive", None)[i % 5]

                def work(comm):
                    got = comm.all_gatherv(xs[comm.rank], counts, dtype=dtype, algorithm=algorithm, timeout=LONG)
                    into = np.empty_like(want)
                    self.assertIs(comm.all_gatherv(xs[comm.rank], counts, into, dtype=dtype), into)
                    return (got.dtype, got.tobytes()), (into.dtype, into.tobytes())

                for results in together(pici.Comm.threads(p), work):
                    self.assertEqual(results, ((want.dtype, want.tobytes()),) * 2, (d.name, p))

    def test_displs(self):
        """Anywhere, other places on each rank; what lies between is left alone. And in place."""
        p, counts = 3, [2, 0, 3]

        def work(comm):
            recv = np.full(12, -1, np.int16)
            displs = [7, 4, 1] if comm.rank else [0, 2, 5]
            mine = np.full(counts[comm.rank], comm.rank, np.int16)
            comm.all_gatherv(mine, counts, recv, displs)
            own = np.full(12, -1, np.int16)
            part = own[displs[comm.rank] : displs[comm.rank] + counts[comm.rank]]
            part[:] = comm.rank
            comm.all_gatherv(part, counts, own, displs)
            self.assertEqual(own.tolist(), recv.tolist())
            return recv.tolist()

        results = together(pici.Comm.threads(p), work)
        self.assertEqual(results[0], [0, 0, -1, -1, -1, 2, 2, 2, -1, -1, -1, -1])
        self.assertEqual(results[1], [-1, 2, 2, 2, -1, -1, -1, 0, 0, -1, -1, -1])
        self.assertEqual(results[2], results[1])

    def test_displs_of_nothing(self):
        """Where an empty array would begin does not matter."""

        def work(comm):
            return comm.all_gatherv(np.ones(2 - 2 * comm.rank), [2, 0], np.zeros(2), [0, 7 * comm.rank]).sum()

        self.assertEqual(together(pici.Comm.threads(2), work), [2, 2])

    def test_shapes(self):
        xs = [np.ones((n, 5), np.float32) * n for n in (2, 0, 4)]
        work = lambda comm: comm.all_gatherv(xs[comm.rank], [10, 0, 20])
        for got in together(pici.Comm.threads(3), work):
            self.assertEqual(got.shape, (6, 5))
            self.assertTrue(np.array_equal(got, np.concatenate(xs)))
        comm = pici.Comm.threads(1)[0]
        self.assertEqual(comm.all_gatherv(np.float32(3).reshape(()), [1]).tolist(), [3])
        self.assertEqual(comm.broadcast(np.full((2, 3), 4.0)).shape, (2, 3))

    def test_zeros(self):
        x = np.array([-0.0, 1, -0.0, 0], np.float32)

        def work(comm):
            spread = comm.broadcast(x.copy(), zeros="value")
            return np.signbit(comm.all_gatherv(x, [4, 4], zeros="value")).any() or np.signbit(spread).any()

        self.assertEqual(together(pici.Comm.threads(2), work), [False] * 2)
        for got in together(pici.Comm.threads(2), lambda comm: comm.broadcast(x.copy(), 1)):
            self.assertEqual(got.tobytes(), x.tobytes())

    @unittest.skipUnless(torch, "no torch")
    def test_torch(self):
        def work(comm):
            t = torch.full((3, 2), float(comm.rank))
            comm.broadcast(t, 1)
            all = comm.all_gatherv(torch.full((comm.rank, 2), comm.rank, dtype=torch.bfloat16), [0, 2])
            return t.tolist(), all.dtype, all.tolist()

        for got in together(pici.Comm.threads(2), work):
            self.assertEqual(got, ([[1.0, 1.0]] * 3, torch.bfloat16, [[1.0, 1.0]]))


class Requests(unittest.TestCase):
    def test_start(self):
        """Several in flight; counts and arrays live as long as the requests."""
        p = 3

        def work(comm):
            x = np.full(50000, comm.rank, np.int32)
            a = comm.broadcast_start(x, 2)
            b = comm.all_gatherv_start(np.full(comm.rank, comm.rank, np.int8), [0, 1, 2])
            comm.all_gatherv_start(np.arange(4), [4] * p)  # dropped
            gc.collect()
            return b.wait().tolist(), a.wait() is x, set(x.tolist()), a.stats.calls

        for got in together(pici.Comm.threads(p), work):
            self.assertEqual(got, ([1, 2, 2], True, {2}, 1))


class Errors(unittest.TestCase):
    def test_refusals(self):
        comm = pici.Comm.threads(2)[0]
        x = np.zeros(3, np.float32)
        locked = x.copy()
        locked.flags.writeable = False
        cases = [
            (ValueError, "root is 2", lambda: comm.broadcast(x, 2)),
            (ValueError, "root is -1", lambda: comm.broadcast_start(x, -1)),
            (ValueError, "array: it is read-only", lambda: comm.broadcast(locked)),
            (ValueError, "array: it is not row-major", lambda: comm.broadcast(np.zeros((3, 3))[:, 0])),
            (ValueError, "counts: 1 numbers for 2 ranks", lambda: comm.all_gatherv(x, [3])),
            (ValueError, "send: 3 elements, not the 4", lambda: comm.all_gatherv(x, [4, 3])),
            (ValueError, r"counts\[1\] is -1", lambda: comm.all_gatherv(x, [3, -1])),
            (TypeError, "", lambda: comm.all_gatherv(x, [3, 1.5])),
            (ValueError, "displs: pass recv", lambda: comm.all_gatherv(x, [3, 1], None, [0, 3])),
            (ValueError, "recv: 3 elements, not 4", lambda: comm.all_gatherv(x, [3, 1], x.copy())),
            (ValueError, "reach to 6", lambda: comm.all_gatherv(x, [3, 1], np.zeros(5, np.float32), [3, 0])),
            (ValueError, "overlaps", lambda: comm.all_gatherv(x[:2], [2, 1], x, [1, 0])),
            (ValueError, "no multiple of the 3", lambda: comm.all_gatherv(x.reshape(1, 3), [3, 1])),
            (
                pici.UnsupportedError,
                "algorithm='doubling' for broadcast",
                lambda: comm.broadcast(x, 0, algorithm="doubling"),
            ),
        ]
        for kind, words, call in cases:
            with self.subTest(words):
                self.assertRaisesRegex(kind, words, call)
        self.assertEqual(comm.totals.calls, 0)

    def test_ranks_disagree(self):
        def roots(comm):
            with self.assertRaisesRegex(pici.PeerError, "disagree on the root: 0 on rank 0, 1 on rank 1"):
                comm.broadcast(np.zeros(3), comm.rank)
            return True

        self.assertEqual(together(pici.Comm.threads(2), roots), [True] * 2)

        def exchanged(comm):
            own = [1, 2, 3] if comm.rank < 2 else [2, 1, 3]
            with self.assertRaisesRegex(pici.PeerError, "disagree on the recvcounts"):
                comm.all_gatherv(np.zeros(own[comm.rank]), own)
            return True

        self.assertEqual(together(pici.Comm.threads(3), exchanged), [True] * 3)


if __name__ == "__main__":
    unittest.main()
