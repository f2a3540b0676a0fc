# SPDX-License-Identifier: BSD-3-Clause
"""pici.torch.fully_shard: FSDP2 with the collectives of pici."""
import unittest

import torch
import torch.distributed as dist
from torch import nn

import hooks_cases as cases
import pici.torch
import ranks
from pici.torch import _fsdp, _group

HAS = _fsdp._has_fully_shard() and hasattr(torch.distributed.fsdp.FSDPModule, "set_custom_all_gather")


def build(policy=None, replicas=1):
    """replicas: of HSDP."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 65), nn.ReLU(), nn.Linear(65, 33), nn.ReLU(), nn.Linear(33, 5))
    size = dist.get_world_size()
    shape, names = ((size,), ("shard",)) if replicas == 1 else ((replicas, size // replicas), ("replicate", "shard"))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    options = {"mesh": mesh, **({"mp_policy": policy} if policy else {})}
    for layer in model[::2]:
        torch.distributed.fsdp.fully_shard(layer, **options)
    torch.distributed.fsdp.fully_shard(model, **options)
    return model


def losses(rank, model, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for step in range(steps):
        own = torch.Generator().manual_seed(100 * step + rank)
        x, y = torch.randn(16, 32, generator=own), torch.randint(0, 5, (16,), generator=own)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def trains(rank, size, narrow):
    cases.begin()
    policy = None
    if narrow:
        policy = torch.distributed.fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    wanted = losses(rank, build(policy))
    model = build(policy)
    pici.torch.fully_shard(model)
    found = losses(rank, model)
    for f, w in zip(found, wanted):
        assert abs(f - w) <= 2e-5 * abs(w), (found, wanted)
    return _group.communicator().stats.calls


def lossy(rank, size):
    """Gradients of 8 and 4 bits: fewer bytes, and almost the losses of exact ones."""
    cases.begin()
    wanted, sent = losses(rank, build(), 20), []
    for options in ({}, {"bits": 8}, {"bits": 4, "timeout": 60}, {"values": {"codec": "cast"}}):
        model = build()
        state = pici.torch.fully_shard(model, **options)
        found = losses(rank, model, 20)
        for f, w in zip(found, wanted):
            assert abs(f - w) <= (0.3 if options.get("bits") == 4 else 0.05) * abs(w), (options, found, wanted)
        stats = state.stats()
        assert stats["calls"] >= 20 * 2 * 3, stats
        sent.append(stats["wire_bytes"])
    assert sent[2] < sent[1] < sent[3] < sent[0], sent


def replicates(rank, size):
    """HSDP: all of its collectives are pici's, and the all-reduce has few bits too."""
    cases.begin()
    wanted, sent = losses(rank, build(replicas=2), 20), []
    for options in ({}, {"bits": 8}, {"bits": 4}):
        model = build(replicas=2)
        pici.torch.fully_shard(model, bits=2)
        state = pici.torch.fully_shard(model, **options)  # takes the place of the former
        found = losses(rank, model, 20)
        for f, w in zip(found, wanted):
            assert abs(f - w) <= {4: 0.3, 8: 0.05, None: 2e-5}[options.get("bits")] * abs(w), (options, found, wanted)
        stats = state.stats()
        assert stats["calls"] >= 20 * 3 * (3 if size > 2 else 1), stats
        sent.append(stats["wire_bytes"])
    assert sent[2] < sent[1] < sent[0], sent
    model = build(replicas=2)
    state = pici.torch.fully_shard(model, bits=4)
    model.set_requires_all_reduce(False)
    losses(rank, model, 1)
    calls = state.stats()["calls"]
    model.set_requires_all_reduce(True)
    losses(rank, model, 1)
    assert state.stats()["calls"] == 2 * calls + 3, (calls, state.stats())


