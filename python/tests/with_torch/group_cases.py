# SPDX-License-Identifier: BSD-3-Clause
"""What test_hooks.py runs on each rank: ranks that fail or disagree, and the communicator of a process group."""
import contextlib
import gc
import os
import signal
import socket
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pici
import pici.torch
from hooks_cases import averaged, begin, folder, net, normal, raises, same, threads, train
from pici.torch import _group


def killed(rank, size, hook_name):
    """Rank 1 dies before its backward pass. What the others raise, and after how long."""
    begin()
    model = net()
    ddp = DistributedDataParallel(model)
    states = {"topk_hook": pici.torch.TopKState, "quantize_hook": pici.torch.QuantizeState}
    state = states[hook_name](start_iter=0) if hook_name in states else None
    ddp.register_comm_hook(state, getattr(pici.torch, hook_name))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(ddp, optimizer, rank, range(2))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    since = time.monotonic()
    words = []
    for step in range(2, 4):
        try:
            train(ddp, optimizer, rank, [step])
        except Exception as e:
            words.append(f"{type(e).__name__}: {e}")
    return words, time.monotonic() - since


def selection_fails(rank, size):
    """Rank 1 has no memory left for its selection, say, and goes on. What all ranks raise."""
    begin()
    store = dist.distributed_c10d._get_default_store()
    state = pici.torch.TopKState(start_iter=0)
    if rank == 1:

        def fail(*_):
            raise MemoryError("no memory for the selection")

        state._select = fail
    try:
        averaged(pici.torch.topk_hook, state, normal(rank, (5000,)))
    except RuntimeError:
        store.set(f"failed/{rank}", "")
        store.wait([f"failed/{r}" for r in range(size)], timedelta(seconds=30))
        raise


def differs(rank, size, how):
    """Rank 1 makes another call. What all ranks raise."""
    begin()
    c = _group.communicator()
    x = torch.ones(1000)
    if how == "size":
        x = torch.ones(1000 + (rank == 1))
    op = "max" if how == "op" and rank == 1 else "sum"
    algorithm = {"algorithm": "recursive" if rank == 1 else "ring"} if how == "algorithm" else {}
    if how == "state":
        own = pici.torch.State(opts={"algorithm": "recursive" if rank == 1 else "ring"})
        averaged(pici.torch.all_reduce_hook, own, [x])
    c.submit(lambda comm: comm.all_reduce(x, x, op, **algorithm)).wait()


def other_choice(rank, size):
    """Rank 1 would leave this bucket to torch."""
    begin()
    averaged(pici.torch.all_reduce_hook, pici.torch.State(min_bytes=5000 if rank == 1 else 0), [torch.ones(10)])


def cuda_flag(rank, size):
    begin()
    if rank == 1:
        os.environ["PICI_TORCH_CUDA"] = "maybe"
    _group.communicator()


def dies_first(rank, size):
    """Rank 1 dies before its first bucket."""
    begin()
    ddp = DistributedDataParallel(net())
    ddp.register_comm_hook(None, pici.torch.all_reduce_hook)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    train(ddp, torch.optim.SGD(ddp.parameters(), 0.1), rank, [0])


def store_is_gone(rank, size):
    """Rank 0, which holds the store, ends before the group of the others makes its first call."""
    where = folder() / "port"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
        (folder() / "new").write_text(str(store.port))
        (folder() / "new").rename(where)
    else:
        while not where.exists():
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(where.read_text()), size, False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    group = dist.new_group([1, 2])
    dist.barrier()
    if rank == 0:
        return
    with contextlib.suppress(ConnectionRefusedError):
        while True:
            socket.create_connection(("127.0.0.1", store.port)).close()
            time.sleep(0.05)
    ddp = DistributedDataParallel(net(), process_group=group)
    ddp.register_comm_hook(group, pici.torch.all_reduce_hook)
    train(ddp, torch.optim.SGD(ddp.parameters(), 0.1), rank, [0])


def crossed(rank, size):
    """Two threads make the communicators of two groups, on each rank in another order."""
    begin(seconds=20)
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    first = threading.Event()
    failed = []

    def make(i):
        try:
            if i != rank:
                first.wait(0.5)
            _group.communicator(groups[i])
        except Exception as e:
            failed.append(e)

    made = [threading.Thread(target=make, args=(i,)) for i in range(2)]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    assert not failed, failed


def does_not_come(rank, size):
    """Rank 1 uses no hook, so it never connects."""
    begin(seconds=10)  # gloo, too, has to connect within it
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["ended"], timedelta(seconds=60))
        return
    try:
        _group.communicator()
    finally:
        store.set("ended", "")


def first_call(rank, size, variables):
    """With nonsense in the environment of rank 1."""
    begin()
    if rank == 1:
        os.environ.update(variables)
    averaged(pici.torch.all_reduce_hook, None, [torch.ones(10)])


def order_and_errors(rank, size):
    begin()
    c = _group.communicator()
    assert c is _group.communicator() and (c.rank, c.size) == (rank, size)
    x = torch.zeros(100000)
    futures = []
    for i in range(20):
        futures.append(c.submit(lambda comm, i=i: comm.all_reduce(x + rank + i, None)))
    for i, f in enumerate(futures):
        same([f.wait()], [torch.full((100000,), float(sum(r + i for r in range(size))))])

    def wrong(comm):
        raise KeyError("of the call")

    f = c.submit(wrong)
    raises(KeyError, "of the call", f.wait)
    raises(RuntimeError, "of the call", _group.native(f).wait)
    assert not c.broken
    c.drain()
    c.close()
    raises(pici.BrokenError, "closed", c.submit, wrong)


def aborts(rank, size):
    """abort() on one rank, while all others wait in a call."""
    begin()
    c = _group.communicator()
    x = torch.ones(1000)
    c.submit(lambda comm: comm.all_reduce(x, x)).wait()
    if rank == 0:
        time.sleep(0.5)
        c.abort()
        assert c.submit(lambda comm: None).wait() is None
    f = c.submit(lambda comm: comm.all_reduce(x, x))
    try:
        f.wait()
    except pici.Error as e:
        assert c.broken
        return str(e)
    return "no error"


def ends_with_group(rank, size):
    """destroy_process_group() ends the thread, and a new group connects anew."""
    for n in range(2):
        begin()
        _group.communicator().submit(lambda comm: comm.all_reduce(torch.ones(10))).wait()
        assert threads() == 1
        dist.destroy_process_group()
        gc.collect()
        until = time.monotonic() + 5
        while threads() and time.monotonic() < until:
            time.sleep(0.01)
        assert threads() == 0
        os.environ["STORE"] += "-next"


def forks(rank, size):
    """A child of rank 0, as a worker of a DataLoader, lives longer than rank 0; rank 1 notices the end of rank 0."""
    begin()
    c = _group.communicator()
    x = torch.ones(1000)
    c.submit(lambda comm: comm.all_reduce(x, x)).wait()
    if rank == 0:
        if os.fork() == 0:
            time.sleep(90)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    since = time.monotonic()
    try:
        c.submit(lambda comm: comm.all_reduce(x, x)).wait()
    except pici.PeerError as e:
        return str(e), time.monotonic() - since
    return "no error", 0.0
