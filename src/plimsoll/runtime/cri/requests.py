"""The agent's requests as CRI messages (03 §12)."""

from __future__ import annotations

import msgspec

from plimsoll.codec.protobuf.structs import Unsigned
from plimsoll.linux.masked_paths import READ_ONLY, masked_paths
from plimsoll.rules.lifecycle.host_files import Dns
from plimsoll.rules.lifecycle.security_context import LOCALHOST
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.interface import (
    ContainerMount,
    ContainerSpec,
    CriResources,
    SandboxSpec,
    Security,
    UserRange,
)

POD_NAME, POD_NAMESPACE, POD_UID = "io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
RESTART_COUNT = "io.kubernetes.container.restartCount"
_PROTOCOLS = {"TCP": 0, "UDP": 1, "SCTP": 2}
TERMINATION_MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"


def sandbox_config(spec: SandboxSpec) -> m.PodSandboxConfig:
    return m.PodSandboxConfig(
        metadata=m.PodSandboxMetadata(name=spec.name, uid=spec.pod_uid, namespace=spec.namespace, attempt=spec.attempt),
        hostname="" if spec.host_network else spec.hostname,
        log_directory=spec.log_directory,
        dns_config=_dns(spec.dns),
        port_mappings=tuple(
            m.PortMapping(_PROTOCOLS[port.protocol], port.container_port, port.host_port, port.host_ip)
            for port in spec.ports
        ),
        labels={**spec.labels, **_pod_labels(spec)},
        annotations=dict(spec.annotations),
        linux=m.LinuxPodSandboxConfig(
            cgroup_parent=spec.cgroup_parent,
            security_context=m.LinuxSandboxSecurityContext(
                namespace_options=namespaces(spec),
                selinux_options=_selinux(spec.security),
                run_as_user=_number(spec.security.user if spec.security.group is None else spec.security.user or 0),
                run_as_group=_number(spec.security.group),
                supplemental_groups=spec.security.groups,
                supplemental_groups_policy=_groups_policy(spec.security),
                privileged=spec.privileged,
                seccomp=security_profile("RuntimeDefault"),
            ),
            sysctls=dict(spec.sysctls),
        ),
    )


def _dns(dns: Dns) -> m.DNSConfig | None:
    """None: the runtime copies the machine's resolv.conf."""
    return m.DNSConfig(dns.servers, dns.searches, dns.options) if dns != Dns() else None


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
        mounts=tuple(_mount(mount, sandbox.users, relabel=bool(spec.security.se_linux)) for mount in spec.mounts),
        devices=tuple(m.CriDevice(each.container_path, each.host_path, each.permissions) for each in spec.devices),
        CDI_devices=tuple(m.CDIDevice(name) for name in spec.cdi_devices),
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
    is_open = security.privileged or security.unmasked_proc  # a runtime masks only what the request lists
    return m.LinuxContainerSecurityContext(
        capabilities=m.Capability(
            add_capabilities=security.add_capabilities, drop_capabilities=security.drop_capabilities
        ),
        privileged=security.privileged,
        namespace_options=namespaces(sandbox, target_id),
        selinux_options=_selinux(security),
        run_as_user=_number(user),
        run_as_group=_number(security.group),
        readonly_rootfs=security.read_only_root,
        supplemental_groups=security.groups,
        supplemental_groups_policy=_groups_policy(security),
        no_new_privs=security.no_new_privileges and not security.privileged,
        masked_paths=() if is_open else masked_paths(),
        readonly_paths=() if is_open else READ_ONLY,
        seccomp=None if security.privileged else security_profile(security.seccomp),
        apparmor=security_profile(security.app_armor) if security.app_armor else None,
        apparmor_profile=_app_armor_name(security.app_armor),
    )


def _mount(mount: ContainerMount, users: UserRange | None, *, relabel: bool) -> m.CriMount:
    if mount.image:
        return m.CriMount(
            container_path=mount.container_path,
            readonly=True,
            image=m.ImageSpec(image=mount.image),
            image_sub_path=mount.image_sub_path,
        )
    mappings = _mappings(users)
    return m.CriMount(
        container_path=mount.container_path,
        host_path=mount.host_path,
        readonly=mount.read_only,
        selinux_relabel=relabel,
        propagation=m.PROPAGATION[mount.propagation],
        uidMappings=mappings,
        gidMappings=mappings,
        recursive_read_only=mount.recursive_read_only,
    )


def _number(value: int | None) -> m.Int64Value | None:
    return None if value is None else m.Int64Value(value=value)


def _selinux(security: Security) -> m.SELinuxOption | None:
    options = security.se_linux
    if options is None:
        return None
    return m.SELinuxOption(user=options.user, role=options.role, type=options.type, level=options.level)


def _groups_policy(security: Security) -> int:
    return m.STRICT if security.groups_policy == "Strict" else m.MERGE


def _mappings(users: UserRange | None) -> tuple[m.IDMapping, ...]:
    if users is None:
        return ()
    return (m.IDMapping(host_id=users.first, length=users.length),)


def _app_armor_name(profile: str) -> str:
    """As runtimes before CRI's field 16 have it."""
    return {"RuntimeDefault": "runtime/default", "Unconfined": "unconfined"}.get(profile, profile)


def security_profile(profile: str) -> m.SecurityProfile:
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
        userns_options=None
        if spec.users is None
        else m.UserNamespace(mode=m.POD, uids=_mappings(spec.users), gids=_mappings(spec.users)),
    )


def _pod_labels(spec: SandboxSpec) -> dict[str, str]:
    return {POD_NAME: spec.name, POD_NAMESPACE: spec.namespace, POD_UID: spec.pod_uid}
