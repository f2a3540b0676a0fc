# SPDX-License-Identifier: BSD-3-Clause
"""What test_hooks.py runs on each rank. DDP with the hook None averages by gloo."""
import copy
import io
import os
import pickle
import threading
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pici
import pici.torch


def begin(seconds=300):
    size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    dist.init_process_group(
        "gloo", init_method=os.environ["STORE"], rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
    )


def folder():
    """A folder of all ranks, which is removed when they have ended."""
    return Path(os.environ["STORE"].partition("://")[2]).parent


def small_buckets():
    """DDP's first bucket is 1 MiB by default, more than the models here have."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4000


class Net(nn.Module):
    """Parameters of several kinds: large and small, of rows that a batch may not touch, convolution."""

    def __init__(self, width=40):
        super().__init__()
        self.embedding = nn.Embedding(50, width)
        self.first = nn.Linear(width, 60)
        self.second = nn.Linear(60, 7)
        self.scale = nn.Parameter(torch.ones(7))

    def forward(self, x):
        return self.second(torch.relu(self.first(self.embedding(x).mean(1)))) * self.scale


def net(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return Net().to(dtype)


def batch(rank, step):
    own = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, 50, (8, 5), generator=own), torch.randint(0, 7, (8,), generator=own)


def train(ddp, optimizer, rank, steps):
    losses = []
    for step in steps:
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(x).float(), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained(rank, hook, state, steps=6, dtype=torch.float32, **options):
    """The parameters after some steps of training, as bytes."""
    model = net(dtype=dtype)
    ddp = DistributedDataParallel(model, **options)
    if hook:
        ddp.register_comm_hook(state, hook)
    train(ddp, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), rank, range(steps))
    return bits(model)


def bits(model):
    return [p.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for p in model.parameters()]


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


class Weighted(nn.Module):
    """A model whose gradients the caller chooses: they are its inputs."""

    def __init__(self, *shapes, dtype=torch.float32):
        super().__init__()
        self.w = nn.ParameterList([nn.Parameter(torch.zeros(s, dtype=dtype)) for s in shapes])

    def forward(self, *xs):
        return sum((w * x).sum() for w, x in zip(self.w, xs) if x is not None)


def averaged(hook, state, xs, ddp=None, **options):
    """The gradients xs of this rank, averaged; and the model, to do it again."""
    if ddp is None:
        ddp = DistributedDataParallel(Weighted(*[x.shape for x in xs], dtype=xs[0].dtype), **options)
        if hook:
            ddp.register_comm_hook(state, hook)
    ddp.zero_grad()
    ddp(*xs).backward()
    return [w.grad for w in ddp.module.w], ddp


def integers(rank, *shapes, factor=1, dtype=torch.float32):
    """Whole numbers, mostly zeros, whose averages are exact if factor is the number of ranks."""
    own = torch.Generator().manual_seed(rank)
    return [
        (factor * torch.randint(-9, 10, s, generator=own) * (torch.rand(s, generator=own) < 0.1)).to(dtype)
        for s in shapes
    ]


def normal(rank, *shapes, step=0, dtype=torch.float32):
    own = torch.Generator().manual_seed(100 * step + rank + 7)
    return [torch.randn(s, generator=own).to(dtype) for s in shapes]


def kept_by(state, model):
    """This rank's errors, by name."""
    return state.state_dict(model)["errors"][f"rank {dist.get_rank()}"]


def same(found, wanted):
    for f, w in zip(found, wanted):
        assert torch.equal(f, w), f"{f} instead of {w}"
        assert f.dtype == w.dtype


def threads():
    return sum(t.name == "pici.torch" for t in threading.enumerate())


# ---- the lossless hook


def gloo_lacks(rank, size):
    """The dtypes of gradients that gloo, and so the constructor of DDP, does not take. torch 1.13's lacks two."""
    begin()
    lacks = []
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        try:
            DistributedDataParallel(Weighted((2,), dtype=dtype))
        except RuntimeError as e:
            assert "Invalid scalar type" in str(e), e
            lacks.append(dtype)
    return lacks


