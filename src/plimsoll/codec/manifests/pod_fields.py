"""What becomes of every field of a pod's spec: honoured, refused, or accepted without effect.

The schema (`codec.schema`) has all fields. Those that the structs of the rules (`RunPod`) decode are honoured, unless
`EXCEPTIONS` says otherwise; a field that is in neither is UNKNOWN, and a test fails. docs/pod-fields.md lists them all.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from plimsoll.codec.schema.schema import struct
from plimsoll.rules.model.runnable import RunSpec

Treatment = Literal["honoured", "refused", "no effect", "unknown"]

_VOLUME = "the node does not support the volume: `FailedMount` names what to use"
_GONE = "Kubernetes does not support it any longer; `FailedMount`"

EXCEPTIONS: dict[str, tuple[Treatment, str]] = {
    "core.PodSpec.serviceAccount": ("honoured", "the old name of serviceAccountName; the API server keeps both equal"),
    "core.PodSpec.schedulerName": ("honoured", "a pod of another scheduler is not bound by this one"),
    "core.PodSpec.schedulingGates": ("honoured", "the pod is not scheduled until all are removed"),
    "core.PodSpec.automountServiceAccountToken": (
        "honoured",
        "by the API server, which adds the volume with the token to a new pod",
    ),
    "core.PodSpec.schedulingGroup": ("no effect", "a `Warning:` header says so; each pod is scheduled by itself"),
    "core.PodSpec.resourceClaims": (
        "refused",
        "by the API server, which has no ResourceClaims; by a node of another control plane: "
        "`CreateContainerConfigError`",
    ),
    "core.ResourceRequirements.claims": ("refused", "as `resourceClaims` of the pod, to which they refer"),
    "core.Container.volumeDevices": ("refused", "`CreateContainerConfigError`: block devices are not supported"),
    "core.Container.image": (
        "honoured",
        "by the embedded runtime only for containers without a command (event `ImageIgnored`)",
    ),
    "core.ContainerPort.hostPort": (
        "honoured",
        "with hostNetwork; without it the scheduler keeps the port free, and a CRI runtime forwards it where its CNI "
        "configuration has a plug-in for it; the embedded runtime does not: a `Warning:` header, and event `NoEffect`",
    ),
    "core.EphemeralContainer.volumeDevices": ("refused", "the API server allows none for ephemeral containers"),
    "core.EphemeralContainer.restartPolicyRules": ("refused", "the API server allows none for ephemeral containers"),
    "core.EnvVarSource.fileKeyRef": ("honoured", "with EnvFiles (1.35: on); `CreateContainerConfigError` without it"),
    "core.VolumeProjection.podCertificate": ("refused", "`FailedMount`"),
    "core.ClusterTrustBundleProjection.labelSelector": ("honoured", "in the request for the bundles of a signer"),
    "core.ObjectFieldSelector.apiVersion": ("no effect", "there is one version, `v1`"),
    "core.PodSecurityContext.windowsOptions": ("no effect", "it means nothing on Linux, as in Kubernetes"),
    "core.SecurityContext.windowsOptions": ("no effect", "it means nothing on Linux, as in Kubernetes"),
    "core.PodSecurityContext.fsGroupChangePolicy": (
        "no effect",
        "as in Kubernetes for the kinds of volumes that this node supports",
    ),
    "core.PodSecurityContext.seLinuxChangePolicy": (
        "no effect",
        "as in Kubernetes for the kinds of volumes that this node supports",
    ),
    **{
        f"core.Volume.{kind}": ("refused", _VOLUME)
        for kind in ("ephemeral", "csi", "nfs", "iscsi", "fc", "flexVolume", "portworxVolume")
    },
    **{
        f"core.Volume.{kind}": ("refused", _GONE)
        for kind in (
            "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "glusterfs", "rbd", "cinder", "cephfs", "flocker",
            "azureFile", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "scaleIO", "storageos",
        )
    },
}  # fmt: skip


class PodField(msgspec.Struct, frozen=True):
    struct: str  # in the schema: core.PodSpec
    name: str
    treatment: Treatment
    about: str = ""
    attribute: str = ""  # of the struct that decodes it

    @property
    def key(self) -> str:
        return f"{self.struct}.{self.name}"


def pod_fields(spec: type[msgspec.Struct] = RunSpec) -> list[PodField]:
    """Every field below a pod's spec (as `spec` decodes it), by struct; what is below a refused field is not listed."""
    found: dict[str, PodField] = {}
    for field in _walk("core.PodSpec", spec, set()):
        found.setdefault(field.key, field)
    return list(found.values())


def _walk(name: str, lean: Any, seen: set[str]) -> Iterator[PodField]:
    if name in seen:
        return
    seen.add(name)
    is_struct = isinstance(lean, type) and issubclass(lean, msgspec.Struct)
    decoded = {field.encode_name: field for field in msgspec.structs.fields(lean)} if is_struct else {}
    for field in struct(name).fields.values():
        own = decoded.get(field.name)
        attribute = own.name if own is not None else ""
        treatment, about = EXCEPTIONS.get(f"{name}.{field.name}", ("unknown", "") if own is None else ("honoured", ""))
        yield PodField(name, field.name, treatment, about, attribute)
        kind = field.type
        while kind.item is not None:
            kind = kind.item
        inner = None if own is None else _inner(own.type)
        if kind.struct and treatment == "honoured" and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from _walk(kind.struct, inner, seen)


def _inner(hint: Any) -> Any:
    """The struct in `tuple[Container, ...]`, `Probe | None` and the like."""
    while True:
        origin = typing.get_origin(hint)
        arguments = [each for each in typing.get_args(hint) if each is not type(None)]
        if origin in (typing.Union, types.UnionType):
            structs = [each for each in arguments if isinstance(each, type) and issubclass(each, msgspec.Struct)]
            hint = structs[0] if structs else arguments[0]
        elif origin is tuple or origin is typing.Annotated:
            hint = arguments[0]
        else:
            return hint
