"""Brings up what a pod's turn has decided to start: cgroups and sandbox, then one container after the other.

What the containers are given is written down before the runtime is told (03 §10), so that a killed agent knows later
what it had promised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from plimsoll.node.dependencies import Dependencies
from plimsoll.node.pods.container_spec import sandbox_spec
from plimsoll.node.pods.container_start import Prepared, Starter
from plimsoll.node.pods.observe import oom_base_key
from plimsoll.node.resize import cri as cri_resize
from plimsoll.node.resize.actuator import PodResize
from plimsoll.rules.lifecycle.events import sandbox_failed
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.observed import ObservedPod, PodActions, Start, StartFailure
from plimsoll.rules.model.runnable import RunPod, containers_of
from plimsoll.runtime.interface import RuntimeCallError, SandboxSpec

Note = Callable[[RunPod, Start, StartFailure | None], None]


class PodStart:
    """Of one pod."""

    def __init__(self, tools: Dependencies, starter: Starter, sizes: PodResize, uid: str) -> None:
        self._tools, self._starter, self._sizes, self._uid = tools, starter, sizes, uid

    async def start(self, pod: RunPod, seen: ObservedPod, work: PodActions, note: Note) -> None:
        """`note` is told of each container how it went."""
        tools = self._tools
        makes_cgroups = tools.runtime.makes_cgroups
        fresh = (await tools.view.pod(self._uid)) if work.kills or work.kill_pod else None
        live = seen.live() if fresh is None else fresh.alive()
        starting = {each.name for each in work.starts}
        ids = {each.name: each.id for each in live if each.name not in starting}
        lean = self._sizes.cgroup_pod(pod, ids)
        sandbox = sandbox_spec(pod, _attempt(seen, work), tools.cgroups.planned_path(lean), tools.place)
        if not makes_cgroups:
            for each in work.starts:
                ids[each.name] = each.resume_id or tools.runtime.container_id(sandbox, each.name, each.attempt)
        prepared = await self._starter.prepared(pod, pod_ips(pod, seen, tools))
        try:
            if makes_cgroups:
                self._starter.look_for_images(pod, work.starts)
            paths, sandbox_id = await self._placed(pod, work, sandbox, lean, {} if makes_cgroups else ids)
            if makes_cgroups and work.sandbox_attempt is not None and not pod.spec.host_network:
                prepared = prepared.with_ips(await self._new_ips())  # its network gave it one just now
            if makes_cgroups:
                await tools.pinning.now()  # whoever runs where this one will, leaves first
            self._promise(pod, seen, work.starts, ids)
            await self._start_all(pod, work.starts, sandbox, sandbox_id, prepared, paths, lean, note)
        finally:
            await self._starter.look_no_more()

    async def _placed(
        self, pod: RunPod, work: PodActions, sandbox: SandboxSpec, lean: Pod, ids: Mapping[str, str]
    ) -> tuple[Mapping[str, str], str]:
        """Cgroups and sandbox: the supervisor makes one while we make the other. CRI needs the cgroup first."""
        if self._tools.runtime.makes_cgroups:
            paths = await cri_resize.have_sized(self._tools, lean, work.sandbox_id)
            return paths, await self._sandbox(pod, work, sandbox)
        making = asyncio.create_task(self._sandbox(pod, work, sandbox))
        try:
            paths = await self._tools.cgroups.have(lean, ids)
            return paths, await making
        finally:
            if not making.done():
                making.cancel()
            await asyncio.wait([making])

    async def _sandbox(self, pod: RunPod, work: PodActions, spec: SandboxSpec) -> str:
        if work.sandbox_attempt is None:
            return work.sandbox_id
        meters = self._tools.meters
        meters.started_pods.add()
        try:
            return await self._tools.runtime.make_sandbox(spec)
        except RuntimeCallError as error:
            meters.started_pods_errors.add()
            self._tools.tell_lifecycle(pod, sandbox_failed(error.reason))
            raise

    async def _new_ips(self) -> tuple[str, ...]:
        parts = await self._tools.view.pod(self._uid)
        return tuple(each.ip for each in parts.sandboxes[:1] if each.ip)

    async def _start_all(
        self,
        pod: RunPod,
        starts: Iterable[Start],
        sandbox: SandboxSpec,
        sandbox_id: str,
        prepared: Prepared,
        paths: Mapping[str, str],
        lean: Pod,
        note: Note,
    ) -> None:
        tools, resources = self._tools, self._starter.resources(lean)
        for start in starts:
            cgroup = paths.get(start.name, "") if tools.cgroups.enforced else ""
            trouble = await self._starter.start(
                pod, start, sandbox, sandbox_id, prepared, cgroup, resources[start.name]
            )
            kind = "init_container" if start.is_init else "container"
            tools.meters.started_containers.add(kind)
            if trouble is not None:
                tools.meters.start_errors.add(kind, trouble.reason)
            note(pod, start, trouble)
            if trouble is not None and start.is_init and not start.is_sidecar:
                return

    def _promise(self, pod: RunPod, seen: ObservedPod, starts: Iterable[Start], ids: Mapping[str, str]) -> None:
        """What they get, and what the pod's slice has counted so far."""
        tools, record = self._tools, self._tools.checkpoint.get(self._uid)
        resources = {each.name: each.resources for each in containers_of(pod)}
        actuated = {**record.actuated, **{each.name: resources[each.name] for each in starts}}
        bases = record.oom_bases
        if tools.cgroups.scopes_may_vanish:
            counted = tools.cgroups.pod_oom_kills(self._uid) or 0
            counts = {ids.get(each.name) or oom_base_key(each.name, each.attempt): counted for each in starts}
            going_on = {*ids.values(), *(oom_base_key(each.name, each.attempt) for each in seen.live())}
            bases = {key: each for key, each in bases.items() if key in going_on} | counts
        pod_level = record.actuated_pod if self._sizes.left(pod, seen).pod_level else pod.spec.resources
        tools.checkpoint.put(self._uid, actuated=actuated, actuated_pod=pod_level, oom_bases=bases)


def pod_ips(pod: RunPod, seen: ObservedPod, tools: Dependencies) -> tuple[str, ...]:
    sandbox = seen.sandbox()
    if sandbox is not None and sandbox.ip:
        return (sandbox.ip,)
    return (tools.node_ip,) if pod.spec.host_network else ()


def _attempt(seen: ObservedPod, work: PodActions) -> int:
    if work.sandbox_attempt is not None:
        return work.sandbox_attempt
    newest = seen.sandbox()
    return newest.attempt if newest is not None else 0
