# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of sparse vectors among threads and over sockets: kinds of arrays, rows, results, errors."""
import gc
import unittest
from types import SimpleNamespace

import numpy as np

import pici
import sums
from sums import checked, together
from test_comm_sockets import mesh
from test_dlpack import installed

torch = installed("torch")
sparse = installed("scipy.sparse")
INDICES = ("int32", "int64", "uint32", "uint64")


def lists(rank, n, nnz, index, run=()):
    """Indices, some of them several times, and values of a rank: small whole numbers, whose sums are exact."""
    rng = np.random.default_rng((n, nnz, rank))
    indices = rng.integers(0, n, nnz).astype(index)
    return indices, rng.integers(-9, 9, (nnz, *run))


def dense_of(indices, values, shape):
    x = np.zeros(shape, values.dtype)
    np.add.at(x, tuple(indices) if indices.ndim == 2 else indices, values)
    return x


def listed(x):
    """The rows of x that are not zero: indices and values."""
    indices = np.flatnonzero(x.reshape(len(x), -1).any(1))
    return indices, x[indices]


def over_sockets(p):
    fds = mesh(p)
    return checked(
        together([SimpleNamespace(rank=r) for r in range(p)], lambda r: pici.Comm.sockets(fds[r.rank], r.rank))
    )


