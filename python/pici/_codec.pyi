# SPDX-License-Identifier: BSD-3-Clause
"""The extension module: functions of the library on Python's objects. A function that fails returns Failed, or a status
below 0; exceptions are for arguments that no caller here passes.

Handles and capsules are objects of the library, each of a class of its own here, which the module does not have."""
from collections.abc import Callable
from typing import Any, Optional, Union, final, type_check_only

from ._arrays import Storage
from ._streams import Sink, Source

Octets = Union[bytes, Storage]
Attrs = tuple[tuple[bytes, bytes], ...]  # keys and values

@final
class Failed(tuple[int, int, str, int]):
    """A call of the library that failed. A struct sequence."""

    @property
    def status(self) -> int: ...
    @property
    def code(self) -> int:
        """errno; 0: there is none"""
    @property
    def words(self) -> str:
        """what is wrong"""
    @property
    def offset(self) -> int:
        """in a file, of the record that is wrong"""

# The library, and numbers of its headers.
FORMATS: dict[str, int]
ZEROS: dict[str, int]
PACKINGS: dict[str, int]
BALANCES: dict[str, int]
PACK: dict[str, int]
SELECT: dict[str, int]
STREAM_FORMS: dict[str, int]
OPS: dict[str, int]
VALUE_CODECS: dict[str, int]
NORMS: dict[str, int]
ROUNDINGS: dict[str, int]
ALL_GATHER: int
REDUCE_SCATTER: int
ALL_REDUCE: int
BROADCAST: int
ALL_GATHERV: int
ALL_TO_ALLV: int
NEIGHBOR_ALL_GATHER: int
NEIGHBOR_ALL_GATHERV: int
RANK_MAX: int
CHUNK_MAX: int
KEY_MAX: int
STATE_RAW: int
STATE_SAFETENSORS: int
DELTA_AUTO: int
DELTA_SMALLEST: int
DELTA_FASTEST: int

def load(path: bytes, collectives: bytes, /) -> str: ...
def algorithms() -> dict[str, int]: ...
def strerror(status: int, /) -> str: ...
def in_turn(lock: Any, method: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], /) -> Any: ...

# Blocks
def bound(format: int, dtype: int, count: int, small: bool, /) -> int: ...
def encode(
    base: Optional[Storage],
    source: Storage,
    dtype: int,
    format: int,
    threads: int,
    checksum: bool,
    zeros: int,
    pack: int,
    small: Optional[tuple[int, int, int, int, int]],
    out: Optional[Storage],
    /,
) -> Union[bytes, int]: ...
def head(block: Octets, /) -> Union[tuple[int, int, int, int, int], int]: ...
def verify(block: Octets, /) -> Optional[tuple[int, int, Optional[int], str]]: ...
def decode(what: int, out: Storage, first: int, block: Octets, threads: int, /) -> int: ...
def apply_small(
    out: Storage, n: int, part: tuple[int, int, int, int], deltas: tuple[Octets, ...], threads: int, /
) -> int: ...
def nonzeros(
    base: Optional[Storage],
    block: Octets,
    first: int,
    n: int,
    indices: Storage,
    index_bytes: int,
    values: Storage,
    width: int,
    /,
) -> tuple[int, int]: ...

# Files
@type_check_only
class Reader: ...

@type_check_only
class Writer: ...

@type_check_only
class OutFile: ...

@type_check_only
class View: ...

def close(handle: Union[Reader, Writer, OutFile, State, Deltas, Log, Update], /) -> bool: ...
def reader_open_path(path: bytes, threads: int, /) -> Union[Reader, Failed]: ...
def reader_open_memory(data: bytes, threads: int, /) -> Union[Reader, Failed]: ...
def reader_open_stream(source: Source, bytes: int, threads: int, /) -> Union[Reader, Failed]: ...
def reader_names(reader: Reader, /) -> Union[list[str], Failed]: ...
def reader_find(reader: Reader, name: str, /) -> Union[tuple[Any, ...], Failed, None]: ...
def reader_stored(reader: Reader, index: int, /) -> Union[tuple[Any, ...], Failed, None]: ...
def reader_attrs(reader: Reader, index: Optional[int], /) -> Union[dict[str, bytes], Failed]: ...
def reader_read(reader: Reader, index: int, first: int, count: int, out: Storage, /) -> Optional[Failed]: ...
def reader_verify(reader: Reader, /) -> Optional[Failed]: ...
def view_copy(view: View, stored: Storage, stored_first: int, first: int, count: int, out: Storage, /) -> int: ...
def outfile_open(path: bytes, force: bool, /) -> Union[OutFile, Failed]: ...
def outfile_write(out: OutFile, data: Octets, /) -> int: ...
def outfile_commit(out: OutFile, /) -> Optional[Failed]: ...
def writer_open(
    out: Union[OutFile, Sink],
    attrs: Attrs,
    format: int,
    threads: int,
    zstd: int,
    chunk_elements: int,
    zeros: int,
    pack: int,
    /,
) -> Union[Writer, Failed]: ...
def writer_tensor(
    writer: Writer, name: bytes, dtype: int, shape: tuple[int, ...], attrs: Attrs, /
) -> Optional[Failed]: ...
def writer_data(writer: Writer, elements: Storage, /) -> Optional[Failed]: ...
def writer_finish(writer: Writer, /) -> Optional[Failed]: ...

