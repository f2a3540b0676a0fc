# SPDX-License-Identifier: BSD-3-Clause
"""The hook of DistributedDataParallel that sends the largest elements of gradients.

DDP refuses hooks whose annotations are strings, so this module does not import annotations from __future__."""
import math
import time
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.futures import Future

from .. import selection
from .._calls import Timeout
from .._kwargs import Select
from .._values import ValuesLike
from ._errors import (
    SEED_STEP,
    Errors,
    ErrorState,
    Piece,
    any_of,
    check_density,
    check_momentum,
    check_range,
)
from ._group import resolved
from ._hooks import Prepared, finite
from ._stats import Selected

_PLACE_STEP = 0xD1B54A32D192ED03  # odd, so that the seeds of parameters differ
_WARMUP_EPOCHS = 4  # of pici.topk_warmup, whose density falls once an epoch


class TopKState(ErrorState):
    """Options of topk_hook. Names follow torch's PowerSGDState where it has them.

        process_group   the ranks that average; None: the default group
        density         the fraction of elements to send, above 0 and at most 1
        start_iter      number of first iterations that are averaged whole
        warmup_iters    number of iterations after these with a falling density: 25%, 6.25%, 1.6%, 0.4%, each for a
                        quarter of them, but never below density (deep gradient compression)
        min_numel       send tensors with fewer elements whole
        error_feedback  add the unsent rest to the next gradient
        selection       "tensor": the largest elements of each parameter; "bucket": of all parameters in a DDP bucket;
                        "random": random elements of each parameter, the same on all ranks
        sampled         estimate the threshold from a random sample, and so send about as many; exact in CUDA tensors
        momentum        of each rank's gradients, before the selection, instead of the optimizer's, which is then 0;
                        cleared where elements are sent (momentum factor masking of deep gradient compression)
        leak            factor of the kept rest in each iteration
        seed            of random choices; the same on all ranks
        timeout, opts   as of State
        grad_scaler     the torch.amp.GradScaler of the training: the errors follow its loss scale, and a step that it
                        skips does not change them, at the cost of a copy; None: rescale() changes their scale
        bits, values    a lossy codec for sent elements: QSGD of 2, 4 or 8 bits, or any other, as for
                        pici.Comm.all_reduce ({"codec": "cast"}); rounding errors are kept too. None: values are exact

    The errors, for each parameter a tensor with the size of its gradient, are part of the training's state, on each
    rank:

        state.state_dict(model)                       a rank's errors by the parameters' names, and the iteration
        state.load_state_dict(state_dict, model)      before the first iteration of the resumed run

    The state keeps errors by parameter, so buckets may be rebuilt. A parameter whose gradient on this rank is all zeros
    sends nothing and keeps its error: if no rank used it, DDP would drop the message. A gradient that is not finite is
    sent unchanged; if an average is not finite, the errors of its bucket do not change. Nor do they if its call fails,
    and the iteration then does not count. You can pickle a state, without the process group and the grad_scaler; a
    pickle identifies parameters by their order instead of their names.

    In CUDA tensors torch.topk selects, and may keep any of equal magnitudes; in host memory, the first are kept.
    """

    hook = "topk_hook"

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
        bits: Optional[int] = None,
        values: Optional[ValuesLike] = None,
        grad_scaler: Any = None,
        sampled: bool = False,
        momentum: float = 0.0,
        leak: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(process_group, start_iter, error_feedback, bits, values, timeout, opts, grad_scaler)
        check_density(density)
        for name, value in (("warmup_iters", warmup_iters), ("min_numel", min_numel)):
            if value < 0:
                raise ValueError(f"{name}={value}: below 0")
        if selection not in ("tensor", "bucket", "random"):
            raise ValueError(f"selection={selection!r}: pass 'tensor', 'bucket' or 'random'")
        check_momentum(momentum)
        if momentum and not error_feedback:
            raise ValueError(f"momentum={momentum}: needs error_feedback")
        check_range("leak", leak, 0, 1)
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed={seed}: not from 0 to less than 2**64")
        self.sampled = sampled
        self.momentum = momentum
        self.leak = leak
        self.seed = seed
        self._velocities = Errors()
        self.density = density
        self.warmup_iters = warmup_iters
        self.min_numel = min_numel
        self.selection = selection

    def __setstate__(self, state: dict[str, Any]) -> None:
        older = {"sampled": False, "momentum": 0.0, "leak": 1.0, "seed": 0, "_velocities": Errors()}
        super().__setstate__({**older, **state})

    def _kept(self) -> dict[str, Errors]:
        return {**super()._kept(), **({"velocities": self._velocities} if self.momentum else {})}

    def _changes_exact(self) -> bool:
        return self.momentum > 0

    def _needed(self) -> str:
        return f"momentum={self.momentum}" if self.momentum else ""

    def _keeps(self, parameter: torch.Tensor) -> bool:
        all_sizes = self.values is not None or self.momentum > 0
        return self.error_feedback and (all_sizes or parameter.numel() >= self.min_numel)

    def density_now(self) -> float:
        """The fraction of elements that this iteration sends."""
        step = self.iter - self.start_iter
        if step < 0:
            return 1.0
        if step >= self.warmup_iters:
            return self.density
        return max(self.density, selection.topk_warmup(step * _WARMUP_EPOCHS // self.warmup_iters, 1))

    def _preparation(self, pieces: list[Piece], exactly: bool) -> Callable[[], Prepared]:
        """The function that selects in the gradients of a bucket, in place."""
        density, values = self.density_now(), self._values_now()
        small = [(p, g) for p, g in pieces if p.numel() < self.min_numel]
        step = self.iter
        place = {id(p): i for (p, _), i in zip(pieces, self._errors.places(p for p, _ in pieces))}

        def select() -> Prepared:
            begin = time.perf_counter()
            for parameter, piece in pieces if exactly else small:
                self._sent_whole(parameter, piece)
            if exactly:
                return Prepared()
            large = [(p, g) for p, g in pieces if p.numel() >= self.min_numel and any_of(g)]
            sound = [(p, g) for p, g in large if finite(g)]  # send the others unchanged
            if self.selection == "bucket" and len(sound) < len(large):
                sound = []
            left = sum(g.numel() for _, g in large) - sum(g.numel() for _, g in sound)
            if self.selection == "bucket":
                left += self._select_among(sound, density, step)
            else:
                left += sum(self._select(p, piece, density, step, place[id(p)]) for p, piece in sound)
            left += sum(piece.numel() for _, piece in small)
            selected = Selected(sum(piece.numel() for _, piece in pieces), left, time.perf_counter() - begin)
            if values is not None and self.error_feedback:  # send all elements of the others, but rounded
                for parameter, piece in small:
                    if any_of(piece):
                        self._send_error(parameter, piece)
            return self._rounded(pieces, values, selected)

        return select

    def _sent_whole(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Turn a gradient without selection into its velocity."""
        if self.momentum and any_of(gradient):
            velocity = self._velocities.of(parameter, gradient)
            gradient.copy_(velocity.mul_(self.momentum).add_(gradient))

    def _select(self, parameter: torch.Tensor, gradient: torch.Tensor, density: float, step: int, place: int) -> int:
        """Select in a gradient. Returns the number of kept elements."""
        error = self._errors.of(parameter, gradient) if self.error_feedback else None
        velocity = self._velocities.of(parameter, gradient) if self.momentum else None
        return self._left(gradient, error, velocity, density, step, place)

    def _left(
        self,
        gradient: torch.Tensor,
        error: Optional[torch.Tensor],
        velocity: Optional[torch.Tensor],
        density: float,
        step: int,
        place: int,
    ) -> int:
        """Keep some elements of leak * error + gradient (or + velocity) in gradient, and the others in error. Returns
        the number of kept ones."""
        count = math.ceil(density * gradient.numel())
        if self.selection == "random":
            mixed = (self.seed + (step + 1) * SEED_STEP + place * _PLACE_STEP) % 2**64
            own = torch.Generator().manual_seed((mixed ^ mixed >> 32) % 2**32)  # the generator's full range
            chosen = _positions(gradient.numel(), count, own)
            return self._keep(gradient, error, velocity, lambda _: chosen.to(gradient.device))
        if gradient.device.type != "cpu":
            return self._keep(gradient, error, velocity, lambda x: x.abs().topk(count, sorted=False).indices)
        select: Select = "sampled" if self.sampled else "global"
        nnz: int = selection.topk(
            gradient,
            error,
            velocity,
            select=select,
            density=density,
            leak=self.leak,
            momentum=self.momentum,
            seed=self.seed,
            step=step,
            out=gradient,
        )[1]
        return nnz

    def _keep(
        self,
        gradient: torch.Tensor,
        error: Optional[torch.Tensor],
        velocity: Optional[torch.Tensor],
        choose: Callable[[torch.Tensor], torch.Tensor],
    ) -> int:
        """_left(), for the elements whose positions choose() returns."""
        added = gradient if velocity is None else velocity.mul_(self.momentum).add_(gradient)
        sums = added.clone() if error is None else error.mul_(self.leak) + added
        kept = choose(sums)
        gradient.zero_().index_copy_(0, kept, sums[kept])
        if error is not None:
            error.copy_(sums.index_fill_(0, kept, 0))
        if velocity is not None:
            velocity.index_fill_(0, kept, 0)
        return int(gradient.count_nonzero())

    def _select_among(self, pieces: list[Piece], density: float, step: int) -> int:
        """Select among the gradients of several parameters."""
        if not pieces:
            return 0
        gradients = torch.cat([piece for _, piece in pieces])
        lengths = [piece.numel() for _, piece in pieces]
        errors = [self._errors.of(*piece) for piece in pieces] if self.error_feedback else []
        velocities = [self._velocities.of(*piece) for piece in pieces] if self.momentum else []
        error, velocity = (torch.cat(parts) if parts else None for parts in (errors, velocities))
        left = self._left(gradients, error, velocity, density, step, 0)
        for (_, piece), new in zip(pieces, gradients.split(lengths)):
            piece.copy_(new)
        for parts, whole in ((errors, error), (velocities, velocity)):
            for kept, new in zip(parts, () if whole is None else whole.split(lengths)):
                kept.copy_(new)
        return left


def _positions(elements: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Random positions of elements, each once."""
    if 4 * count >= elements:
        return torch.randperm(elements, generator=generator)[:count]
    chosen = torch.empty(0, dtype=torch.int64)
    while chosen.numel() < count:
        more = torch.randint(elements, (count + count // 4 + 16,), generator=generator)
        chosen = torch.cat([chosen, more]).unique()
    return chosen[torch.randperm(chosen.numel(), generator=generator)[:count]]


def topk_hook(state: TopKState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """A DDP communication hook: averages the largest elements of the gradients, and adds the rest to the next
    gradients.

        ddp.register_comm_hook(pici.torch.TopKState(density=0.01), pici.torch.topk_hook)

    It changes the training: more steps to the same loss, but each sends much less. The hook runs while backward()
    computes further gradients. backward() raises errors, on all ranks."""
    if not isinstance(state, TopKState):
        raise TypeError(f"topk_hook needs a pici.torch.TopKState, not {type(state).__name__}")
    return state._run(resolved(state.process_group), bucket)
