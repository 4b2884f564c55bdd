"""The supervisor: the agents' connections, the calls by name, and what each child belongs to."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

from plimsoll.linux import namespaces
from plimsoll.runtime.supervisor import child, spawn, wire
from plimsoll.runtime.supervisor.connection import AgentConnection
from plimsoll.runtime.supervisor.containers import Containers, RequestError
from plimsoll.runtime.supervisor.exec import Run, Runs
from plimsoll.runtime.supervisor.journal import SupervisorJournal
from plimsoll.runtime.supervisor.log_writer import UnsafeLogPathError
from plimsoll.runtime.supervisor.loop import EventLoop
from plimsoll.runtime.supervisor.plan import LaunchPlan
from plimsoll.runtime.supervisor.sandboxes import Sandboxes
from plimsoll.runtime.supervisor.settings import Settings
from plimsoll.runtime.supervisor.spawn import ChildProcess, Failure
from plimsoll.runtime.supervisor.state import Register


class SupervisorCall:
    """One request; answered once. Its descriptors are closed when the handler returns: a child has its own copies."""

    __slots__ = ("connection", "fds", "message")

    def __init__(self, connection: AgentConnection, message: wire.Message, fds: list[int]) -> None:
        self.connection, self.message, self.fds = connection, message, fds

    def answer(self, result: wire.Message | None = None, fds: list[int] | None = None) -> None:
        self.connection.send({"id": self.message.get("id"), "result": result or {}}, fds or ())

    def refuse(self, why: str) -> None:
        self.connection.send({"id": self.message.get("id"), "error": why})

    def finish(self, why: str) -> None:
        if why:
            self.refuse(why)
        else:
            self.answer()


class Supervisor:
    def __init__(self, settings: Settings, journal: SupervisorJournal) -> None:
        self._settings = settings
        self.loop = EventLoop(self._child_ended)
        self._connections: list[AgentConnection] = []
        self._register = Register(self.loop, journal, self._emit)
        self._own_pids = namespaces.open_namespace(namespaces.PID) if settings.isolation else -1
        self._containers = Containers(self.loop, settings, self._register, self._spawn)
        self._sandboxes = Sandboxes(settings, self._register, self._spawn, self._containers.kill)
        self._containers.sandboxes = self._sandboxes
        self._runs = Runs(self.loop, settings, self._containers, self._spawn)
        self._calls: dict[str, Callable[[SupervisorCall], None]] = {
            name.removeprefix("_call_"): getattr(self, name) for name in dir(self) if name.startswith("_call_")
        }

    def begin(self, listening: socket.socket) -> None:
        self._register.recover()
        listening.setblocking(False)
        self.loop.watch(listening.fileno(), lambda: self._accept(listening))
        signal.signal(signal.SIGTERM, lambda *_: self.loop.soon(self.end))

    def end(self, done: Callable[[], None] | None = None) -> None:
        """Kill every container and, when all have ended, end the loop."""
        left = [sandbox.id for sandbox in self._register.sandboxes.values()]
        waiting = set(left)

        def check_stopped(sandbox_id: str) -> None:
            waiting.discard(sandbox_id)
            if not waiting:
                finish()

        def finish() -> None:
            if done is not None:
                done()
            self.loop.soon(self.loop.end)

        for sandbox_id in left:
            self._sandboxes.stop(sandbox_id, lambda which=sandbox_id: check_stopped(which))  # type: ignore[misc]
        if not left:
            finish()

    def _spawn(
        self,
        plan: LaunchPlan,
        place: child.ChildPlacement,
        streams: child.Streams,
        on_ready: Callable[[Failure | None], None],
        pids: int,
    ) -> ChildProcess:
        return spawn.spawn(self.loop, plan, place, streams, on_ready, pids=pids, own_pids=self._own_pids)

    def _child_ended(self, pid: int, status: int) -> None:
        """An unknown pid was an orphan of a container; it has been reaped already."""
        if not self._containers.child_ended(pid, status) and not self._runs.child_ended(pid, status):
            self._sandboxes.child_ended(pid)

    # -- connections

    def _accept(self, listening: socket.socket) -> None:
        try:
            connected, _ = listening.accept()
        except OSError:  # the peer is gone, or no descriptor is left
            return
        _, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (0, os.geteuid()):
            connected.close()
            return
        self._connections.append(AgentConnection(self.loop, connected, self._handle, self._closed))

    def _closed(self, connection: AgentConnection) -> None:
        self._connections.remove(connection)
        self._runs.kill(connection)

    def _emit(self, message: wire.Message) -> None:
        for connection in list(self._connections):
            if connection.follows:
                connection.send(message)

    def _handle(self, connection: AgentConnection, message: wire.Message, fds: list[int]) -> None:
        call = SupervisorCall(connection, message, fds)
        try:
            handler = self._calls.get(str(message.get("call")))
            if handler is None:
                raise RequestError(f"unknown call {message.get('call')!r}")
            handler(call)
        except (RequestError, OSError, UnsafeLogPathError) as problem:
            call.refuse(str(problem))
        except (KeyError, TypeError, ValueError) as problem:
            call.refuse(f"not understood ({type(problem).__name__}: {problem}): is the supervisor of another version?")
        finally:
            wire.close_fds(fds)

    # -- calls

    def _call_hello(self, call: SupervisorCall) -> None:
        call.connection.follows = bool(call.message.get("follow"))
        answer: dict[str, Any] = {
            "protocol": wire.PROTOCOL,
            "pid": os.getpid(),
            "isolation": self._settings.isolation,
            "limitations": self._settings.limitations,
            "settings": self._settings.choices(),
            "sandboxes": [sandbox.seen() for sandbox in self._register.sandboxes.values()],
            "containers": [container.seen() for container in self._register.containers.values()],
        }
        call.answer(answer)

    def _call_make_sandbox(self, call: SupervisorCall) -> None:
        self._sandboxes.make(call.message["sandbox"], call.finish)

    def _call_stop_sandbox(self, call: SupervisorCall) -> None:
        self._sandboxes.stop(call.message["sandbox"], call.answer)

    def _call_remove_sandbox(self, call: SupervisorCall) -> None:
        self._sandboxes.remove(call.message["sandbox"], call.answer)

    def _call_make_container(self, call: SupervisorCall) -> None:
        self._containers.make(call.message["container"], call.message["plan"])
        call.answer()

    def _call_start_container(self, call: SupervisorCall) -> None:
        self._containers.start(call.message["container"], call.fds, call.finish)

    def _call_stop_container(self, call: SupervisorCall) -> None:
        self._containers.stop(call.message["container"], float(call.message["grace_s"]), call.answer)

    def _call_remove_container(self, call: SupervisorCall) -> None:
        self._containers.remove(call.message["container"], call.answer)

    def _call_reopen_log(self, call: SupervisorCall) -> None:
        self._containers.reopen_log(call.message["container"])
        call.answer()

    def _call_run(self, call: SupervisorCall) -> None:
        """The first `streams` descriptors are stdin, stdout and stderr (0 with a terminal), the rest cgroups."""
        number, count = int(call.message["run"]), int(call.message["streams"])
        streams = child.Streams(*call.fds[:count])

        def started(failure: Failure | None, terminal: int) -> None:
            if failure is not None:
                call.refuse(failure.message)
            else:
                call.answer({}, [terminal] if terminal >= 0 else [])

        def ended(code: int, timed_out: bool) -> None:
            call.connection.send({"ended": number, "code": code, "timed_out": timed_out})

        self._runs.start(
            Run(number, call.connection, ended),
            call.message["container"],
            call.message["argv"],
            tty=bool(call.message.get("tty")),
            timeout_s=call.message.get("timeout_s"),
            streams=streams,
            cgroups=call.fds[count:],
            on_start=started,
        )

    def _call_kill_run(self, call: SupervisorCall) -> None:
        self._runs.kill(call.connection, int(call.message["run"]))
        call.answer()

    def _call_attach(self, call: SupervisorCall) -> None:
        """The descriptors are the pipes of stdout and stderr; the answer has the terminal or stdin, if there is one."""

        def give(entry: int, is_once: bool) -> None:
            call.answer({"stdin_once": is_once}, [entry] if entry >= 0 else [])

        outputs = dict(zip(("stdout", "stderr"), call.fds, strict=True))
        self._containers.attach(call.message["container"], outputs, give, stdin=bool(call.message["stdin"]))

    def _call_socket(self, call: SupervisorCall) -> None:
        sandbox = self._register.sandboxes.get(call.message["sandbox"])
        if sandbox is None or not sandbox.ready:
            raise RequestError("no such sandbox, or it was stopped")
        pod_socket = self._sandboxes.socket_in(sandbox, socket.AF_INET6 if call.message.get("ipv6") else socket.AF_INET)
        if pod_socket is None:
            call.answer()
            return
        with pod_socket:
            call.answer({}, [pod_socket.fileno()])

    def _call_shutdown(self, call: SupervisorCall) -> None:
        self.end(call.answer)