def equals_gloo(rank, size, dtypes):
    """Sums of whole numbers are exact in any order."""
    begin()
    shapes = [(300, 400), (17,), (5, 5, 5), (100000,)]
    for dtype in dtypes:
        xs = integers(rank, *shapes, factor=size, dtype=dtype)
        wanted, _ = averaged(None, None, xs)
        for state in (None, dist.group.WORLD, pici.torch.State(), pici.torch.State(opts={"format": "coo"})):
            found, _ = averaged(pici.torch.all_reduce_hook, state, xs, bucket_cap_mb=0.1)
            same(found, wanted)


def own_group(rank, size):
    """A process group of a part of the ranks."""
    begin()
    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    mine = groups[rank // 2]
    xs = normal(rank, (50, 60))
    for state in (mine, pici.torch.State(mine)):
        found, _ = averaged(pici.torch.all_reduce_hook, state, xs, process_group=mine)
        wanted = [(normal(0, (50, 60))[0] + normal(1, (50, 60))[0]) / 2] if rank < 2 else xs
        same(found, wanted)
    found, _ = averaged(pici.torch.all_reduce_hook, None, integers(rank, (50, 60), factor=3))
    same(found, [sum(integers(r, (50, 60), factor=3)[0] for r in range(3)) / 3])


def half_is_divided_first(rank, size):
    begin()
    for hook, state in hooks_at_density_1():
        found, _ = averaged(hook, state, [torch.full((2000,), 40000.0, dtype=torch.float16)])
        same(found, [torch.full((2000,), 40000.0, dtype=torch.float16)])


def several_groups(rank, size):
    """Models of several groups, of which rank 1 is in all, in one backward pass; and each group by itself."""
    begin()
    shapes = [(50, 60), (700,)]
    members = [[0, 1, 2], [0, 1], [1, 2]]
    groups = [dist.new_group(ranks) for ranks in members]
    mine = [(seed, ranks, groups[seed // 10]) for seed, ranks in zip((0, 10, 20), members) if rank in ranks]
    for hook in (pici.torch.all_reduce_hook, pici.torch.topk_hook):
        models = []
        for *_, group in mine:
            state = group if hook is pici.torch.all_reduce_hook else whole_topk(group)
            ddp = DistributedDataParallel(Weighted(*shapes), process_group=group, bucket_cap_mb=0.001)
            ddp.register_comm_hook(state, hook)
            models.append(ddp)
        for used in ([0], range(len(models)), range(len(models))):
            chosen = [(models[i], *mine[i][:2]) for i in used]
            for ddp in models:
                ddp.zero_grad()
            sum(ddp(*integers(seed + rank, *shapes, factor=len(ranks))) for ddp, seed, ranks in chosen).backward()
            for ddp, seed, ranks in chosen:
                every = [integers(seed + r, *shapes, factor=len(ranks)) for r in ranks]
                same([w.grad for w in ddp.module.w], [sum(xs) / len(ranks) for xs in zip(*every)])
    assert threads() == len(mine)


def accumulates(rank, size):
    """Gradients of several backward passes, of which the last averages: the sum of all of them, once."""
    begin()
    small_buckets()
    shapes = [(300, 40), (17,), (2000,)]
    for hook, state in [(None, None), *hooks_at_density_1()]:
        ddp = DistributedDataParallel(Weighted(*shapes), bucket_cap_mb=0.001)
        if hook:
            ddp.register_comm_hook(state, hook)
        for step in range(3):
            xs = [integers(rank + 100 * step + 10 * micro, *shapes, factor=size) for micro in range(3)]
            ddp.zero_grad()
            for x in xs[:2]:
                with ddp.no_sync():
                    ddp(*x).backward()
            same([w.grad for w in ddp.module.w], [a + b for a, b in zip(*xs[:2])])
            assert getattr(state, "iter", step) == step
            ddp(*xs[2]).backward()
            every = [integers(r + 100 * step + 10 * m, *shapes, factor=size) for r in range(size) for m in range(3)]
            same([w.grad for w in ddp.module.w], [sum(parts) / size for parts in zip(*every)])


def joins(rank, size):
    """Ranks with fewer batches than others: DDP calls the hook for them, with gradients of zeros."""
    begin()
    for hook, state in [(None, None), *hooks_at_density_1()]:
        ddp = DistributedDataParallel(Weighted((60, 70), (500,)), bucket_cap_mb=0.01)
        if hook:
            ddp.register_comm_hook(state, hook)
        with ddp.join():
            for step in range(2 + rank):
                ddp.zero_grad()
                ddp(*integers(rank + 10 * step, (60, 70), (500,), factor=size)).backward()
        if rank == size - 1:  # alone in its last step
            mine = integers(rank + 10 * (1 + rank), (60, 70), (500,), factor=size)
            same([w.grad for w in ddp.module.w], [x / size for x in mine])


def empty_gradients(rank, size):
    """Parameters without elements, among others and alone, so that a bucket is empty."""
    begin()
    for hook, state in hooks_at_density_1():
        for shapes in ([(0,)], [(0,), (300,), (0,)], [(300,), (0,)]):
            xs = integers(rank, *shapes, factor=size)
            ddp = None
            for _ in range(3):
                found, ddp = averaged(hook, state, xs, ddp, bucket_cap_mb=0.0001)
                every = [integers(r, *shapes, factor=size) for r in range(size)]
                same(found, [sum(parts) / size for parts in zip(*every)])


def whole_topk(group=None):
    """Top-k that selects all elements."""
    return pici.torch.TopKState(group, density=1, start_iter=0, min_numel=0)


def hooks_at_density_1():
    return [
        (pici.torch.all_reduce_hook, pici.torch.State()),
        (pici.torch.topk_hook, whole_topk()),
    ]


def min_bytes(rank, size):
    """Small buckets go to gloo: nothing is sent by pici."""
    begin()
    xs = integers(rank, (1000,), factor=size)
    state = pici.torch.State(min_bytes=4001)
    found, _ = averaged(pici.torch.all_reduce_hook, state, xs)
    same(found, [sum(integers(r, (1000,), factor=size)[0] for r in range(size)) / size])
    assert state.stats()["calls"] == 0
    state = pici.torch.State(min_bytes=4000)
    averaged(pici.torch.all_reduce_hook, state, xs)
    assert state.stats()["calls"] == 1


def complex_gradients(rank, size):
    begin()
    for hook, state in hooks_at_density_1():
        values = [torch.complex(*integers(r, (40, 50), (40, 50), factor=size)) for r in range(size)]
        ddp = DistributedDataParallel(Weighted((40, 50), dtype=torch.complex64))
        ddp.register_comm_hook(state, hook)
        ddp(values[rank]).real.backward()
        same([ddp.module.w[0].grad], [(sum(values) / size).conj().resolve_conj()])
        assert state.stats()["calls"] == 1


def other_gradients(rank, size):
    """Sparse gradients, and those whose memory is not in row-major order."""
    begin()
    torch.manual_seed(0)
    model = nn.Embedding(30, 8, sparse=True)
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(None, pici.torch.all_reduce_hook)
    ddp(torch.tensor([rank, 5])).sum().backward()
    dense = model.weight.grad.to_dense()
    same([dense[5], dense[rank]], [torch.ones(8), torch.full((8,), 1 / size)])

    grads = []
    for hook, state in [(None, None), *hooks_at_density_1()]:
        torch.manual_seed(0)
        model = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randint(-3, 4, p.shape))
        ddp = DistributedDataParallel(model)
        if hook:
            ddp.register_comm_hook(state, hook)
        x = torch.randint(-3, 4, (2, 4, 6, 6), generator=torch.Generator().manual_seed(rank)).float()
        ddp(size * x.contiguous(memory_format=torch.channels_last)).sum().backward()
        grads.append([p.grad for p in model.parameters()])
    assert not grads[1][0].is_contiguous()
    same(grads[1], grads[0])
    same(grads[2], grads[0])


def training_by_hooks(rank, size, options):
    """At density 1 top-k is the lossless hook, step by step."""
    begin()
    lossless = trained(rank, pici.torch.all_reduce_hook, pici.torch.State(), **options)
    for selection in ("tensor", "bucket"):
        state = pici.torch.TopKState(density=1, start_iter=1, min_numel=0, selection=selection)
        assert trained(rank, pici.torch.topk_hook, state, **options) == lossless
    return lossless


# ---- top-k


def selects(rank, size):
    """Small tensors whole, of the others the share of each tensor; errors as large as what was not sent."""
    begin()
    state = pici.torch.TopKState(density=0.01, start_iter=0, min_numel=1000)
    xs = normal(rank, (100, 100), (999,), (1000,))
    found, _ = averaged(pici.torch.topk_hook, state, xs)
    wanted = []
    for shape_index, k in ((0, 100), (1, 999), (2, 10)):
        total = 0
        for r in range(size):
            x = normal(r, (100, 100), (999,), (1000,))[shape_index].reshape(-1)
            keep = x.abs() >= x.abs().sort().values[-k]
            total = total + torch.where(keep, x, 0.0)
        wanted.append((total / size).reshape(xs[shape_index].shape))
    for f, w in zip(found, wanted):
        assert torch.allclose(f, w, rtol=1e-6), (f, w)
    stats = state.stats()
    assert stats["calls"] == 1 and abs(stats["density"] - (100 + 999 + 10) / 11999) < 1e-9, stats
    assert 0 < stats["wire_bytes"] < stats["dense_bytes"] and stats["select_s"] > 0, stats


def selects_in_bucket(rank, size):
    """The largest of the whole bucket: all of one tensor here."""
    begin()
    state = pici.torch.TopKState(density=0.25, start_iter=0, min_numel=100, selection="bucket")
    xs = [torch.full((3000,), 1.0), torch.full((1000,), 2.0), torch.full((99,), 0.5)]
    found, ddp = averaged(pici.torch.topk_hook, state, xs)
    same(found, [torch.zeros(3000), xs[1], xs[2]])
    found, _ = averaged(pici.torch.topk_hook, state, xs, ddp)  # of 2 and 2, those with the lower index
    assert sum(int(f.count_nonzero()) for f in found) == 1000 + 99
    found, _ = averaged(pici.torch.topk_hook, state, xs, ddp)
    assert float(found[0].max()) == 3.0


def conserves(rank, size, options):
    """What was sent, and what is kept, are all gradients of a parameter: over rebuilt buckets, too."""
    begin()
    state = pici.torch.TopKState(density=0.02, start_iter=options.pop("start_iter", 0), min_numel=50)
    shapes = [(60, 70), (300,), (40,), (2000,), (60, 70)]
    small_buckets()
    buckets = []

    def hook(state, bucket):
        buckets.append([p.numel() for p in bucket.parameters()])
        return pici.torch.topk_hook(state, bucket)

    sent = [torch.zeros(s, dtype=torch.float64) for s in shapes]
    made = [torch.zeros(s, dtype=torch.float64) for s in shapes]
    ddp = None
    for step in range(6):
        xs = normal(rank, *shapes, step=step, dtype=torch.float64)
        found, ddp = averaged(hook, state, xs, ddp, bucket_cap_mb=0.01, **options)
        for i, (f, x) in enumerate(zip(found, xs)):
            sent[i] += f
            made[i] += x
    errors = kept_by(state, ddp)
    assert set(errors) == {"w.0", "w.1", "w.3", "w.4"}, list(errors)
    if "find_unused_parameters" not in options:
        assert len(buckets[0]) == 5 and 1 <= len(buckets[-1]) < 5, "the buckets were not rebuilt"
    for i in range(5):
        kept = errors.get(f"w.{i}", torch.zeros(shapes[i], dtype=torch.float64)).reshape(shapes[i])
        mean = made[i] - kept
        dist.all_reduce(mean)
        assert torch.allclose(sent[i], mean / size, rtol=1e-12, atol=1e-12)
        assert i == 2 or kept.count_nonzero() > 0


def conserves_exactly(rank, size, dtype):
    """Of whole numbers nothing is lost by rounding, in a narrow dtype either. Float16 is kept divided by the number of
    ranks."""
    begin()
    state = pici.torch.TopKState(density=0.02, start_iter=0, min_numel=50)
    shapes = [(60, 70), (300,)]
    sent, made = [[torch.zeros(s, dtype=torch.float64) for s in shapes] for _ in range(2)]
    ddp = None
    for step in range(5):
        xs = integers(rank + 10 * step, *shapes, factor=size, dtype=dtype)
        found, ddp = averaged(pici.torch.topk_hook, state, xs, ddp)
        for i, (f, x) in enumerate(zip(found, xs)):
            assert f.dtype == dtype
            sent[i] += f
            made[i] += x
    for i, error in enumerate(kept_by(state, ddp).values()):
        assert error.dtype == dtype and error.count_nonzero() > 0
        left = made[i] - (size if dtype == torch.float16 else 1) * error.double().view(shapes[i])
        dist.all_reduce(left)
        same([sent[i]], [left / size])


def without_feedback(rank, size):
    begin()
    state = pici.torch.TopKState(density=0.01, start_iter=0, error_feedback=False)
    xs = normal(rank, (5000,))
    first, ddp = averaged(pici.torch.topk_hook, state, xs)
    first = first[0].clone()
    again, _ = averaged(pici.torch.topk_hook, state, xs, ddp)
    same(again, [first])
    assert kept_by(state, ddp) == {}


def unused(rank, size, everywhere, quantize=False):
    """A parameter without a gradient, on all ranks or on one: what is kept of it stays, and comes later."""
    begin()
    state, hook = pici.torch.TopKState(density=0.01, start_iter=0, min_numel=0), pici.torch.topk_hook
    if quantize:  # not of sums, since this rank keeps what sums of others' gradients lose
        state, hook = (
            pici.torch.QuantizeState(bits=4, start_iter=0, opts={"algorithm": "split"}),
            pici.torch.quantize_hook,
        )
    shapes = [(500,), (700,)]
    ddp = DistributedDataParallel(Weighted(*shapes), find_unused_parameters=True)
    ddp.register_comm_hook(state, hook)

    def step(use, n):
        xs = normal(rank, *shapes, step=n)
        ddp.zero_grad()
        ddp(xs[0], xs[1] if use else None).backward()
        return ddp.module.w[1].grad

    def kept():
        return kept_by(state, ddp)["w.1"]

    step(True, 0)
    before = kept()
    use = not everywhere and rank == 0
    ddp.module.w[1].grad = None
    gradient = step(use, 1)
    if everywhere:
        assert gradient is None or not gradient.any()
    else:
        assert gradient.any()
    assert torch.equal(kept(), before) == (not use)
    step(True, 2)
    assert not torch.equal(kept(), before)


def warmup(rank, size):
    begin()
    state = pici.torch.TopKState(density=0.01, start_iter=2, warmup_iters=8, min_numel=0)
    seen = []
    ddp = None
    for step in range(12):
        seen.append(state.density_now())
        found, ddp = averaged(pici.torch.topk_hook, state, normal(0, (10000,), step=step), ddp)
        nonzeros = int(found[0].count_nonzero())
        assert nonzeros == round(10000 * seen[-1] + 0.4999), (step, nonzeros)
    assert seen == 2 * [1.0] + 2 * [0.25] + 2 * [0.0625] + 2 * [0.015625] + 4 * [0.01], seen


def lossy(kind):
    """A state that loses much, and its hook."""
    if kind == "quantize":
        return pici.torch.QuantizeState(bits=4, start_iter=1), pici.torch.quantize_hook
    bits = 4 if kind == "topk of 4 bits" else None
    return pici.torch.TopKState(density=0.25, start_iter=1, min_numel=10, bits=bits), pici.torch.topk_hook


def resumes(rank, size, kind, how, options, exact=True):
    """A run that was saved and resumed ends with the bits of one that was not; or close to it, and far from one that
    forgot what was kept."""
    begin()

    def make():
        model = net()
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.005, **options)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        return model, ddp, optimizer, *lossy(kind)

    model, ddp, optimizer, state, hook = make()
    ddp.register_comm_hook(state, hook)
    train(ddp, optimizer, rank, range(4))
    if how == "dict":
        saved = state.state_dict(ddp)
        assert sorted(saved) == ["errors", "iter", "kind", "ranks", "scale", "version"] and saved["iter"] == 4
        own = saved["errors"][f"rank {rank}"]
        assert "embedding.weight" in own and ("scale" in own) == (kind != "topk")
        file = io.BytesIO()
        torch.save(saved, file)
        copied = torch.load(io.BytesIO(file.getvalue()))  # of tensors and numbers, so it needs no pickle of ours
    else:
        copied = pickle.dumps(state)
    weights, moments = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    errors = {name: e.abs().sum().item() for name, e in kept_by(state, ddp).items()}
    train(ddp, optimizer, rank, range(4, 8))
    wanted, reference = bits(model), model
    if how == "dict":  # what was saved is a copy
        assert {name: e.abs().sum().item() for name, e in own.items()} == errors

    model, ddp, optimizer, state, hook = make()
    if how == "dict":
        state.load_state_dict(copied, ddp)
    else:
        state = pickle.loads(copied)
        assert state.process_group is None and state.iter == 4
    model.load_state_dict(weights)
    optimizer.load_state_dict(moments)
    ddp.register_comm_hook(state, hook)
    train(ddp, optimizer, rank, range(4, 8))
    if not exact:
        other, ddp, optimizer, state, hook = make()
        other.load_state_dict(weights)
        optimizer.load_state_dict(moments)
        ddp.register_comm_hook(state, hook)
        train(ddp, optimizer, rank, range(4, 8))
        near, far = (distance(x, reference) for x in (model, other))
        assert near < 1e-5 and far > 1e-3, (near, far)
        return
    assert bits(model) == wanted
    train(ddp, optimizer, rank, range(8, 9))
    assert bits(model) != wanted


def distance(a, b):
    """The largest difference between two weights."""
    return max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters()))


