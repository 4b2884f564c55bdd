"""The messages of NRI (package `nri.pkg.api.v1alpha1`) that we send and read. Unused fields are left out.

A number of NRI's "optional" wrappers is 0 when the wrapper is present and empty; None when it is absent.
See `codec.protobuf.structs` for the notation.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
PLUGIN_CONNECTION, RUNTIME_CONNECTION = 1, 2  # of the multiplexer

# Event: a subscription has bit number − 1 of each.
RUN_POD_SANDBOX, STOP_POD_SANDBOX, REMOVE_POD_SANDBOX = 1, 2, 3
CREATE_CONTAINER, POST_START_CONTAINER, UPDATE_CONTAINER = 4, 7, 8
POST_UPDATE_CONTAINER, STOP_CONTAINER, REMOVE_CONTAINER = 9, 10, 11
CREATED, PAUSED, RUNNING, STOPPED = 1, 2, 3, 4  # ContainerState


class _Message(msgspec.Struct, frozen=True):
    pass


class Empty(_Message, frozen=True):
    pass


class RegisterPluginRequest(_Message, frozen=True):
    plugin_name: Annotated[str, 1] = ""
    plugin_idx: Annotated[str, 2] = ""


class ConfigureRequest(_Message, frozen=True):
    config: Annotated[str, 1] = ""
    runtime_name: Annotated[str, 2] = ""
    runtime_version: Annotated[str, 3] = ""
    registration_timeout_ms: Annotated[int, 4] = 0
    request_timeout_ms: Annotated[int, 5] = 0


class ConfigureResponse(_Message, frozen=True):
    events: Annotated[int, 2] = 0


class OptionalInt(_Message, frozen=True):
    value: Annotated[int, 1] = 0


class LinuxMemory(_Message, frozen=True):
    limit: Annotated[OptionalInt | None, 1] = None
    reservation: Annotated[OptionalInt | None, 2] = None


class LinuxCpu(_Message, frozen=True):
    quota: Annotated[OptionalInt | None, 2] = None


class LinuxResources(_Message, frozen=True):
    memory: Annotated[LinuxMemory | None, 1] = None
    cpu: Annotated[LinuxCpu | None, 2] = None
    unified: Annotated[dict[str, str], 6] = {}


class LinuxPodSandbox(_Message, frozen=True):
    cgroup_parent: Annotated[str, 3] = ""


class PodSandbox(_Message, frozen=True):
    id: Annotated[str, 1] = ""
    name: Annotated[str, 2] = ""
    uid: Annotated[str, 3] = ""
    namespace: Annotated[str, 4] = ""
    linux: Annotated[LinuxPodSandbox | None, 8] = None


class LinuxContainer(_Message, frozen=True):
    resources: Annotated[LinuxResources | None, 3] = None
    oom_score_adj: Annotated[OptionalInt | None, 4] = None
    cgroups_path: Annotated[str, 5] = ""


class Container(_Message, frozen=True):
    id: Annotated[str, 1] = ""
    pod_sandbox_id: Annotated[str, 2] = ""
    name: Annotated[str, 3] = ""
    state: Annotated[int, 4] = 0
    linux: Annotated[LinuxContainer | None, 11] = None
    pid: Annotated[int, 12] = 0


class SynchronizeRequest(_Message, frozen=True):
    pods: Annotated[tuple[PodSandbox, ...], 1] = ()
    containers: Annotated[tuple[Container, ...], 2] = ()
    more: Annotated[bool, 3] = False


class LinuxContainerUpdate(_Message, frozen=True):
    resources: Annotated[LinuxResources | None, 1] = None


class ContainerUpdate(_Message, frozen=True):
    container_id: Annotated[str, 1] = ""
    linux: Annotated[LinuxContainerUpdate | None, 2] = None
    ignore_failure: Annotated[bool, 3] = False


class SynchronizeResponse(_Message, frozen=True):
    update: Annotated[tuple[ContainerUpdate, ...], 1] = ()
    more: Annotated[bool, 2] = False


class ContainerRequest(_Message, frozen=True):
    """Of CreateContainer, UpdateContainer, StopContainer and RemoveContainer; the last field is that of an update."""

    pod: Annotated[PodSandbox | None, 1] = None
    container: Annotated[Container | None, 2] = None
    linux_resources: Annotated[LinuxResources | None, 3] = None


class LinuxContainerAdjustment(_Message, frozen=True):
    resources: Annotated[LinuxResources | None, 2] = None
    oom_score_adj: Annotated[OptionalInt | None, 4] = None


class ContainerAdjustment(_Message, frozen=True):
    linux: Annotated[LinuxContainerAdjustment | None, 6] = None


class CreateContainerResponse(_Message, frozen=True):
    adjust: Annotated[ContainerAdjustment | None, 1] = None
    update: Annotated[tuple[ContainerUpdate, ...], 2] = ()


class UpdateContainerResponse(_Message, frozen=True):
    update: Annotated[tuple[ContainerUpdate, ...], 1] = ()


class StateChangeEvent(_Message, frozen=True):
    event: Annotated[int, 1] = 0
    pod: Annotated[PodSandbox | None, 2] = None
    container: Annotated[Container | None, 3] = None


class UpdateContainersRequest(_Message, frozen=True):
    update: Annotated[tuple[ContainerUpdate, ...], 1] = ()


class UpdateContainersResponse(_Message, frozen=True):
    failed: Annotated[tuple[ContainerUpdate, ...], 1] = ()


def unified_update(container_id: str, unified: dict[str, str], *, may_fail: bool = True) -> ContainerUpdate:
    """`may_fail`: the request does not fail, and containerd does not say that this one did."""
    return ContainerUpdate(container_id, LinuxContainerUpdate(LinuxResources(unified=unified)), may_fail)