# States, deltas and logs
@type_check_only
class State: ...

@type_check_only
class Deltas: ...

@type_check_only
class Log: ...

@type_check_only
class Update: ...

# choice, format, threads, zstd, list_all, the address of a pici_small_fn
DiffOpts = Union[
    tuple[int, int, int, int], tuple[int, int, int, int, bool], tuple[int, int, int, int, bool, Optional[int]]
]

def state_new(name: bytes, type: int, head: bytes, /) -> Union[State, Failed]: ...
def state_open(path: bytes, type: int, dtype: int, /) -> Union[State, Failed]: ...
def state_add(
    state: State,
    name: bytes,
    word: bytes,
    dtype: int,
    shape: tuple[int, ...],
    elements: Storage,
    part: Optional[tuple[int, ...]] = ...,
    /,
) -> Optional[Failed]: ...
def state_type(state: State, /) -> int: ...
def state_hash(state: State, /) -> Union[tuple[int, int], Failed]: ...
def diff_states(out: Union[OutFile, Sink], base: State, next: State, opts: DiffOpts, /) -> Optional[Failed]: ...
def deltas_new() -> Union[Deltas, Failed]: ...
def deltas_add(row: Deltas, reader: Reader, name: bytes, /) -> Optional[Failed]: ...
def deltas_info(row: Deltas, reader: Reader, /) -> Union[tuple[int, int, int, int], Failed]: ...
def deltas_is_result(row: Deltas, state: State, /) -> Union[bool, Failed]: ...
def apply_deltas(out: Union[OutFile, Storage], base: State, row: Deltas, threads: int, /) -> Optional[Failed]: ...
def update_new(base: State, row: Deltas, threads: int, /) -> Union[Update, Failed]: ...
def update_switch(update: Update, /) -> Optional[Failed]: ...
def update_parts(update: Update, /) -> list[tuple[int, int, int, bool]]: ...
def update_block(update: Update, i: int, /) -> bytes: ...
def log_create(folder: bytes, state: State, extension: bytes, pack: int, threads: int, /) -> Optional[Failed]: ...
def log_open(folder: bytes, write: bool, /) -> Union[Log, Failed]: ...
def log_info(log: Log, /) -> tuple[int, int, int, int]: ...
def log_state(log: Log, number: int, /) -> Union[tuple[int, int], Failed]: ...
def log_append(log: Log, newest: State, next: State, opts: DiffOpts, /) -> Optional[Failed]: ...
def log_apply(
    log: Log, given: Union[bytes, State, None], number: Optional[int], out: Union[OutFile, Storage], threads: int, /
) -> Union[tuple[int, int, int, str], Failed]: ...
def log_compact(log: Log, threads: int, /) -> Optional[Failed]: ...

# Selection
TopkOpts = tuple[int, int, int, float, float, float, float, float, int, int, int]

def topk(
    out: Storage,
    residual: Optional[Storage],
    velocity: Optional[Storage],
    gradient: Storage,
    dtype: int,
    opts: TopkOpts,
    /,
) -> Union[int, Failed]: ...
def topk_warmup(step: int, steps_an_epoch: int, /) -> float: ...

# Collectives. A driver is a communicator, a flight a collective that was started.
@type_check_only
class Driver: ...

@type_check_only
class Flight: ...

@type_check_only
class Plan: ...

@type_check_only
class CollOpts: ...

# What a rank passes to a collective of sparse vectors, and the result, which it owns
@type_check_only
class Sparse: ...

@type_check_only
class Values: ...

@type_check_only
class Library: ...

Memory = Union[Storage, tuple[int, int, Any]]
Made = tuple[Driver, int, int]  # with its rank, and the number of ranks

