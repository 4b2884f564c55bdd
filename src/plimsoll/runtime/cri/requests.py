"""The agent's requests as CRI messages (03 §12)."""

from __future__ import annotations

import msgspec

from plimsoll.codec.protobuf.structs import Unsigned
from plimsoll.rules.lifecycle.security_context import LOCALHOST
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.interface import ContainerSpec, CriResources, SandboxSpec, Security

POD_NAME, POD_NAMESPACE, POD_UID = "io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
RESTART_COUNT = "io.kubernetes.container.restartCount"
TERMINATION_MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"

# A runtime masks only what the request lists: the kubelet's lists for containers without privileges.
MASKED_PATHS = (
    "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
)  # fmt: skip
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def sandbox_config(spec: SandboxSpec) -> m.PodSandboxConfig:
    return m.PodSandboxConfig(
        metadata=m.PodSandboxMetadata(name=spec.name, uid=spec.pod_uid, namespace=spec.namespace, attempt=spec.attempt),
        hostname="" if spec.host_network else spec.hostname,
        log_directory=spec.log_directory,
        labels={**spec.labels, **_pod_labels(spec)},
        annotations=dict(spec.annotations),
        linux=m.LinuxPodSandboxConfig(
            cgroup_parent=spec.cgroup_parent,
            security_context=m.LinuxSandboxSecurityContext(
                namespace_options=namespaces(spec), privileged=spec.privileged
            ),
        ),
    )


def container_config(sandbox: SandboxSpec, spec: ContainerSpec) -> m.ContainerConfig:
    annotations = {RESTART_COUNT: str(spec.attempt)}
    if spec.termination_message_path:
        annotations[TERMINATION_MESSAGE_PATH] = spec.termination_message_path
    return m.ContainerConfig(
        metadata=m.ContainerMetadata(name=spec.name, attempt=spec.attempt),
        image=m.ImageSpec(image=spec.image_ref or spec.image, user_specified_image=spec.image),
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_dir,
        envs=tuple(m.KeyValue(key=key, value=value.encode()) for key, value in spec.environment.items()),
        mounts=tuple(
            m.CriMount(container_path=mount.container_path, host_path=mount.host_path, readonly=mount.read_only)
            for mount in spec.mounts
        ),
        labels={**spec.labels, **_pod_labels(sandbox), CONTAINER_NAME: spec.name},
        annotations={**annotations, **spec.annotations},
        log_path=spec.log_path,
        stdin=spec.stdin,
        stdin_once=spec.stdin_once,
        tty=spec.tty,
        linux=m.LinuxContainerConfig(
            resources=linux_resources(spec.resources),
            security_context=security_context(sandbox, spec.security, spec.target_id),
        ),
        stop_signal=m.SIGNALS.get(spec.stop_signal, 0),
    )


def linux_resources(resources: CriResources) -> m.LinuxContainerResources:
    return m.LinuxContainerResources(
        cpu_period=resources.cpu_period_us,
        cpu_quota=resources.cpu_quota_us,
        cpu_shares=resources.cpu_shares,
        memory_limit_in_bytes=resources.memory_limit_bytes,
        oom_score_adj=resources.oom_score_adj,
        cpuset_cpus=resources.cpuset_cpus,
        cpuset_mems=resources.cpuset_mems,
        hugepage_limits=tuple(
            m.HugepageLimit(page_size=size, limit=Unsigned(limit)) for size, limit in resources.hugepage_limits.items()
        ),
        unified=dict(resources.unified),
        memory_swap_limit_in_bytes=resources.memory_swap_limit_bytes,
    )


def security_context(sandbox: SandboxSpec, security: Security, target_id: str = "") -> m.LinuxContainerSecurityContext:
    # CRI takes a group only beside a user; the agent resolves the image's user, without one it is root.
    user = 0 if security.user is None and security.group is not None else security.user
    return m.LinuxContainerSecurityContext(
        capabilities=m.Capability(
            add_capabilities=security.add_capabilities, drop_capabilities=security.drop_capabilities
        ),
        privileged=security.privileged,
        namespace_options=namespaces(sandbox, target_id),
        run_as_user=None if user is None else m.Int64Value(value=user),
        run_as_group=None if security.group is None else m.Int64Value(value=security.group),
        readonly_rootfs=security.read_only_root,
        supplemental_groups=security.groups,
        no_new_privs=security.no_new_privileges and not security.privileged,
        masked_paths=() if security.privileged else MASKED_PATHS,
        readonly_paths=() if security.privileged else READONLY_PATHS,
        seccomp=None if security.privileged else seccomp_profile(security.seccomp),
    )


def seccomp_profile(profile: str) -> m.SecurityProfile:
    if profile.startswith(LOCALHOST):
        return m.SecurityProfile(profile_type=2, localhost_ref=profile.removeprefix(LOCALHOST))
    return m.SecurityProfile(profile_type=0 if profile == "RuntimeDefault" else 1)


def namespaces(spec: SandboxSpec, target_id: str = "") -> m.NamespaceOption:
    """`target_id`: the container whose processes are seen; pods that share theirs see all of them anyway."""
    if target_id and not (spec.host_pid or spec.share_process_namespace):
        return msgspec.structs.replace(namespaces(spec), pid=m.TARGET, target_id=target_id)
    return m.NamespaceOption(
        network=m.NODE if spec.host_network else m.POD,
        pid=m.NODE if spec.host_pid else m.POD if spec.share_process_namespace else m.CONTAINER,
        ipc=m.NODE if spec.host_ipc else m.POD,
    )


def _pod_labels(spec: SandboxSpec) -> dict[str, str]:
    return {POD_NAME: spec.name, POD_NAMESPACE: spec.namespace, POD_UID: spec.pod_uid}