class Results(unittest.TestCase):
    def test_all_reduce(self):
        """Every dtype of indices, with rows and without, against NumPy's sums: sorted, each index once."""
        for p in (1, 2, 3, 5):
            for i, index in enumerate(INDICES):
                n, run = (50, 5000, 300)[i % 3], ((), (3,), (2, 2), (1,))[i]
                dtype = ("f4", "i4", "f8", "i2")[i]
                given = [lists(r, n, 20 * r, index, run) for r in range(p)]
                given = [(a, v.astype(dtype)) for a, v in given]
                dense = [dense_of(a, v, (n, *run)) for a, v in given]
                for op, want in (("sum", sum(dense)), ("max", np.maximum.reduce(dense))):
                    at, expected = listed(want)

                    def work(comm):
                        mine = given[comm.rank]
                        short = comm.all_reduce_sparse(*mine, n, op)
                        long = comm.all_reduce_sparse_start(*mine, (n, *run), op).wait()
                        full = comm.all_reduce_sparse(*mine, n, op, "dense")
                        return short, long, full

                    for short, long, full in checked(together(pici.Comm.threads(p), work)):
                        for indices, values in (short, long):
                            self.assertEqual((indices.dtype, values.dtype), (np.dtype(index), np.dtype(dtype)))
                            np.testing.assert_array_equal(indices, at)
                            np.testing.assert_array_equal(values, expected)
                        np.testing.assert_array_equal(full, want)

    def test_bits_of_the_dense_call(self):
        """Floats that round: the bits of the dense all-reduce, for all narrow dtypes too."""
        for d in sums.DTYPES:
            n, p = 3000, 3
            xs = [sums.contribution(d, n, r, 0.05) for r in range(p)]
            dtype = d.name if d.narrow else None

            def work(comm):
                x = xs[comm.rank]
                at = np.flatnonzero(x)
                want = comm.all_reduce(x, dtype=dtype)
                got = comm.all_reduce_sparse(at, x[at], n, out="dense", dtype=dtype)
                indices, values = comm.all_reduce_sparse(at, x[at], n, dtype=dtype)
                again = np.zeros_like(x)
                again[indices] = values
                return want.tobytes() == got.tobytes() == again.tobytes()

            self.assertEqual(together(pici.Comm.threads(p), work), [True] * p, d.name)

    def test_reduce_scatter_and_all_gather(self):
        p, rows = 3, 12
        given = [lists(r, rows, 5 + r, "int64", (2,)) for r in range(p)]
        dense = [dense_of(a, v, (rows, 2)) for a, v in given]

        def work(comm):
            mine = *given[comm.rank], rows
            started = comm.reduce_scatter_sparse_start(*mine), comm.all_gather_sparse_start(*mine, out="dense")
            return (
                comm.reduce_scatter_sparse(*mine),
                comm.all_gather_sparse(*mine),
                *(request.wait() for request in started),
                comm.reduce_scatter_sparse(*mine, "max", "dense"),
            )

        for rank, (part, every, later, whole, most) in enumerate(checked(together(pici.Comm.threads(p), work))):
            own = slice(4 * rank, 4 * rank + 4)
            for got, want in ((part, sum(dense)[own]), (later, sum(dense)[own]), (every, np.concatenate(dense))):
                at, expected = listed(want)
                np.testing.assert_array_equal(got[0], at)
                np.testing.assert_array_equal(got[1], expected)
            np.testing.assert_array_equal(whole, np.concatenate(dense))
            np.testing.assert_array_equal(most, np.maximum.reduce(dense)[own])

    def test_broadcast(self):
        """The root's vector, whatever the other ranks list."""
        p, rows = 3, 40
        given = [lists(r, rows, 5 + r, "int32", (2,)) for r in range(p)]
        dense = [dense_of(a, v, (rows, 2)) for a, v in given]
        none = np.zeros(0, "i8"), np.zeros((0, 2), given[0][1].dtype)

        def work(comm):
            found = []
            for root in range(p):
                mine = given[comm.rank] if comm.rank == root else none
                found.append(
                    (
                        comm.broadcast_sparse(*given[comm.rank], rows, root),
                        comm.broadcast_sparse_start(*mine, rows, root).wait(),
                        comm.broadcast_sparse(dense[comm.rank], root=root),
                    )
                )
            flags = comm.broadcast_sparse(np.array([comm.rank]), np.array([True]), 4, 2)  # of which there is no sum
            assert flags[0].tolist() == [2] and flags[1].tolist() == [True]
            return found

        for found in checked(together(pici.Comm.threads(p), work)):
            for root, (short, later, full) in enumerate(found):
                at, expected = listed(dense[root])
                for got in (short, later):
                    np.testing.assert_array_equal(got[0], at)
                    np.testing.assert_array_equal(got[1], expected)
                np.testing.assert_array_equal(full, dense[root])

    def test_coordinates(self):
        """An index for each of several dimensions."""
        shape = (4, 5, 6)
        rng = np.random.default_rng(1)
        given = [np.stack([rng.integers(0, n, 9) for n in shape]).astype("i4") for _ in range(2)]
        values = [np.arange(1.0, 10), np.arange(9.0, 0, -1)]
        want = sum(dense_of(a, v, shape) for a, v in zip(given, values))

        def work(comm):
            return comm.all_reduce_sparse(given[comm.rank], values[comm.rank], shape)

        for indices, got in checked(together(pici.Comm.threads(2), work)):
            np.testing.assert_array_equal(indices, np.stack(want.nonzero()))
            self.assertEqual(indices.dtype, np.int32)
            np.testing.assert_array_equal(got, want[want.nonzero()])

    def test_large_shape(self):
        """2^40 elements with few indices; int32 indices of a vector that they cannot all reach."""
        n = 1 << 40

        def work(comm):
            far = comm.all_reduce_sparse(np.array([n - 1 - comm.rank]), np.ones(1, "f4"), n)
            near = comm.all_reduce_sparse(np.array([5], "i4"), np.ones(1, "f4"), n)
            return far[0].tolist(), near[0].tolist(), near[0].dtype, near[1].tolist()

        want = ([n - 2, n - 1], [5], np.dtype("i8"), [2.0])
        self.assertEqual(checked(together(pici.Comm.threads(2), work)), [want] * 2)

    def test_dense_ranks(self):
        """A rank with a dense array among others with lists, and what is shorter."""
        x = np.zeros(1000, "f4")
        x[::7] = 1

        def work(comm):
            mine = (x,) if comm.rank else (np.array([7, 3]), np.array([1, 2], "f4"), 1000)
            whole = comm.all_reduce_sparse(*mine, out="dense")
            indices, values = comm.all_reduce_sparse(*mine, out="sparse")
            shorter = comm.all_reduce_sparse(*mine, out="shorter")
            longer = comm.all_reduce_sparse(np.ones(1000, "f4"), out="shorter")
            return whole, indices, values, shorter, longer, comm.all_reduce_sparse(x)

        want = x.copy()
        want[[7, 3]] += [1, 2]
        for whole, indices, values, shorter, longer, dense in checked(together(pici.Comm.threads(2), work)):
            np.testing.assert_array_equal(whole, want)
            np.testing.assert_array_equal(indices, want.nonzero()[0])
            np.testing.assert_array_equal(values, want[want.nonzero()])
            np.testing.assert_array_equal(shorter[1], values)
            np.testing.assert_array_equal(longer, np.full(1000, 2, "f4"))
            np.testing.assert_array_equal(dense, x + x)

    def test_nothing(self):
        """No indices on any rank, no elements at all, and rows without elements."""

        def work(comm):
            none = comm.all_reduce_sparse(np.zeros(0, "u4"), np.zeros((0, 3), "f4"), 10)
            empty = comm.all_reduce_sparse(np.zeros(0, "i8"), np.zeros(0, "f4"), 0)
            full = comm.all_reduce_sparse(np.zeros(0, "i8"), np.zeros(0, "f4"), 0, out="dense")
            thin = comm.all_reduce_sparse(np.array([1]), np.zeros((1, 0), "f4"), 5)
            return [(a.shape, v.shape) for a, v in (none, empty, thin)], full.shape

        want = ([((0,), (0, 3)), ((0,), (0,)), ((0,), (0, 0))], (0,))
        self.assertEqual(checked(together(pici.Comm.threads(2), work)), [want] * 2)

    def test_complex_and_bool(self):
        def work(comm):
            z = comm.all_reduce_sparse(np.array([2, 0]), np.array([1j, 1 + comm.rank]), 4)
            b = comm.all_reduce_sparse(np.array([comm.rank]), np.array([True]), 4, "max")
            return z[0].tolist(), z[1].tolist(), b[0].tolist(), b[1].tolist()

        want = ([0, 2], [3, 2j], [0, 1], [True, True])
        self.assertEqual(checked(together(pici.Comm.threads(2), work)), [want] * 2)

    def test_results_outlive_the_communicator(self):
        def work(comm):
            with comm:
                return comm.all_reduce_sparse(np.arange(50000), np.ones(50000), 100000)

        for indices, values in checked(together(pici.Comm.threads(2), work)):
            gc.collect()
            np.testing.assert_array_equal(indices, np.arange(50000))
            values += 1
            self.assertEqual((values == 3).all(), True)

    def test_requests(self):
        """Several in flight; one that is dropped; the result is made once."""

        def work(comm):
            started = [comm.all_reduce_sparse_start(np.array([i]), np.ones(1), 9) for i in range(4)]
            del started[1]
            comm.all_reduce_sparse_start(np.array([8]), np.ones(1), 9)
            first = started[0].wait()
            return [r.wait()[0].tolist() for r in started], started[0].wait() is first

        self.assertEqual(checked(together(pici.Comm.threads(2), work)), [([[0], [2], [3]], True)] * 2)


