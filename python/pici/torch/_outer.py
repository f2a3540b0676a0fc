# SPDX-License-Identifier: BSD-3-Clause
"""Local SGD: each rank trains alone for many steps, and then the ranks average their changes."""
from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, Optional

import torch
import torch.distributed as dist

from .. import selection
from .._calls import Timeout
from ._errors import ErrorState, Piece, check_above_0, check_density, check_momentum, check_range, named_parameters
from ._group import comm, global_rank, resolved
from ._hooks import Prepared, State, finite
from ._lists import all_reduce
from ._quantize import QuantizeState
from ._stats import Selected, total
from ._topk import TopKState

Method = Literal["dense", "bits", "topk", "sparseloco", "visible"]

CHUNK = 4096  # sparseloco sends the largest of this many elements
_VERSION = 1  # of state_dict()
#: the options that each has, with their defaults
_METHODS: dict[str, dict[str, Any]] = {
    "dense": {"lr": 0.7, "momentum": 0.9},
    "bits": {"lr": 0.7, "momentum": 0.9, "bits": 4},
    "topk": {"lr": 1.0, "momentum": 0.0, "bits": None, "density": 0.05},
    "sparseloco": {"lr": 1.0, "momentum": 0.0, "bits": 2, "density": 0.02, "decay": 0.95},
    "visible": {"lr": 0.7, "momentum": 0.9},
}


class _ChunkState(ErrorState):
    """The largest elements of each chunk, rounded to few bits. Keeps the unsent rest, times decay, instead of an outer
    momentum (SparseLoCo)."""

    def __init__(self, group: Any, density: float, bits: int, decay: float, timeout: Any, opts: Any) -> None:
        super().__init__(group, 0, True, bits, None, timeout, opts, None)
        check_density(density)
        check_range("decay", decay, 0, 1)
        self.most, self.decay = math.ceil(density * CHUNK), decay

    def _ours(self, x: torch.Tensor) -> bool:
        return x.device.type == "cpu" and super()._ours(x)

    def _needed(self) -> str:
        return 'method="sparseloco"'

    def _preparation(self, pieces: list[Piece], exactly: bool) -> Callable[[], Prepared]:
        values = self._values_now()

        def select() -> Prepared:
            begin, left = time.perf_counter(), 0
            options: dict[str, Any] = {"select": "bucket", "bucket": CHUNK, "k": self.most, "leak": self.decay}
            for place, piece in pieces:
                left += selection.topk(piece, self._errors.of(place, piece), out=piece, **options)[1]
            selected = Selected(sum(piece.numel() for _, piece in pieces), left, time.perf_counter() - begin)
            return self._rounded(pieces, values, selected)

        return select


class _VisibleState(ErrorState):
    """Changes that are visible in bf16 weights; keeps smaller ones until they are (PULSELoCo)."""

    def __init__(self, group: Any, rate: float, timeout: Any, opts: Any) -> None:
        super().__init__(group, 0, True, None, None, timeout, opts, None)
        self.rate = rate
        self.weights: dict[int, torch.Tensor] = {}  # by id() of the place

    def _needed(self) -> str:
        return 'method="visible"'

    def _preparation(self, pieces: list[Piece], exactly: bool) -> Callable[[], Prepared]:
        def select() -> Prepared:
            for place, piece in pieces:
                error, weights = self._errors.of(place, piece), self.weights[id(place)].view(-1)
                piece.add_(error)
                hidden = (weights - self.rate * piece).bfloat16() == weights.bfloat16()
                error.copy_(piece * hidden)
                piece.masked_fill_(hidden, 0)
            return Prepared()

        return select


class _Fragment:
    """Parameters with a common outer step: their weights after the last one, and the step's state."""

    def __init__(self, names: list[str], parameters: list[torch.Tensor], state: State, offset: int) -> None:
        self.names, self.parameters, self.state, self.offset = names, parameters, state, offset
        wide = [torch.float64 if p.dtype == torch.float64 else torch.float32 for p in parameters]
        self.weights = [
            p.detach().to(dtype).clone(memory_format=torch.contiguous_format) for p, dtype in zip(parameters, wide)
        ]
        self.velocities = [torch.zeros_like(w) for w in self.weights]
        self.flight: Any = None  # a future of averages
        self.due = 0  # the inner step after which they are applied
        self.begun = 0  # the inner step of the last average


