# SPDX-License-Identifier: BSD-3-Clause
"""The loaded libraries, and for ctypes their C ABI for files, deltas of files and top-k selection, as
include/pici/file.h, delta_file.h, delta_log.h and topk.h declare it, and for making communicators (coll.h, socket.h).
The functions on blocks, and collectives, are called by the extension module _codec, which has no library of its own: it
is given their addresses here.

A CDLL releases the GIL during each call. ctypes silently truncates integers to their C width, so numbers from callers
go through u31() or u64() first.
"""
from __future__ import annotations

import ctypes
import operator
import os
import sys
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

VERSION = "0.3"  # of the headers: a library of another version may have another ABI
SONAME = "libpici.so.0"
FILE = 2**64 - 1  # PICI_FILE
RANK_MAX = 32  # PICI_RANK_MAX
CHUNK_MAX = 4194304  # PICI_CHUNK_MAX
KEY_MAX = 255  # PICI_KEY_MAX

ZEROS = {"exact": 0, "value": 1}  # enum pici_zeros
SELECT = {"bucket": 0, "global": 1, "sampled": 2}  # enum pici_select
FORMATS = {"dense": 0, "bitmap": 1, "coo": 2, "hybrid": 3, "auto": 255}
ALIASES = {"pici": "bitmap"}  # names until version 0.3, still accepted
OPS = {"sum": 0, "avg": 1, "min": 2, "max": 3}  # enum pici_op
VALUE_CODECS = {"exact": 0, "cast": 1, "qsgd": 2, "zfp": 3}  # enum pici_value_codec
ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST, ALL_GATHERV = 1, 2, 3, 5, 6  # enum pici_collective

STATUS = c_int  # enum pici_status
ENUM = c_int  # any other


