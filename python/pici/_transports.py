# SPDX-License-Identifier: BSD-3-Clause
"""Communicators over MPI and NCCL, whose functions are in libraries of their own: finding these, and calling them."""
from __future__ import annotations

import ctypes
import importlib
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_void_p
from pathlib import Path
from typing import Any, Optional

from . import _abi
from .errors import make

_BUILD = {
    "mpi": "make mpi MPICC=mpicc, with the mpicc of that MPI, builds it as build/mpi/libpici_mpi.so",
    "nccl": "make nccl-shared builds it as build/nccl/libpici_nccl.so",
}


def _places(kind: str) -> list[str]:
    """Where the library may be, in the order in which it is looked for."""
    given = os.environ.get(f"PICI_{kind.upper()}_LIBRARY")
    if given:
        return [given]
    name, folder = f"libpici_{kind}.so", Path(_abi.lib._name).parent
    beside = [folder / name, folder / kind / name] if os.sep in _abi.lib._name else []
    return [str(path) for path in beside if path.exists()] + [f"{name}.{_abi.SONAME.rsplit('.', 1)[1]}"]


def _library(kind: str) -> ctypes.CDLL:
    why = ""
    for place in _places(kind):
        try:
            return ctypes.CDLL(place)
        except OSError as e:
            why += f"{'; ' if why else ''}{e}"
    raise ImportError(
        f"Comm.{kind} needs libpici_{kind}: {why}. {_BUILD[kind]}; PICI_{kind.upper()}_LIBRARY names its path, if it "
        "is neither beside libpici nor where the loader looks"
    )


def _check(status: int) -> None:
    """Raise what a function that makes communicators returned on this thread."""
    if status:
        words = _abi.coll.pici_comm_error(None).decode(errors="replace")
        raise make(status, words or _abi.lib.pici_strerror(status).decode())


def _made(function: Any, *arguments: Any) -> int:
    """Call a function that makes a communicator: its address."""
    handle = c_void_p()
    _check(function(byref(handle), *arguments))
    assert handle.value is not None
    return handle.value


def _same_mpi(library: ctypes.CDLL, MPI: Any) -> None:
    """Refuse a library that was built for another MPI than mpi4py's."""
    text, length = ctypes.create_string_buffer(1 << 14), c_int()
    library.MPI_Get_library_version(text, byref(length))
    ours, theirs = (version.strip("\0\n ") for version in (text.value.decode(), MPI.Get_library_version()))
    if ours != theirs:
        ours, theirs = (" ".join(v.split("\n")[0].split(",")[0].split()) for v in (ours, theirs))
        raise ImportError(
            f"{library._name} was built for {ours}, and mpi4py for {theirs}: {_BUILD['mpi']}; then set "
            "PICI_MPI_LIBRARY to its path"
        )


def over_mpi(comm: Any) -> int:
    """A communicator over a duplicate of mpi4py's; None: of COMM_WORLD. Its address."""
    try:
        MPI = importlib.import_module("mpi4py.MPI")
    except ImportError as e:
        raise ImportError(f"Comm.mpi needs mpi4py, for the MPI that the program is started with: {e}") from e
    comm = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm: {type(comm).__name__}, and no communicator of mpi4py: pass one, or None for COMM_WORLD")
    if comm == MPI.COMM_NULL:
        raise ValueError("comm: COMM_NULL, which this rank is not a member of: only members make the call")
    library = _library("mpi")
    _same_mpi(library, MPI)
    handle: Any = c_void_p if MPI._sizeof(MPI.Comm) == ctypes.sizeof(c_void_p) else c_int  # Open MPI's, MPICH's
    function = library["pici_comm_mpi"]
    function.argtypes = [POINTER(c_void_p), handle]
    return _made(function, handle.from_address(MPI._addressof(comm)))


def over_nccl(comm_ptr: int, stream: int) -> int:
    """A communicator over an ncclComm_t, by its address."""
    function = _library("nccl")["pici_comm_nccl"]
    function.argtypes = [POINTER(c_void_p), c_void_p, c_void_p]
    return _made(function, c_void_p(comm_ptr), c_void_p(stream))


def over_threads(n: int) -> list[int]:
    """The addresses of communicators among n threads."""
    handles = (c_void_p * n)()
    _check(_abi.coll.pici_comm_threads(handles, n))
    return [handle for handle in handles if handle is not None]


def over_sockets(fds: list[int], rank: int) -> int:
    """A communicator over connected sockets, which belong to it then. Its address."""
    return _made(_abi.coll.pici_comm_sockets, (c_int * len(fds))(*fds), rank, len(fds))


def rendezvous(address: Optional[str], rank: Optional[int], ranks: Optional[int], token: Optional[str]) -> int:
    """A communicator over TCP; None: what the environment says. Its address."""
    texts = [None if text is None else os.fsencode(text) for text in (address, token)]
    if any(b"\0" in text for text in texts if text is not None):
        raise ValueError("an address and a token have no zero bytes")
    if ranks is None and rank is not None:  # the library would take rank 0 of 0 ranks for PICI_RANK
        said = os.environ.get("PICI_RANKS", "")
        ranks = int(said) if said.isdecimal() and len(said) < 8 else None
    numbers = -1 if rank is None else rank, 0 if ranks is None else ranks
    return _made(_abi.coll.pici_comm_rendezvous, c_char_p(texts[0]), *numbers, c_char_p(texts[1]))
