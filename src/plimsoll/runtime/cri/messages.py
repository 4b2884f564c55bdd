"""The messages of CRI (package `runtime.v1`) that we send and read, with the field numbers of 03 §12.

Only fields that are used are named; the codec skips the others. Enumerations are plain numbers, named below.
Times are nanoseconds since the epoch. See `codec.protobuf.structs` for the notation.
"""

from __future__ import annotations

from typing import Annotated

from plimsoll.codec.protobuf.structs import Unsigned
from plimsoll.runtime.cri.message_parts import CDIDevice, CriDevice, Empty, Int64Value, Message, UInt64Value

__all__ = ["CDIDevice", "CriDevice", "Empty", "Int64Value", "Message", "UInt64Value"]  # the others are defined here
POD, CONTAINER, NODE, TARGET = 0, 1, 2, 3  # NamespaceMode
SANDBOX_READY = 0  # PodSandboxState
CREATED, RUNNING, EXITED, UNKNOWN = 0, 1, 2, 3  # ContainerState
SYSTEMD, CGROUPFS = 0, 1  # CgroupDriver
MERGE, STRICT = 0, 1  # SupplementalGroupsPolicy
PROPAGATION = {"None": 0, "HostToContainer": 1, "Bidirectional": 2}  # MountPropagation
CONTAINERD_NAMESPACE = "k8s.io"  # where containerd keeps what was made through CRI
_IN_ORDER = (
    "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM TRAP "
    "TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ"
)
_REAL_TIME = ("RTMIN", *(f"RTMIN+{n}" for n in range(1, 16)), *(f"RTMAX-{n}" for n in range(14, 0, -1)), "RTMAX")
SIGNALS = {  # 0: the runtime's default
    f"SIG{name}": number for number, name in enumerate((*_IN_ORDER.split(), *_REAL_TIME), start=1)
}
SIGNAL_NAMES = {number: name for name, number in SIGNALS.items()}


# What the runtime is


class VersionRequest(Message, frozen=True):
    version: Annotated[str, 1] = ""


class VersionResponse(Message, frozen=True):
    runtime_name: Annotated[str, 2] = ""
    runtime_version: Annotated[str, 3] = ""
    runtime_api_version: Annotated[str, 4] = ""


class StatusRequest(Message, frozen=True):
    verbose: Annotated[bool, 1] = False


class RuntimeCondition(Message, frozen=True):
    type: Annotated[str, 1] = ""
    status: Annotated[bool, 2] = False
    reason: Annotated[str, 3] = ""
    message: Annotated[str, 4] = ""


class RuntimeStatus(Message, frozen=True):
    conditions: Annotated[tuple[RuntimeCondition, ...], 1] = ()


class RuntimeHandlerFeatures(Message, frozen=True):
    recursive_read_only_mounts: Annotated[bool, 1] = False
    user_namespaces: Annotated[bool, 2] = False


class RuntimeHandler(Message, frozen=True):
    name: Annotated[str, 1] = ""
    features: Annotated[RuntimeHandlerFeatures | None, 2] = None


class RuntimeFeatures(Message, frozen=True):
    supplemental_groups_policy: Annotated[bool, 1] = False


class StatusResponse(Message, frozen=True):
    status: Annotated[RuntimeStatus | None, 1] = None
    info: Annotated[dict[str, str], 2] = {}
    runtime_handlers: Annotated[tuple[RuntimeHandler, ...], 3] = ()
    features: Annotated[RuntimeFeatures | None, 4] = None


class LinuxRuntimeConfiguration(Message, frozen=True):
    cgroup_driver: Annotated[int, 1] = SYSTEMD


class RuntimeConfigResponse(Message, frozen=True):
    linux: Annotated[LinuxRuntimeConfiguration | None, 1] = None


# Resources


class HugepageLimit(Message, frozen=True):
    page_size: Annotated[str, 1] = ""
    limit: Annotated[Unsigned, 2] = Unsigned(0)


class LinuxContainerResources(Message, frozen=True):
    cpu_period: Annotated[int, 1] = 0
    cpu_quota: Annotated[int, 2] = 0
    cpu_shares: Annotated[int, 3] = 0
    memory_limit_in_bytes: Annotated[int, 4] = 0
    oom_score_adj: Annotated[int, 5] = 0
    cpuset_cpus: Annotated[str, 6] = ""
    cpuset_mems: Annotated[str, 7] = ""
    hugepage_limits: Annotated[tuple[HugepageLimit, ...], 8] = ()
    unified: Annotated[dict[str, str], 9] = {}
    memory_swap_limit_in_bytes: Annotated[int, 10] = 0


