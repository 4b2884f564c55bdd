"""Volumes whose files come from the API: ConfigMaps, the downward API, and projected volumes.

A volume and the objects that it refers to determine its files. Messages are the kubelet's. Sources that this node does
not support (secrets, claims, …) are refused with the field's name, so that no pod waits without a message. Only the
service account token of a projected volume is omitted with a warning: nearly every pod of a cluster has one and few
read it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

import msgspec

from plimsoll.errors import ContainerConfigError, PlimsollError, StructuredError
from plimsoll.rules.gotext import quoted
from plimsoll.rules.lifecycle.environment import (
    ConfigMaps,
    EnvironmentNote,
    Surroundings,
    field_value,
    not_found,
    resource_value,
)
from plimsoll.rules.model.runnable import (
    ConfigMap,
    ConfigMapVolume,
    DownwardFile,
    KeyToPath,
    ProjectedVolume,
    RunPod,
    RunVolume,
    containers_of,
    volume_kind,
)

DEFAULT_MODE = 0o644
MADE_FROM_API = ("configMap", "downwardAPI", "projected")
SUPPORTED = ("emptyDir", "hostPath", *MADE_FROM_API)
TOKEN_LEFT_OUT = "ServiceAccountTokenIgnored"

_MAX_PATH_BYTES = 4096


class VolumeError(StructuredError):
    """The volume cannot be set up; `str()` is the message of the event."""

    reason = "FailedMount"

    volume: str
    detail: str

    def __str__(self) -> str:
        return f"MountVolume.SetUp failed for volume {quoted(self.volume)} : {self.detail}"


class VolumeFile(msgspec.Struct, frozen=True):
    path: str  # relative to the volume, without `..`
    data: bytes
    mode: int = DEFAULT_MODE


class VolumeFiles(msgspec.Struct, frozen=True):
    files: tuple[VolumeFile, ...] = ()
    notes: tuple[EnvironmentNote, ...] = ()


def mounted_volumes(pod: RunPod) -> tuple[RunVolume, ...]:
    """Those that a container mounts; others are not set up."""
    wanted = {mount.name for container in containers_of(pod) for mount in container.volume_mounts}
    return tuple(volume for volume in pod.spec.volumes if volume.name in wanted)


def check_kind(volume: RunVolume) -> str:
    """The volume's kind; raises VolumeError for an unsupported one."""
    kind = volume_kind(volume)
    if kind not in SUPPORTED:
        shown = kind or "an unknown kind"
        raise VolumeError(volume.name, f"this node does not support {shown}: use {', '.join(SUPPORTED)}")
    return kind


def volume_files(volume: RunVolume, pod: RunPod, config_maps: ConfigMaps, surroundings: Surroundings) -> VolumeFiles:
    """The current files of a volume from the API; raises VolumeError."""
    files: tuple[VolumeFile, ...] = ()
    notes: tuple[EnvironmentNote, ...] = ()
    try:
        if volume.config_map is not None:
            files = _of_config_map(volume.config_map, config_maps, volume.config_map.default_mode)
        elif volume.downward_api is not None:
            files = _of_downward_api(volume.downward_api.items, pod, surroundings, volume.downward_api.default_mode)
        elif volume.projected is not None:
            files, notes = _of_projected(volume.projected, pod, config_maps, surroundings)
    except (ContainerConfigError, _VolumeFileError) as problem:
        raise VolumeError(volume.name, str(problem)) from None
    by_path = {file.path: file for file in files}  # the last source wins
    _check_no_file_is_a_directory(volume.name, by_path)
    return VolumeFiles(tuple(by_path.values()), notes)


class _VolumeFileError(PlimsollError):
    pass


def _of_config_map(
    volume: ConfigMapVolume, config_maps: ConfigMaps, default_mode: int | None
) -> tuple[VolumeFile, ...]:
    config_map = config_maps.get(volume.name)
    if config_map is None:
        if volume.optional:
            return ()
        raise _VolumeFileError(not_found("configmap", volume.name))
    items = volume.items or tuple(KeyToPath(key, key) for key in _keys(config_map))
    files = []
    for item in items:
        data = _data(config_map, item.key)
        if data is None:
            if volume.optional:
                continue
            raise _VolumeFileError(f"configmap references non-existent config key: {item.key}")
        files.append(_file(item.path, data, item.mode, default_mode))
    return tuple(files)


