"""The probes of one pod: a task for each, which probes when it is due and wakes the worker when a result changes.

`rules.lifecycle.probes` decides about times, thresholds and what gates what. A container that ran before this agent
started begins with the results in its status, so that a restart of the agent makes no healthy pod unready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from plimsoll.errors import PlimsollError
from plimsoll.node.pods.pod_http import ProbeTarget
from plimsoll.node.pods.prober import run_probe
from plimsoll.node.pods.services import NodeServices
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
from plimsoll.rules.model.runnable import Probe, RunContainer, RunPod, container_kind, containers_of

Key = tuple[str, ProbeKind]  # container id


class PodProbes:
    def __init__(self, node: NodeServices, group: asyncio.TaskGroup, changed: Callable[[], None]) -> None:
        self._node, self._group, self._changed = node, group, changed
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._started: dict[str, asyncio.Event] = {}
        self.results: dict[str, ProbeResults] = {}

    def watch(
        self, pod: RunPod, observed: ObservedPod, before: RunStatus, *, is_ending: bool
    ) -> Mapping[str, ProbeResults]:
        """Probe the containers that run now, and no others. Returns the results so far, by container id."""
        wanted = {(running.id, kind): (container, running) for container, running, kind in _probed(pod, observed)}
        for key in [key for key in self._tasks if key not in wanted or (is_ending and key[1] != "Readiness")]:
            self._tasks.pop(key).cancel()
        ids = {key[0] for key in wanted}
        self.results = {key: results for key, results in self.results.items() if key in ids}
        self._started = {key: event for key, event in self._started.items() if key in ids}
        sandbox = observed.sandbox()
        ip = next(iter(self._node.pod_ips(pod, observed)), "")
        for key, (container, running) in wanted.items():
            if key in self._tasks or (is_ending and key[1] != "Readiness") or sandbox is None:
                continue
            state = self._initial(key, container, before)
            target = ProbeTarget(
                self._node.runtime,
                running.sandbox_id or sandbox.id,
                running.id,
                container,
                ip,
                self._node.profile,
            )
            self._tasks[key] = self._group.create_task(self._probe(pod, target, running, key[1], state))
        return self.results

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _initial(self, key: Key, container: RunContainer, before: RunStatus) -> ProbeState:
        container_id, kind = key
        verdict = fresh(container_id, kind).verdict
        for status in (*before.container_statuses, *before.init_container_statuses):
            if status.name == container.name and status.container_id.rpartition("://")[2] == container_id:
                known = restored(status)
                verdict = {"Startup": known.startup, "Readiness": known.readiness}.get(kind, verdict)
        self._put(container_id, kind, verdict)
        return ProbeState(container_id, verdict)

    def _put(self, container_id: str, kind: ProbeKind, verdict: bool | None) -> None:
        self.results[container_id] = with_verdict(self.results.get(container_id, NO_RESULTS), kind, verdict)
        started = self._started.setdefault(container_id, asyncio.Event())
        if kind == "Startup" and verdict:
            started.set()

    async def _probe(
        self, pod: RunPod, target: ProbeTarget, running: ObservedContainer, kind: ProbeKind, state: ProbeState
    ) -> None:
        container, meta = target.container, pod.metadata
        probe = probe_of(container, kind)
        assert probe is not None, kind
        if kind != "Startup" and container.startup_probe is not None:
            await self._started.setdefault(running.id, asyncio.Event()).wait()
        events = ContainerEvents(
            container.name,
            self._node.profile,
            container_kind(pod, container.name),
        )
        while True:
            has_started = is_started(container, running, self.results.get(running.id, NO_RESULTS))
            due = due_s(probe, kind, state, running, has_started=has_started)
            if due is None:
                return
            await asyncio.sleep(max(0.0, due - self._node.clock()))
            began_s = self._node.clock()
            result = await _run(target, probe)
            self._node.meters.probed(kind, _label(result), container.name, meta.name, meta.namespace, meta.uid)
            event = probe_event(events, kind, result)
            if event is not None:
                self._node.events.emit_lifecycle(pod, event)
            before, state = state, after_probe(probe, kind, state, result, began_s)
            if state.verdict != before.verdict:
                self._put(running.id, kind, state.verdict)
                self._changed()


def _probed(pod: RunPod, observed: ObservedPod) -> Iterator[tuple[RunContainer, ObservedContainer, ProbeKind]]:
    for container in containers_of(pod):
        newest = observed.newest(container.name)
        if newest is None or newest.phase != "running":
            continue
        for kind in KINDS:
            if probe_of(container, kind) is not None:
                yield container, newest, kind


def _label(result: ProbeResult) -> str:
    """As the kubelet's metric has it."""
    if result.error:
        return "unknown"
    return "successful" if result.is_success else "failed"


async def _run(target: ProbeTarget, probe: Probe) -> ProbeResult:
    try:
        return await run_probe(target, probe, max(probe.timeout_seconds, 1))
    except (PlimsollError, OSError) as error:
        return ProbeResult(False, error=str(error) or type(error).__name__)
