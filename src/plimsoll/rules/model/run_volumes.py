"""The volumes of a pod, with what mounting them needs. Kinds that this node refuses are kept as in the document."""

from __future__ import annotations

import msgspec

from plimsoll.rules.model.objects import EmptyDir, Int, Int32, Lean
from plimsoll.rules.quantity import Quantity

RefusedField = dict[str, object]  # a setting of which only the presence matters


class ObjectField(Lean, frozen=True, gc=False):
    field_path: str = ""
    api_version: str = ""


class ResourceField(Lean, frozen=True, gc=False):
    resource: str = ""
    container_name: str = ""
    divisor: Quantity | None = None


class VolumeMount(Lean, frozen=True, gc=False):
    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str | None = None
    recursive_read_only: str | None = None


class HostPath(Lean, frozen=True, gc=False):
    path: str = ""
    type: str = ""


class KeyToPath(Lean, frozen=True, gc=False):
    key: str = ""
    path: str = ""
    mode: Int32 | None = None


class ConfigMapVolume(Lean, frozen=True, gc=False):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool = False


class SecretVolume(Lean, frozen=True, gc=False):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool = False


class ImageVolume(Lean, frozen=True, gc=False):
    reference: str = ""
    pull_policy: str = ""


class DownwardFile(Lean, frozen=True, gc=False):
    path: str = ""
    field_ref: ObjectField | None = None
    resource_field_ref: ResourceField | None = None
    mode: Int32 | None = None


class DownwardApiVolume(Lean, frozen=True, gc=False):
    items: tuple[DownwardFile, ...] = ()
    default_mode: Int32 | None = None


class DownwardProjection(Lean, frozen=True, gc=False):
    items: tuple[DownwardFile, ...] = ()


class TokenProjection(Lean, frozen=True, gc=False):
    """A token of the pod's service account, for an audience."""

    audience: str = ""
    expiration_seconds: Int = 3600
    path: str = ""


class BundleProjection(Lean, frozen=True, gc=False):
    """Certificates of one ClusterTrustBundle, or of all of a signer that match."""

    name: str | None = None
    signer_name: str | None = None
    label_selector: RefusedField | None = None
    optional: bool = False
    path: str = ""


class Projection(Lean, frozen=True, gc=False):
    """One source of a projected volume; most pods have one for the service account token."""

    config_map: ConfigMapVolume | None = None
    downward_api: DownwardProjection | None = msgspec.field(name="downwardAPI", default=None)
    secret: ConfigMapVolume | None = None
    service_account_token: TokenProjection | None = None
    cluster_trust_bundle: BundleProjection | None = None
    pod_certificate: RefusedField | None = None


class ProjectedVolume(Lean, frozen=True, gc=False):
    sources: tuple[Projection, ...] = ()
    default_mode: Int32 | None = None


class ClaimVolume(Lean, frozen=True, gc=False):
    claim_name: str = ""
    read_only: bool = False


class RunVolume(Lean, frozen=True, gc=False):
    """The fields of `objects.Volume` with their contents, for mounting; `volume_kind` names the one that is set."""

    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    config_map: ConfigMapVolume | None = None
    downward_api: DownwardApiVolume | None = msgspec.field(name="downwardAPI", default=None)
    projected: ProjectedVolume | None = None
    secret: SecretVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: RefusedField | None = None
    csi: RefusedField | None = None
    image: ImageVolume | None = None
    nfs: RefusedField | None = None
    iscsi: RefusedField | None = None
    fc: RefusedField | None = None
    rbd: RefusedField | None = None
    cephfs: RefusedField | None = None
    cinder: RefusedField | None = None
    glusterfs: RefusedField | None = None
    flocker: RefusedField | None = None
    quobyte: RefusedField | None = None
    storageos: RefusedField | None = None
    git_repo: RefusedField | None = None
    flex_volume: RefusedField | None = None
    azure_disk: RefusedField | None = None
    azure_file: RefusedField | None = None
    vsphere_volume: RefusedField | None = None
    portworx_volume: RefusedField | None = None
    scale_io: RefusedField | None = msgspec.field(name="scaleIO", default=None)
    gce_persistent_disk: RefusedField | None = None
    photon_persistent_disk: RefusedField | None = None
    aws_elastic_block_store: RefusedField | None = None


_KNOWN_BY = {each.name: each.encode_name for each in msgspec.structs.fields(RunVolume) if each.name != "name"}


def volume_kind(volume: RunVolume) -> str:
    """As in the manifest (`emptyDir`, `persistentVolumeClaim`); "" if no known kind is set."""
    for field, wire in _KNOWN_BY.items():
        if getattr(volume, field) is not None:
            return wire
    return ""
