# SPDX-License-Identifier: BSD-3-Clause
"""pici: a lossless codec for arrays with mostly zero elements, files of tensors, and collectives.

Blocks of elements:
    compress(array)                     the block of an array, as bytes
    decompress(block)                   the elements of a block, as a new array; out= decodes into yours
    decompress_range(block, first, n)   elements [first, first + n)
    decompress_into(out, block)         decompress(block, out=out), without a result
    scatter_add(total, block)           total += the elements, touching only what the block stores
    diff(old, new)                      the changes, bit for bit, as a block
    apply(array, block)                 XOR a block of diff() into old, which becomes new; and back
    nonzeros(block)                     the positions and values of the nonzeros
    changes(old, block)                 the positions and new values of a delta's changes
    inspect(block)                      format, dtype, count, nonzeros and length
    verify(block)                       check every rule of the format
    bound(count, dtype)                 the size of the longest block

Selection of the largest elements:
    topk(gradient, residual)            keep the largest; the rest stays in residual for the next step
    topk_warmup(step, steps_an_epoch)   densities for the first epochs

Files of tensors:
    save(path, {"w": w})                write arrays
    load(path)                          read all of them into a dict; to="torch": for load_state_dict()
    open(path)                          a mapping that reads tensors when you index them: f["w"][10:20]
    create(path)                        write tensors one by one, or in pieces
    load_file(path)                     these three take the arguments of safetensors: change one import
    save_file(tensors, path)            in your script; pici.torch has the first two for torch tensors
    safe_open(path, framework="np")

Deltas of files, and of dicts of arrays (help(pici.deltas)):
    diff_files(base, new, delta)        the changes between two .safetensors, .gguf, .npy or raw files
    apply_files(base, delta, out=path)  apply one or several deltas; without out, in place
    save_delta(old, new, path)          the changes between two dicts of arrays, such as state_dict()
    load_delta(old, path)               apply one or several deltas to a dict, into new arrays
    apply_delta(weights, path)          apply them in place, with undo() and commit()
    DeltaLog(folder or URL)             a base and its deltas, for servers of weights: append, load, follow

Checkpoints in shards, folders of .safetensors files with their index (help(pici.folders)):
    compress_folder(folder, out)        compress all of it
    decompress_folder(folder, out)      restore it
    diff_folders(base, new, delta)      the changes, even between different shardings
    apply_folders(base, delta, out=dir) apply a delta of folders; without out, in place
    list_folder(folder)                 names, dtypes, shapes and shards, without reading the data
    load(folder)                        all tensors of all shards

Collectives (help(pici.comm)):
    Comm.rendezvous(), Comm.mpi(), ...  a communicator of this rank
    comm.all_reduce(array)              the sum of all ranks' arrays; reduce_scatter, all_gather, broadcast
    comm.all_reduce_start(array)        the same in the background: a Request, with wait() and test()

Memory:
    keep_memory(max_bytes)              limit the memory of large arrays that is kept for reuse

    block = pici.compress(gradient)
    pici.scatter_add(total, block)              # total += gradient

    pici.save("model.pici", {"w": w})
    with pici.open("model.pici") as f:
        rows = f["w"][10:20]                    # reads only the chunks that hold these rows

Training with torch (required):
    pici.torch                          hooks for DistributedDataParallel and FSDP: help(pici.torch)

More: help(pici.codec) for arrays, help(pici.selection) for selection, help(pici.file) for files, help(pici.comm) for
collectives, and help(pici.errors) for exceptions.
"""
import importlib
from typing import TYPE_CHECKING

from . import _libraries
from ._dlpack import DLPackArray
from ._load import load, save
from ._memory import keep_memory
from ._safe import load_file, safe_open, save_file
from .codec import (
    Info,
    apply,
    bound,
    changes,
    compress,
    decompress,
    decompress_into,
    decompress_range,
    diff,
    inspect,
    nonzeros,
    scatter_add,
    verify,
)
from ._values import Values
from .comm import Comm, NeighborInfo, Neighbors, Request, Stats
from .deltas import Update, apply_delta, apply_files, diff_files, load_delta, save_delta
from .errors import (
    ArgumentError,
    BrokenError,
    BusyError,
    ChecksumError,
    CorruptError,
    DeviceError,
    Error,
    Fault,
    IoError,
    LimitError,
    NoMemoryError,
    NoTensorError,
    PeerError,
    SpaceError,
    SyncError,
    TimedOutError,
    TransportError,
    UnsupportedError,
    VersionError,
)
from .file import File, Tensor, Writer, create, open
from .folders import ShardTensor, apply_folders, compress_folder, decompress_folder, diff_folders, list_folder
from .logs import DeltaLog, LogState
from .selection import topk, topk_warmup

if not TYPE_CHECKING:

    def __getattr__(name: str):
        """Imports pici.torch, and so torch, on first use."""
        if name == "torch":
            return importlib.import_module("pici.torch")
        raise AttributeError(f"module 'pici' has no attribute {name!r}")


__version__: str = _libraries.VERSION

__all__ = [
    "compress",
    "decompress",
    "decompress_range",
    "decompress_into",
    "scatter_add",
    "diff",
    "apply",
    "nonzeros",
    "changes",
    "inspect",
    "verify",
    "bound",
    "topk",
    "topk_warmup",
    "save",
    "load",
    "open",
    "create",
    "load_file",
    "save_file",
    "safe_open",
    "diff_files",
    "apply_files",
    "save_delta",
    "load_delta",
    "apply_delta",
    "compress_folder",
    "decompress_folder",
    "diff_folders",
    "apply_folders",
    "list_folder",
    "keep_memory",
    "Update",
    "DeltaLog",
    "LogState",
    "ShardTensor",
    "File",
    "Tensor",
    "Writer",
    "Comm",
    "NeighborInfo",
    "Neighbors",
    "Request",
    "Stats",
    "Values",
    "Info",
    "DLPackArray",
    "Error",
    "Fault",
    "ArgumentError",
    "ChecksumError",
    "CorruptError",
    "IoError",
    "LimitError",
    "NoMemoryError",
    "NoTensorError",
    "SpaceError",
    "SyncError",
    "UnsupportedError",
    "VersionError",
    "BrokenError",
    "BusyError",
    "DeviceError",
    "PeerError",
    "TimedOutError",
    "TransportError",
]
