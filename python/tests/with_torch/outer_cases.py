# SPDX-License-Identifier: BSD-3-Clause
"""What test_outer.py runs on each rank."""
import copy
import math
import types
import warnings

import torch
import torch.distributed as dist
from torch import nn

import pici.torch
from hooks_cases import begin, bits, folder, raises

METHODS = ("dense", "bits", "topk", "sparseloco", "visible")


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 40), nn.ReLU(), nn.Linear(40, 5))


def train(model, outer, rank, steps, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    for step in steps:
        own = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(32, 20, generator=own)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
        loss.backward()
        optimizer.step()
        if outer:
            outer.step()
        losses.append(loss.item())
    return losses


def everywhere(model):
    """Whether all ranks have the same weights."""
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, bits(model))
    return all(b == every[0] for b in every)


def is_diloco(rank, size):
    """The dense method is the outer loop as it is written down."""
    begin()
    model = small_net()
    outer = pici.torch.Outer(model, inner_steps=5)
    copies = [small_net() for _ in range(size)]
    weights = [p.detach().clone().requires_grad_() for p in copies[0].parameters()]
    sgd = torch.optim.SGD(weights, lr=0.7, momentum=0.9, nesterov=True)
    for round in range(4):
        steps = range(5 * round, 5 * round + 5)
        train(model, outer, rank, steps)
        for r, each in enumerate(copies):
            train(each, None, r, steps)
        for i, w in enumerate(weights):
            w.grad = sum(w.detach() - list(each.parameters())[i].detach() for each in copies) / size
        sgd.step()
        for each in copies:
            for p, w in zip(each.parameters(), weights):
                p.data.copy_(w)
        assert everywhere(model)
        for p, w in zip(model.parameters(), weights):
            assert torch.allclose(p, w, atol=1e-6), (round, (p - w).abs().max())


def learns(rank, size):
    """Each method learns, keeps the ranks together, and sends less than the exact one."""
    begin()
    sent = {}
    for method in METHODS:
        for options in ({}, {"fragments": 3}, {"fragments": 2, "overlap": 2}):
            model = small_net()
            outer = pici.torch.Outer(model, inner_steps=10, method=method, **options)
            losses = train(model, outer, rank, range(100))
            outer.finish()
            assert everywhere(model), (method, options)
            most = 0.9 if method == "sparseloco" else 0.8
            assert sum(losses[-10:]) < most * sum(losses[:10]), (method, options, losses)
            sent.setdefault(method, outer.stats()["wire_bytes"])
            if method == "sparseloco":
                assert 0.01 < outer.stats()["density"] < 0.05, outer.stats()
    assert sent["bits"] < sent["dense"] / 6 and sent["topk"] < sent["dense"] / 4, sent
    assert sent["sparseloco"] < sent["dense"] / 20, sent
    raises(ValueError, "method='dilco'", lambda: pici.torch.Outer(model, 5, method="dilco"))
    raises(ValueError, "overlap=5", lambda: pici.torch.Outer(model, 5, overlap=5))
    for method, options, words in (
        ("sparseloco", {"density": 2.0}, "density=2.0"),
        ("topk", {"density": 0.0}, "density=0.0"),
        ("sparseloco", {"decay": 1.5}, "decay=1.5"),
        ("dense", {"bits": 4}, "'dense' has none"),
        ("visible", {"bits": 4}, "'visible' has none"),
        ("bits", {"density": 0.1}, "'bits' has none"),
        ("topk", {"decay": 0.5}, "'topk' has none"),
        ("bits", {"bits": 3}, "bits=3"),
        ("dense", {"lr": -0.7}, "lr=-0.7"),
        ("topk", {"lr": float("nan")}, "lr=nan"),
        ("dense", {"momentum": 1.0}, "momentum=1.0"),
        ("sparseloco", {"momentum": -0.5}, "momentum=-0.5"),
    ):
        raises(ValueError, words, lambda: pici.torch.Outer(model, 5, method=method, **options))


def changed(model, steps, rank):
    """Change the weights of a rank by multiples of 1/1024, others in each step."""
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            own = torch.Generator().manual_seed(1000 * steps + 10 * i + rank)
            p.add_(torch.randint(-64, 65, p.shape, generator=own) / 1024)


