# SPDX-License-Identifier: BSD-3-Clause
"""What test_errors.py runs on each rank: gradients that are not finite, loss scales, checkpoints of what is kept."""
import io
import os
import pickle
import types
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pici.torch
from hooks_cases import Weighted, averaged, begin, folder, kept_by, normal, raises, same, small_buckets

SHAPES = [(60, 70), (300,), (40,), (2000,)]


def states(**options):
    """States that keep errors, and their hooks."""
    for own in ({}, {"selection": "bucket"}, {"bits": 4}, {"momentum": 0.9, "leak": 0.5}, {"selection": "random"}):
        state = pici.torch.TopKState(density=0.05, start_iter=0, min_numel=50, **own, **options)
        yield state, pici.torch.topk_hook
    yield pici.torch.QuantizeState(bits=4, start_iter=0, **options), pici.torch.quantize_hook


def all_finite(xs):
    return all(torch.isfinite(x).all() for x in xs)


def poisoned(rank, size, value, where):
    """One step with an element that is not finite, on one rank: all ranks see it, and the next step is as if it had
    not been."""
    begin()
    small_buckets()
    for state, hook in states():
        ddp = None
        for step in range(3):
            _, ddp = averaged(hook, state, normal(rank, *SHAPES, step=step), ddp, bucket_cap_mb=0.01)
        before = kept_by(state, ddp)
        xs = normal(rank, *SHAPES, step=3)
        if rank == 1:
            xs[0].view(-1)[where] = value
        found, _ = averaged(hook, state, xs, ddp)
        assert not torch.isfinite(found[0]).all(), state
        after = kept_by(state, ddp)
        same([after["w.0"]], [before["w.0"]])
        assert all_finite(after.values()), state
        found, _ = averaged(hook, state, normal(rank, *SHAPES, step=4), ddp)
        assert all_finite(found), state


def goes_out_whole(rank, size):
    """A gradient that is not finite is not selected from."""
    begin()
    for selection in ("tensor", "bucket"):
        state = pici.torch.TopKState(density=0.01, start_iter=0, selection=selection)
        xs = normal(0, (5000,))
        xs[0][7] = float("inf")
        found, _ = averaged(pici.torch.topk_hook, state, xs)
        same(found, xs)


class Scaler:
    """A loss scale, as torch.amp.GradScaler has it."""

    def __init__(self, scale):
        self.scale = scale

    def get_scale(self):
        return self.scale


def skipped_everywhere(rank, size):
    """With a GradScaler, a bucket that is not finite undoes those before and after it."""
    begin()
    small_buckets()
    for state, hook in states(grad_scaler=Scaler(1.0)):
        ddp = None
        for step in range(3):
            _, ddp = averaged(hook, state, normal(rank, *SHAPES, step=step), ddp, bucket_cap_mb=0.001)
        before = kept_by(state, ddp)
        for bad in (0, 3):  # of the last bucket, and of the first
            xs = normal(rank, *SHAPES, step=3)
            if rank == 1:
                xs[bad].view(-1)[5] = float("nan")
            found, _ = averaged(hook, state, xs, ddp)
            after = kept_by(state, ddp)
            assert sorted(after) == sorted(before)
            same(after.values(), before.values())


def follows_scale(rank, size):
    """Kept errors have the scale of the gradients that they are added to. Training with a changing loss scale equals
    training without one, since the scales are powers of two.
    """
    begin()
    for which, (state, hook) in enumerate(states(grad_scaler=Scaler(65536.0))):
        plain, _ = list(states())[which]
        scaled = other = None
        for step, scale in enumerate([65536.0, 65536.0, 2.0**20, 0.25, 0.25, 8.0]):
            state.grad_scaler.scale = scale
            xs = normal(rank, *SHAPES, step=step)
            found, scaled = averaged(hook, state, [scale * x for x in xs], scaled)
            wanted, other = averaged(hook, plain, xs, other)
            same([f / scale for f in found], wanted)
    for state, hook in states():
        _, ddp = averaged(hook, state, normal(rank, *SHAPES))
        before = kept_by(state, ddp)
        state.rescale(0.5)
        same(kept_by(state, ddp).values(), [e / 2 for e in before.values()])
        raises(ValueError, "factor=0", state.rescale, 0)


