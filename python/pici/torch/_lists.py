# SPDX-License-Identifier: BSD-3-Clause
"""Averages of lists of tensors, for programs that average gradients or weights themselves."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist

from ._errors import ErrorState
from ._group import resolved
from ._hooks import AVERAGED, State, flat, flat_length
from ._quantize import QuantizeState
from ._topk import TopKState


class _Bucket:
    """Tensors of one dtype and device, as a bucket of gradients of DistributedDataParallel."""

    def __init__(self, tensors: list[torch.Tensor], places: list[torch.Tensor], index: int, last: bool) -> None:
        self.tensors, self._places, self._index, self._last = tensors, places, index, last
        with torch.no_grad():
            self._buffer = torch.cat([flat(x.detach().contiguous()) for x in tensors])

    def parameters(self) -> list[torch.Tensor]:
        return self._places

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._last

    def deliver(self) -> None:
        with torch.no_grad():
            parts = self._buffer.split([flat_length(x) for x in self.tensors])
            for x, part in zip(self.tensors, parts):
                flat_x = torch.view_as_real(x) if x.is_complex() else x
                flat_x.copy_(part.view(flat_x.shape))


_default = State()


def _state_of(density: Optional[float], bits: Optional[int]) -> State:
    """A state without memory."""
    if density is None and bits is None:
        return _default
    state: State
    if density is not None:
        state = TopKState(density=density, start_iter=0, error_feedback=False, bits=bits)
    else:
        state = QuantizeState(bits=bits, start_iter=0, error_feedback=False)
    state._agreed = _default._agreed  # which have the same min_bytes
    return state


def all_reduce(
    tensors: Sequence[torch.Tensor],
    group: Optional[dist.ProcessGroup] = None,
    *,
    density: Optional[float] = None,
    bits: Optional[int] = None,
    state: Optional[State] = None,
    async_op: bool = False,
) -> Any:
    """Average each tensor of a list among the ranks, in place, and return the list.

        pici.torch.all_reduce([p.grad for p in model.parameters()], state=state)

    group       the ranks that average; None: the group of state, or else the default group
    density     send only the largest elements, this fraction of all; the rest is lost
    bits        round sent elements to 2, 4 or 8 bits, up or down at random
    state       a State, TopKState or QuantizeState, which keeps the unsent rest for the next call, by the place in the
                list: all calls pass a list of the same shapes. state.state_dict(tensors) saves it
    async_op    return a future of the list; do not use the tensors before its wait() returns

    All ranks pass the same shapes, dtypes and options, in the same order of calls."""
    tensors = [*tensors]
    if state is None:
        state = _state_of(density, bits)
    elif density is not None or bits is not None:
        raise ValueError("pass density and bits, or a state that has them, not both")
    for x in tensors:
        if x.layout is not torch.strided:
            raise ValueError(
                f"a tensor of the list is {x.layout}: pass dense ones, and sparse ones to all_reduce_sparse"
            )
        if x.dtype not in AVERAGED:
            raise TypeError(f"a tensor of the list is {x.dtype}, which cannot be averaged")
        if isinstance(state, ErrorState):
            state._check_codec(x)
    group = resolved(state.process_group if group is None else group)
    places = state.places_of(tensors) if isinstance(state, ErrorState) else tensors
    kinds: dict[Any, list[int]] = {}
    for i, x in enumerate(tensors):
        kinds.setdefault((x.dtype, x.device), []).append(i)
    futures: list[torch.futures.Future[torch.Tensor]] = []
    buckets: list[_Bucket] = []
    for which, chosen in enumerate(kinds.values()):
        bucket = _Bucket([tensors[i] for i in chosen], [places[i] for i in chosen], which, which + 1 == len(kinds))
        futures.append(state._run(group, bucket, raw=not async_op))
        buckets.append(bucket)

    def deliver(_: Any) -> Any:
        for future, bucket in zip(futures, buckets):
            future.wait()  # raises if the call failed; a GPU's current stream waits, as it does not for value()
            bucket.deliver()
        return tensors

    ended: Any = torch.futures.collect_all(futures)
    if not async_op:
        ended.wait()
        return deliver(None)  # which raises the errors themselves; then() makes them RuntimeErrors
    devices = list({x.device: None for x in tensors if x.device.type == "cuda"})
    return _delivered(ended, deliver, devices) if devices else ended.then(deliver)


def _delivered(ended: Any, deliver: Any, devices: list[torch.device]) -> torch.futures.Future[Any]:
    """The future of deliver(), after all of `ended`: for tensors on GPUs, whose current streams wait for it. That is
    not so for the futures of collect_all()."""
    result: torch.futures.Future[Any] = torch.futures.Future(devices=devices)

    def end(_: Any) -> None:
        try:
            tensors = deliver(None)
        except BaseException as e:
            result.set_exception(e)
        else:
            result.set_result(tensors)

    ended.add_done_callback(end)
    return result