def _keys(config_map: ConfigMap) -> list[str]:
    return [*(config_map.data or {}), *(config_map.binary_data or {})]


def _data(config_map: ConfigMap, key: str) -> bytes | None:
    text = (config_map.data or {}).get(key)
    if text is not None:
        return text.encode("utf-8", "surrogatepass")
    encoded = (config_map.binary_data or {}).get(key)
    if encoded is None:
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise _VolumeFileError(f"binaryData[{key}] of the config map is not base64") from None


def _of_downward_api(
    items: Iterable[DownwardFile], pod: RunPod, surroundings: Surroundings, default_mode: int | None
) -> tuple[VolumeFile, ...]:
    files = []
    for item in items:
        if item.field_ref is not None:
            text = field_value(pod, item.field_ref.field_path, surroundings)
        elif item.resource_field_ref is not None:
            text = resource_value(pod, None, item.resource_field_ref, surroundings.allocatable)
        else:
            raise _VolumeFileError(f"item {quoted(item.path)} has neither fieldRef nor resourceFieldRef")
        files.append(_file(item.path, text.encode("utf-8", "surrogatepass"), item.mode, default_mode))
    return tuple(files)


def _of_projected(
    volume: ProjectedVolume, pod: RunPod, config_maps: ConfigMaps, surroundings: Surroundings
) -> tuple[tuple[VolumeFile, ...], tuple[EnvironmentNote, ...]]:
    files: list[VolumeFile] = []
    notes: list[EnvironmentNote] = []
    for source in volume.sources:
        if source.config_map is not None:
            files.extend(_of_config_map(source.config_map, config_maps, volume.default_mode))
        elif source.downward_api is not None:
            files.extend(_of_downward_api(source.downward_api.items, pod, surroundings, volume.default_mode))
        elif source.service_account_token is not None:
            path = source.service_account_token.get("path")
            notes.append(
                EnvironmentNote(TOKEN_LEFT_OUT, f"This node does not mount service account tokens: {path} is omitted")
            )
        elif source.secret is not None and source.secret.get("optional") is True:
            continue
        else:
            raise _VolumeFileError(
                "projected volumes support configMap and downwardAPI on this node: remove secret, clusterTrustBundle "
                "and podCertificate"
            )
    return tuple(files), tuple(notes)


def _file(path: str, data: bytes, mode: int | None, default_mode: int | None) -> VolumeFile:
    return VolumeFile(_checked(path), data, _mode(default_mode) if mode is None else _mode(mode))


def _mode(mode: int | None) -> int:
    return DEFAULT_MODE if mode is None else mode & 0o777


def _checked(path: str) -> str:
    """A path inside the volume: names that begin with `..` are reserved for the volume."""
    if not path or "\0" in path or len(path.encode("utf-8", "surrogatepass")) > _MAX_PATH_BYTES:
        raise _VolumeFileError(f"invalid path: must have 1 to {_MAX_PATH_BYTES} bytes, none of them zero")
    if path.startswith("/"):
        raise _VolumeFileError(f"invalid path: must be relative path: {path}")
    if path.startswith(".."):
        raise _VolumeFileError(f"invalid path: must not start with '..': {path}")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names or not names:
        raise _VolumeFileError(f"invalid path: must not contain '..': {path}")
    if any(len(name.encode("utf-8", "surrogatepass")) > 255 for name in names):
        raise _VolumeFileError(f"invalid path: a name has more than 255 bytes: {path}")
    return "/".join(names)


def _check_no_file_is_a_directory(volume: str, by_path: dict[str, VolumeFile]) -> None:
    for path in by_path:
        above = path.rpartition("/")[0]
        while above:
            if above in by_path:
                raise VolumeError(volume, f"{above} is both a file and a directory")
            above = above.rpartition("/")[0]
