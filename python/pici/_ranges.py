# SPDX-License-Identifier: BSD-3-Clause
"""Numbers from callers, which must be in the range of their C types. what: the number's name in the message."""
from __future__ import annotations

import operator


def _within(value: int, what: str, low: int, high: int) -> int:
    value = operator.index(value)
    if not low <= value <= high:
        raise ValueError(f"{what} is {value}, not from {low} to {high}")
    return value


def u31(value: int, what: str) -> int:
    """value, if it is from 0 to 2^31 - 1; else ValueError."""
    return _within(value, what, 0, 2**31 - 1)


def u32(value: int, what: str) -> int:
    """value, if it is from 1 to 2^32 - 1; else ValueError."""
    return _within(value, what, 1, 2**32 - 1)


def u64(value: int, what: str) -> int:
    """value, if it is from 0 to 2^64 - 1; else ValueError."""
    return _within(value, what, 0, 2**64 - 1)
