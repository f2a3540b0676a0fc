# SPDX-License-Identifier: BSD-3-Clause
"""A server's half without vLLM: its weights, and updates that it checks before using them."""
from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Callable, NamedTuple, Optional

from .. import deltas
from .._dtypes import named
from ..errors import Error
from ..logs import DeltaLog
from . import _parts, _wire
from ._parts import Meta, Patch
from ._stats import Step


class Refused(ValueError):
    """A rejected update; it changed nothing."""


class Source(NamedTuple):
    """The origin of an update."""

    url: str
    token: str
    ticket: str
    run: str
    version: int
    fingerprint: str = ""
    whole: bool = False  # even if this server reports a version


class Update:
    """A checked update, not yet applied."""

    def __init__(self, run: str, version: int) -> None:
        self.run, self.version = run, version
        #: all weights, if they are new; else None
        self.whole: Optional[list[dict[str, Any]]] = None
        self.metas: Optional[list[list[Meta]]] = None
        self.deltas: list[deltas.Update] = []
        self.patches: list[Patch] = []

    @property
    def changes(self) -> bool:
        """Whether any weight changes."""
        return self.whole is not None or bool(self.patches) or any(u.changed for u in self.deltas)

    @property
    def changed(self) -> list[str]:
        """The names of the tensors that change, unless all are new."""
        return [name for u in self.deltas for name in u.changed] + [p.meta.name for p in self.patches]

    @property
    def kind(self) -> str:
        return "whole" if self.whole is not None else f"{len(self.changed)} tensors changed"


