# SPDX-License-Identifier: BSD-3-Clause
"""Communicators over MPI, by mpi4py: this file is also the program that runs under mpirun.

PICI_MPI_LIBRARY is libpici_mpi for the MPI of mpi4py, and PICI_MPIRUN its launcher: tests/package/python.sh sets
both."""
import importlib.util
import os
import shutil
import subprocess
import sys
import unittest

import numpy as np

LIMIT = 120  # seconds


def sparse(comm, x, total, everyone):
    """Each call of sparse vectors, of the nonzeros of x. total: the sum of everyone's x."""

    def listed(y):
        at = np.flatnonzero(y)
        return at.tolist(), y[at].tolist()

    def lists(pair):
        return pair[0].tolist(), pair[1].tolist()

    at = np.flatnonzero(x)[::-1].copy()
    mine = at, x[at], len(x)
    part = len(x) // comm.size
    for got, want in (
        (comm.all_reduce_sparse(*mine), total),
        (comm.all_reduce_sparse_start(*mine).wait(), total),
        (comm.reduce_scatter_sparse(*mine), total[part * comm.rank : part * (comm.rank + 1)]),
        (comm.reduce_scatter_sparse_start(*mine).wait(), total[part * comm.rank : part * (comm.rank + 1)]),
        (comm.all_gather_sparse(*mine), np.concatenate(everyone)),
        (comm.broadcast_sparse(*mine, root=comm.size - 1), everyone[-1]),
    ):
        assert lists(got) == listed(want)
    assert comm.all_reduce_sparse(*(mine if comm.rank else (x,)), out="dense").tobytes() == total.tobytes()
    far = comm.all_reduce_sparse(np.array([(1 << 40) - 1 - comm.rank]), np.ones(1, np.float32), 1 << 40)
    assert far[0].tolist() == [(1 << 40) - comm.size + i for i in range(comm.size)]


def rank():
    """What each rank does."""
    from mpi4py import MPI

    import pici

    world = MPI.COMM_WORLD
    for given in (None, world, world.Split(world.rank % 2)):
        group = world if given is None else given
        with pici.Comm.mpi(given) as comm:
            assert (comm.rank, comm.size) == (group.rank, group.size)
            x = np.zeros(30000, np.float32)
            x[comm.rank :: 97] = comm.rank + 1
            total = np.empty_like(x)
            group.Allreduce(x, total)
            for got in (
                comm.all_reduce(x),
                comm.all_reduce_start(x).wait(),
                comm.all_reduce(x, format="dense", native=True),
            ):
                assert got.tobytes() == total.tobytes()
            assert comm.all_gather(x).tolist() == np.concatenate(group.allgather(x)).tolist()
            assert comm.totals.calls == 4
            sparse(comm, x, total, group.allgather(x))
    try:
        pici.Comm.mpi("world")
    except TypeError as e:
        assert "no communicator of mpi4py" in str(e)
    else:
        raise AssertionError("a communicator of a text")
    with pici.Comm.mpi() as comm:
        try:
            comm.all_reduce_sparse(np.array([12 if comm.rank == comm.size - 1 else 1]), np.ones(1), 12, timeout=30)
        except pici.Error as e:
            print(f"refused: {e}", flush=True)
    left_open = pici.Comm.mpi()  # closed at the end, before MPI_Finalize
    left_open.all_reduce(np.ones(5), np.ones(5))
    try:
        left_open.all_reduce(np.ones(5 + left_open.rank), timeout=5)
    except pici.PeerError as e:
        print(f"disagreed: {e}", flush=True)
    print(f"rank {world.rank} of {world.size} done", flush=True)


@unittest.skipUnless(importlib.util.find_spec("mpi4py"), "no mpi4py: collectives over MPI from Python")
@unittest.skipUnless(os.environ.get("PICI_MPI_LIBRARY"), "no libpici_mpi for mpi4py (no mpicc): collectives over MPI")
@unittest.skipUnless(shutil.which(os.environ.get("PICI_MPIRUN") or "mpirun"), "no mpirun: collectives over MPI")
class Mpi(unittest.TestCase):
    def run_ranks(self, n, **env):
        launcher = os.environ.get("PICI_MPIRUN") or "mpirun"
        version = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout
        options = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in version or "OpenRTE" in version else []
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return subprocess.run(
            [launcher, *options, "-n", str(n), sys.executable, __file__],
            env={**os.environ, **root, "OMPI_MCA_mpi_yield_when_idle": "1", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )

    def test_ranks(self):
        for n in (1, 3):
            done = self.run_ranks(n)
            self.assertEqual(done.returncode, 0, done.stdout)
            for r in range(n):
                self.assertIn(f"rank {r} of {n} done", done.stdout)
            self.assertEqual(done.stdout.count("disagreed: "), n if n > 1 else 0, done.stdout)
            self.assertEqual(done.stdout.count(f"refused: rank {n - 1}: "), n, done.stdout)

    def test_no_library(self):
        done = self.run_ranks(1, PICI_MPI_LIBRARY="/nowhere/libpici_mpi.so")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, "ImportError.*/nowhere/libpici_mpi.so.*make mpi MPICC=mpicc")


if __name__ == "__main__":
    rank()