def replicates_other(rank, size):
    """What pici does not sum is torch's, and a rank that is gone is named."""
    cases.begin()
    state = pici.torch.State()
    group = _fsdp.Replicas(dist.group.WORLD, state, None)
    x = torch.full((5,), rank, dtype=torch.int32)
    dist.all_reduce(x, group=group)
    cases.same([x], [torch.full((5,), size * (size - 1) // 2, dtype=torch.int32)])
    x = torch.full((5,), float(rank))
    dist.all_reduce(x, dist.ReduceOp.MAX, group=group)
    cases.same([x], [torch.full((5,), size - 1.0)])
    assert state.stats()["calls"] == 0
    with torch.autograd.profiler.profile() as profile:
        dist.all_reduce(x, group=group)
    assert "pici:all_reduce" in [e.name for e in profile.function_events]
    assert state.stats()["calls"] == 1
    if rank != 1:
        cases.raises(pici.PeerError, "rank 1", lambda: dist.all_reduce(x, group=group))


def collectives(rank, size):
    """The two by themselves: async, in place, and what is torch's."""
    cases.begin()
    gather, scatter = _fsdp._with_base(_fsdp.AllGather), _fsdp._with_base(_fsdp.ReduceScatter)
    group = dist.group.WORLD
    x = torch.arange(6.0).view(2, 3) + 10 * rank
    whole = gather.allocate((2 * size, 3), dtype=torch.float32, device=torch.device("cpu"))
    assert gather(whole, x, group) is None
    wanted = torch.cat([torch.arange(6.0).view(2, 3) + 10 * r for r in range(size)])
    cases.same([whole], [wanted])
    whole.zero_()
    own = whole[2 * rank : 2 * rank + 2]
    own.copy_(x)
    work = gather(whole, own, group, async_op=True)
    assert isinstance(work, dist.distributed_c10d.Work)
    work.wait()
    assert work.is_completed()
    cases.same([whole], [wanted])

    flags = torch.tensor([rank == 1, True])
    everybody = torch.empty(2 * size, dtype=torch.bool)
    gather(everybody, flags, group)
    cases.same([everybody], [torch.tensor([v for r in range(size) for v in (r == 1, True)])])

    for op, factor in ((dist.ReduceOp.SUM, size), (dist.ReduceOp.AVG, 1)):
        part = torch.empty(2, 3)
        work = scatter(part, wanted.clone(), group, op, True)
        work.wait()
        cases.same([part], [factor * x])
    calls = _group.communicator().stats.calls
    assert calls == 5, calls
    part = torch.empty(6, dtype=torch.int32)
    scatter(part, torch.ones(6 * size, dtype=torch.int32), group, dist.ReduceOp.SUM)
    cases.same([part], [torch.full((6,), size, dtype=torch.int32)])
    part = torch.empty(6)
    scatter(part, torch.full((6 * size,), float(rank)), group, dist.ReduceOp.MAX)
    cases.same([part], [torch.full((6,), size - 1.0)])
    assert _group.communicator().stats.calls == calls


def fails(rank, size):
    """A rank that is gone, in a call that waits and in one that does not."""
    cases.begin()
    gather = _fsdp.AllGather()
    x, whole = torch.ones(10), torch.empty(10 * size)
    gather(whole, x, dist.group.WORLD)
    if rank == 1:
        return None
    words = []
    for wait in (False, True):
        try:
            work = gather(whole, x, dist.group.WORLD, not wait)
            if work is not None:
                work.wait()
        except pici.Error as e:
            words.append(f"{type(e).__name__}: {e}")
    return words


class Old(nn.Module):
    """As FSDP2 before custom collectives."""

    def _get_fsdp_state(self):
        return None


class New(nn.Module):
    """An FSDP2 module with some groups of parameters."""

    def __init__(self, groups):
        super().__init__()
        self._fsdp_param_groups = groups * [None]
        self.calls = 0

    def _get_fsdp_state(self):
        return self

    def set_custom_all_gather(self, comm):
        self.calls += 1

    set_custom_reduce_scatter = set_custom_all_gather


class FullyShard(unittest.TestCase):
    @unittest.skipUnless(HAS, f"FSDP2 with custom collectives: torch {torch.__version__} has none")
    def test_losses_equal_gloo(self):
        for size, narrow in ((2, False), (3, False), (2, True)):
            with self.subTest(size=size, narrow=narrow):
                for calls in ranks.run(size, trains, narrow):
                    self.assertGreaterEqual(calls, 5 * 2 * 3)

    @unittest.skipUnless(HAS, f"FSDP2 with custom collectives: torch {torch.__version__} has none")
    def test_lossy(self):
        for size in (2, 3):
            ranks.run(size, lossy)

    @unittest.skipUnless(HAS, f"FSDP2 with custom collectives: torch {torch.__version__} has none")
    def test_replicas(self):
        for size in (2, 4):
            ranks.run(size, replicates)
        ranks.run(3, replicates_other)

    @unittest.skipUnless(HAS, f"FSDP2 with custom collectives: torch {torch.__version__} has none")
    def test_collectives(self):
        for size in (2, 3):
            ranks.run(size, collectives)

    @unittest.skipUnless(HAS, f"FSDP2 with custom collectives: torch {torch.__version__} has none")
    def test_rank_that_is_gone(self):
        first, second = ranks.run(3, fails)[0]
        self.assertRegex(first, "PeerError.*rank 1")
        self.assertRegex(second, "BrokenError")

    def test_refuses(self):
        with self.assertRaisesRegex(RuntimeError, "needs a newer torch"):
            pici.torch.fully_shard(nn.Sequential(nn.Linear(2, 2), Old()))
        model = nn.Sequential(New(2))
        with self.assertRaisesRegex(ValueError, "several groups of parameters"):
            pici.torch.fully_shard(model)
        self.assertEqual(model[0].calls, 0)
        with self.assertRaisesRegex(ValueError, "bits=3"):
            pici.torch.fully_shard(model, bits=3)
        with self.assertRaisesRegex(*((ValueError, "has no module") if HAS else (RuntimeError, "needs a newer torch"))):
            pici.torch.fully_shard(nn.Linear(2, 2))

    @unittest.skipUnless(HAS, f"FSDP2 with custom collectives: torch {torch.__version__} has none")
    def test_sets_both(self):
        """But not of a module with several groups of parameters."""
        one, two, none = New(1), New(2), New(0)
        pici.torch.fully_shard(nn.Sequential(one, two, none))
        self.assertEqual([one.calls, two.calls, none.calls], [2, 0, 2])


if __name__ == "__main__":
    unittest.main()
