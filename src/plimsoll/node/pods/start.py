"""Starts what a pod's sync has decided to start: cgroups and sandbox, then one container after the other.

The actuated resources of the containers are saved before the runtime starts them (03 §10), so that a restarted agent
knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.pods.container_spec import NodePaths, sandbox_spec
from plimsoll.node.pods.container_start import ContainerStart, Starter
from plimsoll.node.pods.events import PodEvents
from plimsoll.node.pods.observe import oom_base_key
from plimsoll.node.resize.actuator import PodResize
from plimsoll.node.resources.container_cgroups import ContainerCgroups
from plimsoll.node.resources.cpu_manager import CpuManager
from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.rules.lifecycle.events import sandbox_failed
from plimsoll.rules.model.observed import ObservedPod, PodActions, Start, StartFailure
from plimsoll.rules.model.runnable import RunPod, containers_of
from plimsoll.runtime.interface import ContainerRuntime, RuntimeCallError, SandboxSpec

Note = Callable[[RunPod, Start, StartFailure | None], None]


class PodStart:
    """Of one pod."""

    def __init__(
        self,
        uid: str,
        runtime: ContainerRuntime,
        view: RuntimeView,
        pods: PodCgroups,
        containers: ContainerCgroups,
        cpus: CpuManager,
        checkpoint: Checkpoint,
        starter: Starter,
        actuator: PodResize,
        paths: NodePaths,
        events: PodEvents,
        meters: NodeMeters,
        *,
        node_ip: str,
        assigns_ips: bool,
    ) -> None:
        """`assigns_ips`: the runtime gives a new sandbox an address."""
        self._uid, self._runtime, self._view, self._starter, self._actuator = uid, runtime, view, starter, actuator
        self._pods, self._containers, self._cpus, self._checkpoint = pods, containers, cpus, checkpoint
        self._paths, self._events, self._meters = paths, events, meters
        self._node_ip, self._assigns_ips = node_ip, assigns_ips

    async def start(self, pod: RunPod, observed: ObservedPod, actions: PodActions, note: Note) -> None:
        """`note` is called for each container with the failure, or None if it runs."""
        fresh = (await self._view.pod(self._uid)) if actions.kills or actions.kill_pod else observed
        starting = {start.name for start in actions.starts}
        ids = {container.name: container.id for container in fresh.live() if container.name not in starting}
        cgroup_pod = self._actuator.cgroup_pod(pod, ids)
        sandbox = sandbox_spec(pod, _attempt(observed, actions), self._pods.planned_path(cgroup_pod), self._paths)
        for start in actions.starts:
            if container_id := self._runtime.container_id(sandbox, start.name, start.attempt):
                ids[start.name] = start.resume_id or container_id
        prepared = await self._starter.prepare(pod, self.pod_ips(pod, observed))
        try:
            self._starter.images.prefetch(pod, actions.starts)
            paths, sandbox_id = await self._containers.start(
                cgroup_pod, ids, actions.sandbox_id, partial(self._sandbox, pod, actions, sandbox)
            )
            if self._assigns_ips and actions.sandbox_attempt is not None and not pod.spec.host_network:
                prepared = prepared.with_ips(await self._new_ips())
            self._save(pod, observed, actions.starts, ids)
            resources = self._pods.workloads.cri_resources(cgroup_pod, partial(self._cpus.cpus_of, self._uid))
            for start in actions.starts:
                cgroup = paths.get(start.name, "") if self._pods.enforced else ""
                what = ContainerStart(start, sandbox, sandbox_id, prepared, cgroup, resources[start.name])
                failure = await self._start_one(pod, what)
                note(pod, start, failure)
                if failure is not None and start.is_init and not start.is_sidecar:
                    return
        finally:
            await self._starter.images.cancel()

    async def refresh_volumes(self, pod: RunPod, observed: ObservedPod) -> None:
        """Update the files of a running pod to what the API server has now."""
        await self._starter.prepare(pod, self.pod_ips(pod, observed), fresh=True)

    def pod_ips(self, pod: RunPod, observed: ObservedPod) -> tuple[str, ...]:
        sandbox = observed.sandbox()
        if sandbox is not None and sandbox.ip:
            return (sandbox.ip,)
        return (self._node_ip,) if pod.spec.host_network else ()

    async def _sandbox(self, pod: RunPod, actions: PodActions, spec: SandboxSpec) -> str:
        if actions.sandbox_attempt is None:
            return actions.sandbox_id
        self._meters.started_pods.add()
        try:
            return await self._runtime.make_sandbox(spec)
        except RuntimeCallError as error:
            self._meters.started_pods_errors.add()
            self._events.emit_lifecycle(pod, sandbox_failed(error.reason))
            raise

    async def _new_ips(self) -> tuple[str, ...]:
        observed = await self._view.pod(self._uid)
        return tuple(sandbox.ip for sandbox in observed.sandboxes[:1] if sandbox.ip)

    async def _start_one(self, pod: RunPod, what: ContainerStart) -> StartFailure | None:
        failure = await self._starter.start(pod, what)
        kind = "init_container" if what.start.is_init else "container"
        self._meters.started_containers.add(kind)
        if failure is not None:
            self._meters.start_errors.add(kind, failure.reason)
        return failure

    def _save(self, pod: RunPod, observed: ObservedPod, starts: Iterable[Start], ids: Mapping[str, str]) -> None:
        """Save the resources they start with, and the OOM kills that the pod's cgroup has counted so far."""
        record = self._checkpoint.get(self._uid)
        resources = {container.name: container.resources for container in containers_of(pod)}
        actuated = {**record.actuated, **{start.name: resources[start.name] for start in starts}}
        bases = record.oom_bases
        if self._containers.scopes_may_vanish:
            count = self._pods.readings.pod_oom_kills(self._uid) or 0
            new = {ids.get(start.name) or oom_base_key(start.name, start.attempt): count for start in starts}
            live = {*ids.values(), *(oom_base_key(each.name, each.attempt) for each in observed.live())}
            bases = {key: base for key, base in bases.items() if key in live} | new
        pending = self._actuator.pending(pod, observed)
        pod_level = record.actuated_pod if pending.pod_level else pod.spec.resources
        self._checkpoint.put(self._uid, actuated=actuated, actuated_pod=pod_level, oom_bases=bases)


def _attempt(observed: ObservedPod, actions: PodActions) -> int:
    if actions.sandbox_attempt is not None:
        return actions.sandbox_attempt
    newest = observed.sandbox()
    return newest.attempt if newest is not None else 0
