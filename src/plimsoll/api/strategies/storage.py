"""PersistentVolumes, PersistentVolumeClaims, StorageClasses, VolumeAttributesClasses and CSINodes."""

from __future__ import annotations

from plimsoll.api.strategies.base import Strategy, WriteContext
from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.warnings import claim_warnings
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.storage.objects import (
    CLAIM_FINALIZER,
    VOLUME_FINALIZER,
    attributes_class_errors,
    claim_spec_errors,
    claim_update_errors,
    class_errors,
    class_update_errors,
    csi_node_errors,
    defaulted_claim,
    defaulted_class,
    defaulted_volume,
    volume_errors,
    volume_update_errors,
    with_finalizer,
)


class ClaimStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        claim = with_finalizer(defaulted_claim(document), CLAIM_FINALIZER)
        return {**claim, "status": {"phase": "Pending"}}

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return list(claim_spec_errors(document.get("spec") or {}, "spec"))

    def warnings(self, document: JsonObject) -> list[str]:
        return list(claim_warnings(document.get("spec") or {}, "spec"))

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return defaulted_claim(super().prepared_for_update(old, new, context))

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context) or claim_update_errors(old, new)


class VolumeStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        volume = with_finalizer(defaulted_volume(document), VOLUME_FINALIZER)
        return {**volume, "status": {"phase": "Pending", "lastPhaseTransitionTime": context.now}}

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return volume_errors(document)

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return defaulted_volume(super().prepared_for_update(old, new, context))

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return volume_update_errors(old, new)


class StorageClassStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return defaulted_class(document)

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return defaulted_class(new)

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return class_errors(document)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return class_update_errors(old, new)


class VolumeAttributesClassStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return attributes_class_errors(document)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return attributes_class_errors(new, old)


class CsiNodeStrategy(Strategy):
    unconditional_update = False

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return csi_node_errors(document)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return csi_node_errors(new, old)

    def warnings(self, document: JsonObject) -> list[str]:
        return ["CSINode: nodes of this cluster use no CSI drivers"]