def with_grad_scaler(rank, size):
    """torch's GradScaler from a scale that overflows: a few steps are skipped, and no more than with the lossless
    hook."""
    begin()
    made = []
    for state, hook in [(None, pici.torch.all_reduce_hook), *states()]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(state, hook)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**125, growth_interval=1000)
        if state is not None:
            state.grad_scaler = scaler
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
        own, steps = torch.Generator().manual_seed(rank), 0
        for _ in range(20):
            optimizer.zero_grad()
            loss = ddp(10 * torch.randn(16, 64, generator=own)).square().mean()
            scaler.scale(loss).backward()
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            steps += scaler.get_scale() >= before
        made.append(steps)
    assert 0 < made[0] < 20, made
    assert all(made[0] - 2 <= steps for steps in made), made


class Sparse(nn.Module):
    """Rows of a table beside a dense weight, with gradients that follow from x."""

    def __init__(self):
        super().__init__()
        self.table, self.dense = nn.Embedding(100, 8, sparse=True), nn.Parameter(torch.zeros(3000))

    def forward(self, x, rows, factor):
        return self.dense @ x + (factor * self.table(rows)).sum()


def skipped_by_sparse(rank, size):
    """A sparse bucket that is not finite undoes the dense ones, which are."""
    begin()
    for state, hook in states(grad_scaler=Scaler(1.0)):
        if getattr(state, "momentum", 0):
            continue  # which takes no sparse gradients
        ddp = DistributedDataParallel(Sparse())
        ddp.register_comm_hook(state, hook)
        for step, factor in enumerate([1.0, 1.0, float("inf"), 1.0]):
            ddp.zero_grad()
            before = kept_by(state, ddp)
            ddp(normal(rank, (3000,), step=step)[0], torch.tensor([rank, 5]), factor).backward()
            assert torch.equal(kept_by(state, ddp)["dense"], before["dense"]) == (step == 2), step
            assert torch.isfinite(ddp.module.dense.grad).all()


def skipped_by_torchs(rank, size):
    """The same for a bucket that torch averages, before or after the others."""
    begin()
    for dtypes in ((torch.float32, torch.float64), (torch.float64, torch.float32)):
        for state, _ in states(grad_scaler=Scaler(1.0)):
            if getattr(state, "momentum", 0):
                continue
            own = state._ours
            state._ours = lambda x: x.dtype is torch.float32 and own(x)
            for step in range(4):
                xs = [x.to(d) for x, d in zip(normal(rank, (3000,), (2000,), step=step), dtypes)]
                if step == 2 and rank == 1:
                    xs[dtypes.index(torch.float64)][7] = float("nan")
                which = str(dtypes.index(torch.float32))
                before = kept_by(state, xs)[which]
                pici.torch.all_reduce(xs, state=state)
                assert torch.equal(kept_by(state, xs)[which], before) == (step == 2), (state, step)


def failed(function, *args, **options):
    try:
        function(*args, **options)
    except (RuntimeError, MemoryError, pici.Error) as e:
        return str(e)
    raise AssertionError("no error")