def comm_threads(n: int, /) -> Union[list[Made], Failed]: ...
def comm_sockets(fds: tuple[int, ...], rank: int, /) -> Union[Made, Failed]: ...
def comm_rendezvous(
    address: Optional[bytes], rank: int, ranks: int, token: Optional[bytes], /
) -> Union[Made, Failed]: ...
def library(path: bytes, /) -> Library: ...
def mpi_version(library: Library, /) -> str: ...
def comm_mpi(library: Library, address: int, bytes: int, /) -> Union[Made, Failed]: ...
def comm_nccl(library: Library, comm: int, stream: int, /) -> Union[Made, Failed]: ...
def coll_opts(
    *,
    algorithm: int = ...,
    format: int = ...,
    timeout_ms: int = ...,
    density: float = ...,
    latency: float = ...,
    native: int = ...,
    zeros: int = ...,
    pack: int = ...,
    balance: int = ...,
) -> CollOpts: ...
def values(
    *,
    codec: int = ...,
    phases: int = ...,
    cast: int = ...,
    bits: int = ...,
    norm: int = ...,
    rounding: int = ...,
    bucket: int = ...,
    seed: int = ...,
    rate: float = ...,
    tolerance: float = ...,
    nx: int = ...,
    ny: int = ...,
) -> Values: ...
def sparse(
    dtype: int,
    n: int,
    run: int,
    nnz: int,
    index_width: int,
    indices: Optional[Memory],
    values: Optional[Memory],
    dense: Optional[Memory],
    want: int,
    out_run: int,
    result: Optional[Memory],
    /,
) -> Sparse: ...
def sparse_result(
    sparse: Sparse, /
) -> tuple[int, int, int, tuple[int, int], tuple[int, int], Optional[tuple[int, int]]]: ...
def comm_call(
    driver: Driver,
    kind: int,
    send: Union[Memory, Sparse],
    recv: Optional[Memory],
    dtype: int,
    op: int,
    opts: Optional[CollOpts],
    blocks: bool,
    values: Optional[Values],
    residual: Optional[Memory],
    extra: Union[int, bytes, tuple[Plan, Optional[bytes]], None],
    /,
) -> int: ...
def comm_start(
    driver: Driver,
    kind: int,
    send: Union[Memory, Sparse],
    recv: Optional[Memory],
    dtype: int,
    op: int,
    opts: Optional[CollOpts],
    blocks: bool,
    values: Optional[Values],
    residual: Optional[Memory],
    extra: Union[int, bytes, tuple[Plan, Optional[bytes]], None],
    /,
) -> Union[Flight, int]: ...
def comm_wait(flight: Flight, wait: bool, /) -> Optional[int]: ...
def comm_stats(
    of: Union[Driver, Flight], last: bool, /
) -> tuple[int, int, int, int, tuple[int, int, int, int, int], float, float, float, int, float, float, int, float]: ...
def comm_error(driver: Driver, /) -> Union[str, int]: ...
def comm_tune(
    driver: Driver,
    /,
    *,
    algorithm: int = ...,
    window: int = ...,
    slice_bytes: int = ...,
    format: int = ...,
    formats: int = ...,
    inter_threshold: float = ...,
    intra_threshold: float = ...,
    ag_threshold: float = ...,
    checksum: int = ...,
    inter_bandwidth: float = ...,
    intra_bandwidth: float = ...,
    timeout_ms: int = ...,
    history: int = ...,
    pack: int = ...,
    balance: int = ...,
) -> int: ...
def comm_set_nodes(driver: Driver, nodes: tuple[int, ...], /) -> int: ...
def comm_levels(inner: Driver, outer: Driver, /) -> Union[Made, Failed, int]: ...
def comm_close(driver: Driver, /) -> None: ...
def neighbors_new(
    driver: Driver,
    sources: tuple[int, ...],
    destinations: tuple[int, ...],
    route: int,
    most_bytes: int,
    leaf: int,
    gain: int,
    level: int,
    region: int,
    /,
) -> Union[Plan, int]: ...
def neighbors_info(
    plan: Plan, /
) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, float, int, int, int]: ...

# DLPack's capsules, and calls of the system
def dlpack_open(capsule: object, /) -> tuple[int, int, int, int, tuple[int, ...], Optional[tuple[int, ...]], int]: ...
def dlpack_retype(capsule: object, code: int, bits: int, lanes: int, /) -> None: ...
def advise(address: int, bytes: int, advice: int, /) -> int: ...
def map_file(fd: int, bytes: int, /) -> tuple[object, int]: ...
def rename_with(from_: bytes, to: bytes, flags: int, /) -> int: ...
