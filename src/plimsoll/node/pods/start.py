"""Starts what a pod's sync has decided to start: cgroups, volumes and sandbox, then one container after the other.

The volumes, whose contents may have to be asked for, are prepared while the cgroups are made, and the services for its
environment are read; the sandbox waits for the volumes, as with a kubelet. Whatever fails or is cancelled ends the
others as well; the next sync finds what is there.

The actuated resources of the containers are saved before the runtime starts them (03 §10), so that a restarted agent
knows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import msgspec

from plimsoll.aio import cancel_all
from plimsoll.node.pods.container_spec import sandbox_spec
from plimsoll.node.pods.container_start import ContainerStart, Prepared, Starter
from plimsoll.node.pods.observe import oom_base_key
from plimsoll.node.pods.services import NodeServices
from plimsoll.node.resize.actuator import PodResize
from plimsoll.rules.lifecycle.events import sandbox_failed
from plimsoll.rules.lifecycle.security_context import no_user_namespaces, without_effect
from plimsoll.rules.model.objects import is_static
from plimsoll.rules.model.observed import ObservedPod, PodActions, Start, StartFailure
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.resize.allocation import actuated_after
from plimsoll.runtime.interface import RuntimeCallError, SandboxSpec

Note = Callable[[RunPod, Start, StartFailure | None], None]


class PodStart:
    """Of one pod."""

    def __init__(self, uid: str, node: NodeServices, starter: Starter, actuator: PodResize) -> None:
        self._uid, self._node, self._starter, self._actuator = uid, node, starter, actuator

    async def start(self, pod: RunPod, observed: ObservedPod, actions: PodActions, note: Note) -> None:
        """`note` is called for each container with the failure, or None if it runs."""
        fresh = (await self._node.view.pod(self._uid)) if actions.kills or actions.kill_pod else observed
        starting = {start.name for start in actions.starts}
        ids = {container.name: container.id for container in fresh.live() if container.name not in starting}
        cgroup_pod = self._actuator.cgroup_pod(pod, ids)
        parent = self._node.cgroups.planned_path(cgroup_pod)
        sandbox = sandbox_spec(pod, _attempt(observed, actions), parent, self._node.paths)
        if pod.spec.host_users is False:
            sandbox = msgspec.structs.replace(sandbox, users=self._node.users.of_pod(self._uid))
        for start in actions.starts:
            if container_id := self._node.runtime.container_id(sandbox, start.name, start.attempt):
                ids[start.name] = start.resume_id or container_id
        preparing = asyncio.create_task(self._starter.prepare(pod, self._node.pod_ips(pod, observed)))
        # Its containers ask again: they get this answer while it is fresh, and report an error.
        links, seen_s = self._node.service_links, self._starter.seen_s
        asking = asyncio.create_task(links.variables(pod, seen_s=seen_s, is_static=is_static(pod)))
        failures: list[StartFailure] = []
        try:
            with self._counted_user_errors(sandbox, actions, failures):
                paths, sandbox_id = await self._node.containers.start(
                    cgroup_pod, ids, actions.sandbox_id, partial(self._sandbox, pod, actions, sandbox, preparing)
                )
                prepared = await preparing
                if self._node.is_remote and actions.sandbox_attempt is not None and not pod.spec.host_network:
                    created = await self._node.view.pod(self._uid)
                    prepared = prepared.with_ips(tuple(each.ip for each in created.sandboxes[:1] if each.ip))
                self._save(pod, observed, actions.starts, ids)
                managers = self._node.managers
                resources = self._node.cgroups.workloads.cri_resources(
                    cgroup_pod, partial(managers.cpus.cpus_of, self._uid), partial(managers.memory.mems_of, self._uid)
                )
                for start in actions.starts:
                    cgroup = paths.get(start.name, "") if self._node.cgroups.enforced else ""
                    what = ContainerStart(start, sandbox, sandbox_id, prepared, cgroup, resources[start.name])
                    managers.memory.started(pod, start.name)
                    failure = await self._start_one(pod, what)
                    note(pod, start, failure)
                    if failure is not None:
                        failures.append(failure)
                        if start.is_init and not start.is_sidecar:
                            return
        finally:
            await cancel_all([preparing, asking])
            await self._starter.images.cancel()

    @contextmanager
    def _counted_user_errors(
        self, sandbox: SandboxSpec, actions: PodActions, failures: Collection[StartFailure]
    ) -> Iterator[None]:
        """The kubelet counts whatever fails in the sync that makes the sandbox, and most errors are a container's."""
        if sandbox.users is None or actions.sandbox_attempt is None:
            yield
            return
        errors = self._node.meters.started_user_namespaces_errors
        try:
            yield
        except RuntimeCallError:
            errors.add()
            raise
        if failures:
            errors.add()

    async def refresh_volumes(self, pod: RunPod, observed: ObservedPod, *, fresh: bool) -> None:
        """Update the files of a running pod; `fresh`: to what the API server has now of other objects, too."""
        await self._starter.prepare(pod, self._node.pod_ips(pod, observed), fresh=fresh)

    async def _sandbox(
        self, pod: RunPod, actions: PodActions, spec: SandboxSpec, preparing: asyncio.Task[Prepared]
    ) -> str:
        await preparing
        self._starter.images.prefetch(pod, actions.starts)
        if actions.sandbox_attempt is None:
            return actions.sandbox_id
        self._node.meters.started_pods.add()
        if spec.users is not None:
            self._node.meters.started_user_namespaces.add()
        abilities = self._node.paths.abilities
        by_cri = abilities.applies_profiles  # the runtime decides, also about ports
        for sentence in without_effect(pod, has_selinux=abilities.has_selinux or by_cri, forwards_ports=by_cri):
            self._node.events.emit(pod, "Warning", "NoEffect", sentence)
        try:
            handler = await self._node.runtime_classes.handler(pod.spec.runtime_class_name)
            if spec.users is not None and handler not in self._node.runtime.features.user_namespaces:
                raise RuntimeCallError("user namespace", no_user_namespaces(handler))
            return await self._node.runtime.make_sandbox(msgspec.structs.replace(spec, runtime_handler=handler))
        except RuntimeCallError as error:
            self._node.meters.started_pods_errors.add()
            self._node.events.emit_lifecycle(pod, sandbox_failed(error.reason))
            raise

    async def _start_one(self, pod: RunPod, what: ContainerStart) -> StartFailure | None:
        failure = await self._starter.start(pod, what)
        kind = {"initContainers": "init_container", "ephemeralContainers": "ephemeral_container"}.get(
            what.start.kind, "container"
        )
        self._node.meters.started_containers.add(kind)
        if failure is not None:
            self._node.meters.start_errors.add(kind, failure.reason)
        return failure

    def _save(self, pod: RunPod, observed: ObservedPod, starts: Iterable[Start], ids: Mapping[str, str]) -> None:
        """Save the resources they start with, and the OOM kills that the pod's cgroup has counted so far."""
        record = self._node.checkpoint.get(self._uid)
        bases = record.oom_bases
        if self._node.containers.scopes_may_vanish:
            count = self._node.cgroups.readings.pod_oom_kills(self._uid) or 0
            new = {ids.get(start.name) or oom_base_key(start.name, start.attempt): count for start in starts}
            live = {*ids.values(), *(oom_base_key(each.name, each.attempt) for each in observed.live())}
            bases = {key: base for key, base in bases.items() if key in live} | new
        before = record.actuated_sizes(pod_level=self._node.config.policy.gates.pod_level_resize)
        is_pending = self._actuator.pending(pod, observed).pod_level
        sizes = actuated_after(before, pod, (start.name for start in starts), pod_level=not is_pending)
        self._node.checkpoint.put_actuated(self._uid, sizes, oom_bases=bases)


def _attempt(observed: ObservedPod, actions: PodActions) -> int:
    if actions.sandbox_attempt is not None:
        return actions.sandbox_attempt
    newest = observed.sandbox()
    return newest.attempt if newest is not None else 0
