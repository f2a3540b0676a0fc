# SPDX-License-Identifier: BSD-3-Clause
"""Memory for large new arrays.

The system clears pages of new memory on first touch. That takes several times as long as decoding a sparse block into
them. So this module keeps the memory of released arrays for new ones, up to a limit; the system may reclaim its pages
when memory is short (MADV_FREE). New memory begins at a huge page and asks for huge pages. One call per thread clears
it, which is faster than a fault for each page."""
from __future__ import annotations

import contextlib
import mmap
import operator
import os
import threading
from typing import Any, NamedTuple, Optional

import numpy as np

from . import _codec
from ._ranges import u31

Raw = np.ndarray[Any, np.dtype[Any]]

LEAST = 4 << 20  # bytes; smaller arrays are NumPy's, whose allocator keeps memory itself
_HUGE_PAGE = 2 << 20
_FREE: Optional[int] = getattr(mmap, "MADV_FREE", None)
_HUGE: Optional[int] = getattr(mmap, "MADV_HUGEPAGE", None)

_POPULATE_WRITE = 23  # Linux 5.14
_THREADS = 8  # more do not clear pages faster

_madvise = _codec.advise  # which releases the GIL; mmap.madvise() does not

_limit = 1 << 30
# By an arbitrary number, from the longest kept to the shortest. _Memory.__del__ may change it within any other function
# here, where a lock would deadlock, and within an iteration over its items, which makes tuples and so may collect
# garbage. So: single operations of the dict, and loops over a list of its keys.
_kept: dict[int, _Pages] = {}


class _Pages(NamedTuple):
    map: mmap.mmap
    bytes: Raw  # from its first huge page on


class _Memory:
    """The owner of an array's memory, which all views of the array refer to."""

    def __init__(self, pages: _Pages) -> None:
        self._pages = pages
        self.__array_interface__ = pages.bytes.__array_interface__

    def __del__(self) -> None:
        if _keep is not None:  # else the interpreter is ending
            _keep(self._pages)


def _advise(pages: mmap.mmap, advice: Optional[int]) -> None:
    if advice is not None:
        with contextlib.suppress(OSError):  # a kernel without it
            pages.madvise(advice)


def _trim(most: int) -> None:
    for key in list(_kept):
        if sum(pages.bytes.size for pages in list(_kept.values())) <= most:  # list() makes no object for each
            break
        _kept.pop(key, None)


def _keep(pages: _Pages) -> None:
    if pages.bytes.size > _limit:
        return
    _advise(pages.map, _FREE)
    _kept[id(pages)] = pages
    _trim(_limit)


def _reused(need: int) -> Optional[_Pages]:
    for key in reversed(list(_kept)):
        pages = _kept.get(key)
        if pages is None:
            continue
        if need <= pages.bytes.size <= need + max(need // 4, _HUGE_PAGE):
            if _kept.pop(key, None) is not None:
                return pages
    return None


def _new(need: int, threads: int) -> _Pages:
    size = -(-need // _HUGE_PAGE) * _HUGE_PAGE
    pages = mmap.mmap(-1, size + _HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _advise(pages, _HUGE)
    begin: int = np.frombuffer(pages, np.uint8).__array_interface__["data"][0]
    first = -begin % _HUGE_PAGE
    _clear(begin + first, size, threads or len(os.sched_getaffinity(0)))
    return _Pages(pages, np.frombuffer(pages, np.uint8, size, first))


def _clear(begin: int, size: int, threads: int) -> None:
    """Have the system provide and clear all pages. After a failure, it clears them on first touch. If no more threads
    can start, this one clears the rest."""
    part = -(-size // (min(threads, _THREADS) * _HUGE_PAGE)) * _HUGE_PAGE
    helpers = [
        threading.Thread(target=_madvise, args=(begin + at, min(part, size - at), _POPULATE_WRITE))
        for at in range(part, size, part)
    ]
    mine = min(part, size)
    try:
        for i, helper in enumerate(helpers):
            try:
                helper.start()
            except RuntimeError:
                rest = (i + 1) * part
                _madvise(begin + rest, size - rest, _POPULATE_WRITE)
                break
        _madvise(begin, mine, _POPULATE_WRITE)
    finally:
        for helper in helpers:
            if helper.ident is not None:  # it has started
                helper.join()


def empty(count: int, dtype: np.dtype[Any], threads: int) -> Raw:
    """An array with unspecified elements, like numpy.empty. threads: the most that clear its pages; 0: one for each
    core."""
    need = count * dtype.itemsize
    if need >= LEAST:
        threads = u31(threads, "threads")
        try:
            memory = _Memory(_reused(need) or _new(need, threads))
        except (OSError, OverflowError, ValueError):
            pass  # NumPy raises what it raises
        else:
            return np.asarray(memory)[:need].view(dtype)
    return np.empty(count, dtype)


def keep_memory(max_bytes: int) -> None:
    """Keep at most max_bytes of the memory of released arrays for new arrays; 0 keeps none. The default is 1 GiB.
    Applies to arrays of 4 MiB and more that functions of this package return.
    """
    global _limit
    _limit = max(0, operator.index(max_bytes))
    _trim(_limit)