def sends_the_largest_of_chunks(rank, size):
    """SparseLoCo: of each 4096 elements the largest 2%; what is kept is added, times decay, to the next change."""
    begin()
    for decay in (1.0, 0.5):
        model = nn.Linear(100, 90, bias=False)  # three chunks, the last one short
        outer = pici.torch.Outer(model, 1, method="sparseloco", bits=8, decay=decay)
        before, kept = model.weight.detach().clone().view(-1), torch.zeros(9000)
        for step in range(3):
            changed(model, step, 0)  # on all ranks alike, so that a rank's sum is the average
            wanted = decay * kept + before - model.weight.detach().view(-1)
            outer.step()
            sent = before - model.weight.detach().view(-1)
            for own, all_of in zip(sent.split(4096), wanted.split(4096)):
                most = math.ceil(0.02 * len(all_of))
                assert int(own.count_nonzero()) <= most
                least = all_of.abs().topk(most).values[-1]
                assert (own[all_of.abs() < least - 1e-4] == 0).all() and (own[all_of.abs() > least + 1e-4] != 0).all()
            (kept,) = outer.state_dict()["fragment 0"]["kept"]["errors"][f"rank {rank}"].values()
            assert torch.allclose(sent + kept, wanted, atol=0.01), step  # but for 8 bits, of the sum too
            before = model.weight.detach().clone().view(-1)


def sends_what_is_visible(rank, size):
    """PULSELoCo: a change that bf16 does not show is kept until it does."""
    begin()
    model = nn.Linear(1000, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1)
    outer = pici.torch.Outer(model, 1, method="visible", lr=1.0, momentum=0.0)
    step = torch.finfo(torch.bfloat16).eps / 8  # half of what is visible at 1 is 4 of these
    for i in range(1, 6):
        with torch.no_grad():
            model.weight[:, :10].add_(step)
        outer.step()
        wanted = torch.ones(1000)
        if i == 5:
            wanted[:10] += 5 * step
        assert torch.equal(model.weight.detach().view(-1), wanted), i
    assert outer.stats()["calls"] == 5


def streams(rank, size):
    """With fragments and overlap, several averages are on their way at a time. After `overlap` steps a rank goes on
    with the fraction `mix` of its own weights."""
    begin()
    model = nn.Sequential(*(nn.Linear(20, 20, bias=False) for _ in range(4)))
    outer = pici.torch.Outer(model, 8, fragments=4, overlap=5, mix=0.25, lr=1.0, momentum=0.0)
    first = [p.detach().clone() for p in model.parameters()]
    of_all = [[w.clone() for w in first] for _ in range(size)]  # the weights of each rank
    flights, most = {}, 0
    for step in range(1, 41):
        changed(model, step, rank)
        for r, weights in enumerate(of_all):
            for i, w in enumerate(weights):
                own = torch.Generator().manual_seed(1000 * step + 10 * i + r)
                w.add_(torch.randint(-64, 65, w.shape, generator=own) / 1024)
        outer.step()
        for i in range(4):
            if flights.get(i, (0,))[0] == step:
                first[i] = first[i] - flights.pop(i)[1]
                for weights in of_all:
                    weights[i] = 0.25 * weights[i] + 0.75 * first[i]
            if (step + 2 * i) % 8 == 0:
                flights[i] = step + 5, sum(first[i] - weights[i] for weights in of_all) / size
        most = max(most, len(flights))
        for p, w in zip(model.parameters(), of_all[rank]):
            assert torch.allclose(p, w, atol=1e-5), step
    assert most == 3
    outer.finish()
    assert everywhere(model)


def resumes(rank, size, method):
    begin()
    model = small_net()
    outer = pici.torch.Outer(model, inner_steps=4, method=method, fragments=2)
    train(model, outer, rank, range(13))
    saved, weights = outer.state_dict(), copy.deepcopy(model.state_dict())
    train(model, outer, rank, range(13, 25))
    again = small_net()
    other = pici.torch.Outer(again, inner_steps=4, method=method, fragments=2)
    raises(ValueError, "number of fragments", pici.torch.Outer(again, 4, method=method).load_state_dict, saved)
    other.load_state_dict(saved)
    again.load_state_dict(weights)
    train(again, other, rank, range(13, 25))
    assert bits(again) == bits(model)


def come_and_go(rank, size):
    """Rank 2 leaves after an outer step, and comes back with nothing."""
    begin()
    both, model = dist.new_group([0, 1]), small_net()
    outer = pici.torch.Outer(model, inner_steps=5, method="bits")
    train(model, outer, rank, range(10))
    if rank < 2:
        outer.regroup(both)
        train(model, outer, rank, range(10, 20))
    else:
        model = small_net()
    every = dist.new_group([0, 1, 2])
    if rank == 2:
        alone = dist.new_group([2], use_local_synchronization=True)
        outer = pici.torch.Outer(model, inner_steps=5, group=alone, method="bits")
    outer.regroup(every)
    assert outer.steps == 20 and everywhere(model)
    train(model, outer, rank, range(20, 30))
    assert everywhere(model)


