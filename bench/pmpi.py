# SPDX-License-Identifier: BSD-3-Clause
"""Seconds of mpi4py's Allreduce, in a program that knows nothing of pici; by bench/pmpi, as bench/pmpi.c.

mpirun -n 4 python3 bench/pmpi.py mpi4py DENSITY,... BYTES,...
"""
import statistics
import sys

import numpy
from mpi4py import MPI

WARM, LEAST, MOST, LONG_ENOUGH = 2, 3, 15, 3.0


def measure(comm, density, n):
    random = numpy.random.default_rng(comm.rank)
    x = (random.random(n) < density).astype(numpy.float32)
    y = numpy.empty_like(x)
    ones = comm.allreduce(int(numpy.count_nonzero(x)))
    seconds = []
    while len(seconds) < WARM + LEAST or (len(seconds) < WARM + MOST and sum(seconds[WARM:]) < LONG_ENOUGH):
        comm.Barrier()
        begin = MPI.Wtime()
        comm.Allreduce(x, y)
        seconds.append(comm.allreduce(MPI.Wtime() - begin, MPI.MAX))
    if y.sum(dtype=numpy.float64) != ones:
        sys.exit("rank %d: Allreduce of %d floats is wrong" % (comm.rank, n))
    return statistics.median(seconds[WARM:])


for size in sys.argv[3].split(","):
    for share in sys.argv[2].split(","):
        taken = measure(MPI.COMM_WORLD, float(share), int(size) // 4)
        if MPI.COMM_WORLD.rank == 0:
            print(sys.argv[1], "%g" % float(share), size, "%.6f" % taken, flush=True)
