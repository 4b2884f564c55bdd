"""What there is, in few calls: two lists, and a status only for what is new or has changed.

Lists are cheap and say id and state; of each entry only these are read, for the rest never changes. A status costs the
runtime more and is asked once per state. An exit may be told before the OOM kill that caused it, so a container that
was just killed is asked again until its story is settled.

Whoever wants to know gets an answer that was asked for after he came; those who come while one is under way share the
next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from plimsoll.codec.protobuf.structs import decode
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.answers import PHASES, container_seen, inside, never_began, sandbox_seen
from plimsoll.runtime.cri.calls import (
    CONTAINER_STATUS,
    LIST_CONTAINERS,
    LIST_SANDBOXES,
    SANDBOX_STATUS,
    CallRefusedError,
    CriClient,
)
from plimsoll.runtime.cri.grpc import NOT_FOUND
from plimsoll.runtime.interface import ObservedContainer, ObservedSandbox, RuntimeSnapshot

T = TypeVar("T")
AT_ONCE = 8  # statuses asked in parallel
KILLED = 137
SETTLED_S = 2.0  # after that the reason of a kill is what it is


class _Sandbox(msgspec.Struct, frozen=True):
    seen: ObservedSandbox
    pid: int


class _Container(msgspec.Struct, frozen=True):
    seen: ObservedContainer
    listed: m.Container
    settled_s: float  # when what is seen is final, by the loop's clock
    began: bool = True  # else it is as if it were not there


class Look:
    def __init__(self, client: CriClient) -> None:
        self._client = client
        self._sandboxes: dict[str, _Sandbox] = {}
        self._containers: dict[str, _Container] = {}
        self._looking = asyncio.Lock()
        self._shared: asyncio.Future[RuntimeSnapshot] | None = None
        self._few = asyncio.Semaphore(AT_ONCE)

    async def now(self) -> RuntimeSnapshot:
        if self._shared is None:
            shared = self._shared = asyncio.get_running_loop().create_future()
            try:
                async with self._looking:
                    self._shared = None  # whoever comes from here on wants a newer one
                    seen = await self._look()
            except BaseException as error:
                if self._shared is shared:
                    self._shared = None
                if isinstance(error, CallRefusedError):
                    shared.set_exception(error)
                    shared.exception()  # nobody else may have waited for it
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
        return await self.now()

    def pids(self) -> dict[str, int]:
        """Of everything that runs, by id; 0 where the runtime does not tell."""
        sandboxes = {each: found.pid for each, found in self._sandboxes.items() if found.seen.ready}
        running = {each: found.seen.pid for each, found in self._containers.items() if found.seen.phase == "running"}
        return sandboxes | running

    def is_created(self, container_id: str) -> bool:
        """Whether it was last seen to be there and not started, or was not seen yet."""
        found = self._containers.get(container_id)
        return found is None or found.seen.phase == "created"

    def unreachable_pid(self, sandbox_id: str) -> int:
        """Of a sandbox without an address of its own, who is in its network; 0 where nobody is, or it has one."""
        found = self._sandboxes.get(sandbox_id)
        return found.pid if found is not None and found.seen.ready and not found.seen.ip else 0

    async def _look(self) -> RuntimeSnapshot:
        sandboxes, containers = await asyncio.gather(
            self._client.ask(LIST_SANDBOXES, m.ListPodSandboxRequest()),
            self._client.ask(LIST_CONTAINERS, m.ListContainersRequest()),
        )
        found_sandboxes, found_containers = await asyncio.gather(
            _known_or_asked(sandboxes.items, self._known_sandbox, self._sandbox),
            _known_or_asked(containers.containers, self._known_container, self._container),
        )
        self._sandboxes = {each.seen.id: each for each in found_sandboxes if each is not None}
        self._containers = {each.seen.id: each for each in found_containers if each is not None}
        return RuntimeSnapshot(
            tuple(sorted((each.seen for each in self._sandboxes.values()), key=lambda each: (each.created_s, each.id))),
            tuple(
                sorted(
                    (each.seen for each in self._containers.values() if each.began),
                    key=lambda each: (each.created_s, each.id),
                )
            ),
        )

    def _known_sandbox(self, data: bytes) -> _Sandbox | None:
        state = decode(m.PodSandboxState, data)
        known = self._sandboxes.get(state.id)
        return known if known is not None and known.seen.ready == (state.state == m.SANDBOX_READY) else None

    async def _sandbox(self, data: bytes) -> _Sandbox | None:
        request = m.PodSandboxStatusRequest(pod_sandbox_id=decode(m.PodSandboxState, data).id, verbose=True)
        try:
            async with self._few:
                status = await self._client.ask(SANDBOX_STATUS, request)
        except CallRefusedError as refused:
            if refused.code == NOT_FOUND:  # removed since it was listed
                return None
            raise
        return _Sandbox(sandbox_seen(decode(m.PodSandbox, data), status), inside(status.info).pid)

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
        try:
            async with self._few:
                answer = await self._client.ask(CONTAINER_STATUS, request)
        except CallRefusedError as refused:
            if refused.code == NOT_FOUND:
                return None
            raise
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
    """Those that nothing is known of are asked about side by side; most are known."""
    found = [known(data) for data in items]
    missing = [at for at, each in enumerate(found) if each is None]
    for at, each in zip(missing, await asyncio.gather(*(ask(items[at]) for at in missing)), strict=True):
        found[at] = each
    return found


def _cancelled_ourselves() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
