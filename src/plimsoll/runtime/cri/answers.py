"""What CRI answers, as the agent's values. `info` is JSON of the runtime's own making, and may lack anything."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.rules.eviction.usage import FsUsage
from plimsoll.rules.model.cgroup_names import Driver
from plimsoll.runtime.cri import image_messages as im
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.requests import POD_UID
from plimsoll.runtime.interface import ContainerPhase, CriResources, Image, ObservedContainer, ObservedSandbox

PHASES: dict[int, ContainerPhase] = {m.CREATED: "created", m.RUNNING: "running", m.EXITED: "exited"}
_SECOND = 1e9
_START_ERROR = "StartError"  # containerd's
_REFUSED_BY_OCI = ("OCI runtime", "runc create failed", "crun:")  # it was tried in earnest: no such command, and so on
_UNSAID = ("Completed", "Error")  # no more than the exit code says
_NOT_READY = {"RuntimeReady": "container runtime not ready", "NetworkReady": "container runtime network not ready"}


class Health(msgspec.Struct, frozen=True):
    """What the runtime says of itself; `trouble` in short, `sentences` as a kubelet puts them on its Node."""

    runtime_ready: bool
    network_ready: bool
    trouble: str = ""
    sentences: tuple[str, ...] = ()


class StoredImage(msgspec.Struct, frozen=True):
    ref: str
    names: tuple[str, ...]  # tags, then digests, as a Node's status lists them
    size_bytes: int
    pinned: bool = False


class Filesystems(msgspec.Struct, frozen=True):
    """Mount points; empty where the runtime does not tell."""

    images: str = ""
    containers: str = ""  # of writable layers


class _Linux(msgspec.Struct):
    cgroup_parent: str = ""


class _Config(msgspec.Struct):
    linux: _Linux = msgspec.field(default_factory=_Linux)


class Inside(msgspec.Struct):
    """Of the `info` of a sandbox or container: containerd and CRI-O both tell the pid."""

    pid: int = 0
    config: _Config | None = None


class _ImageConfig(msgspec.Struct):
    entrypoint: list[str] | None = msgspec.field(default=None, name="Entrypoint")
    command: list[str] | None = msgspec.field(default=None, name="Cmd")


class _ImageSpec(msgspec.Struct):
    config: _ImageConfig = msgspec.field(default_factory=_ImageConfig)


class _ImageInfo(msgspec.Struct):
    spec: _ImageSpec = msgspec.field(default_factory=_ImageSpec, name="imageSpec")


class _Options(msgspec.Struct):
    systemd: bool = msgspec.field(default=False, name="SystemdCgroup")


class _Handler(msgspec.Struct):
    options: _Options | None = None


class _Containerd(msgspec.Struct):
    default: str = msgspec.field(default="", name="defaultRuntimeName")
    runtimes: dict[str, _Handler] = {}


class _RuntimeConfig(msgspec.Struct):
    containerd: _Containerd | None = None
    sandbox_image: str = msgspec.field(default="", name="sandboxImage")


def inside(info: dict[str, str]) -> Inside:
    try:
        return msgspec.json.decode(info.get("info", "{}"), type=Inside)
    except msgspec.MsgspecError:
        return Inside()


def sandbox_seen(listed: m.PodSandbox, status: m.PodSandboxStatusResponse | None) -> ObservedSandbox:
    metadata = listed.metadata or m.PodSandboxMetadata()
    network = status.status.network if status is not None and status.status is not None else None
    told = inside(status.info) if status is not None else Inside()
    return ObservedSandbox(
        id=listed.id,
        pod_uid=metadata.uid,
        name=metadata.name,
        namespace=metadata.namespace,
        attempt=metadata.attempt,
        ready=listed.state == m.SANDBOX_READY,
        created_s=listed.created_at / _SECOND,
        ip=_reachable(network.ip) if network is not None else "",
        cgroup_parent=told.config.linux.cgroup_parent if told.config is not None else "",
    )


def _reachable(ip: str) -> str:
    """A pod that has loopback alone has no address that anybody else could use."""
    return "" if ip.startswith("127.") or ip == "::1" else ip


def container_seen(listed: m.Container, answer: m.ContainerStatusResponse) -> ObservedContainer:
    metadata, status = listed.metadata or m.ContainerMetadata(), answer.status or m.ContainerStatus()
    image = status.image or listed.image or m.ImageSpec()
    return ObservedContainer(
        id=listed.id,
        sandbox_id=listed.pod_sandbox_id,
        pod_uid=listed.labels.get(POD_UID, ""),
        name=metadata.name,
        attempt=metadata.attempt,
        phase=PHASES.get(status.state, "unknown"),
        image=image.user_specified_image or image.image,
        image_id=status.image_ref or listed.image_ref,
        created_s=status.created_at / _SECOND,
        started_s=status.started_at / _SECOND,
        finished_s=status.finished_at / _SECOND,
        exit_code=status.exit_code,
        reason="" if status.reason in _UNSAID else status.reason,
        message=status.message,
        pid=inside(answer.info).pid if status.state == m.RUNNING else 0,
        log_file=status.log_path,
        annotations=listed.annotations,
        cri_resources=resources_told(status),
    )


def never_began(status: m.ContainerStatus) -> bool:
    """A start that was cut off, with the agent that asked for it or with the runtime itself: it ends what was begun, or
    later finds half of it, and calls that an exit. Nothing has run, and it may be made again as the same one. What the
    OCI runtime has refused is another matter: that is the manifest's fault, and told as an end."""
    tried = any(words in status.message for words in _REFUSED_BY_OCI) and "context canceled" not in status.message
    failed = status.state == m.EXITED and status.reason == _START_ERROR and not status.started_at
    return failed and not tried


