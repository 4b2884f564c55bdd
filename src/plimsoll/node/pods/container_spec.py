"""Builds the runtime's `SandboxSpec` and `ContainerSpec` from a pod and what was resolved for it.

The only place that spells labels, annotations and log paths (03 §12). It also writes a few small files that containers
get as mounts: /etc/hosts; /etc/hostname and /etc/resolv.conf if the runtime creates none; and the file for the
termination message.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from plimsoll.errors import ContainerConfigError
from plimsoll.linux.machine import text_or_empty
from plimsoll.node.devices.cdi_files import DIRECTORIES, host_edits
from plimsoll.node.devices.messages import ContainerAllocateResponse
from plimsoll.node.volumes.pod_dirs import (
    checked_label,
    checked_uid,
    container_log,
    log_directory,
    make_files_directory,
    make_message_file,
    write_file,
)
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.devices.cdi import CdiEdits, CdiError
from plimsoll.rules.lifecycle.environment import expanded
from plimsoll.rules.lifecycle.host_files import Dns, NodeNames, dns_of, hostname, hosts_text, pod_dns, resolv_text
from plimsoll.rules.lifecycle.security_context import LOCALHOST, Abilities, sandbox_values, security_values
from plimsoll.rules.model.objects import Metadata
from plimsoll.rules.model.runnable import DEFAULT_MESSAGE_PATH, RunContainer, RunPod, grace_period_s
from plimsoll.rules.node.security_admission import sysctls
from plimsoll.runtime.interface import (
    ContainerDevice,
    ContainerMount,
    ContainerSpec,
    CriResources,
    Image,
    PortMapping,
    SandboxSpec,
    Security,
)

NO_DEVICES = ContainerAllocateResponse()
POD_NAME, POD_NAMESPACE, POD_UID = "io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
CONTAINER_HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
GRACE_PERIOD = "io.kubernetes.pod.terminationGracePeriod"


class NodePaths(msgspec.Struct, frozen=True):
    """The node's directories and names. `makes_etc`: the agent writes /etc/hostname and /etc/resolv.conf, because the
    embedded runtime does not; CRI runtimes create their own. `bounds_files`: what containers write to these files is
    limited. `seccomp_default`: for containers without a profile. `stop_signals`: those of the manifests count.
    `default_sysctls`: of pods that have the namespace of their own. `cdi`: directories of CDI files."""

    state: Path
    logs: Path
    names: NodeNames = NodeNames()
    makes_etc: bool = True
    bounds_files: bool = False
    seccomp_default: str = "RuntimeDefault"
    stop_signals: bool = True
    default_sysctls: dict[str, str] = {}
    cdi: tuple[str, ...] = DIRECTORIES
    abilities: Abilities = Abilities()


def node_names(config: KubeletConfig) -> NodeNames:
    """This machine's hostname and /etc/hosts, and the DNS configuration of pods."""
    own = dns_of(text_or_empty(config.resolv_conf)) if config.resolv_conf else Dns()
    hosts = text_or_empty("/etc/hosts")
    return NodeNames(
        os.uname().nodename, hosts, own, config.cluster_dns, config.cluster_domain or NodeNames().cluster_domain
    )


def sandbox_spec(pod: RunPod, attempt: int, cgroup_parent: str, paths: NodePaths) -> SandboxSpec:
    metadata, spec = pod.metadata, pod.spec
    return SandboxSpec(
        pod_uid=checked_uid(metadata.uid),
        name=metadata.name,
        namespace=metadata.namespace,
        attempt=attempt,
        hostname=hostname(pod, paths.names.hostname, paths.names.cluster_domain),
        host_network=spec.host_network,
        host_pid=spec.host_pid,
        host_ipc=spec.host_ipc,
        share_process_namespace=spec.share_process_namespace,
        log_directory=str(log_directory(paths.logs, metadata)),
        cgroup_parent=cgroup_parent,
        labels={**(metadata.labels or {}), **_pod_labels(metadata)},
        annotations=metadata.annotations or {},
        privileged=any(_is_privileged(container) for container in (*spec.init_containers, *spec.containers)),
        security=Security(**msgspec.structs.asdict(sandbox_values(pod))),
        sysctls=sysctls(pod, paths.default_sysctls),
        dns=pod_dns(pod, paths.names),
        ports=() if spec.host_network else _port_mappings(pod),
    )


def _port_mappings(pod: RunPod) -> tuple[PortMapping, ...]:
    """The hostPorts, for the runtime's network to forward."""
    return tuple(
        PortMapping(port.container_port, port.host_port, port.protocol or "TCP", port.host_ip)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for port in container.ports
        if port.host_port
    )


def _is_privileged(container: RunContainer) -> bool:
    return container.security_context is not None and bool(container.security_context.privileged)


