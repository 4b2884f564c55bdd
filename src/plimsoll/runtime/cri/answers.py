"""CRI's answers as the agent's values. `info` is JSON in the runtime's own form; any field may be missing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from plimsoll.rules.eviction.usage import FsUsage
from plimsoll.rules.model.cgroup_names import Driver
from plimsoll.runtime.cri import image_messages as im
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.requests import POD_UID
from plimsoll.runtime.interface import (
    ContainerPhase,
    ContainerUser,
    CriResources,
    Image,
    ObservedContainer,
    ObservedSandbox,
    RuntimeFeatures,
)

T = TypeVar("T", bound=msgspec.Struct)
PHASES: dict[int, ContainerPhase] = {m.CREATED: "created", m.RUNNING: "running", m.EXITED: "exited"}
_SECOND = 1e9
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_START_ERROR = "StartError"  # containerd's
_REFUSED_BY_OCI = ("OCI runtime", "runc create failed", "crun:")  # the OCI runtime tried: no such command, and so on
_UNSAID = ("Completed", "Error")  # these add nothing to the exit code
_NOT_READY = {"RuntimeReady": "container runtime not ready", "NetworkReady": "container runtime network not ready"}


class Health(msgspec.Struct, frozen=True):
    """The runtime's conditions; `error` in short, `sentences` as a kubelet reports them on its Node."""

    runtime_ready: bool
    network_ready: bool
    error: str = ""
    sentences: tuple[str, ...] = ()


class StoredImage(msgspec.Struct, frozen=True):
    ref: str
    names: tuple[str, ...]  # tags, then digests, as a Node's status lists them
    size_bytes: int
    pinned: bool = False


class Filesystems(msgspec.Struct, frozen=True):
    """Mount points; empty where the runtime does not report them."""

    images: str = ""
    containers: str = ""  # of writable layers


class _Linux(msgspec.Struct):
    cgroup_parent: str = ""


class _Config(msgspec.Struct):
    linux: _Linux = msgspec.field(default_factory=_Linux)


class Inside(msgspec.Struct):
    """The `info` of a sandbox or container: containerd and CRI-O both report the pid."""

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


def _read(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        return kind()


def inside(info: dict[str, str]) -> Inside:
    return _read(info.get("info", "{}"), Inside)


def sandbox_seen(listed: m.PodSandbox, status: m.PodSandboxStatusResponse | None) -> ObservedSandbox:
    metadata = listed.metadata or m.PodSandboxMetadata()
    network = status.status.network if status is not None and status.status is not None else None
    info = inside(status.info) if status is not None else Inside()
    return ObservedSandbox(
        id=listed.id,
        pod_uid=metadata.uid,
        name=metadata.name,
        namespace=metadata.namespace,
        attempt=metadata.attempt,
        ready=listed.state == m.SANDBOX_READY,
        created_s=listed.created_at / _SECOND,
        ip=_reachable(network.ip) if network is not None else "",
        lacks_ip=network is not None and not network.ip,
        cgroup_parent=info.config.linux.cgroup_parent if info.config is not None else "",
    )


def _reachable(ip: str) -> str:
    """A pod with only a loopback interface has no address that others could use."""
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
        cri_resources=resources_from(status),
        user=_user(status),
        stop_signal=m.SIGNAL_NAMES.get(status.stop_signal, ""),
    )


def _user(status: m.ContainerStatus) -> ContainerUser | None:
    linux = status.user.linux if status.user is not None else None
    return None if linux is None else ContainerUser(linux.uid, linux.gid, linux.supplemental_groups)


def never_began(status: m.ContainerStatus) -> bool:
    """A start that was interrupted because the agent or the runtime ended: the runtime undoes it and reports an exit.
    Nothing has run, so the same attempt may be created again. A refusal by the OCI runtime is different: the manifest
    is at fault, and it is reported as an exit."""
    tried = any(words in status.message for words in _REFUSED_BY_OCI) and "context canceled" not in status.message
    failed = status.state == m.EXITED and status.reason == _START_ERROR and not status.started_at
    return failed and not tried


