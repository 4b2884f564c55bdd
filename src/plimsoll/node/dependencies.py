"""What every pod's worker works with: one set of these for the whole agent."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from plimsoll.kube.client import Client
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.reporting.event_correlator import EventType, ObjectReference
from plimsoll.node.reporting.event_recorder import Recorder
from plimsoll.node.reporting.status_manager import Reporter
from plimsoll.node.resources.cpu_manager import CpuManager, CpuPinning
from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.sources.mirror_pods import Mirror
from plimsoll.node.volumes.config_maps import ConfigMapCache
from plimsoll.node.volumes.volumes import Volumes
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.lifecycle.backoff import BackoffLimits, limits_with_max
from plimsoll.rules.lifecycle.environment import Surroundings
from plimsoll.rules.lifecycle.host_files import NodeNames, dns_of
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.runtime.interface import ContainerRuntime

log = logging.getLogger(__name__)


class NodePaths(msgspec.Struct, frozen=True):
    """Where the node keeps things, and what it knows of names. `makes_etc`: the runtime leaves /etc/hostname and
    /etc/resolv.conf to us (the embedded one does, those behind CRI make their own)."""

    state: Path
    logs: Path
    names: NodeNames = NodeNames()
    makes_etc: bool = True


class Dependencies:
    def __init__(
        self,
        *,
        setting: NodeConfig,
        runtime: ContainerRuntime,
        view: RuntimeView,
        cgroups: PodCgroups,
        checkpoint: Checkpoint,
        cpus: CpuManager,
        recorder: Recorder,
        reporter: Reporter,
        client: Client,
        state_dir: Path,
        node_name: str,
        node_ip: str,
        clock: Callable[[], float],
        unenforced: str,
        meters: NodeMeters,
        keeps_images: bool = False,
        hidden: Sequence[Path] = (),
    ) -> None:
        """`keeps_images`: an image that is there is never pulled again, whatever its policy says. `hidden`: what no
        hostPath may show, besides the state directory."""
        self.setting, self.runtime, self.view, self.cgroups = setting, runtime, view, cgroups
        self.checkpoint, self.recorder, self.reporter, self.client = checkpoint, recorder, reporter, client
        self.state_dir, self.node_name, self.node_ip, self.clock = state_dir, node_name, node_ip, clock
        self.unenforced, self.keeps_images = unenforced, keeps_images
        self.cpus, self.meters = cpus, meters
        self.mirror_of: Callable[[str], Mirror | None] = lambda _uid: None  # of a static pod, by its uid
        self.pinning = CpuPinning(cpus, cgroups, runtime, view, setting.config.cpu_manager_reconcile_period_s)
        self.logs = state_dir / "logs"
        self.volumes = Volumes(state_dir, hidden)
        self.config_maps = ConfigMapCache(client, clock)
        self.place = NodePaths(state_dir, self.logs, node_names(), makes_etc=not runtime.makes_cgroups)
        self.gates = setting.policy.gates
        self.limits = backoff_limits(setting.config)
        self.surroundings = Surroundings(host_ips=(node_ip,), allocatable=setting.allocatable)

    def tell(
        self,
        pod: RunPod,
        kind: EventType,
        reason: str,
        message: str,
        field_path: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self.recorder.record(about(pod, field_path), kind, reason, message, annotations)

    def tell_lifecycle(self, pod: RunPod, event: LifecycleEvent) -> None:
        self.tell(pod, event.type, event.reason, event.message, event.field_path)


def about(pod: RunPod, field_path: str = "") -> ObjectReference:
    meta = pod.metadata
    return ObjectReference("Pod", meta.name, meta.namespace, meta.uid, meta.resource_version, "v1", field_path)


def backoff_limits(config: KubeletConfig) -> BackoffLimits:
    return limits_with_max(config.crash_loop_max_period_s)


def node_names() -> NodeNames:
    """What this machine calls itself and others."""
    return NodeNames(os.uname().nodename, _text("/etc/hosts"), dns_of(_text("/etc/resolv.conf")))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""
