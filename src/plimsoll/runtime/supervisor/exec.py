"""Processes beside a container: probes, hooks, `kubectl exec`. They join its cgroups and all its namespaces.

Their streams are pipes of the agent, or a terminal whose other side the agent gets: no data passes through the
supervisor. Each is a session of its own; when it ends, the rest of the session is killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

from plimsoll.linux import namespaces
from plimsoll.runtime.supervisor import child, spawn
from plimsoll.runtime.supervisor.containers import Containers, joined
from plimsoll.runtime.supervisor.loop import EventLoop, Timer
from plimsoll.runtime.supervisor.plan import plan_from
from plimsoll.runtime.supervisor.settings import Settings
from plimsoll.runtime.supervisor.spawn import ChildProcess, Failure


class Run:
    """`on_end` gets the exit code, and whether it was killed by its timeout."""

    __slots__ = ("child", "number", "on_end", "owner", "timed_out", "timer")

    def __init__(self, number: int, owner: object, on_end: Callable[[int, bool], None]) -> None:
        self.number, self.owner, self.on_end = number, owner, on_end
        self.child: ChildProcess | None = None
        self.timer: Timer | None = None
        self.timed_out = False


class Runs:
    def __init__(self, loop: EventLoop, settings: Settings, containers: Containers, start: spawn.Spawner) -> None:
        self._loop, self._settings, self._containers, self._spawn = loop, settings, containers, start
        self._by_pid: dict[int, Run] = {}

    def start(
        self,
        run: Run,
        container_id: str,
        argv: Sequence[str],
        *,
        tty: bool,
        timeout_s: float | None,
        streams: child.Streams,
        cgroups: Sequence[int],
        on_start: Callable[[Failure | None, int], None],
    ) -> None:
        """`on_start` gets the terminal's other side (−1 without one), which is closed here."""
        container = self._containers.running(container_id)
        plan = plan_from(json.loads(container.plan))._replace(argv=tuple(argv), tty=tty)
        isolated = self._settings.isolation
        join = joined(container) if isolated else ()
        pids = namespaces.open_namespace(namespaces.PID, container.pid) if isolated else spawn.OUR_PIDS
        users = -1
        if isolated and self._containers.first_user(container):
            users = namespaces.open_namespace(namespaces.USER, container.pid)

        def ready(failure: Failure | None) -> None:
            on_start(failure, run.child.terminal if run.child is not None else -1)
            if run.child is not None:
                run.child.close_terminal()

        try:
            place = child.ChildPlacement(tuple(cgroups), join, None, files=self._settings.files)
            place = place._replace(users=users, first_user=self._containers.first_user(container))
            run.child = self._spawn(plan, place, streams, ready, pids)
        finally:
            if users >= 0:
                os.close(users)
            for fd, _ in join:
                os.close(fd)
            if pids >= 0:
                os.close(pids)
        self._by_pid[run.child.pid] = run
        if timeout_s is not None:
            run.timer = self._loop.after(timeout_s, lambda: self._time_is_over(run))

    def kill(self, owner: object, number: int | None = None) -> None:
        """One run of this owner, or all."""
        for pid, run in self._by_pid.items():
            if run.owner is owner and number in (None, run.number):
                spawn.kill_session(pid)

    def child_ended(self, pid: int, status: int) -> bool:
        run = self._by_pid.pop(pid, None)
        if run is None:
            return False
        if run.timer is not None:
            run.timer.cancel()
        if run.child is not None:
            run.child.listen()
            failed = run.child.failure
            run.child.close_terminal()
            run.on_end(failed.code if failed else spawn.exit_code(status), run.timed_out)
        return True

    def _time_is_over(self, run: Run) -> None:
        run.timed_out = True
        if run.child is not None:
            spawn.kill_session(run.child.pid)