def refuses_states(rank, size):
    """What load_state_dict() and a pickle do not take for another model."""
    begin()
    state = pici.torch.TopKState(density=0.1, start_iter=0, min_numel=0)
    _, ddp = averaged(pici.torch.topk_hook, state, normal(rank, (500,), (600,)))
    saved = state.state_dict(ddp)
    for words, model, value in (
        ("has no parameter 'w.1'", Weighted((500,)), saved),
        ("'w.1' has 600 elements, the parameter 601", Weighted((500,), (601,)), saved),
        ("has 'iter' and 'errors'", ddp, {}),
    ):
        other = pici.torch.TopKState()
        raises(ValueError, words, other.load_state_dict, value, model)
        assert other.iter == 0
    raises(ValueError, "2 parameters that have errors are not in this model", state.state_dict, Weighted((500,)))
    other = pickle.loads(pickle.dumps(state))
    raises(RuntimeError, "use state_dict", averaged, pici.torch.topk_hook, other, normal(rank, (501,), (600,)))


def raises(kind, words, function, *args):
    try:
        function(*args)
    except kind as e:
        assert words in str(e), str(e)
    else:
        raise AssertionError(f"no {kind.__name__}: {words}")


# ---- value codecs


def codecs():
    """Hooks whose messages are rounded, from the second iteration on."""
    quantized = [{"bits": 2}, {"bits": 8}, {"values": {"codec": "cast", "cast": "f16"}}]
    quantized += [{"values": pici.Values("qsgd", bits=4, bucket=64, seed=2**64 - 1)}]
    for asked in quantized:
        yield pici.torch.QuantizeState(start_iter=1, **asked), pici.torch.quantize_hook
    for selection in ("tensor", "bucket"):
        state = pici.torch.TopKState(density=0.1, start_iter=1, min_numel=50, selection=selection, bits=2)
        yield state, pici.torch.topk_hook


