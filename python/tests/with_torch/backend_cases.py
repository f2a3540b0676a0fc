# SPDX-License-Identifier: BSD-3-Clause
"""What test_backend.py runs on each rank."""
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d as _c10d
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from pici.torch import _backend

LARGE = 30 * 1024  # elements of f32 that are pici's; a multiple of 2 and of 3

calls = []  # of pici, by name


def count_calls():
    start = _backend.PiciBackend._start

    def counted(self, name, run):
        calls.append(name)
        return start(self, name, run)

    _backend.PiciBackend._start = counted


count_calls()


def begin(backend="cpu:pici", seconds=30, **options):
    size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    timeout = timedelta(seconds=seconds)
    dist.set_debug_level_from_env()  # which was read before the fork
    dist.init_process_group(
        backend, init_method=os.environ["STORE"], rank=rank, world_size=size, timeout=timeout, **options
    )


def made():
    """The names of pici's calls since the last time."""
    names = calls[:]
    calls.clear()
    return names


def same(found, wanted):
    wanted = torch.as_tensor(wanted, dtype=found.dtype).expand(found.shape)
    assert torch.equal(found, wanted), f"{found} instead of {wanted}"


def sparse_values(rank, n=LARGE, dtype=torch.float32):
    """Whole numbers, most of them zero, so that every sum is exact."""
    own = torch.Generator().manual_seed(rank)
    values = torch.randint(-8, 9, (n,), generator=own)
    return torch.where(torch.rand(n, generator=own) < 0.05, values, 0).to(dtype)


def total_of(size, op="sum", n=LARGE, dtype=torch.float32):
    all_of_them = torch.stack([sparse_values(r, n, dtype) for r in range(size)])
    if op == "sum":
        return all_of_them.sum(0, dtype=dtype)
    if op == "avg":
        total = all_of_them.sum(0, dtype=dtype)
        return torch.div(total, size, rounding_mode=None if dtype.is_floating_point else "trunc").to(dtype)
    return all_of_them.amin(0) if op == "min" else all_of_them.amax(0)


# ---- the operations


def all_reduce(rank, size):
    x = sparse_values(rank)
    assert dist.all_reduce(x) is None
    same(x, total_of(size))
    assert made() == ["all_reduce"]


