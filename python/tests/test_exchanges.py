# SPDX-License-Identifier: BSD-3-Clause
"""all_to_allv among threads: results, gaps, requests, errors."""
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
    """Of rank i to rank j: some have nothing."""
    return [[n * ((i + 2 * j) % 3) + (i > j) for j in range(p)] for i in range(p)]


class Results(unittest.TestCase):
    def test_every_dtype(self):
        for p in (1, 2, 3, 5, 8):
            for i, d in enumerate([*sums.DTYPES, _dtypes.BOOL, *_dtypes.COMPLEX]):
                runs = lengths(p, (3, 700, 2 * 4096)[i % 3])
                if d is _dtypes.BOOL:
                    xs = [np.arange(sum(run)) % 3 == 0 for run in runs]
                elif d in _dtypes.COMPLEX:
                    xs = [np.arange(sum(run)).astype(d.name) * (2 - 1j) for run in runs]
                else:
                    xs = [sums.contribution(d, sum(run), r) for r, run in enumerate(runs)]
                cut = [np.split(x, np.cumsum(run)[:-1]) for x, run in zip(xs, runs)]
                dtype = d.name if d.narrow else None

                def work(comm):
                    r = comm.rank
                    if p > 2:
                        comm.set_nodes([min(i // 2, (p - 2) // 2) for i in range(p)])
                    expected = [runs[i][r] for i in range(p)]
                    want = np.concatenate([cut[i][r] for i in range(p)])
                    got = comm.all_to_allv(xs[r], runs[r], expected, dtype=dtype, timeout=LONG)
                    into = np.zeros_like(want)
                    same = comm.all_to_allv(xs[r], runs[r], expected, into, dtype=dtype)
                    return same is into and got.tobytes() == want.tobytes() == into.tobytes()

                self.assertEqual(together(pici.Comm.threads(p), work), [True] * p, (d.name, p))

    def test_gaps(self):
        """What lies between is left alone."""

        comms = pici.Comm.threads(2)

        def right(comm):
            x = np.arange(8, dtype=np.int32) + 100 * comm.rank
            into = np.full(9, -1, np.int32)
            sent, received = ([2, 3], [2, 1]) if comm.rank == 0 else ([1, 2], [3, 2])
            comm.all_to_allv(x, sent, received, into, [5, 1], [6, 0])
            return into.tolist()

        self.assertEqual(
            together(comms, right),
            [[105, -1, -1, -1, -1, -1, 5, 6, -1], [101, 102, -1, -1, -1, -1, 1, 2, 3]],
        )

    def test_rows(self):
        """Joined along the first dimension, as what was sent is."""

        comms = pici.Comm.threads(2)

        def rows(comm):
            sent, received = ([4, 8], [4, 4]) if comm.rank == 0 else ([4, 8], [8, 8])
            got = comm.all_to_allv(np.full((3, 4), comm.rank, np.float32), sent, received)
            return got.shape, got[:, 0].tolist()

        self.assertEqual(together(comms, rows), [((2, 4), [0, 1]), ((4, 4), [0, 0, 1, 1])])

    @unittest.skipUnless(torch, "no torch")
    def test_torch(self):
        def work(comm):
            got = comm.all_to_allv(torch.full((2, 2), comm.rank, dtype=torch.bfloat16), [2, 2], [2, 2])
            return got.dtype == torch.bfloat16, got.tolist()

        self.assertEqual(together(pici.Comm.threads(2), work), [(True, [[0, 0], [1, 1]])] * 2)


class Requests(unittest.TestCase):
    def test_start(self):
        """Counts and arrays live as long as the requests."""
        p = 3

        def work(comm):
            a = comm.all_to_allv_start(np.full(p, comm.rank, np.int8), [1] * p, [1] * p)
            comm.all_to_allv_start(np.arange(p), [1] * p, [1] * p)  # dropped
            b = comm.all_reduce_start(np.ones(3))
            gc.collect()
            return b.wait().tolist(), a.wait().tolist(), a.stats.calls

        self.assertEqual(together(pici.Comm.threads(p), work), [([3, 3, 3], [0, 1, 2], 1)] * p)


class Errors(unittest.TestCase):
    def test_refusals(self):
        comm = pici.Comm.threads(2)[0]
        x = np.zeros(3, np.float32)
        cases = [
            (ValueError, "sendcounts: 1 numbers for 2 ranks", lambda: comm.all_to_allv(x, [3], [1, 1])),
            (ValueError, "recvcounts: 3 numbers for 2", lambda: comm.all_to_allv(x, [1, 2], [1, 1, 1])),
            (ValueError, r"sendcounts\[1\] is -1", lambda: comm.all_to_allv(x, [3, -1], [3, 1])),
            (ValueError, r"recvcounts\[1\] is 4611686018427387904", lambda: comm.all_to_allv(x, [3, 0], [3, 2**62])),
            (TypeError, "", lambda: comm.all_to_allv(x, [3, 1.5], [3, 0])),
            (ValueError, r"sendcounts\[0\] is 2 and recvcounts\[0\] 1", lambda: comm.all_to_allv(x, [2, 1], [1, 1])),
            (
                ValueError,
                "send: 3 elements, and sendcounts and sdispls reach to 4",
                lambda: comm.all_to_allv(x, [2, 2], [2, 2]),
            ),
            (ValueError, "send: 3 elements, .* reach to 2", lambda: comm.all_to_allv(x, [1, 1], [1, 1])),
            (ValueError, "reach to 5", lambda: comm.all_to_allv(x, [1, 1], [1, 1], x.copy(), [0, 4])),
            (ValueError, "rdispls: pass recv", lambda: comm.all_to_allv(x, [2, 1], [2, 0], None, None, [0, 2])),
            (ValueError, "recv: 3 elements, not 2", lambda: comm.all_to_allv(x, [2, 1], [2, 0], x.copy())),
            (
                ValueError,
                "recv: 3 elements, and recvcounts and rdispls reach to 4",
                lambda: comm.all_to_allv(x, [2, 1], [2, 1], x.copy(), None, [0, 3]),
            ),
            (ValueError, "recv overlaps send", lambda: comm.all_to_allv(x, [2, 1], [2, 1], x)),
            (ValueError, "no multiple of the 3", lambda: comm.all_to_allv(x.reshape(1, 3), [2, 1], [2, 0])),
            (pici.UnsupportedError, "", lambda: comm.all_to_allv(x, [2, 1], [2, 1], algorithm="ring")),
        ]
        for kind, words, call in cases:
            with self.subTest(words):
                self.assertRaisesRegex(kind, words, call)
        self.assertEqual(comm.totals.calls, 0)

    def test_counts_do_not_match(self):
        """Named on all ranks."""

        def work(comm):
            received = [1, 1, 1] if comm.rank else [1, 1, 2]
            words = r"rank 2 sends rank 0 1 elements, and its recvcounts\[2\] is 2: counts do not match"
            with self.assertRaisesRegex(pici.PeerError, words):
                comm.all_to_allv(np.zeros(3), [1, 1, 1], received)
            return True

        self.assertEqual(together(pici.Comm.threads(3), work), [True] * 3)


if __name__ == "__main__":
    unittest.main()
