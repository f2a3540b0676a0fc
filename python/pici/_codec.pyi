# SPDX-License-Identifier: BSD-3-Clause
from collections.abc import Callable
from typing import Any, Optional, Union

from ._arrays import Storage

Octets = Union[bytes, Storage]

def bind(address_of: Callable[[str], Optional[int]], /) -> None: ...
def callbacks() -> tuple[int, int]: ...
def in_turn(lock: Any, method: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], /) -> Any: ...
def encode(
    base: Optional[Storage],
    source: Storage,
    dtype: int,
    format: int,
    threads: int,
    checksum: bool,
    zeros: int,
    small: bool,
    out: Optional[Storage],
    /,
) -> Union[bytes, int]: ...
def head(block: Octets, /) -> Union[tuple[int, int, int, int, int], int]: ...
def verify(block: Octets, /) -> Optional[tuple[int, int, Optional[int], str]]: ...
def decode(what: int, out: Storage, first: int, block: Octets, threads: int, /) -> int: ...
def apply_small(out: Storage, n: int, delta: Octets, threads: int, /) -> int: ...

# Collectives. A driver and a flight are capsules.
Driver = Any
Flight = Any
Memory = Union[Storage, tuple[int, int, Any]]

def comm_new(address: int, /) -> tuple[Driver, int, int]: ...
def comm_call(
    driver: Driver,
    kind: int,
    send: Memory,
    recv: Memory,
    dtype: int,
    op: int,
    opts: Optional[bytes],
    blocks: bool,
    values: Optional[bytes],
    residual: Optional[Memory],
    extra: Union[int, bytes, None],
    /,
) -> int: ...
def comm_start(
    driver: Driver,
    kind: int,
    send: Memory,
    recv: Memory,
    dtype: int,
    op: int,
    opts: Optional[bytes],
    blocks: bool,
    values: Optional[bytes],
    residual: Optional[Memory],
    extra: Union[int, bytes, None],
    /,
) -> Union[Flight, int]: ...
def comm_wait(flight: Flight, wait: bool, /) -> Optional[int]: ...
def comm_stats(
    of: Union[Driver, Flight], last: bool, /
) -> tuple[int, int, int, int, tuple[int, int, int, int], float, float, float, int, float, float, int, float]: ...
def comm_error(driver: Driver, /) -> Union[str, int]: ...
def comm_set(driver: Driver, what: int, value: bytes, /) -> int: ...
def comm_close(driver: Driver, /) -> None: ...
