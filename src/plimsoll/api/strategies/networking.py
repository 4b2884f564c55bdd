"""Ingresses, their classes and network policies (`rules.admission.networking`): stored for those who act on them."""

from __future__ import annotations

from plimsoll.api.strategies.base import Strategy, WriteContext, immutable
from plimsoll.errors import FieldError
from plimsoll.rules.admission.networking import (
    CLASS_ANNOTATION,
    ingress_class_annotation_errors,
    ingress_class_errors,
    ingress_errors,
    ingress_status_errors,
    network_policy_errors,
)
from plimsoll.rules.model.json_object import JsonObject


class IngressStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return {**super().prepared_for_create(document, context), "status": {"loadBalancer": {}}}

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return ingress_errors(document) + ingress_class_annotation_errors(document)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return ingress_errors(new)

    def status_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return ingress_status_errors(new)

    def warnings(self, document: JsonObject) -> list[str]:
        if CLASS_ANNOTATION not in (document["metadata"].get("annotations") or {}):
            return []
        return [f"annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"]


class IngressClassStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return ingress_class_errors(document)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        before, after = ((each.get("spec") or {}).get("controller") or "" for each in (old, new))
        changed = [immutable("spec.controller", after)] if before != after else []
        return changed + ingress_class_errors(new)


class NetworkPolicyStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return network_policy_errors(document)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return network_policy_errors(new)

    def warnings(self, document: JsonObject) -> list[str]:
        return ["NetworkPolicy: it has no effect unless a network plugin of the nodes enforces it"]
