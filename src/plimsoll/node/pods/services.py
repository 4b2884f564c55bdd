"""What the workers of all pods share: the runtime, the cgroups, the checkpoint and the node's other parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.pods.container_spec import NodePaths
from plimsoll.node.pods.credential_plugins import CredentialPlugins
from plimsoll.node.pods.runtime_classes import RuntimeClasses
from plimsoll.node.pods.service_links import ServiceLinks
from plimsoll.node.pods.status import PodReports
from plimsoll.node.reporting.event_recorder import PodEvents
from plimsoll.node.resize.queue import Resizes
from plimsoll.node.resources.container_cgroups import ContainerCgroups
from plimsoll.node.resources.cpu_manager import CpuPinning
from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.resources.resource_managers import ResourceManagers
from plimsoll.node.resources.user_namespaces import UserNamespaces
from plimsoll.node.volumes.object_cache import ObjectCache
from plimsoll.node.volumes.volumes import Volumes
from plimsoll.rules.lifecycle.environment import Surroundings
from plimsoll.rules.model.observed import ObservedPod, PodActions, SyncState
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import Profile
from plimsoll.runtime.interface import Runtime

ComputeActions = Callable[[RunPod, ObservedPod, SyncState, float], PodActions]


class NodeServices(msgspec.Struct, frozen=True):
    """`keeps_images`: a present image is never pulled again, whatever its policy."""

    config: NodeConfig
    runtime: Runtime
    view: RuntimeView
    checkpoint: Checkpoint
    cgroups: PodCgroups
    containers: ContainerCgroups
    managers: ResourceManagers
    pinning: CpuPinning
    resizes: Resizes
    volumes: Volumes
    objects: ObjectCache
    users: UserNamespaces
    service_links: ServiceLinks
    runtime_classes: RuntimeClasses
    paths: NodePaths
    surroundings: Surroundings
    events: PodEvents
    reports: PodReports
    meters: NodeMeters
    compute_actions: ComputeActions
    clock: Callable[[], float]
    keeps_images: bool
    plugins: CredentialPlugins | None = None
    pulls: asyncio.Semaphore | None = None  # how many images are pulled at one time; None: any number

    @property
    def profile(self) -> Profile:
        return self.config.profile

    @property
    def is_remote(self) -> bool:
        """A daemon behind CRI, which also pulls images and assigns addresses; its calls take longer."""
        return self.runtime.makes_cgroups

    def pod_ips(self, pod: RunPod, observed: ObservedPod) -> tuple[str, ...]:
        sandbox = observed.sandbox()
        if sandbox is not None and sandbox.ip:
            return (sandbox.ip,)
        return self.surroundings.host_ips if pod.spec.host_network else ()
