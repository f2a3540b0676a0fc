# SPDX-License-Identifier: BSD-3-Clause
"""Collectives with value codecs."""
import unittest

import numpy as np

import pici
from sums import checked, together

N, RANKS = 5000, 3


def gradient(rank, dtype="f4"):
    return np.random.default_rng(rank).standard_normal(N).astype(dtype)


def run(work):
    comms = pici.Comm.threads(RANKS)
    try:
        return checked(together(comms, work))
    finally:
        for comm in comms:
            comm.close()


class Values(unittest.TestCase):
    exact = sum(gradient(r).astype("f8") for r in range(RANKS))

    def test_all_ranks_have_the_same_bytes_and_residuals_what_was_lost(self):
        for values in (
            {"codec": "cast"},
            {"codec": "cast", "cast": "f16"},
            {"codec": "qsgd"},
            {"codec": "qsgd", "bits": 4, "bucket": 256, "rounding": "nearest", "phases": "gather"},
            {"codec": "qsgd", "bits": 2, "norm": "l2", "seed": 5, "phases": "reduce"},
        ):

            def work(comm):
                lost = np.zeros(N, "f4")
                result = comm.all_reduce(gradient(comm.rank), values={**values, "residual": lost})
                return result, lost, comm.stats

            with self.subTest(values):
                results = run(work)
                for result, _, _ in results:
                    self.assertEqual(result.tobytes(), results[0][0].tobytes())
                total = results[0][0] + sum(lost.astype("f8") for _, lost, _ in results)
                np.testing.assert_allclose(total, self.exact, atol=1e-4)
                self.assertGreater(abs(results[0][0] - self.exact).max(), 1e-4)
                self.assertGreater(sum(stats.events for _, _, stats in results), 0)
                self.assertGreater(sum(stats.lost for _, _, stats in results), 0)
                self.assertEqual(results[0][2].nonfinite, 0)

    def test_struct(self):
        values = pici.Values("qsgd", bits=8)

        def work(comm):
            a = comm.all_reduce_start(gradient(comm.rank), values=values).wait()
            b = comm.all_gather(gradient(comm.rank), values=values)
            c = comm.reduce_scatter(np.tile(gradient(comm.rank), RANKS), values=values)
            return a, b, c

        for a, b, c in run(work):
            self.assertLess(abs(a - self.exact).max(), 0.5)
            self.assertLess(abs(b - np.concatenate([gradient(r) for r in range(RANKS)])).max(), 0.1)
            self.assertLess(abs(c - self.exact).max(), 0.5)

    def test_fewer_bytes(self):
        def work(comm):
            comm.all_reduce(gradient(comm.rank))
            exact = comm.stats.wire_bytes
            comm.all_reduce(gradient(comm.rank), values={"codec": "qsgd", "bits": 2})
            return exact, comm.stats.wire_bytes

        for exact, lossy in run(work):
            self.assertLess(lossy, exact / 4)

    def test_zfp(self):
        def work(comm):
            try:
                a = comm.all_reduce(gradient(comm.rank), values={"codec": "zfp", "tolerance": 0.01})
            except pici.UnsupportedError:
                return None
            exact = comm.stats.dense_bytes
            b = comm.all_reduce(gradient(comm.rank), values={"codec": "zfp", "rate": 16, "nx": 4})
            return a, b, comm.stats.wire_bytes / exact

        for got in run(work):
            if got is None:
                self.skipTest("built without libzfp")
            a, b, share = got
            self.assertLess(abs(a - self.exact).max(), 2 * RANKS * 0.01)
            self.assertGreater(abs(a - self.exact).max(), 0)
            self.assertLess(abs(b - self.exact).max(), 0.1)
            self.assertLess(share, 0.6)

    def test_all_gather_with_a_residual(self):
        def work(comm):
            lost = np.zeros(N, "f4")
            got = comm.all_gather(gradient(comm.rank), values={"codec": "qsgd", "bits": 4, "residual": lost})
            return got, lost

        results = run(work)
        lost = np.concatenate([lost for _, lost in results])
        self.assertGreater(abs(lost).max(), 0)
        for got, _ in results:
            np.testing.assert_allclose(got + lost, np.concatenate([gradient(r) for r in range(RANKS)]), atol=1e-6)

    def test_what_is_wrong(self):
        (comm,) = pici.Comm.threads(1)
        x = gradient(0)
        for values, error, words in (
            ({"codec": "q"}, ValueError, "codec='q'"),
            ({"codec": "qsgd", "bits": 3}, pici.Error, "codec"),
            ({"codec": "qsgd", "bits": 4.0}, ValueError, "bits"),
            ({"codec": "qsgd", "norm": "l1"}, ValueError, "norm"),
            ({"codec": "zfp", "rate": -1}, ValueError, "rate"),
            ({"codec": "cast", "cast": "f8"}, ValueError, "cast"),
            ({"codec": "qsgd", "width": 3}, TypeError, "width"),
            ({"codec": "qsgd", "residual": np.zeros(N - 1, "f4")}, ValueError, "residual"),
            ({"codec": "qsgd", "residual": np.zeros(N, "f8")}, TypeError, "residual"),
            ({"codec": "qsgd", "residual": bytes(4 * N)}, (TypeError, ValueError), "residual"),
        ):
            with self.subTest(values.get("codec"), words=words), self.assertRaises(error) as e:
                comm.all_reduce(x, values=values)
            if error is not pici.Error:
                self.assertIn(words, str(e.exception))
        with self.assertRaises(pici.UnsupportedError):
            comm.all_reduce(np.zeros(4, "i4"), values={"codec": "qsgd"})
        np.testing.assert_array_equal(comm.all_reduce(x), x + 0)
        comm.close()

    def test_ranks_that_disagree(self):
        def work(comm):
            with self.assertRaises(pici.PeerError) as e:
                comm.all_reduce(gradient(comm.rank), values={"codec": "qsgd", "seed": comm.rank})
            self.assertIn("seed", str(e.exception))

        run(work)
