"""The device manager's checkpoint in the kubelet's format: the same fields and the same checksum (DM-15)."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from plimsoll.codec.kernel.go_checksum import CorruptCheckpointError, fnv1a

NO_NODE = -1  # of a device without topology


class DeviceEntry(msgspec.Struct, frozen=True):
    """What one container has of one resource. `ids`: NUMA node → device ids; `response`: the plugin's bytes."""

    pod_uid: str
    container: str
    resource: str
    ids: Mapping[int, tuple[str, ...]]
    response: bytes = b""


class DeviceState(msgspec.Struct, frozen=True):
    entries: tuple[DeviceEntry, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = {}  # resource → its healthy devices


class _Entry(msgspec.Struct):
    PodUID: str
    ContainerName: str
    ResourceName: str
    DeviceIDs: dict[str, list[str]]
    AllocResp: str | None = None


class _Data(msgspec.Struct):
    PodDeviceEntries: list[_Entry] | None = None
    RegisteredDevices: dict[str, list[str]] | None = None


class _File(msgspec.Struct):
    Data: _Data
    Checksum: int


def device_state_json(state: DeviceState) -> bytes:
    entries = [
        {
            "PodUID": each.pod_uid,
            "ContainerName": each.container,
            "ResourceName": each.resource,
            "DeviceIDs": {str(node): list(ids) for node, ids in sorted(each.ids.items())},
            "AllocResp": base64.b64encode(each.response).decode(),
        }
        for each in state.entries
    ]
    registered = {name: list(ids) for name, ids in sorted(state.registered.items())}
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}
    return msgspec.json.encode({"Data": data, "Checksum": checksum(state)})


def device_state_from_json(data: bytes) -> DeviceState:
    try:
        file = msgspec.json.decode(data, type=_File)
        state = DeviceState(
            tuple(
                DeviceEntry(
                    each.PodUID,
                    each.ContainerName,
                    each.ResourceName,
                    {int(node): tuple(ids) for node, ids in each.DeviceIDs.items()},
                    base64.b64decode(each.AllocResp or "", validate=True),
                )
                for each in file.Data.PodDeviceEntries or ()
            ),
            {name: tuple(ids) for name, ids in (file.Data.RegisteredDevices or {}).items()},
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptCheckpointError(str(error)) from None
    if file.Checksum != checksum(state):
        raise CorruptCheckpointError("checkpoint is corrupted")
    return state


def checksum(state: DeviceState) -> int:
    entries = " ".join(
        f"{{PodUID:(string){each.pod_uid} ContainerName:(string){each.container} "
        f"ResourceName:(string){each.resource} DeviceIDs:(checkpoint.DevicesPerNUMA)map[{_by_node(each.ids)}] "
        f"AllocResp:([]uint8)[{' '.join(map(str, each.response))}]}}"
        for each in state.entries
    )
    registered = " ".join(f"{name}:[{' '.join(ids)}]" for name, ids in sorted(state.registered.items()))
    return fnv1a(
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry)[{entries}] "
        f"RegisteredDevices:(map[string][]string)map[{registered}]}}"
    )


def _by_node(ids: Mapping[int, tuple[str, ...]]) -> str:
    return " ".join(f"{node}:[{' '.join(each)}]" for node, each in sorted(ids.items()))
