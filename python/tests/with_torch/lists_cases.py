# SPDX-License-Identifier: BSD-3-Clause
"""What test_lists.py runs on each rank: lists of tensors, a process group's pici.Comm, how TopKState selects."""
import logging
import types

import torch
import torch.distributed as dist

import pici
import pici.torch
from hooks_cases import averaged, begin, integers, kept_by, normal, raises, same
from pici.torch._lists import all_reduce

SHAPES = [(60, 70), (300,), (2000,), ()]


def mean_of(size, *shapes):
    return [sum(xs) / size for xs in zip(*(integers(r, *shapes, factor=size) for r in range(size)))]


def lists(rank, size):
    """Exact averages, of several dtypes, strides and kinds, in place."""
    begin()
    xs = integers(rank, *SHAPES, factor=size)
    assert all_reduce(xs) is not None
    same(xs, mean_of(size, *SHAPES))
    xs = [x.double() if i % 2 else x for i, x in enumerate(integers(rank, *SHAPES, factor=size))]
    xs[0] = xs[0].t().contiguous().t()
    found = all_reduce(xs, dist.group.WORLD, async_op=True).wait()
    assert all(f is x for f, x in zip(found, xs))
    for f, w in zip(found, mean_of(size, *SHAPES)):
        assert torch.equal(f.float(), w)
    (z,) = all_reduce([torch.complex(*integers(rank, (40, 50), (40, 50), factor=size))])
    assert torch.equal(z, torch.complex(*mean_of(size, (40, 50), (40, 50))))
    assert all_reduce([]) == []
    raises(ValueError, "not both", lambda: all_reduce(xs, density=0.1, state=pici.torch.TopKState()))
    raises(ValueError, "dense ones", lambda: all_reduce([torch.eye(3).to_sparse()]))
    for dtype in (torch.int64, torch.bool):
        raises(TypeError, f"is {dtype}", lambda: all_reduce([torch.ones(3), torch.ones(3).to(dtype)]))
    groups = [dist.new_group([r]) for r in range(size)]
    xs = normal(rank, *SHAPES)
    wanted = [x.clone() for x in xs]
    same(all_reduce(xs, groups[rank]), wanted)


