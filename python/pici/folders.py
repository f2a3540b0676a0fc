# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints: folders of .safetensors files, with other files and perhaps an index.

    pici.compress_folder("llama", "llama.pici", threads=0)
    pici.decompress_folder("llama.pici", "copy", threads=0)
    pici.diff_folders("llama", "tuned", "step1")    # even between different shardings
    pici.apply_folders("llama", "step1")            # replaces llama, atomically
    pici.list_folder("llama.pici")                  # names, dtypes, shapes and shards, without reading the data
    weights = pici.load("llama.pici", to="torch")   # all tensors of all shards; also takes "llama"

Calls create folders atomically. A restored folder has all files of the original, byte for byte. Links to files count as
files, as in a cache of downloads. Calls skip folders whose names begin with a dot, such as .git. An outdated index
raises a warning; the files decide. picitool makes and reads the same folders (formats/folder.md).
threads: files at a time, and if there are more threads than shards, threads for the chunks of each; 0 is one for each
    core.
overwrite: replace an existing folder that is empty, a checkpoint, or a folder of these functions. Without it, an
    existing folder raises FileExistsError.
"""
from __future__ import annotations

import functools
import json
import math
import operator
import os
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path as _P
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from . import _arrays, _codec
from ._arrays import Limit
from ._dtypes import BY_NAME, DType
from ._kwargs import Pack
from ._original import pieces as pieces_of
from ._outfolder import INDEX, LIST, OutFolder, ends
from ._ranges import u31
from ._references import KEY as REFERENCE_KEY
from ._references import Reference, follow, reference_of, twins
from ._streams import Path
from .deltas import SAFETENSORS, WORD_TYPES, Held, Out, Row, arrays_of, diff_opts, got, stored_shape
from .errors import ArgumentError, CorruptError, IoError, LimitError, NoTensorError, make
from .file import File, Tensor, create

_NAME_MOST, _DEPTH_MOST = 240, 16
_PIECE = 1 << 26  # bytes
_U8 = BY_NAME["u8"]


class _Sum(NamedTuple):
    """The length and the XXH64 of a file."""

    bytes: int
    hash: int


_EMPTY = _Sum(0, 0xEF46DB3751D8E999)


class ShardTensor(NamedTuple):
    """A tensor of a folder."""

    dtype: str  # as Tensor.dtype; "u8" for types of .safetensors files without arrays
    shape: tuple[int, ...]  # of bytes, one-dimensional, for such a type
    shard: str  # the name of the .safetensors file


class _Stored(NamedTuple):
    """A line of the list."""

    kind: str  # "file", "shard" or "same"
    original: _Sum
    stored: _Sum


def _sum_of(held: Held) -> _Sum:
    return _Sum(*got(_codec.state_hash(held.handle)))


def _sum(path: _P) -> _Sum:
    if path.stat().st_size == 0:
        return _EMPTY
    with Held(path, _U8.code, _codec.STATE_RAW) as held:
        return _sum_of(held)


def _sum_of_mapped(data: Any) -> _Sum:
    with _State("the list", _codec.STATE_RAW) as state:
        state.add("data", "u8", _U8, data.shape, data)
        return _sum_of(state)


def _sum_of_bytes(text: bytes) -> int:
    return _sum_of_mapped(np.frombuffer(text, np.uint8)).hash


def _plain(name: str) -> bool:
    """Whether a name is a plain path of a file in a folder or below it."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return False
    hidden = any(not c.isprintable() for c in name)
    whole = all(part not in ("", ".", "..") and not part.startswith(".pici-") for part in name.split("/"))
    return 0 < size <= _NAME_MOST and whole and not hidden  # temporary files begin with .pici-


class _State(Held):
    """A state of tensors in memory."""

    def __init__(self, name: str, kind: int = SAFETENSORS) -> None:
        self._kept = []
        self.handle = got(_codec.state_new(os.fsencode(name), kind, b""))

    def __enter__(self) -> _State:
        return self

    def add(self, name: str, word: str, d: DType, shape: tuple[int, ...], data: Any) -> None:
        failed = _codec.state_add(self.handle, name.encode(), word.encode(), d.code, shape, data)
        if failed is not None:
            raise make(failed.status, f"{name!r}: {failed.words}")