def health_told(answer: m.StatusResponse) -> Health:
    conditions = {each.type: each for each in (answer.status.conditions if answer.status else ())}
    runtime, network = (conditions.get(each, m.RuntimeCondition()) for each in _NOT_READY)
    failed = [each for each in conditions.values() if not each.status]
    return Health(
        runtime.status,
        network.status,
        "; ".join(f"{each.type}: {each.reason} {each.message}".strip() for each in failed),
        tuple(
            f"{_NOT_READY[each.type]}: {each.type}=false reason:{each.reason} message:{each.message}"
            for each in failed
            if each.type in _NOT_READY
        ),
    )


def filesystems_told(answer: im.ImageFsInfoResponse) -> Filesystems:
    return Filesystems(_mount_point(answer.image_filesystems), _mount_point(answer.container_filesystems))


def _mount_point(told: Iterable[im.FilesystemUsage]) -> str:
    """Kubernetes knows one file system for each purpose, and takes the first."""
    return next((each.fs_id.mountpoint for each in told if each.fs_id is not None and each.fs_id.mountpoint), "")


def layers_told(answer: im.ListContainerStatsResponse) -> dict[str, FsUsage]:
    """Of a container that was just started nothing is told yet."""
    return {
        each.attributes.id: FsUsage(_number(each.writable_layer.used_bytes), _number(each.writable_layer.inodes_used))
        for each in answer.stats
        if each.attributes is not None and each.writable_layer is not None
    }


def _number(told: m.UInt64Value | None) -> int | None:
    return None if told is None else told.value


def image_found(image: im.CriImage, info: dict[str, str]) -> Image:
    try:
        config = msgspec.json.decode(info.get("info", "{}"), type=_ImageInfo).spec.config
    except msgspec.MsgspecError:
        config = _ImageConfig()
    return Image(
        ref=image.id,
        size_bytes=image.size,
        user=image.uid.value if image.uid is not None else None,
        runs=" ".join([*(config.entrypoint or ()), *(config.command or ())]),
    )


def resources_told(status: m.ContainerStatus) -> CriResources | None:
    """None where the runtime does not tell (03 §9)."""
    linux = status.resources.linux if status.resources is not None else None
    if linux is None:
        return None
    return CriResources(
        cpu_shares=linux.cpu_shares,
        cpu_quota_us=linux.cpu_quota,
        cpu_period_us=linux.cpu_period,
        memory_limit_bytes=linux.memory_limit_in_bytes,
        memory_swap_limit_bytes=linux.memory_swap_limit_in_bytes,
        oom_score_adj=linux.oom_score_adj,
        cpuset_cpus=linux.cpuset_cpus,
        cpuset_mems=linux.cpuset_mems,
        hugepage_limits={each.page_size: each.limit for each in linux.hugepage_limits},
        unified=linux.unified,
    )


def driver_told(answer: m.RuntimeConfigResponse) -> Driver | None:
    if answer.linux is None:
        return None
    return "systemd" if answer.linux.cgroup_driver == m.SYSTEMD else "cgroupfs"


def _configured(info: dict[str, str]) -> _RuntimeConfig:
    """containerd before 2.0 shows its configuration in Status."""
    try:
        return msgspec.json.decode(info.get("config", "{}"), type=_RuntimeConfig)
    except msgspec.MsgspecError:
        return _RuntimeConfig()


def sandbox_image_configured(info: dict[str, str]) -> str:
    """The image of sandboxes, where the runtime tells; newer ones pin it."""
    return _configured(info).sandbox_image


def driver_configured(info: dict[str, str], handler: str = "") -> Driver | None:
    """So that a mismatch is known before a pod is misplaced."""
    containerd = _configured(info).containerd
    used = containerd.runtimes.get(handler or containerd.default) if containerd is not None else None
    if used is None:
        return None
    return "systemd" if used.options is not None and used.options.systemd else "cgroupfs"
