# SPDX-License-Identifier: BSD-3-Clause
"""Folders of files, written atomically."""
from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Mapping
from pathlib import Path as _P
from pathlib import PurePosixPath
from typing import Any, Optional, Protocol

from . import _codec
from ._streams import Path

LIST, INDEX = "pici-folder", ".safetensors.index.json"
_NO_REPLACE, _EXCHANGE = 1, 2  # of renameat2(2)


def ends(name: str, extension: str) -> bool:
    """Whether a file has the extension, in either case, and a name before it."""
    base = name.rpartition("/")[2]
    return len(base) > len(extension) and base.lower().endswith(extension)


class Tree(Protocol):
    """An input folder."""

    @property
    def path(self) -> _P:
        ...

    @property
    def files(self) -> Mapping[str, Any]:
        ...

    @property
    def folders(self) -> list[str]:
        ...


class OutFolder:
    """An output folder: it appears at its path at commit(), atomically."""

    def __init__(
        self,
        path: Path,
        like: _P,
        overwrite: bool,
        source: Tree,
        read: Optional[_P] = None,
        in_place: bool = False,
    ) -> None:
        """like: the folder whose permissions it gets. source: the folder whose files, folders and times it gets. read:
        a second input folder, besides `like`.
        """
        self.path = _P(os.fsdecode(path))
        self.like = like
        below = {str(above) for name in source.files for above in PurePosixPath(name).parents}
        self.below = sorted(below.union(source.folders) - {"."})
        self.source = source.path
        made, sources = self.path.resolve(), {like.resolve(), (read or like).resolve()}
        if sources & set(made.parents):
            raise ValueError(f"{self.path} is inside the input folder: write it elsewhere")
        if made in sources - ({like.resolve()} if in_place else set()) or any(made in s.parents for s in sources):
            raise ValueError(f"{self.path} is or contains an input folder: write it elsewhere")
        self.mode = stat.S_IMODE(like.stat().st_mode) & 0o777 | 0o700
        self.replace = os.path.lexists(self.path)
        if self.replace:
            self._may_replace(overwrite)
            self.path = self.path.resolve()
        self.temp = self.path.parent / f".pici-{os.getpid()}-{threading.get_ident():x}-{os.urandom(6).hex()}"
        self.keep = False  # temp is the previous folder; a power failure may restore it
        self.temp.mkdir(0o700)
        try:
            for name in self.below:
                (self.temp / name).mkdir(0o700)
        except BaseException:
            shutil.rmtree(self.temp)
            raise

    def _may_replace(self, overwrite: bool) -> None:
        if not overwrite:
            raise FileExistsError(17, os.strerror(17), str(self.path))
        known = False
        if not self.path.is_symlink() and self.path.is_dir():
            entries = 0
            for at, folders, files in os.walk(self.path):
                inner = os.path.relpath(at, self.path)
                hidden = any(part.startswith(".") for part in PurePosixPath(inner).parts)
                own = self.path.resolve() == self.like.resolve() and not hidden
                links = any(os.path.islink(os.path.join(at, name)) for name in folders)
                if (files or links) and inner not in (".", *self.below) and not own:
                    raise ValueError(
                        f"{self.path} is not replaced: it has folders that the new one lacks, such as {inner}; "
                        "remove it first"
                    )
                entries += len(files) + len(folders)
                known = known or any(
                    f == LIST or any(ends(f, e) for e in (INDEX, ".safetensors", ".distcp")) for f in files
                )
            known = known or not entries
        if not known:
            raise ValueError(f"{self.path} is not replaced: it is not a checkpoint; remove it first")

    def commit(self) -> None:
        for name in self.below:
            was = next((f / name for f in (self.like, self.source) if (f / name).is_dir()), None)
            mode = stat.S_IMODE(was.stat().st_mode) & 0o777 | 0o700 if was else 0o700
            self._end(self.temp / name, mode, self.source / name)
        self._end(self.temp, self.mode, self.source)
        if self.replace:
            self._rename(_EXCHANGE)
        else:
            self._rename(_NO_REPLACE)
        self.keep = True
        with contextlib.suppress(PermissionError):  # a folder that may not be read cannot be synced
            fd = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        self.keep = False

    @staticmethod
    def _end(path: _P, mode: int, source: _P) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fchmod(fd, mode)
            os.fsync(fd)
            if source.is_dir():
                times = source.stat()
                os.utime(fd, ns=(times.st_atime_ns, times.st_mtime_ns))
        finally:
            os.close(fd)

    def _rename(self, flag: int) -> None:
        """rename(2) replaces an empty folder, even one that another process has just made."""
        code = _codec.rename_with(os.fsencode(self.temp), os.fsencode(self.path), flag)
        if not code:
            return
        if code in (errno.ENOSYS, errno.EINVAL):  # the system or the file system supports neither
            if flag == _EXCHANGE:
                raise OSError(code, "two folders cannot be exchanged here: remove the old one first", str(self.path))
            if not os.path.lexists(self.path):
                os.rename(self.temp, self.path)
                return
            code = errno.EEXIST
        raise OSError(code, os.strerror(code), str(self.path))

    def __enter__(self) -> OutFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keep and self.temp.is_dir():  # of a failed call, or the replaced folder
            shutil.rmtree(self.temp)