class Outer:
    """The outer loop of local SGD (DiLoCo). After every inner_steps steps of their own optimizers, the ranks average
    their changes of the weights. The average is the gradient of an outer step with Nesterov momentum.

        outer = pici.torch.Outer(model, inner_steps=50, method="bits")
        for x, y in batches:                # this rank's
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            outer.step()
        outer.finish()

        model           not wrapped in DistributedDataParallel. All ranks begin with the weights of rank 0
        inner_steps     inner steps between two outer steps
        group           the ranks that average; None: the default group
        method          "dense": average changes exactly.
                        "bits": round them to few bits, with error feedback.
                        "topk": send the largest of each tensor, with error feedback.
                        "sparseloco": send the largest of each 4096 elements, rounded to few bits; keep the rest instead
                        of an outer momentum.
                        "visible": send changes that are visible in bf16, exactly
        bits            for "bits" (4), "sparseloco" (2), "topk" (none)
        density         for "topk" (0.05) and "sparseloco" (0.02)
        lr, momentum    of the outer step: 0.7 and 0.9; for "topk" and "sparseloco" 1 and 0
        decay           for "sparseloco" (0.95): factor of the kept rest when it is added to the next change
        fragments       parts of the model with outer steps at different times, spread over inner_steps
        overlap         inner steps that a rank makes while the average is in flight
        mix             with overlap: the fraction of its own weights with which a rank continues
        timeout, opts   as of State

    Only float parameters that need gradients are averaged, not buffers. If an average is not finite, all ranks skip the
    outer step, and return to the weights after the last one.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner_steps: int,
        group: Optional[dist.ProcessGroup] = None,
        method: Method = "dense",
        *,
        bits: Optional[int] = None,
        density: Optional[float] = None,
        lr: Optional[float] = None,
        momentum: Optional[float] = None,
        decay: Optional[float] = None,
        fragments: int = 1,
        overlap: int = 0,
        mix: float = 0.5,
        timeout: Optional[Timeout] = None,
        opts: Optional[dict[str, Any]] = None,
    ) -> None:
        if method not in _METHODS:
            raise ValueError(f"method={method!r}: pass one of {', '.join(map(repr, _METHODS))}")
        chosen = [(n, p) for n, p in named_parameters(model) if p.requires_grad and p.is_floating_point()]
        for name, value, low, high in (
            ("inner_steps", inner_steps, 1, math.inf),
            ("fragments", fragments, 1, max(1, min(inner_steps, len(chosen)))),
            ("overlap", overlap, 0, inner_steps - 1),
            ("mix", mix, 0, 1),
        ):
            check_range(name, value, low, high)
        if not chosen:
            raise ValueError("the model has no parameters that are trained")
        given = {"bits": bits, "density": density, "lr": lr, "momentum": momentum, "decay": decay}
        options = dict(_METHODS[method])
        for name, option in given.items():
            if option is None:
                continue
            if name not in options:
                raise ValueError(f"{name}={option}: method={method!r} has none")
            options[name] = option
        self.inner_steps, self.method, self.overlap, self.mix = inner_steps, method, overlap, mix
        self.lr, self.momentum = options["lr"], options["momentum"]
        check_above_0("lr", self.lr)
        check_momentum(self.momentum)
        self.steps = 0  # inner ones
        self._group = group

        def state() -> State:
            if method == "bits":
                return QuantizeState(group, bits=options["bits"], start_iter=0, timeout=timeout, opts=opts)
            if method == "topk":
                kept = {"density": options["density"], "bits": options["bits"]}
                return TopKState(group, start_iter=0, timeout=timeout, opts=opts, **kept)
            if method == "sparseloco":
                return _ChunkState(group, options["density"], options["bits"], options["decay"], timeout, opts)
            if method == "visible":
                return _VisibleState(group, self.lr, timeout, opts)
            return State(group, timeout=timeout, opts=opts)

        states = [state() for _ in range(fragments)]  # which refuse options before a rank waits for others
        first = global_rank(resolved(group), 0)
        for _, p in chosen:
            rows = p.detach().contiguous()  # gloo supports no other order of the elements
            dist.broadcast(rows, first, group=resolved(group))
            p.detach().copy_(rows)
        self._fragments: list[_Fragment] = []
        for i, part in enumerate(_parts(chosen, fragments)):
            names, parameters = [n for n, _ in part], [p for _, p in part]
            self._fragments.append(_Fragment(names, parameters, states[i], i * inner_steps // fragments))

    def __repr__(self) -> str:
        return (
            f"Outer(method={self.method!r}, inner_steps={self.inner_steps}, lr={self.lr}, momentum={self.momentum}, "
            f"fragments={len(self._fragments)}, overlap={self.overlap}, steps={self.steps})"
        )

    def step(self) -> bool:
        """Call this after each step of the inner optimizer. Returns whether it averaged weights."""
        self.steps += 1
        averaged = False
        for fragment in self._fragments:
            if fragment.flight is not None and self.steps >= fragment.due:
                self._apply(fragment)
                averaged = True
            if (self.steps + fragment.offset) % self.inner_steps == 0:
                self._begin(fragment)
                if self.overlap == 0:
                    self._apply(fragment)
                    averaged = True
        return averaged

    def finish(self) -> None:
        """End the training: wait for averages in flight, and make a last outer step of the changes since the previous
        one, if there were steps. All ranks then have the same weights."""
        for fragment in self._fragments:
            done = fragment.begun == self.steps
            if fragment.flight is not None:
                self._apply(fragment, 0.0 if done else None)
            if done:
                self._go_on(fragment, 0.0)
            else:
                self._begin(fragment)
                self._apply(fragment, 0.0)

    def stats(self) -> dict[str, float]:
        """Sums over all calls of this rank, as in State."""
        return total(fragment.state._stats for fragment in self._fragments).as_dict()

    def _begin(self, fragment: _Fragment) -> None:
        """Start to average the changes since the last outer step."""
        # the model continued from weights rounded to its dtype: that rounding is not a change
        both = zip(fragment.weights, fragment.parameters)
        changes = [w.to(p.dtype).to(w.dtype) - p.detach().to(w.dtype) for w, p in both]
        if isinstance(fragment.state, _VisibleState):
            places = fragment.state.places_of(changes)
            fragment.state.weights = {id(place): w for place, w in zip(places, fragment.weights)}
        fragment.flight = all_reduce(changes, self._group, state=fragment.state, async_op=True)
        fragment.due, fragment.begun = self.steps + self.overlap, self.steps

    def _apply(self, fragment: _Fragment, mix: Optional[float] = None) -> None:
        """Make the outer step of the averages in flight, and continue the model with its weights."""
        flight, fragment.flight = fragment.flight, None
        averages = flight.wait()
        mix = mix if mix is not None else self.mix if self.overlap else 0.0
        if all(finite(average) for average in averages):
            for weight, velocity, average in zip(fragment.weights, fragment.velocities, averages):
                if self.momentum:
                    velocity.mul_(self.momentum).add_(average)
                    average = average + self.momentum * velocity
                weight.sub_(average, alpha=self.lr)
        else:
            warnings.warn("pici.torch: an average is not finite: this outer step is left out", stacklevel=3)
            mix = 0.0
        self._go_on(fragment, mix)

    def _go_on(self, fragment: _Fragment, mix: float) -> None:
        """Continue the model with the weights of the last outer step, and the fraction mix of its own."""
        for parameter, weight in zip(fragment.parameters, fragment.weights):
            own = parameter.detach()
            own.copy_(weight if mix == 0 else mix * own.to(weight.dtype) + (1 - mix) * weight)

    # ---- ranks that come and go

    def regroup(self, group: Optional[dist.ProcessGroup] = None, source: int = 0) -> None:
        """Continue among the ranks of another group. All of its ranks, old and new, call this after an outer step. All
        get the outer weights, the momentum and the number of steps of rank `source`, an old rank. Each old rank keeps
        its unsent changes, and what it has trained since the last outer step, unless it had other weights then; a new
        one begins without.

        A new rank makes its Outer in a group with only itself: Outer() broadcasts weights in its group, and old ranks
        do not make one. The model is in host memory.

            alone = torch.distributed.new_group([rank], use_local_synchronization=True)
            outer = pici.torch.Outer(model, inner_steps=50, group=alone)
            outer.regroup(group)

        group: made by all of its ranks, for example by torch.distributed.new_group, or after a new
            init_process_group."""
        for fragment in self._fragments:
            for x in fragment.weights:
                if x.device.type != "cpu":
                    raise NotImplementedError(f"regroup() takes models in the host's memory, and this is on {x.device}")
        for fragment in self._fragments:
            if fragment.flight is not None:
                self._apply(fragment)
        with comm(group) as among:
            counts = torch.tensor([self.steps] + [fragment.begun for fragment in self._fragments])
            among.broadcast(counts, source)
            before = [[w.clone() for w in fragment.weights] for fragment in self._fragments]
            for fragment in self._fragments:
                for x in [*fragment.weights, *fragment.velocities]:
                    among.broadcast(x, source)
        self._group, self.steps = group, int(counts[0])
        for fragment, weights, step in zip(self._fragments, before, counts[1:].tolist()):
            fragment.state.process_group, fragment.begun = group, step
            if not all(torch.equal(own, of_source) for own, of_source in zip(weights, fragment.weights)):
                self._go_on(fragment, 0.0)

    # ---- checkpoints

    def _states(self) -> Iterator[tuple[str, _Fragment]]:
        for i, fragment in enumerate(self._fragments):
            yield f"fragment {i}", fragment

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs besides the model and the inner optimizer. All ranks call this after the
        same step; with overlap, before they save the model: it waits for averages in flight, and makes their outer
        steps, which change the model. Keys of this rank's own state have its number, as in TopKState.state_dict()."""
        for fragment in self._fragments:
            if fragment.flight is not None:
                self._apply(fragment)
        parts: dict[str, Any] = {}
        for name, fragment in self._states():
            parts[name] = {
                "begun": fragment.begun,
                "weights": {n: w.clone() for n, w in zip(fragment.names, fragment.weights)},
                "velocities": {n: v.clone() for n, v in zip(fragment.names, fragment.velocities)},
            }
            if isinstance(fragment.state, ErrorState):
                parts[name]["kept"] = fragment.state.state_dict(fragment.weights)
        return {"kind": "Outer", "version": _VERSION, "method": self.method, "steps": self.steps, **parts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the state_dict() of the same rank, method and fragments. Drops averages in flight. ValueError:
        the state is of another model, method or rank; nothing has changed."""
        if state_dict.get("kind") != "Outer" or state_dict.get("version") != _VERSION or "steps" not in state_dict:
            raise ValueError(f"this is no state of an Outer of version {_VERSION}")
        if state_dict.get("method") != self.method:
            raise ValueError(f"the state is of method={state_dict.get('method')!r}, and this is {self.method!r}")
        load: list[Callable[[], None]] = []
        for name, fragment in self._states():
            part = state_dict.get(name, {})
            of_another = f"{name}: the state is of another model, or of another number of fragments"
            if "begun" not in part:
                raise ValueError(of_another)
            for own, what in ((fragment.weights, "weights"), (fragment.velocities, "velocities")):
                saved = part.get(what, {})
                if list(saved) != fragment.names:
                    raise ValueError(of_another)
                for x, n in zip(own, fragment.names):
                    if saved[n].shape != x.shape:
                        raise ValueError(f"{name}: {n!r} has the shape {tuple(saved[n].shape)} in the state")
            if isinstance(fragment.state, ErrorState):
                load.append(fragment.state._loading(part.get("kept", {}), fragment.weights))
        for fragment in self._fragments:
            flight, fragment.flight = fragment.flight, None
            if flight is not None:
                flight.wait()
        for each in load:
            each()
        self.steps = int(state_dict["steps"])
        for name, fragment in self._states():
            part = state_dict[name]
            fragment.begun = int(part["begun"])
            for own, saved in ((fragment.weights, part["weights"]), (fragment.velocities, part["velocities"])):
                for x, n in zip(own, fragment.names):
                    x.copy_(saved[n])


def _parts(chosen: list[tuple[str, torch.nn.Parameter]], count: int) -> Iterator[list[tuple[str, torch.nn.Parameter]]]:
    """Parameters in `count` parts, in order, with about equally many elements; none is empty."""
    left = sum(p.numel() for _, p in chosen)
    begin = 0
    for i in range(count):
        target, end, taken = left / (count - i), begin, 0
        last = len(chosen) - (count - i - 1)
        while end < last and (end == begin or i + 1 == count or taken + chosen[end][1].numel() / 2 <= target):
            taken += chosen[end][1].numel()
            end += 1
        yield chosen[begin:end]
        left, begin = left - taken, end
