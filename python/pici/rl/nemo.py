# SPDX-License-Identifier: BSD-3-Clause
"""A transport of NeMo-RL's sparse refit payloads through any store that fsspec knows, or a folder.

    transport = pici.rl.nemo.Transport("s3://bucket/refit", notify)
    stream_sparse_delta_payloads(pairs, delta_tracker=tracker, transport=transport, shard_rank=0, shard_count=1)

and on the receivers:

    body = pici.rl.nemo.receive("s3://bucket/refit", name, checksum)

notify(name, checksum, verification_candidates) notifies them, for example by NeMo-RL's own HTTP calls, and returns
their answer, a dict. Payloads are NeMo-RL's own, already compressed. The transport carries them unchanged, with
retries, and removes each when the receivers have it.

Names were read from NVIDIA-NeMo/RL as of seonjinn/RL at 23b6c3fe (nemo_rl/utils/weight_transfer_stream.py:
SparseRefitTransport).
"""
from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any, Callable

from .._store import Store, check_writable
from ..errors import ChecksumError, Error

Notify = Callable[[str, str, int], "dict[str, Any]"]


class Transport:
    """NeMo-RL's SparseRefitTransport: name, transfer_workers, send() and cleanup()."""

    name = "pici"

    def __init__(self, url: str, notify: Notify, *, transfer_workers: int = 4) -> None:
        self.transfer_workers = transfer_workers
        check_writable(url)
        self._store, self._notify = Store(url), notify
        self._run = secrets.token_hex(8)
        self._left = threading.local()  # objects of this thread that may be there still

    def send(self, body: bytes, payload_id: int, verification_candidates: int) -> dict[str, Any]:
        """Upload a payload, notify the receivers, and remove it."""
        name = f"refit-{self._run}-{payload_id:06d}"
        checksum = hashlib.blake2b(body, digest_size=16).hexdigest()
        self._names().append(name)
        began = time.perf_counter()
        with tempfile.NamedTemporaryFile(prefix="pici-") as f:
            f.write(body)
            f.flush()
            self._store.put(name, f.name)
        put = time.perf_counter() - began
        began = time.perf_counter()
        receiver = self._notify(name, checksum, verification_candidates)
        told = time.perf_counter() - began
        self._remove(name)
        return {"pici_put_s": put, "pici_notify_s": told, "receiver": receiver}

    def cleanup(self) -> None:
        """Remove the leftovers of the calling thread's failed send."""
        for name in list(self._names()):
            self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(Error, OSError):  # cleanup() tries again
            self._store.remove(name)
            self._names().remove(name)

    def _names(self) -> list[str]:
        names: list[str] = self._left.__dict__.setdefault("names", [])
        return names


def receive(url: str, name: str, checksum: str) -> bytes:
    """Receive a sent payload."""
    if os.path.basename(name) != name:
        raise ValueError(f"{name!r} is no name of a payload")
    body = Store(url).read(name)
    found = hashlib.blake2b(body, digest_size=16).hexdigest()
    if found != checksum:
        raise ChecksumError(f"{url}/{name}: its BLAKE2 is {found}, not {checksum}")
    return body
