"""The status of a running pod, as read (reported before) and as written (to report now).

`codec.lean.runnable.status_document` converts it to a document, without absent fields.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.model.objects import Condition, ContainerState, ContainerStatus, Int, Int32, Lean, PodStatus

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


class VolumeMountStatus(Lean, frozen=True, gc=False):
    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    recursive_read_only: str | None = None


class Waiting(Lean, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class Running(Lean, frozen=True, gc=False):
    started_at: str | None = None


class Terminated(Lean, frozen=True, gc=False):
    exit_code: Int32 = 0
    signal: Int32 = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(name="containerID", default="")


class RunState(ContainerState, frozen=True, gc=False):
    """At most one of the three; none at all means waiting."""

    waiting: Waiting | None = None
    running: Running | None = None  # type: ignore[assignment]  # ContainerState only needs its presence
    terminated: Terminated | None = None


NO_STATE = RunState()


class RunContainerStatus(ContainerStatus, frozen=True, gc=False):
    state: RunState = NO_STATE
    last_state: RunState = NO_STATE
    ready: bool = False
    restart_count: Int32 = 0
    image: str = ""
    image_id: str = msgspec.field(name="imageID", default="")
    container_id: str = msgspec.field(name="containerID", default="")
    started: bool | None = None
    volume_mounts: tuple[VolumeMountStatus, ...] | None = None  # 1.31 and later: the actual mounts
    user: dict[str, object] | None = None
    allocated_resources_status: tuple[dict[str, object], ...] | None = None
    stop_signal: str | None = None


class RunCondition(Condition, frozen=True, gc=False):
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    observed_generation: Int = 0


class IpAddress(Lean, frozen=True, gc=False):
    ip: str = ""


class RunStatus(PodStatus, frozen=True, gc=False):
    observed_generation: Int = 0
    reason: str = ""
    message: str = ""
    host_ip: str = msgspec.field(name="hostIP", default="")
    host_ips: tuple[IpAddress, ...] = msgspec.field(name="hostIPs", default=())
    pod_ip: str = msgspec.field(name="podIP", default="")
    pod_ips: tuple[IpAddress, ...] = msgspec.field(name="podIPs", default=())
    conditions: tuple[RunCondition, ...] = ()
    container_statuses: tuple[RunContainerStatus, ...] = ()
    init_container_statuses: tuple[RunContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[RunContainerStatus, ...] = ()
