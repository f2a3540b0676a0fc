# SPDX-License-Identifier: BSD-3-Clause
"""The weights of a server with several workers: one mirror on each host, and one worker that gets its updates."""
from __future__ import annotations

from typing import Any, Callable, Optional

from . import _parts, _shared
from ._parts import Meta
from ._replica import Refused, Replica, Source, Update
from ._stats import Step


class Following(Update):
    """An update that the leader has checked."""

    def __init__(self, source: Source, changes: bool) -> None:
        super().__init__(source.run, source.version)
        self._changes = changes

    @property
    def changes(self) -> bool:
        return self._changes

    @property
    def kind(self) -> str:
        return "by another worker"


class SharedReplica(Replica):
    """A Replica with the encoding "small". After an error while loading, all workers undo the update together, when the
    trainer aborts it.
    """

    shared = True

    def __init__(self, to: str, threads: int, folder: str) -> None:
        super().__init__(_parts.SMALL, to, threads)
        self._board = _shared.Board(folder)
        self._ticket = ""
        self._memory: Optional[_shared.Memory] = None  # the leader's
        self._made: Optional[_shared.Memory] = None  # of the checked update
        self._stale: Optional[_shared.Memory] = None  # what commit() closes
        self._place: Optional[list[int]] = None  # of the memory that a follower has mapped

    @property
    def leads(self) -> bool:
        return self._board.leads

    def broken(self) -> None:
        """Note that this worker's weights may differ from the mirror."""
        self._board.mark()

    def fetch(self, source: Source, check: Callable[[list[Meta]], None], step: Step) -> Update:
        self._ticket = source.ticket
        if not self._board.leads:
            try:
                with step.stage("wait"):
                    state = self._board.wait(source.ticket, "staged", "failed")
            except _shared.LeaderError:
                self.run = ""  # the new leader needs the whole state
                raise
            if state["phase"] == "failed":
                raise Refused(f"the worker that gets updates for this host: {state['words']}")
            return Following(source, bool(state["changes"]))
        self._drop_made()
        try:
            if self._board.unmark():
                self.forget()
            update = super().fetch(source, check, step)
            if update.whole is not None and self._made is None and update.metas is not None:
                update.whole = [self._kept(update, i, group) for i, group in enumerate(update.whole)]
        except Exception as e:
            self._board.write(ticket=source.ticket, phase="failed", words=str(e))
            raise
        self._board.write(ticket=source.ticket, phase="staged", changes=update.changes)
        return update

    def _drop_made(self) -> None:
        """Free the memory of an update that this worker did not switch to."""
        made, self._made = self._made, None
        if made is not None:
            made.close()

    def _kept(self, update: Update, group: int, arrays: dict[str, Any]) -> dict[str, Any]:
        assert update.metas is not None
        if self._made is None:
            self._made = _shared.Memory([meta for metas in update.metas for meta in metas])
        views = self._made.arrays(self._to)
        _shared.fill(views, arrays)
        return {name: views[name] for name in arrays}

    def switch(self, update: Update) -> Callable[[], None]:
        return self._follow(update) if isinstance(update, Following) else self._lead(update)

    def _lead(self, update: Update) -> Callable[[], None]:
        ticket, made, before = self._ticket, self._made, self._memory
        try:
            back = super().switch(update)
        except Exception as e:
            self._drop_made()
            self._board.write(ticket=ticket, phase="failed", words=str(e))
            raise
        self._made = None
        self._have(made or before, ticket, "done")
        self._stale = before if made is not None else None

        def go_back() -> None:
            back()
            self._have(before, ticket, "back")
            self._stale = made

        return go_back

    def _have(self, memory: Optional[_shared.Memory], ticket: str, phase: str) -> None:
        self._memory = memory
        place, table = (None, []) if memory is None else (memory.place, memory.table)
        self._board.write(ticket=ticket, phase=phase, place=place, table=table)

    def _follow(self, update: Update) -> Callable[[], None]:
        ticket, before = self._ticket, (self.run, self.version)
        state = self._board.wait(ticket, "done", "failed")
        if state["phase"] == "failed":
            raise Refused(f"the worker that gets updates for this host: {state['words']}")
        self._map(state)
        self.run, self.version = update.run, update.version

        def go_back() -> None:
            self._map(self._board.wait(ticket, "back"))
            self.run, self.version = before

        return go_back

    def _map(self, state: dict[str, Any]) -> None:
        if state["place"] != self._place:
            place = state["place"]
            self.mirror = [] if place is None else [_shared.attach(place, state["table"], self._to)]
            self._place = place

    def commit(self, update: Update) -> None:
        super().commit(update)
        if self._stale is not None:
            self._stale.close()
            self._stale = None

    def close(self) -> None:
        self._drop_made()
        for memory in (self._memory, self._stale):
            if memory is not None:
                memory.close()
        self._memory = self._stale = None
        self.forget()
        self._board.close()
