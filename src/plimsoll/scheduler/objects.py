"""What the scheduler watches: the kinds, and the fields of their objects that `rules.model` does not have."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.kube.request import ResourcePath
from plimsoll.rules.scheduling.default_spread import OWNER_KINDS, Owner
from plimsoll.scheduler import messages

LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
BUDGETS = ResourcePath("/apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
NAMESPACES = ResourcePath("/api/v1", "namespaces", "Namespace")
SERVICES = ResourcePath("/api/v1", "services", "Service")
CONTROLLERS = (
    ResourcePath("/api/v1", "replicationcontrollers", "ReplicationController"),
    ResourcePath("/apis/apps/v1", "replicasets", "ReplicaSet"),
    ResourcePath("/apis/apps/v1", "statefulsets", "StatefulSet"),
)
VOLUME_KINDS = (
    ResourcePath("/api/v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ResourcePath("/api/v1", "persistentvolumes", "PersistentVolume"),
    ResourcePath("/apis/storage.k8s.io/v1", "storageclasses", "StorageClass"),
)


class PodClaim(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class PodVolume(msgspec.Struct, frozen=True, rename="camel"):
    persistent_volume_claim: PodClaim | None = None


class SchedulingSpec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = messages.SCHEDULER
    scheduling_gates: list[Any] | None = None
    volumes: tuple[PodVolume, ...] | None = None

    def claim_names(self) -> tuple[str, ...]:
        claims = (each.persistent_volume_claim for each in self.volumes or ())
        return tuple(each.claim_name for each in claims if each is not None)


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class SchedulingMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    owner_references: tuple[OwnerReference, ...] | None = None

    def owner(self) -> Owner | None:
        """The controller, if the pods of its kind are spread."""
        for each in self.owner_references or ():
            if each.controller and (each.api_version, each.kind) in OWNER_KINDS:
                return Owner(each.api_version, each.kind, each.name)
        return None


class ServiceView(msgspec.Struct, frozen=True):
    class Spec(msgspec.Struct, frozen=True):
        selector: dict[str, str] | None = None

    spec: Spec = Spec()


class Labels(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None


class Labelled(msgspec.Struct, frozen=True):
    metadata: Labels = Labels()


class SchedulingFields(msgspec.Struct):
    """The fields that the scheduler needs beyond those of `Pod`."""

    metadata: SchedulingMetadata = SchedulingMetadata()
    spec: SchedulingSpec = SchedulingSpec()
