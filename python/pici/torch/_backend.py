# SPDX-License-Identifier: BSD-3-Clause
"""The backend "pici" of torch.distributed, for tensors in host memory.

    torch.distributed.init_process_group("cpu:pici")              # or backend="pici"
    torch.distributed.init_process_group("cpu:pici,cuda:nccl")

torch 2.15 finds the backend by itself where pici is installed. torch 2.14 needs `import pici.torch` first. Older
versions do not support backends written in Python: there pici.torch.all_reduce_hook does the same for DDP gradients.

pici makes these calls, for dtypes of the library:

    - all_reduce, all_gather_into_tensor (all_gather_single) and reduce_scatter_tensor (reduce_scatter_single), also
      coalesced, all_gather and broadcast, with SUM, AVG, MIN or MAX, of strided tensors with at least
      PICI_TORCH_MIN_BYTES bytes together (default 65536; for all_gather_into_tensor and all_gather, the output counts)
    - calls of any size that gloo does not support: dtypes such as int16, AVG of integers, and all_gather of tensors of
      different sizes
    - all_to_all_single and all_to_all, of tensors of one such dtype; sizes may differ from rank to rank
    - all_reduce of sparse COO tensors, such as the gradients of Embedding(sparse=True); it coalesces them

An inner ProcessGroupGloo makes all other calls. The choice depends only on the operation, layouts, dtypes and sizes,
which are the same on all ranks, and never on the contents of a sparse tensor. A rank works on a copy of a tensor that
is not contiguous. gloo gets a copy too: in torch 2.15, some of its calls treat the memory of such a tensor as
row-major.

torch.compile does not trace these methods: a compiled function has a graph break at a collective, as with gloo.

Results: the library adds in the order of its algorithm. Sums have the same bits on all ranks, and never contain -0.0.
An AVG of integers is rounded toward zero.

pici makes its calls on its own thread, in order. async_op=True returns at once. For a Work of a Python backend, wait()
and get_future() work. is_completed() is always False in torch 2.15, since torch does not ask the backend: use
get_future().done(). For the same reason recv() from any source fails after it has received; irecv() from any source
works.

Errors: on every rank, wait(), or the call itself without async_op, raises an exception of pici.errors that is also a
torch.distributed.DistBackendError. It names the failed rank if known. The group is then broken: later calls of pici
raise BrokenError. gloo does not make them instead, since other ranks might not do so. Destroy the group and make a new
one. abort() breaks it from another thread.

If ranks pass tensors of different sizes, one rank may call pici and another gloo. Such a call waits for the group's
timeout, as with gloo alone; TORCH_DISTRIBUTED_DEBUG=DETAIL names it at once."""
from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d

from .. import errors
from ..comm import Comm
from ._group import Communicator, Watch, log_call, profiled
from ._sparse import DTYPES, OPS, is_ours, reduce

NAME = "pici"
MIN_BYTES = 65536

Base: Any = getattr(_c10d, "Backend", object)
WorkBase: Any = getattr(_c10d, "Work", object)

#: the ones that gloo lacks
_NOT_GLOOS = frozenset(
    getattr(torch, name)
    for name in "int16 uint16 uint32 uint64 float8_e4m3fn float8_e5m2".split()
    if hasattr(torch, name)
)

_NONSENSE = -1  # a rank's message to the others if its PICI_TORCH_MIN_BYTES is not a number

#: The backends that are in use. A wrapper of torch (TORCH_DISTRIBUTED_DEBUG=DETAIL) keeps only the C++ part of one.
_in_use: set[Any] = set()


def min_bytes() -> int:
    """PICI_TORCH_MIN_BYTES. ValueError: it is not a number of bytes."""
    text = os.environ.get("PICI_TORCH_MIN_BYTES", "")
    if not text:
        return MIN_BYTES
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError(f"PICI_TORCH_MIN_BYTES={text}: not a number of bytes such as {MIN_BYTES}")
    return int(text)


def _named(error: BaseException, rank: int, group: str) -> BaseException:
    """An error of a call, with this rank, as torch's own backends raise it: a DistBackendError."""
    if not isinstance(error, errors.Error):
        return error
    kind = type(error)
    base = getattr(dist, "DistBackendError", RuntimeError)
    members = {
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
        "__reduce__": lambda self: (kind, self.args),  # pickle cannot find a class defined here
        "status": error.status,
    }
    named: BaseException = type(kind.__name__, (kind, base), members)(f"rank {rank} of group {group!r}: {error}")
    return named


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in row-major order: the tensor's own memory if it is row-major, else a copy."""
    plain = tensor.detach()
    return plain if plain.is_contiguous() and not plain.is_neg() else plain.resolve_neg().contiguous()