def container_spec(
    pod: RunPod,
    container: RunContainer,
    attempt: int,
    image: Image,
    environment: Mapping[str, str],
    mounts: tuple[ContainerMount, ...],
    paths: NodePaths,
    *,
    pod_ips: tuple[str, ...] = (),
    resources: CriResources | None = None,
    cgroup: str = "",
    target_id: str = "",
    devices: ContainerAllocateResponse = NO_DEVICES,
) -> ContainerSpec:
    """`mounts`: of its volumes; `devices`: what device plugins add.

    Raises ContainerConfigError, and OSError if a file cannot be written."""
    name = checked_label(container.name, "container")
    security = security_values(pod, container, image.user, paths.abilities)
    if security.user is None and image.user is not None:  # a group can only be set together with a user
        security = msgspec.structs.replace(security, user=image.user)
    security = msgspec.structs.replace(security, seccomp=_seccomp(security.seccomp, paths))
    command = tuple(expanded(word, environment) for word in container.command)
    args = tuple(expanded(word, environment) for word in container.args)
    if any("\0" in word for word in (*command, *args, container.working_dir)):
        raise ContainerConfigError("command, args and workingDir must not contain a zero byte")
    message_path = container.termination_message_path or DEFAULT_MESSAGE_PATH
    own = _own_mounts(pod, name, attempt, message_path, pod_ips, paths, read_only=security.read_only_root)
    edits = _cdi_edits(devices, paths)
    plugged = (
        *(ContainerMount(each.host_path, each.container_path, each.read_only) for each in devices.mounts),
        *(ContainerMount(each.host_path, each.container_path, each.read_only) for each in edits.mounts),
    )
    everything = mounts
    for more in (own, plugged):
        taken = {mount.container_path for mount in everything}
        everything = (*everything, *(mount for mount in more if mount.container_path not in taken))
    lifecycle = container.lifecycle
    return ContainerSpec(
        name=name,
        attempt=attempt,
        image=container.image,
        image_ref=image.ref,
        command=command,
        args=args,
        working_dir=container.working_dir,
        environment={**devices.envs, **environment, **edits.environment},
        devices=(
            *(ContainerDevice(each.host_path, each.container_path, each.permissions) for each in devices.devices),
            *(ContainerDevice(each.host_path, each.container_path, each.permissions) for each in edits.nodes),
        ),
        cdi_devices=tuple(each.name for each in devices.cdi_devices),
        mounts=tuple(sorted(everything, key=lambda mount: mount.container_path.count("/"))),
        security=Security(**msgspec.structs.asdict(security) | {"groups": (*security.groups, *edits.groups)}),
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        log_path=container_log(name, attempt),
        termination_message_path=message_path,
        stop_signal=(lifecycle.stop_signal or "") if lifecycle is not None and paths.stop_signals else "",
        resources=CriResources() if resources is None else resources,
        cgroup=cgroup,
        target_id=target_id,
        labels={**_pod_labels(pod.metadata), CONTAINER_NAME: name},
        annotations={
            **devices.annotations,
            CONTAINER_HASH: container_hash(container),
            RESTART_COUNT: str(attempt),
            MESSAGE_PATH: message_path,
            MESSAGE_POLICY: container.termination_message_policy,
            GRACE_PERIOD: str(grace_period_s(pod)),
        },
    )


def _cdi_edits(devices: ContainerAllocateResponse, paths: NodePaths) -> CdiEdits:
    """CRI runtimes read the machine's CDI files themselves; for the embedded one the agent does. Raises
    ContainerConfigError."""
    if not devices.cdi_devices or not paths.makes_etc:
        return CdiEdits()
    try:
        return host_edits((each.name for each in devices.cdi_devices), paths.cdi)
    except CdiError as error:
        raise ContainerConfigError(str(error)) from error


def _seccomp(profile: str, paths: NodePaths) -> str:
    """Localhost profiles are files below `seccomp` in the node's state, as below the kubelet's root directory."""
    if not profile.startswith(LOCALHOST):
        return profile or paths.seccomp_default
    name = profile.removeprefix(LOCALHOST)
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise ContainerConfigError(f"seccompProfile.localhostProfile: {name!r} is not a relative path without '..'")
    return f"{LOCALHOST}{paths.state / 'seccomp' / name}"


def container_hash(container: RunContainer) -> str:
    """Over name and image only, so that changed resources never make another container (FNV-1a, 32 bits)."""
    value = 0x811C9DC5
    for byte in json.dumps([container.name, container.image]).encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:x}"


def _pod_labels(metadata: Metadata) -> dict[str, str]:
    return {POD_NAME: metadata.name, POD_NAMESPACE: metadata.namespace, POD_UID: metadata.uid}


def _own_mounts(
    pod: RunPod,
    container: str,
    attempt: int,
    message_path: str,
    pod_ips: tuple[str, ...],
    paths: NodePaths,
    *,
    read_only: bool,
) -> tuple[ContainerMount, ...]:
    etc = make_files_directory(paths.state, pod.metadata.uid, bounded=paths.bounds_files) / "etc"
    texts = {"hosts": hosts_text(pod, paths.names, pod_ips)}
    if paths.makes_etc:
        texts["hostname"] = hostname(pod, paths.names.hostname, paths.names.cluster_domain) + "\n"
        texts["resolv.conf"] = resolv_text(pod_dns(pod, paths.names))
    for name, text in texts.items():
        write_file(etc / name, text)
    message = make_message_file(paths.state, pod.metadata.uid, container, attempt)
    return (
        *(ContainerMount(str(etc / name), f"/etc/{name}", read_only) for name in texts),
        ContainerMount(str(message), _message_target(message_path)),
    )


def _message_target(path: str) -> str:
    names = [name for name in path.split("/") if name not in ("", ".")]
    if not names or ".." in names or "\0" in path:
        raise ContainerConfigError(f"terminationMessagePath {path!r}: not a path inside the container, or with '..'")
    return "/" + "/".join(names)