class _Tensor(NamedTuple):
    """A tensor of a .safetensors file, as stored in a .pici file."""

    name: str
    word: str
    dtype: DType
    shape: tuple[int, ...]
    data: Any  # its bytes

    def listed(self, shard: str) -> ShardTensor:
        if self.word == "BOOL":
            return ShardTensor("bool", self.shape, shard)
        if self.word == "C64" and self.shape[-1:] == (2,):
            return ShardTensor("complex64", self.shape[:-1], shard)
        return ShardTensor(self.dtype.name, self.shape, shard)


class _Mapped:
    """The bytes of a file, for NumPy. Unlike mmap.mmap and numpy.memmap it keeps no descriptor: a checkpoint may have
    more shards than a process has descriptors."""

    def __init__(self, path: _P) -> None:
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            try:
                self._mapping, at = _codec.map_file(f.fileno(), size)
            except OSError as e:
                raise OSError(e.errno, os.strerror(e.errno or 0), str(path)) from None
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (at, True)}


class _Shard:
    """A .safetensors file whose header the library has checked."""

    def __init__(self, path: _P) -> None:
        with Held(path, 0, SAFETENSORS):
            self.whole = np.asarray(_Mapped(path))
        n = 8 + int.from_bytes(self.whole[:8].tobytes(), "little")
        self.head = self.whole[:n].tobytes()
        found = [(name, t) for name, t in json.loads(self.head[8:]).items() if name != "__metadata__"]
        found.sort(key=lambda x: tuple(x[1]["data_offsets"]))  # stable: as the library sorts them
        self.tensors = [self._tensor(name, t, n) for name, t in found]

    def _tensor(self, name: str, t: dict[str, Any], n: int) -> _Tensor:
        word, (first, last) = t["dtype"], t["data_offsets"]
        d, shape = WORD_TYPES.get(word, _U8), stored_shape(word, t["shape"])
        if d.name == "complex64":
            d, shape = BY_NAME["f32"], (*shape, 2)
        elif d.name == "bool":
            d = _U8
        fits = len(shape) <= _codec.RANK_MAX and d.itemsize * math.prod(max(1, k) for k in shape) < 1 << 63
        if not fits or math.prod(shape) * d.itemsize != last - first:
            shape = ((last - first) // d.itemsize,)
        return _Tensor(name, word, d, shape, self.whole[n + first : n + last])


class _Checkpoint:
    """A checkpoint. tensors: all of them, by name."""

    def __init__(self, path: _P) -> None:
        self.path = path
        self.files, self.folders = _files(path)
        if LIST in self.files:
            raise ValueError(f"{path} is a folder that compress_folder() or diff_folders() made, not a checkpoint")
        self.names = [name for name in self.files if ends(name, ".safetensors")]
        #: files of torch's distributed checkpoints, compressed as bytes
        self.raw = [name for name, size in self.files.items() if ends(name, ".distcp") and size]
        if not self.names + self.raw:
            raise ValueError(f"{path} has no .safetensors or .distcp files")
        self._stats = {name: (path / name).stat() for name in self.names + self.raw}
        self.shards = {name: _Shard(path / name) for name in self.names}
        #: the first of each name, and by shard and name
        self.tensors: dict[str, _Tensor] = {}
        self.placed: dict[str, dict[str, _Tensor]] = {}
        for name, shard in self.shards.items():
            self.placed[name] = {t.name: t for t in shard.tensors}
            for t in shard.tensors:
                self.tensors.setdefault(t.name, t)
        for name in self.files:
            if ends(name, INDEX):
                self._compare(name)

    def refuse_twice(self, names: Iterable[str]) -> None:
        wanted, where = set(names), dict[str, str]()
        for shard, tensors in self.placed.items():
            for name in wanted & tensors.keys():
                _once(self.path, where, name, shard)

    def expect_unchanged(self, name: str) -> None:
        was, now = self._stats[name], (self.path / name).stat()
        if (was.st_size, was.st_mtime_ns) != (now.st_size, now.st_mtime_ns):
            raise IoError(f"{self.path / name} has changed while it was read")

    def find(self, name: str, shard: str) -> Optional[_Tensor]:
        """A tensor of the base of a shard's delta."""
        return self.placed.get(shard, self.tensors).get(name, self.tensors.get(name))

    def _compare(self, index: str) -> None:
        """Warn if an index is outdated; CorruptError if a file that it names, with a tensor, is missing."""
        path, folder = self.path / index, index.rpartition("/")[0]
        try:
            where = {t: f"{folder}/{name}" if folder else name for t, name in _index(path).items()}
        except CorruptError as e:
            warnings.warn(f"{e}; it is kept unchanged", stacklevel=4)
            return
        wrong = ""
        for t, name in where.items():
            if name not in self.shards and t not in self.tensors:
                raise CorruptError(f"{self.path / name} is missing: {index} names it")
            if t not in self.placed.get(name, {}):
                wrong = wrong or f"tensor {t!r} is not in {name}"
        for name in dict.fromkeys(where.values()):
            for t in self.placed.get(name, {}):
                if t not in where:
                    wrong = wrong or f"tensor {t!r} is also in {name}"
        if wrong:
            warnings.warn(f"{path} is out of date: {wrong}; it is kept unchanged", stacklevel=4)

    def refuse_names(self) -> None:
        """ValueError if a file of the checkpoint cannot be stored under its name."""
        if LIST in self.folders:
            raise ValueError(f"{self.path} has a folder {LIST}, which is the name of the list: rename it")
        for name in (*self.files, *self.folders):
            if not _plain(name):
                raise ValueError(
                    f"{str(self.path / name)!r} cannot be stored under its name: rename it to at most {_NAME_MOST} "
                    "bytes of UTF-8 without hidden characters, which do not begin with .pici-"
                )
        for name in self.names + self.raw:
            if len(f"{name}.pici".encode()) > _NAME_MOST:
                raise ValueError(
                    f"{str(self.path / name)!r} is stored as NAME.pici, which must have at most {_NAME_MOST} bytes: "
                    "rename it"
                )
            if name + ".pici" in (*self.files, *self.folders):
                raise ValueError(
                    f"{self.path} has {name} and a file or folder of the name that {name}.pici is stored under"
                )


def _index(path: _P) -> dict[str, str]:
    """The shard of each tensor, from an index file."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice")
        return found

    try:
        where = json.loads(path.read_bytes(), object_pairs_hook=unique)["weight_map"]
        for name in where.values():
            if not _plain(name) or "/" in name or not name[1:].endswith(".safetensors"):
                raise ValueError(f"{name!r} is not the name of a shard")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise CorruptError(f"{path} is not an index of shards: {e}") from None
    if not where:
        raise CorruptError(f"{path} is not an index of shards: 'weight_map' is empty")
    return dict(where)


def _files(path: _P) -> tuple[dict[str, int], list[str]]:
    """The files in and below a folder, with their lengths, in byte order of their names; and the folders below. Links
    count as their targets."""
    found, folders = {}, []

    def look(at: str, prefix: str, depth: int) -> None:
        if depth > _DEPTH_MOST:
            raise ValueError(f"{at} has folders nested too deeply")
        with os.scandir(at) as scan:
            entries = list(scan)
        for entry in entries:
            if entry.is_dir() and entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(prefix + entry.name)
                look(entry.path, f"{prefix}{entry.name}/", depth + 1)
            elif entry.is_file():
                found[prefix + entry.name] = entry.stat().st_size
            else:
                raise ValueError(f"{entry.path} is not a regular file, nor a link to one")

    look(str(path), "", 0)
    return dict(sorted(found.items(), key=lambda f: os.fsencode(f[0]))), folders


class _Made:
    """A folder that compress_folder() or diff_folders() made: its list."""

    def __init__(self, path: _P, kind: str) -> None:
        self.path = path
        files, self.folders = _files(path)
        if LIST not in files:
            raise ValueError(f"{path} has no {LIST}: it is not what compress_folder() or diff_folders() made")
        text = (path / LIST).read_bytes()
        body, end = text[:-21], text[-21:]
        if end != b"end %016x\n" % (_sum_of_bytes(body) if body else 0):
            raise CorruptError(f"{path / LIST} is incomplete or damaged")
        first, *lines = body.removesuffix(b"\n").split(b"\n")
        versions = (b"1 compressed", b"1 delta", b"2 compressed", b"2 delta", b"3 compressed")
        if first.removeprefix(b"pici-folder ") not in versions:
            raise CorruptError(f"{path / LIST} is no list of this version")
        found = first.decode().split()[2]
        #: whether tensors of shards may be references
        self.references = first == b"pici-folder 3 compressed"
        if found != kind:
            raise ValueError(f"{path} is {found}, not {kind}")
        self.files: dict[str, _Stored] = {}
        stored = {LIST}
        last = b""
        for line in lines:
            name, f = self._line(line)
            own, at = name == LIST, name + ".pici" * (f.kind == "shard")
            if not _plain(name) or name.encode() <= last or own or f.kind == "same" and kind != "delta":
                raise CorruptError(f"{path / LIST}: a malformed line: {line!r}")
            last = name.encode()
            self.files[name] = f
            if f.kind != "same":
                stored.add(at)
                if files.get(at) != f.stored.bytes:
                    raise CorruptError(f"{path / at} is missing, or has another size than {LIST} says")
        for name, f in self.files.items():
            if f.kind == "shard" and f"{name}.pici" in self.files:
                raise CorruptError(f"{path / LIST}: another file has the name of the .pici file of {name}")
        if _list_text(kind, self.files, self.references) != text:  # numbers in another form
            raise CorruptError(f"{path / LIST}: a malformed line")
        for name in self.folders:
            if not _plain(name):
                raise CorruptError(f"{self.path} has a folder of a malformed name: {name!r}")
            if name in self.files:
                raise CorruptError(f"{self.path / name} is a folder: {LIST} names a file")
        for more in files.keys() - stored:
            raise CorruptError(f"{path / more} is not in {LIST}: move it elsewhere")

    def _line(self, line: bytes) -> tuple[str, _Stored]:
        try:
            text = line.decode()
            kind = text.split(" ", 1)[0]
            word = text.split(" ", 5 if kind == "shard" else 3)
            numbers = [int(x, 16 if i % 2 else 10) for i, x in enumerate(word[1:-1])]
            original, stored = _Sum(*numbers[:2]), _Sum(*numbers[-2:])
            if kind not in ("file", "shard", "same"):
                raise ValueError
        except (ValueError, TypeError):
            raise CorruptError(f"{self.path / LIST}: a malformed line: {line!r}") from None
        return word[-1], _Stored(kind, original, stored)

    def refers(self, t: Tensor, shard: str) -> Optional[Reference]:
        """The target of a tensor's reference, with its shard; None if the tensor is not a reference."""
        to = reference_of(t) if self.references else None
        if to is None:
            return None
        target = to.shard or shard
        if target not in self.files or self.files[target].kind != "shard":
            raise CorruptError(f"{t.name!r} of {shard} refers to {to.name!r} of {target}, which is no shard")
        return to._replace(shard=target)

    def shard(self, name: str, threads: int = 1) -> File:
        return File(self.path / f"{name}.pici", threads=threads, max_bytes=None)

    @property
    def shards(self) -> list[str]:
        """Shards with known tensors: all but files of torch's distributed checkpoints."""
        return [name for name, f in self.files.items() if f.kind == "shard" and ends(name, ".safetensors")]

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """All tensors and their shards, both by name. Closes the files again, and does not check data."""
        found: dict[str, Tensor] = {}
        where: dict[str, str] = {}
        with _Targets(self, 1) as targets:
            for name in self.shards:
                with self.shard(name) as f:
                    for t in f.values():
                        _once(self.path, where, t.name, name)
                        to = self.refers(t, name)
                        found[t.name] = t if to is None else targets.follow(t, to)
        return found, where


class _Targets:
    """The target files of references. The last one stays open."""

    def __init__(self, made: _Made, threads: int) -> None:
        self._made, self._threads = made, threads
        self._shard = ""
        self._file: Optional[File] = None

    def follow(self, t: Tensor, to: Reference) -> Tensor:
        if self._file is None or self._shard != to.shard:
            self.__exit__()
            self._shard, self._file = to.shard, self._made.shard(to.shard, self._threads)
        return follow(t, to, self._file)

    def __enter__(self) -> _Targets:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _once(folder: _P, where: dict[str, str], name: str, shard: str) -> None:
    """Note the shard of a tensor; ValueError if another has one of the same name."""
    before = where.setdefault(name, shard)
    if before != shard:
        raise ValueError(f"{folder}: tensor {name!r} is in {before} and in {shard}: open the files one by one")


# ---- Making folders


def _list_text(kind: str, files: dict[str, _Stored], references: bool = False) -> bytes:
    version = 2 if any("/" in name for name in files) else 1
    lines = [f"pici-folder {3 if references else version} {kind}"]
    for name, f in files.items():
        sums = [f.original] + [f.stored] * (f.kind == "shard")
        lines.append(" ".join([f.kind, *(f"{s.bytes} {s.hash:016x}" for s in sums), name]))
    body = "".join(line + "\n" for line in lines).encode()
    return body + b"end %016x\n" % _sum_of_bytes(body)


def _write_list(folder: _P, kind: str, files: dict[str, _Stored], references: bool = False) -> None:
    with Out(folder / LIST, False) as out:
        _put(out, _list_text(kind, files, references))
        out.commit()


def _put(out: Out, data: Any) -> None:
    held = np.frombuffer(data, np.uint8)
    code = _codec.outfile_write(out.handle, held)
    if code:
        raise OSError(code, os.strerror(code), out.path)


def _like(path: _P, old: _P, most: int = 0o777) -> None:
    """Give a file the permissions and the times of another. most: the most to permit."""
    found = old.stat()
    os.chmod(path, stat.S_IMODE(found.st_mode) & most)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _permitted(c: _Checkpoint) -> int:
    """What all shards of a checkpoint permit."""
    return functools.reduce(operator.and_, ((c.path / name).stat().st_mode for name in c.names), 0o777)


def _copy(old: _P, new: _P, want: Optional[_Sum] = None) -> _Sum:
    """Copy a file and return its length and hash; CorruptError if they are not as expected."""
    with open(old, "rb") as f, Out(new, False) as out:
        for piece in iter(lambda: f.read(_PIECE), b""):
            _put(out, piece)
        out.commit()
    _like(new, old)
    return _matched(old, _sum(new), want)


def _matched(path: _P, found: _Sum, want: Optional[_Sum]) -> _Sum:
    if want is not None and found != want:
        raise CorruptError(
            f"{path} is the wrong file, or damaged: it has {found.bytes} bytes of XXH64 {found.hash:016x}, expected "
            f"{want.bytes} of {want.hash:016x}"
        )
    return found


def _each(names: Iterable[str], one: Callable[[str, int], Any], shards: int, threads: int) -> list[Any]:
    """Call one(name, threads) for all names, several at a time. Returns the results in order."""
    threads = u31(threads, "threads") or os.cpu_count() or 1
    at_a_time = max(1, min(shards, threads))
    with ThreadPoolExecutor(at_a_time) as pool:
        jobs = [pool.submit(one, name, threads // at_a_time) for name in names]
        try:
            return [job.result() for job in jobs]
        except BaseException:
            for job in jobs:
                job.cancel()
            raise


def _raw(path: _P) -> _Tensor:
    """A file as a tensor of bytes."""
    whole = np.asarray(_Mapped(path))
    return _Tensor("data", "u8", _U8, whole.shape, whole)


def compress_folder(
    folder: Path,
    out: Path,
    *,
    format: str = "auto",
    threads: int = 1,
    zstd: int = 0,
    pack: Pack = "none",
    overwrite: bool = False,
) -> None:
    """Compress a checkpoint. Repeated tensors are stored once. format, zstd, pack: as for create(). Files of torch.save
    are copied; picitool compresses their tensors, and these functions read its folders."""
    c = _Checkpoint(_P(os.fsdecode(folder)))
    c.refuse_names()
    tensors = {name: c.shards[name].tensors for name in c.names} | {name: [_raw(c.path / name)] for name in c.raw}
    keyed = (((name, t.name), t) for name in c.files if name in tensors for t in tensors[name])
    first = dict(twins(keyed, lambda data: _sum_of_mapped(data).hash))
    with OutFolder(out, c.path, overwrite, c) as to:

        def one(name: str, each: int) -> _Stored:
            if name not in c.shards and name not in c.raw:
                found = _copy(c.path / name, to.temp / name)
                return _Stored("file", found, found)
            path = to.temp / f"{name}.pici"
            if name in c.shards:
                whole = c.shards[name].whole
                attrs = {"source.type": b"safetensors", "source.head": c.shards[name].head}
            else:
                whole = tensors[name][0].data
                attrs = {"source.type": b"raw", "source.unnamed": b"tail"}
            with create(path, format=format, threads=each, zstd=zstd, pack=pack, attrs=attrs) as w:
                for t in tensors[name]:
                    word = {"source.dtype": t.word.encode()}
                    if (name, t.name) in first:
                        shard, target = first[name, t.name]
                        refers = Reference(t.dtype, t.shape, "" if shard == name else shard, target)
                        w.begin(t.name, (0,), "u8", attrs={**word, REFERENCE_KEY: refers.value()})
                        continue
                    w.begin(t.name, t.shape, t.dtype.name, attrs=word)
                    for at in range(0, t.data.size, _PIECE):
                        piece = t.data[at : at + _PIECE]
                        w._write(None, piece if sys.byteorder == "little" else _swapped(piece, t.dtype), t.dtype)
            _like(path, c.path / name)
            original = _sum_of_mapped(whole)
            c.expect_unchanged(name)
            return _Stored("shard", original, _sum(path))

        made = _each(c.files, one, len(c.names) + len(c.raw), threads)
        _write_list(to.temp, "compressed", dict(zip(c.files, made)), bool(first))
        to.commit()


def _swapped(piece: Any, d: DType) -> Any:
    return np.frombuffer(piece.tobytes(), f"<u{d.itemsize}").byteswap()


def _pieces(m: _Made, name: str, f: File, threads: int) -> Iterator[bytes]:
    """The bytes of the original file of a .pici file."""
    with _Targets(m, threads) as targets:

        def elements(t: Tensor) -> Tensor:
            to = m.refers(t, name)
            return t if to is None else targets.follow(t, to)

        yield from pieces_of(f, elements)


def decompress_folder(folder: Path, out: Path, *, threads: int = 1, overwrite: bool = False) -> None:
    """Restore a checkpoint from a folder of compress_folder() or picitool: all files, byte for byte."""
    m = _Made(_P(os.fsdecode(folder)), "compressed")
    with OutFolder(out, m.path, overwrite, m) as to:

        def one(name: str, each: int) -> None:
            want, path = m.files[name], to.temp / name
            if want.kind != "shard":
                _copy(m.path / name, path, want.original)
                return
            stored = m.path / f"{name}.pici"
            with m.shard(name, each) as f, Out(path, False) as o:
                written = 0
                for piece in _pieces(m, name, f, each):
                    written += len(piece)
                    if written > want.original.bytes:
                        raise CorruptError(f"{stored} is longer than {LIST} says")
                    _put(o, piece)
                o.commit()
            _like(path, stored)
            _matched(stored, _sum(path), want.original)

        _each(m.files, one, sum(f.kind == "shard" for f in m.files.values()), threads)
        to.commit()


def diff_folders(
    base: Path,
    new: Path,
    delta: Path,
    *,
    small: Optional[bool] = None,
    format: str = "auto",
    threads: int = 1,
    zstd: int = 0,
    overwrite: bool = False,
) -> None:
    """Write the delta from one sharded checkpoint to another, as a folder. Tensors match by name, in any shard. small,
    format, zstd: as for diff_files()."""
    diff_opts(small, format, threads, zstd)  # which rejects invalid values
    old, c = _Checkpoint(_P(os.fsdecode(base))), _Checkpoint(_P(os.fsdecode(new)))
    c.refuse_names()
    removed = [t for name, t in old.tensors.items() if name not in c.tensors]
    most = _permitted(old)
    with OutFolder(delta, c.path, overwrite, c, old.path) as to:

        def shard(name: str, each: int) -> _Stored:
            opts = diff_opts(small, format, each, zstd)
            path = to.temp / f"{name}.pici"
            gone = removed if name == c.names[0] else []
            with ExitStack() as stack:
                after = stack.enter_context(Held(c.path / name, 0, SAFETENSORS))
                if not gone and name in old.shards and old.shards[name].head == c.shards[name].head:
                    before = stack.enter_context(Held(old.path / name, 0, SAFETENSORS))
                else:
                    some = before = stack.enter_context(_State(str(old.path)))
                    for t in [old.find(t.name, name) for t in c.shards[name].tensors] + gone:
                        if t is not None:
                            some.add(*t)
                out = stack.enter_context(Out(path, False))
                got(_codec.diff_states(out.handle, before.handle, after.handle, opts), out.path)
                out.commit()
                original = _sum_of(after)
            c.expect_unchanged(name)
            _like(path, c.path / name, most)
            return _Stored("shard", original, _sum(path))

        def one(name: str, each: int) -> _Stored:
            if name in c.shards:
                return shard(name, each)
            found = _sum(c.path / name)
            if old.files.get(name) == found.bytes and _sum(old.path / name) == found:
                return _Stored("same", found, found)
            _copy(c.path / name, to.temp / name, found)
            return _Stored("file", found, found)

        made = _each(c.files, one, len(c.names), threads)
        _write_list(to.temp, "delta", dict(zip(c.files, made)))
        to.commit()


def apply_folders(
    base: Path, delta: Path, *, out: Optional[Path] = None, threads: int = 1, overwrite: bool = False
) -> None:
    """Apply a delta of folders to a checkpoint.

    out: the path of the result. None: replace base atomically, unless it already is the result. This removes files of
        base that the result does not have.

    ArgumentError: base is not the delta's base. CorruptError: the delta or base is damaged. After an exception nothing
    has changed."""
    old, m = _Checkpoint(_P(os.fsdecode(base))), _Made(_P(os.fsdecode(delta)), "delta")
    if out is None and old.files == {name: f.original.bytes for name, f in m.files.items()}:
        short = sorted(m.files, key=lambda name: m.files[name].original.bytes)
        if all(_sum(old.path / name) == m.files[name].original for name in short):
            return
    where = old.path if out is None else out
    most = _permitted(old)
    with OutFolder(where, old.path, overwrite or out is None, m, m.path, out is None) as to:

        def one(name: str, each: int) -> None:
            want, path = m.files[name], to.temp / name
            if want.kind == "same":
                if name not in old.files:
                    raise ArgumentError(f"{old.path} is not the base of {m.path}: it has no {name}")
                _copy(old.path / name, path, want.original)
            elif want.kind == "file":
                _copy(m.path / name, path, want.original)
            else:
                _apply(old, name, m.path / f"{name}.pici", path, want.original, each)
                _like(path, m.path / f"{name}.pici", most)

        _each(m.files, one, sum(f.kind == "shard" for f in m.files.values()), threads)
        to.commit()


def _base_of(old: _Checkpoint, row: Row, shard: str, delta: _P) -> Held:
    """The base of a shard's delta: the shard of that name if the delta has no head, else the tensors that it names."""
    if not row.own_head:
        if shard not in old.shards:
            raise ArgumentError(f"{old.path} is not the base of {delta}: it has no {shard}")
        return Held(old.path / shard, 0, SAFETENSORS)
    state = _State(str(old.path))
    with File(delta) as f:
        for name in f:
            found = old.find(name, shard)
            if found is not None:
                state.add(*found)
    return state


def _apply(old: _Checkpoint, shard: str, delta: _P, path: _P, want: _Sum, threads: int) -> None:
    with ExitStack() as stack:
        row = stack.enter_context(Row((delta,), threads))
        if row.type != SAFETENSORS or row.bytes != want.bytes:
            raise CorruptError(f"{delta} is not the delta that {LIST} describes")
        before = stack.enter_context(_base_of(old, row, shard, delta))
        out = stack.enter_context(Out(path, False))
        row.to_file(out, before, threads)
        out.commit()
    _matched(delta, _sum(path), want)


def load_folder(
    path: Path, *, to: str = "numpy", names: Optional[Iterable[str]] = None, threads: int = 1, max_bytes: Limit = "auto"
) -> dict[str, Any]:
    """load() of a folder: a sharded checkpoint, or one compressed by compress_folder()."""
    folder = _P(os.fsdecode(path))
    wanted = None if names is None else list(names)
    found: dict[str, Any] = {}
    if not (folder / LIST).exists():
        c = _Checkpoint(folder)
        _refuse_raw(folder, c.names)
        _some(folder, wanted, c.tensors)
        c.refuse_twice(c.tensors if wanted is None else wanted)
        some = None if wanted is None else set(wanted)
        for name, shard in c.shards.items():
            found.update(arrays_of(np.fromfile(folder / name, np.uint8) if some is None else shard.whole, to, some))
        return found if wanted is None else {name: found[name] for name in wanted}
    m = _Made(folder, "compressed")
    _refuse_raw(folder, m.shards)
    there, where = m.tensors()
    _some(folder, wanted, there)
    tensors = list(there.values()) if wanted is None else [there[name] for name in wanted]
    stored = sum(f.stored.bytes for f in m.files.values() if f.kind == "shard")
    need, most = sum(t.nbytes for t in tensors), _arrays.limit(max_bytes, stored)
    if most is not None and need > most:
        raise LimitError(f"the tensors take {need} bytes, more than max_bytes allows, {most}: pass max_bytes={need}")
    of_shard: dict[str, list[str]] = {}
    for t in tensors:
        of_shard.setdefault(where[t.name], []).append(t.name)
    checked: set[str] = set()

    def check(shard: str) -> None:
        if shard not in checked:
            _matched(folder / f"{shard}.pici", _sum(folder / f"{shard}.pici"), m.files[shard].stored)
            checked.add(shard)

    with _Targets(m, threads) as targets:
        for of, of_it in of_shard.items():
            check(of)
            with m.shard(of, threads) as f:
                for name in of_it:
                    t, refers = f[name], m.refers(f[name], of)
                    if refers is not None:
                        check(refers.shard)
                        t = targets.follow(t, refers)
                    found[name] = t.read(to=to)  # type: ignore[call-overload]
    return {t.name: found[t.name] for t in tensors}


def list_folder(path: Path) -> dict[str, ShardTensor]:
    """The tensors of a sharded checkpoint, or of one compressed by compress_folder(), by name, in the order of the
    shards. Does not read their data."""
    folder = _P(os.fsdecode(path))
    if not (folder / LIST).exists():
        c = _Checkpoint(folder)
        _refuse_raw(folder, c.names)
        c.refuse_twice(c.tensors)
        return {t.name: t.listed(name) for name, shard in c.shards.items() for t in shard.tensors}
    m = _Made(folder, "compressed")
    _refuse_raw(folder, m.shards)
    found, where = m.tensors()
    return {name: ShardTensor(t.dtype, t.shape, where[name]) for name, t in found.items()}


def _refuse_raw(folder: _P, shards: list[str]) -> None:
    if not shards:
        raise ValueError(f"{folder} has .distcp files alone: torch.distributed.checkpoint reads their tensors")


def _some(folder: _P, wanted: Optional[list[str]], there: Iterable[str]) -> None:
    for name in wanted or []:
        if name not in there:
            raise NoTensorError(f"no tensor {name!r} in {folder}")