def lossy_lists(rank, size):
    """density and bits; and a state, which gives what the hook does."""
    begin()
    for shapes in ([(5000,)], [(300, 20), (4000,)]):
        xs = all_reduce(normal(0, *shapes), density=0.01)
        assert sum(int(x.count_nonzero()) for x in xs) == sum(-(-x.numel() // 100) for x in xs)
        exact = normal(0, *shapes)
        for x, w in zip(all_reduce(normal(0, *shapes), bits=8), exact):
            assert 0 < (x - w).abs().max() < 0.2
    for make in (
        lambda: pici.torch.TopKState(density=0.05, start_iter=1, min_numel=10, momentum=0.5),
        lambda: pici.torch.QuantizeState(bits=4, start_iter=1),
    ):
        steady, resumed = make(), make()
        for step in range(4):
            xs = all_reduce(normal(rank, *SHAPES, step=step), state=steady)  # other tensors in each call
            same(all_reduce(normal(rank, *SHAPES, step=step), state=resumed), xs)
            if step == 1:
                saved = resumed.state_dict(xs)
                resumed = make()
                resumed.load_state_dict(saved, xs)
        one, two, ddp = make(), make(), None
        hook = getattr(pici.torch, one.hook)
        for step in range(3):
            found, ddp = averaged(hook, one, normal(rank, (4000,), step=step), ddp)
            same(all_reduce(normal(rank, (4000,), step=step), state=two), found)
        raises(ValueError, "had [(4000,)]", lambda: all_reduce(normal(rank, (5,)), state=two))


def own_comm(rank, size):
    """A pici.Comm of all ranks, and of some."""
    begin()
    with pici.torch.comm() as comm:
        assert (comm.rank, comm.size) == (rank, size)
        assert float(comm.all_reduce(torch.ones(5))[0]) == size
        with pici.torch.comm() as other:
            assert float(other.all_reduce(torch.ones(5))[0]) == size
    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    with pici.torch.comm(groups[rank // 2]) as comm:
        assert float(comm.all_reduce(torch.ones(5))[0]) == (2 if rank < 2 else 1)


def as_pici_topk(rank, size):
    """Momentum, leak and sampled thresholds are those of pici.topk."""
    begin()
    for own in ({"momentum": 0.9}, {"momentum": 0.5, "leak": 0.75}, {"sampled": True, "seed": 5}, {"leak": 0.0}):
        state = pici.torch.TopKState(density=0.02, start_iter=0, **own)
        error, velocity, ddp = torch.zeros(40000), torch.zeros(40000), None
        options = {k: v for k, v in own.items() if k != "sampled"}
        for step in range(4):
            xs = normal(0, (40000,), step=step)
            wanted, _ = pici.topk(
                xs[0],
                error,
                velocity if "momentum" in own else None,
                select="sampled" if "sampled" in own else "global",
                density=0.02,
                step=step,
                to="torch",
                **options,
            )
            found, ddp = averaged(pici.torch.topk_hook, state, xs, ddp)
            same(found, [wanted])
        same(kept_by(state, ddp).values(), [error])


def momentum_of_whole_ones(rank, size):
    """Gradients that are sent whole get the momentum too, so that an optimizer without one makes the same steps."""
    begin()
    state = pici.torch.TopKState(density=1, start_iter=2, min_numel=500, momentum=0.5)
    velocity, ddp = [torch.zeros(400), torch.zeros(1000)], None
    for step in range(4):
        xs = integers(10 * step, (400,), (1000,), factor=size)
        found, ddp = averaged(pici.torch.topk_hook, state, xs, ddp)
        velocity = [v / 2 + x for v, x in zip(velocity, xs)]
        same(found, velocity)
        if step >= 2:
            velocity[1].zero_()  # selected, so that it is cleared


def random_positions(rank, size):
    """All ranks send the same positions, others in each step, and what was not sent comes later."""
    begin()
    state = pici.torch.TopKState(density=0.02, start_iter=0, selection="random")
    shapes = [(5000,), (5000,)]
    sent, made, ddp, before = [0, 0], [0, 0], None, []
    for step in range(5):
        xs = normal(rank, *shapes, step=step, dtype=torch.float64)
        found, ddp = averaged(pici.torch.topk_hook, state, xs, ddp)
        where = [f != 0 for f in found]
        for w in where:
            assert int(w.sum()) == 100
            assert not any(torch.equal(w, b) for b in before)
            before.append(w)
        sent = [s + f for s, f in zip(sent, found)]
        made = [m + x for m, x in zip(made, xs)]
    for s, m, kept in zip(sent, made, kept_by(state, ddp).values()):
        mean = m - kept
        dist.all_reduce(mean)
        assert torch.allclose(s, mean / size, rtol=1e-12, atol=1e-12)
    for density in (0.24, 0.25, 1.0):
        state = pici.torch.TopKState(density=density, start_iter=0, selection="random")
        (x,) = all_reduce([torch.ones(10000)], state=state)
        assert int(x.count_nonzero()) == 10000 * density


def momentum_is_needed(rank, size):
    """Gradients that torch would average get no momentum, and are refused."""
    begin()
    state = pici.torch.TopKState(density=0.1, momentum=0.5)
    for x in (
        types.SimpleNamespace(layout=torch.strided, dtype=torch.float32, device=torch.device("cuda", 0)),
        torch.eye(3).to_sparse(),
    ):
        bucket = types.SimpleNamespace(parameters=lambda: [], index=lambda: 0, buffer=lambda: x)
        raises(NotImplementedError, "momentum=0.5 does not take", state._hook, bucket)
    assert state.iter == 0


def logged(rank, size):
    """INFO says how the ranks are connected, DEBUG what each call sends; the profiler sees the hook."""
    begin()
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append((record.levelname, record.getMessage()))
    log = logging.getLogger("pici.torch")
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    state = pici.torch.TopKState(density=0.01, start_iter=0)
    _, ddp = averaged(pici.torch.topk_hook, state, normal(rank, (5000,)))
    with torch.autograd.profiler.profile() as profile:
        averaged(pici.torch.topk_hook, state, normal(rank, (5000,)), ddp)
    return told, [e.name for e in profile.function_events if e.name.startswith("pici:")]
