# SPDX-License-Identifier: BSD-3-Clause
"""The DistributedDataParallel hook that rounds gradients to few bits.

DDP refuses hooks whose annotations are strings, so this module does not import annotations from __future__."""
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.futures import Future

from .._calls import Timeout
from .._values import ValuesLike
from ._errors import ErrorState, Piece, any_of
from ._group import resolved
from ._hooks import Prepared


class QuantizeState(ErrorState):
    """Options of quantize_hook.

        process_group   the ranks that average; None: the default group
        bits            of an element: 2, 4 or 8 (QSGD). 8 unless there are values
        values          any other codec, as of pici.Comm.all_reduce: {"codec": "cast"}
        start_iter      number of first iterations that are averaged exactly
        error_feedback  add rounding errors to the next gradient. QSGD by bits then rounds to nearest; without error
                        feedback it rounds up or down at random, unbiased
        timeout, opts   as of State
        grad_scaler     as of TopKState

    All ranks get the same bits. Each rank keeps the rounding errors of its messages, including errors of sums that it
    forwards. Errors are kept, saved, loaded and pickled as in TopKState:

        state.state_dict(model)                       a rank's errors by the parameters' names, and the iteration
        state.load_state_dict(state_dict, model)      before the first iteration of the resumed run
    """

    hook = "quantize_hook"

    def __init__(
        self,
        process_group: Optional[dist.ProcessGroup] = None,
        bits: Optional[int] = None,
        values: Optional[ValuesLike] = None,
        start_iter: int = 2,
        error_feedback: bool = True,
        timeout: Optional[Timeout] = None,
        opts: Optional[dict[str, Any]] = None,
        grad_scaler: Any = None,
    ) -> None:
        if bits is None and values is None:
            bits = 8
        super().__init__(process_group, start_iter, error_feedback, bits, values, timeout, opts, grad_scaler)

    def _preparation(self, pieces: list[Piece], exactly: bool) -> Callable[[], Prepared]:
        """The function that adds earlier rounding errors to the gradients of a bucket."""
        values = self._values_now()

        def add() -> Prepared:
            for parameter, piece in pieces if self.error_feedback else ():
                if any_of(piece):
                    self._send_error(parameter, piece)
            return self._rounded(pieces, values)

        return add


def quantize_hook(state: QuantizeState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """A DDP communication hook: averages gradients rounded to few bits, and adds the rounding errors to the next
    gradients.

        ddp.register_comm_hook(pici.torch.QuantizeState(bits=4), pici.torch.quantize_hook)

    It changes the training a little, and sends a fourth (8 bits) or an eighth (4 bits) of the bytes. The hook runs
    while backward() computes further gradients. backward() raises errors, on all ranks."""
    if not isinstance(state, QuantizeState):
        raise TypeError(f"quantize_hook needs a pici.torch.QuantizeState, not {type(state).__name__}")
    return state._run(resolved(state.process_group), bucket)