def regroups_between(rank, size):
    """An old rank keeps what it has trained since the last outer step of each fragment; a new one has only weights."""
    begin()
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    old, every = dist.new_group([0, 1]), dist.new_group([0, 1, 2])
    alone = dist.new_group([2], use_local_synchronization=True) if rank == 2 else None
    outer = pici.torch.Outer(model, 10, old if rank < 2 else alone, fragments=2, lr=1.0, momentum=0.0)
    first = [p.detach().clone() for p in model.parameters()]

    def train_by(change, steps):
        for _ in range(steps):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(change)
            outer.step()

    def moved():
        return [round((p - w).mean().item(), 4) for p, w in zip(model.parameters(), first)]

    if rank < 2:
        train_by(1.0, 5)  # the second fragment has had its outer step
        train_by(1.0, 2)
        assert moved() == [7.0, 7.0]
    outer.regroup(every)
    if rank == 2:
        first = [w.clone() for w in outer._fragments[0].weights + outer._fragments[1].weights]
    assert outer.steps == 7 and moved() == ([7.0, 7.0] if rank < 2 else [0.0, 0.0])
    train_by(0.0, 3)
    assert moved()[0] == round(14 / 3, 4)
    outer.finish()
    assert everywhere(model) and moved()[1] == round(5 * (rank < 2) + 4 / 3, 4)


def in_float64(rank, size):
    """A model of float64 has changes that float32 does not show, also beside parameters of float32."""
    begin()
    for method in METHODS:
        model = nn.Sequential(nn.Linear(100, 50).double(), nn.Linear(50, 60))
        options = {} if method == "visible" else {"lr": 1.0, "momentum": 0.0}
        outer = pici.torch.Outer(model, 1, method=method, **options)
        before = model[0].weight.detach().clone()
        for _ in range(2):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(2.0**-40 if p.dtype == torch.float64 else 2.0**-20)
            outer.step()
            assert everywhere(model), method
        moved = (model[0].weight.detach() - before).double()
        if method == "dense":
            assert torch.allclose(moved, torch.full_like(moved, 2.0**-39), rtol=1e-3)
        elif method != "visible":
            assert 0 < moved.abs().max() < 2.0**-38, (method, moved.abs().max())
        assert all(w.dtype == p.dtype for f in outer._fragments for w, p in zip(f.weights, f.parameters))


def not_finite(rank, size):
    """A rank whose weights are no numbers gets good ones again."""
    begin()
    for method in METHODS:
        model = small_net()
        outer = pici.torch.Outer(model, inner_steps=2, method=method)
        train(model, outer, rank, range(2))
        before = bits(model)
        with torch.no_grad(), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            if rank == 1:
                model[0].weight[0, 0] = float("nan")
            outer.step(), outer.step()
            assert any("left out" in str(w.message) for w in told)
        assert bits(model) == before, method


def in_few_bits(rank, size):
    """Changes that are smaller than what the model's dtype can tell add up."""
    begin()
    for dtype in (torch.bfloat16, torch.float16):
        step = torch.finfo(dtype).eps
        model = nn.Linear(1, 1, bias=False, dtype=dtype)
        with torch.no_grad():
            model.weight.fill_(1)
        outer = pici.torch.Outer(model, inner_steps=1, lr=0.25, momentum=0.0)
        for i in range(80):
            if i % 4 == 0:
                with torch.no_grad():
                    model.weight.add_(step)
            outer.step()
        assert model.weight.item() == 1 + 5 * step, dtype


def ends_once(rank, size):
    """After an outer step, finish() makes no other one; it does have the ranks go on with the same weights."""
    begin()
    for method in METHODS:
        model = small_net()
        outer = pici.torch.Outer(model, inner_steps=5, method=method)
        train(model, outer, rank, range(10))
        before, calls = bits(model), outer.stats()["calls"]
        outer.finish()
        assert bits(model) == before and outer.stats()["calls"] == calls, method
        other = pici.torch.Outer(small_net(), inner_steps=5, method=method)
        other.load_state_dict(outer.state_dict())
        other.finish()
        assert other.stats()["calls"] == 0, method
        train(model, outer, rank, range(10, 12))
        outer.finish()
        assert bits(model) != before and everywhere(model), method
    for look in (lambda outer: None, lambda outer: outer.state_dict()):
        model = small_net()
        outer = pici.torch.Outer(model, inner_steps=5, overlap=3)
        train(model, outer, rank, range(10))
        look(outer)
        outer.finish()
        assert everywhere(model) and outer.stats()["calls"] == 2


