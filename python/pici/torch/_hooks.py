# SPDX-License-Identifier: BSD-3-Clause
"""The lossless hook of DistributedDataParallel.

DDP refuses hooks whose annotations are strings, so this module does not import annotations from __future__."""
import inspect
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist
from torch.futures import Future

from .._calls import Calling, Op, Timeout, milliseconds, taken
from .._sparse import Sparse
from .._values import Values
from ..comm import Comm
from . import _cuda
from ._group import agree, communicator, log_call, native, profiled, resolved
from ._sparse import is_ours, reduce
from ._stats import Selected, Stats

#: the dtypes whose sums the library has
SUMMED = {torch.float32, torch.float64, torch.float16, torch.bfloat16}
_COMPLEX = {torch.complex64, torch.complex128}
AVERAGED = SUMMED | _COMPLEX


def flat(x: torch.Tensor) -> torch.Tensor:
    """The elements of a contiguous tensor, one-dimensional; complex numbers as pairs."""
    return (torch.view_as_real(x) if x.is_complex() else x).view(-1)


def flat_length(x: torch.Tensor) -> int:
    """How many elements flat() has."""
    length: int = x.numel() * (2 if x.is_complex() else 1)
    return length


class Prepared(NamedTuple):
    """How to average the gradients of a bucket."""

    selected: Optional[Selected] = None  #: the elements that a selection left
    values: Optional[Values] = None  #: the codec of messages
    finish: Optional[Callable[[], None]] = None  #: called after the average, if there is one
    undo: Optional[Callable[[], None]] = None  #: called if the call fails


def finite(x: torch.Tensor) -> bool:
    """Whether all elements are finite. A finite sum settles most cases."""
    return bool(torch.isfinite(x.sum())) or bool(torch.isfinite(x).all())


