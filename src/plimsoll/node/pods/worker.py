"""One pod's worker: observe, decide, act, report; again whenever something may have changed.

A sync runs until there is nothing left to do; then the status is reported and the worker sleeps. It is woken by a new
version of the pod, by the runtime, by a probe and by a timer. An agent that was killed may have done any step before,
so each sync begins with the observed state, and every step can be repeated.

A sync may take long: a stop has its grace period, a pull its minutes. If the pod must end sooner than the sync assumes,
the sync is cancelled and the next one continues with the time that is left.

Three versions of the pod are used: *desired* (`pod`, the newest from the API), *allocated* (with the resources that the
node has allocated) and *actuated* (with those that its cgroups have).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from plimsoll.aio import ExponentialBackoff, cancel_all
from plimsoll.errors import PlimsollError
from plimsoll.node.pods.container_start import Starter
from plimsoll.node.pods.observe import Observer
from plimsoll.node.pods.probes import PodProbes
from plimsoll.node.pods.services import NodeServices
from plimsoll.node.pods.start import PodStart
from plimsoll.node.pods.stop import PodEnd
from plimsoll.node.resize.actuator import PodResize
from plimsoll.rules.lifecycle.api_objects import NO_REFERENCES, publishes_itself, references
from plimsoll.rules.lifecycle.backoff import ERR_IMAGE_PULL, backoff_key
from plimsoll.rules.lifecycle.conditions import OWN_CONDITIONS, PASSING_CONDITIONS
from plimsoll.rules.lifecycle.events import deadline_exceeded, sync_failed
from plimsoll.rules.lifecycle.pod_actions import after_sync, pull_failed, start_failed, started, without_stale_probes
from plimsoll.rules.lifecycle.termination import deadline_verdict, has_ended, is_ending, new_ends, stops
from plimsoll.rules.lifecycle.volumes import VolumeError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.observed import ObservedPod, PodActions, Start, StartFailure, SyncState
from plimsoll.rules.model.pod_status import FAILED, RUNNING, SUCCEEDED, RunCondition, RunStatus
from plimsoll.rules.model.runnable import RunPod, container_named, containers_of
from plimsoll.rules.resize.allocation import Allocation, allocated_pod
from plimsoll.rules.resize.conditions import NO_RESIZE_CONDITIONS
from plimsoll.runtime.interface import RuntimeCallError

log = logging.getLogger(__name__)

RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0
# A start or stop that takes longer gets a status of its own (ContainerCreating); the usual time of a runtime does not.
SLOW_START_S, SLOW_CRI_START_S, SLOW_STOP_S = 0.15, 0.5, 0.1


class PodWorker:
    def __init__(self, node: NodeServices, pod: RunPod, status: JsonObject, body: bytes) -> None:
        """`status`, `body`: as the API server sent them."""
        self._node, self.pod, self.body, self.known_status = node, pod, body, status
        self.uid = pod.metadata.uid
        self.title = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self.status: RunStatus | None = None  # as last computed
        starter = Starter(node)
        self._actuator = PodResize(
            self.uid, node.cgroups, node.containers, node.pinning, node.resizes, node.checkpoint,
            node.config.policy.gates, node.events.emit_lifecycle, node.clock,
        )  # fmt: skip
        readings, state, log_file = node.cgroups.readings, node.paths.state, node.runtime.log_file
        self._observer = Observer(readings, node.containers, node.checkpoint, node.events, state, log_file)
        self._start, self._end = PodStart(self.uid, node, starter, self._actuator), PodEnd(node, starter)
        self._new_since_s = None if status.get("phase") == RUNNING else node.clock()
        self.observed = ObservedPod()
        record = node.checkpoint.get(self.uid)
        self._state = SyncState(backoffs=record.backoffs, image_backoffs=record.image_backoffs)
        self._reported: ObservedPod | None = None  # as the runtime last reported it
        self._allocated_pod: tuple[RunPod, Allocation, Pod] | None = None
        self._probes: PodProbes | None = None
        self._wake = asyncio.Event()
        self._syncing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._backoff = ExponentialBackoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._retries: dict[str, tuple[float, float]] = {}  # container → not before, next pause
        self._is_published = True  # what its volumes show of the pod is what the API server has
        self.is_removed = False  # by the API server; it may still have to end here
        self._is_gone = self._is_finished = False
        self.released = asyncio.Event()  # none of its processes runs, and its resources are free
        self.after: tuple[PodWorker, ...] = ()  # pods that are terminated to make room for it

    @property
    def is_over(self) -> bool:
        """It runs nothing and never will again: its resources are free."""
        return has_ended(self.pod, self.status)

    def allocated_pod(self, allocation: Allocation) -> Pod:
        """The desired pod with what was allocated; computed once for each."""
        cached = self._allocated_pod
        if cached is None or cached[0] is not self.pod or cached[1] is not allocation:
            cached = self._allocated_pod = (self.pod, allocation, allocated_pod(self.pod, allocation))
        return cached[2]

    # --- what wakes it ---

    def wake(self) -> None:
        self._wake.set()

    def update(self, pod: RunPod, status: JsonObject, body: bytes) -> None:
        """A newer version of the pod."""
        before, self.pod, self.known_status, self.body = self.pod, pod, status, body
        if _must_end_sooner(before, pod):
            self.interrupt()
        elif not _is_own_status(before, pod):
            self._is_published = not publishes_itself(pod)
            self._wake.set()

    def remove(self) -> None:
        """The API server has deleted it."""
        self.is_removed = True
        if not self._is_ending():
            self.interrupt()
        self._wake.set()

    def interrupt(self) -> None:
        """Cancel the sync in progress: something more urgent is to be done. Once nothing runs any more, nothing is: a
        runtime refuses to remove a container while it still works on a removal whose caller has left."""
        if self._syncing is not None and not self._is_finished:
            self._syncing.cancel()
        self._wake.set()

    async def run(self) -> None:
        """Until the API server has deleted the pod and nothing of it is left here."""
        async with asyncio.TaskGroup() as group:
            self._probes = PodProbes(self._node, group, self.wake)
            self.wake()
            try:
                while not self._is_gone:
                    await self._wake.wait()
                    self._wake.clear()
                    await self._guarded_sync()
            finally:
                self._probes.close()
                self._probes = None
                self._requeue(None)

    async def _guarded_sync(self) -> None:
        syncing = self._syncing = asyncio.create_task(self._sync())
        try:
            await asyncio.wait([syncing])
        finally:
            self._syncing = None
            await cancel_all([syncing])
        if syncing.cancelled():
            return  # interrupted: already woken
        error = syncing.exception()
        if error is None:
            self._backoff.reset()
            return
        if not isinstance(error, PlimsollError | OSError):
            raise error
        pause_s = self._backoff.next_s()
        log.warning("pod %s: %s; trying again in %g s", self.title, error, pause_s)
        log.debug("pod %s", self.title, exc_info=error)
        if isinstance(error, VolumeError):
            self._node.events.emit(self.pod, "Warning", error.reason, str(error))
        else:
            self._node.events.emit_lifecycle(self.pod, sync_failed(str(error)))
        self._report(self.observed)
        self._requeue(self._node.clock() + pause_s)

    # --- a sync ---

    def _is_ending(self) -> bool:
        verdict = self._node.checkpoint.get(self.uid).verdict
        return self.is_removed or is_ending(self.pod, self.status, verdict)

    async def _sync(self) -> None:
        # An accepted resize is actuated first, with the last observation: that needs no answer from the runtime.
        reported = self._reported if not self._is_ending() else None
        if reported is not None and await self._actuate(self._allocated(), self.observed):
            self._report(self._complete(reported)[1])
        while True:
            pod, observed = await self._observe()
            if self._is_ending():
                await self._terminate(pod, observed)
                return
            if await self._actuate(pod, observed):
                continue
            now_s = self._node.clock()
            verdict = deadline_verdict(pod, self.status or pod.status, now_s)
            if verdict is not None:
                self._node.checkpoint.put(self.uid, verdict=verdict)
                self._node.events.emit_lifecycle(pod, deadline_exceeded())
                continue
            actions = self._node.compute_actions(pod, observed, self._current_state(), now_s)
            actions, not_before_s = self._without_retries(actions, now_s)
            self._state = after_sync(self._state, actions)
            self._save_backoffs()
            for event in actions.events:
                self._node.events.emit_lifecycle(pod, event)
            if actions.is_done(observed):
                if not self._is_published:
                    await self.refresh_volumes(fresh=False)
                    self._is_published = True
                self._actuator.settle(pod, observed)
                status = self._report(observed)
                if status.phase in (SUCCEEDED, FAILED):
                    continue
                times = (actions.requeue_s, not_before_s, self._actuator.requeue_s)
                self._requeue(min((time_s for time_s in times if time_s is not None), default=None))
                return
            await self._act(pod, observed, actions)

    async def _observe(self) -> tuple[RunPod, ObservedPod]:
        self._reported = await self._node.view.pod(self.uid)
        pod, observed = self._complete(self._reported)
        assert self._probes is not None
        before = self.status or pod.status
        probes = self._probes.watch(pod, observed, before, is_ending=self._is_ending())
        self._state = without_stale_probes(msgspec.structs.replace(self._state, probes=dict(probes)), observed)
        return pod, observed

    def _complete(self, reported: ObservedPod) -> tuple[RunPod, ObservedPod]:
        """The allocated pod, and the runtime's report with what the agent adds."""
        pod = self._allocated()
        running = {container.name for container in reported.containers if container.phase == "running"}
        self.observed = self._observer.observe(pod, reported, self._actuator.cgroup_pod(pod, running))
        return pod, self.observed

    def _allocated(self) -> RunPod:
        """The desired pod with what was allocated."""
        allocation = self._node.checkpoint.get(self.uid).allocation
        pod = self.allocated_pod(allocation) if allocation is not None else self.pod
        assert isinstance(pod, RunPod)
        return pod

    async def _actuate(self, pod: RunPod, observed: ObservedPod) -> bool:
        """Actuate in place what is allocated; containers that must restart for it are left to the actions."""
        pending = self._actuator.pending(pod, observed)
        restarts = self._actuator.restarts(pending)
        if restarts != self._state.restart_to_resize:
            self._state = msgspec.structs.replace(self._state, restart_to_resize=restarts)
        if not (pending.in_place or pending.pod_level) or not self._actuator.is_due(pod):
            return False
        if self._actuator.is_news():
            self._report(observed, must_be_seen=True)
        if not await self._actuator.actuate(pod, pending):
            return False
        if not restarts:
            self._actuator.settle(pod, observed)
        return True

    def _current_state(self) -> SyncState:
        return msgspec.structs.replace(self._state, status=self.status)

    def _without_retries(self, actions: PodActions, now_s: float) -> tuple[PodActions, float | None]:
        """Delay starts that have just failed, so that they are not retried without pause."""
        waiting = {start.name for start in actions.starts if self._retries.get(start.name, (0.0, 0.0))[0] > now_s}
        if not waiting:
            return actions, None
        keys = {backoff_key(container) for container in containers_of(self.pod) if container.name in waiting}
        rest = msgspec.structs.replace(
            actions,
            starts=tuple(start for start in actions.starts if start.name not in waiting),
            backoffs={key: backoff for key, backoff in actions.backoffs.items() if key not in keys},
        )
        return rest, min(self._retries[name][0] for name in waiting)

    async def _act(self, pod: RunPod, observed: ObservedPod, actions: PodActions) -> None:
        if actions.kills or actions.restarts_all or (actions.kill_pod and observed.live()):
            # A stop may take its whole grace period.
            self._report(observed, must_be_seen=bool(self._state.restart_to_resize) and self._actuator.is_news())
        if actions.kill_pod:
            await self._end.stop(pod, observed, stops(pod, observed))
            await self._end.stop_sandboxes(observed)
        elif actions.kills:
            await self._end.kill(pod, observed, actions.kills)
        await self._end.remove_containers(actions.forget)
        if actions.restarts_all:
            self._report((await self._observe())[1])
        if actions.sandbox_attempt is None and not actions.starts:
            return
        with self._reported_if_slower(SLOW_CRI_START_S if self._node.is_remote else SLOW_START_S, observed):
            for other in self.after:
                await other.released.wait()
            await self._start.start(pod, observed, actions, self._note_start)

    def _note_start(self, pod: RunPod, start: Start, failure: StartFailure | None) -> None:
        container, now_s = container_named(pod, start.name), self._node.clock()
        assert container is not None, start.name
        if failure is None:
            self._retries.pop(start.name, None)
            self._state = started(self._state, start.name)
        elif failure.reason == ERR_IMAGE_PULL:
            self._state = pull_failed(self._state, container, failure.message, now_s)
        else:
            _, pause_s = self._retries.get(start.name, (0.0, RETRY_FIRST_S))
            self._retries[start.name] = (now_s + pause_s, min(pause_s * 2, RETRY_MAX_S))
            self._state = start_failed(self._state, start.name, failure)
        self._save_backoffs()

    def _save_backoffs(self) -> None:
        self._node.checkpoint.put(
            self.uid, backoffs=dict(self._state.backoffs), image_backoffs=dict(self._state.image_backoffs)
        )

    async def refresh_volumes(self, *, fresh: bool = True) -> None:
        """Update the files of a running pod; `fresh`: to what the API server has now of other objects, too."""
        pod = self._allocated()
        if self._is_ending() or not self.observed.live():
            return
        if references(pod) == NO_REFERENCES and not publishes_itself(pod):
            return
        await self._start.refresh_volumes(pod, self.observed, fresh=fresh)

    async def _terminate(self, pod: RunPod, observed: ObservedPod) -> None:
        verdict = self._node.checkpoint.get(self.uid).verdict
        live = self._end.stops(pod, observed, verdict, by_itself=has_ended(pod, self.status))
        if live:
            with self._reported_if_slower(SLOW_STOP_S, observed):
                await self._end.stop(pod, observed, live)
            pod, observed = await self._observe()
            if observed.live():
                raise RuntimeCallError("stop", f"{len(observed.live())} containers of {self.title} still run")
        if not self.is_removed:
            self._report(observed, is_final=True)
        self._node.reports.ended(self.uid)
        self._requeue(None)
        await self._end.release(pod, observed)
        self._node.pinning.wake()
        self.released.set()
        if self.is_removed:
            await self._end.forget(pod, observed)
            self._is_gone = True
        elif pod.metadata.deletion_timestamp is not None and not self._is_finished:
            if not self._node.is_remote:
                await self._end.forget(pod, observed)
            self._is_finished = True
            self._node.reports.finish(pod)
            if self._node.is_remote:  # slow with a CRI runtime, and the records occupy no resources of the pod
                await self._end.forget(pod, observed)

    # --- reporting ---

    @contextmanager
    def _reported_if_slower(self, pause_s: float, observed: ObservedPod) -> Iterator[None]:
        slow = asyncio.get_running_loop().call_later(pause_s, self._report, observed)
        try:
            yield
        finally:
            slow.cancel()

    def _report(self, observed: ObservedPod, *, is_final: bool = False, must_be_seen: bool = False) -> RunStatus:
        record, pod = self._node.checkpoint.get(self.uid), self._allocated()  # a newer version may have come since
        is_ending = is_final or record.verdict is not None
        resize = NO_RESIZE_CONDITIONS if is_ending else self._node.resizes.conditions(self.uid)
        status = self._node.reports.status(
            record, pod, observed, self._current_state(), resize, desired=self.pod, is_final=is_final
        )
        if status.phase in (SUCCEEDED, FAILED):
            self._node.resizes.over(self.uid)
        for kind, end in new_ends(self.status or pod.status, status):
            self._node.meters.ended_containers.add(kind, str(end.exit_code), end.reason)
        self.status = status
        if status.phase == RUNNING and self._new_since_s is not None:
            self._node.meters.pod_start_s.observe(self._node.clock() - self._new_since_s)
            self._new_since_s = None
        if not self.is_removed and not self._is_finished:
            self._node.reports.send(pod, self.known_status, status, must_be_seen=must_be_seen)
        return status

    def _requeue(self, at_s: float | None) -> None:
        """Sync again at that time; None: only when woken."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            pause_s = max(0.0, at_s - self._node.clock())
            self._timer = asyncio.get_running_loop().call_later(pause_s, self.wake)


def _must_end_sooner(before: RunPod, now: RunPod) -> bool:
    if now.metadata.deletion_timestamp is None:
        return False
    if before.metadata.deletion_timestamp is None:
        return True
    was, is_now = before.metadata.deletion_grace_period_seconds, now.metadata.deletion_grace_period_seconds
    return is_now is not None and (was is None or is_now < was)


def _is_own_status(before: RunPod, now: RunPod) -> bool:
    """Whether the only change is the status that this agent has sent."""
    was, is_now = before.metadata, now.metadata
    if now.spec != before.spec or msgspec.structs.replace(was, resource_version=is_now.resource_version) != is_now:
        return False
    return _foreign_conditions(before) == _foreign_conditions(now)


def _foreign_conditions(pod: RunPod) -> list[RunCondition]:
    own = OWN_CONDITIONS | PASSING_CONDITIONS
    return [condition for condition in pod.status.conditions if condition.type not in own]
