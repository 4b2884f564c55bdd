"""CustomResourceDefinitions, and the objects of the kinds that they define."""

from __future__ import annotations

import msgspec

from plimsoll.api.strategies.base import Strategy, WriteContext, relevant, with_old, without
from plimsoll.codec.schema.decode import MAX_DEPTH
from plimsoll.codec.yaml.json_stream import is_deeper
from plimsoll.errors import FieldError
from plimsoll.rules.admission.custom_resource_definitions import (
    defaulted,
    definition_errors,
    definition_update_errors,
    warnings,
    with_stored_version,
)
from plimsoll.rules.admission.custom_resources import custom_errors
from plimsoll.rules.model.json_object import JsonObject


class CustomResourceDefinitionStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return with_stored_version(defaulted(without(document, "status")))

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return _depth_errors(document) or definition_errors(document)

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return with_stored_version(defaulted(super().prepared_for_update(old, new, context)))

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return _depth_errors(new) or definition_update_errors(old, new)

    def prepared_for_status(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return _only_status(old, new)

    def warnings(self, document: JsonObject) -> list[str]:
        return warnings(document)


def _depth_errors(definition: JsonObject) -> list[FieldError]:
    """Schemas are the only part of it that may have any depth and any numbers."""
    if is_deeper(definition, MAX_DEPTH):
        return [FieldError("FieldValueInvalid", "spec.versions", f"must not be deeper than {MAX_DEPTH} levels")]
    try:
        msgspec.json.encode(definition)
    except OverflowError:
        return [FieldError("FieldValueInvalid", "spec.versions", "integers must have at most 64 bits")]
    return []


class CustomStrategy(Strategy):
    unconditional_update = False

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        assert self.resource.custom is not None
        return custom_errors(self.resource.custom.kind.schema, document)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)

    def prepared_for_status(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return _only_status(old, new)

    def status_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)

    def spec_differs(self, old: JsonObject, new: JsonObject) -> bool:
        """Without /status, the status counts like any other field."""
        if relevant(old) != relevant(new):
            return True
        return not self.has_status and old.get("status") != new.get("status")


def _only_status(old: JsonObject, new: JsonObject) -> JsonObject:
    """Metadata stays as it is, apart from the owners of fields."""
    metadata = with_old(old["metadata"], new["metadata"], "managedFields")
    return {**with_old(old, new, "status"), "metadata": metadata}
