# SPDX-License-Identifier: BSD-3-Clause
"""The hook of DistributedDataParallel that sends the largest elements of gradients.

DDP refuses hooks whose annotations are strings, so this module does not import annotations from __future__."""
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.futures import Future

from .. import selection
from .._calls import Timeout
from ._group import resolved
from ._hooks import State, flat
from ._stats import Selected

_WARMUP_EPOCHS = 4  # of pici.topk_warmup, whose density falls once an epoch


class _Errors:
    """What was not sent of each parameter's gradient, flat.

    A pickle cannot name the parameters. It has them in the order in which the hook first saw them: DDP makes its first
    buckets alike each time that a program runs. So a state that was pickled finds the parameters of another process."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}  # by id() of the parameter
        self._seen: dict[int, weakref.ref[torch.Tensor]] = {}  # in the order of places
        self._unclaimed: dict[int, tuple[torch.Size, torch.Tensor]] = {}  # of a pickle, by place

    def __getstate__(self) -> dict[str, Any]:
        """By place, the shape and the error."""
        pickled: dict[int, tuple[Any, torch.Tensor]] = dict(self._unclaimed)
        for key, parameter, error in self._live():
            if key not in self._seen:
                raise RuntimeError(
                    "errors that were loaded can be pickled after an iteration only: use state_dict(model) before"
                )
            pickled[list(self._seen).index(key)] = parameter.shape, error
        return {"errors": pickled}  # not empty: of an empty state, pickle does not call __setstate__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._unclaimed = state["errors"]

    def _live(self) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        for key, (reference, error) in self._kept.items():
            parameter = reference()
            if parameter is not None:
                yield key, parameter, error

    def see(self, parameters: Iterable[torch.Tensor]) -> None:
        """The hook was called with these."""
        for parameter in parameters:
            key = id(parameter)
            if key in self._seen:
                continue
            place = len(self._seen)
            self._seen[key] = weakref.ref(parameter)
            if place in self._unclaimed:
                shape, error = self._unclaimed.pop(place)
                if shape != parameter.shape:
                    raise RuntimeError(
                        f"the pickled state has an error of shape {tuple(shape)} where the model has a parameter of "
                        f"shape {tuple(parameter.shape)}: use state_dict(model) and load_state_dict(), which go by name"
                    )
                self.set(parameter, error)

    def of(self, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The error of a parameter, to be changed in place; zeros at first. gradient: flat."""
        reference, error = self._kept.get(id(parameter), (None, None))
        if reference is None or reference() is not parameter:  # an id() may come again when an object is gone
            error = None
        if error is None or error.dtype != gradient.dtype or error.device != gradient.device:
            new = torch.zeros_like(gradient)
            if error is not None:
                new.copy_(error)
            error = new
            self.set(parameter, error)
        return error

    def set(self, parameter: torch.Tensor, error: torch.Tensor) -> None:
        self._kept[id(parameter)] = weakref.ref(parameter), error

    def items(self) -> Iterator[tuple[int, torch.Tensor]]:
        """The id() of each parameter that has an error, and the error."""
        for key, _, error in self._live():
            yield key, error