def rounds_and_conserves(rank, size, options):
    """All ranks have the same gradients, and what was sent, and what is kept, are all gradients of a parameter."""
    begin()
    small_buckets()
    shapes = [(60, 70), (300,), (40,), (2000,), (3, 5)]
    for state, hook in codecs():
        sent, made = [[torch.zeros(s, dtype=torch.float64) for s in shapes] for _ in range(2)]
        ddp = None
        for step in range(8):
            xs = normal(rank, *shapes, step=step)
            found, ddp = averaged(hook, state, xs, ddp, bucket_cap_mb=0.01, **options)
            for i, (f, x) in enumerate(zip(found, xs)):
                others = [torch.zeros_like(f) for _ in range(size)]
                dist.all_gather(others, f)
                same(others, size * [f])
                sent[i] += f
                made[i] += x
            exact = [sum(parts) / size for parts in zip(*(normal(r, *shapes, step=step) for r in range(size)))]
            rounded = any(not torch.allclose(f, e, rtol=1e-5, atol=1e-6) for f, e in zip(found, exact))
            assert rounded == (step > 0), (step, state.values)
        errors = kept_by(state, ddp)
        assert sorted(errors) == [f"w.{i}" for i in range(5)], list(errors)
        for i in range(5):
            mean = made[i] - errors[f"w.{i}"].double().reshape(shapes[i])
            dist.all_reduce(mean)
            worst = (sent[i] - mean / size).abs().max().item()
            assert worst < 2e-5, (i, worst, state.values)
            assert errors[f"w.{i}"].count_nonzero() > 0
        stats = state.stats()
        assert stats["events"] > 0 and 0 < stats["lost"] < float("inf"), stats