def undone(rank, size):
    """A call that fails changes neither errors nor the iteration: other ranks make the same one again."""
    begin()
    shapes = [(60, 70), (300,), (2000,)]
    lists = lambda step: normal(rank, *shapes[:2], step=step) + normal(rank, shapes[2], step=step, dtype=torch.float64)
    made = [state for state, _ in states()] + [pici.torch.TopKState(min_numel=0, start_iter=2)]
    made += [pici.torch.QuantizeState(bits=4, start_iter=3), pici.torch.TopKState(start_iter=0, error_feedback=False)]
    made += [state for state, _ in states(grad_scaler=Scaler(1.0))]
    group = dist.new_group()
    for state in made:
        for step in range(2):
            pici.torch.all_reduce(lists(step), group, state=state)
    before = [kept_by(state, lists(0)) for state in made]
    if rank == size - 1:
        os._exit(0)
    for state in 2 * made:
        failed(pici.torch.all_reduce, lists(2), group, state=state)
    assert [state.iter for state in made] == len(made) * [2]
    for state, wanted in zip(made, before):
        same(kept_by(state, lists(0)).values(), wanted.values())
    fewer = dist.new_group(list(range(size - 1)), use_local_synchronization=True)
    for state, wanted in zip(made, before):
        pici.torch.all_reduce(lists(2), fewer, state=state)
        assert state.iter == 3


def refuses_codecs(rank, size):
    """A codec that does not take a dtype is refused before a call, so the group stays whole."""
    begin()
    state = pici.torch.QuantizeState(values={"codec": "cast"}, start_iter=0)
    whole, double = torch.ones(2000), torch.ones(2000, dtype=torch.float64)
    for dtype in (torch.bfloat16, torch.float16):
        xs = [whole, whole.to(dtype)]
        raises(TypeError, f"does not take {dtype}", lambda: pici.torch.all_reduce(xs, state=state))
    state._places = []
    for values, x, word in (
        ({"codec": "cast", "cast": "f16"}, double, 'to "f16"'),
        ({"codec": "cast", "cast": "f32"}, whole, 'to "f32"'),
        ({"codec": "zfp", "rate": 8}, whole.bfloat16(), '"zfp"'),
    ):
        other = pici.torch.QuantizeState(values=values, start_iter=0)
        raises(TypeError, word, lambda: pici.torch.all_reduce([x], state=other))
    assert state.iter == 0
    for values in ({"codec": "cast"}, {"codec": "qsgd", "bits": 8}):
        for x in (whole, double):
            other = pici.torch.QuantizeState(values=values, start_iter=0)
            same(pici.torch.all_reduce([x.clone()], state=other), [x])
    bucket = types.SimpleNamespace(parameters=lambda: [whole], index=lambda: 0, buffer=lambda: whole.bfloat16())
    raises(TypeError, "does not take torch.bfloat16", pici.torch.quantize_hook, state, bucket)
    same(pici.torch.all_reduce([whole], state=state), [whole])


def all_later_ones_break(rank, size):
    """A list call raises the error itself."""
    begin()
    pici.torch.all_reduce([torch.ones(10)])
    if rank == size - 1:
        os._exit(0)
    raises(pici.PeerError, "", lambda: pici.torch.all_reduce([torch.ones(10)]))
    for xs in ([torch.ones(10)], [torch.ones(10), torch.ones(10).double()]):
        raises(pici.BrokenError, "", lambda: pici.torch.all_reduce(xs))
        raises(RuntimeError, "BrokenError", lambda: pici.torch.all_reduce(xs, async_op=True).wait())


def undone_by_hook(rank, size):
    """Of DDP, with several buckets, where the preparation of one raises."""
    begin()
    small_buckets()
    for state, hook in states(grad_scaler=Scaler(1.0)):
        state.process_group, ddp = dist.new_group(), None
        for step in range(3):
            _, ddp = averaged(hook, state, normal(rank, *SHAPES, step=step), ddp, bucket_cap_mb=0.001)
        before, rounded, calls = kept_by(state, ddp), state._rounded, []

        def raises_at_second(*args):
            calls.append(1)
            if len(calls) == 2:
                raise MemoryError("no memory for the selection")
            return rounded(*args)

        state._rounded = raises_at_second
        assert "no memory for the selection" in failed(averaged, hook, state, normal(rank, *SHAPES, step=3), ddp)
        assert state.iter == 3 and len(calls) == 2
        same(kept_by(state, ddp).values(), before.values())