def all_reduce_async(rank, size):
    tensors = [sparse_values(rank) + i * (rank + 1) for i in range(4)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    futures = [w.get_future() for w in works]
    for i, (work, future, x) in enumerate(zip(works, futures, tensors)):
        assert work.wait() is True and work.wait(timedelta(seconds=5)) is True
        assert future.wait()[0] is x and future.done()
        same(x, total_of(size) + i * size * (size + 1) / 2)
    assert made() == 4 * ["all_reduce"]


def all_reduce_ops(rank, size):
    names = "float32 float64 bfloat16 float16 int16 int32 int64".split()
    for op in ("sum", "avg", "min", "max"):
        for dtype in [getattr(torch, name) for name in names]:
            x = sparse_values(rank, 2 * LARGE, dtype)
            dist.all_reduce(x, op=getattr(dist.ReduceOp, op.upper()))
            wanted = total_of(size, op, 2 * LARGE, dtype)
            if op == "avg" and dtype.is_floating_point:
                assert torch.allclose(x, wanted, rtol=1e-2), (op, dtype)
            else:
                same(x, wanted)
            assert made() == ["all_reduce"], (op, dtype)
    for dtype in (torch.int8, torch.uint8):
        x = sparse_values(rank, 4 * LARGE, dtype)
        dist.all_reduce(x)
        same(x, total_of(size, "sum", 4 * LARGE, dtype))
    assert made() == 2 * ["all_reduce"]


def dtypes(rank, size):
    """All that pici has and torch too, in all collectives. The numbers are 0, 1 and 2: sums are exact in 8 bits."""
    rows = [sparse_values(r, 8 * LARGE, torch.float32).abs().div(4, rounding_mode="floor") for r in range(size)]
    n = 8 * LARGE // size
    for dtype in sorted(_backend.DTYPES, key=str):
        for op, wanted in (("sum", sum(rows)), ("max", torch.stack(rows).amax(0)), ("min", torch.stack(rows).amin(0))):
            x, part = rows[rank].to(dtype, copy=True), torch.empty(n, dtype=dtype)
            dist.reduce_scatter_tensor(part, x, op=getattr(dist.ReduceOp, op.upper()))
            same(part.float(), wanted[rank * n : (rank + 1) * n])
            dist.all_reduce(x, op=getattr(dist.ReduceOp, op.upper()))
            same(x.float(), wanted)
            assert made() == ["reduce_scatter_single", "all_reduce"], (op, dtype)
        x, whole = rows[rank].to(dtype, copy=True), torch.empty(size * 8 * LARGE, dtype=dtype)
        dist.all_gather_into_tensor(whole, x)
        same(whole.float(), torch.cat(rows))
        parts = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(parts, x)
        for part, row in zip(parts, rows):
            same(part.float(), row)
        dist.broadcast(x, size - 1)
        same(x.float(), rows[-1])
        assert made() == ["all_gather_single", "all_gather", "broadcast"], dtype


def all_reduce_small(rank, size):
    x = torch.full((64,), float(rank + 1))
    dist.all_reduce(x)
    same(x, size * (size + 1) / 2)
    assert made() == []


def small_of_gloos_lacks(rank, size):
    """Dtypes, and averages of integers, that gloo does not have are pici's at every size."""
    for dtype in (torch.int16, torch.uint16, torch.float8_e4m3fn):
        x = torch.full((10,), 2).to(dtype)
        dist.all_reduce(x)
        same(x.float(), 2.0 * size)
        dist.broadcast(x, 1)
        whole = torch.empty(10 * size, dtype=dtype)
        dist.all_gather_into_tensor(whole, x)
        same(whole.float(), 2.0 * size)
    assert made() == 3 * ["all_reduce", "broadcast", "all_gather_single"], "gloo made some"
    x = torch.tensor([3, 6])
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x, torch.tensor([3, 6]))
    part = torch.empty(2, dtype=torch.int32)
    dist.reduce_scatter_tensor(part, torch.full((2 * size,), 7, dtype=torch.int32), dist.ReduceOp.AVG)
    same(part, 7)
    assert made() == ["all_reduce", "reduce_scatter_single"]


def small_strided(rank, size):
    """gloo's calls with tensors that are not in row-major order."""

    def strided(r):
        x = (torch.arange(600.0) + 1000 * r).view(20, 30)[:, ::3]
        return x if r % 2 else x.t().contiguous().t()

    every = [strided(r).clone() for r in range(size)]
    total = sum(every)
    x = strided(rank)
    dist.all_reduce(x)
    same(x, total)
    x = strided(rank)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    same(x, total)
    x = strided(rank)
    dist.reduce(x, 0)
    if rank == 0:
        same(x, total)
    x = strided(rank)
    dist.broadcast(x, 1)
    same(x, every[1])
    x = strided(rank)
    dist.scatter(x, [strided(r) for r in range(size)] if rank == 0 else None)
    same(x, every[rank])
    x = strided(rank)
    dist.reduce_scatter(x, [strided(rank) for _ in range(size)])
    same(x, total)
    x = torch.ones(1, 5).expand(4, 5) if rank == 1 else torch.zeros(4, 5)
    dist.broadcast(x, 1)  # nothing is written on the root
    same(x, 1.0)
    assert made() == []


def all_reduce_product(rank, size):
    x = torch.full((LARGE,), 2.0)
    dist.all_reduce(x, op=dist.ReduceOp.PRODUCT)
    same(x, 2.0**size)
    assert made() == []


