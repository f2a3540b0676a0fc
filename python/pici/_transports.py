# SPDX-License-Identifier: BSD-3-Clause
"""Communicators over MPI and NCCL: finds and calls their separate libraries. Also finds the library of functions on a
GPU."""
from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, TypeVar, Union

from . import _codec
from ._libraries import PATH, SOVERSION
from .errors import make

T = TypeVar("T")

_BUILD = {
    "mpi": "make mpi MPICC=mpicc, with the mpicc of that MPI, builds it as build/mpi/libpici_mpi.so",
    "nccl": "make nccl-shared builds it as build/nccl/libpici_nccl.so",
    "cuda": "make cuda-shared builds it as build/cuda/libpici_cuda.so",
}


def _places(kind: str) -> list[str]:
    """The possible places of the library, in search order."""
    given = os.environ.get(f"PICI_{kind.upper()}_LIBRARY")
    if given:
        return [given]
    name, folder = f"libpici_{kind}.so", Path(PATH).parent
    beside = [folder / name, folder / kind / name] if os.sep in PATH else []
    return [str(path) for path in beside if path.exists()] + [f"{name}.{SOVERSION}"]


def found(kind: str, who: str, load: Callable[[str], T]) -> tuple[T, str]:
    """The library that load() loads, and its path or name."""
    why = ""
    for place in _places(kind):
        try:
            return load(place), place
        except OSError as e:
            why += f"{'; ' if why else ''}{e}"
    raise ImportError(
        f"{who} needs libpici_{kind}: {why}. {_BUILD[kind]}; PICI_{kind.upper()}_LIBRARY names its path, if it "
        "is neither beside libpici nor where the loader looks"
    )


def _library(kind: str) -> tuple[_codec.Library, str]:
    return found(kind, f"Comm.{kind}", lambda place: _codec.library(os.fsencode(place)))


def made(result: Union[T, _codec.Failed]) -> T:
    """The result, unless the call failed."""
    if isinstance(result, _codec.Failed):
        raise make(result.status, result.words)
    return result


def _same_mpi(library: _codec.Library, name: str, MPI: Any) -> None:
    """Reject a library built for another MPI than mpi4py's."""
    ours, theirs = (version.strip("\0\n ") for version in (_codec.mpi_version(library), MPI.Get_library_version()))
    if ours != theirs:
        ours, theirs = (" ".join(v.split("\n")[0].split(",")[0].split()) for v in (ours, theirs))
        raise ImportError(
            f"{name} was built for {ours}, and mpi4py for {theirs}: {_BUILD['mpi']}; then set "
            "PICI_MPI_LIBRARY to its path"
        )


def over_mpi(comm: Any) -> _codec.Made:
    """A communicator over a duplicate of mpi4py's; None: of COMM_WORLD."""
    try:
        MPI = importlib.import_module("mpi4py.MPI")
    except ImportError as e:
        raise ImportError(f"Comm.mpi needs mpi4py, for the MPI that the program is started with: {e}") from e
    comm = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm: {type(comm).__name__}, and no communicator of mpi4py: pass one, or None for COMM_WORLD")
    if comm == MPI.COMM_NULL:
        raise ValueError("comm: COMM_NULL, which this rank is not a member of: only members make the call")
    library, name = _library("mpi")
    _same_mpi(library, name, MPI)
    return made(_codec.comm_mpi(library, MPI._addressof(comm), MPI._sizeof(MPI.Comm)))


def over_nccl(comm_ptr: int, stream: int) -> _codec.Made:
    """A communicator over an ncclComm_t, by its address."""
    return made(_codec.comm_nccl(_library("nccl")[0], comm_ptr, stream))


def over_threads(n: int) -> list[_codec.Made]:
    """Communicators among n threads."""
    return made(_codec.comm_threads(n))


def over_sockets(fds: list[int], rank: int) -> _codec.Made:
    """A communicator over connected sockets, which it then owns."""
    return made(_codec.comm_sockets(tuple(fds), rank))


def rendezvous(address: Optional[str], rank: Optional[int], ranks: Optional[int], token: Optional[str]) -> _codec.Made:
    """A communicator over TCP; None: from the environment."""
    texts = [None if text is None else os.fsencode(text) for text in (address, token)]
    if any(b"\0" in text for text in texts if text is not None):
        raise ValueError("an address and a token have no zero bytes")
    if ranks is None and rank is not None:  # the library would take rank 0 of 0 ranks for PICI_RANK
        said = os.environ.get("PICI_RANKS", "")
        ranks = int(said) if said.isdecimal() and len(said) < 8 else None
    numbers = -1 if rank is None else rank, 0 if ranks is None else ranks
    return made(_codec.comm_rendezvous(texts[0], *numbers, texts[1]))
