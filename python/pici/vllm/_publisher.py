# SPDX-License-Identifier: BSD-3-Clause
"""The trainer's half without vLLM: sends weights to servers over sockets, each from the version that it has."""
from __future__ import annotations

import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, Optional

from . import _parts, _wire
from ._parts import Held, Meta
from ._stats import Step, log

#: keep deltas for servers that are behind while all deltas together have at most this fraction of the whole state's
#: bytes
KEPT = 0.5
PATIENCE = _wire.TIMEOUT / 4  # seconds between two messages that tell a server to keep waiting
UNPROVEN = 64  # connections at a time that have not yet proven that they know the token
ROOM_S = 1.0  # for which another one then waits; after that the oldest of them is dropped


class Failed(RuntimeError):
    """Announced weights that could not be read."""


class _Delta:
    """The step from one version to the next: the parts of each encoding, by group. Servers get parts while others are
    being made.
    """

    def __init__(self, version: int, encodings: Iterable[str]) -> None:
        self.version, self.encodings = version, frozenset(encodings)
        self._state = threading.Condition()
        self._made: list[tuple[int, dict[str, bytes]]] = []  # in the order of making
        self._ended = self._failed = False

    def add(self, group: int, parts: dict[str, bytes]) -> None:
        with self._state:
            self._made.append((group, parts))
            self._state.notify_all()

    def end(self, failed: bool) -> None:
        """All parts are made; with failed, there will be no more."""
        with self._state:
            self._ended, self._failed = True, failed
            self._state.notify_all()

    def parts(self, encoding: str) -> list[tuple[int, bytes]]:
        """The parts of an encoding made so far."""
        with self._state:
            return sorted((i, parts[encoding]) for i, parts in self._made if encoding in parts)

    def coming(self, encoding: str, wait: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
        """Yield the parts of an encoding as they are made. wait: called repeatedly while there is none."""
        at = 0
        while True:
            with self._state:
                more = self._state.wait_for(lambda: at < len(self._made) or self._ended, PATIENCE)
                if self._failed:
                    raise Failed("the trainer could not make this version")
                made = self._made[at:]
                if more and not made:
                    return
            at += len(made)
            for i, parts in made:
                if encoding in parts:
                    yield i, parts[encoding]
            if not made:
                wait()

    @property
    def length(self) -> int:
        with self._state:
            return sum(len(data) for _, parts in self._made for data in parts.values())


class _Delivery(NamedTuple):
    """The weights for a server."""

    run: str
    version: int
    deltas: Optional[list[_Delta]]  # None: the whole state
    coming: Optional[_Delta]  # after them, a delta in progress


class Weights:
    """One copy of the newest weights in host memory, and the deltas of the last steps."""

    def __init__(self, encoding: str, threads: int) -> None:
        self._threads = threads
        #: the encodings of deltas to make: with "auto" the encodings that servers request
        self.encodings = {encoding} if encoding != "auto" else set()
        self.groups: list[list[Held]] = []
        self.metas: list[list[Meta]] = []
        self.begin()

    def begin(self) -> None:
        """Forget the servers' versions: each gets the whole state next."""
        self.run = os.urandom(8).hex()
        self.version = -1
        self.groups = []
        self._deltas: list[_Delta] = []
        self._expected: Optional[_Delta] = None

    def expect(self) -> Optional[_Delta]:
        """The step that the next update() makes, so that servers can get its parts meanwhile. None: it is the whole
        state, or no server has requested an encoding.
        """
        self._expected = _Delta(self.version + 1, self.encodings) if self.version >= 0 and self.encodings else None
        return self._expected

    @property
    def dense_bytes(self) -> int:
        return sum(meta.bytes for group in self.metas for meta in group)

    def update(self, pairs: Iterable[tuple[str, Any]], step: Step) -> None:
        """Take the next weights: arrays in host memory. Copies each one before it asks for the next, so pairs may
        come in one buffer. About threads + 2 groups are copied at a time.
        """
        try:
            if self.version >= 0:
                done = self._next(pairs, step)
                if done:
                    self.version += 1
            else:
                self._first(pairs, step)
                self.version = 0
        except BaseException:
            self.begin()  # some weights are already the next ones
            raise
        step.version = self.version
        step.dense_bytes = self.dense_bytes

    def _first(self, pairs: Iterable[tuple[str, Any]], step: Step) -> None:
        with step.stage("gather"):
            tensors = [Held(name, array).copy() for name, array in pairs]
        names = [t.meta.name for t in tensors]
        if len(set(names)) != len(names):
            raise ValueError(f"tensor {max(names, key=names.count)!r} comes twice")
        if not names:
            raise ValueError("there are no weights to send")
        self.metas = list(_parts.groups_of(t.meta for t in tensors))
        rest = iter(tensors)
        self.groups = [[next(rest) for _ in metas] for metas in self.metas]
        step.elements = step.changed = sum(t.bits.size for t in tensors)

    def _next(self, pairs: Iterable[tuple[str, Any]], step: Step) -> bool:
        """False: these tensors differ from before, and begin a new run."""
        delta, self._expected = self._expected or _Delta(self.version + 1, self.encodings), None
        rest = iter(pairs)
        tasks: list[Future[int]] = []
        room = threading.Semaphore(self._threads + 1)  # groups that wait in host memory

        with ThreadPoolExecutor(self._threads) as pool:
            for i, group in enumerate(self.groups):
                with step.stage("gather"):
                    new = [Held.taken(name, array) for _, (name, array) in zip(group, rest)]
                if [t.meta for t in new] != [t.meta for t in group]:
                    for task in tasks:
                        task.result()
                    return self._other(new, rest, step)
                room.acquire()
                task = pool.submit(self._encode, delta, i, group, new)
                task.add_done_callback(lambda _: room.release())
                tasks.append(task)
            with step.stage("encode"):  # the rest of it when the last tensor is there
                step.changed = sum(task.result() for task in tasks)
        over = next(rest, None)
        if over is not None:
            raise ValueError(f"tensor {over[0]!r} is new: the source yields more tensors than before")
        step.elements = sum(t.bits.size for group in self.groups for t in group)
        self._deltas.append(delta)
        while len(self._deltas) > 1 and sum(d.length for d in self._deltas) > KEPT * self.dense_bytes:
            self._deltas.pop(0)
        return True

    def _other(self, new: list[Held], rest: Iterator[tuple[str, Any]], step: Step) -> bool:
        raise ValueError(
            f"the source yields other tensors than before, at {new[0].meta if new else 'its end'}: servers get all "
            "weights anew with the next call"
        )

    def _encode(self, delta: _Delta, i: int, old: list[Held], new: list[Held]) -> int:
        """Add the parts of a group to a delta, and return the number of changed elements. Old becomes new."""
        counts = _parts.changed(old, new)
        made = {}
        if any(counts):
            if _parts.SMALL in delta.encodings:
                made[_parts.SMALL] = _parts.small(old, new)
            if _parts.REPLACE in delta.encodings:
                made[_parts.REPLACE] = _parts.replace(old, new, counts)
            delta.add(i, made)
            for a, b, count in zip(old, new, counts):
                if count:
                    a.bits[...] = b.bits
        return sum(counts)

    def since(self, run: Any, version: Any, encoding: str, coming: Optional[_Delta] = None) -> Optional[list[_Delta]]:
        """The deltas from a version to the newest, or to the version before `coming`, in this encoding. None: a server
        with that version needs the whole state.
        """
        newest = self.version if coming is None else coming.version - 1
        if run != self.run or not isinstance(version, int) or not 0 <= version <= newest:
            return None
        found = [d for d in self._deltas if version < d.version <= newest]
        needed = found if coming is None else [*found, coming]
        if len(found) != newest - version or any(encoding not in d.encodings for d in needed):
            return None
        return found

    def whole(self, group: int) -> bytes:
        return _parts.whole(self.groups[group], self._threads)


class Publisher:
    """Serves weights to all who know the token."""

    def __init__(
        self, weights: Weights, host: str, port: int, token: str, tls: Optional[ssl.SSLContext] = None
    ) -> None:
        self.weights = weights
        self._tls = tls
        self._token = token
        self._listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._listener.getsockname()[1]
        self._state = threading.Condition()
        self._open = self._changing = False
        self._coming: Optional[_Delta] = None
        self._busy = 0
        self._words: dict[str, list[str]] = {}
        self._sent: dict[str, list[str]] = {}
        self._channels: set[_wire.Channel] = set()
        self._bytes = 0  # sent over connections that have ended
        self._closed = False
        self._most = UNPROVEN
        self._unproven: dict[int, tuple[socket.socket, float]] = {}  # by number, and since when; the oldest first
        self._numbers = itertools.count()
        threading.Thread(target=self._accept, name="pici.vllm", daemon=True).start()

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Hold this while the weights change. Servers that connect get the delta to the next version as it is made;
        servers that need the whole state wait until the end.
        """
        with self._state:
            self._open, self._changing = False, True
            while self._busy:
                self._state.wait()
            coming = self._coming = self.weights.expect()
            self._state.notify_all()
        try:
            yield
        finally:
            with self._state:
                self._changing, self._coming = False, None
                if coming is not None:
                    coming.end(failed=self.weights.version != coming.version)
                self._open = self.weights.version >= 0
                self._state.notify_all()

    @property
    def bytes(self) -> int:
        """The bytes sent to servers."""
        with self._state:
            return self._bytes + sum(channel.sent for channel in self._channels)

    def words(self, ticket: str) -> list[str]:
        """The error messages of servers that failed with this ticket."""
        with self._state:
            return self._words.pop(ticket, [])

    def kinds(self, ticket: str) -> list[str]:
        """What servers with this ticket got: "whole", or the number of deltas."""
        with self._state:
            return self._sent.pop(ticket, [])

    def _accept(self) -> None:
        while True:
            self._make_room()
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.1)  # perhaps no descriptors are left
                continue
            number = next(self._numbers)
            with self._state:
                self._unproven[number] = (connection, time.monotonic())
            answer = threading.Thread(
                target=self._answer, args=(connection, number), name="pici.vllm server", daemon=True
            )
            answer.start()

    def _make_room(self) -> None:
        """Wait until another connection may come. Strangers keep no server out: each has ROOM_S for itself."""
        with self._state:
            while len(self._unproven) >= self._most:
                number, (oldest, since) = next(iter(self._unproven.items()))
                left = since + ROOM_S - time.monotonic()
                if left > 0:
                    self._state.wait(left)
                    continue
                del self._unproven[number]
                log.warning("%d connections have not proven that they know the token: dropped one", self._most)
                with suppress(OSError):
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)  # wakes its thread, which closes it

    def _answer(self, connection: socket.socket, number: int) -> None:
        with ExitStack() as stack:
            stack.enter_context(connection)
            deadline = time.monotonic() + _wire.GREETING
            try:
                peer = "%s:%s" % connection.getpeername()[:2]
                if self._tls is not None:
                    connection.settimeout(_wire.remaining(deadline))
                    secure = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                    connection = stack.enter_context(secure)
                    with self._state:
                        if number not in self._unproven:
                            return
                        self._unproven[number] = (secure, self._unproven[number][1])
                    secure.do_handshake()
                channel = _wire.Channel(connection, self._token, listens=True, deadline=deadline)
            except OSError as e:
                log.warning("refused a connection: %s", e)
                return
            finally:
                with self._state:
                    self._unproven.pop(number, None)
                    self._state.notify_all()
            with self._state:
                self._channels.add(channel)
            try:
                self._talk(channel, channel.hear())
            except OSError as e:
                log.warning("the connection of %s ended: %s", peer, e)
            finally:
                with self._state:
                    self._channels.remove(channel)
                    self._bytes += channel.sent

    def _talk(self, channel: _wire.Channel, greeting: dict[str, Any]) -> None:
        ticket = str(greeting.get("ticket", ""))
        if "failed" in greeting:
            with self._state:
                self._words.setdefault(ticket, []).append(f"{greeting.get('server')}: {greeting['failed']}")
            channel.say({})
            return
        encoding = str(greeting.get("encoding"))
        if encoding not in (_parts.SMALL, _parts.REPLACE):
            raise _wire.WireError(f"the server asks for the encoding {encoding!r}")
        try:
            delivery = self._begin(channel, greeting, encoding)
        except Failed as e:
            channel.say({"failed": str(e)})
            return
        try:
            self._serve(channel, delivery, encoding, ticket)
        except Failed as e:
            channel.say({"failed": str(e)})
        finally:
            with self._state:
                self._busy -= 1
                self._state.notify_all()

    def _begin(self, channel: _wire.Channel, greeting: dict[str, Any], encoding: str) -> _Delivery:
        """Wait for a server's weights. Until they are sent, only the step that the server itself gets may change the
        weights.
        """

        def ready() -> Optional[_Delivery]:
            if not self._open and not self._changing:
                raise Failed("the trainer has no weights to send: its last update failed, or there was none")
            return self._ready(greeting, encoding)

        while True:
            with self._state:
                found = self._state.wait_for(ready, PATIENCE)
                if found is not None:
                    self._busy += 1
                    self.weights.encodings.add(encoding)
                    return found
            channel.say({"wait": True})

    def _ready(self, greeting: dict[str, Any], encoding: str) -> Optional[_Delivery]:
        """The weights for a server now; None: it must wait."""
        weights, coming = self.weights, None if self._open else self._coming
        if not self._open and coming is None:
            return None
        found = weights.since(greeting.get("run"), greeting.get("version"), encoding, coming)
        if coming is None:
            return _Delivery(weights.run, weights.version, found, None)
        return None if found is None else _Delivery(weights.run, coming.version, found, coming)

    def _serve(self, channel: _wire.Channel, delivery: _Delivery, encoding: str, ticket: str) -> None:
        weights, found, coming = self.weights, delivery.deltas, delivery.coming
        plan: dict[str, Any] = {"run": delivery.run, "version": delivery.version}
        if found is None:
            plan["groups"] = weights.metas
        else:
            rows = [(d.version, i, data) for d in found for i, data in d.parts(encoding)]
            plan["parts"] = [(version, i, len(data)) for version, i, data in rows]
            plan["more"] = coming is not None
            count = len(found) + (coming is not None)
        with self._state:
            self._sent.setdefault(ticket, []).append("whole" if found is None else f"{count} deltas")
        channel.say(plan)
        if channel.hear().get("go") is not True:
            return  # servers report errors over a separate connection
        if found is None:
            for i in range(len(weights.groups)):
                channel.send_data(weights.whole(i))
        else:
            for _, _, data in rows:
                channel.send_data(data)
            if coming is not None:
                self._send_coming(channel, coming, encoding)
        channel.hear()  # until then the connection belongs to the server

    def _send_coming(self, channel: _wire.Channel, coming: _Delta, encoding: str) -> None:
        for i, data in coming.coming(encoding, lambda: channel.say({"wait": True})):
            channel.say({"part": [coming.version, i, len(data)]})
            channel.send_data(data)
        channel.say({"end": True})

    def close(self) -> None:
        self._closed = True
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        except OSError:
            pass
        self._listener.close()