def all_reduce_complex(rank, size):
    x = torch.complex(sparse_values(rank), sparse_values(rank + size))
    wanted = sum(torch.complex(sparse_values(r), sparse_values(r + size)) for r in range(size))
    dist.all_reduce(x)
    same(x, wanted)
    assert made() == ["all_reduce"]


def all_reduce_sparse(rank, size):
    where = torch.tensor([[rank, 5]])
    x = torch.sparse_coo_tensor(where, torch.ones(2, LARGE), (8, LARGE))
    dist.all_reduce(x)
    dense = x.to_dense()
    same(dense[5], float(size))
    same(dense[rank], 1.0)
    assert made() == ["all_reduce_sparse"]


def all_reduce_strided(rank, size):
    """A rank's tensor may have strides of its own."""
    x = sparse_values(rank).reshape(120, 256)
    own = x.clone() if rank == 0 else x.t().contiguous().t()
    assert own.is_contiguous() == (rank == 0)
    dist.all_reduce(own)
    same(own, total_of(size).reshape(120, 256))
    assert made() == ["all_reduce"]


def all_reduce_of_autograd(rank, size):
    """Leaves that want gradients, and tensors of inference mode, with strides too."""
    leaf = sparse_values(rank).requires_grad_()
    dist.all_reduce(leaf)
    same(leaf.detach(), total_of(size))
    with torch.inference_mode():
        x = sparse_values(rank).reshape(120, 256).t()
        y = sparse_values(rank)
        dist.all_reduce(x)
        dist.all_reduce(y)
    same(x, total_of(size).reshape(120, 256).t())
    same(y, total_of(size))
    assert made() == 3 * ["all_reduce"]


def coalesced(rank, size):
    large, small = sparse_values(rank), torch.ones(3)
    with dist._coalescing_manager():
        dist.all_reduce(large)
        dist.all_reduce(small)
    same(large, total_of(size))
    same(small, float(size))
    assert made() == ["all_reduce"]
    outputs, inputs = [torch.empty(size * LARGE), torch.empty(2 * size)], [sparse_values(rank), torch.ones(2)]
    with dist._coalescing_manager():
        for output, part in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, part)
    same(outputs[0], torch.cat([sparse_values(r) for r in range(size)]))
    same(outputs[1], 1.0)
    assert made() == ["all_gather_single"]


def broadcast(rank, size):
    x = torch.full((LARGE,), float(rank))
    dist.broadcast(x, src=size - 1)
    same(x, float(size - 1))
    assert made() == ["broadcast"]
    for root in range(size):
        x = sparse_values(rank)
        x[0] = -0.0  # every bit is kept
        dist.broadcast(x, src=root)
        wanted = sparse_values(root)
        wanted[0] = -0.0
        assert torch.equal(x.view(torch.int32), wanted.view(torch.int32))
    strided = sparse_values(rank).reshape(120, 256).t()
    leaf = sparse_values(rank).requires_grad_()
    works = [dist.broadcast(x, src=0, async_op=True) for x in (strided, leaf)]
    for work in works:
        work.wait()
    same(strided, sparse_values(0).reshape(120, 256).t())
    same(leaf.detach(), sparse_values(0))
    assert made() == (size + 2) * ["broadcast"]
    small, mask = torch.full((5,), float(rank)), torch.full((LARGE * 4,), rank == 0)
    dist.broadcast(small, src=0)
    dist.broadcast(mask, src=0)
    same(small, 0.0)
    assert mask.all() and made() == []


def all_gather(rank, size):
    parts = [torch.empty(LARGE) for _ in range(size)]
    dist.all_gather(parts, sparse_values(rank))
    for r, part in enumerate(parts):
        same(part, sparse_values(r))
    work = dist.all_gather([parts[0].view(120, 256), *parts[1:]], sparse_values(rank) + 1, async_op=True)
    work.wait()
    for r, part in enumerate(parts):
        same(part, sparse_values(r) + 1)
    assert made() == 2 * ["all_gather"]
    small = [torch.empty(3) for _ in range(size)]
    dist.all_gather(small, torch.full((3,), float(rank)))
    for r, part in enumerate(small):
        same(part, float(r))
    assert made() == []


