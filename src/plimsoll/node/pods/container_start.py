"""Starts a container: image, environment, mounts, cgroup, then the runtime; the postStart hook after the start.

Whatever keeps a container from starting becomes its `StartFailure`, which is shown as its waiting state with the
kubelet's reason, and is retried later. `rules.lifecycle.pod_actions` decides what to start.
"""

from __future__ import annotations

import logging

import msgspec

from plimsoll.errors import ContainerConfigError, PlimsollError
from plimsoll.kube.request import ApiError, UnreachableError
from plimsoll.linux.processes import oom_score_adj
from plimsoll.node.devices.messages import ContainerAllocateResponse
from plimsoll.node.devices.plugin import PluginError
from plimsoll.node.pods.container_spec import NO_DEVICES, container_spec
from plimsoll.node.pods.hooks import run_hook
from plimsoll.node.pods.image_manager import ERR_NEVER_PULL, PodImages
from plimsoll.node.pods.pod_http import ProbeTarget
from plimsoll.node.pods.services import NodeServices
from plimsoll.node.volumes.environment_files import environment_files
from plimsoll.node.volumes.volumes import ReadyVolumes
from plimsoll.rules.lifecycle.api_objects import PodObjects
from plimsoll.rules.lifecycle.environment import Surroundings, environment
from plimsoll.rules.lifecycle.events import ContainerEvents, hook_without_tls, pod_reference
from plimsoll.rules.model.objects import is_static
from plimsoll.rules.model.observed import CriResources, Start, StartFailure
from plimsoll.rules.model.runnable import Hook, RunContainer, RunPod, container_named
from plimsoll.runtime.interface import ContainerMount, Image, ImageError, RuntimeCallError, SandboxSpec

log = logging.getLogger(__name__)

HOOK_MAX_S = 3600.0
FAILED_HOOK_GRACE_S = 2.0
SCORE_NOT_SET = "OOMScoreNotSet"


class Prepared(msgspec.Struct, frozen=True):
    """What all containers of a pod share, resolved for one sync."""

    volumes: ReadyVolumes
    objects: PodObjects
    surroundings: Surroundings

    def with_ips(self, pod_ips: tuple[str, ...]) -> Prepared:
        return msgspec.structs.replace(self, surroundings=msgspec.structs.replace(self.surroundings, pod_ips=pod_ips))


class ContainerStart(msgspec.Struct, frozen=True):
    """Where and how one container is to be started."""

    start: Start
    sandbox: SandboxSpec
    sandbox_id: str
    prepared: Prepared
    cgroup: str  # "" if the runtime creates it
    resources: CriResources


