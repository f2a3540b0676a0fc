# SPDX-License-Identifier: BSD-3-Clause
"""pici.torch with CUDA tensors, over stand-ins for CUDA and NCCL: which calls are made, by which thread, in the order
of which stream. The elements are in the host's memory, so this says nothing about what a GPU does."""
import contextlib
import dataclasses
import datetime
import os
import threading
import types
import unittest
import warnings
from unittest import mock

import torch
import torch.distributed as dist

import hooks_cases as cases
import pici.torch
import ranks
from pici import _gpu, _peers
from pici.torch import _cuda, _fsdp, _group, _lists

GPU = torch.device("cuda", 0)
POINTER, STREAM = 4096, 8192  # an ncclComm_t, a cudaStream_t


class OnGpu(torch.Tensor):
    """A tensor in the host's memory that says it is on a GPU."""

    device = property(lambda self: GPU)

    def record_stream(self, stream):
        log("record_stream", stream)


def on_gpu(x):
    return x.clone().as_subclass(OnGpu)


def on_host(x):
    return x.as_subclass(torch.Tensor)


seen = []
_current = threading.local()


def log(*what):
    seen.append(what)


def stream_now():
    return getattr(_current, "stream", "torch's")


class Stream:
    cuda_stream = STREAM

    def __init__(self, device):
        assert device == GPU

    def wait_event(self, event):
        log("wait_event", event.of, by())

    def __repr__(self):
        return "pici's"


class Event:
    """It has happened when it is looked at for the second time; never, if hung."""

    of, looks, hung = None, 0, False

    def record(self, stream):
        self.of = stream

    def query(self):
        self.looks += 1
        if self.looks == 2:
            log("waited for", self.of)
        return self.looks > 1 and not self.hung


@contextlib.contextmanager
def stream(of):
    before, _current.stream = stream_now(), str(of)
    yield
    _current.stream = before


def by():
    return "the thread" if threading.current_thread().name == "pici.torch" else "the caller"


class Future(torch.futures.Future):
    """A future of CUDA tensors, which the real one refuses without a GPU."""

    def __new__(cls, devices=None):
        return super().__new__(cls)

    def __init__(self, devices=None):
        super().__init__()
        log("Future", devices)

    def set_result(self, result):
        log("set_result", stream_now())
        super().set_result(result)


class Over:
    """A communicator that calls itself NCCL's."""

    def __init__(self, comm):
        self._comm = comm

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def _call(self, name, send, recv, *args, **options):
        assert send.device.type == recv.device.type == "cuda"
        log(name, stream_now(), by())
        values = options.get("values")
        if values is not None and values.residual is not None:
            assert values.residual.device.type == "cuda"
            options["values"] = dataclasses.replace(values, residual=on_host(values.residual))
        getattr(self._comm, name)(on_host(send), on_host(recv), *args, **options)

    def all_reduce(self, *args, **options):
        self._call("all_reduce", *args, **options)

    def all_gather(self, *args, **options):
        self._call("all_gather", *args, **options)

    def reduce_scatter(self, *args, **options):
        self._call("reduce_scatter", *args, **options)


class NcclGroup:
    """A process group of NCCL; pointer: the name of what tells its ncclComm_t."""

    def __init__(self, name):
        if name:
            setattr(self, name, lambda: POINTER)

    def _get_backend(self, device):
        assert device == GPU
        return self


def with_attributes(of, **changed):
    """A module that is another one but for some members."""
    module = types.ModuleType(of.__name__)
    module.__getattr__ = lambda name: getattr(of, name)
    vars(module).update(changed)
    return module