class Replica:
    """The weights of a server. With the encoding "small" it has all of them, as a mirror of the model's checkpoint;
    with "replace" only their names.
    """

    #: whether other workers have the same mirror
    shared = False

    def __init__(self, encoding: str, to: str, threads: int = 1) -> None:
        self.encoding = encoding
        self._to, self._threads = to, threads
        #: deltas did not match the mirror: the next update must be the whole state
        self._diverged = False
        self._log: Optional[DeltaLog] = None
        self.forget()

    def forget(self) -> None:
        """Drop all weights: the next update is the whole state."""
        self.run = ""
        self.version = -1
        self.metas: list[list[Meta]] = []
        self.mirror: list[dict[str, Any]] = []

    def items(self) -> Iterator[tuple[str, Any]]:
        for group in self.mirror:
            yield from group.items()

    # ---- over a socket

    def fetch(self, source: Source, check: Callable[[list[Meta]], None], step: Step) -> Update:
        """Get the trainer's current weights, and check all of them. check: rejects tensors that are not the model's."""
        address = _wire.parsed(source.url)
        if address.scheme == _wire.LOG:
            return self._from_log(address.path, source, check, step)
        with step.stage("connect"):
            channel = _wire.connect(address, source.token, source.fingerprint)
        with channel:
            greeting = {"ticket": source.ticket, "encoding": self.encoding, "run": self.run, "version": self.version}
            if source.whole or self._diverged:
                greeting.update(run="", version=-1)
            channel.say(greeting)
            with step.stage("wait"):
                plan = channel.hear()
                while plan.get("wait") is True:
                    plan = channel.hear()
            if "failed" in plan:
                raise _wire.WireError(str(plan["failed"]))
            try:
                update = Update(str(plan["run"]), int(plan["version"]))
                if (update.run, update.version) != (source.run, source.version):
                    raise Refused(f"the trainer has version {update.version}, and announced {source.version}")
                if "groups" in plan:
                    update.metas = _metas(plan["groups"])
                    try:
                        check([meta for group in update.metas for meta in group])
                    except Refused:
                        channel.say({"go": False})
                        raise
                    channel.say({"go": True})
                    self._whole(channel, update, step)
                else:
                    parts = [(int(version), int(group), int(length)) for version, group, length in plan["parts"]]
                    if any(not 0 <= group < len(self.metas) for _, group, _ in parts):
                        raise _wire.WireError("a delta of a group that is not there")
                    channel.say({"go": True})
                    self._deltas(channel, update, parts, plan.get("more") is True, step)
            except (KeyError, TypeError) as e:
                raise _wire.WireError(f"the trainer's plan is invalid: {e!r}") from None
            finally:
                step.bytes += channel.received
        return update

    def _whole(self, channel: _wire.Channel, update: Update, step: Step) -> None:
        assert update.metas is not None
        update.whole = []
        for i, group in enumerate(update.metas):
            most = sum(meta.bytes for meta in group) * 9 // 8 + (1 << 16) + 1024 * len(group)
            with step.stage("receive"):
                data = channel.receive_data(most)
            if i + 1 == len(update.metas):
                channel.say({})  # the trainer need not wait until all is checked
            with step.stage("verify"), _named(f"the tensors from {group[0].name!r} on"):
                arrays = _parts.from_whole(data, group, self._to, self._threads)
                update.whole.append(self._kept(update, i, arrays))

    def _kept(self, update: Update, group: int, arrays: dict[str, Any]) -> dict[str, Any]:
        """The arrays of a group, at their place in the mirror."""
        return arrays

    def _deltas(
        self, channel: _wire.Channel, update: Update, parts: list[tuple[int, int, int]], more: bool, step: Step
    ) -> None:
        """Get deltas. Check the deltas of a group when the last one has arrived, while receiving others. more: more
        parts follow the plan's parts, one for each group, as the trainer makes them.
        """
        rows: dict[int, list[bytearray]] = {}
        last = {group: i for i, (_, group, _) in enumerate(parts)}
        checks: list[Future[None]] = []
        with ThreadPoolExecutor(1) as pool:

            def check(group: int) -> None:
                checks.append(pool.submit(self.stage, update, {group: rows.pop(group)}))

            with step.stage("receive"):
                for i, (_, group, length) in enumerate(parts):
                    rows.setdefault(group, []).append(channel.receive_data(length))
                    if not more and last[group] == i:
                        check(group)
                if more:
                    for group, data in self._coming(channel, update.version):
                        rows.setdefault(group, []).append(data)
                        check(group)
                channel.say({})  # the trainer need not wait until all is checked
                for group in sorted(rows):
                    check(group)
            with step.stage("verify"):
                try:
                    for task in checks:
                        task.result()
                except Refused:
                    self._diverged = True
                    raise

    def _coming(self, channel: _wire.Channel, version: int) -> Iterator[tuple[int, bytearray]]:
        """Parts of the newest version, while the trainer makes them."""
        seen = set()
        while True:
            message = channel.hear()
            if message.get("end") is True:
                return
            if "failed" in message:
                raise Refused(str(message["failed"]))
            if "part" in message:
                of, group, length = map(int, message["part"])
                if of != version or not 0 <= group < len(self.metas) or group in seen:
                    raise _wire.WireError(f"a part of version {of} and group {group}, which is not to come")
                seen.add(group)
                yield group, channel.receive_data(length)
            elif message.get("wait") is not True:
                raise _wire.WireError("a message between deltas is invalid")

    def stage(self, update: Update, rows: dict[int, list[Any]]) -> None:
        """Check the deltas of some groups, each in order."""
        for i, row in sorted(rows.items()):
            with _named(f"the tensors from {self.metas[i][0].name!r} on"):
                if self.encoding == _parts.SMALL:
                    update.deltas.append(_parts.from_small(self.mirror[i], row, self._threads))
                    continue
                for data in row:
                    update.patches += _parts.from_replace(data, self.metas[i], self._to)

    # ---- from a log

    def _from_log(self, folder: str, source: Source, check: Callable[[list[Meta]], None], step: Step) -> Update:
        if self.encoding != _parts.SMALL:
            raise Refused("a log leads from state to state: pass encoding='small' with the url of a log")
        update = Update(source.run, source.version)
        if self._log is None or self._log.folder != folder:
            self._log = DeltaLog(folder)
        with step.stage("verify"):
            found, number = self._loaded(self._log, "" if source.whole else source.run)
        if number < source.version:
            raise Refused(f"{folder} leads to state {number}, not to {source.version}: is the copy complete?")
        update.version = number
        if number == self.version and source.run == self.run and not source.whole:
            return update
        update.whole = [found]
        update.metas = [[_parts.Held(name, x).meta for name, x in found.items()]]
        check(update.metas[0])
        step.bytes = sum(s.delta_bytes for s in self._log.states() if s.number > max(self.version, 0))
        return update

    def _loaded(self, log: DeltaLog, run: str) -> tuple[dict[str, Any], int]:
        load: Callable[..., tuple[dict[str, Any], int]] = log.load
        if self.mirror and run == self.run:
            try:
                return load(self.mirror[0], self.version, to=self._to, threads=self._threads)
            except (Error, OSError, ValueError):
                pass  # compacted since, or another log: read the whole state
        return load(to=self._to, threads=self._threads)

    # ---- checked updates

    def switch(self, update: Update) -> Callable[[], None]:
        """Adopt the weights of an update, and return a function that undoes it until commit()."""
        before = (self.run, self.version, self.metas, self.mirror)
        with ExitStack() as back:
            for delta in update.deltas:
                delta.switch()
                back.callback(delta.undo)
            if update.metas is not None:
                self.metas = update.metas
                self._diverged = False
                self.mirror = (update.whole or []) if self.encoding == _parts.SMALL else []
            self.run, self.version = update.run, update.version
            undo = back.pop_all()

        def go_back() -> None:
            undo.close()
            self.run, self.version, self.metas, self.mirror = before

        return go_back

    def commit(self, update: Update) -> None:
        for delta in update.deltas:
            delta.commit()

    def broken(self) -> None:
        """Note that the model's weights may differ from the mirror."""

    def close(self) -> None:
        """Free the memory that other processes can see."""


class _named:
    """Add tensor names to the library's errors."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        if isinstance(error, (Error, ValueError, TypeError, MemoryError)):
            words = re.sub(r"/proc/self/fd/\d+", "the delta", str(error))
            raise Refused(f"{self._what}: {words}") from error


def _metas(groups: Any) -> list[list[Meta]]:
    found = [[Meta(str(name), str(dtype), tuple(map(int, shape))) for name, dtype, shape in g] for g in groups]
    for meta in (m for group in found for m in group):
        if any(n < 0 for n in meta.shape):
            raise _wire.WireError(f"tensor {meta.name!r} has the shape {meta.shape}")
        named(meta.dtype)
    if not all(found):
        raise _wire.WireError("a group without tensors")
    return found


def report(source: Source, server: str, words: str) -> None:
    """Report the error to the trainer, if possible."""
    address = _wire.parsed(source.url)
    if address.scheme == _wire.LOG:
        return
    with _wire.connect(address, source.token, source.fingerprint) as channel:
        channel.say({"ticket": source.ticket, "server": server, "failed": words})
        channel.hear()