@unittest.skipUnless(sparse, "no scipy: sparse arrays of scipy")
class Scipy(unittest.TestCase):
    def test_kinds(self):
        """The result is of the kind of what was passed, and canonical."""
        rng = np.random.default_rng(4)
        xs = [sparse.random(20, 30, 0.1, random_state=rng, dtype="f4") for _ in range(3)]
        want = sum(x.toarray() for x in xs)
        names = [f"{form}_{kind}" for form in ("coo", "csr", "csc", "lil") for kind in ("array", "matrix")]
        for name in (name for name in names if hasattr(sparse, name)):
            kind = getattr(sparse, name)

            def work(comm):
                got = comm.all_reduce_sparse(kind(xs[comm.rank]))
                full = comm.all_reduce_sparse(kind(xs[comm.rank]), out="dense")
                return got, full

            for got, full in checked(together(pici.Comm.threads(3), work)):
                self.assertIs(type(got), kind)
                np.testing.assert_allclose(got.toarray(), want, rtol=1e-6)
                np.testing.assert_array_equal(full, got.toarray())

    def test_parts(self):
        x = sparse.csr_matrix(np.eye(6, 5))

        def work(comm):
            return (
                comm.reduce_scatter_sparse(x),
                comm.all_gather_sparse(x),
                comm.broadcast_sparse(x * comm.rank, root=1),
            )

        for rank, (part, every, same) in enumerate(checked(together(pici.Comm.threads(2), work))):
            self.assertIs(type(same), type(x))
            np.testing.assert_array_equal(same.toarray(), np.eye(6, 5))
            np.testing.assert_array_equal(part.toarray(), 2 * np.eye(6, 5)[3 * rank : 3 * rank + 3])
            np.testing.assert_array_equal(every.toarray(), np.concatenate([np.eye(6, 5)] * 2))


@unittest.skipUnless(torch, "no torch: sparse tensors")
class Torch(unittest.TestCase):
    def test_kinds(self):
        x = torch.sparse_coo_tensor(torch.tensor([[3, 1, 3]]), torch.ones(3, 2, dtype=torch.bfloat16), (5, 2))
        want = 2 * x.to_dense()

        def work(comm):
            return (
                comm.all_reduce_sparse(x),
                comm.all_reduce_sparse(x, out="dense"),
                comm.all_reduce_sparse(x._indices(), x._values(), (5, 2)),
                comm.all_reduce_sparse(x.to_dense().float().to_sparse_csr()),
            )

        for got, full, (indices, values), csr in checked(together(pici.Comm.threads(2), work)):
            self.assertTrue(got.is_coalesced() and got.layout is torch.sparse_coo)
            self.assertTrue(torch.equal(got.to_dense(), want) and torch.equal(full, want))
            self.assertTrue(torch.equal(indices, got._indices()) and torch.equal(values, got._values()))
            self.assertTrue(csr.layout is torch.sparse_csr and torch.equal(csr.to_dense(), want.float()))


