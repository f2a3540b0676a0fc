# SPDX-License-Identifier: BSD-3-Clause
"""Folders of objects behind URLs, by fsspec: only the functions that logs need. An upload creates or replaces an object
atomically. Nothing is renamed, and nothing depends on listings."""
from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Optional
from urllib.parse import unquote

from .errors import Error, IoError, UnsupportedError, make

TRIES = 5  # of each request
DELAY = 0.2  # seconds after the first failure; twice as many after each further one
PIECE = 8 << 20  # bytes of a request
AT_ONCE = 8  # requests
LEASE = 30.0  # seconds after which an unchanged lock belongs to a killed writer
HELD_MOST = 15.0  # seconds for which a writer assumes that it has the lock
LOCK = "lock"

#: how to replace an object only if it has not changed: by its ETag; or under a lock of this process, which owns the
#: store. Other stores: while an object exists that only one writer can create.
CONDITIONS = {"s3": "etag", "s3a": "etag", "memory": "process"}
READ_ONLY = ("http", "https")

_CODES = ((FileNotFoundError, errno.ENOENT), (FileExistsError, errno.EEXIST), (PermissionError, errno.EACCES))

_process = threading.Lock()


class Found(NamedTuple):
    """An object to replace if it has not changed."""

    data: Optional[bytes]  # None: it does not exist
    etag: str = ""


def is_url(where: Any) -> bool:
    """Whether a path is a URL. Paths of local files are not, nor is file://."""
    return isinstance(where, str) and "://" in where and not where.startswith("file://")


def local_path(where: Any) -> Any:
    """A path, or the path of a file:// URL."""
    if isinstance(where, str) and where.startswith("file://"):
        if not where.startswith("file:///"):
            raise ValueError(f"{where!r}: a folder's path begins with /, as in file:///data/weights.log")
        return unquote(where[len("file://") :], errors="surrogateescape")
    return where


def check_writable(url: str) -> None:
    if url.partition("://")[0].lower() in READ_ONLY:
        raise UnsupportedError(f"{url}: logs are read over HTTP, not written: pass the URL of the store")


