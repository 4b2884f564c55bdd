"""CustomResourceDefinitions, and the objects of the kinds that they define."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.api.strategies.base import Strategy, WriteContext, relevant, with_old, without
from plimsoll.codec.schema.decode import MAX_DEPTH
from plimsoll.codec.yaml.json_stream import is_deeper
from plimsoll.errors import FieldError
from plimsoll.rules.admission.custom_resources.definitions import (
    defaulted,
    definition_errors,
    definition_parts,
    definition_update_errors,
    schema_of,
    warnings,
    with_stored_version,
)
from plimsoll.rules.admission.custom_resources.extensions import RULES
from plimsoll.rules.admission.custom_resources.objects import custom_errors
from plimsoll.rules.model.json_object import JsonObject

_BLOCKING = ("FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
_NOT_CHECKED = FieldError(
    "FieldValueInvalid",
    "<nil>",
    "null: some validation rules were not checked because the object was invalid; correct the existing errors to "
    "complete validation",
)


class CustomResourceDefinitionStrategy(Strategy):
    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        return with_stored_version(defaulted(without(document, "status")))

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return _depth_errors(document) or definition_errors(document) or _rule_errors(document, None)

    def prepared_for_update(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return with_stored_version(defaulted(super().prepared_for_update(old, new, context)))

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return _depth_errors(new) or definition_update_errors(old, new) or _rule_errors(new, old)

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


def _rule_errors(definition: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """Of the rules in the Common Expression Language, where a schema has some that are not stored already."""
    stored = [schema_of(each) for each in ((old or {}).get("spec") or {}).get("versions") or []]
    errors: list[FieldError] = []
    for part in definition_parts(definition["spec"]):
        if part.schema is not None and part.schema not in stored and _has_rules(part.schema):
            from plimsoll.codec.cel.rules import definition_rule_errors  # few definitions have rules

            errors += definition_rule_errors(part.schema, part.schema_path)
    return errors


def _has_rules(schema: Any) -> bool:
    if isinstance(schema, dict):
        return bool(schema.get(RULES)) or any(map(_has_rules, schema.values()))
    return isinstance(schema, list) and any(map(_has_rules, schema))


class CustomStrategy(Strategy):
    unconditional_update = False

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return self._errors(document, None)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self._errors(new, old)

    def evaluates(self) -> bool:
        return self._rules() is not None

    def _rules(self) -> Any:
        assert self.resource.custom is not None
        kind = self.resource.custom.kind
        if "rules" not in kind.known:
            kind.known["rules"] = _compiled_rules(kind.schema)
        return kind.known["rules"]

    def _errors(self, new: JsonObject, old: JsonObject | None) -> list[FieldError]:
        assert self.resource.custom is not None
        errors = custom_errors(self.resource.custom.kind.schema, new, old)
        place = self._rules()
        if place is None:
            return errors
        if any(each.type in _BLOCKING for each in errors):
            return [*errors, _NOT_CHECKED]
        from plimsoll.codec.cel.rules import rule_errors

        about = {"apiVersion": self.resource.group_version, "kind": self.resource.kind}
        return errors + rule_errors(place, {**new, **about}, None if old is None else {**old, **about})

    def prepared_for_status(self, old: JsonObject, new: JsonObject, context: WriteContext) -> JsonObject:
        return _only_status(old, new)

    def status_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self._errors(new, old)

    def spec_differs(self, old: JsonObject, new: JsonObject) -> bool:
        """Without /status, the status counts like any other field."""
        if relevant(old) != relevant(new):
            return True
        return not self.has_status and old.get("status") != new.get("status")


def _compiled_rules(schema: JsonObject) -> Any:
    if not _has_rules(schema):
        return None
    from plimsoll.codec.cel.rules import compiled_rules

    return compiled_rules(schema)


def _only_status(old: JsonObject, new: JsonObject) -> JsonObject:
    """Metadata stays as it is, apart from the owners of fields."""
    metadata = with_old(old["metadata"], new["metadata"], "managedFields")
    return {**with_old(old, new, "status"), "metadata": metadata}