def complex_pieces(rank, size):
    """Of complex parameters the parts are selected: 1% of twice as many elements. Few bits take them, too."""
    begin()
    shapes = [(40, 50), (30, 30)]
    ddp = DistributedDataParallel(Weighted(*shapes, dtype=torch.complex64))
    state = pici.torch.TopKState(density=0.01, start_iter=0, min_numel=0)
    ddp.register_comm_hook(state, pici.torch.topk_hook)
    xs = [torch.complex(*normal(0, s, s)) for s in shapes]
    for step in range(2):
        ddp.zero_grad()
        ddp(*xs).real.backward()
        for w, s in zip(ddp.module.w, shapes):
            assert int(torch.view_as_real(w.grad).count_nonzero()) == 2 * s[0] * s[1] // 100, step
    assert [e.numel() for e in kept_by(state, ddp).values()] == [4000, 1800]
    for asked in ({"bits": 4}, {"bits": 8}):
        ddp = DistributedDataParallel(Weighted(*shapes, dtype=torch.complex64))
        ddp.register_comm_hook(pici.torch.QuantizeState(start_iter=0, **asked), pici.torch.quantize_hook)
        ddp(*xs).real.backward()
        for w, x in zip(ddp.module.w, xs):
            assert (w.grad - x.conj()).abs().mean() < 0.5