class TopKState(State):
    """How topk_hook works. The names are those of torch's PowerSGDState where there is one.

        process_group   the ranks that average; None: the default group
        density         the share of elements that are sent, above 0 and at most 1
        start_iter      how many iterations are averaged whole, at first
        warmup_iters    over how many iterations after these the density falls: 25%, 6.25%, 1.6%, 0.4%, each for a
                        quarter of them, but never below density (deep gradient compression)
        min_numel       tensors with fewer elements are sent whole
        error_feedback  add what was not sent to the next gradient
        selection       "tensor": the largest elements of each parameter; "bucket": of all parameters in a bucket of DDP
        timeout, opts   as of State

    The errors, one tensor as large as its gradient for each parameter, are part of the training's state, on each rank:

        state.state_dict(model)                       a rank's errors by the parameters' names, and the iteration
        state.load_state_dict(state_dict, model)      before the first iteration of the resumed run

    They are kept by parameter, so buckets may be rebuilt. A parameter whose gradient on this rank is all zeros sends
    nothing and keeps its error: if no rank used it, DDP would drop what is sent. With a GradScaler the errors have the
    scale of the gradients that they come from. A state can be pickled, without the process group; that finds the
    parameters by their order instead of their names.
    """

    def __init__(
        self,
        process_group: Optional[dist.ProcessGroup] = None,
        density: float = 0.01,
        start_iter: int = 2,
        warmup_iters: int = 0,
        min_numel: int = 1024,
        error_feedback: bool = True,
        selection: str = "tensor",
        timeout: Optional[Timeout] = None,
        opts: Optional[dict[str, Any]] = None,
    ) -> None:
        super().__init__(process_group, timeout=timeout, opts=opts)
        if not 0 < density <= 1:
            raise ValueError(f"density={density}: not above 0 and at most 1")
        for name, value in (("start_iter", start_iter), ("warmup_iters", warmup_iters), ("min_numel", min_numel)):
            if value < 0:
                raise ValueError(f"{name}={value}: below 0")
        if selection not in ("tensor", "bucket"):
            raise ValueError(f"selection={selection!r}: pass 'tensor' or 'bucket'")
        self.density = density
        self.start_iter = start_iter
        self.warmup_iters = warmup_iters
        self.min_numel = min_numel
        self.error_feedback = error_feedback
        self.selection = selection
        self.iter = 0
        self._errors = _Errors()

    def density_now(self) -> float:
        """The share of elements that this iteration sends."""
        step = self.iter - self.start_iter
        if step < 0:
            return 1.0
        if step >= self.warmup_iters:
            return self.density
        return max(self.density, selection.topk_warmup(step * _WARMUP_EPOCHS // self.warmup_iters, 1))

    def state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        """This rank's state: "iter", and "errors" by the parameters' names in model, which may be in a
        DistributedDataParallel. Copies, on the CPU or where the gradients are. Call it between two iterations."""
        names = {id(p): name for name, p in _named_parameters(model)}
        unknown = sum(key not in names for key, _ in self._errors.items())
        if unknown:
            raise ValueError(f"{unknown} parameters that have errors are not in this model")
        return {"iter": self.iter, "errors": {names[key]: e.clone() for key, e in self._errors.items()}}

    def load_state_dict(self, state_dict: dict[str, Any], model: torch.nn.Module) -> None:
        """Continue from what state_dict() returned on the same rank. ValueError: it is not of this model; nothing was
        changed then."""
        if isinstance(state_dict, torch.nn.Module):  # the other order
            state_dict, model = model, state_dict
        if not {"iter", "errors"} <= set(state_dict):
            raise ValueError("a state of TopKState has 'iter' and 'errors'")
        parameters = dict(_named_parameters(model))
        for name, error in state_dict["errors"].items():
            if name not in parameters:
                raise ValueError(f"the model has no parameter {name!r}, for which there is an error")
            numel = parameters[name].numel() * (2 if parameters[name].is_complex() else 1)
            if error.numel() != numel:
                raise ValueError(f"the error of {name!r} has {error.numel()} elements, the parameter {numel}")
        self.iter = int(state_dict["iter"])
        self._errors = _Errors()
        for name, error in state_dict["errors"].items():
            self._errors.set(parameters[name], error.detach().clone().view(-1))

    def _selection(self, bucket: dist.GradBucket) -> Callable[[], Selected]:
        """What selects in the gradients of a bucket, in place."""
        density = self.density_now()
        pieces = []
        elements = whole = 0
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            piece = flat(gradient)
            elements += piece.numel()
            if gradient.numel() < self.min_numel:
                whole += piece.numel()
            elif _any(piece):
                pieces.append((parameter, piece))

        def select() -> Selected:
            begin = time.perf_counter()
            if self.selection == "tensor":
                left = sum(self._select(parameter, piece, density) for parameter, piece in pieces)
            else:
                left = self._select_among(pieces, density)
            return Selected(elements, whole + left, time.perf_counter() - begin)

        return select

    def _select(self, parameter: torch.Tensor, gradient: torch.Tensor, density: float) -> int:
        """Select in a gradient. Returns how many elements are left."""
        error = self._errors.of(parameter, gradient) if self.error_feedback else None
        return _topk(gradient, error, density)

    def _select_among(self, pieces: list[tuple[torch.Tensor, torch.Tensor]], density: float) -> int:
        """Select among the gradients of several parameters."""
        if not pieces:
            return 0
        gradients = torch.cat([piece for _, piece in pieces])
        lengths = [piece.numel() for _, piece in pieces]
        errors = [self._errors.of(*piece) for piece in pieces] if self.error_feedback else []
        error = torch.cat(errors) if errors else None
        left = _topk(gradients, error, density)
        for (_, piece), new in zip(pieces, gradients.split(lengths)):
            piece.copy_(new)
        if error is not None:
            for kept, new in zip(errors, error.split(lengths)):
                kept.copy_(new)
        return left


def _topk(gradient: torch.Tensor, error: Optional[torch.Tensor], density: float) -> int:
    """Keep the largest elements of gradient + error in gradient, and the others in error."""
    nnz: int = selection.topk(gradient, error, select="global", density=density, out=gradient)[1]
    return nnz


def _any(x: torch.Tensor) -> bool:
    """Whether an element is not zero. The first ones mostly tell."""
    return bool(x[:64].any()) or bool(x.any())


def _named_parameters(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        model = model.module
    return iter(model.named_parameters())


_warned = False


def _warn_of_cuda() -> None:
    global _warned
    if not _warned:
        _warned = True
        words = "pici.torch.topk_hook selects in the host's memory only: CUDA tensors are sent whole"
        warnings.warn(words, stacklevel=3)


def topk_hook(state: TopKState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """A communication hook of DDP: averages the largest elements of the gradients, and adds the others to the next
    gradients.

        ddp.register_comm_hook(pici.torch.TopKState(density=0.01), pici.torch.topk_hook)

    It changes the training: more steps to the same loss, each of which sends much less. It runs while backward()
    computes further gradients. Errors are raised by backward(), on all ranks."""
    if not isinstance(state, TopKState):
        raise TypeError(f"topk_hook needs a pici.torch.TopKState, not {type(state).__name__}")
    buffer = bucket.buffer()
    state._errors.see(bucket.parameters())
    prepare = None
    if state.iter >= state.start_iter and state._ours(buffer):
        if buffer.device.type == "cpu":
            prepare = state._selection(bucket)
        else:
            _warn_of_cuda()
    if bucket.is_last():
        state.iter += 1
    return state._average(resolved(state.process_group), buffer, prepare)
