# SPDX-License-Identifier: BSD-3-Clause
"""What test_sparse_tensors.py runs on each rank."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pici.torch
from backend_cases import begin, made, same

WHOLE = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64]


def rows(rank, shape, k=1, nnz=20, dtype=torch.float32, whole=True):
    """A tensor of k sparse dimensions, not coalesced. Rank 1 has nothing, and others not equally many."""
    own = torch.Generator().manual_seed(rank)
    nnz = 0 if rank == 1 else nnz * (rank + 1)
    indices = torch.stack([torch.randint(0, n, (nnz,), generator=own) for n in shape[:k]])
    values = torch.randint(-9, 10, (nnz, *shape[k:]), generator=own).double()
    if not whole:
        values = values * torch.rand(values.shape, generator=own, dtype=torch.float64)
    return torch.sparse_coo_tensor(indices, values.to(dtype), shape, check_invariants=True)


def refuses_dtypes(rank, size):
    """Before a call, so the group stays whole."""
    begin("gloo")
    x = rows(0, (40, 3))
    for dtype, op, words in (
        (torch.bool, dist.ReduceOp.SUM, "bool is not added"),
        (torch.bool, dist.ReduceOp.AVG, "bool is not added"),
        (torch.complex64, dist.ReduceOp.MAX, "have no order"),
        (torch.complex32, dist.ReduceOp.SUM, "does not take torch.complex32"),
    ):
        odd = torch.sparse_coo_tensor(x._indices(), torch.ones(x._values().shape).to(dtype), x.shape)
        try:
            pici.torch.all_reduce_sparse(odd, op=op)
        except TypeError as e:
            assert words in str(e), e
        else:
            raise AssertionError(dtype)
    same(pici.torch.all_reduce_sparse(x.clone()).to_dense(), size * x.to_dense())


def operations(rank, size):
    """Of every kind, beside the dense tensors of all ranks."""
    begin()
    ops = {"SUM": lambda x: x.sum(0), "MIN": lambda x: x.amin(0), "MAX": lambda x: x.amax(0)}
    for dtype in WHOLE:
        for shape, k in (((40, 3), 1), ((40,), 1), ((8, 9), 2), ((8, 9, 2), 2)):
            for op, of in ops.items():
                x = rows(rank, shape, k, dtype=dtype)
                kept = x  # another name of it
                want = of(torch.stack([rows(r, shape, k, dtype=dtype).to_dense() for r in range(size)]))
                dist.all_reduce(x, getattr(dist.ReduceOp, op))
                same(x.to_dense(), want)
                assert x.is_coalesced() and kept._nnz() == x._nnz() and x.dtype is dtype
    x = rows(rank, (40, 4))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x.to_dense(), sum(rows(r, (40, 4)).to_dense() for r in range(size)) / size)
    x = rows(rank, (40, 4)).coalesce()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert x.is_coalesced()
    assert set(made()) == {"all_reduce_sparse"}
    with torch.inference_mode():
        x = rows(rank, (40, 4))
        dist.all_reduce(x)
    assert made() == ["all_reduce_sparse"]


def bits(rank, size):
    """The bits of the dense call, of floats whose sums round."""
    begin()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = rows(rank, (3000, 16), nnz=500, dtype=dtype, whole=False)
        dense = x.to_dense()
        dist.all_reduce(x)
        dist.all_reduce(dense)
        same(x.to_dense(), dense)
        assert made() == ["all_reduce_sparse", "all_reduce"]


def in_rank_order(rank, size):
    """Rows that are gathered: the bits of a sum in the order of the ranks, and the list call where they share most."""
    begin("gloo")
    lists = []
    call = pici.Comm.all_reduce_sparse
    pici.Comm.all_reduce_sparse = lambda comm, *args, **options: lists.append(1) or call(comm, *args, **options)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            parts = [rows(2 * r, (5000, 32), nnz=300, dtype=dtype, whole=False).coalesce() for r in range(size)]
            total = torch.zeros(5000, 32, dtype=dtype)
            for x in parts:
                total += x.to_dense()
            found = pici.torch.all_reduce_sparse(parts[rank].clone(), op=op)
            same(found.to_dense(), total / size if op == dist.ReduceOp.AVG else total)
            assert found.is_coalesced()
    assert not lists
    x = pici.torch.all_reduce_sparse(rows(0, (5000, 32), nnz=2000))
    assert torch.equal(x.to_dense(), size * rows(0, (5000, 32), nnz=2000).to_dense())
    assert bool(lists) == (size > 4), lists
    repeated = rows(0, (8, 32), nnz=40)
    same(pici.torch.all_reduce_sparse(repeated.clone()).to_dense(), size * repeated.to_dense())
    none = pici.torch.all_reduce_sparse(rows(1, (5000, 32)))
    assert none._nnz() == 0 and none.is_coalesced()


def equals_gloo(rank, size):
    """What gloo gives, over gloo; and a group of some of the ranks."""
    begin("gloo")
    for shape, k in (((40, 3), 1), ((8, 9), 2)):
        x, y = rows(rank, shape, k), rows(rank, shape, k)
        dist.all_reduce(x)
        found = pici.torch.all_reduce_sparse(y)
        assert found is y and y.is_coalesced()
        same(y.to_dense(), x.to_dense())
        z = pici.torch.all_reduce_sparse(rows(rank, shape, k), async_op=True).wait()
        same(z.to_dense(), x.to_dense())
    some = dist.new_group([0, 1])
    if rank < 2:
        x = pici.torch.all_reduce_sparse(rows(rank, (40, 3)), some, dist.ReduceOp.AVG)
        same(x.to_dense(), rows(0, (40, 3)).to_dense() / 2)
    for wrong, error in ((torch.ones(3), TypeError), (rows(rank, (40, 3)).to("meta"), ValueError)):
        try:
            pici.torch.all_reduce_sparse(wrong)
        except error:
            continue
        raise AssertionError(wrong)


class Net(nn.Module):
    """A table of rows with sparse gradients, and dense weights."""

    def __init__(self, width=8):
        super().__init__()
        self.table = nn.EmbeddingBag(1000, width, sparse=True, mode="sum")
        self.last = nn.Linear(width, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.table(x)))


def net():
    torch.manual_seed(0)
    return Net()


def train(model, rank, steps=4):
    """Rows that differ in number from rank to rank, some of them several times."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        own = torch.Generator().manual_seed(100 * step + rank)
        x, y = torch.randint(0, 1000, (6 + rank, 5), generator=own), torch.randint(0, 3, (6 + rank,), generator=own)
        x[0, :2] = 7
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        assert model.module.table.weight.grad.is_sparse
        optimizer.step()
    return model.module