def used_by_two(rank, size):
    begin()
    state = pici.torch.TopKState(density=0.1, start_iter=0, min_numel=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, first = averaged(pici.torch.topk_hook, state, normal(rank, *SHAPES))
        averaged(pici.torch.topk_hook, state, normal(rank, *SHAPES, step=1), first)
        assert not [w for w in told if "two models" in str(w.message)]
        _, second = averaged(pici.torch.topk_hook, state, normal(rank, *SHAPES))
        assert [w for w in told if "two models" in str(w.message)]


# ---- checkpoints


def run_of(state, hook, rank, steps, ddp=None):
    for step in steps:
        found, ddp = averaged(hook, state, normal(rank, *SHAPES, step=step), ddp, find_unused_parameters=True)
    return found, ddp


def new(i):
    """The state with the number i, and a model of its own, as a resumed program makes them."""
    state, hook = list(states())[i]
    ddp = DistributedDataParallel(Weighted(*SHAPES), find_unused_parameters=True)
    ddp.register_comm_hook(state, hook)
    state.bind(ddp)
    return state, ddp


def by_dcp(rank, size):
    """torch.distributed.checkpoint gives each rank its own errors back, of a state and of its dict."""
    import torch.distributed.checkpoint as dcp

    begin()
    for i, (state, hook) in enumerate(states()):
        _, ddp = run_of(state, hook, rank, range(3))
        state.bind(ddp)
        dcp.save({"hook": state}, checkpoint_id=folder() / str(i))
        wanted, _ = run_of(state, hook, rank, [3], ddp)

        again, other = new(i)
        dcp.load({"hook": again}, checkpoint_id=folder() / str(i))
        assert again.iter == 3
        found, _ = run_of(again, hook, rank, [3], other)
        same(found, wanted)


def by_async_dcp(rank, size):
    """torch.distributed.checkpoint.async_save in a group of its own saves what was kept when it was called, while the
    hook goes on."""
    import torch.distributed.checkpoint as dcp

    begin()
    group = dist.new_group()
    for i, (state, hook) in enumerate(states()):
        _, ddp = run_of(state, hook, rank, range(3))
        state.bind(ddp)
        saving = dcp.async_save({"hook": state}, checkpoint_id=folder() / str(i), process_group=group)
        wanted, _ = run_of(state, hook, rank, [3], ddp)
        run_of(state, hook, rank, range(4, 8), ddp)
        saving.result()

        again, other = new(i)
        dcp.load({"hook": again}, checkpoint_id=folder() / str(i))
        assert again.iter == 3
        found, _ = run_of(again, hook, rank, [3], other)
        same(found, wanted)


def saves_for_others(rank, size, where):
    import torch.distributed.checkpoint as dcp

    begin()
    state, ddp = new(0)
    run_of(state, pici.torch.topk_hook, rank, range(3), ddp)
    dcp.save({"hook": state}, checkpoint_id=where)


def loads_of_others(rank, size, where, saved):
    """torch.distributed.checkpoint with another number of ranks than saved. More ranks are rejected, unless they ask
    for a part. Otherwise the iteration is loaded, and a warning reports that the errors are not.
    """
    import torch.distributed.checkpoint as dcp

    begin()
    state, ddp = new(0)
    if size > saved:
        raises(dcp.api.CheckpointException, "Missing key", lambda: dcp.load({"hook": state}, checkpoint_id=where))
        assert state.iter == 0
    planner = dcp.DefaultLoadPlanner(allow_partial_load=size > saved)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dcp.load({"hook": state}, checkpoint_id=where, planner=planner)
    assert any(f"of {saved} ranks, and there are {size}" in str(warning.message) for warning in told)
    assert state.iter == 3 and not any(e.any() for e in kept_by(state, ddp).values())


def by_rank_0(rank, size):
    """As accelerate does: all ranks call state_dict(), rank 0 saves what it got, and all load that."""
    begin()
    for i, (state, hook) in enumerate(states()):
        _, ddp = run_of(state, hook, rank, range(3))
        state.bind(ddp, gather=True)
        saved, file = state.state_dict(), io.BytesIO()
        torch.save(saved, file)
        files = [file.getvalue()]
        dist.broadcast_object_list(files, 0)
        wanted, _ = run_of(state, hook, rank, [3], ddp)
        again, other = new(i)
        again.load_state_dict(torch.load(io.BytesIO(files[0]), weights_only=True))
        found, _ = run_of(again, hook, rank, [3], other)
        same(found, wanted)


def gathered_of_one(rank, size):
    """A program that gathers runs on one rank, too."""
    begin()
    state = pici.torch.TopKState(density=0.1, start_iter=0, min_numel=0)
    _, ddp = run_of(state, pici.torch.topk_hook, rank, range(2))
    state.bind(ddp, gather=True)
    same(state.state_dict()["errors"]["rank 0"].values(), kept_by(state, ddp).values())


def compiled(rank, size):
    """A model has the same names compiled or not, so a state of one is taken by the other."""
    begin()
    state = pici.torch.TopKState(density=0.1, start_iter=0, min_numel=0)
    _, ddp = run_of(state, pici.torch.topk_hook, rank, range(2))
    inner = DistributedDataParallel(torch.compile(ddp.module, backend="eager"))
    saved = state.state_dict(ddp)
    wanted = saved["errors"][f"rank {rank}"]
    assert any(e.any() for e in wanted.values())
    for model in (inner, torch.compile(ddp, backend="eager"), torch.compile(inner, backend="eager")):
        found = state.state_dict(model)["errors"][f"rank {rank}"]
        assert list(found) == list(wanted)
        other = pici.torch.TopKState()
        other.load_state_dict(saved, model)
        same(kept_by(other, ddp).values(), wanted.values())
    own = {f"_orig_mod.{name}": e for name, e in wanted.items()}
    other = pici.torch.TopKState()
    other.load_state_dict({"iter": 2, "errors": own}, ddp)  # of version 0.2
    same(kept_by(other, ddp).values(), wanted.values())


class Square(nn.Module):
    """Layers of one shape, in another order than that of their gradients."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.c, self.a, self.b = (nn.Linear(40, 40, bias=False) for _ in range(3))

    def forward(self, x):
        return self.c(self.b(self.a(x)))


def squares(state, rank, steps, scale=1.0):
    """A new model, after some steps with this state."""
    ddp = DistributedDataParallel(Square())
    ddp.register_comm_hook(state, pici.torch.topk_hook)
    for step in steps:
        ddp.zero_grad()
        (x,) = normal(rank, (8, 40), step=step)
        ddp(scale * x).square().sum().backward()
    return ddp


def pickled_after_load(rank, size):
    """A run that has gone back to a saved state pickles each parameter's errors for that parameter."""
    begin()
    state = pici.torch.TopKState(start_iter=0, min_numel=0)
    ddp = squares(state, rank, range(2))
    state.load_state_dict(state.state_dict(ddp), ddp)
    at_once = pickle.dumps(state)  # the hook has seen the parameters before
    before = kept_by(state, ddp)
    other = pickle.loads(at_once)
    same(kept_by(other, squares(other, rank, [0], scale=0.0)).values(), before.values())
    ddp.zero_grad()
    ddp(normal(rank, (8, 40), step=2)[0]).square().sum().backward()
    wanted, other = kept_by(state, ddp), pickle.loads(pickle.dumps(state))
    raises(RuntimeError, "after an iteration only", other.state_dict, ddp)
    found = kept_by(other, squares(other, rank, [0], scale=0.0))  # without gradients, nothing is sent
    assert all(e.any() for e in wanted.values())
    same(found.values(), wanted.values())


def pickled_with_fewer(rank, size):
    """Errors of a pickle whose parameters the model has no more do not keep the others from being saved."""
    begin()
    state = pici.torch.TopKState(density=0.1, start_iter=0, min_numel=0)
    tensors = normal(rank, (40,), (30,))
    pici.torch.all_reduce([x.clone() for x in tensors], state=state)
    other = pickle.loads(pickle.dumps(state))
    left = [tensors[0].clone()]
    raises(RuntimeError, "after an iteration only", other.state_dict, left)
    pici.torch.all_reduce(left, state=other)
    assert len(other.state_dict(left)["errors"]) == 1


def loaded_for_another(rank, size):
    """A state that a new model takes over counts its parameters from 0 again."""
    begin()
    state = pici.torch.TopKState(start_iter=0, min_numel=0)
    saved = state.state_dict(squares(state, rank, range(2)))
    ddp = DistributedDataParallel(Square())
    state.load_state_dict(saved, ddp)
    raises(RuntimeError, "use state_dict(model) before", pickle.dumps, state)
    ddp.register_comm_hook(state, pici.torch.topk_hook)
    ddp(normal(rank, (8, 40), step=2)[0]).square().sum().backward()
    wanted, other = kept_by(state, ddp), pickle.loads(pickle.dumps(state))
    same(kept_by(other, squares(other, rank, [0], scale=0.0)).values(), wanted.values())


def refuses(rank, size):
    """A state of another kind, version or rank; another number of ranks is a warning."""
    begin()
    state = pici.torch.TopKState(density=0.1, start_iter=0, min_numel=0)
    _, ddp = run_of(state, pici.torch.topk_hook, rank, range(2))
    saved = state.state_dict(ddp)
    other = pici.torch.TopKState()
    raises(TypeError, "bind(model)", other.load_state_dict, saved)
    raises(TypeError, "bind(model)", other.state_dict)
    raises(ValueError, "of a TopKState, and this is a Quan", pici.torch.QuantizeState().load_state_dict, saved, ddp)
    raises(ValueError, "has version 99", other.load_state_dict, dict(saved, version=99), ddp)
    theirs = dict(saved, errors={f"rank {1 - rank}": saved["errors"][f"rank {rank}"]})
    raises(ValueError, f"errors of rank {1 - rank}, and this is rank {rank}", other.load_state_dict, theirs, ddp)
    assert other.iter == 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        other.load_state_dict(dict(saved, ranks=3), ddp)
        assert "of 3 ranks" in str(told[0].message)
    assert other.iter == 2 and not any(e.any() for e in kept_by(other, ddp).values())
    own = kept_by(state, ddp)
    other.load_state_dict({"iter": 7, "errors": own}, ddp)  # of version 0.2
    assert other.iter == 7
    same(kept_by(other, ddp).values(), own.values())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        own["w.0"][3] = float("nan")  # kept by version 0.2
        other.load_state_dict({"iter": 7, "errors": own}, ddp)
        assert "'w.0' is not finite" in str(told[0].message)
    assert all_finite(kept_by(other, ddp).values())
