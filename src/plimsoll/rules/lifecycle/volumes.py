"""Volumes whose files come from the API: ConfigMaps, Secrets, the downward API, and projected volumes.

A volume and the objects that it refers to determine its files. Messages are the kubelet's. Kinds that this node does
not support (claims, CSI, network file systems, …) are refused with the field's name, so that no pod waits without a
message.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.errors import ContainerConfigError, PlimsollError, StructuredError, quoted
from plimsoll.rules.lifecycle.api_objects import Keyed, PodObjects, bundle_wanted, data_of, not_found, token_wanted
from plimsoll.rules.lifecycle.environment import Surroundings, field_value, resource_value
from plimsoll.rules.lifecycle.security_context import fs_group, only_user
from plimsoll.rules.model.run_volumes import (
    BundleProjection,
    ConfigMapVolume,
    DownwardFile,
    KeyToPath,
    ProjectedVolume,
    RunVolume,
    SecretVolume,
    volume_kind,
)
from plimsoll.rules.model.runnable import RunPod, containers_of

DEFAULT_MODE = 0o644
MADE_FROM_API = ("configMap", "secret", "downwardAPI", "projected")
SUPPORTED = ("emptyDir", "hostPath", *MADE_FROM_API, "image", "persistentVolumeClaim")

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
    user: int | None = None  # its owner; None: root


def mounted_volumes(pod: RunPod) -> tuple[RunVolume, ...]:
    """Those that a container mounts; others are not set up."""
    wanted = {mount.name for container in containers_of(pod) for mount in container.volume_mounts}
    return tuple(volume for volume in pod.spec.volumes if volume.name in wanted)


def check_kind(volume: RunVolume) -> str:
    """The volume's kind; raises VolumeError for one that this node does not support."""
    kind = volume_kind(volume)
    if kind not in SUPPORTED:
        shown = kind or "an unknown kind"
        raise VolumeError(volume.name, f"this node does not support {shown}: use {', '.join(SUPPORTED)}")
    return kind


def volume_files(
    volume: RunVolume, pod: RunPod, objects: PodObjects, surroundings: Surroundings
) -> tuple[VolumeFile, ...]:
    """The current files of a volume from the API; raises VolumeError."""
    files: tuple[VolumeFile, ...] = ()
    try:
        if volume.config_map is not None:
            files = _of_config_map(volume.config_map, objects, volume.config_map.default_mode)
        elif volume.secret is not None:
            files = _of_secret(volume.secret, objects, volume.secret.default_mode)
        elif volume.downward_api is not None:
            files = _of_downward_api(volume.downward_api.items, pod, surroundings, volume.downward_api.default_mode)
        elif volume.projected is not None:
            files = _of_projected(volume.projected, pod, objects, surroundings)
    except (ContainerConfigError, _VolumeFileError) as problem:
        raise VolumeError(volume.name, str(problem)) from None
    by_path = {file.path: file for file in files}  # the last source wins
    _check_no_file_is_a_directory(volume.name, by_path)
    return tuple(by_path.values())


class _VolumeFileError(PlimsollError):
    pass


def _of_config_map(volume: ConfigMapVolume, objects: PodObjects, default_mode: int | None) -> tuple[VolumeFile, ...]:
    found = objects.config_maps.get(volume.name)
    missing_key = "configmap references non-existent config key"
    return _of_keys("configmap", volume.name, found, volume.items, volume.optional, missing_key, default_mode)


def _of_secret(
    volume: SecretVolume | ConfigMapVolume, objects: PodObjects, default_mode: int | None
) -> tuple[VolumeFile, ...]:
    name = volume.secret_name if isinstance(volume, SecretVolume) else volume.name
    missing_key = "references non-existent secret key"
    return _of_keys("secret", name, objects.secrets.get(name), volume.items, volume.optional, missing_key, default_mode)


def _of_keys(
    kind: str,
    name: str,
    found: Keyed | None,
    items: tuple[KeyToPath, ...],
    optional: bool,
    missing_key: str,
    default_mode: int | None,
) -> tuple[VolumeFile, ...]:
    if found is None:
        if optional:
            return ()
        raise _VolumeFileError(not_found(kind, name))
    data = data_of(found, kind)
    files = []
    for item in items or tuple(KeyToPath(key, key) for key in data):
        if item.key in data:
            files.append(_file(item.path, data[item.key], item.mode, default_mode))
        elif not optional:
            raise _VolumeFileError(f"{missing_key}: {item.key}")
    return tuple(files)


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
    volume: ProjectedVolume, pod: RunPod, objects: PodObjects, surroundings: Surroundings
) -> tuple[VolumeFile, ...]:
    files: list[VolumeFile] = []
    for source in volume.sources:
        if source.config_map is not None:
            files.extend(_of_config_map(source.config_map, objects, volume.default_mode))
        elif source.secret is not None:
            files.extend(_of_secret(source.secret, objects, volume.default_mode))
        elif source.downward_api is not None:
            files.extend(_of_downward_api(source.downward_api.items, pod, surroundings, volume.default_mode))
        elif source.service_account_token is not None:
            wanted = token_wanted(source)
            if wanted not in objects.tokens:
                raise _VolumeFileError(objects.token_failures.get(wanted, "failed to fetch token"))
            token = objects.tokens[wanted]
            files.append(_private(source.service_account_token.path, token, pod, volume.default_mode))
        elif source.cluster_trust_bundle is not None:
            anchors = _trust_anchors(source.cluster_trust_bundle, objects)
            files.append(_private(source.cluster_trust_bundle.path, anchors, pod, volume.default_mode))
        else:
            raise _VolumeFileError("podCertificate is not supported by this node: remove the source")
    return tuple(files)


def _trust_anchors(source: BundleProjection, objects: PodObjects) -> str:
    if not source.name and not source.signer_name:
        raise _VolumeFileError("ClusterTrustBundle projection requires either name or signerName to be set")
    anchors = objects.bundles.get(bundle_wanted(source))
    if anchors is None and not source.optional:
        if source.name:
            what = not_found("clustertrustbundle.certificates.k8s.io", source.name)
            raise _VolumeFileError(f"while getting ClusterTrustBundle: {what}")
        raise _VolumeFileError("combination of signerName and labelSelector matched zero ClusterTrustBundles")
    return anchors or ""


def _private(path: str, text: str, pod: RunPod, default_mode: int | None) -> VolumeFile:
    """Of the only user who needs it, where the pod names one, or of the group of its volumes."""
    user = only_user(pod)
    is_private = user is not None or fs_group(pod) is not None
    mode = 0o600 if is_private else _mode(default_mode)
    return VolumeFile(_checked(path), text.encode(), mode, user)


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