def not_row_major(rank, size):
    """Weights in other orders of their elements."""
    begin()
    for method in METHODS:
        torch.manual_seed(rank)
        model = nn.Sequential(nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last), nn.Linear(20, 30))
        model[1].weight.data = model[1].weight.data.t().contiguous().t()
        outer = pici.torch.Outer(model, inner_steps=1, method=method)
        assert everywhere(model) and not model[1].weight.is_contiguous()
        for _ in range(2):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(0.1 * torch.randn(p.shape))
            outer.step()
            assert everywhere(model), method
        outer.regroup()
        assert everywhere(model), method


def by_dcp(rank, size):
    """torch.distributed.checkpoint gives each rank back what it kept."""
    import torch.distributed.checkpoint as dcp

    begin()
    for method in METHODS:
        model, again = small_net(), small_net()
        outer = pici.torch.Outer(model, inner_steps=4, method=method, fragments=2)
        other = pici.torch.Outer(again, inner_steps=4, method=method, fragments=2)
        train(model, outer, rank, range(13))
        weights = copy.deepcopy(model.state_dict())
        dcp.save({"outer": outer}, checkpoint_id=folder() / method)
        train(model, outer, rank, range(13, 25))
        dcp.load({"outer": other}, checkpoint_id=folder() / method)
        again.load_state_dict(weights)
        train(again, other, rank, range(13, 25))
        assert bits(again) == bits(model), method


def loads_whole_or_not(rank, size):
    """A state that is refused changes nothing, and one that is taken drops the averages that are on their way."""
    begin()
    model = small_net()
    outer = pici.torch.Outer(model, inner_steps=4, method="topk", overlap=2)
    train(model, outer, rank, range(3))
    saved, weights = outer.state_dict(), copy.deepcopy(model.state_dict())
    train(model, outer, rank, range(3, 5))  # an average is on its way
    kept = dict(saved["fragment 0"]["kept"], version=99)
    fragment = dict(saved["fragment 0"], kept=kept)
    raises(ValueError, "has version 99", outer.load_state_dict, {**saved, "fragment 0": fragment})
    fragment = dict(saved["fragment 0"], velocities={n: v[:1] for n, v in saved["fragment 0"]["velocities"].items()})
    raises(ValueError, "has the shape", outer.load_state_dict, {**saved, "fragment 0": fragment})
    for missing in ("steps", "method", "fragment 0"):
        raises(ValueError, "", outer.load_state_dict, {k: v for k, v in saved.items() if k != missing})
    for missing in ("begun", "weights", "velocities", "kept"):
        fragment = {k: v for k, v in saved["fragment 0"].items() if k != missing}
        raises(ValueError, "", outer.load_state_dict, {**saved, "fragment 0": fragment})
    fragment = dict(saved["fragment 0"], velocities=dict([*saved["fragment 0"]["velocities"].items()][1:]))
    raises(ValueError, "of another model", outer.load_state_dict, {**saved, "fragment 0": fragment})
    assert outer.steps == 5
    outer.load_state_dict(saved)
    model.load_state_dict(weights)
    again = small_net()
    other = pici.torch.Outer(again, inner_steps=4, method="topk", overlap=2)
    other.load_state_dict(saved)
    again.load_state_dict(weights)
    train(model, outer, rank, range(3, 12))
    train(again, other, rank, range(3, 12))
    assert bits(again) == bits(model)


def on_gpu(rank, size):
    """What cannot work on tensors of CUDA is refused."""
    begin()
    there = torch.device("cuda", 0)
    for method in ("sparseloco", "visible"):
        outer = pici.torch.Outer(small_net(), inner_steps=5, method=method)
        (fragment,) = outer._fragments
        x = types.SimpleNamespace(layout=torch.strided, dtype=torch.float32, device=there)
        bucket = types.SimpleNamespace(parameters=lambda: fragment.weights, index=lambda: 0, buffer=lambda: x)
        raises(NotImplementedError, f'method="{method}" does not take', fragment.state._hook, bucket)
        fragment.weights[0] = x
        raises(NotImplementedError, "on cuda:0", outer.regroup)