class Starter:
    """Of one pod."""

    def __init__(self, node: NodeServices) -> None:
        self._node, self.images = node, PodImages(node)
        self.seen_s = node.clock()  # when the node first saw the pod
        self._scores_reported: set[str] = set()

    async def prepare(self, pod: RunPod, pod_ips: tuple[str, ...], *, fresh: bool = False) -> Prepared:
        """Create or refresh its volumes. Raises VolumeError if one cannot be set up."""
        objects = await self._node.objects.objects(pod, fresh=fresh)
        surroundings = msgspec.structs.replace(self._node.surroundings, pod_ips=pod_ips)
        return Prepared(self._node.volumes.set_up(pod, objects, surroundings), objects, surroundings)

    async def start(self, pod: RunPod, what: ContainerStart) -> StartFailure | None:
        """None: it runs. Errors of the runtime and of its image are returned as a failure."""
        start, container = what.start, container_named(pod, what.start.name)
        assert container is not None, start.name
        events = ContainerEvents(container.name, self._node.profile, start.kind)
        container_id = start.resume_id
        if not container_id:
            try:
                image = await self.images.ensure(pod, container, events)
            except ImageError as error:
                return self._image_failure(pod, container, events, error)
            except RuntimeCallError as error:
                return self._failure(pod, events, "ImageInspectError", error.reason)
            try:
                container_id = await self._create(pod, container, image, what)
            except ImageError as error:  # of an image volume
                return self._image_failure(pod, container, events, error)
            except (ContainerConfigError, ApiError, UnreachableError) as error:
                return self._failure(pod, events, "CreateContainerConfigError", str(error))
            except (PlimsollError, OSError) as error:
                return self._failure(pod, events, "CreateContainerError", _text(error))
            self._node.events.emit_lifecycle(pod, events.created())
        try:
            await self._node.runtime.start_container(container_id)
        except RuntimeCallError as error:
            return self._failure(pod, events, "RunContainerError", error.description)
        self._node.events.emit_lifecycle(pod, events.started())
        if not self._node.is_remote:  # the embedded runtime may lack the capability to set it
            await self._check_score(pod, container, events, container_id, what.resources.oom_score_adj)
        hook = container.lifecycle.post_start if container.lifecycle is not None else None
        ips = what.prepared.surroundings.pod_ips
        if hook is None or await self.hook(pod, container, container_id, what.sandbox_id, ips, hook, HOOK_MAX_S):
            return None
        self._node.events.emit_lifecycle(pod, events.post_start_failed())
        self._node.events.emit_lifecycle(pod, events.killing("FailedPostStartHook"))
        await self._node.runtime.stop_container(container_id, FAILED_HOOK_GRACE_S)
        return StartFailure("PostStartHookError", f"FailedPostStartHook: container {container.name}")

    async def _check_score(
        self, pod: RunPod, container: RunContainer, events: ContainerEvents, container_id: str, want: int
    ) -> None:
        """Report once if the process has another score: a negative one needs a capability."""
        observed = await self._node.view.pod(pod.metadata.uid)
        pid = next((each.pid for each in observed.containers if each.id == container_id and each.phase == "running"), 0)
        have = oom_score_adj(pid) if pid else None
        if have is None or have == want or container.name in self._scores_reported:
            return
        self._scores_reported.add(container.name)
        why = "lowering it needs CAP_SYS_RESOURCE" if have > want else "the process has changed it"
        message = f"oom_score_adj of container {container.name}: want {want}, have {have} ({why})"
        self._node.events.emit(pod, "Warning", SCORE_NOT_SET, message, events.created().field_path)

    async def _create(self, pod: RunPod, container: RunContainer, image: Image, what: ContainerStart) -> str:
        prepared, ready = what.prepared, what.prepared.volumes.by_name
        services = await self._node.service_links.variables(pod, seen_s=self.seen_s, is_static=is_static(pod))
        variables = environment(
            pod,
            container,
            prepared.objects,
            prepared.surroundings,
            services=services,
            files=environment_files(container, ready) if self._node.config.config.gate("EnvFiles") else None,
            profile=self._node.profile,
        )
        for note in variables.notes:
            self._node.events.emit(pod, "Warning", note.reason, note.message)
        handler = await self._node.runtime_classes.handler(pod.spec.runtime_class_name)
        mounts = self._node.volumes.mounts(pod, container, ready, variables.variables, handler)
        mounts = await self._with_images(pod, mounts)
        spec = container_spec(
            pod,
            container,
            what.start.attempt,
            image,
            variables.variables,
            mounts,
            self._node.paths,
            pod_ips=prepared.surroundings.pod_ips,
            resources=what.resources,
            cgroup=what.cgroup,
            target_id=await self._target_id(pod, container.target_container_name),
            devices=await self._devices(pod, container.name),
        )
        return await self._node.runtime.make_container(what.sandbox, what.sandbox_id, spec)

    async def _devices(self, pod: RunPod, container: str) -> ContainerAllocateResponse:
        manager = self._node.managers.devices
        if manager is None or not manager.devices_of(pod.metadata.uid, container):
            return NO_DEVICES
        try:
            return await manager.run_options(pod, container)
        except PluginError as error:
            raise ContainerConfigError(str(error)) from None

    async def _with_images(self, pod: RunPod, mounts: tuple[ContainerMount, ...]) -> tuple[ContainerMount, ...]:
        """Image volumes with the images that the runtime has for them, pulled by their policy."""
        found = []
        for mount in mounts:
            if mount.image:
                policies = {each.image.reference: each.image.pull_policy for each in pod.spec.volumes if each.image}
                image = await self.images.of_volume(mount.image, policies.get(mount.image, ""))
                mount = msgspec.structs.replace(mount, image=image.ref)
            found.append(mount)
        return tuple(found)

    async def _target_id(self, pod: RunPod, name: str) -> str:
        """Of the running container whose processes an ephemeral one sees; "" without a name."""
        if not name:
            return ""
        newest = (await self._node.view.pod(pod.metadata.uid)).newest(name)
        if newest is None or newest.phase != "running":
            raise ContainerConfigError(f"unable to find target container {name}: it does not run")
        return newest.id

    def _image_failure(
        self, pod: RunPod, container: RunContainer, events: ContainerEvents, error: ImageError
    ) -> StartFailure:
        if error.reason == ERR_NEVER_PULL:
            self._node.events.emit_lifecycle(pod, events.never_pulled(container.image))
        else:
            self._node.events.emit_lifecycle(pod, events.pull_failed(container.image, error.message))
        self._node.events.emit_lifecycle(pod, events.start_failed(error.reason))
        return StartFailure(error.reason, error.message)

    def _failure(self, pod: RunPod, events: ContainerEvents, reason: str, why: str) -> StartFailure:
        self._node.events.emit_lifecycle(pod, events.start_failed(why))
        return StartFailure(reason, why)

    async def hook(
        self,
        pod: RunPod,
        container: RunContainer,
        container_id: str,
        sandbox_id: str,
        pod_ips: tuple[str, ...],
        hook: Hook,
        timeout_s: float,
    ) -> bool:
        """Whether it has succeeded."""
        ip = pod_ips[0] if pod_ips else ""
        target = ProbeTarget(self._node.runtime, sandbox_id, container_id, container, ip, self._node.profile)
        result = await run_hook(target, hook, timeout_s)
        if result.fell_back:
            self._node.events.emit_lifecycle(pod, hook_without_tls(result.fell_back))
        if not result.is_success:
            log.debug("hook of pod %s, container %s: %s", pod_reference(pod.metadata), container.name, result.why)
        return result.is_success


def _text(error: PlimsollError | OSError) -> str:
    if isinstance(error, RuntimeCallError):
        return error.description
    return str(error) or type(error).__name__
