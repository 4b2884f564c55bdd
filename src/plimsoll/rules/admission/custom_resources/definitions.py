"""CustomResourceDefinitions: what the API server accepts, their defaults, conditions and names.

Webhooks do not exist here, so conversion between versions only changes `apiVersion` (strategy None).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.custom_resources.extensions import PRESERVE, RULES
from plimsoll.rules.admission.custom_resources.field_paths import FieldPathError, field_schema
from plimsoll.rules.admission.custom_resources.structural_schema import schema_errors, unknown_keywords
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems, dns_subdomain_problems

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_LABEL_1035 = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_RULE_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_SERVER_GROUPS = ("k8s.io", "kubernetes.io")
_APPROVED = "api-approved.kubernetes.io"


def schema_of(version: JsonObject) -> JsonObject | None:
    found = (version.get("schema") or {}).get("openAPIV3Schema")
    return found if isinstance(found, dict) else None


def defaulted(definition: JsonObject) -> JsonObject:
    """Singular and list kind follow the kind; conversion is None."""
    spec = dict(definition.get("spec") or {})
    names = dict(spec.get("names") or {})
    names["singular"] = names.get("singular") or (names.get("kind") or "").lower()
    if names.get("kind"):
        names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    spec["names"] = names
    spec["conversion"] = spec.get("conversion") or {"strategy": "None"}
    return {**definition, "spec": spec}


def definition_errors(definition: JsonObject) -> list[FieldError]:
    spec, name = definition.get("spec") or {}, definition["metadata"].get("name") or ""
    names, group = spec.get("names") or {}, spec.get("group") or ""
    errors = [*_spec_errors(spec), *_approval_errors(definition, group)]
    if name != f"{names.get('plural') or ''}.{group}":
        errors.insert(0, _invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    return errors


def _approval_errors(definition: JsonObject, group: str) -> list[FieldError]:
    if not any(group == each or group.endswith(f".{each}") for each in _SERVER_GROUPS):
        return []
    value = (definition["metadata"].get("annotations") or {}).get(_APPROVED)
    path = f"metadata.annotations[{_APPROVED}]"
    if not value:
        reason = 'protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'
        return [FieldError("FieldValueRequired", path, reason)]
    if not value.startswith(("https://", "http://", "unapproved")):
        reason = 'protected groups must have approval annotation with a URL or a reason starting with "unapproved"'
        return [_invalid(path, value, reason)]
    return []


def _spec_errors(spec: JsonObject) -> Iterator[FieldError]:
    group, versions = spec.get("group") or "", spec.get("versions") or []
    if not group:
        yield FieldError("FieldValueRequired", "spec.group")
    elif problems := dns_subdomain_problems(group):
        yield _invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield _invalid("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope") or ""
    if not scope:
        yield FieldError("FieldValueRequired", "spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield FieldError("FieldValueNotSupported", "spec.scope", 'supported values: "Cluster", "Namespaced"', scope)
    if len({version.get("name") for version in versions}) != len(versions):
        yield _shown("spec.versions", "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield _shown("spec.versions", "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        at = f"spec.versions[{index}]"
        if problem := _label_problem(version.get("name") or ""):
            yield _invalid(f"{at}.name", version.get("name") or "", problem)
        if schema_of(version) is None:
            yield FieldError("FieldValueRequired", f"{at}.schema.openAPIV3Schema")
        yield from _deprecation_errors(version, f"{at}.deprecationWarning")
    yield from _name_errors(spec.get("names") or {})
    for part in definition_parts(spec):
        yield from _part_errors(part)
    if spec.get("preserveUnknownFields"):
        instead = "set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        reason = f"cannot set to true, {instead}"
        yield FieldError("FieldValueInvalid", "spec.preserveUnknownFields", f"true: {reason}")
    conversion = spec.get("conversion") or {}
    strategy = conversion.get("strategy") or ""
    if strategy == "Webhook":
        reason = "conversion by webhooks is not supported by this API server: use None, which changes only apiVersion"
        yield _invalid("spec.conversion.strategy", strategy, reason)
    elif strategy != "None":
        yield FieldError("FieldValueNotSupported", "spec.conversion.strategy", 'supported values: "None"', strategy)
    else:
        webhook = conversion.get("webhook") or {}
        for field, name in (("clientConfig", "webhookClientConfig"), ("conversionReviewVersions",) * 2):
            if webhook.get(field):
                reason = "should not be set when strategy is not set to Webhook"
                yield FieldError("FieldValueForbidden", f"spec.conversion.{name}", reason)


# kube-apiserver moves what all versions have in common to the spec, and reports errors there.
_SHARED = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


class DefinitionPart(msgspec.Struct, frozen=True):
    """What one version has for itself, or what all versions have in common. `has_status`: whether the status
    subresource of a version with this schema is enabled."""

    path: str
    schema_path: str
    schema: JsonObject | None
    has_status: bool
    subresources: JsonObject
    columns: list[JsonObject]
    selectable_fields: list[JsonObject]


def definition_parts(spec: JsonObject) -> list[DefinitionPart]:
    versions = spec.get("versions") or []
    shared = {name: versions[0].get(name) for name in _SHARED if versions and _is_shared(versions, name)}
    parts = []
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        own = {**version, **dict.fromkeys(shared)}
        parts.append(_part(own, path, f"{path}.schema.openAPIV3Schema", has_status=_has_status(version)))
    has_status = any(map(_has_status, versions))
    return [*parts, _part(shared, "spec", "spec.validation.openAPIV3Schema", has_status=has_status)]


def _part(part: JsonObject, path: str, schema_path: str, *, has_status: bool) -> DefinitionPart:
    return DefinitionPart(
        path,
        schema_path,
        schema_of(part),
        has_status,
        part.get("subresources") or {},
        part.get("additionalPrinterColumns") or [],
        part.get("selectableFields") or [],
    )


def _has_status(version: JsonObject) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _is_shared(versions: list[JsonObject], name: str) -> bool:
    return all((version.get(name) or None) == (versions[0].get(name) or None) for version in versions)


def _part_errors(part: DefinitionPart) -> Iterator[FieldError]:
    if part.schema is not None:
        if part.has_status:
            yield from _status_errors(part.schema, part.schema_path)
        yield from schema_errors(part.schema, part.schema_path)
    yield from _scale_errors(part.subresources.get("scale"), f"{part.path}.subresources.scale")
    for index, column in enumerate(part.columns):
        yield from _column_errors(column, f"{part.path}.additionalPrinterColumns[{index}]")
    if part.selectable_fields:
        yield from _selectable_errors(part, f"{part.path}.selectableFields")


_AT_ROOT_WITH_STATUS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_KEYWORDS_WITH_STATUS = frozenset(
    {f"{name[0].lower()}{name[1:]}" for name in _AT_ROOT_WITH_STATUS.split()} | {PRESERVE, RULES}
)


def _status_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """The status is validated by its own schema, without the rest of the root."""
    if schema.get("type") not in (None, "", "object"):
        reason = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        yield _invalid(f"{path}.type", schema["type"], reason)
        return
    used = {name for name, value in schema.items() if value not in (None, "", [], {}) and value is not False}
    if schema.get("additionalProperties") is False or used - _KEYWORDS_WITH_STATUS:
        reason = (
            f"only [{_AT_ROOT_WITH_STATUS}] fields are allowed at the root of the schema if the status subresource is "
            "enabled"
        )
        yield _shown(path, reason)


_MOST_WARNING = 256


def _deprecation_errors(version: JsonObject, path: str) -> Iterator[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return
    if not version.get("deprecated"):
        yield _invalid(path, text, "can only be set for deprecated versions")
        return
    if len(text.encode()) > _MOST_WARNING:
        yield _invalid(path, text, f"must be <= {_MOST_WARNING} characters long")
    if not text:
        yield _invalid(path, text, "must not be an empty string")
    for index, char in enumerate(text):
        if not char.isprintable():
            at = len(text[:index].encode())
            words = f"must only contain printable UTF-8 characters; non-printable character found at index {at}"
            yield _invalid(path, text, words)
            return


_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")


def _column_errors(column: JsonObject, path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield FieldError("FieldValueRequired", f"{path}.name")
    listed = f"must be one of {','.join(COLUMN_TYPES)}"
    if not column.get("type"):
        yield FieldError("FieldValueRequired", f"{path}.type", listed)
    elif column["type"] not in COLUMN_TYPES:
        yield _invalid(f"{path}.type", column["type"], listed)
    if (form := column.get("format") or "") and form not in _COLUMN_FORMATS:
        yield _invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not (json_path := column.get("jsonPath") or ""):
        yield FieldError("FieldValueRequired", f"{path}.JSONPath")
    elif not json_path.startswith("."):
        yield _invalid(f"{path}.JSONPath", json_path, "must be a simple json path starting with .")


def _scale_errors(scale: JsonObject | None, path: str) -> Iterator[FieldError]:
    if scale is None:
        return
    for field, start, where in (
        ("specReplicasPath", (".spec.",), ".spec"),
        ("statusReplicasPath", (".status.",), ".status"),
        ("labelSelectorPath", (".spec.", ".status."), "either .spec or .status"),
    ):
        value = scale.get(field) or ""
        if not value:
            if field != "labelSelectorPath":
                yield FieldError("FieldValueRequired", f"{path}.{field}")
        elif not value.startswith("."):
            yield _invalid(f"{path}.{field}", value, "must be a simple json path starting with .")
        elif not value.startswith(start):
            yield _invalid(f"{path}.{field}", value, f"should be a json path under {where}")


_MOST_SELECTABLE = 8


def _selectable_errors(part: DefinitionPart, path: str) -> Iterator[FieldError]:
    if part.schema is None:
        field = "version.schema.openAPIV3Schema"  # kube-apiserver's words
        without = f"`{field}` is not included"
        yield _invalid(
            path,
            "",
            f"may only be set when {'validations.schema is included' if path == 'spec.selectableFields' else without}",
        )
        return
    known: set[tuple[str, ...]] = set()
    for index, selectable in enumerate(part.selectable_fields):
        at, text = f"{path}[{index}].jsonPath", selectable.get("jsonPath") or ""
        if not text:
            yield FieldError("FieldValueRequired", at)
            continue
        try:
            steps, found = field_schema(part.schema, text, brackets=False)
        except FieldPathError as error:
            yield _invalid(at, text, f"is an invalid path: {error}")
            continue
        if steps[0] == "metadata":
            yield _invalid(at, text, "must not point to fields in metadata")
        if (found or {}).get("type") not in ("string", "boolean", "integer"):
            reason = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            yield _invalid(at, text, reason)
        if steps in known:
            yield FieldError("FieldValueDuplicate", at, value=text)
        known.add(steps)
    if len(known) > _MOST_SELECTABLE:
        yield FieldError("FieldValueTooMany", path, f"must have at most {_MOST_SELECTABLE} items", len(known))


def _name_errors(names: JsonObject) -> Iterator[FieldError]:
    for field in ("plural", "singular"):
        value = names.get(field) or ""
        if not value:
            yield FieldError("FieldValueRequired", f"spec.names.{field}")
        elif problem := _label_problem(value):
            yield _invalid(f"spec.names.{field}", value, problem)
    for field in ("kind", "listKind"):
        value = names.get(field) or ""
        if not value:
            yield FieldError("FieldValueRequired", f"spec.names.{field}")
        elif problem := _label_problem(value.lower()):
            yield _invalid(f"spec.names.{field}", value, f"may have mixed case, but should otherwise match: {problem}")
    for field in ("shortNames", "categories"):
        for index, value in enumerate(names.get(field) or []):
            if problem := _label_problem(value):
                yield _invalid(f"spec.names.{field}[{index}]", value, problem)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield _invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _label_problem(text: str) -> str:
    if len(text) > 63:
        return "must be no more than 63 bytes"
    return "" if _LABEL_1035.fullmatch(text) and not dns_label_problems(text) else _RULE_1035


def definition_update_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    """What is wrong in the stored definition may stay: an older server accepted it."""
    if errors := definition_errors(new):
        known = definition_errors(old)
        errors = [error for error in errors if error not in known]
    before, after = old.get("spec") or {}, new.get("spec") or {}
    is_established = any(
        each.get("type") == "Established" and each.get("status") == "True"
        for each in (old.get("status") or {}).get("conditions") or []
    )
    if is_established:
        for field in ("group", "scope"):
            if before.get(field) != after.get(field):
                errors.append(_invalid(f"spec.{field}", after.get(field) or "", "field is immutable"))
        for field in ("plural", "kind"):
            value = (after.get("names") or {}).get(field)
            if (before.get("names") or {}).get(field) != value:
                errors.append(_invalid(f"spec.names.{field}", value or "", "field is immutable"))
    named = {version.get("name") for version in after.get("versions") or []}
    for index, stored in enumerate((new.get("status") or {}).get("storedVersions") or []):
        if stored not in named:
            reason = (
                f"missing from spec.versions; {stored} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {stored} and removes "
                f"{stored} from status.storedVersions"
            )
            errors.append(_invalid(f"status.storedVersions[{index}]", stored, reason))
    return errors


def warnings(definition: JsonObject) -> list[str]:
    """What is accepted and has no effect."""
    found = []
    for index, version in enumerate((definition.get("spec") or {}).get("versions") or []):
        path = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = schema_of(version)
        found += [f'unknown field "{each}"' for each in unknown_keywords(schema, path)]
    return found


def _invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, value)


def _shown(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail)


# --- status ---


def with_stored_version(definition: JsonObject) -> JsonObject:
    """The storage version is among `status.storedVersions`."""
    status = dict(definition.get("status") or {})
    stored = list(status.get("storedVersions") or [])
    current = [
        version["name"] for version in (definition.get("spec") or {}).get("versions") or [] if version.get("storage")
    ]
    status["storedVersions"] = stored + [name for name in current if name not in stored]
    status.setdefault("conditions", [])
    status.setdefault("acceptedNames", {"plural": "", "kind": ""})
    return {**definition, "status": status}


def names_conflict(definition: JsonObject, others: Iterable[JsonObject]) -> tuple[str, str]:
    """(reason, message) where another definition of the group already has one of the names; empty otherwise."""
    spec = definition["spec"]
    names = spec["names"]
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        if other["spec"]["group"] != spec["group"] or other["metadata"]["uid"] == definition["metadata"]["uid"]:
            continue
        accepted = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {accepted.get("plural") or "", accepted.get("singular") or "", *(accepted.get("shortNames") or ())}
        kinds |= {accepted.get("kind") or "", accepted.get("listKind") or ""}
    for reason, field, used in (
        ("PluralConflict", "plural", resources),
        ("SingularConflict", "singular", resources),
        ("KindConflict", "kind", kinds),
        ("ListKindConflict", "listKind", kinds),
    ):
        if names.get(field) and names[field] in used:
            return reason, f'"{names[field]}" is already in use'
    for name in names.get("shortNames") or ():
        if name in resources:
            return "ShortNamesConflict", f'"{name}" is already in use'
    return "", ""


def conditions(definition: JsonObject, conflict: tuple[str, str], now: str) -> JsonObject:
    """The status with NamesAccepted and Established, and the accepted names. Established is never taken back."""
    status = dict(definition.get("status") or {})
    reason, message = conflict
    accepted = ("False", reason, message) if reason else ("True", "NoConflicts", "no conflicts found")
    was = {each.get("type"): each for each in status.get("conditions") or []}
    if (was.get("Established") or {}).get("status") == "True":
        established = ("True", was["Established"].get("reason") or "", was["Established"].get("message") or "")
    elif reason:
        established = ("False", "NotAccepted", "not all names are accepted")
    else:
        established = ("True", "InitialNamesAccepted", "the initial names have been accepted")
    for type_, (value, why, text) in (("NamesAccepted", accepted), ("Established", established)):
        before = was.get(type_) or {}
        time = before.get("lastTransitionTime") if before.get("status") == value else now
        was[type_] = {"type": type_, "status": value, "lastTransitionTime": time, "reason": why, "message": text}
    status["conditions"] = list(was.values())
    if not reason:
        status["acceptedNames"] = definition["spec"]["names"]
    return status


def is_served(definition: JsonObject) -> bool:
    """Established and not being deleted completely: instances can still be read and deleted meanwhile."""
    return any(
        each.get("type") == "Established" and each.get("status") == "True"
        for each in (definition.get("status") or {}).get("conditions") or []
    )
