"""Starts containers: image, environment, mounts, cgroup, then the runtime; the hook after the start.

Whatever keeps one from starting becomes its trouble, which is shown as its waiting state with the kubelet's reason, and
tried again later. Nothing here decides what to start: that is `rules.lifecycle.pod_actions`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial

import msgspec

from plimsoll.errors import ContainerConfigError, PlimsollError
from plimsoll.kube.request import ApiError, UnreachableError
from plimsoll.linux.processes import oom_score_adj
from plimsoll.node.dependencies import Dependencies, NodePaths
from plimsoll.node.pods.container_spec import container_spec
from plimsoll.node.pods.prober import ProbeTarget as ProbePlace
from plimsoll.node.pods.prober import carried_out
from plimsoll.node.volumes.volumes import ReadyVolumes
from plimsoll.rules.cgroups.desired import workload
from plimsoll.rules.lifecycle.environment import ConfigMaps, Surroundings, environment, referenced_config_maps
from plimsoll.rules.lifecycle.events import ContainerEvents, never_pull_message
from plimsoll.rules.lifecycle.probes import ProbeResult
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.observed import Start, StartFailure
from plimsoll.rules.model.runnable import Hook, RunContainer, RunPod, container_named
from plimsoll.rules.resources.cri import cri_resources
from plimsoll.runtime.interface import CriResources, Image, ImageError, RuntimeCallError, SandboxSpec

HOOK_MOST_S = 3600.0
ERR_NEVER_PULL = "ErrImageNeverPull"
IMAGE_IGNORED = "ImageIgnored"
SCORE_NOT_SET = "OOMScoreNotSet"


class Prepared(msgspec.Struct, frozen=True):
    """What all containers of a pod share, resolved for one turn."""

    volumes: ReadyVolumes
    config_maps: ConfigMaps
    surroundings: Surroundings
    place: NodePaths

    def with_ips(self, pod_ips: tuple[str, ...]) -> Prepared:
        return msgspec.structs.replace(self, surroundings=msgspec.structs.replace(self.surroundings, pod_ips=pod_ips))


class Starter:
    """Of one pod."""

    def __init__(self, tools: Dependencies) -> None:
        self._tools = tools
        self._ignored_told: set[str] = set()
        self._scores_told: set[str] = set()
        self._ahead: dict[str, asyncio.Task[Image]] = {}

    async def prepared(self, pod: RunPod, pod_ips: tuple[str, ...], *, fresh: bool = False) -> Prepared:
        """Volumes made or refreshed. VolumeRefused where one cannot be."""
        tools = self._tools
        names = sorted(referenced_config_maps(pod))
        found = await tools.config_maps.named(pod.metadata.namespace, names, fresh=fresh) if names else {}
        surroundings = msgspec.structs.replace(tools.surroundings, pod_ips=pod_ips)
        volumes = tools.volumes.set_up(pod, found, surroundings)
        for note in volumes.notes:
            tools.tell(pod, "Warning", note.reason, note.message)
        return Prepared(volumes, found, surroundings, tools.place)

    def resources(self, cgroup_pod: Pod) -> dict[str, CriResources]:
        """Container → its numbers, for runtimes that write them, and its oom_score_adj for all."""
        work = workload(cgroup_pod, self._tools.setting)
        each = zip(work.containers, work.container_values, work.scores, strict=True)
        cpus = partial(self._tools.cpus.cpus_of, cgroup_pod.metadata.uid)
        return {
            container.name: cri_resources(values, score, cpuset_cpus=cpus(container.name))
            for container, values, score in each
        }

    async def start(
        self,
        pod: RunPod,
        start: Start,
        sandbox: SandboxSpec,
        sandbox_id: str,
        prepared: Prepared,
        cgroup: str,
        resources: CriResources,
    ) -> StartFailure | None:
        """None: it runs. RuntimeTrouble, ImageTrouble and the like end here, as its trouble."""
        container = container_named(pod, start.name)
        assert container is not None, start.name
        about = ContainerEvents(container.name, self._tools.setting.profile, is_init=start.is_init)
        container_id = start.resume_id
        if not container_id:
            try:
                image = await (self._ahead.pop(start.name, None) or self._image(pod, container, about))
            except ImageError as error:
                return self._image_trouble(pod, container, about, error)
            except RuntimeCallError as error:
                return self._failed(pod, about, "ImageInspectError", error.reason)
            try:
                container_id = await self._made(
                    pod, container, start, image, sandbox, sandbox_id, prepared, cgroup, resources
                )
            except (ContainerConfigError, ApiError, UnreachableError) as error:
                return self._failed(pod, about, "CreateContainerConfigError", str(error))
            except (PlimsollError, OSError) as error:
                return self._failed(pod, about, "CreateContainerError", _words(error))
            self._tools.tell_lifecycle(pod, about.created())
        try:
            await self._tools.runtime.start_container(container_id)
        except RuntimeCallError as error:
            return self._failed(pod, about, "RunContainerError", error.reason)
        self._tools.tell_lifecycle(pod, about.started())
        if not self._tools.runtime.makes_cgroups:
            await self._compare_score(pod, container, about, container_id, resources.oom_score_adj)
        hook = container.lifecycle.post_start if container.lifecycle is not None else None
        if (
            hook is not None
            and not (await self.hook(container, container_id, sandbox_id, hook, HOOK_MOST_S)).is_success
        ):
            self._tools.tell_lifecycle(pod, about.post_start_failed())
            message = f"FailedPostStartHook: container {container.name}"
            self._tools.tell_lifecycle(pod, about.killing("FailedPostStartHook"))
            await self._tools.runtime.stop_container(container_id, 2.0)
            return StartFailure("PostStartHookError", message)
        return None

    async def _compare_score(
        self, pod: RunPod, container: RunContainer, about: ContainerEvents, container_id: str, want: int
    ) -> None:
        """Said once where this machine does not let us have it: a negative one takes a capability."""
        parts = await self._tools.view.pod(pod.metadata.uid)
        pid = next((each.pid for each in parts.containers if each.id == container_id and each.phase == "running"), 0)
        have = oom_score_adj(pid) if pid else None
        if have is None or have == want or container.name in self._scores_told:
            return
        self._scores_told.add(container.name)
        why = "lowering it needs CAP_SYS_RESOURCE" if have > want else "the process has changed it"
        message = f"oom_score_adj of container {container.name}: want {want}, have {have} ({why})"
        self._tools.tell(pod, "Warning", SCORE_NOT_SET, message, about.created().field_path)

    async def _made(
        self,
        pod: RunPod,
        container: RunContainer,
        start: Start,
        image: Image,
        sandbox: SandboxSpec,
        sandbox_id: str,
        prepared: Prepared,
        cgroup: str,
        resources: CriResources,
    ) -> str:
        profile = self._tools.setting.profile
        found = environment(pod, container, prepared.config_maps, prepared.surroundings, profile=profile)
        for note in found.notes:
            self._tools.tell(pod, "Warning", note.reason, note.message)
        mounts = self._tools.volumes.mounts(pod, container, prepared.volumes.by_name, found.variables)
        spec = container_spec(
            pod,
            container,
            start.attempt,
            image,
            found.variables,
            mounts,
            prepared.place,
            pod_ips=prepared.surroundings.pod_ips,
            resources=resources,
            cgroup=cgroup,
        )
        return await self._tools.runtime.make_container(sandbox, sandbox_id, spec)

    # --- images ---

    def look_for_images(self, pod: RunPod, starts: Iterable[Start]) -> None:
        """From now on, while the runtime makes the sandbox; `start` waits for the answer, `look_no_more` gives up."""
        for start in starts:
            container = container_named(pod, start.name)
            if container is not None and not start.resume_id and start.name not in self._ahead:
                about = ContainerEvents(container.name, self._tools.setting.profile, is_init=start.is_init)
                self._ahead[start.name] = asyncio.create_task(self._image(pod, container, about))

    async def look_no_more(self) -> None:
        looking = list(self._ahead.values())
        self._ahead.clear()
        for each in looking:
            each.cancel()
        if looking:
            await asyncio.gather(*looking, return_exceptions=True)

    async def _image(self, pod: RunPod, container: RunContainer, about: ContainerEvents) -> Image:
        """Told as a kubelet tells it; the embedded runtime has what it has, and never pulls."""
        tools, name, has_command = self._tools, container.image, bool(container.command)
        runtime, policy = tools.runtime, container.image_pull_policy
        if not runtime.makes_cgroups:
            image = await runtime.image(name, has_command=has_command, pull=policy != "Never")
            tools.tell_lifecycle(pod, about.present(name))
        else:
            image = await self._pulled(pod, container, about)
        if image.note and name not in self._ignored_told:
            self._ignored_told.add(name)
            field_path = about.created().field_path
            tools.tell(pod, "Normal", IMAGE_IGNORED, image.note, field_path)
        return image

    async def _pulled(self, pod: RunPod, container: RunContainer, about: ContainerEvents) -> Image:
        tools, name, has_command = self._tools, container.image, bool(container.command)
        policy = container.image_pull_policy
        if policy != "Always" or tools.keeps_images:
            try:
                image = await tools.runtime.image(name, has_command=has_command, pull=False)
            except ImageError:
                if policy == "Never":
                    raise ImageError(name, never_pull_message(name), ERR_NEVER_PULL) from None
            else:
                tools.tell_lifecycle(pod, about.present(name))
                return image
        tools.tell_lifecycle(pod, about.pulling(name))
        begun_s = time.monotonic()
        image = await tools.runtime.image(name, has_command=has_command, pull=True)
        took_s = time.monotonic() - begun_s
        tools.tell_lifecycle(pod, about.pulled(name, took_s, took_s, image.size_bytes))
        return image

    def _image_trouble(
        self, pod: RunPod, container: RunContainer, about: ContainerEvents, error: ImageError
    ) -> StartFailure:
        if error.reason == ERR_NEVER_PULL:
            self._tools.tell_lifecycle(pod, about.never_pulled(container.image))
        else:
            self._tools.tell_lifecycle(pod, about.pull_failed(container.image, error.message))
        self._tools.tell_lifecycle(pod, about.start_failed(error.reason))
        return StartFailure(error.reason, error.message)

    def _failed(self, pod: RunPod, about: ContainerEvents, reason: str, why: str) -> StartFailure:
        self._tools.tell_lifecycle(pod, about.start_failed(why))
        return StartFailure(reason, why)

    # --- hooks ---

    async def hook(
        self, container: RunContainer, container_id: str, sandbox_id: str, hook: Hook, timeout_s: float
    ) -> ProbeResult:
        if hook.sleep is not None:
            await asyncio.sleep(min(hook.sleep.seconds, timeout_s))
            return ProbeResult(True)
        place = ProbePlace(self._tools.runtime, sandbox_id, container_id, container, "", self._tools.setting.profile)
        try:
            return await carried_out(place, hook, timeout_s)
        except (PlimsollError, OSError) as error:
            return ProbeResult(False, _words(error))


def _words(error: PlimsollError | OSError) -> str:
    return str(error) or type(error).__name__
