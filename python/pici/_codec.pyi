# SPDX-License-Identifier: BSD-3-Clause
from collections.abc import Callable
from typing import Optional, Union

from ._arrays import Storage

Octets = Union[bytes, Storage]

def bind(address_of: Callable[[str], Optional[int]], /) -> None: ...
def callbacks() -> tuple[int, int]: ...
def encode(
    base: Optional[Storage],
    source: Storage,
    dtype: int,
    format: int,
    threads: int,
    checksum: bool,
    zeros: int,
    out: Optional[Storage],
    /,
) -> Union[bytes, int]: ...
def head(block: Octets, /) -> Union[tuple[int, int, int, int, int], int]: ...
def verify(block: Octets, /) -> Optional[tuple[int, int, Optional[int], str]]: ...
def decode(what: int, out: Storage, first: int, block: Octets, threads: int, /) -> int: ...
