# SPDX-License-Identifier: BSD-3-Clause
"""The rest of gradients that DistributedDataParallel hooks keep for later iterations, by parameter."""
import math
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.futures import Future

from .. import _values
from .._calls import Timeout
from .._values import Values, ValuesLike
from ..errors import BrokenError
from . import _cuda
from ._group import global_rank, resolved
from ._hooks import Prepared, State, finite, flat, flat_length
from ._stats import Selected

Piece = tuple[torch.Tensor, torch.Tensor]  # a parameter, and its gradient, flat

SEED_STEP = 0x9E3779B97F4A7C15  # odd, so that the seeds of iterations differ
_VERSION = 1  # of state_dict()


class Errors:
    """The unsent rest of each parameter's gradient, flat.

    A pickle cannot name the parameters. It has them in the order in which the hook first saw them: DDP makes the same
    first buckets in each run of a program. So a pickled state finds the parameters of another process."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}  # by id() of the parameter
        self._seen: dict[int, weakref.ref[torch.Tensor]] = {}  # in the order of places
        self._unclaimed: dict[int, tuple[torch.Size, torch.Tensor]] = {}  # of a pickle, by place

    def __getstate__(self) -> dict[str, Any]:
        """By place, the shape and the error."""
        pickled: dict[int, tuple[Any, torch.Tensor]] = dict(self._unclaimed)
        for key, parameter, error in self._live():
            if not self._saw(parameter):
                raise RuntimeError(
                    "errors that were loaded can be pickled after an iteration only: use state_dict(model) before"
                )
            pickled[list(self._seen).index(key)] = parameter.shape, error
        return {"errors": pickled}  # not empty: pickle does not call __setstate__ for an empty state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._unclaimed = state["errors"]

    def _live(self) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        for key, (reference, error) in self._kept.items():
            parameter = reference()
            if parameter is not None:
                yield key, parameter, error

    def _saw(self, parameter: torch.Tensor) -> bool:
        reference = self._seen.get(id(parameter))
        return reference is not None and reference() is parameter

    def unpickled(self) -> bool:
        """Whether there are errors of a pickle whose parameters the hook has not seen."""
        return bool(self._unclaimed)

    def forget(self, parameters: Iterable[torch.Tensor]) -> None:
        """Drop all errors, and the places of other parameters than these."""
        known = {id(parameter) for parameter in parameters}
        self._kept, self._unclaimed = {}, {}
        self._seen = {key: seen for key, seen in self._seen.items() if seen() is not None and key in known}

    def see(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Note that the hook was called with these. Returns whether one of them is new."""
        new = False
        for parameter in parameters:
            key = id(parameter)
            if self._saw(parameter):
                continue
            if key in self._seen:  # a freed one's: it keeps its place, under a number that is no id()
                self._seen = {-1 - i if k == key else k: seen for i, (k, seen) in enumerate(self._seen.items())}
            new = True
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
        return new

    def others(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether the hook was called with other parameters that still exist."""
        known = {id(parameter) for parameter in parameters}
        return any(key not in known and reference() is not None for key, reference in self._seen.items())

    def places(self, parameters: Iterable[torch.Tensor]) -> list[int]:
        """The places of parameters in the order in which the hook first saw them, the same on all ranks."""
        place = {key: i for i, key in enumerate(self._seen)}
        return [place[id(parameter)] for parameter in parameters]

    def known(self, parameter: torch.Tensor) -> Optional[torch.Tensor]:
        """The error of a parameter, if it has one."""
        reference, error = self._kept.get(id(parameter), (None, None))
        # an id() may repeat after an object is freed
        return error if reference is not None and reference() is parameter else None

    def of(self, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The error of a parameter, to be changed in place; zeros at first. gradient: flat."""
        error = self.known(parameter)
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

    def scale(self, factor: float) -> None:
        """Multiply all errors."""
        for error in [error for _, error in self._kept.values()] + [error for _, error in self._unclaimed.values()]:
            most = torch.finfo(error.dtype).max
            error.mul_(factor).clamp_(-most, most)


class _Before:
    """The kept state of a bucket's parameters, from before its gradients changed."""

    def __init__(self, kept: Iterable[Errors], pieces: list[Piece]) -> None:
        self._parts = [
            (errors, parameter, None if error is None else error.clone())
            for errors in kept
            for parameter, _ in pieces
            for error in [errors.known(parameter)]
        ]

    def restore(self) -> None:
        for errors, parameter, copy in self._parts:
            error = errors.known(parameter)
            if copy is not None:
                errors.of(parameter, copy).copy_(copy)
            elif error is not None:
                error.zero_()


class _Iteration:
    """One that the hook has begun."""

    def __init__(self) -> None:
        self.before: list[_Before] = []
        self.spoiled = False  # an average was not finite
        self.counted = self.failed = False

    def restore(self) -> None:
        for before in [*self.before]:
            before.restore()


_counting = threading.Lock()  # ErrorState.iter


class ErrorState(State):
    """A State that keeps the unsent rest of gradients. Its subclasses send less in different ways.

    start_iter      number of first iterations that are averaged exactly
    error_feedback  add the unsent rest to the next gradient
    grad_scaler     the errors follow its loss scale
    bits, values    a lossy codec for the messages: QSGD of this many bits, or any other; None: values are exact
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
        grad_scaler: Any,
    ) -> None:
        super().__init__(process_group, timeout=timeout, opts=opts)
        if "values" in self.opts:
            raise ValueError("opts: values: not an option to choose here: pass bits= or values=")
        if start_iter < 0:
            raise ValueError(f"start_iter={start_iter}: below 0")
        self.start_iter = start_iter
        self.error_feedback = error_feedback
        self.values = codec_of(bits, values, error_feedback)
        if grad_scaler is not None and not hasattr(grad_scaler, "get_scale"):
            raise TypeError(f"grad_scaler={grad_scaler!r}: pass a torch.amp.GradScaler")
        self.grad_scaler = grad_scaler
        self.iter = 0
        self._scale: Optional[float] = None  # the loss scale of the errors, if known
        self._errors = Errors()
        self._places: list[torch.Tensor] = []  # of a list of tensors
        self._bind(None, False)
        self._begin_iterations()

    _unpickled = (*State._unpickled, "grad_scaler", "_model", "_gather", "_iteration", "_ended", "_places")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.grad_scaler = None
        self.__dict__.setdefault("_scale", None)  # of an older version
        self._places = []
        self._bind(None, False)
        self._begin_iterations()

    # ---- checkpoints

    def _kept(self) -> dict[str, Errors]:
        """All state that is kept by parameter, by its name in state_dict()."""
        return {"errors": self._errors}

    def _bind(self, model: Optional[torch.nn.Module], gather: bool) -> None:
        self._model = None if model is None else weakref.ref(model)
        self._gather = gather

    def bind(self, model: torch.nn.Module, gather: bool = False) -> None:
        """Make this model, which may be in a DistributedDataParallel, the default of state_dict() and
        load_state_dict(), for torch.distributed.checkpoint and accelerate, which call them without a model.

        gather: a state_dict() without a model has the errors of all ranks on rank 0, for programs such as accelerate
        that save only rank 0's state. All ranks must then call it."""
        self._bind(model, gather)

    def _bound(self, model: Any) -> Any:
        """The given or bound model, or the places of a list of tensors."""
        if isinstance(model, (list, tuple)):
            return self.places_of(model)
        if model is None and self._model is not None:
            model = self._model()
        if model is None:
            raise TypeError("pass the model, or call bind(model) before")
        return model

    def places_of(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Stand-ins for parameters when pici.torch.all_reduce averages a list: the same objects in each call, even for
        other tensors."""
        shapes = [tuple(x.shape) for x in tensors]
        if not self._places:
            self._places = [torch.empty(x.shape, dtype=x.dtype, device="meta") for x in tensors]
        known: list[Any] = [tuple(x.shape) for x in self._places]
        if shapes != known:
            raise ValueError(
                f"the tensors have the shapes {shapes}, and had {known} in an earlier call with this state"
            )
        return self._places

    def _ranks(self) -> tuple[int, int]:
        """This rank in the process group, and its size."""
        if not dist.is_initialized():
            return 0, 1
        return dist.get_rank(self.process_group), dist.get_world_size(self.process_group)

    def _keeps(self, parameter: torch.Tensor) -> bool:
        """Whether a parameter of this size may have an error."""
        return self.error_feedback

    def state_dict(self, model: Any = None) -> dict[str, Any]:
        """This rank's state: "iter", the errors by the parameters' names in model, which may be in a
        DistributedDataParallel, and identification. Copies, on the CPU or on the gradients' device. Call it between two
        iterations. model: None after bind(); for pici.torch.all_reduce, the list of tensors.

        The keys of errors have the rank's number, so that torch.distributed.checkpoint keeps the errors of each
        rank."""
        if not self._ended and any(kept.unpickled() for kept in self._kept().values()):
            raise RuntimeError(
                "errors of a pickle can be saved after an iteration only: the hook finds their parameters then"
            )
        gather = model is None and self._gather
        parameters = dict(named_parameters(self._bound(model)))
        tensors = model if isinstance(model, (list, tuple)) else parameters.values()  # places have no elements
        names = {id(p) for p in parameters.values()}
        unknown = sum(key not in names for key, _ in self._errors.items())
        if unknown:
            raise ValueError(f"{unknown} parameters that have errors are not in this model")
        rank, ranks = self._ranks()
        own: dict[str, dict[str, torch.Tensor]] = {}
        for what, kept in self._kept().items():
            own[what] = {}
            for (name, p), x in zip(parameters.items(), tensors):
                error = kept.known(p)
                if error is not None:
                    own[what][name] = error.clone()
                elif (p.requires_grad or p.is_meta) and self._keeps(p):  # so that all states have the same keys
                    own[what][name] = torch.zeros_like(flat(x.detach().contiguous()))
        gather = gather and ranks > 1
        every: Optional[list[Any]] = [None] * ranks if rank == 0 and gather else None
        if gather:
            group = resolved(self.process_group)
            dist.gather_object(own, every, dst=global_rank(group, 0), group=group)
        saved = {"kind": type(self).__name__, "version": _VERSION, "ranks": ranks, "iter": self.iter}
        of_ranks = {rank: own} if every is None else dict(enumerate(every))
        by_rank = {what: {_of_rank(r): each[what] for r, each in of_ranks.items()} for what in own}
        return {**saved, "scale": self._scale, **by_rank}

    def load_state_dict(self, state_dict: dict[str, Any], model: Any = None) -> None:
        """Continue from the state_dict() of the same rank. model: None after bind(). ValueError: the state is of
        another model, kind or rank; nothing has changed. With another number of ranks, only the iteration is used, with
        a warning."""
        self._loading(state_dict, model)()

    def _loading(self, state_dict: dict[str, Any], model: Any) -> Callable[[], None]:
        """The part of load_state_dict() after its checks."""
        if isinstance(state_dict, torch.nn.Module):  # the other order
            state_dict, model = model, state_dict
        model = self._bound(model)
        if not {"iter", "errors"} <= set(state_dict):
            raise ValueError(f"a state of {type(self).__name__} has 'iter' and 'errors'")
        kind, version = state_dict.get("kind", type(self).__name__), state_dict.get("version", _VERSION)
        if kind != type(self).__name__:
            raise ValueError(f"the state is of a {kind}, and this is a {type(self).__name__}")
        if version != _VERSION:
            raise ValueError(f"the state has version {version}, and this pici.torch reads version {_VERSION}")
        own = {what: {_plain(n): e for n, e in self._own(state_dict, what).items()} for what in self._kept()}
        parameters = dict(named_parameters(model))
        for name, error in [item for errors in own.values() for item in errors.items()]:
            if name not in parameters:
                raise ValueError(f"the model has no parameter {name!r}, for which there is an error")
            length = flat_length(parameters[name])
            if error.numel() != length:
                raise ValueError(f"the error of {name!r} has {error.numel()} elements, the parameter {length}")
        iteration, scale = int(state_dict["iter"]), state_dict.get("scale")

        def load() -> None:
            self.iter, self._scale = iteration, scale
            self._begin_iterations()
            for what, kept in self._kept().items():
                kept.forget(parameters.values())
                for name, error in own[what].items():
                    error = error.detach().clone().view(-1)
                    if not finite(error):
                        warnings.warn(f"pici.torch: the error of {name!r} is not finite, and is dropped", stacklevel=3)
                    elif error.any():
                        kept.set(parameters[name], error)

        return load

    def _own(self, state_dict: dict[str, Any], what: str) -> dict[str, torch.Tensor]:
        """This rank's part of a state_dict()."""
        if what not in state_dict:
            raise ValueError(f"the state has no {what}, which this {type(self).__name__} keeps")
        errors: dict[str, Any] = state_dict[what]
        if "ranks" not in state_dict:  # of pici 0.2: this rank's own
            return errors
        rank, ranks = self._ranks()
        if state_dict["ranks"] != ranks:
            warnings.warn(
                f"pici.torch: the state is of {state_dict['ranks']} ranks, and there are {ranks}: its errors are "
                "dropped",
                stacklevel=4,
            )
            return {}
        if _of_rank(rank) not in errors:
            raise ValueError(f"the state has the errors of {', '.join(errors)}, and this is {_of_rank(rank)}")
        own: dict[str, torch.Tensor] = errors[_of_rank(rank)]
        return own

    # ---- the loss scale

    def rescale(self, factor: float) -> None:
        """Scale the kept errors by the factor of later gradients. Call it between two iterations if you change your own
        loss scale; with a grad_scaler, this is automatic."""
        check_above_0("factor", factor)
        for kept in self._kept().values():
            kept.scale(factor)

    def _follow_scale(self) -> None:
        """Adopt the current loss scale, at the beginning of an iteration."""
        if self.grad_scaler is None:
            return
        scale = float(self.grad_scaler.get_scale())
        if not 0 < scale < math.inf:
            return
        if self._scale is not None and scale != self._scale:
            self.rescale(scale / self._scale)
        self._scale = scale

    # ---- the hook

    def _begin_iterations(self) -> None:
        self._ended = False  # an iteration has, so the hook has seen all parameters
        self._iteration = _Iteration()

    def _run(self, group: dist.ProcessGroup, bucket: Any, raw: bool = False) -> Future[torch.Tensor]:
        prepare = self._hook(bucket)
        future = self._average(group, bucket.buffer(), prepare, raw)
        if bucket.is_last():
            self._ended = True
            with _counting:
                if not self._iteration.failed:
                    self._iteration.counted = True
                    self.iter += 1
        return future

    def _check_codec(self, x: torch.Tensor) -> None:
        """TypeError: the codec does not take x. The same on all ranks, before one calls."""
        if self.values is None or not self._ours(x):
            return
        dtype = flat(x[:0] if x.dim() else x).dtype
        cast = self.values.cast or {torch.float32: "bf16", torch.float64: "f32"}.get(dtype)
        takes = {torch.float32: ("bf16", "f16"), torch.float64: ("f32",)}
        codec = self.values.codec
        if codec in ("cast", "zfp") and (dtype not in takes or (codec == "cast" and cast not in takes[dtype])):
            how = f' to "{cast}"' if codec == "cast" and cast else ""
            raise TypeError(f'the codec "{codec}"{how} does not take {dtype}')

    def _fail(self, iteration: _Iteration) -> None:
        """Undo an iteration."""
        iteration.restore()
        with _counting:
            self.iter -= iteration.counted
            iteration.counted, iteration.failed = False, True

    def _hook(self, bucket: Any) -> Callable[[], Prepared]:
        """The preparation of a bucket's gradients."""
        parameters = bucket.parameters()
        if (
            max([kept.see(parameters) for kept in self._kept().values()])
            and self._ended
            and self._errors.others(parameters)
        ):
            warnings.warn(
                f"pici.torch: this {type(self).__name__} is used by two models, and counts the iterations of both: "
                "make one for each",
                stacklevel=3,
            )
        if bucket.index() == 0:
            self._follow_scale()
            self._iteration = _Iteration()
        if self._needed() and not self._ours(bucket.buffer()):
            raise _not_ours(self._needed(), bucket.buffer())
        self._check_codec(bucket.buffer())
        buffer, exactly = bucket.buffer(), self.iter < self.start_iter
        if exactly and not self._changes_exact():
            return self._with_undo(buffer, [], None, False)
        pieces = _pieces(bucket) if self._ours(buffer) else []
        prepare = self._preparation(pieces, exactly) if pieces else None
        keeps = self.error_feedback and (buffer.device.type == "cpu" or _cuda.enabled())
        return self._with_undo(buffer, pieces, prepare, keeps)

    def _changes_exact(self) -> bool:
        """Whether exactly averaged gradients are changed too."""
        return False

    def _needed(self) -> str:
        """A feature that torch's own average lacks, so that tensors for torch are rejected; "": none."""
        return ""

    def _with_undo(
        self, buffer: torch.Tensor, pieces: list[Piece], prepare: Optional[Callable[[], Prepared]], keeps: bool
    ) -> Callable[[], Prepared]:
        """The preparation of a bucket, with undo. If the call fails, the errors are restored, and the iteration does
        not count. If keeps and the average is not finite, the step is skipped on all ranks, and the errors are
        restored. A GradScaler skips the step for all buckets of the iteration, also those without a preparation."""
        iteration, scaler = self._iteration, self.grad_scaler

        def prepared() -> Prepared:
            if iteration.failed:  # whose error the program may already handle
                raise BrokenError("the call of another bucket failed")
            before = _Before(self._kept().values(), pieces if keeps else [])
            iteration.before.append(before)
            try:
                own = prepare() if prepare else Prepared()
            except BaseException:
                self._fail(iteration)
                raise

            def finish() -> None:
                if own.finish:
                    own.finish()
                if keeps and (pieces or scaler is not None):
                    if iteration.spoiled and scaler is not None:
                        before.restore()
                    elif not _finite(buffer):
                        iteration.spoiled = True
                        iteration.restore()
                if scaler is None:
                    iteration.before.clear()

            return own._replace(finish=finish, undo=lambda: self._fail(iteration))

        return prepared

    def _preparation(self, pieces: list[Piece], exactly: bool) -> Callable[[], Prepared]:
        """The function that changes the gradients of a bucket, in the communicator's thread, with its stream as CUDA's
        current one. Values that depend on self.iter are computed now. exactly: in one of the first iterations."""
        raise NotImplementedError

    def _values_now(self) -> Optional[Values]:
        """The codec of this iteration, with a seed of its own: a program that resumes counts calls from 0 again."""
        return seeded(self.values, self.iter)

    def _rounded(self, pieces: list[Piece], values: Optional[Values], selected: Optional[Selected] = None) -> Prepared:
        """A call with this codec. Its losses become the errors of pieces: all pieces of a bucket, in order."""
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


def check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # a NaN too
        raise ValueError(f"{name}={value}: not from {low} to {high}")


def check_density(density: float) -> None:
    if not 0 < density <= 1:
        raise ValueError(f"density={density}: not above 0 and at most 1")


def check_momentum(momentum: float) -> None:
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum={momentum}: not from 0 to less than 1")


def check_above_0(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value}: not a number above 0")


def codec_of(bits: Optional[int], values: Optional[ValuesLike], error_feedback: bool) -> Optional[Values]:
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


def seeded(values: Optional[Values], step: int) -> Optional[Values]:
    """The codec of a step, with a seed of its own."""
    return None if values is None else replace(values, seed=(values.seed + step * SEED_STEP) % 2**64)


def _not_ours(what: str, x: torch.Tensor) -> NotImplementedError:
    how = "; it needs PICI_TORCH_CUDA=1" if x.device.type == "cuda" and not _cuda.enabled() else ""
    return NotImplementedError(f"{what} does not take tensors that are {x.layout}, {x.dtype} and on {x.device}{how}")


def _of_rank(rank: int) -> str:
    return f"rank {rank}"


def _pieces(bucket: Any) -> list[Piece]:
    """The gradients of a bucket, flat. They follow each other in its buffer; bucket.gradients() splits a buffer of
    complex numbers, with two elements for each, wrongly."""
    buffer, parameters = flat(bucket.buffer()), bucket.parameters()
    return list(zip(parameters, buffer.split([flat_length(p) for p in parameters])))


def _finite(buffer: torch.Tensor) -> bool:
    """Whether all elements of a bucket are finite."""
    if buffer.layout is torch.sparse_coo:
        buffer = buffer._values()
    return buffer.layout is not torch.strided or finite(flat(buffer.contiguous()))


def any_of(x: torch.Tensor) -> bool:
    """Whether any element is nonzero. The first ones settle most cases."""
    return bool(x[:64].any()) or bool(x.any())


_COMPILED = "_orig_mod"  # where torch.compile keeps the module that it wraps, and so in the names of parameters


def _plain(name: str) -> str:
    return name.replace(f"{_COMPILED}.", "")


def named_parameters(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters of a model, or of the places of a list, by their names: the same for a model that is compiled or
    in a DistributedDataParallel."""
    if isinstance(model, list):
        return ((str(i), x) for i, x in enumerate(model))
    while isinstance(model, torch.nn.parallel.DistributedDataParallel) or hasattr(model, _COMPILED):
        model = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model._orig_mod
    return ((_plain(name), p) for name, p in model.named_parameters())
