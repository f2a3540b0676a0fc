# SPDX-License-Identifier: BSD-3-Clause
"""Logs of deltas at URLs (formats/delta-log.md, "In a store"). Each call makes a local folder of the manifest and the
files that it needs, and lets the library work on it as on any log. Then it uploads the result: first the files, under
names unique to the writer; then the manifest, if it has not changed since the call read it.
"""
from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, Optional

from . import _codec
from ._store import Found, Store
from .errors import Error, IoError, make
from .file import open as open_file

MANIFEST = "manifest"
_END = len("end ") + 16 + 1  # the last line of a manifest
_RESTS = ("base-", "delta-")


class Entry(NamedTuple):
    """A file of a log."""

    local: str  # its name on disk
    name: str  # and in a store, with the hash of the file
    bytes: int


class Entries(NamedTuple):
    """The files that a manifest names. The library has already checked its text."""

    base: Entry
    packed: bool
    base_number: int
    first: int
    deltas: dict[int, Entry]

    @classmethod
    def of(cls, text: bytes) -> Entries:
        deltas: dict[int, Entry] = {}
        packed = False
        first = number = size = 0
        digest = extension = ""
        for line in text.decode("ascii", "surrogateescape").splitlines()[1:-1]:
            words = line.split(" ")
            if words[0] == "first":
                first = int(words[1])
            elif words[0] == "base":
                number, size, digest = int(words[1]), int(words[2]), words[3]
                extension = "".join(words[4:])
            elif words[0] == "packed":
                packed, size, digest, extension = True, int(words[2]), words[3], f"{extension}.pici"
            else:
                deltas[int(words[1])] = _entry(f"delta-{int(words[1]):09}", ".pici", int(words[2]), words[3])
        return cls(_entry(f"base-{number:09}", extension, size, digest), packed, number, first, deltas)

    @property
    def all(self) -> list[Entry]:
        return [self.base, *self.deltas.values()]


def _entry(stem: str, extension: str, size: int, digest: str) -> Entry:
    return Entry(stem + extension, f"{stem}-{digest}{extension}", size)


class Remote:
    """A log in a store."""

    def __init__(self, url: str, options: Optional[Mapping[str, Any]]) -> None:
        self.store = Store(url, options)
        self._known = b""  # the last manifest read
        self._plain = False  # the store has names as on disk: someone copied a log there
        self._heads: dict[str, list[tuple[int, bytes]]] = {}

    def read_manifest(self) -> bytes:
        """The manifest. If it was read before and has grown, this reads only the end: the last line, a hash of
        everything before it, shows whether that fits."""
        at = len(self._known) - _END
        if at > 0:
            try:
                tail = self.store.read(MANIFEST, at, tries=1)
            except (Error, OSError):
                tail = b""  # it is shorter now, or the store is unreachable: read all of it
            if tail.startswith(b"pici-log "):  # of a server without ranges
                self._known = tail
            elif tail.endswith(b"\n"):
                grown = self._known[:at] + tail
                if grown == self._known or _reads(grown):
                    self._known = grown
                    return grown
        self._known = self.store.read(MANIFEST)
        return self._known

    def found(self) -> Found:
        """The manifest, to replace later."""
        found = self.store.found(MANIFEST)
        self._known = found.data or b""
        return found

    def fetch(self, folder: str, entries: list[Entry]) -> None:
        """Copy files of the log to a folder; skips missing ones."""
        missing = [e for e in entries if not os.path.exists(os.path.join(folder, e.local))]
        for plain in (self._plain, not self._plain):
            wanted = [(e.local if plain else e.name, e.bytes, os.path.join(folder, e.local)) for e in missing]
            there = self.store.fetch(wanted)
            missing = [e for e, found in zip(missing, there) if not found]
            if any(there):
                self._plain = plain
            if not missing:
                break

    def fetch_head(self, folder: str, entry: Entry) -> None:
        """Make a file of a packed base with only the descriptions of its tensors, which a writer needs."""
        pieces = self._heads.get(entry.name)
        if pieces is None:
            try:
                pieces = self._head_of(entry, entry.local if self._plain else entry.name)
            except FileNotFoundError:
                pieces = self._head_of(entry, entry.name if self._plain else entry.local)
                self._plain = not self._plain
        path = os.path.join(folder, entry.local)
        with open(path, "wb") as out:
            out.truncate(entry.bytes)
            for offset, data in pieces:
                out.seek(offset)
                out.write(data)

    def _head_of(self, entry: Entry, name: str) -> list[tuple[int, bytes]]:
        return self._keep_head(entry, lambda start, end: self.store.read_range(name, start, end))

    def _keep_head(self, entry: Entry, read: Callable[[int, int], bytes]) -> list[tuple[int, bytes]]:
        ranges = _Ranges(read, entry.bytes)
        with open_file(ranges) as file:  # type: ignore[arg-type]
            for name in file:
                tensor = file[name]
                if name.startswith("delta."):
                    tensor.read()
        self._heads = {entry.name: ranges.pieces}
        return ranges.pieces

    def publish(self, folder: str, old: Found) -> bool:
        """Upload the new files of a folder, then replace the manifest. False: the manifest has changed since it was
        read."""
        with open(os.path.join(folder, MANIFEST), "rb") as f:
            text = f.read()
        if text == old.data:
            return True
        before = set() if old.data is None else {e.name for e in Entries.of(old.data).all}
        entries = Entries.of(text)
        for entry in entries.all:
            if entry.name not in before:
                self.store.put(entry.name, os.path.join(folder, entry.local))
        if entries.packed and entries.base.name not in before:
            with open(os.path.join(folder, entries.base.local), "rb") as f:
                self._keep_head(entries.base, lambda start, end: os.pread(f.fileno(), end - start, start))
        if not self.store.replace(MANIFEST, old, text):
            return False
        self._known = text
        return True

    def clean(self, old: bytes) -> None:
        """Remove files that neither the manifest nor an active writer can name: of states up to the newest, or the
        base. A writer with an older manifest fails."""
        entries = Entries.of(self._known)
        newest = entries.first + len(entries.deltas)
        named = {MANIFEST, *(e.name for e in entries.all), *(e.local for e in entries.all)}
        before = [e for e in Entries.of(old).all if e.name not in named]
        gone = {e.local if self._plain else e.name for e in before}
        for name in self.store.names():
            stem, dash, rest = name.partition("-")
            number = rest[: len(rest) - len(rest.lstrip("0123456789"))]
            most = entries.base_number if stem == "base" else newest
            if stem + dash in _RESTS and number and int(number) <= most:
                gone.add(name)
        for name in sorted(gone - named):
            self.store.remove(name)