@contextlib.contextmanager
def stand_ins(pointer_name="comm_ptr"):
    """CUDA and NCCL, as pici.torch sees them."""

    def nccl(pointer, stream):
        log("nccl", pointer, stream, by())
        members = made[-1]
        own = dist.PrefixStore(f"stand-in/{members}", dist.distributed_c10d._get_default_store())
        rank = members.index(dist.get_rank())
        return Over(pici.Comm.sockets(_peers.connect(own, rank, len(members), 30), rank, len(members)))

    def levels(inner, outer):
        log("levels", inner._comm.size, outer.size, by())
        return Over(pici.Comm.levels(inner._comm, outer))

    def new_group(members, backend, use_local_synchronization=False):
        log("new_group", members, backend, use_local_synchronization)
        made.append(members)
        return NcclGroup(pointer_name)

    made = []
    cuda = types.SimpleNamespace(
        Stream=Stream,
        Event=Event,
        stream=stream,
        current_stream=lambda device: stream_now(),
        set_device=lambda device: log("set_device", device, by()),
    )
    own = with_attributes(torch, cuda=cuda, zeros=lambda n, device: torch.zeros(n))
    futures = types.SimpleNamespace(Future=Future)
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (_cuda, "torch", own),
            (_cuda, "dist", with_attributes(dist, new_group=new_group, all_reduce=lambda x, group: log("first"))),
            (_cuda, "Comm", types.SimpleNamespace(nccl=nccl, levels=levels)),
            (_group, "torch", with_attributes(torch, cuda=cuda, futures=futures)),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


class Bucket:
    """What a hook needs of torch's GradBucket."""

    def __init__(self, x):
        self.x = x

    def index(self):
        return 0

    def buffer(self):
        return self.x

    def parameters(self):
        return [self.x]

    def gradients(self):
        return [self.x]

    def is_last(self):
        return True


MAKES = [
    ("first",),
    ("waited for", "torch's"),
    ("set_device", GPU, "the thread"),
    ("nccl", POINTER, STREAM, "the thread"),
]


def call(name):
    """What a call does."""
    return [
        ("record_stream", "pici's"),
        ("Future", [GPU]),
        ("wait_event", "torch's", "the thread"),
        (name, "pici's", "the thread"),
        ("set_result", "pici's"),
    ]


def taken():
    found = [tuple(str(v) if isinstance(v, Stream) else v for v in what) for what in seen]
    seen.clear()
    return found


def selects_f16():
    """Whether torch.topk takes float16 on the CPU, which stands for the GPU here."""
    try:
        torch.topk(torch.ones(2, dtype=torch.float16), 1)
    except RuntimeError:
        return False
    return True


def averages(rank, size):
    """The hooks: a communicator for the group at first, then calls on its stream, which waits for the gradients."""
    cases.begin()
    makes = [("new_group", list(range(size)), "nccl", False), *MAKES]
    with warnings.catch_warnings(record=True) as caught, stand_ins():
        warnings.simplefilter("always")
        for hook, state in ((pici.torch.all_reduce_hook, None), (pici.torch.topk_hook, cases.whole_topk())):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                if hook is pici.torch.topk_hook and dtype == torch.float16 and not selects_f16():
                    continue
                every = [cases.integers(r, (3000,), factor=size, dtype=dtype)[0] for r in range(size)]
                x = on_gpu(every[rank])
                found = hook(state, Bucket(x)).wait()
                assert found.data_ptr() == x.data_ptr()
                cases.same([on_host(found)], [sum(every) / size])
                assert taken() == makes + call("all_reduce"), seen
                makes = []
        assert not _group._of_group  # nothing of the host's
    told = [str(w.message) for w in caught if "pici" in str(w.message)]
    return [words for words in told if "two models" not in words]  # each bucket is a model here


class Model(Bucket):
    """A bucket of two parameters, whose gradients are given. place: where they are."""

    def __init__(self, place, lengths):
        self.place, self.lengths = place, lengths
        self.of = [place(torch.zeros(n)) for n in lengths]

    def with_gradients(self, x):
        self.x = self.place(x)
        return self

    def parameters(self):
        return self.of