class State:
    """Options of all_reduce_hook.

        process_group   the ranks that average; None: the default group
        zeros           "signed", the only value: sums treat -0.0 as zero, and never give -0.0
        min_bytes       torch's own all-reduce averages smaller buckets; the same on all ranks
        timeout         seconds or a timedelta, without progress; None: the group's
        opts            options of pici.Comm.all_reduce, as a dict: {"algorithm": "ring"}

    The hook averages gradients with PICI_AVG; like torch, it first divides float16, which could overflow. All hooks
    average sparse COO gradients exactly, as lists of rows: for example gradients of Embedding(sparse=True). torch
    averages gradients of other layouts or dtypes. Pickling omits the process group.
    """

    hook = "all_reduce_hook"  #: which one uses it

    def __init__(
        self,
        process_group: Optional[dist.ProcessGroup] = None,
        zeros: str = "signed",
        min_bytes: int = 0,
        timeout: Optional[Timeout] = None,
        opts: Optional[dict[str, Any]] = None,
    ) -> None:
        if zeros != "signed":
            raise ValueError(f"zeros={zeros!r}: a sum always takes -0.0 for a zero, which is 'signed'")
        if min_bytes < 0:
            raise ValueError(f"min_bytes={min_bytes}: below 0")
        none = process_group is None or process_group == dist.GroupMember.NON_GROUP_MEMBER  # from a rank outside of it
        if not (none or isinstance(process_group, dist.ProcessGroup)):
            raise TypeError(f"process_group={process_group!r}: pass a process group, or None for the default one")
        reserved = {"send", "recv", "op", "dtype", "timeout"}.intersection(opts or {})
        if reserved:
            raise ValueError(f"opts: {', '.join(sorted(reserved))}: not an option to choose here")
        taken("opts", Calling, opts)  # raises if one is unknown or invalid
        self.process_group = process_group
        self.zeros = zeros
        self.min_bytes = min_bytes
        self.timeout = timeout
        self.opts = dict(opts or {})
        if timeout is not None:
            milliseconds(timeout)  # raises if it is invalid
        self._begin()

    def _begin(self) -> None:
        self._stats = Stats()
        self._agreed: weakref.WeakSet[dist.ProcessGroup] = weakref.WeakSet()

    #: members that a pickle omits
    _unpickled: tuple[str, ...] = ("process_group", "_stats", "_agreed")

    def __repr__(self) -> str:
        known = [name for name in inspect.signature(type(self)).parameters if name in vars(self)]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in known)})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self._unpickled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.process_group = None
        self._begin()

    def stats(self) -> dict[str, float]:
        """Sums over all calls of this rank so far. calls; wire_bytes: sent; dense_bytes: the same as dense messages.
        packed: blocks sent packed. select_s, encode_s, decode_s, wait_s: seconds. density: the fraction of elements
        that top-k kept. events: roundings of an element. lost: the sum of squared rounding errors.
        """
        return self._stats.as_dict()

    def _ours(self, x: torch.Tensor) -> bool:
        """Whether the library averages x. The same on all ranks: decided by layout, dtype, device and length."""
        return (
            x.layout == torch.strided
            and x.dtype in AVERAGED
            and (x.device.type == "cpu" or (x.device.type == "cuda" and _cuda.enabled()))
            and x.numel() * x.element_size() >= self.min_bytes
        )

    def _is_list(self, x: torch.Tensor) -> bool:
        """The same for a sparse tensor, with the length of the dense one."""
        return is_ours(x) and x.dtype in AVERAGED and x.numel() * x.element_size() >= self.min_bytes

    def _choices(self) -> str:
        """The settings that _ours() depends on, besides the bucket."""
        return f"min_bytes={self.min_bytes} and PICI_TORCH_CUDA={int(_cuda.enabled())}"

    def _run(self, group: dist.ProcessGroup, bucket: Any, raw: bool = False) -> Future[torch.Tensor]:
        """Average a bucket, as the state's hook."""
        return self._average(group, bucket.buffer(), raw=raw)

    def _average(
        self,
        group: dist.ProcessGroup,
        buffer: torch.Tensor,
        prepare: Optional[Callable[[], Prepared]] = None,
        raw: bool = False,
    ) -> Future[torch.Tensor]:
        """Average a bucket among the ranks, in place. prepare: called first, in the communicator's thread,
        or in this one if torch averages. raw: the future need not be native()."""
        if group not in self._agreed:
            agree(group, self._choices)
            self._agreed.add(group)
        sparse = self._is_list(buffer)
        if not sparse and not self._ours(buffer):
            if buffer.device.type == "cuda" and not _cuda.enabled():
                _warn_of_cuda(dist.get_backend(group))
            return averaged_by_torch(group, buffer, prepare() if prepare else Prepared())
        on_gpu = buffer.device.type == "cuda"
        c = _cuda.communicator(group, buffer.device) if on_gpu else communicator(group)
        op: Op = "avg"
        if buffer.dtype == torch.float16:
            buffer.div_(c.size)
            op = "sum"
        elements = buffer if sparse else flat(buffer)
        options: dict[str, Any] = {"timeout": c.timeout if self.timeout is None else self.timeout, **self.opts}

        def call(comm: Comm) -> torch.Tensor:
            prepared = Prepared()
            try:
                if prepare:
                    prepared = prepare()
                if prepared.values is not None:
                    options["values"] = prepared.values
                if sparse:
                    reduce(comm, buffer, op, {name: x for name, x in options.items() if name in Sparse.__annotations__})
                else:
                    comm.all_reduce(elements, elements, op, **options)
                if prepared.finish:
                    prepared.finish()
            except BaseException:
                if prepared.undo:
                    prepared.undo()
                comm.close()  # or the other ranks would wait for this one
                raise
            last = comm.stats
            log_call(self.hook, elements.numel(), last)
            for stats in (self._stats, c.stats):
                stats.add_call(last)
                if prepared.selected:
                    stats.add_selection(prepared.selected)
            return buffer

        future, _ = profiled(self.hook, lambda: _cuda.submit(c, call, buffer) if on_gpu else c.submit(call))
        return future if raw else native(future)


def averaged_by_torch(
    group: dist.ProcessGroup, buffer: torch.Tensor, prepared: Prepared = Prepared()
) -> Future[torch.Tensor]:
    """Average with the group's own all-reduce, as torch's allreduce_hook."""

    def first(future: Future[Any]) -> torch.Tensor:
        try:
            value = future.value()
        except BaseException:
            if prepared.undo:
                prepared.undo()
            raise
        if prepared.finish:
            prepared.finish()
        average: torch.Tensor = value[0] if isinstance(value, (list, tuple)) else value
        return average

    buffer.div_(dist.get_world_size(group))
    work = dist.all_reduce(buffer, group=group, async_op=True)
    future: Future[torch.Tensor] = work.get_future().then(first)
    return future


_warned = False


def _warn_of_cuda(backend: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"pici.torch: CUDA tensors go to {backend}, as without pici. PICI_TORCH_CUDA=1 sends them through pici, "
            "which no test has done on a GPU",
            stacklevel=3,
        )


#: of hooks that were registered without a State
_default = State()


def all_reduce_hook(state: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """A DDP communication hook: averages gradients exactly, and sends messages with mostly zero elements as blocks.

        ddp.register_comm_hook(None, pici.torch.all_reduce_hook)

    state: None, a process group, or a pici.torch.State. The hook runs while backward() computes further gradients.
    backward() raises errors, on all ranks."""
    if isinstance(state, State):
        if state.hook != "all_reduce_hook":
            raise TypeError(f"all_reduce_hook does not use a {type(state).__name__}: register pici.torch.{state.hook}")
        return state._average(resolved(state.process_group), bucket.buffer())
    return _default._average(resolved(state), bucket.buffer())