def health_from(answer: m.StatusResponse) -> Health:
    conditions = {condition.type: condition for condition in (answer.status.conditions if answer.status else ())}
    runtime, network = (conditions.get(name, m.RuntimeCondition()) for name in _NOT_READY)
    failed = [condition for condition in conditions.values() if not condition.status]
    return Health(
        runtime.status,
        network.status,
        "; ".join(f"{condition.type}: {condition.reason} {condition.message}".strip() for condition in failed),
        tuple(
            f"{_NOT_READY[row.type]}: {row.type}=false reason:{row.reason} message:{row.message}"
            for row in failed
            if row.type in _NOT_READY
        ),
    )


def features_from(answer: m.StatusResponse, name: str, version: str) -> RuntimeFeatures:
    """Older runtimes report none. containerd mounts images since 2.1, CRI-O since 1.31."""
    first = {"containerd": (2, 1), "cri-o": (1, 31)}.get(name)
    found = _VERSION.match(version)
    reported = answer.features or m.RuntimeFeatures()
    handlers = [(each.name, each.features or m.RuntimeHandlerFeatures()) for each in answer.runtime_handlers]
    return RuntimeFeatures(
        strict_groups=reported.supplemental_groups_policy,
        handlers=tuple(name for name, _ in handlers),
        user_namespaces=frozenset(name for name, features in handlers if features.user_namespaces),
        recursive_read_only=frozenset(name for name, features in handlers if features.recursive_read_only_mounts),
        image_volumes=first is not None and found is not None and (int(found[1]), int(found[2])) >= first,
    )


def filesystems_from(answer: im.ImageFsInfoResponse) -> Filesystems:
    return Filesystems(_mount_point(answer.image_filesystems), _mount_point(answer.container_filesystems))


def _mount_point(usages: Iterable[im.FilesystemUsage]) -> str:
    """Kubernetes has one file system for each purpose, the first."""
    return next((usage.fs_id.mountpoint for usage in usages if usage.fs_id is not None and usage.fs_id.mountpoint), "")


def writable_layers_from(answer: im.ListContainerStatsResponse) -> dict[str, FsUsage]:
    """A container that was just started has no figures yet."""
    return {
        stats.attributes.id: FsUsage(
            _number(stats.writable_layer.used_bytes), _number(stats.writable_layer.inodes_used)
        )
        for stats in answer.stats
        if stats.attributes is not None and stats.writable_layer is not None
    }


def _number(value: m.UInt64Value | None) -> int | None:
    return None if value is None else value.value


def image_found(image: im.CriImage, info: dict[str, str]) -> Image:
    config = _read(info.get("info", "{}"), _ImageInfo).spec.config
    return Image(
        ref=image.id,
        size_bytes=image.size,
        user=image.uid.value if image.uid is not None else None,
        runs=" ".join([*(config.entrypoint or ()), *(config.command or ())]),
    )


def resources_from(status: m.ContainerStatus) -> CriResources | None:
    """None where the runtime does not report them (03 §9)."""
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
        hugepage_limits={limit.page_size: limit.limit for limit in linux.hugepage_limits},
        unified=linux.unified,
    )


def driver_from(answer: m.RuntimeConfigResponse) -> Driver | None:
    if answer.linux is None:
        return None
    return "systemd" if answer.linux.cgroup_driver == m.SYSTEMD else "cgroupfs"


def _configured(info: dict[str, str]) -> _RuntimeConfig:
    """containerd before 2.0 shows its configuration in Status."""
    return _read(info.get("config", "{}"), _RuntimeConfig)


def sandbox_image_configured(info: dict[str, str]) -> str:
    """The image of sandboxes, where the runtime reports it; newer ones pin it."""
    return _configured(info).sandbox_image


def driver_configured(info: dict[str, str], handler: str = "") -> Driver | None:
    """So that a mismatch is found before a pod is created in the wrong place."""
    containerd = _configured(info).containerd
    used = containerd.runtimes.get(handler or containerd.default) if containerd is not None else None
    if used is None:
        return None
    return "systemd" if used.options is not None and used.options.systemd else "cgroupfs"
