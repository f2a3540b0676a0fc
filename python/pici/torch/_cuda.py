# SPDX-License-Identifier: BSD-3-Clause
"""CUDA tensors, with PICI_TORCH_CUDA=1: collectives over NCCL by libpici_nccl. No test has run this on a GPU.

A process group gets its own NCCL group, whose communicator the library uses for its messages, and a stream in addition
to torch's. With PICI_TORCH_OUTER=sockets there is such a group for each host, and messages between hosts go over
sockets.
"""
from __future__ import annotations

import inspect
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from .._calls import Timeout, milliseconds
from ..comm import Comm
from ..errors import TimedOutError
from ._group import Communicator, agree, flag, group_timeout, host_mates, outer, over_sockets

_of_group: weakref.WeakKeyDictionary[Any, dict[torch.device, tuple[Communicator, Any]]] = weakref.WeakKeyDictionary()
_streams: weakref.WeakKeyDictionary[Communicator, Any] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def enabled() -> bool:
    """Whether the environment sends CUDA tensors through pici."""
    return flag("PICI_TORCH_CUDA")


def _wait_for_current_stream(device: torch.device, timeout: Timeout) -> None:
    limit = milliseconds(timeout)
    end = time.monotonic() + limit / 1000
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    while not event.query():
        if 0 <= limit and time.monotonic() > end and not event.query():
            raise TimedOutError(f"the first collective of a group of NCCL took more than {limit} ms")
        time.sleep(0.001)


def _nccl_group(ranks: list[int], device: torch.device, timeout: Timeout) -> tuple[Any, int]:
    """A group of NCCL among global ranks, and its ncclComm_t, which NCCL makes at the first collective. Allocates
    memory and waits, so no thread may capture a graph in CUDA's global mode meanwhile."""
    local = {"use_local_synchronization": True} if len(ranks) < dist.get_world_size() else {}
    if local and "use_local_synchronization" not in inspect.signature(dist.new_group).parameters:
        raise NotImplementedError("CUDA tensors of a part of the ranks need a newer torch")
    own = dist.new_group(ranks, backend="nccl", **local)
    dist.all_reduce(torch.zeros(1, device=device), group=own)
    _wait_for_current_stream(device, timeout)
    backend: Any = own._get_backend(device) if hasattr(own, "_get_backend") else own
    for name in ("comm_ptr", "_comm_ptr"):
        if hasattr(backend, name):
            return own, int(getattr(backend, name)())
    raise NotImplementedError(f"torch {torch.__version__} does not tell its ncclComm_t, which CUDA tensors need")


def communicator(group: dist.ProcessGroup, device: torch.device) -> Communicator:
    """The communicator of a group for the tensors of a GPU. The first time, all ranks of the group must call it."""
    with _lock:
        of_device = _of_group.setdefault(group, {})
        if device not in of_device:
            timeout = group_timeout(group, None)
            agree(group, lambda: f"PICI_TORCH_OUTER={outer()}")
            levels = bool(outer())
            ranks = host_mates(group) if levels else dist.get_process_group_ranks(group)
            own, pointer = _nccl_group(ranks, device, timeout)
            stream = torch.cuda.Stream(device)

            def make() -> Comm:
                torch.cuda.set_device(device)  # of the thread that makes all calls
                inner = Comm.nccl(pointer, stream.cuda_stream)
                return Comm.levels(inner, over_sockets(group, "outer")) if levels else inner

            c = Communicator.made_by(make, dist.get_rank(group), dist.get_world_size(group), timeout)
            _streams[c] = stream
            of_device[device] = (c, own)  # the group of NCCL must live as long
        return of_device[device][0]


def submit(c: Communicator, call: Callable[[Comm], Any], tensor: torch.Tensor) -> torch.futures.Future[Any]:
    """Submit a call on a tensor whose value is ready in the order of the current stream. The result is ready in the
    order of the communicator's stream."""
    stream = _streams[c]
    ready = torch.cuda.Event()
    ready.record(torch.cuda.current_stream(tensor.device))
    tensor.record_stream(stream)

    def ordered(comm: Comm) -> Any:
        with torch.cuda.stream(stream):
            stream.wait_event(ready)
            return call(comm)

    return c.submit(ordered, devices=[tensor.device], stream=stream)