def lossy(rank, size):
    """The hooks that keep errors give what they give in the host's memory, where no two magnitudes are equal."""
    cases.begin()
    lengths = [3000, 500]
    topk, quantize = pici.torch.TopKState, pici.torch.QuantizeState
    for i, make in enumerate(
        [
            lambda: topk(density=0.1, start_iter=1),
            lambda: topk(density=0.03, start_iter=0, min_numel=1),
            lambda: topk(density=0.1, start_iter=0, selection="bucket", min_numel=1),
            lambda: topk(density=0.1, start_iter=0, error_feedback=False),
            lambda: topk(density=0.1, start_iter=0, bits=4),
            lambda: topk(density=0.1, start_iter=1, momentum=0.5, leak=0.5),
            lambda: quantize(bits=8, start_iter=1),
            lambda: quantize(values={"codec": "cast"}, error_feedback=False),
        ]
    ):
        there, here = make(), make()
        hook = pici.torch.topk_hook if isinstance(there, topk) else pici.torch.quantize_hook
        models = Model(on_gpu, lengths), Model(torch.clone, lengths)
        for step in range(5):
            x = torch.randn(sum(lengths), generator=torch.Generator().manual_seed(100 * i + 10 * step + rank))
            if step == 2:
                x[: lengths[0]] = 0  # a parameter that was not used
            if step == 3 and rank == 1:
                x[7] = float("inf")
            with stand_ins():
                found = hook(there, models[0].with_gradients(x)).wait()
                assert found.device == GPU and ("all_reduce", "pici's", "the thread") in taken()
            want = hook(here, models[1].with_gradients(x)).wait()
            assert taken() == []
            assert torch.isfinite(want).all() == (step != 3)
            cases.same([torch.nan_to_num(on_host(found))], [torch.nan_to_num(want)])
        found, want = (dict(state._errors.items()) for state in (there, here))
        assert len(found) == len(want) and bool(want) == there.error_feedback
        for on_the_gpu, on_the_host in zip(*(model.of for model in models)):
            if id(on_the_host) in want:
                assert found[id(on_the_gpu)].device == GPU and found[id(on_the_gpu)].any()
                cases.same([on_host(found[id(on_the_gpu)])], [want[id(on_the_host)]])
        for name in ("calls", "density", "wire_bytes", "events", "lost"):
            assert there.stats()[name] == here.stats()[name], (i, name, there.stats(), here.stats())


