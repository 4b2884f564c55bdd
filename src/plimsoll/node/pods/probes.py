"""The probes of one pod: a task for each, which asks when it is due and tells the worker when a verdict changes.

Times, thresholds and what gates what are `rules.lifecycle.probes`'s. A container that ran before this agent was started
begins with what was reported of it, so that an agent's restart makes no healthy pod unready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from plimsoll.errors import PlimsollError
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.pods.prober import ProbeTarget, carried_out
from plimsoll.rules.lifecycle.events import ContainerEvents
from plimsoll.rules.lifecycle.probes import (
    KINDS,
    ProbeKind,
    ProbeResult,
    ProbeState,
    after_probe,
    due_s,
    fresh,
    is_started,
    probe_event,
    probe_of,
    restored,
    with_verdict,
)
from plimsoll.rules.model.observed import NO_RESULTS, ObservedContainer, ObservedPod, ProbeResults
from plimsoll.rules.model.pod_status import RunStatus
from plimsoll.rules.model.runnable import Probe, RunContainer, RunPod, containers_of

Key = tuple[str, ProbeKind]  # container id


class PodProbes:
    def __init__(self, tools: Dependencies, group: asyncio.TaskGroup, changed: Callable[[], None]) -> None:
        self._tools, self._group, self._changed = tools, group, changed
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._started: dict[str, asyncio.Event] = {}
        self.results: dict[str, ProbeResults] = {}

    def watch(
        self, pod: RunPod, seen: ObservedPod, before: RunStatus, *, is_ending: bool
    ) -> Mapping[str, ProbeResults]:
        """Probe what runs now, and nothing else; the results so far."""
        wanted = {(running.id, kind): (container, running) for container, running, kind in _probed(pod, seen)}
        for key in [key for key in self._tasks if key not in wanted or (is_ending and key[1] != "Readiness")]:
            self._tasks.pop(key).cancel()
        there = {key[0] for key in wanted}
        self.results = {key: each for key, each in self.results.items() if key in there}
        self._started = {key: each for key, each in self._started.items() if key in there}
        sandbox = seen.sandbox()
        for key, (container, running) in wanted.items():
            if key in self._tasks or (is_ending and key[1] != "Readiness") or sandbox is None:
                continue
            state = self._begun(key, container, before)
            place = ProbeTarget(
                self._tools.runtime,
                running.sandbox_id or sandbox.id,
                running.id,
                container,
                sandbox.ip,
                self._tools.setting.profile,
            )
            self._tasks[key] = self._group.create_task(self._probe(pod, place, running, key[1], state))
        return self.results

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _begun(self, key: Key, container: RunContainer, before: RunStatus) -> ProbeState:
        container_id, kind = key
        verdict = fresh(container_id, kind).verdict
        for status in (*before.container_statuses, *before.init_container_statuses):
            if status.name == container.name and status.container_id.rpartition("://")[2] == container_id:
                known = restored(status)
                verdict = {"Startup": known.startup, "Readiness": known.readiness}.get(kind, verdict)
        self._take(container_id, kind, verdict)
        return ProbeState(container_id, verdict)

    def _take(self, container_id: str, kind: ProbeKind, verdict: bool | None) -> None:
        self.results[container_id] = with_verdict(self.results.get(container_id, NO_RESULTS), kind, verdict)
        started = self._started.setdefault(container_id, asyncio.Event())
        if kind == "Startup" and verdict:
            started.set()

    async def _probe(
        self, pod: RunPod, place: ProbeTarget, running: ObservedContainer, kind: ProbeKind, state: ProbeState
    ) -> None:
        container, meta = place.container, pod.metadata
        probe = probe_of(container, kind)
        assert probe is not None, kind
        if kind != "Startup" and container.startup_probe is not None:
            await self._started.setdefault(running.id, asyncio.Event()).wait()
        about = ContainerEvents(
            container.name,
            self._tools.setting.profile,
            is_init=any(each.name == container.name for each in pod.spec.init_containers),
        )
        while True:
            has_started = is_started(container, running, self.results.get(running.id, NO_RESULTS))
            due = due_s(probe, kind, state, running, has_started=has_started)
            if due is None:
                return
            await asyncio.sleep(max(0.0, due - self._tools.clock()))
            asked_s = self._tools.clock()
            answer = await _asked(place, probe)
            self._tools.meters.probed(kind, _word(answer), container.name, meta.name, meta.namespace, meta.uid)
            event = probe_event(about, kind, answer)
            if event is not None:
                self._tools.tell_lifecycle(pod, event)
            before, state = state, after_probe(probe, kind, state, answer, asked_s)
            if state.verdict != before.verdict:
                self._take(running.id, kind, state.verdict)
                self._changed()


def _probed(pod: RunPod, seen: ObservedPod) -> Iterator[tuple[RunContainer, ObservedContainer, ProbeKind]]:
    for container in containers_of(pod):
        newest = seen.newest(container.name)
        if newest is None or newest.phase != "running":
            continue
        for kind in KINDS:
            if probe_of(container, kind) is not None:
                yield container, newest, kind


def _word(answer: ProbeResult) -> str:
    """As the kubelet's metric has it."""
    if answer.error:
        return "unknown"
    return "successful" if answer.is_success else "failed"


async def _asked(place: ProbeTarget, probe: Probe) -> ProbeResult:
    try:
        return await carried_out(place, probe, max(probe.timeout_seconds, 1))
    except (PlimsollError, OSError) as error:
        return ProbeResult(False, error=str(error) or type(error).__name__)
