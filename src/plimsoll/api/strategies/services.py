"""Services, Endpoints and EndpointSlices (`rules.admission.services`). Addresses are allocated after validation."""

from __future__ import annotations

from plimsoll.api.strategies.base import Strategy, WriteContext, immutable
from plimsoll.errors import FieldError
from plimsoll.rules.admission.services import (
    endpoint_subset_errors,
    normalized,
    service_errors,
    service_update_errors,
    slice_errors,
)
from plimsoll.rules.model.json_object import JsonObject

NO_PROXY = "no node forwards traffic to services here: there is no kube-proxy and no cluster DNS; clients use endpoints"


class ServiceStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        prepared = super().prepared_for_create(document, context)
        return {**normalized(prepared, None, context.service_family), "status": {"loadBalancer": {}}}

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return service_errors(document, context.service_family)

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        prepared = normalized(super().prepared_for_update(old, new, context), old, context.service_family)
        if (prepared.get("spec") or {}).get("type") != "LoadBalancer":
            prepared = {**prepared, "status": {**(prepared.get("status") or {}), "loadBalancer": {}}}
        return prepared

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return service_update_errors(old, new, context.service_family)

    def warnings(self, document: JsonObject) -> list[str]:
        spec = document.get("spec") or {}
        kind = spec.get("type")
        found = []
        if kind == "NodePort":
            found.append(f"spec.type: NodePort: no effect on nodes: {NO_PROXY}")
        elif kind == "LoadBalancer":
            found.append(f"spec.type: LoadBalancer: no load balancer is provided here, and {NO_PROXY}")
        if spec.get("externalIPs"):
            found.append(f"spec.externalIPs: no effect: {NO_PROXY}")
        return found


class EndpointsStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return endpoint_subset_errors(document.get("subsets") or [])

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)


class EndpointSliceStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return slice_errors(document)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = slice_errors(new)
        if old.get("addressType") != new.get("addressType"):
            errors.append(immutable("addressType", new.get("addressType") or ""))
        return errors