def all_gather_of_different_sizes(rank, size):
    """Some have nothing; small ones too, since gloo has no such calls."""
    for n in (LARGE, 3):
        parts = [torch.empty(r * n).t() for r in range(size)]
        dist.all_gather(parts, sparse_values(rank, rank * n))
        for r, part in enumerate(parts):
            same(part, sparse_values(r, r * n))
        rows = [torch.empty(4, r + 1, dtype=torch.bfloat16).t() for r in range(size)]  # strided
        dist.all_gather(rows, torch.full((rank + 1, 4), float(rank), dtype=torch.bfloat16))
        for r, part in enumerate(rows):
            same(part, float(r))
    assert made() == (4 if size > 1 else 0) * ["all_gather"]


def all_gather_into_tensor(rank, size):
    wanted = torch.cat([sparse_values(r) for r in range(size)])
    whole = torch.full((size * LARGE,), 7.0)
    dist.all_gather_into_tensor(whole, sparse_values(rank))
    same(whole, wanted)
    whole = torch.full((size * LARGE,), 7.0)  # in place
    place = whole[rank * LARGE : (rank + 1) * LARGE]
    place.copy_(sparse_values(rank))
    dist.all_gather_into_tensor(whole, place)
    same(whole, wanted)
    whole = torch.full((size * LARGE,), 7.0)  # elsewhere in the output: -0.0 is kept, as every bit
    place = whole[(size - 1 - rank) * LARGE : (size - rank) * LARGE]
    place.copy_(sparse_values(rank))
    place[0] = -0.0
    dist.all_gather_into_tensor(whole, place)
    wanted[::LARGE] = -0.0
    assert torch.equal(whole.view(torch.int32), wanted.view(torch.int32))
    rows = torch.empty(size, LARGE).t().contiguous().t()  # strided
    dist.all_gather_into_tensor(rows, sparse_values(rank).reshape(1, -1))
    same(rows, torch.stack([sparse_values(r) for r in range(size)]))
    assert made() == 4 * ["all_gather_single"]
    refused("all_gather_into_tensor of another size", lambda: dist.all_gather_into_tensor(whole[:-1], place))


def reduce_scatter_tensor(rank, size):
    n = size * LARGE
    own = slice(rank * LARGE, (rank + 1) * LARGE)
    for op in ("sum", "avg", "min", "max"):
        x, out = sparse_values(rank, n), torch.empty(LARGE)
        dist.reduce_scatter_tensor(out, x, op=getattr(dist.ReduceOp, op.upper()))
        assert torch.allclose(out, total_of(size, op, n)[own], rtol=1e-6), op
        same(x, sparse_values(rank, n))
    x = sparse_values(rank, n)
    dist.reduce_scatter_tensor(x[own], x)  # in place
    same(x[own], total_of(size, "sum", n)[own])
    other = slice((size - 1 - rank) * LARGE, (size - rank) * LARGE)
    x = sparse_values(rank, n)
    dist.reduce_scatter_tensor(x[other], x)  # elsewhere in the input
    same(x[other], total_of(size, "sum", n)[own])
    work = dist.reduce_scatter_tensor(out, sparse_values(rank, n), async_op=True)
    work.wait()
    same(out, total_of(size, "sum", n)[own])
    assert made() == 7 * ["reduce_scatter_single"]


def rooted(rank, size):
    x = sparse_values(rank)
    dist.reduce(x, dst=0)
    if rank == 0:
        same(x, total_of(size))
    parts = [torch.empty(LARGE) for _ in range(size)] if rank == 0 else None
    dist.gather(sparse_values(rank), parts, dst=0)
    for r, part in enumerate(parts or []):
        same(part, sparse_values(r))
    out = torch.empty(LARGE)
    dist.scatter(out, [sparse_values(r) for r in range(size)] if rank == 0 else None, src=0)
    same(out, sparse_values(rank))