def alike(found, wanted, exact):
    for a, b in zip(found.parameters(), wanted.parameters()):
        assert torch.equal(a, b) if exact else torch.allclose(a, b, atol=1e-6), (a, b)


def trained(rank, size, backend):
    """DistributedDataParallel: over the backend, or gloo with a hook, as over gloo."""
    begin(backend)
    other = dist.new_group(backend="gloo")
    by_gloo = train(DistributedDataParallel(net(), process_group=other), rank)
    made()
    ours = DistributedDataParallel(net())
    if backend == "gloo":
        ours.register_comm_hook(None, pici.torch.all_reduce_hook)
    alike(train(ours, rank), by_gloo, size == 2)
    if backend != "gloo":
        assert made().count("all_reduce_sparse") == 4


class Some(nn.Module):
    """Of two layers, and two tables, each rank uses one; of the other table it looks up no rows."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(100, 4, sparse=True) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(4, 2) for _ in range(2))

    def forward(self, x, which):
        rows = torch.cat([table(x if i == which else x[:0]) for i, table in enumerate(self.tables)])
        return self.layers[which](rows).square().sum()


def unused(rank, size, backend):
    begin(backend)
    other = dist.new_group(backend="gloo")
    gradients = []
    for group in (other, None):
        torch.manual_seed(0)
        model = DistributedDataParallel(Some(), process_group=group, find_unused_parameters=True)
        if group is None and backend == "gloo":
            model.register_comm_hook(None, pici.torch.all_reduce_hook)
        for step in range(3):
            model(torch.arange(rank, 2 * rank + 3), min(1, rank + step) % 2).backward()
        gradients.append([p.grad.to_dense() for p in model.parameters()])
    for x, y in zip(*gradients):
        assert torch.allclose(x, y, atol=1e-6)
    assert all(x.any() for x in gradients[0])


def lossy(rank, size):
    """What top-k and few bits do not send of dense gradients is none of the rows'. Their first step, which is exact, is
    compared with gloo's, and then what a later one makes of the same gradients."""
    begin("gloo")
    topk = pici.torch.TopKState(density=0.25, start_iter=0, min_numel=1)
    for state, hook in (
        (topk, pici.torch.topk_hook),
        (pici.torch.QuantizeState(bits=4, start_iter=0), pici.torch.quantize_hook),
    ):
        gradients = []
        for own in (None, state):
            model = DistributedDataParallel(net())
            if own is not None:
                model.register_comm_hook(own, hook)
            train(model, rank, 1)
            gradients.append([p.grad.to_dense() for p in model.parameters()])
        table, last, *_ = range(3)
        assert torch.allclose(gradients[0][table], gradients[1][table], atol=1e-6)
        assert not torch.allclose(gradients[0][last], gradients[1][last], atol=1e-4)
    refused = DistributedDataParallel(net())
    refused.register_comm_hook(pici.torch.TopKState(momentum=0.9), pici.torch.topk_hook)
    try:
        train(refused, rank, 1)
    except (RuntimeError, NotImplementedError) as e:
        assert "sparse" in str(e), e
    else:
        raise AssertionError("a momentum of sparse gradients")


def small_buckets_are_gloos(rank, size):
    """min_bytes counts the bytes of the dense tensor, which all ranks know."""
    begin("gloo")
    state = pici.torch.State(min_bytes=1 << 20)
    model = DistributedDataParallel(net())
    model.register_comm_hook(state, pici.torch.all_reduce_hook)
    train(model, rank, 1)
    assert state.stats()["calls"] == 0
    state = pici.torch.State(min_bytes=1 << 10, opts={"algorithm": "ring", "native": False})
    model = DistributedDataParallel(net())
    model.register_comm_hook(state, pici.torch.all_reduce_hook)
    train(model, rank, 1)
    assert state.stats()["calls"] == 1


def wrong_shape(rank, size, width):
    begin()
    dist.all_reduce(rows(rank, (40 + rank // 2, width)))


def wrong_index(rank, size, width):
    begin()
    x = rows(rank, (40, width))
    if rank == 1:
        x = torch.sparse_coo_tensor(torch.tensor([[-3]]), torch.ones(1, width), (40, width), check_invariants=False)
    dist.all_reduce(x)
