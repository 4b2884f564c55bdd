"""Which sandboxes and containers there are. A change is first here, then in the journal, then told to those who follow.

An exit is told only when the journal is on disk: once per turn of the loop, for all that ended in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from plimsoll.runtime.host import spawn, wire
from plimsoll.runtime.host.journal import Journal
from plimsoll.runtime.host.loop import Loop
from plimsoll.runtime.host.table import KILLED_CODE, UNKNOWN_MESSAGE, UNKNOWN_REASON, Container, Record, Sandbox


class Register:
    def __init__(self, loop: Loop, journal: Journal, tell: Callable[[wire.Message], None]) -> None:
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, Container] = {}
        self._loop, self._journal, self._tell = loop, journal, tell
        self._after_sync: list[Callable[[], None]] = []
        self._boot = boot_id()
        self._behind = False  # the journal misses something: the disk was full

    def recover(self) -> None:
        """What a supervisor before us has left: its containers have ended with it, and are made to."""
        for record in self._journal.read().values():
            if record.get("kind") == "sandbox":
                self.sandboxes[record["id"]] = Sandbox(record | {"ready": False})
            elif record.get("kind") == "container":
                container = Container(record)
                if record.get("boot") == self._boot:
                    kill_left_behind(container.pid, container.start_ticks)
                if container.phase == "created":  # it never ran, as far as anybody was told: the agent makes it again
                    continue
                if container.phase == "running":
                    container.phase, container.exit_code, container.pid = "exited", KILLED_CODE, 0
                    container.reason, container.message = UNKNOWN_REASON, UNKNOWN_MESSAGE
                    container.finished_s = time.time()
                self.containers[container.id] = container
        self._journal.begin(self._everything())

    def of_sandbox(self, sandbox_id: str) -> list[Container]:
        return [container for container in self.containers.values() if container.sandbox_id == sandbox_id]

    def changed(self, what: Sandbox | Container, *, durable: bool = False) -> None:
        self._write(self._journal_record(what), durable=durable)
        kind = "sandbox" if isinstance(what, Sandbox) else "container"
        news = {kind: what.seen()}
        if durable:
            self.when_synced(lambda: self._tell(news))
        else:
            self._tell(news)

    def remember(self, what: Container) -> None:
        """For the next supervisor only: a process was started, and is nobody's news yet."""
        self._write(self._journal_record(what))

    def forget(self, what: Sandbox | Container) -> None:
        if isinstance(what, Sandbox):
            self.sandboxes.pop(what.id, None)
        else:
            self.containers.pop(what.id, None)
        self._write({"id": what.id, "gone": True})
        self._tell({"removed": what.id, "pod_uid": what.pod_uid})

    def when_synced(self, action: Callable[[], None]) -> None:
        if not self._after_sync:
            self._loop.soon(self._sync)
        self._after_sync.append(action)

    def _write(self, record: Record, *, durable: bool = False) -> None:
        """A full disk must not end the containers: what could not be written is written anew, with all the rest."""
        try:
            if self._behind or self._journal.is_stale(len(self.sandboxes) + len(self.containers)):
                self._journal.begin(self._everything())
                self._behind = False
            else:
                self._journal.append(record, durable=durable)
        except OSError:
            self._behind = True

    def _sync(self) -> None:
        try:
            self._journal.sync()
        except OSError:
            self._behind = True
        waiting, self._after_sync = self._after_sync, []
        for action in waiting:
            action()

    def _everything(self) -> list[Record]:
        there: list[Sandbox | Container] = [*self.sandboxes.values(), *self.containers.values()]
        return [self._journal_record(what) for what in there]

    def _journal_record(self, what: Sandbox | Container) -> Record:
        kind = "sandbox" if isinstance(what, Sandbox) else "container"
        return what.record() | {"kind": kind, "boot": self._boot}


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def kill_left_behind(pid: int, ticks: int) -> None:
    """A container that outlived its supervisor (it can undo PR_SET_PDEATHSIG): its PID 1 takes all of it along."""
    if pid <= 0 or not ticks:
        return
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if spawn.start_ticks(pid) == ticks:  # the pidfd holds this very process, whoever has the pid later
            spawn.kill_held(held)
    finally:
        os.close(held)