class Copy:
    """A log in a store, as a temporary folder on disk for one call."""

    def __init__(self, remote: Remote, write: bool) -> None:
        self.remote = remote
        with ExitStack() as stack:
            self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pici-log-"))
            if write:
                remote.store.check_writable()
            for attempt in range(3):  # a manifest in progress, where writing one is not atomic
                self.old = remote.found() if write else Found(remote.read_manifest())
                if self.old.data is None:
                    raise make(
                        IoError.status or 0, "is no log", code=errno.ENOENT, path=f"{remote.store.url}/{MANIFEST}"
                    )
                if _reads(self.old.data) or attempt == 2:
                    break
            with open(os.path.join(self.folder, MANIFEST), "wb") as f:
                f.write(self.old.data or b"")
            self._stack = stack.pop_all()

    def entries(self) -> Entries:
        assert self.old.data is not None
        return Entries.of(self.old.data)

    def close(self) -> None:
        self._stack.close()

    def tell(self, error: BaseException) -> None:
        """Make an error name the URL, not the folder."""
        if isinstance(error, Error):
            url = self.remote.store.url
            error.args = tuple(a.replace(self.folder, url) if isinstance(a, str) else a for a in error.args)
            if isinstance(error, IoError):
                for name in ("strerror", "filename"):
                    if isinstance(getattr(error, name), str):
                        setattr(error, name, getattr(error, name).replace(self.folder, url))


def _reads(text: bytes) -> bool:
    """Whether the library reads a manifest."""
    with tempfile.TemporaryDirectory(prefix="pici-log-") as folder:
        with open(os.path.join(folder, MANIFEST), "wb") as f:
            f.write(text)
        log = _codec.log_open(os.fsencode(folder), False)
        if isinstance(log, _codec.Failed):
            return False
        _codec.close(log)
        return True


class _Ranges:
    """An object as a file that reads and keeps only requested ranges."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size = read, size
        self._at = 0
        self.pieces: list[tuple[int, bytes]] = []

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        data = self._read(self._at, end) if end > self._at else b""
        self.pieces.append((self._at, data))
        self._at += len(data)
        return data
