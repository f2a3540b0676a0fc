# SPDX-License-Identifier: BSD-3-Clause
"""Neighbourhood all-gathers among threads: results, gaps, codecs, requests, errors."""
import copy
import gc
import unittest

import numpy as np

import pici
import sums
from pici import _codec, _dtypes
from sums import together

LONG = 60.0  # seconds: a test that takes so long has failed


def sources_of(r, p):
    """A ring in both directions and itself, each listed once; one neighbour twice if there are many ranks."""
    return [r, (r + 1) % p, (r - 1) % p, (r + 1) % p] if p > 3 else list(range(p))


def destinations_of(r, p):
    return [d for d in range(p) for s in sources_of(d, p) if s == r]


def plan_of(comm, **options):
    return comm.neighbors(sources_of(comm.rank, comm.size), destinations_of(comm.rank, comm.size), **options)


class Results(unittest.TestCase):
    def test_every_dtype(self):
        for p, route in ((1, "auto"), (3, "direct"), (6, "halving")):
            for d in [*sums.DTYPES, _dtypes.BOOL, *_dtypes.COMPLEX]:
                n = 4097
                if d is _dtypes.BOOL:
                    xs = [np.arange(n) % (r + 2) == 0 for r in range(p)]
                elif d in _dtypes.COMPLEX:
                    xs = [(np.arange(n) + r).astype(d.name) * (2 - 1j) for r in range(p)]
                else:
                    xs = [sums.contribution(d, n, r) for r in range(p)]
                dtype = d.name if d.narrow else None

                def work(comm):
                    if p > 2:
                        comm.set_nodes([i // 2 for i in range(p)])
                    plan = plan_of(comm, route=route, most_bytes=1 << 20)
                    from_ = sources_of(comm.rank, p)
                    want = np.concatenate([xs[s] for s in from_])
                    got = plan.all_gather(xs[comm.rank], dtype=dtype, timeout=LONG)
                    into = np.zeros_like(want)
                    same = plan.all_gather(xs[comm.rank], into, dtype=dtype)
                    counts = [s % 3 for s in from_]
                    cut = plan.all_gatherv(xs[comm.rank][: comm.rank % 3], counts, dtype=dtype)
                    short = np.concatenate([xs[s][: s % 3] for s in from_])
                    return (
                        same is into
                        and got.tobytes() == want.tobytes() == into.tobytes()
                        and cut.tobytes() == short.tobytes()
                    )

                self.assertEqual(together(pici.Comm.threads(p), work), [True] * p, (d.name, p))

    def test_shapes_and_gaps(self):
        def work(comm):
            plan = plan_of(comm)
            rows = plan.all_gather(np.full((2, 3), comm.rank, np.int16))
            into = np.full(9, -1, np.int32)
            x = np.arange(2 + comm.rank, dtype=np.int32) + 10 * comm.rank
            plan.all_gatherv(x, [2, 3], into, [6, 1])
            return rows.shape, rows[:, 0].tolist(), into.tolist()

        for shape, column, into in together(pici.Comm.threads(2), work):
            self.assertEqual(shape, (4, 3))
            self.assertEqual(column, [0, 0, 1, 1])
            self.assertEqual(into, [-1, 10, 11, 12, -1, -1, 0, 1, -1])

    def test_codec(self):
        """The bits of an all-gather with the same codec, and what is lost in the residual."""
        n = 9000

        def work(comm):
            x = np.random.default_rng(comm.rank).random(n, np.float32)
            lost = np.zeros(n, np.float32)
            plan = comm.neighbors(range(4), range(4), route=("direct", "halving")[comm.size % 2])
            got = plan.all_gather(x, values={"codec": "cast", "residual": lost})
            want = comm.all_gather(x, values={"codec": "cast"})
            own = got[comm.rank * n :][:n]
            return got.tobytes() == want.tobytes(), bool((own != x).any()), bool((lost == x - own).all())

        self.assertEqual(together(pici.Comm.threads(4), work), [(True, True, True)] * 4)

    def test_info(self):
        def work(comm):
            comm.set_nodes([0, 0, 1, 1])
            plan = comm.neighbors(range(4), range(4), route="direct")
            again = comm.neighbors(range(4), range(4), route="halving", leaf=1, gain=1)
            return plan.info, again.info

        infos = together(pici.Comm.threads(4), work)
        for direct, halving in infos:
            self.assertEqual((direct.route, direct.edges, direct.messages, direct.own_messages), ("direct", 12, 12, 3))
            self.assertEqual((direct.inter_messages, direct.least_inter), (8, 4))
            self.assertEqual(halving.route, "halving")
            self.assertLess(halving.messages, 12)
            self.assertEqual(halving.hash, infos[0][1].hash)

    def test_regions(self):
        """Ranks of one node by regions of 1, 3 and 2, given by the ranks; by sockets and domains, whatever they are."""

        def work(comm):
            region = (7, -1, -1, -1, 4, 4)[comm.rank]
            plans = [
                comm.neighbors(range(6), range(6), route="halving", gain=1, region=region),
                comm.neighbors(range(6), range(6), route="halving", level="socket"),
                comm.neighbors(range(6), range(6), route="direct", level="numa"),
            ]
            sent = np.full(5, comm.rank, np.int16)
            return [plan.all_gather(sent).tolist() for plan in plans], plans[0].info

        want = [rank for rank in range(6) for _ in range(5)]
        for got, info in together(pici.Comm.threads(6), work):
            self.assertEqual(got, [want] * 3)
            self.assertEqual((info.regions, info.inter_messages, info.edges), (3, 0, 30))
            self.assertLess(info.region_messages, 22)  # the edges between regions
            self.assertGreaterEqual(info.region_blocks, 12)  # each block into each other region

    def test_requests(self):
        """Also those that are dropped, and a plan that is."""

        def work(comm):
            plan = plan_of(comm)
            a = plan.all_gather_start(np.full(3, comm.rank, np.int8))
            plan.all_gatherv_start(np.arange(2), [2] * comm.size)  # dropped
            b = plan.all_gatherv_start(np.full(1, comm.rank, np.int8), [1] * comm.size)
            del plan
            gc.collect()
            return a.wait().tolist(), b.wait().tolist()

        self.assertEqual(together(pici.Comm.threads(3), work), [([0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 2])] * 3)


class Refused(unittest.TestCase):
    def test_arguments(self):
        (comm,) = pici.Comm.threads(1)
        (other,) = pici.Comm.threads(1)
        x, room = np.zeros(3, np.float32), np.zeros(6, np.float32)
        plan = comm.neighbors([0, 0], [0, 0])
        for error, said, call in (
            (ValueError, "a rank of sources is 1, not a whole number from 0 to 0", lambda: comm.neighbors([1], [0])),
            (ValueError, "a rank of destinations is -1", lambda: comm.neighbors([0], [-1])),
            (TypeError, "", lambda: comm.neighbors([0.5], [0])),
            (
                ValueError,
                "route='ring': pass one of 'auto', 'direct', 'halving'",
                lambda: comm.neighbors([], [], route="ring"),
            ),
            (ValueError, "most_bytes is -1", lambda: comm.neighbors([], [], most_bytes=-1)),
            (ValueError, "leaf is 2147483648", lambda: comm.neighbors([], [], leaf=2**31)),
            (ValueError, "level", lambda: comm.neighbors([], [], level="core")),
            (ValueError, "pass region alone", lambda: comm.neighbors([], [], level="numa", region=1)),
            (ValueError, "region is 2147483648", lambda: comm.neighbors([], [], region=2**31)),
            (TypeError, "", lambda: comm.neighbors([], [], region=0.5)),
            (pici.PeerError, "the edge from rank 0 to rank 0", lambda: comm.neighbors([0], [])),
            (ValueError, "counts: 1 numbers for 2 sources", lambda: plan.all_gatherv(x, [3])),
            (ValueError, r"counts\[1\] is -1", lambda: plan.all_gatherv(x, [3, -1])),
            (ValueError, "displs: pass recv", lambda: plan.all_gatherv(x, [3, 3], None, [0, 3])),
            (ValueError, "reach to 7", lambda: plan.all_gatherv(x, [3, 3], np.zeros(6, np.float32), [0, 4])),
            (ValueError, "recv: 5 elements, not 6", lambda: plan.all_gather(x, np.zeros(5, np.float32))),
            (ValueError, "recv overlaps send", lambda: plan.all_gather(room[:3], room)),
            (TypeError, "unexpected keyword argument 'op'", lambda: plan.all_gather(x, op="sum")),
            (TypeError, "cannot be called", pici.Neighbors),
            (TypeError, "pici.Neighbors is not pickled", lambda: copy.copy(plan)),
        ):
            with self.subTest(said):
                self.assertRaisesRegex(error, said, call)
        self.assertEqual(plan.all_gather(x).tolist(), [0] * 6)
        with self.assertRaisesRegex(ValueError, "the plan is of another communicator"):
            _codec.comm_call(
                other._driver,
                _codec.NEIGHBOR_ALL_GATHER,
                x,
                np.zeros(6, "f4"),
                1,
                0,
                None,
                False,
                None,
                None,
                (plan._plan, None),
            )
        self.assertRegex(repr(plan), "2 sources>$")
        comm.close()
        self.assertRaisesRegex(pici.BrokenError, "closed", plan.all_gather, x)
        self.assertRaisesRegex(pici.BrokenError, "closed", comm.neighbors, [], [])

    def test_lists_that_disagree(self):
        """A failed plan breaks nothing."""

        def work(comm):
            sources = [0] if comm.rank else []
            self.assertRaisesRegex(pici.PeerError, "the edge from rank 0 to rank 1", comm.neighbors, sources, [])
            plan = comm.neighbors([1 - comm.rank], [1 - comm.rank])
            return plan.all_gather(np.full(2, comm.rank)).tolist()

        self.assertEqual(together(pici.Comm.threads(2), work), [[1, 1], [0, 0]])

    def test_another_node_map(self):
        def work(comm):
            plan = plan_of(comm)
            comm.set_nodes([0, 1, 0])
            with self.assertRaisesRegex(ValueError, "the node map has changed since the plan was made"):
                plan.all_gather(np.zeros(2), timeout=LONG)
            return True

        self.assertEqual(together(pici.Comm.threads(3), work), [True] * 3)

    def test_counts_that_disagree(self):
        def work(comm):
            plan = comm.neighbors([1 - comm.rank], [1 - comm.rank])
            if comm.rank == 0:
                return plan.all_gatherv(np.zeros(4), [2], timeout=LONG).tolist()
            with self.assertRaisesRegex(pici.PeerError, "rank 0 sends another count"):
                plan.all_gatherv(np.ones(2), [3], timeout=LONG)
            return None

        self.assertEqual(together(pici.Comm.threads(2), work), [[1, 1], None])


if __name__ == "__main__":
    unittest.main()