class ContainerResources(Message, frozen=True):
    linux: Annotated[LinuxContainerResources | None, 1] = None


class UpdateContainerResourcesRequest(Message, frozen=True):
    container_id: Annotated[str, 1] = ""
    linux: Annotated[LinuxContainerResources | None, 2] = None


class UpdatePodSandboxResourcesRequest(Message, frozen=True):
    pod_sandbox_id: Annotated[str, 1] = ""
    resources: Annotated[LinuxContainerResources | None, 3] = None


# Sandboxes


class PodSandboxMetadata(Message, frozen=True):
    name: Annotated[str, 1] = ""
    uid: Annotated[str, 2] = ""
    namespace: Annotated[str, 3] = ""
    attempt: Annotated[int, 4] = 0


class IDMapping(Message, frozen=True):
    host_id: Annotated[int, 1] = 0
    container_id: Annotated[int, 2] = 0
    length: Annotated[int, 3] = 0


class UserNamespace(Message, frozen=True):
    mode: Annotated[int, 1] = POD
    uids: Annotated[tuple[IDMapping, ...], 2] = ()
    gids: Annotated[tuple[IDMapping, ...], 3] = ()


class NamespaceOption(Message, frozen=True):
    network: Annotated[int, 1] = POD
    pid: Annotated[int, 2] = POD
    ipc: Annotated[int, 3] = POD
    target_id: Annotated[str, 4] = ""
    userns_options: Annotated[UserNamespace | None, 5] = None


class SELinuxOption(Message, frozen=True):
    user: Annotated[str, 1] = ""
    role: Annotated[str, 2] = ""
    type: Annotated[str, 3] = ""
    level: Annotated[str, 4] = ""


class SecurityProfile(Message, frozen=True):
    profile_type: Annotated[int, 1] = 0  # RuntimeDefault, Unconfined, Localhost
    localhost_ref: Annotated[str, 2] = ""


class LinuxSandboxSecurityContext(Message, frozen=True):
    namespace_options: Annotated[NamespaceOption | None, 1] = None
    selinux_options: Annotated[SELinuxOption | None, 2] = None
    run_as_user: Annotated[Int64Value | None, 3] = None
    supplemental_groups: Annotated[tuple[int, ...], 5] = ()
    privileged: Annotated[bool, 6] = False
    run_as_group: Annotated[Int64Value | None, 8] = None
    seccomp: Annotated[SecurityProfile | None, 9] = None
    supplemental_groups_policy: Annotated[int, 11] = MERGE


class LinuxPodSandboxConfig(Message, frozen=True):
    cgroup_parent: Annotated[str, 1] = ""
    security_context: Annotated[LinuxSandboxSecurityContext | None, 2] = None
    sysctls: Annotated[dict[str, str], 3] = {}


class DNSConfig(Message, frozen=True):
    servers: Annotated[tuple[str, ...], 1] = ()
    searches: Annotated[tuple[str, ...], 2] = ()
    options: Annotated[tuple[str, ...], 3] = ()


class PortMapping(Message, frozen=True):
    protocol: Annotated[int, 1] = 0  # TCP, UDP, SCTP
    container_port: Annotated[int, 2] = 0
    host_port: Annotated[int, 3] = 0
    host_ip: Annotated[str, 4] = ""


class PodSandboxConfig(Message, frozen=True):
    metadata: Annotated[PodSandboxMetadata | None, 1] = None
    hostname: Annotated[str, 2] = ""
    log_directory: Annotated[str, 3] = ""
    dns_config: Annotated[DNSConfig | None, 4] = None
    port_mappings: Annotated[tuple[PortMapping, ...], 5] = ()
    labels: Annotated[dict[str, str], 6] = {}
    annotations: Annotated[dict[str, str], 7] = {}
    linux: Annotated[LinuxPodSandboxConfig | None, 8] = None


class RunPodSandboxRequest(Message, frozen=True):
    config: Annotated[PodSandboxConfig | None, 1] = None
    runtime_handler: Annotated[str, 2] = ""