class Errors(unittest.TestCase):
    """What is wrong on one rank ends the call on all of them, with its number."""

    def refused(self, words, *wrong, kind=ValueError, make=pici.Comm.threads, out=None):
        def work(comm):
            mine = wrong if comm.rank == 1 else (np.array([1, 2]), np.ones(2, "f4"), 12)
            comm.all_reduce_sparse(*mine, out=out, timeout=30)

        for rank, e in enumerate(together(make(3), work)):
            self.assertIsInstance(e, kind if rank == 1 else pici.Error, f"rank {rank}: {e!r}")
            self.assertIn(words if rank == 1 else "rank 1", str(e))

    def test_indices(self):
        two = np.ones(2, "f4")
        self.refused("-1, at place 1, is negative", np.array([0, -1]), two, 12)
        self.refused("-7, at place 0, is negative", np.array([-7, 1], "i4"), two, 12)
        self.refused("-7, at place 0, is negative", np.array([-7, 1], "i4"), two, 1 << 40)
        self.refused("index 12 of the stream, at place 1", np.array([0, 12], "u4"), two, 12)
        self.refused("9 in dimension 1, which has 4 indices", np.array([[0, 1], [0, 9]]), two, (3, 4))
        self.refused("elements of f64", np.array([0.0, 1.0]), two, 12, kind=TypeError)
        self.refused("index 12 of the stream", np.array([12]), two[:1], 12, make=over_sockets)
        self.refused("none of the dimensions", np.zeros((0, 2), "i8"), two, ())

    def test_lengths(self):
        self.refused("pass as many of both", np.array([0, 1, 2]), np.ones(2, "f4"), 12)
        self.refused("pass as many of both", np.array([[[1]]]), np.ones(1, "f4"), 12)
        self.refused("a value has the shape (2,)", np.array([0, 1]), np.ones((2, 2), "f4"), (12, 3))
        self.refused("with a negative number", np.array([0]), np.ones(1, "f4"), -12)
        self.refused("too many", np.array([[0], [0]]), np.ones(1, "f4"), (1 << 40, 1 << 40))

    def test_arrays(self):
        self.refused("values", np.array([0, 1]), [1, 2], 12, kind=TypeError)
        self.refused("shape", np.array([0, 1]), np.ones(2, "f4"), None, kind=TypeError)

    def test_shapes(self):
        """Another shape on one rank: all ranks name it."""

        def work(comm):
            comm.all_reduce_sparse(np.array([1]), np.ones(1, "f4"), 12 + (comm.rank == 2), timeout=30)

        for e in together(pici.Comm.threads(3), work):
            self.assertIsInstance(e, pici.PeerError)
            self.assertRegex(str(e), "rank [0-2]")

    def test_broadcast(self):
        """Roots that differ; and what is wrong on the root, or on a rank whose vector is not read."""

        def roots(comm):
            comm.broadcast_sparse(np.array([1]), np.ones(1, "f4"), 12, comm.rank, timeout=30)

        for e in together(pici.Comm.threads(2), roots):
            self.assertIsInstance(e, pici.PeerError)
        for wrong, words in ((1, "index 12 of the stream"), (2, "elements of f64")):

            def work(comm):
                at = np.array([12 if wrong == 1 else 0]) if comm.rank == wrong else np.array([1])
                comm.broadcast_sparse(at.astype("f8") if wrong == comm.rank == 2 else at, np.ones(1), 12, 1, timeout=30)

            for rank, e in enumerate(together(pici.Comm.threads(3), work)):
                self.assertIsInstance(e, (pici.Error, TypeError))
                self.assertIn(words if rank == wrong else f"rank {wrong}", str(e))
        (comm,) = pici.Comm.threads(1)
        with self.assertRaisesRegex(ValueError, "root is 1"):
            comm.broadcast_sparse(np.array([1]), np.ones(1), 12, 1)
        with self.assertRaisesRegex(TypeError, "balance"):
            comm.broadcast_sparse(np.array([1]), np.ones(1), 12, balance="on")
        self.assertEqual(comm.broadcast_sparse(np.array([1]), np.ones(1), 12)[0].tolist(), [1])

    def test_options(self):
        """What is wrong with the call itself is raised here, and breaks nothing."""
        (comm,) = pici.Comm.threads(1)
        mine = np.array([1]), np.ones(1, "f4"), 12
        with self.assertRaisesRegex(ValueError, "out='none'"):
            comm.all_reduce_sparse(*mine, out="none")
        with self.assertRaisesRegex(ValueError, "op='prod'"):
            comm.all_reduce_sparse(*mine, "prod")
        with self.assertRaises(TypeError):
            comm.all_reduce_sparse(*mine, values={})
        self.assertEqual(comm.all_reduce_sparse(*mine)[0].tolist(), [1])

    def test_parts(self):
        def work(comm):
            comm.reduce_scatter_sparse(np.array([1]), np.ones(1, "f4"), 5)

        for e in together(pici.Comm.threads(2), work):
            self.assertIn("not a multiple of 2 ranks", str(e))


if __name__ == "__main__":
    unittest.main()