class Sized(ctypes.Structure):
    """A struct that begins with its own size. All other members are zero unless given, as in the C initializers."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **fields)


class Attr(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("value", c_void_p), ("len", c_size_t)]


class WriterOpts(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("format", ENUM),
        ("threads", c_int),
        ("zstd_level", c_int),
        ("chunk_elements", c_uint32),
        ("zeros", ENUM),
        ("version", c_uint64),
    ]


class Tensor(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("name_len", c_size_t),
        ("dtype", ENUM),
        ("rank", c_uint),
        ("shape", POINTER(c_uint64)),
        ("attrs", POINTER(Attr)),
        ("n_attrs", c_size_t),
    ]


class ReaderOpts(Sized):
    _fields_ = [("size", c_size_t), ("threads", c_int)]


class DiffOpts(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("choice", ENUM),
        ("format", ENUM),
        ("threads", c_int),
        ("zstd_level", c_int),
        ("progress", c_void_p),
        ("progress_ctx", c_void_p),
    ]


class ApplyOpts(Sized):
    _fields_ = [("size", c_size_t), ("threads", c_int), ("progress", c_void_p), ("progress_ctx", c_void_p)]


class DeltasInfo(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("type", ENUM),
        ("dtype", ENUM),
        ("bytes", c_uint64),
        ("tensors", c_uint64),
        ("head", c_void_p),
        ("head_len", c_size_t),
    ]


class LogInfo(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("first", c_uint64),
        ("base", c_uint64),
        ("newest", c_uint64),
        ("base_bytes", c_uint64),
        ("base_hash", c_uint64),
        ("extension", c_char_p),
    ]


class LogState(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("bytes", c_uint64),
        ("hash", c_uint64),
        ("delta_bytes", c_uint64),
        ("delta_hash", c_uint64),
    ]


class TensorInfo(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("index", c_uint64),
        ("name", c_void_p),
        ("name_len", c_size_t),
        ("dtype", ENUM),
        ("rank", c_uint),
        ("shape", c_uint64 * RANK_MAX),
        ("count", c_uint64),
        ("chunk_elements", c_uint32),
        ("chunks", c_uint64),
        ("attrs", c_uint32),
        ("stored_bytes", c_uint64),
    ]


class View(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_void_p),
        ("name_len", c_size_t),
        ("word", c_char_p),
        ("tensor", c_uint64),
        ("dtype", ENUM),
        ("tensor_dtype", ENUM),
        ("rank", c_uint),
        ("shape", c_uint64 * RANK_MAX),
        ("strides", c_uint64 * RANK_MAX),
        ("offset", c_uint64),
        ("count", c_uint64),
        ("stored_first", c_uint64),
        ("stored_count", c_uint64),
        ("conjugate", c_int),
        ("negative", c_int),
    ]


_LEAVE = {"format": 255, "inter_threshold": -1, "intra_threshold": -1, "ag_threshold": -1}


class CollOpts(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("algorithm", ENUM),
        ("format", ENUM),
        ("inter_threshold", c_float),
        ("intra_threshold", c_float),
        ("ag_threshold", c_float),
        ("timeout_ms", c_int),
        ("stats", c_void_p),
        ("checksum", c_int),
        ("slice_bytes", c_uint64),
        ("window", c_int),
        ("scratch", c_void_p),
        ("scratch_bytes", c_size_t),
        ("inter_bandwidth", c_double),
        ("intra_bandwidth", c_double),
        ("formats", c_uint),
        ("unused", c_int),
        ("zeros", ENUM),
        ("vendor", c_int),
        ("density", c_double),
        ("latency", c_double),
        ("agree", c_int),
        ("reserved", c_uint),
        ("values", c_void_p),
    ]

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**_LEAVE, **fields})


class Values(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("codec", ENUM),
        ("phases", c_uint),
        ("cast", ENUM),
        ("bits", c_int),
        ("norm", ENUM),
        ("rounding", ENUM),
        ("bucket", c_uint32),
        ("seed", c_uint64),
        ("rate", c_double),
        ("tolerance", c_double),
        ("nx", c_uint32),
        ("ny", c_uint32),
        ("residual", c_void_p),
    ]


class Tune(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("algorithm", ENUM),
        ("window", c_int),
        ("slice_bytes", c_uint64),
        ("format", ENUM),
        ("formats", c_uint),
        ("inter_threshold", c_float),
        ("intra_threshold", c_float),
        ("ag_threshold", c_float),
        ("checksum", c_int),
        ("inter_bandwidth", c_double),
        ("intra_bandwidth", c_double),
        ("timeout_ms", c_int),
        ("history", c_int),
    ]

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**_LEAVE, **fields})


class TopkOpts(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("select", ENUM),
        ("bucket", c_uint32),
        ("k", c_uint32),
        ("density", c_double),
        ("sample", c_double),
        ("rate", c_float),
        ("leak", c_float),
        ("momentum", c_float),
        ("seed", c_uint64),
        ("step", c_uint64),
        ("threads", c_int),
    ]


STRUCTS = {
    "pici_attr": Attr,
    "pici_writer_opts": WriterOpts,
    "pici_tensor": Tensor,
    "pici_reader_opts": ReaderOpts,
    "pici_tensor_info": TensorInfo,
    "pici_view": View,
    "pici_diff_opts": DiffOpts,
    "pici_apply_opts": ApplyOpts,
    "pici_deltas_info": DeltasInfo,
    "pici_log_info": LogInfo,
    "pici_log_state": LogState,
    "pici_coll_opts": CollOpts,
    "pici_values": Values,
    "pici_tune": Tune,
    "pici_topk_opts": TopkOpts,
}

P = c_void_p
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "pici_strerror": (c_char_p, [STATUS]),
    "pici_version": (c_char_p, []),
    "pici_bound": (c_size_t, [ENUM, ENUM, c_uint64]),
    "pici_diff_small_bound": (c_size_t, [ENUM, ENUM, c_uint64]),
    "pici_writer_open": (STATUS, [POINTER(P), P, P, POINTER(Attr), c_size_t, POINTER(WriterOpts)]),
    "pici_writer_tensor": (STATUS, [P, POINTER(Tensor)]),
    "pici_writer_data": (STATUS, [P, P, c_size_t]),
    "pici_writer_finish": (STATUS, [P]),
    "pici_writer_error": (c_char_p, [P]),
    "pici_writer_close": (None, [P]),
    "pici_reader_open_path": (STATUS, [POINTER(P), c_char_p, POINTER(ReaderOpts)]),
    "pici_reader_open_at": (STATUS, [POINTER(P), P, P, c_uint64, POINTER(ReaderOpts)]),
    "pici_reader_open_memory": (STATUS, [POINTER(P), P, c_size_t, POINTER(ReaderOpts)]),
    "pici_reader_count": (STATUS, [P, POINTER(c_uint64)]),
    "pici_reader_tensor": (STATUS, [P, c_uint64, POINTER(TensorInfo)]),
    "pici_reader_find": (STATUS, [P, c_char_p, c_size_t, POINTER(TensorInfo)]),
    "pici_reader_read_range": (STATUS, [P, c_uint64, c_uint64, c_uint64, P]),
    "pici_reader_attr": (STATUS, [P, c_uint64, c_char_p, POINTER(Attr)]),
    "pici_reader_attr_at": (STATUS, [P, c_uint64, c_uint32, POINTER(Attr)]),
    "pici_reader_attr_count": (STATUS, [P, c_uint64, POINTER(c_uint32)]),
    "pici_reader_view_count": (STATUS, [P, POINTER(c_uint64)]),
    "pici_reader_view": (STATUS, [P, c_uint64, POINTER(View)]),
    "pici_reader_find_view": (STATUS, [P, c_char_p, c_size_t, POINTER(View), POINTER(c_int)]),
    "pici_view_copy": (STATUS, [POINTER(View), P, c_uint64, c_uint64, P]),
    "pici_reader_verify": (STATUS, [P]),
    "pici_reader_error": (c_char_p, [P]),
    "pici_reader_error_offset": (c_uint64, [P]),
    "pici_reader_close": (None, [P]),
    "pici_outfile_open": (STATUS, [POINTER(P), c_char_p, c_int]),
    "pici_outfile_write": (c_int, [P, P, c_size_t]),
    "pici_outfile_commit": (STATUS, [P]),
    "pici_outfile_abort": (None, [P]),
    "pici_state_new": (STATUS, [POINTER(P), c_char_p, ENUM, P, c_size_t, P, P]),
    "pici_state_open": (STATUS, [POINTER(P), c_char_p, c_int, ENUM, c_char_p]),
    "pici_state_add": (STATUS, [P, POINTER(Tensor), P, c_uint64]),
    "pici_state_get_type": (ENUM, [P]),
    "pici_state_hash": (STATUS, [P, POINTER(c_uint64), POINTER(c_uint64), c_char_p]),
    "pici_state_free": (None, [P]),
    "pici_diff_states": (STATUS, [P, P, P, P, POINTER(DiffOpts), c_char_p]),
    "pici_deltas_new": (STATUS, [POINTER(P)]),
    "pici_deltas_add": (STATUS, [P, P, c_char_p, c_char_p]),
    "pici_deltas_get_info": (STATUS, [P, POINTER(DeltasInfo)]),
    "pici_deltas_is_result": (STATUS, [P, P, POINTER(c_int), c_char_p]),
    "pici_deltas_free": (None, [P]),
    "pici_apply_deltas": (STATUS, [P, P, P, P, POINTER(ApplyOpts), c_char_p]),
    "pici_log_create": (STATUS, [c_char_p, P, c_char_p, c_char_p]),
    "pici_log_open": (STATUS, [POINTER(P), c_char_p, c_int, c_char_p]),
    "pici_log_get_info": (STATUS, [P, POINTER(LogInfo)]),
    "pici_log_get_state": (STATUS, [P, c_uint64, POINTER(LogState)]),
    "pici_log_append": (STATUS, [P, P, P, POINTER(DiffOpts), c_char_p]),
    "pici_log_apply": (STATUS, [P, c_char_p, P, P, POINTER(c_uint64), POINTER(c_uint64), POINTER(ApplyOpts), c_char_p]),
    "pici_log_apply_state": (
        STATUS,
        [P, P, P, P, POINTER(c_uint64), POINTER(c_uint64), POINTER(ApplyOpts), c_char_p],
    ),
    "pici_log_compact": (STATUS, [P, POINTER(ApplyOpts), c_char_p]),
    "pici_log_close": (None, [P]),
    "pici_topk": (STATUS, [P, POINTER(c_uint64), P, P, P, c_uint64, ENUM, POINTER(TopkOpts)]),
    "pici_topk_warmup": (c_double, [c_uint64, c_uint64]),
}

COLL_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {  # of libpici_coll
    "pici_algorithm_name": (c_char_p, [ENUM]),
    "pici_comm_threads": (STATUS, [POINTER(P), c_int]),
    "pici_comm_sockets": (STATUS, [POINTER(P), POINTER(c_int), c_int, c_int]),
    "pici_comm_rendezvous": (STATUS, [POINTER(P), c_char_p, c_int, c_int, c_char_p]),
    "pici_comm_error": (c_char_p, [P]),
}


def _opened(what: str, path: str, functions: dict[str, tuple[Any, list[Any]]]) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path, use_errno=True)
        for name, (result, arguments) in functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as e:
        raise ImportError(
            f"pici: cannot load {what}: {e}. pip install brings one; PICI_LIBRARY=path/to/libpici.so names another"
        ) from e
    return library


def _load() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """Load the library that PICI_LIBRARY names; else the one installed with this package; else the system's. And the
    libpici_coll that is beside it, which uses the libpici that is loaded already."""
    beside = Path(__file__).with_name("libpici.so")
    path = os.environ.get("PICI_LIBRARY") or (str(beside) if beside.exists() else SONAME)
    library = _opened("libpici", path, {"pici_version": FUNCTIONS["pici_version"]})
    version = library.pici_version().decode()
    if version.split(".")[:2] != VERSION.split("."):
        raise ImportError(f"pici: {path} is version {version}; this package is for {VERSION}")
    folder, name = os.path.split(path)
    collectives = os.path.join(folder, name.replace("libpici", "libpici_coll", 1))
    return _opened("libpici", path, FUNCTIONS), _opened("libpici_coll", collectives, COLL_FUNCTIONS)


lib, coll = _load()


def _algorithms() -> dict[str, int]:
    names: dict[str, int] = {}
    while (name := coll.pici_algorithm_name(len(names))) is not None:
        names[name.decode()] = len(names)
    return names


ALGORITHMS = _algorithms()  # enum pici_algorithm
try:
    from . import _codec
except ImportError as e:
    raise ImportError(
        f"pici: no extension module _codec for this Python, {sys.version.split()[0]}: {e}. pip install ./python "
        "brings it, for CPython 3.9 or later; free-threaded builds of Python cannot load it"
    ) from e
_codec.bind(lambda name: ctypes.cast(getattr(coll, name), c_void_p).value)  # coll finds functions of libpici too
WRITE, READ_AT = map(c_void_p, _codec.callbacks())  # a pici_write_fn and a pici_read_at_fn, for _streams.py


def u31(value: int, what: str) -> int:
    """value, if it is from 0 to 2^31 - 1; else ValueError. what: its name in the message."""
    value = operator.index(value)
    if not 0 <= value < 2**31:
        raise ValueError(f"{what} is {value}, not from 0 to {2**31 - 1}")
    return value


def u32(value: int, what: str) -> int:
    """value, if it is from 1 to 2^32 - 1; else ValueError. what: its name in the message."""
    value = operator.index(value)
    if not 1 <= value < 2**32:
        raise ValueError(f"{what} is {value}, not from 1 to {2**32 - 1}")
    return value


def u64(value: int, what: str) -> int:
    """value, if it is from 0 to 2^64 - 1; else ValueError. what: its name in the message."""
    value = operator.index(value)
    if not 0 <= value < 2**64:
        raise ValueError(f"{what} is {value}, not from 0 to {2**64 - 1}")
    return value
