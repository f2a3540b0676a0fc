# SPDX-License-Identifier: BSD-3-Clause
"""What hooks of DistributedDataParallel keep of gradients for later iterations, by parameter."""
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Optional

import torch
import torch.distributed as dist

from .. import _values
from .._calls import Timeout
from .._values import Values, ValuesLike
from ._hooks import Prepared, State, flat
from ._stats import Selected

Piece = tuple[torch.Tensor, torch.Tensor]  # a parameter, and its gradient, flat

_SEED_STEP = 0x9E3779B97F4A7C15  # odd, so that the seeds of iterations differ


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


class ErrorState(State):
    """A State that keeps what was not sent of gradients. Its subclasses say how they send less.

    start_iter      how many iterations are averaged exactly, at first
    error_feedback  add what was not sent to the next gradient
    bits, values    a lossy codec for the messages: QSGD of so many bits, or any other; None: values are exact
    """

    def __init__(
        self,
        process_group: Optional[dist.ProcessGroup],
        start_iter: int,
        error_feedback: bool,
        bits: Optional[int],
        values: Optional[ValuesLike],
        timeout: Optional[Timeout],
        opts: Optional[dict[str, Any]],
    ) -> None:
        super().__init__(process_group, timeout=timeout, opts=opts)
        if "values" in self.opts:
            raise ValueError("opts: values: not an option to choose here: pass bits= or values=")
        if start_iter < 0:
            raise ValueError(f"start_iter={start_iter}: below 0")
        self.start_iter = start_iter
        self.error_feedback = error_feedback
        self.values = _codec(bits, values, error_feedback)
        self.iter = 0
        self._errors = _Errors()

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
            raise ValueError(f"a state of {type(self).__name__} has 'iter' and 'errors'")
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

    def _hook(self, bucket: dist.GradBucket) -> Optional[Callable[[], Prepared]]:
        """What prepares the gradients of a bucket; None: they are averaged exactly. Counts the iterations."""
        self._errors.see(bucket.parameters())
        prepare = None
        if self.iter >= self.start_iter and self._ours(bucket.buffer()):
            prepare = self._preparation([(p, flat(g)) for p, g in zip(bucket.parameters(), bucket.gradients())])
        if bucket.is_last():
            self.iter += 1
        return prepare

    def _preparation(self, pieces: list[Piece]) -> Callable[[], Prepared]:
        """What changes the gradients of a bucket, in the thread of the communicator, whose stream is then CUDA's
        current one. What depends on self.iter is computed now."""
        raise NotImplementedError

    def _values_now(self) -> Optional[Values]:
        """The codec of this iteration, with a seed of its own: a program that resumes counts calls from 0 again."""
        if self.values is None:
            return None
        return replace(self.values, seed=(self.values.seed + self.iter * _SEED_STEP) % 2**64)

    def _rounded(self, pieces: list[Piece], values: Optional[Values], selected: Optional[Selected] = None) -> Prepared:
        """A call with this codec. What it loses becomes the errors of pieces, which are all of a bucket, in order."""
        if values is None or not self.error_feedback:
            return Prepared(selected, values)
        errors = [self._errors.of(*piece) for piece in pieces]
        lost = torch.zeros_like(torch.cat([piece for _, piece in pieces]))

        def keep() -> None:
            for error, part in zip(errors, lost.split([error.numel() for error in errors])):
                error.add_(part)

        return Prepared(selected, replace(values, residual=lost), keep)

    def _send_error(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add the error of a parameter to its gradient."""
        error = self._errors.of(parameter, gradient)
        gradient.add_(error)
        error.zero_()


def _codec(bits: Optional[int], values: Optional[ValuesLike], error_feedback: bool) -> Optional[Values]:
    if values is not None:
        if bits is not None:
            raise ValueError("pass bits or values, not both")
        codec = values if isinstance(values, Values) else Values(**values)
        if codec.residual is not None:
            raise ValueError("values: residual: the state keeps it")
        _values.check(codec)
        return codec
    if bits is None:
        return None
    if bits not in (2, 4, 8):
        raise ValueError(f"bits={bits}: pass 2, 4 or 8")
    return Values("qsgd", bits=bits, rounding="nearest" if error_feedback else "random")


def any_of(x: torch.Tensor) -> bool:
    """Whether an element is not zero. The first ones mostly tell."""
    return bool(x[:64].any()) or bool(x.any())


def _named_parameters(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        model = model.module
    return iter(model.named_parameters())
