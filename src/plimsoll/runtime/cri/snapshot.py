"""The runtime's state in few calls: two lists, and a status only for what is new or has changed.

Lists are cheap and have id and state; the rest of an entry never changes. A status costs the runtime more and is read
once per state. An exit may be reported before the OOM kill that caused it, so the status of a container that was just
killed is read again until its reason is final.

A caller always gets a snapshot that was read after its call; callers that arrive during a read share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from plimsoll.codec.protobuf.structs import decode
from plimsoll.net.grpc.status import NOT_FOUND
from plimsoll.runtime.cri import calls
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.answers import PHASES, container_seen, inside, never_began, sandbox_seen
from plimsoll.runtime.interface import ObservedContainer, ObservedSandbox, RuntimeSnapshot

T = TypeVar("T")
A = TypeVar("A", bound=msgspec.Struct)
AT_ONCE = 8  # statuses read in parallel
KILLED = 137
SETTLED_S = 2.0  # after that the reason of a kill is final


class _Sandbox(msgspec.Struct, frozen=True):
    seen: ObservedSandbox
    pid: int


class _Container(msgspec.Struct, frozen=True):
    seen: ObservedContainer
    listed: m.Container
    settled_s: float  # when what is seen is final, by the loop's clock
    began: bool = True  # else it counts as absent


class SnapshotReader:
    def __init__(self, client: calls.CriClient) -> None:
        self._client = client
        self._sandboxes: dict[str, _Sandbox] = {}
        self._containers: dict[str, _Container] = {}
        self._reading = asyncio.Lock()
        self._shared: asyncio.Future[RuntimeSnapshot] | None = None
        self._few = asyncio.Semaphore(AT_ONCE)

    async def read(self) -> RuntimeSnapshot:
        if self._shared is None:
            shared = self._shared = asyncio.get_running_loop().create_future()
            try:
                async with self._reading:
                    self._shared = None  # later callers get a newer one
                    seen = await self._read()
            except BaseException as error:
                if self._shared is shared:
                    self._shared = None
                if isinstance(error, calls.CallRefusedError):
                    shared.set_exception(error)
                    shared.exception()  # there may be no other waiter
                else:
                    shared.cancel()
                raise
            shared.set_result(seen)
            return seen
        while (shared := self._shared) is not None:
            try:
                return await asyncio.shield(shared)
            except asyncio.CancelledError:
                if not shared.cancelled() or _cancelled_ourselves():
                    raise
        return await self.read()

    def pids(self) -> dict[str, int]:
        """Of everything that runs, by id; 0 where the runtime does not report it."""
        sandboxes = {name: sandbox.pid for name, sandbox in self._sandboxes.items() if sandbox.seen.ready}
        containers = ((name, container.seen) for name, container in self._containers.items())
        running = {name: state.pid for name, state in containers if state.phase == "running"}
        return sandboxes | running

    def is_created(self, container_id: str) -> bool:
        """Whether it was last read as created, or was not read yet."""
        container = self._containers.get(container_id)
        return container is None or container.seen.phase == "created"

    def unreachable_pid(self, sandbox_id: str) -> int:
        """A process in the network of a sandbox without an address; 0 where there is none, or it has an address."""
        sandbox = self._sandboxes.get(sandbox_id)
        return 0 if sandbox is None or sandbox.seen.ip else self.sandbox_pid(sandbox_id)

    def sandbox_pid(self, sandbox_id: str) -> int:
        """A process in the sandbox's network; 0 where none is known."""
        sandbox = self._sandboxes.get(sandbox_id)
        return sandbox.pid if sandbox is not None and sandbox.seen.ready else 0

    async def _read(self) -> RuntimeSnapshot:
        sandboxes, containers = await asyncio.gather(
            self._client.ask(calls.LIST_SANDBOXES, m.ListPodSandboxRequest()),
            self._client.ask(calls.LIST_CONTAINERS, m.ListContainersRequest()),
        )
        read_sandboxes, read_containers = await asyncio.gather(
            _known_or_asked(sandboxes.items, self._known_sandbox, self._sandbox),
            _known_or_asked(containers.containers, self._known_container, self._container),
        )
        self._sandboxes = {sandbox.seen.id: sandbox for sandbox in read_sandboxes if sandbox is not None}
        self._containers = {container.seen.id: container for container in read_containers if container is not None}
        sandbox_states = [sandbox.seen for sandbox in self._sandboxes.values()]
        container_states = [container.seen for container in self._containers.values() if container.began]
        return RuntimeSnapshot(
            tuple(sorted(sandbox_states, key=lambda state: (state.created_s, state.id))),
            tuple(sorted(container_states, key=lambda state: (state.created_s, state.id))),
        )

    def _known_sandbox(self, data: bytes) -> _Sandbox | None:
        state = decode(m.PodSandboxState, data)
        known = self._sandboxes.get(state.id)
        return known if known is not None and known.seen.ready == (state.state == m.SANDBOX_READY) else None

    async def _sandbox(self, data: bytes) -> _Sandbox | None:
        request = m.PodSandboxStatusRequest(pod_sandbox_id=decode(m.PodSandboxState, data).id, verbose=True)
        status = await self._status(calls.SANDBOX_STATUS, request)
        if status is None:
            return None
        return _Sandbox(sandbox_seen(decode(m.PodSandbox, data), status), inside(status.info).pid)

    async def _status(self, call: calls.CriCall[A], request: msgspec.Struct) -> A | None:
        """None if it was removed since it was listed."""
        try:
            async with self._few:
                return await self._client.ask(call, request)
        except calls.CallRefusedError as refused:
            if refused.code == NOT_FOUND:
                return None
            raise

    def _known_container(self, data: bytes) -> _Container | None:
        state = decode(m.ContainerState, data)
        known = self._containers.get(state.id)
        if known is None or known.seen.phase != PHASES.get(state.state, "unknown"):
            return None
        return known if asyncio.get_running_loop().time() >= known.settled_s else None

    async def _container(self, data: bytes) -> _Container | None:
        state = decode(m.ContainerState, data)
        known = self._containers.get(state.id)
        now_s = asyncio.get_running_loop().time()
        same = known is not None and known.seen.phase == PHASES.get(state.state, "unknown")
        request = m.ContainerStatusRequest(container_id=state.id, verbose=state.state != m.EXITED)
        answer = await self._status(calls.CONTAINER_STATUS, request)
        if answer is None:
            return None
        listed = decode(m.Container, data) if known is None else known.listed
        seen = container_seen(listed, answer)
        began = answer.status is None or not never_began(answer.status)
        if seen.phase != "exited" or seen.exit_code != KILLED or seen.reason:
            settled_s = now_s
        elif same and known is not None:
            settled_s = known.settled_s
        else:
            settled_s = now_s + SETTLED_S
        return _Container(seen, listed, settled_s, began)


async def _known_or_asked(
    items: Sequence[bytes], known: Callable[[bytes], T | None], ask: Callable[[bytes], Awaitable[T | None]]
) -> list[T | None]:
    """Read the unknown ones in parallel; most are known."""
    results = [known(data) for data in items]
    missing = [at for at, result in enumerate(results) if result is None]
    for at, result in zip(missing, await asyncio.gather(*(ask(items[at]) for at in missing)), strict=True):
        results[at] = result
    return results


def _cancelled_ourselves() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
