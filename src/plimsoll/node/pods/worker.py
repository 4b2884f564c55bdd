"""One pod's worker: look, decide, do, report; again whenever something may have changed.

A turn goes on until there is nothing left to do, then its status is reported and the worker sleeps. It is woken by a
new document, by the runtime, by a probe and by time. Everything it does may have been done before by an agent that was
killed in the middle, so each turn begins with what is there, and no step minds being repeated.

A turn may take long: a stop has its grace, a pull its minutes. When the pod is to end sooner than the turn knows, the
turn is cancelled and the next one starts with what it has left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from plimsoll.codec.lean.runnable import status_document
from plimsoll.errors import PlimsollError
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.pods.container_start import Starter
from plimsoll.node.pods.observe import Observer
from plimsoll.node.pods.probes import PodProbes
from plimsoll.node.pods.start import PodStart, pod_ips
from plimsoll.node.pods.status import made_status
from plimsoll.node.pods.stop import PodEnd
from plimsoll.node.reporting.status_manager import StoredVersion
from plimsoll.node.resize.actuator import PodResize
from plimsoll.node.resize.queue import Resizes
from plimsoll.node.resources.pleg import PodParts
from plimsoll.rules.lifecycle.backoff import ERR_IMAGE_PULL, backoff_key
from plimsoll.rules.lifecycle.conditions import OWN_CONDITIONS, PASSING_CONDITIONS
from plimsoll.rules.lifecycle.environment import referenced_config_maps
from plimsoll.rules.lifecycle.events import deadline_exceeded, sync_failed
from plimsoll.rules.lifecycle.pod_actions import (
    after_sync,
    compute_pod_actions,
    pull_failed,
    start_failed,
    started,
    without_stale_probes,
)
from plimsoll.rules.lifecycle.termination import deadline_verdict, has_ended, is_ending, stops
from plimsoll.rules.lifecycle.volumes import VolumeError
from plimsoll.rules.model.objects import Pod, is_static
from plimsoll.rules.model.observed import ObservedPod, PodActions, Start, StartFailure, SyncState
from plimsoll.rules.model.pod_status import FAILED, RUNNING, SUCCEEDED, RunCondition, RunStatus
from plimsoll.rules.model.runnable import RunPod, container_named, containers_of
from plimsoll.rules.resize.allocation import Allocation, allocated_pod
from plimsoll.rules.resize.conditions import NO_RESIZE_CONDITIONS
from plimsoll.runtime.interface import RuntimeCallError

log = logging.getLogger(__name__)

RETRY_FIRST_S, RETRY_MOST_S = 1.0, 60.0
# What takes longer is worth a status of its own (ContainerCreating); what is usual with a runtime is not slow.
SLOW_START_S, SLOW_CRI_START_S, SLOW_STOP_S = 0.15, 0.5, 0.1


class PodWorker:
    def __init__(self, tools: Dependencies, resizes: Resizes, pod: RunPod, status: dict[str, Any], body: bytes) -> None:
        self._tools, self._resizes = tools, resizes
        self.pod, self.body, self.known_status = pod, body, status
        self.uid = pod.metadata.uid
        self.title = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self.status: RunStatus | None = None  # as computed last
        self._new_since_s = None if status.get("phase") == RUNNING else tools.clock()
        self.seen = ObservedPod()
        record = tools.checkpoint.get(self.uid)
        self._memory = SyncState(backoffs=record.backoffs, image_backoffs=record.image_backoffs)
        self._observer, self._starter = Observer(tools), Starter(tools)
        self._end = PodEnd(tools, self._starter)
        self._sizes = PodResize(tools, resizes, self.uid)
        self._start = PodStart(tools, self._starter, self._sizes, self.uid)
        self._parts: PodParts | None = None  # as looked at last
        self._made: tuple[RunPod, Allocation, Pod] | None = None
        self._probes: PodProbes | None = None
        self._wake = asyncio.Event()
        self._wake.set()
        self._turning: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._retry_s = RETRY_FIRST_S
        self._retries: dict[str, tuple[float, float]] = {}  # container → not before, next pause
        self._is_removed = self._is_gone = self._is_told = False
        self.released = asyncio.Event()  # nothing of it runs, and what it had is given back
        self.after: tuple[PodWorker, ...] = ()  # who is ended to make room for it

    @property
    def is_over(self) -> bool:
        """It runs nothing and never will again: its resources are free."""
        return has_ended(self.pod, self.status)

    def allocated_pod(self, allocation: Allocation) -> Pod:
        """The newest document with what was allocated; made once for each."""
        made = self._made
        if made is None or made[0] is not self.pod or made[1] is not allocation:
            made = self._made = (self.pod, allocation, allocated_pod(self.pod, allocation))
        return made[2]

    # --- what wakes it ---

    def wake(self) -> None:
        self._wake.set()

    def give(self, pod: RunPod, status: dict[str, Any], body: bytes) -> None:
        before, self.pod, self.known_status, self.body = self.pod, pod, status, body
        if _must_end_sooner(before, pod):
            self.interrupt()
        elif not _is_only_our_report(before, pod):
            self._wake.set()

    def remove(self) -> None:
        """The API does not have it any more."""
        self._is_removed = True
        if not self._is_ending():
            self.interrupt()
        self._wake.set()

    def interrupt(self) -> None:
        """Whatever is being done, something more urgent is to be done."""
        if self._turning is not None:
            self._turning.cancel()
        self._wake.set()

    async def run(self) -> None:
        """Until the API has forgotten the pod and nothing of it is left here."""
        async with asyncio.TaskGroup() as group:
            self._probes = PodProbes(self._tools, group, self.wake)
            try:
                while not self._is_gone:
                    await self._wake.wait()
                    self._wake.clear()
                    await self._guarded_turn()
            finally:
                self._probes.close()
                self._probes = None
                self._look_again(None)

    async def _guarded_turn(self) -> None:
        turning = self._turning = asyncio.create_task(self._turn())
        try:
            await asyncio.wait([turning])
        finally:
            self._turning = None
            if not turning.done():
                turning.cancel()
                await asyncio.wait([turning])
        if turning.cancelled():
            return  # interrupted: woken already
        error = turning.exception()
        if error is None:
            self._retry_s = RETRY_FIRST_S
            return
        if not isinstance(error, PlimsollError | OSError):
            raise error
        log.warning("pod %s: %s; trying again in %g s", self.title, error, self._retry_s)
        log.debug("pod %s", self.title, exc_info=error)
        if isinstance(error, VolumeError):
            self._tools.tell(self.pod, "Warning", error.reason, str(error))
        else:
            self._tools.tell_lifecycle(self.pod, sync_failed(str(error)))
        self._report(self.pod, self.seen)
        self._look_again(self._tools.clock() + self._retry_s)
        self._retry_s = min(self._retry_s * 2, RETRY_MOST_S)

    # --- a turn ---

    def _is_ending(self) -> bool:
        verdict = self._tools.checkpoint.get(self.uid).verdict
        return self._is_removed or is_ending(self.pod, self.status, verdict)

    async def _turn(self) -> None:
        # What was accepted is handed out first, with what was seen last: the runtime need not be asked for that.
        parts = self._parts if not self._is_ending() else None
        if parts is not None and await self._hand_out(self._allocated(), self.seen):
            self._report(*self._seen_in(parts))
        while True:
            pod, seen = await self._look()
            if self._is_ending():
                await self._bring_to_end(pod, seen)
                return
            if await self._hand_out(pod, seen):
                continue
            now_s = self._tools.clock()
            status = self.status or pod.status
            verdict = deadline_verdict(pod, status, now_s)
            if verdict is not None:
                self._tools.checkpoint.put(self.uid, verdict=verdict)
                self._tools.tell_lifecycle(pod, deadline_exceeded())
                continue
            work = compute_pod_actions(
                pod, seen, self._remembered(), now_s, limits=self._tools.limits, profile=self._tools.setting.profile
            )
            work, not_before_s = self._without_retries(work, now_s)
            self._memory = after_sync(self._memory, work)
            self._keep_backoffs()
            for event in work.events:
                self._tools.tell_lifecycle(pod, event)
            if work.is_done(seen):
                self._sizes.settle(pod, seen)
                status = self._report(pod, seen)
                if status.phase in (SUCCEEDED, FAILED):
                    continue
                moments = [
                    each for each in (work.look_again_s, not_before_s, self._sizes.look_again_s) if each is not None
                ]
                self._look_again(min(moments, default=None))
                return
            await self._do(pod, seen, work)

    async def _look(self) -> tuple[RunPod, ObservedPod]:
        self._parts = await self._tools.view.pod(self.uid)
        pod, seen = self._seen_in(self._parts)
        assert self._probes is not None
        before = self.status or pod.status
        probes = self._probes.watch(pod, seen, before, is_ending=self._is_ending())
        self._memory = without_stale_probes(msgspec.structs.replace(self._memory, probes=dict(probes)), seen)
        return pod, seen

    def _seen_in(self, parts: PodParts) -> tuple[RunPod, ObservedPod]:
        pod = self._allocated()
        given = self._sizes.cgroup_pod(pod, {each.name for each in parts.containers if each.phase == "running"})
        self.seen = self._observer.seen(pod, parts, self._tools.checkpoint.get(self.uid), given)
        return pod, self.seen

    def _allocated(self) -> RunPod:
        """The newest document with what was allocated."""
        allocation = self._tools.checkpoint.get(self.uid).allocation
        pod = self.allocated_pod(allocation) if allocation is not None else self.pod
        assert isinstance(pod, RunPod)
        return pod

    async def _hand_out(self, pod: RunPod, seen: ObservedPod) -> bool:
        """What is allocated and was not given yet, in place; whoever must restart for it is remembered for that."""
        left = self._sizes.left(pod, seen)
        restarts = self._sizes.restarts(left)
        if restarts != self._memory.restart_to_resize:
            self._memory = msgspec.structs.replace(self._memory, restart_to_resize=restarts)
        if not (left.in_place or left.pod_level) or not self._sizes.is_due(pod):
            return False
        if self._sizes.is_news():
            self._report(pod, seen, must_be_seen=True)
        if not await self._sizes.hand_out(pod, left):
            return False
        if not restarts:
            self._sizes.settle(pod, seen)
        return True

    def _remembered(self) -> SyncState:
        return msgspec.structs.replace(self._memory, status=self.status)

    def _without_retries(self, work: PodActions, now_s: float) -> tuple[PodActions, float | None]:
        """Starts that have just failed wait a little: nothing else would keep us from trying without end."""
        waiting = {each.name for each in work.starts if self._retries.get(each.name, (0.0, 0.0))[0] > now_s}
        if not waiting:
            return work, None
        keys = {backoff_key(each) for each in containers_of(self.pod) if each.name in waiting}
        rest = msgspec.structs.replace(
            work,
            starts=tuple(each for each in work.starts if each.name not in waiting),
            backoffs={key: each for key, each in work.backoffs.items() if key not in keys},
        )
        return rest, min(self._retries[name][0] for name in waiting)

    # --- doing ---

    async def _do(self, pod: RunPod, seen: ObservedPod, work: PodActions) -> None:
        tools = self._tools
        if work.kills or (work.kill_pod and seen.live()):
            # A stop may take its whole grace.
            self._report(pod, seen, must_be_seen=bool(self._memory.restart_to_resize) and self._sizes.is_news())
        if work.kill_pod:
            await self._end.stop(pod, seen, stops(pod, seen))
            await self._end.stop_sandboxes(seen)
        elif work.kills:
            await self._end.kill(pod, seen, work.kills)
        for container_id in work.forget:
            await tools.runtime.remove_container(container_id)
        if work.sandbox_attempt is None and not work.starts:
            return
        slow_s = SLOW_CRI_START_S if tools.runtime.makes_cgroups else SLOW_START_S
        with self._reported_if_slower(slow_s, pod, seen):
            for other in self.after:
                await other.released.wait()
            await self._start.start(pod, seen, work, self._note)

    def _note(self, pod: RunPod, start: Start, trouble: StartFailure | None) -> None:
        container, now_s = container_named(pod, start.name), self._tools.clock()
        assert container is not None, start.name
        if trouble is None:
            self._retries.pop(start.name, None)
            self._memory = started(self._memory, start.name)
        elif trouble.reason == ERR_IMAGE_PULL:
            self._memory = pull_failed(self._memory, container, trouble.message, now_s)
        else:
            _, pause_s = self._retries.get(start.name, (0.0, RETRY_FIRST_S))
            self._retries[start.name] = (now_s + pause_s, min(pause_s * 2, RETRY_MOST_S))
            self._memory = start_failed(self._memory, start.name, trouble)
        self._keep_backoffs()

    def _keep_backoffs(self) -> None:
        self._tools.checkpoint.put(
            self.uid, backoffs=dict(self._memory.backoffs), image_backoffs=dict(self._memory.image_backoffs)
        )

    async def refresh_volumes(self) -> None:
        """What the API says now, in the files of a running pod."""
        pod = self._allocated()
        if self._is_ending() or not self.seen.live() or not referenced_config_maps(pod):
            return
        await self._starter.prepared(pod, pod_ips(pod, self.seen, self._tools), fresh=True)

    # --- the end ---

    async def _bring_to_end(self, pod: RunPod, seen: ObservedPod) -> None:
        tools, record = self._tools, self._tools.checkpoint.get(self.uid)
        live = self._end.stops(pod, seen, record.verdict, by_itself=has_ended(pod, self.status))
        if live:
            with self._reported_if_slower(SLOW_STOP_S, pod, seen):
                await self._end.stop(pod, seen, live)
            pod, seen = await self._look()
            if seen.live():
                raise RuntimeCallError("stop", f"{len(seen.live())} containers of {self.title} still run")
        if not self._is_removed:
            self._report(pod, seen, is_final=True)
        self._look_again(None)
        await self._end.release(pod, seen)
        tools.pinning.wake()
        self.released.set()
        if self._is_removed:
            await self._end.forget(pod, seen)
            self._is_gone = True
        elif pod.metadata.deletion_timestamp is not None and not self._is_told:
            if not tools.runtime.makes_cgroups:
                await self._end.forget(pod, seen)
            self._is_told = True
            tools.reporter.finish(self.uid, pod.metadata.namespace, pod.metadata.name)
            if tools.runtime.makes_cgroups:  # that takes a runtime some time; nothing of the pod is held by its records
                await self._end.forget(pod, seen)

    # --- reporting ---

    @contextmanager
    def _reported_if_slower(self, pause_s: float, pod: RunPod, seen: ObservedPod) -> Iterator[None]:
        slow = asyncio.get_running_loop().call_later(pause_s, self._report, pod, seen)
        try:
            yield
        finally:
            slow.cancel()

    def _report(
        self, pod: RunPod, seen: ObservedPod, *, is_final: bool = False, must_be_seen: bool = False
    ) -> RunStatus:
        tools, record = self._tools, self._tools.checkpoint.get(self.uid)
        pod = self._allocated()  # a newer document may have come since
        marks = NO_RESIZE_CONDITIONS if is_final or record.verdict is not None else self._resizes.marks(self.uid)
        status = made_status(tools, record, pod, seen, self._remembered(), marks, desired=self.pod, is_final=is_final)
        if status.phase in (SUCCEEDED, FAILED):
            self._resizes.over(self.uid)
        self.status = status
        if status.phase == RUNNING and self._new_since_s is not None:
            tools.meters.pod_start_s.observe(tools.clock() - self._new_since_s)
            self._new_since_s = None
        if not self._is_removed and not self._is_told:
            meta = pod.metadata
            uid, known, version = self.uid, self.known_status, StoredVersion(meta.resource_version, meta.generation)
            if is_static(pod):
                mirror = tools.mirror_of(self.uid)
                if mirror is None:
                    return status  # the API does not show it yet; when it does, we are woken
                uid, known, version = mirror.uid, mirror.status, mirror.version
            tools.reporter.report(
                uid, meta.namespace, meta.name, known, status_document(status), version, must_be_seen=must_be_seen
            )
        return status

    def _look_again(self, at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            pause_s = max(0.0, at_s - self._tools.clock())
            self._timer = asyncio.get_running_loop().call_later(pause_s, self.wake)


def _must_end_sooner(before: RunPod, now: RunPod) -> bool:
    if now.metadata.deletion_timestamp is None:
        return False
    if before.metadata.deletion_timestamp is None:
        return True
    was, is_now = before.metadata.deletion_grace_period_seconds, now.metadata.deletion_grace_period_seconds
    return is_now is not None and (was is None or is_now < was)


def _is_only_our_report(before: RunPod, now: RunPod) -> bool:
    """The status that we have sent comes back with every watch; there is nothing to do about it."""
    was, is_now = before.metadata, now.metadata
    if now.spec != before.spec or msgspec.structs.replace(was, resource_version=is_now.resource_version) != is_now:
        return False
    return _of_others(before) == _of_others(now)


def _of_others(pod: RunPod) -> list[RunCondition]:
    return [each for each in pod.status.conditions if each.type not in OWN_CONDITIONS | PASSING_CONDITIONS]