def objects(rank, size):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": r} for r in range(size)]
    box = [("of", 0)] if rank == 0 else [None]
    dist.broadcast_object_list(box, src=0)
    assert box == [("of", 0)]


def barrier(rank, size):
    """It ends after the calls before it."""
    tensors = [torch.full((1 << 21,), float(i)) for i in range(4)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    dist.barrier()
    for i, x in enumerate(tensors):
        same(x, float(i * size))
    del works
    made()


def monitored_barrier(rank, size):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.monitored_barrier(_c10d.BarrierOptions(), True)


def send_recv(rank, size):
    if rank == 0:
        dist.send(torch.full((LARGE,), 3.0), dst=1)
    elif rank == 1:
        x = torch.empty(LARGE)
        assert dist.recv(x, src=0) == 0
        same(x, 3.0)


def receive_from_any(rank, size):
    if rank == 0:
        dist.send(torch.full((10,), 3.0), dst=1)
    elif rank == 1:
        x = torch.empty(10)
        dist.irecv(x).wait()
        same(x, 3.0)


def batch_isend_irecv(rank, size):
    out, back = torch.full((LARGE,), float(rank)), torch.empty(LARGE)
    right, left = (rank + 1) % size, (rank - 1) % size
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, out, right), dist.P2POp(dist.irecv, back, left)]):
        work.wait()
    same(back, float(left))


def all_to_all(rank, size):
    inputs = [torch.full((LARGE,), float(size * rank + r)) for r in range(size)]
    outputs = [torch.empty(LARGE) for _ in range(size)]
    dist.all_to_all(outputs, inputs)
    for r, x in enumerate(outputs):
        same(x, float(size * r + rank))
    whole = torch.empty(size * LARGE)
    dist.all_to_all_single(whole, torch.cat(inputs))
    same(whole, torch.cat(outputs))
    for dtype in (torch.float32, torch.bfloat16, torch.int16):  # of other lengths, nothing among them
        sent = [(rank + 2 * r) % 3 for r in range(size)]
        received = [(r + 2 * rank) % 3 for r in range(size)]
        rows = torch.cat([torch.full((n, 5), 10 * rank + r, dtype=dtype) for r, n in enumerate(sent)])
        back = torch.empty(sum(received), 5, dtype=dtype)
        dist.all_to_all_single(back, rows, received, sent)
        same(back, torch.cat([torch.full((n, 5), 10 * r + rank, dtype=dtype) for r, n in enumerate(received)]))
        parts = [torch.empty(n, 5, dtype=dtype) for n in received]
        dist.all_to_all(parts, list(rows.split(sent)))
        same(torch.cat(parts), back)
    turned = torch.empty(3, 2 * size).t()  # not row-major
    given = torch.arange(6.0 * size).view(3, 2 * size).t()
    dist.all_to_all_single(turned, given)
    same(turned, given[2 * rank :][:2].repeat(size, 1))
    assert {"all_to_all_single", "alltoall"} <= set(calls), calls


def new_group(rank, size):
    first = dist.new_group([0, 1])
    if rank < 2:
        x = sparse_values(rank)
        dist.all_reduce(x, group=first)
        same(x, total_of(2))
        assert made() == ["all_reduce"]
    everyone = dist.new_group()
    x = sparse_values(rank)
    dist.all_reduce(x, group=everyone)
    same(x, total_of(size))
    dist.destroy_process_group(everyone)
    x = sparse_values(rank)
    dist.all_reduce(x)
    same(x, total_of(size))
    alone = [dist.new_group([r]) for r in range(size)][rank]
    x = sparse_values(rank)
    dist.all_reduce(x, group=alone)
    same(x, sparse_values(rank))
    made()