class Store:
    """A folder of objects."""

    def __init__(self, url: str, options: Optional[Mapping[str, Any]] = None) -> None:
        """options: of fsspec's file system."""
        if "::" in url:
            raise ValueError(f"{url!r}: caches and archives in a row are not supported: pass the URL of the store")
        self.url = url.rstrip("/")
        try:
            core = importlib.import_module("fsspec.core")
        except ImportError:
            raise ImportError(f"{url}: a log at a URL needs fsspec: pip install fsspec, and s3fs for s3://") from None
        self._fs, self._root = core.url_to_fs(self.url, **(options or {}))
        self._scheme = self.url.partition("://")[0].lower()
        self._condition = CONDITIONS.get(self._scheme, "lock")
        self._lock_works = False
        #: bytes of objects read and written
        self.read_bytes = self.written_bytes = 0

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _try(self, what: str, name: str, call: Callable[[], Any], tries: int = TRIES) -> Any:
        """The result of a request. Retries temporary failures."""
        for attempt in range(tries):
            try:
                return call()
            except Exception as e:
                known = _known(e, f"{self.url}/{name}")
                if known is not None:
                    raise known from e
                last = e
            if attempt + 1 < tries:
                time.sleep(DELAY * 2**attempt * (0.5 + random.random()))
        raise IoError(f"{self.url}/{name}: {what} failed {tries} times: {_words(last)}") from last

    # ---- reading

    def read(self, name: str, start: int = 0, tries: int = TRIES) -> bytes:
        """An object from byte `start` on. A server without ranges gives the whole object."""
        path = self._path(name)
        if start:
            data = self._try("reading", name, lambda: self._fs.cat_file(path, start=start), tries)
        else:
            data = self._try("reading", name, lambda: self._fs.cat_file(path), tries)
        self.read_bytes += len(data)
        return bytes(data)

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Bytes [start, end) of an object; fewer, if it is shorter."""
        path = self._path(name)

        def piece() -> Any:
            try:
                return self._fs.cat_file(path, start=start, end=end)
            except Exception:
                if start and self._ends_by(path, start):  # which a server rejects
                    return b""
                raise

        data = self._try("reading", name, piece)
        self.read_bytes += len(data)
        return bytes(data[start:end] if len(data) > end - start else data)  # of a server without ranges

    def _ends_by(self, path: str, start: int) -> bool:
        """Whether an object is known to end at or before byte `start`."""
        try:
            size = self._fs.info(path).get("size")
        except Exception:  # report the error of the caller's own request instead
            return False
        return isinstance(size, int) and size <= start

    def fetch(self, files: Iterable[tuple[str, int, str]]) -> list[bool]:
        """Copy objects to local files, in pieces: (name, bytes, path). Returns for each whether it exists. Shorter
        files stay shorter."""
        wanted = list(files)
        at_once = AT_ONCE if getattr(self._fs, "async_impl", False) else 1
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda file: self._fetch(*file), wanted))

    def _fetch(self, name: str, size: int, path: str) -> bool:
        try:
            with open(path, "wb") as out:
                for start in range(0, size, PIECE):
                    end = min(start + PIECE, size)
                    piece = self.read_range(name, start, end)
                    out.write(piece)
                    if len(piece) < end - start:
                        break
        except FileNotFoundError:
            os.unlink(path)
            return False
        return True

    def found(self, name: str) -> Found:
        """An object to replace later."""
        try:
            etag = ""
            if self._condition == "etag":  # first: if the object changes between, the tag is of the older one
                info = self._try("looking", name, lambda: self._fs.info(self._path(name), refresh=True))
                etag = str(info.get("ETag", ""))
            return Found(self.read(name), etag)
        except FileNotFoundError:
            return Found(None)

    def names(self) -> list[str]:
        """The names of objects in a listing: some may be gone, and others missing."""

        def listed() -> list[str]:
            self._fs.invalidate_cache()
            return [str(path).rsplit("/", 1)[-1] for path in self._fs.ls(self._root, detail=False)]

        found: list[str] = self._try("listing", "", listed)
        return found

    # ---- writing

    def check_writable(self) -> None:
        check_writable(self.url)

    def put(self, name: str, path: str) -> None:
        """Upload a local file."""
        self._try("writing", name, lambda: self._fs.put_file(path, self._path(name)))
        self.written_bytes += os.path.getsize(path)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._try("removing", name, lambda: self._fs.rm_file(self._path(name)))

    def replace(self, name: str, old: Found, data: bytes) -> bool:
        """Replace an object by another. False: it has changed or gone, and nothing was replaced."""
        self.written_bytes += len(data)
        with contextlib.ExitStack() as stack:
            if self._condition == "process":
                stack.enter_context(_process)
            elif self._condition == "lock":
                stack.enter_context(self._locked())
            last: Optional[Exception] = None
            for attempt in range(TRIES):
                if self._condition != "etag" or attempt:
                    now = self.found(name)
                    if now.data == data:  # by a request that seemed to fail
                        return True
                    if now.data != old.data:
                        return False
                    old = now
                try:
                    self._put_if(name, old, data)
                    return True
                except Exception as e:
                    known = _known(e, f"{self.url}/{name}")
                    if known is not None and not isinstance(known, FileExistsError):
                        raise known from e
                    last = e
                time.sleep(DELAY * 2**attempt * (0.5 + random.random()))
        raise IoError(f"{self.url}/{name}: writing failed {TRIES} times: {_words(last)}") from last

    def _put_if(self, name: str, old: Found, data: bytes) -> None:
        condition: dict[str, str] = {}
        if self._condition == "etag":
            condition = {"IfNoneMatch": "*"} if old.data is None else {"IfMatch": old.etag}
        elif self._condition == "lock":
            self._check_held()
        self._fs.pipe_file(self._path(name), data, **condition)

    # ---- stores without conditional writes

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock: an object that one writer at a time creates and removes."""
        owner = secrets.token_hex(16).encode()
        names = self._take(owner)
        try:
            self._check_held()
            if not self._lock_works:
                if self._create(names[-1], owner + b"2"):
                    raise UnsupportedError(f"{self.url}: this store lets two writers create one object: use another")
                self._lock_works = True
            yield
        finally:
            with contextlib.suppress(Error, OSError):  # then it goes when LEASE has passed
                self._check_held()
                for name in names:  # in this order: see _take()
                    self.remove(name)

    def _take(self, owner: bytes) -> list[str]:
        """Wait for the lock. A chain of objects names its owner: the lock, and after a killed owner, the object that
        one writer could create to follow it. That writer has the lock if the chain still exists afterwards."""
        name = LOCK
        seen: list[tuple[str, bytes]] = []
        since = 0.0
        while True:
            self._locked_at = time.monotonic()  # before: the answer may take long
            made = self._create(name, owner)
            if made and name == LOCK:
                return [LOCK]
            chain = self._chain()
            if chain and chain[-1][1] == owner:  # even if the request seemed to fail
                return [link for link, _ in chain]
            if made:  # another writer has followed, and has released the lock
                self.remove(name)
            name = LOCK
            if not chain or chain != seen:
                seen, since = chain, time.monotonic()
            elif time.monotonic() - since > LEASE:
                name = _follower(chain[-1][1])
                continue
            time.sleep(min(0.05, LEASE / 10))

    def _chain(self) -> list[tuple[str, bytes]]:
        """The lock, if it exists, and its followers: names and owners."""
        chain: list[tuple[str, bytes]] = []
        owner = self.found(LOCK).data
        name = LOCK
        while owner is not None:
            chain.append((name, owner))
            name = _follower(owner)
            owner = self.found(name).data
        return chain

    def _check_held(self) -> None:
        if time.monotonic() - self._locked_at > HELD_MOST:
            raise Late(f"{self.url}: this writer was held up for {HELD_MOST:g} s; nothing was changed: try again")

    def _create(self, name: str, owner: bytes) -> bool:
        """Create an object of the lock; False: it exists."""
        try:
            self._try("locking", name, lambda: self._fs.pipe_file(self._path(name), owner, mode="create"))
            return True
        except FileExistsError:
            return False
        except TypeError as e:
            raise UnsupportedError(f"{self.url}: this fsspec cannot create an object once: 2024.10 can ({e})") from e


def _follower(owner: bytes) -> str:
    """The object that follows a killed owner."""
    return f"{LOCK}-{hashlib.sha256(owner).hexdigest()[:32]}"


class Late(IoError):
    """A writer that may have lost its lock."""


def _known(error: Exception, where: str) -> Optional[Exception]:
    """A permanent error, as one of pici's if it is a system error; None: it may be temporary."""
    if isinstance(error, Error):
        return error
    for kind, code in _CODES:
        if isinstance(error, kind):
            return make(IoError.status or 0, os.strerror(code), code=code, path=where)
    if isinstance(error, (TypeError, ValueError, AttributeError, ImportError, NotImplementedError, MemoryError)):
        return error
    status = getattr(error, "status", None)  # of aiohttp
    if isinstance(status, int) and 400 <= status < 500 and status not in (408, 425, 429):
        return IoError(f"{where}: {_words(error)}")
    return None


def _words(error: Optional[Exception]) -> str:
    return str(error) or type(error).__name__
