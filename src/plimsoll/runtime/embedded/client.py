"""The agent's client of the supervisor: one connection, kept alive, and a copy of the supervisor's state.

The supervisor sends every change before it answers the call that made it, so `seen` is answered from the copy, at no
cost and never older than the last answer. When the connection is lost, pending calls fail and it is made again; a
supervisor that is not running is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.aio import ExponentialBackoff
from plimsoll.runtime.embedded.connection import LOST, ExitWatcher, SupervisorConnection, reached, start_supervisor
from plimsoll.runtime.interface import ObservedContainer, ObservedSandbox, RuntimeCallError, RuntimeSnapshot
from plimsoll.runtime.supervisor import wire
from plimsoll.runtime.supervisor.settings import Settings

log = logging.getLogger(__name__)

_CONNECT_PATIENCE_S = 10.0
_SLOWEST_RETRY_S = 2.0


class SupervisorClient:
    def __init__(
        self,
        state: Path,
        hidden: Sequence[Path],
        log_limits: tuple[int, int],
        open_own_cgroup: Callable[[], Sequence[int]] | None,
    ) -> None:
        self._state, self._log_limits = Path(os.path.realpath(state)), log_limits
        self._hidden = tuple(Path(os.path.abspath(path)) for path in hidden)
        self._open_own_cgroup = open_own_cgroup
        self.limitations: tuple[str, ...] = ()
        self.differences: tuple[str, ...] = ()  # how the running supervisor differs from what this agent would start
        self.isolation = False
        self.supervisor_pid = 0
        self._sandboxes: dict[str, ObservedSandbox] = {}
        self._containers: dict[str, ObservedContainer] = {}
        self._cgroups: dict[str, str] = {}  # container id → its cgroup
        self._snapshot: RuntimeSnapshot | None = None
        self._watchers: list[ExitWatcher] = []
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[wire.Message, list[int]]]] = {}
        self._ends: dict[int, asyncio.Future[tuple[int, bool]]] = {}
        self._connection: SupervisorConnection | None = None
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._closing = self._as_found = False

    async def open(self, *, as_found: bool = False) -> None:
        """`as_found`: use a running supervisor whatever settings it has, to look at it or to end it."""
        if self._keeper is not None:
            return
        self._as_found = as_found
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._closing = False
        while True:
            try:
                await self._connect()
                break
            except RuntimeCallError as error:
                if error.reason != LOST:  # a supervisor that was just ending had accepted the call
                    raise
        self._keeper = asyncio.create_task(self._keep_connected(), name="embedded runtime")

    async def close(self) -> None:
        self._closing = True
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        self._drop()
        for watcher in self._watchers:
            watcher.end()

    async def shutdown(self) -> None:
        """Kill every container, end the supervisor and close the connection."""
        self._closing = True
        try:
            await self._call("shutdown")
        except RuntimeCallError:
            pass  # it ended before it could answer
        await self.close()

    async def _keep_connected(self) -> None:
        while True:
            connection = self._connection
            if connection is not None:
                await connection.lost.wait()
                self._drop()
            if self._closing:
                return
            backoff = ExponentialBackoff(0.05, _SLOWEST_RETRY_S)
            while True:
                try:
                    await self._connect()
                    break
                except RuntimeCallError:
                    await asyncio.sleep(backoff.next_s())

    async def _connect(self) -> None:
        """Connect to the supervisor, starting it if necessary, and copy its state."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CONNECT_PATIENCE_S
        backoff, started = ExponentialBackoff(0.002, 0.1), False
        while (connected := reached(self._state)) is None:
            if not started:
                started = await asyncio.to_thread(self._start)  # starts a program, which would block the loop
            if loop.time() > deadline:
                raise RuntimeCallError("open", f"no supervisor answers; see {self._state / 'supervisor.log'}")
            await asyncio.sleep(backoff.next_s())
        self._connection = SupervisorConnection(connected, self._received, self._fail_waiting)
        try:
            async with asyncio.timeout(_CONNECT_PATIENCE_S):
                hello, _ = await self._ask(self._connection, {"call": "hello", "follow": True}, ())
        except TimeoutError:
            self._drop()
            raise RuntimeCallError("open", "the supervisor does not answer") from None
        except RuntimeCallError:
            self._drop()
            raise
        if hello["protocol"] != wire.PROTOCOL:
            self._drop()
            raise RuntimeCallError(
                "open", "the supervisor is of another version of Plimsoll: delete its pods, then end it"
            )
        self.differences = self._differences(hello)
        if self.differences and not self._as_found and not hello["sandboxes"] and not hello["containers"]:
            await self._replace(self._connection)
            await self._connect()
            return
        self.isolation, self.limitations = hello["isolation"], tuple(hello["limitations"])
        self.supervisor_pid = hello["pid"]
        self._sandboxes, self._containers, self._cgroups = {}, {}, {}
        for record in hello["sandboxes"]:
            self._take_sandbox(record)
        for record in hello["containers"]:
            self._take_container(record)
        self._connected.set()
        self._emit("")

    def _differences(self, hello: wire.Message) -> tuple[str, ...]:
        hidden = tuple(dict.fromkeys([str(self._state), *map(str, self._hidden)]))
        wanted = Settings(
            str(self._state), secret=hidden, log_max_bytes=self._log_limits[0], log_max_files=self._log_limits[1]
        ).choices()
        running = hello.get("settings") or {}
        return tuple(name for name, value in wanted.items() if running.get(name) != value)

    async def _replace(self, connection: SupervisorConnection) -> None:
        """End a supervisor without pods, so that the next one has the current settings."""
        log.info("replacing the supervisor, which was started with other settings: %s", ", ".join(self.differences))
        try:
            await self._ask(connection, {"call": "shutdown"}, ())
            async with asyncio.timeout(_CONNECT_PATIENCE_S):
                await connection.lost.wait()
        except (RuntimeCallError, TimeoutError):
            pass  # it ended before it could answer; if it has not, it is found again
        self._drop()

    def _start(self) -> bool:
        own = tuple(self._open_own_cgroup()) if self._open_own_cgroup is not None else ()
        try:
            return start_supervisor(self._state, self._hidden, self._log_limits, own)
        finally:
            wire.close_fds(own)

    def _drop(self) -> None:
        """Drop the connection and fail what waits for it."""
        self._connected.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _fail_waiting(self) -> None:
        answers, self._answers = self._answers, {}
        ends, self._ends = self._ends, {}
        waiting: list[asyncio.Future[Any]] = [*answers.values(), *ends.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(RuntimeCallError("embedded runtime", LOST))
                future.exception()  # there may be no waiter

    def _received(self, message: wire.Message, fds: list[int]) -> None:
        if "id" in message:
            waiting = self._answers.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result((message, fds))
                return
        elif "container" in message:
            self._take_container(message["container"])
            self._emit(message["container"]["pod_uid"])
        elif "sandbox" in message:
            self._take_sandbox(message["sandbox"])
            self._emit(message["sandbox"]["pod_uid"])
        elif "removed" in message:
            self._snapshot = None
            for table in (self._sandboxes, self._containers, self._cgroups):
                table.pop(message["removed"], None)
            self._emit(message["pod_uid"])
        elif "ended" in message:
            ending = self._ends.pop(message["ended"], None)
            if ending is not None and not ending.done():
                ending.set_result((message["code"], message["timed_out"]))
        wire.close_fds(fds)

    def _take_sandbox(self, record: dict[str, Any]) -> None:
        self._snapshot = None
        self._sandboxes[record["id"]] = msgspec.convert(record, ObservedSandbox)

    def _take_container(self, record: dict[str, Any]) -> None:
        self._snapshot = None
        self._cgroups[record["id"]] = record.pop("cgroup", "")
        self._containers[record["id"]] = msgspec.convert(record, ObservedContainer)

    async def _ask(
        self, connection: SupervisorConnection, message: wire.Message, fds: Sequence[int]
    ) -> tuple[wire.Message, list[int]]:
        number = next(self._numbers)
        waiting: asyncio.Future[tuple[wire.Message, list[int]]] = asyncio.get_running_loop().create_future()
        self._answers[number] = waiting
        try:
            connection.send({**message, "id": number}, fds)
            answer, with_it = await waiting
        finally:
            self._answers.pop(number, None)
        if "error" in answer:
            wire.close_fds(with_it)
            raise RuntimeCallError(message["call"], answer["error"])
        return answer["result"], with_it

    async def _call(self, call: str, fds: Sequence[int] = (), /, **arguments: object) -> wire.Message:
        answer, with_it = await self._call_for_fds(call, fds, **arguments)
        wire.close_fds(with_it)
        return answer

    async def _call_for_fds(
        self, call: str, fds: Sequence[int] = (), /, **arguments: object
    ) -> tuple[wire.Message, list[int]]:
        return await self._ask(await self._reachable(call), {"call": call, **arguments}, fds)

    async def _reachable(self, call: str) -> SupervisorConnection:
        if self._keeper is None:
            raise RuntimeCallError(call, "the runtime is not open")
        if self._connection is not None and self._connected.is_set():
            return self._connection
        try:
            async with asyncio.timeout(_CONNECT_PATIENCE_S):
                await self._connected.wait()
        except TimeoutError:
            raise RuntimeCallError(call, "the supervisor does not answer") from None
        if self._connection is None:
            raise RuntimeCallError(call, LOST)
        return self._connection

    async def seen(self) -> RuntimeSnapshot:
        await self._reachable("seen")
        if self._snapshot is None:
            self._snapshot = RuntimeSnapshot(tuple(self._sandboxes.values()), tuple(self._containers.values()))
        return self._snapshot

    async def changes(self) -> AsyncIterator[str]:
        watcher = ExitWatcher()
        self._watchers.append(watcher)
        try:
            while (uids := await watcher.next()) is not None:
                for uid in uids:
                    yield uid
        finally:
            self._watchers.remove(watcher)

    def _emit(self, pod_uid: str) -> None:
        for watcher in self._watchers:
            watcher.add(pod_uid)