class RunPodSandboxResponse(Message, frozen=True):
    pod_sandbox_id: Annotated[str, 1] = ""


class SandboxRequest(Message, frozen=True):
    """StopPodSandboxRequest, RemovePodSandboxRequest and PodSandboxStatusRequest."""

    pod_sandbox_id: Annotated[str, 1] = ""


class PodSandboxStatusRequest(SandboxRequest, frozen=True):
    verbose: Annotated[bool, 2] = False


class PodSandboxNetworkStatus(Message, frozen=True):
    ip: Annotated[str, 1] = ""


class PodSandboxStatus(Message, frozen=True):
    id: Annotated[str, 1] = ""
    metadata: Annotated[PodSandboxMetadata | None, 2] = None
    state: Annotated[int, 3] = SANDBOX_READY
    network: Annotated[PodSandboxNetworkStatus | None, 5] = None


class PodSandboxStatusResponse(Message, frozen=True):
    status: Annotated[PodSandboxStatus | None, 1] = None
    info: Annotated[dict[str, str], 2] = {}


class PodSandboxFilter(Message, frozen=True):
    label_selector: Annotated[dict[str, str], 3] = {}


class ListPodSandboxRequest(Message, frozen=True):
    filter: Annotated[PodSandboxFilter | None, 1] = None


class ListPodSandboxResponse(Message, frozen=True):
    items: Annotated[tuple[bytes, ...], 1] = ()  # PodSandbox


class PodSandboxState(Message, frozen=True):
    """A PodSandbox of which only what changes is read."""

    id: Annotated[str, 1] = ""
    state: Annotated[int, 3] = SANDBOX_READY


class PodSandbox(PodSandboxState, frozen=True):
    metadata: Annotated[PodSandboxMetadata | None, 2] = None
    created_at: Annotated[int, 4] = 0
    labels: Annotated[dict[str, str], 5] = {}


# Containers


class ImageSpec(Message, frozen=True):
    image: Annotated[str, 1] = ""
    user_specified_image: Annotated[str, 18] = ""


class KeyValue(Message, frozen=True):
    key: Annotated[str, 1] = ""
    value: Annotated[bytes, 2] = b""


class CriMount(Message, frozen=True):
    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    readonly: Annotated[bool, 3] = False
    selinux_relabel: Annotated[bool, 4] = False
    propagation: Annotated[int, 5] = 0
    uidMappings: Annotated[tuple[IDMapping, ...], 6] = ()
    gidMappings: Annotated[tuple[IDMapping, ...], 7] = ()
    recursive_read_only: Annotated[bool, 8] = False
    image: Annotated[ImageSpec | None, 9] = None
    image_sub_path: Annotated[str, 10] = ""


class Capability(Message, frozen=True):
    add_capabilities: Annotated[tuple[str, ...], 1] = ()
    drop_capabilities: Annotated[tuple[str, ...], 2] = ()


class LinuxContainerSecurityContext(Message, frozen=True):
    capabilities: Annotated[Capability | None, 1] = None
    privileged: Annotated[bool, 2] = False
    namespace_options: Annotated[NamespaceOption | None, 3] = None
    selinux_options: Annotated[SELinuxOption | None, 4] = None
    run_as_user: Annotated[Int64Value | None, 5] = None
    readonly_rootfs: Annotated[bool, 7] = False
    supplemental_groups: Annotated[tuple[int, ...], 8] = ()
    no_new_privs: Annotated[bool, 11] = False
    run_as_group: Annotated[Int64Value | None, 12] = None
    apparmor_profile: Annotated[str, 9] = ""  # for runtimes that do not know field 16
    masked_paths: Annotated[tuple[str, ...], 13] = ()
    readonly_paths: Annotated[tuple[str, ...], 14] = ()
    seccomp: Annotated[SecurityProfile | None, 15] = None
    apparmor: Annotated[SecurityProfile | None, 16] = None
    supplemental_groups_policy: Annotated[int, 17] = MERGE


class LinuxContainerConfig(Message, frozen=True):
    resources: Annotated[LinuxContainerResources | None, 1] = None
    security_context: Annotated[LinuxContainerSecurityContext | None, 2] = None


class ContainerMetadata(Message, frozen=True):
    name: Annotated[str, 1] = ""
    attempt: Annotated[int, 2] = 0