def part_of_the_ranks(rank, size):
    """A group of some ranks makes its group of NCCL without the others."""
    cases.begin()
    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    mine = groups[rank // 2]
    members = [[0, 1], [2]][rank // 2]
    with stand_ins("_comm_ptr"):
        x = on_gpu(torch.full((100,), float(rank + 1)))
        pici.torch.all_reduce_hook(mine, Bucket(x)).wait()
        cases.same([on_host(x)], [torch.full((100,), sum(r + 1.0 for r in members) / len(members))])
        assert taken()[0] == ("new_group", members, "nccl", True)


def two_levels(rank, size):
    """NCCL inside hosts and sockets between."""
    cases.begin()
    hosts = ["a", "b", "a"]
    members = [r for r in range(size) if hosts[r] == hosts[rank]]
    with stand_ins(), mock.patch.dict(os.environ, {"NCCL_HOSTID": hosts[rank], "PICI_TORCH_OUTER": "sockets"}):
        for _ in range(2):
            x = on_gpu(torch.full((100,), float(rank + 1)))
            pici.torch.all_reduce_hook(None, Bucket(x)).wait()
            cases.same([on_host(x)], [torch.full((100,), sum(r + 1.0 for r in range(size)) / size)])
        made = taken()
    assert made[0] == ("new_group", members, "nccl", True), made
    assert made.count(("levels", len(members), size, "the thread")) == 1, made


def other_outers(rank, size):
    """Ranks with another PICI_TORCH_OUTER, or one that is none."""
    cases.begin()
    for said, words in ((["sockets", ""], "must be the same"), (["mpi", "mpi"], "PICI_TORCH_OUTER=mpi: not sockets")):
        with stand_ins(), mock.patch.dict(os.environ, {"PICI_TORCH_OUTER": said[rank]}):
            x = on_gpu(torch.ones(100))
            cases.raises(ValueError, words, pici.torch.all_reduce_hook, None, Bucket(x))


def hung(rank, size):
    """NCCL's first collective does not end."""
    cases.begin()
    soon = datetime.timedelta(milliseconds=20)
    with stand_ins(), mock.patch.object(Event, "hung", True), mock.patch.object(
        _cuda, "group_timeout", lambda *_: soon
    ):
        cases.raises(
            pici.TimedOutError,
            "took more than 20 ms",
            pici.torch.all_reduce_hook,
            None,
            Bucket(on_gpu(torch.ones(10))),
        )


def unknown_pointer(rank, size):
    cases.begin()
    with stand_ins(None):
        cases.raises(
            NotImplementedError,
            "does not tell its ncclComm_t",
            pici.torch.all_reduce_hook,
            None,
            Bucket(on_gpu(torch.ones(10))),
        )


def shards(rank, size):
    """The collectives of FSDP2."""
    cases.begin()
    with stand_ins():
        for wait in (True, False):
            x, whole = on_gpu(torch.full((5,), float(rank))), on_gpu(torch.zeros(5 * size))
            work = _fsdp.AllGather()(whole, x, dist.group.WORLD, not wait)
            assert (work is None) == wait
            if work:
                work.wait()
            cases.same([on_host(whole)], [torch.arange(size).repeat_interleave(5).float()])
            assert taken()[-5:] == call("all_gather")
            part = on_gpu(torch.zeros(5))
            _fsdp.ReduceScatter()(part, whole, dist.group.WORLD, dist.ReduceOp.AVG)
            cases.same([on_host(part)], [torch.full((5,), float(rank))])
            assert taken() == call("reduce_scatter")


def without_the_flag(rank, size):
    """CUDA tensors are torch's, which one warning says."""
    cases.begin()
    with warnings.catch_warnings(record=True) as caught, stand_ins():
        warnings.simplefilter("always")
        for _ in range(2):
            x = on_gpu(torch.full((100,), float(rank)))
            pici.torch.all_reduce_hook(None, Bucket(x)).wait()
            cases.same([on_host(x)], [torch.full((100,), (size - 1) / 2)])
        assert taken() == []
    return [str(w.message) for w in caught if "pici" in str(w.message)]


class Late(torch.futures.Future):
    """A future of a GPU's tensors that has ended for the host. A stream that waits for it gets its elements."""

    def __new__(cls, work):
        return super().__new__(cls)

    def __init__(self, work):
        super().__init__()
        self._work = work

    def wait(self):
        self._work()
        return super().wait()


class LateState(pici.torch.State):
    def _run(self, group, bucket, raw=False):
        x = bucket.buffer()
        future = Late(lambda: x.fill_(7))
        future.set_result(x)
        return future


def lists(rank, size):
    """all_reduce of a list copies results out of its buckets after the stream has waited for them, and its future has
    the tensors in the order of that stream."""
    cases.begin()
    futures = types.SimpleNamespace(Future=Future, collect_all=torch.futures.collect_all)
    for place in on_gpu, torch.clone:
        for async_op in False, True:
            xs = [place(torch.zeros(3)), place(torch.zeros(2, 2)), place(torch.zeros(4, dtype=torch.float64))]
            with mock.patch.object(_lists, "torch", with_attributes(torch, futures=futures)):
                found = pici.torch.all_reduce(xs, state=LateState(), async_op=async_op)
            found = found.wait() if async_op else found
            assert all(f is x for f, x in zip(found, xs))
            cases.same([on_host(x) for x in found], [torch.full_like(on_host(x), 7) for x in xs])
            assert taken() == [("Future", [GPU]), ("set_result", "torch's")] * (async_op and place is on_gpu)


def list_that_fails(rank, size):
    """The error of a call is that of the list, with the tensors on a GPU too."""
    cases.begin()
    state = LateState()
    futures = types.SimpleNamespace(Future=Future, collect_all=torch.futures.collect_all)

    def failed(group, bucket, raw=False):
        future = torch.futures.Future()
        future.set_exception(pici.PeerError("it is gone"))
        return future

    state._run = failed
    for async_op in False, True:
        with mock.patch.object(_lists, "torch", with_attributes(torch, futures=futures)):
            cases.raises(
                pici.PeerError,
                "it is gone",
                lambda: pici.torch.all_reduce([on_gpu(torch.ones(2))], state=state, async_op=async_op).wait(),
            )
    taken()


class OfTorch:
    """A stream that work of torch is in."""

    def __init__(self, name, address):
        self.name, self.cuda_stream = name, address

    def wait_stream(self, other):
        log(self.name, "waits for", other.name)


class Logged(OnGpu):
    def contiguous(self):
        log("copied")
        return on_host(self).contiguous().as_subclass(Logged)

    def new_empty(self, shape):
        log("allocated")
        return on_host(self).new_empty(shape).as_subclass(Logged)


class OrderOfAStream(unittest.TestCase):
    """A communicator over NCCL copies a tensor, and allocates a result, in the order of its own stream, which is
    another one than torch's current."""

    def comm(self, stream):
        """Of one rank, whose memory is the host's."""
        comm = pici.Comm.threads(1)[0]
        self.addCleanup(comm.close)
        comm._on_gpu = _gpu.Order(stream)
        return comm

    def calls(self, comm):
        """What three calls log: on a tensor that is copied, with an allocated result, and on neither."""
        x = torch.arange(12.0).reshape(3, 4)
        recv, whole = x.clone().as_subclass(Logged), x.as_subclass(Logged)
        cases.same([on_host(comm.all_reduce(whole.t(), recv))], [x.t().reshape(3, 4)])
        cases.same([on_host(comm.all_gatherv(whole, [12]))], [x])
        comm.all_reduce(recv, recv)
        return taken()

    def test_order(self):
        around = lambda own, what: [("current", "waits for", own), (what,), (own, "waits for", "current")]  # noqa: E731
        for address, own in ((STREAM, "external"), (0, "default")):
            cuda = types.SimpleNamespace(
                current_stream=lambda device: OfTorch("current", 77),
                ExternalStream=lambda address, device: OfTorch("external", address),
                default_stream=lambda device: OfTorch("default", 0),
            )
            with mock.patch.object(torch, "cuda", cuda):
                self.assertEqual(self.calls(self.comm(address)), around(own, "copied") + around(own, "allocated"))
            cuda.current_stream = lambda device, address=address: OfTorch("current", address)
            with mock.patch.object(torch, "cuda", cuda):
                self.assertEqual(self.calls(self.comm(address)), [("copied",), ("allocated",)])

    def test_two_levels(self):
        """The order is that of the inner communicator."""
        inner, outer = self.comm(STREAM), pici.Comm.threads(1)[0]
        both = pici.Comm.levels(inner, outer)
        self.addCleanup(both.close)
        self.assertIs(both._on_gpu, inner._on_gpu)


class Cuda(unittest.TestCase):
    ON = {"PICI_TORCH_CUDA": "1"}

    def test_hooks(self):
        for words in ranks.run(2, averages, environment=self.ON):
            self.assertEqual(words, [])
        if not selects_f16():
            self.skipTest(f"top-k of float16 on CUDA: torch {torch.__version__} selects none on the CPU, its stand-in")

    def test_hooks_with_errors(self):
        ranks.run(2, lossy, environment=self.ON)

    def test_group_of_some_ranks(self):
        ranks.run(3, part_of_the_ranks, environment=self.ON)

    def test_two_levels(self):
        ranks.run(3, two_levels, environment=self.ON)

    def test_other_outers(self):
        ranks.run(2, other_outers, environment=self.ON)

    def test_torch_without_the_pointer(self):
        ranks.run(1, unknown_pointer, environment=self.ON)

    def test_nccl_that_hangs(self):
        ranks.run(1, hung, environment=self.ON)

    def test_fsdp(self):
        ranks.run(2, shards, environment=self.ON)

    def test_lists(self):
        ranks.run(1, lists)
        ranks.run(1, list_that_fails)

    def test_off(self):
        for environment in ({}, {"PICI_TORCH_CUDA": "0"}):
            for words in ranks.run(2, without_the_flag, environment=environment):
                self.assertEqual(len(words), 1, words)
                self.assertRegex(words[0], "CUDA tensors go to gloo.*PICI_TORCH_CUDA=1")


if __name__ == "__main__":
    unittest.main()
