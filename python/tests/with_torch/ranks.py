# SPDX-License-Identifier: BSD-3-Clause
"""Processes that are the ranks of a job, for tests of pici.torch.

They are forked from this process, which has imported torch but started none of its threads. So a test takes tenths of a
second, instead of the seconds of an import on each rank.
"""
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import torch

import pici.torch  # noqa: F401: before the fork

with contextlib.suppress(Exception):  # an old torch has none; DistributedDataParallel imports it in each process
    import torch._dynamo  # noqa: F401

_fork = multiprocessing.get_context("fork")


class Ended(NamedTuple):
    """How a rank ended."""

    value: object = None
    error: str = ""  # the exception: "NAME: words"; or how the process died
    kinds: tuple = ()  # names of the exception's classes
    trace: str = ""
    seconds: float = 0.0


def _child(pipe, rank, size, store, environment, function, args):
    os.setpgid(0, 0)
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "STORE": f"file://{store}"})
    os.environ.update(environment)
    torch.set_num_threads(1)
    begin = time.monotonic()
    try:
        value = function(rank, size, *args)
        ended = Ended(value=value)
    except BaseException as e:
        kinds = tuple(k.__name__ for k in type(e).__mro__)
        ended = Ended(error=f"{type(e).__name__}: {e}", kinds=kinds, trace=traceback.format_exc())
    pipe.send(ended._replace(seconds=time.monotonic() - begin))
    pipe.close()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def ended(size, function, *args, timeout=60, environment=None):
    """function(rank, size, *args) on each of `size` ranks: how each ended. None may take longer than timeout seconds.
    torch.distributed.init_process_group(init_method=os.environ["STORE"], ...) makes a group of them."""
    with tempfile.TemporaryDirectory() as folder:
        processes, pipes = [], []
        for rank in range(size):
            mine, theirs = _fork.Pipe(duplex=False)
            own = (theirs, rank, size, Path(folder) / "store", environment or {}, function, args)
            processes.append(_fork.Process(target=_child, args=own))
            pipes.append(mine)
            processes[-1].start()
            theirs.close()
        until = time.monotonic() + timeout
        try:
            results = []
            for process, pipe in zip(processes, pipes):
                if not pipe.poll(max(until - time.monotonic(), 0)):
                    results.append(Ended(error=f"still running after {timeout} s"))
                    continue
                try:
                    results.append(pipe.recv())
                except EOFError:
                    process.join(5)
                    results.append(Ended(error=f"died with status {process.exitcode}"))
            for process in processes:
                process.join(max(until - time.monotonic(), 5))
                if process.exitcode is None:
                    rank = processes.index(process)
                    results[rank] = results[rank]._replace(error=results[rank].error + " and did not exit")
            return results
        finally:
            for process in processes:
                if process.exitcode is None:
                    os.kill(process.pid, signal.SIGKILL)
                    process.join()


def run(size, function, *args, **options):
    """As ended(), but returns the values. AssertionError: a rank failed."""
    results = ended(size, function, *args, **options)
    failed = [f"rank {r}: {e.error}\n{e.trace}" for r, e in enumerate(results) if e.error]
    if failed:
        raise AssertionError("\n".join(failed))
    return [e.value for e in results]