def _written(tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """The tensor, with the elements of its _memory()."""
    if memory.data_ptr() != tensor.data_ptr():
        with torch.no_grad(), torch.inference_mode(tensor.is_inference()):
            tensor.copy_(memory)
    return tensor


def _apart(send: torch.Tensor, whole: torch.Tensor, part: torch.Tensor, rank: int) -> torch.Tensor:
    """The tensor to send, or a copy if its memory overlaps the results. The library supports only one overlap: `part`
    is this rank's place in `whole`."""
    begin, end = whole.data_ptr(), whole.data_ptr() + whole.nbytes
    if (
        part.data_ptr() == begin + rank * part.nbytes
        or part.data_ptr() >= end
        or part.data_ptr() + part.nbytes <= begin
    ):
        return send
    return send.clone()


def _fit(wholes: list[torch.Tensor], parts: list[torch.Tensor], size: int) -> bool:
    """Whether each of `wholes` has as many elements as its part on all ranks. If not, gloo reports the error."""
    return len(wholes) == len(parts) and all(
        whole.numel() == size * part.numel() and whole.dtype is part.dtype and part.layout is torch.strided
        for whole, part in zip(wholes, parts)
    )


def _row_major(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [_memory(x) if x.layout is torch.strided else x for x in tensors]


class Work(WorkBase):
    """A queued call of pici. future: of the list of result tensors; recorded: one that ends when the profiler knows, or
    None."""

    def __init__(self, future: Any, where: tuple[int, str], recorded: Any = None) -> None:
        super().__init__()
        self._future = future
        self._where = where
        self._recorded = recorded

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the end of the call, and raise its error. timeout: of this wait, after which the call continues; 0:
        only the call's own, which is the group's."""
        if timeout > timedelta(0) and not self._future.done():
            if not self.wait_for_end(timeout.total_seconds()):
                raise _named(errors.TimedOutError(f"the call did not end within {timeout}"), *self._where)
        self._future.wait()
        if self._recorded is not None:
            self._recorded.wait()
        return True

    def wait_for_end(self, seconds: Optional[float] = None) -> bool:
        """Wait for the end of the call, with or without an error. Returns whether it came in time."""
        ended = threading.Event()
        self._future.add_done_callback(lambda _: ended.set())
        return ended.wait(seconds)

    def get_future(self) -> Any:
        """A future of the list of result tensors. C++ sees its error too, with the same text."""
        return self._future.then(_value)

    def is_completed(self) -> bool:
        return bool(self._future.done())

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[BaseException]:
        """The error of a call that has ended with one."""
        if self._future.done():
            try:
                self._future.value()
            except Exception as e:
                return e
        return None

    def result(self) -> Any:
        return self._future.wait()

    def synchronize(self) -> None:
        self.wait()


def _value(future: Any) -> Any:
    return future.value()


class PiciBackend(Base):
    """One process group on one rank. All ranks of the group make it at the same time: it connects them."""

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, group: str = "", ranks: Optional[list[int]] = None
    ) -> None:
        super().__init__(rank, size)
        self._sequence = 0
        self._timeout = timeout
        self._options = Base.Options(NAME, timeout=timeout)
        self._options.group_name = group
        self._options.global_ranks_in_group = ranks or []
        self._gloo = _c10d.ProcessGroupGloo(dist.PrefixStore("gloo/", store), rank, size, timeout=timeout)
        self._gloo.options.group_name = group
        self._gloo.options.global_ranks_in_group = ranks or []
        self._where = rank, group
        self._last: Any = None  # the future of pici's last call
        self._communicator: Optional[Communicator] = None
        self._least = self._agreed_min_bytes()
        if size > 1:
            self._communicator = Communicator(store, rank, size, timeout, "backend", Watch(self._gloo).look)
        _in_use.add(self)

    def _agreed_min_bytes(self) -> int:
        """PICI_TORCH_MIN_BYTES, which must be the same on all ranks, so that they make the same choices."""
        nonsense = None
        own = torch.tensor([_NONSENSE])
        try:
            own[0] = min_bytes()
        except ValueError as e:
            nonsense = e
        rows = [torch.empty_like(own) for _ in range(self.size())]
        self._gloo.allgather([rows], [own], _c10d.AllgatherOptions()).wait()
        if nonsense is not None:  # which the other ranks know now
            raise nonsense
        settings = [int(row) for row in rows]
        if _NONSENSE in settings:
            raise ValueError(f"PICI_TORCH_MIN_BYTES is not a number of bytes on rank {settings.index(_NONSENSE)}")
        for rank, value in enumerate(settings):
            if value != settings[0]:
                raise ValueError(
                    "PICI_TORCH_MIN_BYTES must be the same on all ranks: it is "
                    f"{settings[0]} on rank 0 and {value} on rank {rank}"
                )
        return settings[0]

    # ---- properties for torch

    def getBackendName(self) -> str:
        return NAME

    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_coalescing(self) -> bool:
        return False

    @property
    def supports_splitting(self) -> bool:
        return True

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        """The number of collectives so far; TORCH_DISTRIBUTED_DEBUG=DETAIL compares it between ranks."""
        return self._sequence

    def set_timeout(self, timeout: timedelta) -> None:
        """The timeout of later calls."""
        self._timeout = self._options._timeout = timeout
        getattr(self._gloo, "set_timeout", self._gloo._set_default_timeout)(timeout)

    _set_default_timeout = set_timeout

    def get_error(self) -> Any:
        broken = self._communicator is not None and self._communicator.broken
        return _c10d.ErrorType.COMM_ERROR if broken else _c10d.ErrorType.SUCCESS

    def split(self, store: Any, ranks: list[int], options: Any) -> Any:
        """The backend of a new group of some of the ranks. NotImplementedError if this rank is not in it: torch 2.15
        would crash at a None."""
        if self.rank() not in ranks:
            raise NotImplementedError(
                f"rank {self.rank()} is in no group of split_group(), which a backend written in Python cannot tell "
                "torch: name every rank in split_ranks, as in [[0, 1], [2]], or use new_group()"
            )
        timeout = options._timeout if options is not None else self._timeout
        group = options.group_name if options is not None else ""
        return PiciBackend(store, ranks.index(self.rank()), len(ranks), timeout, group, self._global(ranks))

    def _global(self, ranks: list[int]) -> list[int]:
        known = list(self._options.global_ranks_in_group)
        return [known[r] for r in ranks] if known else list(ranks)

    def shutdown(self) -> None:
        """Finish earlier calls, and close the connections."""
        if self._communicator is not None:
            self._communicator.close()
        self._gloo.shutdown()
        _in_use.discard(self)

    def abort(self) -> None:
        """Break the connections: calls in flight fail on all ranks."""
        if self._communicator is not None:
            self._communicator.abort()
        self._gloo.abort()
        _in_use.discard(self)

    # ---- calls that pici may make

    def _ours(self, tensors: list[torch.Tensor], op: Any = None) -> bool:
        """Whether pici may make the call, by the tensors with all of its elements. Checks the layout first: a sparse
        tensor has no size in bytes."""
        if not self._takes(tensors):
            return False
        alone = any(x.dtype in _NOT_GLOOS or (op == "avg" and not x.dtype.is_floating_point) for x in tensors)
        return alone or bool(sum(tensor.nbytes for tensor in tensors) >= self._least)

    def _by_gloo(self, tensors: list[torch.Tensor], call: Callable[[list[torch.Tensor]], Any]) -> Any:
        """gloo's call, which writes to these tensors. It gets copies of those that are not in row-major order."""
        memories = _row_major(tensors)
        work = call(memories)
        if all(m.layout is not torch.strided or m.data_ptr() == x.data_ptr() for x, m in zip(tensors, memories)):
            return work

        def written(future: Any) -> list[torch.Tensor]:
            future.value()  # raises if the call failed
            return [_written(x, m) if x.layout is torch.strided else x for x, m in zip(tensors, memories)]

        try:
            ended = work.get_future()
        except RuntimeError:  # gloo's reduce_scatter has none
            work.wait()
            ended = torch.futures.Future()
            ended.set_result(None)
        return Work(ended.then(written), self._where)

    def _takes(self, tensors: list[torch.Tensor]) -> bool:
        """Whether pici supports such tensors, of any size."""
        for tensor in tensors:
            if tensor.layout is not torch.strided or tensor.dtype not in DTYPES or tensor.device.type != "cpu":
                return False
        return self._communicator is not None and bool(tensors)

    def _start(self, name: str, run: Callable[[Comm], list[torch.Tensor]]) -> Work:
        """Queue a call; run(comm) makes it on the communicator's thread, and returns the result tensors."""
        communicator, where = self._communicator, self._where
        assert communicator is not None  # _ours()
        stats = communicator.stats

        def call(comm: Comm) -> list[torch.Tensor]:
            try:
                results = run(comm)
            except errors.Error as e:
                raise _named(e, *where) from e
            log_call(name, sum(x.numel() for x in results), comm.stats)
            stats.add_call(comm.stats)
            return results

        try:
            self._last, recorded = profiled(name, functools.partial(communicator.submit, call))
        except errors.Error as e:  # the communicator is closed
            raise _named(e, *where) from e
        return Work(self._last, where, recorded)

    def _timeout_of(self, options: Any) -> timedelta:
        own: timedelta = options.timeout
        return own if own > timedelta(0) else self._timeout

    def _reduce(self, call: str, tensors: list[torch.Tensor], options: Any) -> Any:
        self._sequence += 1
        op: Any = OPS.get(options.reduceOp.op)
        if op is not None and self._are_lists(tensors) and (call != "allreduce" or len(tensors) == 1):
            return self._reduce_sparse(tensors, op, {"timeout": self._timeout_of(options)})
        if op is None or not self._ours(tensors, op) or (call == "allreduce" and len(tensors) > 1):
            return self._by_gloo(tensors, lambda own: getattr(self._gloo, call)(own, options))
        timeout = self._timeout_of(options)

        def run(comm: Comm, tensor: torch.Tensor) -> torch.Tensor:
            memory = _memory(tensor)
            comm.all_reduce(memory, memory, op=op, timeout=timeout)
            return _written(tensor, memory)

        return self._start("all_reduce", lambda comm: [run(comm, tensor) for tensor in tensors])

    def _are_lists(self, tensors: list[torch.Tensor]) -> bool:
        """Whether all are sparse tensors that pici can sum."""
        if self._communicator is None or not tensors:
            return False
        return all(is_ours(x) and x.dtype in DTYPES for x in tensors)

    def _reduce_sparse(self, tensors: list[torch.Tensor], op: Any, options: dict[str, Any]) -> Work:
        return self._start("all_reduce_sparse", lambda comm: [reduce(comm, x, op, options) for x in tensors])

    def _gather(self, call: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any) -> Any:
        self._sequence += 1
        if not self._ours(outputs) or not _fit(outputs, inputs, self.size()):
            return None
        timeout, rank = self._timeout_of(options), self.rank()

        def run(comm: Comm, output: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
            whole, part = _memory(output), _memory(input)
            comm.all_gather(_apart(part, whole, part, rank), whole, timeout=timeout)
            return _written(output, whole)

        return self._start(call, lambda comm: [run(comm, *pair) for pair in zip(outputs, inputs)])

    def _ragged(self, outputs: list[torch.Tensor], input: torch.Tensor) -> bool:
        """Whether pici may make an all_gather into these tensors, of each rank's size."""
        dtype, uneven = input.dtype, any(x.numel() != outputs[0].numel() for x in outputs)
        if any(x.dtype is not dtype for x in outputs) or not (self._ours(outputs) or uneven and self._takes(outputs)):
            return False
        return outputs[self.rank()].numel() == input.numel() and self._takes([input])

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any = None) -> Any:
        self._sequence += 1
        options = options or _c10d.AllgatherOptions()
        if [len(x) for x in outputs] != [self.size()] or len(inputs) != 1 or not self._ragged(outputs[0], inputs[0]):
            return self._gloo.allgather(outputs, inputs, options)
        timeout, tensors, input = self._timeout_of(options), outputs[0], inputs[0]
        counts = [x.numel() for x in tensors]

        def run(comm: Comm) -> list[torch.Tensor]:
            whole = torch.empty(sum(counts), dtype=input.dtype)
            comm.all_gatherv(_memory(input), counts, whole, timeout=timeout)
            with torch.no_grad():
                for x, part in zip(tensors, whole.split(counts)):
                    with torch.inference_mode(x.is_inference()):
                        x.copy_(part.view(x.shape))
            return tensors

        return self._start("all_gather", run)

    def broadcast(self, tensors: list[torch.Tensor], options: Any = None) -> Any:
        self._sequence += 1
        options = options or _c10d.BroadcastOptions()
        root = int(options.rootRank)
        if len(tensors) != 1 or not self._ours(tensors):
            if root == self.rank():
                tensors = _row_major(tensors)
            return self._by_gloo(tensors, lambda own: self._gloo.broadcast(own, options))
        timeout, tensor = self._timeout_of(options), tensors[0]

        def run(comm: Comm) -> list[torch.Tensor]:
            memory = _memory(tensor)
            comm.broadcast(memory, root, timeout=timeout)
            return [tensor if comm.rank == root else _written(tensor, memory)]

        return self._start("broadcast", run)

    def _scatter(self, call: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any) -> Any:
        self._sequence += 1
        op: Any = OPS.get(options.reduceOp.op)
        if op is None or not self._ours(inputs, op) or not _fit(inputs, outputs, self.size()):
            return None
        timeout, rank = self._timeout_of(options), self.rank()

        def run(comm: Comm, output: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
            whole, part = _memory(input), _memory(output)
            comm.reduce_scatter(_apart(whole, whole, part, rank), part, op=op, timeout=timeout)
            return _written(output, part)

        return self._start(call, lambda comm: [run(comm, *pair) for pair in zip(outputs, inputs)])

    def allreduce(self, tensors: list[torch.Tensor], options: Any = None) -> Any:
        return self._reduce("allreduce", tensors, options or _c10d.AllreduceOptions())

    def allreduce_coalesced(self, tensors: list[torch.Tensor], options: Any = None) -> Any:
        return self._reduce("allreduce_coalesced", tensors, options or _c10d.AllreduceCoalescedOptions())

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, options: Any = None) -> Any:
        options = options or _c10d.AllgatherOptions()
        work = self._gather("all_gather_single", [output], [input], options)
        return work or self._gloo.all_gather_single(output, input, options)

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any = None
    ) -> Any:
        options = options or _c10d.AllgatherOptions()
        work = self._gather("all_gather_single", outputs, inputs, options)
        return work or self._gloo.all_gather_single_coalesced(outputs, inputs, options)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, options: Any = None) -> Any:
        options = options or _c10d.ReduceScatterOptions()
        work = self._scatter("reduce_scatter_single", [output], [input], options)
        return work or self._gloo.reduce_scatter_single(output, input, options)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any = None
    ) -> Any:
        options = options or _c10d.ReduceScatterOptions()
        work = self._scatter("reduce_scatter_single", outputs, inputs, options)
        return work or self._gloo.reduce_scatter_single_coalesced(outputs, inputs, options)

    def _exchange(
        self,
        call: str,
        outputs: list[torch.Tensor],
        inputs: list[torch.Tensor],
        counts: tuple[list[int], list[int]],
        options: Any,
    ) -> Any:
        """An all-to-all of the concatenated elements of these tensors. counts: elements of all ranks, sent and
        received."""
        timeout = self._timeout_of(options)

        def run(comm: Comm) -> list[torch.Tensor]:
            send = (
                _memory(inputs[0]).view(-1) if len(inputs) == 1 else torch.cat([x.detach().reshape(-1) for x in inputs])
            )
            whole = torch.empty(sum(counts[1]), dtype=send.dtype)
            comm.all_to_allv(send, *counts, whole, timeout=timeout)
            with torch.no_grad():
                for x, part in zip(outputs, whole.split([x.numel() for x in outputs])):
                    with torch.inference_mode(x.is_inference()):
                        x.copy_(part.view(x.shape))
            return outputs

        return self._start(call, run)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: list[int],
        input_splits: list[int],
        options: Any = None,
    ) -> Any:
        """Splits are rows of the first dimension; without them, all ranks get equally many."""
        self._sequence += 1
        options = options or _c10d.AllToAllOptions()
        counts = _counts(input, input_splits, self.size()), _counts(output, output_splits, self.size())
        if output.dtype is not input.dtype or not self._takes([output, input]) or None in counts:
            return self._gloo.all_to_all_single(output, input, output_splits, input_splits, options)
        return self._exchange("all_to_all_single", [output], [input], counts, options)  # type: ignore[arg-type]

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any = None) -> Any:
        self._sequence += 1
        options = options or _c10d.AllToAllOptions()
        tensors = [*outputs, *inputs]
        if (
            [len(outputs), len(inputs)] != [self.size()] * 2
            or not self._takes(tensors)
            or any(x.dtype is not inputs[0].dtype for x in tensors)
        ):
            return self._gloo.alltoall(outputs, inputs, options)
        counts = [x.numel() for x in inputs], [x.numel() for x in outputs]
        return self._exchange("alltoall", outputs, inputs, counts, options)

    # The names that torch had before.
    alltoall_base = all_to_all_single
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- gloo's calls

    def reduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        self._sequence += 1
        return self._by_gloo(tensors, lambda own: self._gloo.reduce(own, options))

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], options: Any) -> Any:
        self._sequence += 1
        return self._by_gloo(outputs, lambda own: self._gloo.scatter(own, [*map(_row_major, inputs)], options))

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], options: Any) -> Any:
        self._sequence += 1
        return self._by_gloo(outputs, lambda own: self._gloo.reduce_scatter(own, [*map(_row_major, inputs)], options))

    def barrier(self, options: Any = None) -> Any:
        """As gloo's barrier: afterwards, all earlier calls of this rank have ended, including pici's."""
        self._sequence += 1
        if self._last is not None and not self._last.done():
            Work(self._last, self._where).wait_for_end()
        return self._gloo.barrier(options or _c10d.BarrierOptions())

    def monitored_barrier(self, options: Any, wait_all_ranks: bool = False) -> None:
        own = options.timeout  # which may be 0; below: the group's
        self._gloo.monitored_barrier(own if own >= timedelta(0) else self._timeout, wait_all_ranks)

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int = 0) -> Any:
        return self._gloo.send(tensors, rank, tag)

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int = 0) -> Any:
        return self._gloo.recv(tensors, rank, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Any:
        return self._gloo.recv_anysource(tensors, tag)


def _counts(tensor: torch.Tensor, splits: list[int], ranks: int) -> Optional[list[int]]:
    """The elements of each rank in a tensor that is split along its first dimension; None: invalid splits."""
    rows = tensor.shape[0] if tensor.dim() else 0
    if not splits:
        return [tensor.numel() // ranks] * ranks if rows % ranks == 0 else None
    if len(splits) != ranks or min(splits) < 0 or sum(splits) != rows:
        return None
    return [n * (tensor.numel() // rows if rows else 0) for n in splits]


def _forwarded(name: str) -> Callable[..., Any]:
    def call(self: PiciBackend, *args: Any) -> Any:
        self._sequence += 1
        return getattr(self._gloo, name)(*args)

    call.__name__ = name
    return call


for _name in "allreduce_sparse allgather_coalesced gather".split():
    setattr(PiciBackend, _name, _forwarded(_name))


def _untraced(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that Dynamo does not trace. Calls Dynamo only in programs that have imported it."""
    disabled: Any = None

    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        nonlocal disabled
        dynamo: Any = sys.modules.get("torch._dynamo")
        if disabled is None and not hasattr(dynamo, "disable"):
            return method(*args, **options)
        if disabled is None:
            disabled = dynamo.disable(method)
        return disabled(*args, **options)

    return call


for _name, _method in list(vars(PiciBackend).items()):
    if inspect.isfunction(_method) and not _name.startswith("__"):
        setattr(PiciBackend, _name, _untraced(_method))


def supported() -> bool:
    """Whether this torch supports backends written in Python: 2.14 or later, with gloo."""

    class Probe(Base):
        pass

    try:
        Probe(0, 1)
    except TypeError:  # "No constructor defined"
        return False
    return bool(dist.is_gloo_available())


def _create(options: Any, _: Any = None) -> PiciBackend:
    return PiciBackend(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
        list(options.global_ranks_in_group),
    )


def _refuse(*_: Any) -> Any:
    raise ImportError(
        f'pici: torch {torch.__version__} cannot have the backend "{NAME}": that needs torch 2.14 or later, with gloo. '
        'Use the backend "gloo" with model.register_comm_hook(None, pici.torch.all_reduce_hook) instead'
    )


def register() -> None:
    """Register the backend, as the entry point of torch.distributed.backends and `import pici.torch` do. On a torch
    that is too old, init_process_group raises an ImportError that names the hook."""
    if NAME.upper() in dist.Backend._plugins:
        return
    if supported():
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
        return
    try:
        dist.Backend.register_backend(NAME, _refuse, devices=["cpu"])
    except TypeError:  # before torch 2.1
        dist.Backend.register_backend(NAME, _refuse)