def quantized_dtypes(rank, size, dtype, close):
    """Conserved in other dtypes, as closely as their sums are; float16 is kept divided by the number of ranks."""
    begin()
    shapes = [(60, 70), (300,)]
    state = pici.torch.QuantizeState(bits=4, start_iter=0)
    sent, made = [[torch.zeros(s, dtype=torch.float64) for s in shapes] for _ in range(2)]
    ddp = None
    for step in range(5):
        xs = normal(rank, *shapes, step=step, dtype=dtype)
        found, ddp = averaged(pici.torch.quantize_hook, state, xs, ddp)
        for i, (f, x) in enumerate(zip(found, xs)):
            assert f.dtype == dtype
            sent[i] += f
            made[i] += x
    for i, error in enumerate(kept_by(state, ddp).values()):
        assert error.dtype == dtype and error.count_nonzero() > 0
        left = made[i] - (size if dtype == torch.float16 else 1) * error.double().view(shapes[i])
        dist.all_reduce(left)
        worst = (sent[i] - left / size).abs().max().item()
        assert worst < close, worst


def sends_less(rank, size):
    """A fourth, an eighth and a half of the bytes."""
    begin()
    for asked, share in (({}, 0.26), ({"bits": 4}, 0.14), ({"values": {"codec": "cast"}}, 0.51)):
        state = pici.torch.QuantizeState(start_iter=0, **asked)
        averaged(pici.torch.quantize_hook, state, normal(rank, (400, 500)))
        stats = state.stats()
        assert stats["calls"] == 1 and 0.8 * share < stats["wire_bytes"] / stats["dense_bytes"] < share, stats