def split_group(rank, size):
    if size == 3 and rank == 2:
        refused("to be in no group", lambda: dist.split_group(split_ranks=[[1, 0]]))
    elif size == 3:
        dist.split_group(split_ranks=[[1, 0]])
    part = dist.split_group(split_ranks=[[1, 0], [2]][: size - 1])
    if rank < 2:
        x = sparse_values(rank)
        dist.all_reduce(x, group=part)
        same(x, total_of(2))
        assert dist.get_rank(part) == 1 - rank
        assert made() == ["all_reduce"]


def functional_collectives(rank, size):
    import torch.distributed._functional_collectives as functional  # which torch 1.13 has not

    group = dist.group.WORLD
    gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor  # before torch 2.15
    scatter = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor
    same(functional.all_reduce(sparse_values(rank), "sum", group), total_of(size))
    same(functional.all_reduce(sparse_values(rank), "max", group), total_of(size, "max"))
    wanted = torch.cat([sparse_values(r) for r in range(size)])
    same(gather(sparse_values(rank), 0, group), wanted)
    part = scatter(sparse_values(rank, size * LARGE), "sum", 0, group)
    same(part, total_of(size, "sum", size * LARGE)[rank * LARGE : (rank + 1) * LARGE])
    assert made() == ["all_reduce", "all_reduce", "all_gather_single", "reduce_scatter_single"]


def sequence_numbers(rank, size):
    group = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    dist.all_reduce(sparse_values(rank))
    dist.all_reduce(torch.ones(1))
    dist.broadcast(torch.ones(1), 0)
    assert group._get_sequence_number_for_group() == before + 3
    made()


def work_by_itself(rank, size):
    """What a Work can tell, where torch does not put its own in front of it."""
    (backend,) = [b for b in _backend._in_use if b.size() == size and b._where[1] == dist.group.WORLD.group_name]
    x = sparse_values(rank)
    work = backend.allreduce([x])
    assert work.result()[0] is x and work.is_completed() and work.is_success() and work.exception() is None
    same(x, total_of(size))
    made()


OPERATIONS = [
    all_reduce, all_reduce_async, all_reduce_ops, dtypes, all_reduce_small, all_reduce_product, all_reduce_complex,
    small_of_gloos_lacks, small_strided, all_reduce_sparse, all_reduce_strided, all_reduce_of_autograd, coalesced,
    broadcast, all_gather,
    all_gather_of_different_sizes, all_gather_into_tensor, reduce_scatter_tensor, rooted, objects, barrier,
    monitored_barrier, send_recv, receive_from_any, batch_isend_irecv, all_to_all, new_group, split_group,
    functional_collectives, sequence_numbers, work_by_itself,
]  # fmt: skip


def refused(what, call):
    try:
        call()
    except (RuntimeError, ValueError):
        return
    raise AssertionError(f"{what} is not refused")


def operations(rank, size, backend, names):
    begin(backend)
    for name in names:
        try:
            globals()[name](rank, size)
        except BaseException as e:
            raise AssertionError(f"{name}: {type(e).__name__}: {e}") from e
        made()


# ---- training


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def batch(rank, step):
    own = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(16, 64, generator=own), torch.randint(10, (16,), generator=own)


def train(net, rank, steps=4):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        x, y = batch(rank, step)
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp(rank, size, backend, hook):
    begin(backend)
    net = DistributedDataParallel(model(), bucket_cap_mb=0.2)
    if hook:
        net.register_comm_hook(None, getattr(default_hooks, hook))
    losses = train(net, rank)
    state = [p.detach().numpy() for p in net.parameters()]
    return losses, state, made()


def fsdp(rank, size, backend, dtype):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    begin(backend)
    mesh = init_device_mesh("cpu", (size,))
    policy = MixedPrecisionPolicy(param_dtype=getattr(torch, dtype), reduce_dtype=getattr(torch, dtype))
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(net, mesh=mesh, mp_policy=policy)
    losses = train(net, rank)
    return losses, made()