class ContainerConfig(Message, frozen=True):
    metadata: Annotated[ContainerMetadata | None, 1] = None
    image: Annotated[ImageSpec | None, 2] = None
    command: Annotated[tuple[str, ...], 3] = ()
    args: Annotated[tuple[str, ...], 4] = ()
    working_dir: Annotated[str, 5] = ""
    envs: Annotated[tuple[KeyValue, ...], 6] = ()
    mounts: Annotated[tuple[CriMount, ...], 7] = ()
    devices: Annotated[tuple[CriDevice, ...], 8] = ()
    labels: Annotated[dict[str, str], 9] = {}
    annotations: Annotated[dict[str, str], 10] = {}
    log_path: Annotated[str, 11] = ""
    stdin: Annotated[bool, 12] = False
    stdin_once: Annotated[bool, 13] = False
    tty: Annotated[bool, 14] = False
    linux: Annotated[LinuxContainerConfig | None, 15] = None
    CDI_devices: Annotated[tuple[CDIDevice, ...], 17] = ()
    stop_signal: Annotated[int, 18] = 0


class CreateContainerRequest(Message, frozen=True):
    pod_sandbox_id: Annotated[str, 1] = ""
    config: Annotated[ContainerConfig | None, 2] = None
    sandbox_config: Annotated[PodSandboxConfig | None, 3] = None


class CreateContainerResponse(Message, frozen=True):
    container_id: Annotated[str, 1] = ""


class ContainerRequest(Message, frozen=True):
    """StartContainerRequest, RemoveContainerRequest and ReopenContainerLogRequest."""

    container_id: Annotated[str, 1] = ""


class StopContainerRequest(ContainerRequest, frozen=True):
    timeout: Annotated[int, 2] = 0


class ContainerStatusRequest(ContainerRequest, frozen=True):
    verbose: Annotated[bool, 2] = False


class ContainerFilter(Message, frozen=True):
    id: Annotated[str, 1] = ""
    pod_sandbox_id: Annotated[str, 3] = ""


class ListContainersRequest(Message, frozen=True):
    filter: Annotated[ContainerFilter | None, 1] = None


class ListContainersResponse(Message, frozen=True):
    containers: Annotated[tuple[bytes, ...], 1] = ()  # Container


class ContainerState(Message, frozen=True):
    """A Container of which only what changes is read."""

    id: Annotated[str, 1] = ""
    state: Annotated[int, 6] = CREATED


class Container(ContainerState, frozen=True):
    pod_sandbox_id: Annotated[str, 2] = ""
    metadata: Annotated[ContainerMetadata | None, 3] = None
    image: Annotated[ImageSpec | None, 4] = None
    image_ref: Annotated[str, 5] = ""
    created_at: Annotated[int, 7] = 0
    labels: Annotated[dict[str, str], 8] = {}
    annotations: Annotated[dict[str, str], 9] = {}


class LinuxContainerUser(Message, frozen=True):
    uid: Annotated[int, 1] = 0
    gid: Annotated[int, 2] = 0
    supplemental_groups: Annotated[tuple[int, ...], 3] = ()


class ContainerUser(Message, frozen=True):
    linux: Annotated[LinuxContainerUser | None, 1] = None


class ContainerStatus(Message, frozen=True):
    id: Annotated[str, 1] = ""
    state: Annotated[int, 3] = CREATED
    created_at: Annotated[int, 4] = 0
    started_at: Annotated[int, 5] = 0
    finished_at: Annotated[int, 6] = 0
    exit_code: Annotated[int, 7] = 0
    image: Annotated[ImageSpec | None, 8] = None
    image_ref: Annotated[str, 9] = ""
    reason: Annotated[str, 10] = ""
    message: Annotated[str, 11] = ""
    log_path: Annotated[str, 15] = ""
    resources: Annotated[ContainerResources | None, 16] = None
    user: Annotated[ContainerUser | None, 18] = None
    stop_signal: Annotated[int, 19] = 0


class ContainerStatusResponse(Message, frozen=True):
    status: Annotated[ContainerStatus | None, 1] = None
    info: Annotated[dict[str, str], 2] = {}


class ContainerEventResponse(Message, frozen=True):
    container_id: Annotated[str, 1] = ""
    container_event_type: Annotated[int, 2] = 0
    pod_sandbox_status: Annotated[PodSandboxStatus | None, 4] = None