def rounds_at_random(rank, size):
    """Without error feedback nothing is kept, each step rounds in its own way, and all are right on average."""
    begin()
    state = pici.torch.QuantizeState(bits=4, start_iter=0, error_feedback=False)
    xs, ddp, results = normal(0, (5000,)), None, []
    for _ in range(40):
        found, ddp = averaged(pici.torch.quantize_hook, state, xs, ddp)
        results.append(found[0].clone())
    assert kept_by(state, ddp) == {}
    x, results = xs[0], torch.stack(results)
    assert not torch.equal(results[0], results[1])
    step = x.abs().max() / 7  # the largest step between two values; each contribution, and the average, are rounded
    assert (results.mean(0) - x).abs().max() < 6 * step / len(results) ** 0.5
    assert abs((results.mean(0) - x).mean()) < step / 100
    assert (results[0] - x).abs().max() > step / 10


def learns(rank, size):
    """The losses of training, with exact gradients and with rounded ones."""
    begin()
    losses = []
    for state, hook in [(None, None), *codecs()]:
        model = net()
        ddp = DistributedDataParallel(model)
        if hook:
            ddp.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(15):
            found = train(ddp, optimizer, 0, range(4))  # the same batches again
        losses.append((sum(found) / 4, bits(model)))
    return losses
