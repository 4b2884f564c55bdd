"""The messages of the device plugin API v1beta1 (DM-5) and of the PodResources API v1 (PR-1)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from plimsoll.codec.protobuf.structs import Unsigned

VERSION = "v1beta1"
REGISTER = "/v1beta1.Registration/Register"
PLUGIN = "/v1beta1.DevicePlugin/"
LISTER = "/v1.PodResourcesLister/"


class Message(msgspec.Struct, frozen=True):
    pass


class Empty(Message, frozen=True):
    """Requests and answers without fields."""


class DevicePluginOptions(Message, frozen=True):
    pre_start_required: Annotated[bool, 1] = False
    get_preferred_allocation_available: Annotated[bool, 2] = False


class RegisterRequest(Message, frozen=True):
    version: Annotated[str, 1] = ""
    endpoint: Annotated[str, 2] = ""
    resource_name: Annotated[str, 3] = ""


class NumaNode(Message, frozen=True):
    ID: Annotated[int, 1] = 0


class TopologyInfo(Message, frozen=True):
    nodes: Annotated[tuple[NumaNode, ...], 1] = ()


class PluginDevice(Message, frozen=True):
    ID: Annotated[str, 1] = ""
    health: Annotated[str, 2] = ""
    topology: Annotated[TopologyInfo | None, 3] = None


class ListAndWatchResponse(Message, frozen=True):
    devices: Annotated[tuple[PluginDevice, ...], 1] = ()


class ContainerPreferredAllocationRequest(Message, frozen=True):
    available_deviceIDs: Annotated[tuple[str, ...], 1] = ()
    must_include_deviceIDs: Annotated[tuple[str, ...], 2] = ()
    allocation_size: Annotated[int, 3] = 0


class PreferredAllocationRequest(Message, frozen=True):
    container_requests: Annotated[tuple[ContainerPreferredAllocationRequest, ...], 1] = ()


class ContainerPreferredAllocationResponse(Message, frozen=True):
    deviceIDs: Annotated[tuple[str, ...], 1] = ()


class PreferredAllocationResponse(Message, frozen=True):
    container_responses: Annotated[tuple[ContainerPreferredAllocationResponse, ...], 1] = ()


class ContainerAllocateRequest(Message, frozen=True):
    devices_ids: Annotated[tuple[str, ...], 1] = ()


class AllocateRequest(Message, frozen=True):
    container_requests: Annotated[tuple[ContainerAllocateRequest, ...], 1] = ()


class PluginMount(Message, frozen=True):
    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    read_only: Annotated[bool, 3] = False


class DeviceSpec(Message, frozen=True):
    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    permissions: Annotated[str, 3] = ""


class CDIDevice(Message, frozen=True):
    name: Annotated[str, 1] = ""


class ContainerAllocateResponse(Message, frozen=True):
    envs: Annotated[dict[str, str], 1] = {}
    mounts: Annotated[tuple[PluginMount, ...], 2] = ()
    devices: Annotated[tuple[DeviceSpec, ...], 3] = ()
    annotations: Annotated[dict[str, str], 4] = {}
    cdi_devices: Annotated[tuple[CDIDevice, ...], 5] = ()


class AllocateResponse(Message, frozen=True):
    container_responses: Annotated[tuple[bytes, ...], 1] = ()  # each a ContainerAllocateResponse


class PreStartContainerRequest(Message, frozen=True):
    devices_ids: Annotated[tuple[str, ...], 1] = ()


# --- PodResources ---


class ContainerDevices(Message, frozen=True):
    resource_name: Annotated[str, 1] = ""
    device_ids: Annotated[tuple[str, ...], 2] = ()
    topology: Annotated[TopologyInfo | None, 3] = None


class ContainerMemory(Message, frozen=True):
    memory_type: Annotated[str, 1] = ""
    size: Annotated[Unsigned, 2] = Unsigned(0)
    topology: Annotated[TopologyInfo | None, 3] = None


class ContainerResources(Message, frozen=True):
    name: Annotated[str, 1] = ""
    devices: Annotated[tuple[ContainerDevices, ...], 2] = ()
    cpu_ids: Annotated[tuple[int, ...], 3] = ()
    memory: Annotated[tuple[ContainerMemory, ...], 4] = ()


class PodResources(Message, frozen=True):
    name: Annotated[str, 1] = ""
    namespace: Annotated[str, 2] = ""
    containers: Annotated[tuple[ContainerResources, ...], 3] = ()


class ListPodResourcesResponse(Message, frozen=True):
    pod_resources: Annotated[tuple[PodResources, ...], 1] = ()


class AllocatableResourcesResponse(Message, frozen=True):
    devices: Annotated[tuple[ContainerDevices, ...], 1] = ()
    cpu_ids: Annotated[tuple[int, ...], 2] = ()
    memory: Annotated[tuple[ContainerMemory, ...], 3] = ()


class GetPodResourcesRequest(Message, frozen=True):
    pod_name: Annotated[str, 1] = ""
    pod_namespace: Annotated[str, 2] = ""


class GetPodResourcesResponse(Message, frozen=True):
    pod_resources: Annotated[PodResources | None, 1] = None


def topology_of(nodes: tuple[int, ...]) -> TopologyInfo | None:
    return TopologyInfo(tuple(NumaNode(node) for node in nodes)) if nodes else None
