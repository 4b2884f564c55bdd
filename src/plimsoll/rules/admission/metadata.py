"""Validation of the metadata of any namespaced object: names, labels, annotations, and what an update must not
change.
"""

from __future__ import annotations

from plimsoll.errors import FieldError
from plimsoll.rules.model.names import (
    Problems,
    dns_label_problems,
    dns_subdomain_problems,
    generated_name_problems,
    label_value_problems,
    path_segment_problems,
    qualified_name_problems,
    size_bytes,
)
from plimsoll.rules.model.objects import Metadata

MAX_ANNOTATION_BYTES = 256 * 1024


def metadata_errors(metadata: Metadata, *, dots: bool = True, is_path: bool = False) -> list[FieldError]:
    """For an object whose name is a DNS subdomain, as for most kinds; without `dots`, a label (namespaces); with
    `is_path`, anything that can be a part of a path (roles)."""
    errors: list[FieldError] = []
    name, prefix, namespace = metadata.name, metadata.generate_name, metadata.namespace
    if prefix and not is_path:
        errors += _misnamed("metadata.generateName", prefix, generated_name_problems(prefix))
    if name:
        named = path_segment_problems if is_path else dns_subdomain_problems if dots else dns_label_problems
        if problems := named(name):
            errors += _misnamed("metadata.name", name, problems)
    elif not prefix:
        errors.append(FieldError("FieldValueRequired", "metadata.name", "name or generateName is required"))
    # The server sets an absent namespace from the request before validation.
    if namespace and (problems := dns_label_problems(namespace)):
        errors += _misnamed("metadata.namespace", namespace, problems)
    if metadata.labels:
        errors += label_errors("metadata.labels", metadata.labels)
    if metadata.annotations:
        errors += _annotation_errors("metadata.annotations", metadata.annotations)
    return errors


def label_errors(path: str, labels: dict[str, str]) -> list[FieldError]:
    """Labels and selectors: keys are qualified names, values are label values or empty."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        if problems := qualified_name_problems(key):
            errors += _misnamed(path, key, problems)
        if problems := label_value_problems(value):
            errors += _misnamed(path, value, problems)
    return errors


def _annotation_errors(path: str, annotations: dict[str, str]) -> list[FieldError]:
    errors: list[FieldError] = []
    total = 0
    for key, value in annotations.items():
        # Unlike in labels, the prefix may have upper-case letters.
        if problems := qualified_name_problems(key.lower()):
            errors += _misnamed(path, key, problems)
        total += size_bytes(key) + size_bytes(value)
    if total > MAX_ANNOTATION_BYTES:
        errors.append(FieldError("FieldValueTooLong", path, f"may not be more than {MAX_ANNOTATION_BYTES} bytes"))
    return errors


def metadata_update_errors(old: Metadata, new: Metadata) -> list[FieldError]:
    """What no update may change. The server sets fields that the request omits."""
    errors = []
    if new.generation and new.generation < old.generation:
        reason = "must not be decremented"
        errors.append(FieldError("FieldValueInvalid", "metadata.generation", reason, new.generation))
    for field, before, after in (
        ("name", old.name, new.name),
        ("namespace", old.namespace, new.namespace),
        ("uid", old.uid, new.uid),
        ("creationTimestamp", old.creation_timestamp, new.creation_timestamp),
        ("deletionTimestamp", old.deletion_timestamp, new.deletion_timestamp),
    ):
        if after and after != before:
            errors.append(FieldError("FieldValueInvalid", f"metadata.{field}", "field is immutable", after))
    return errors


def _misnamed(path: str, name: str, problems: Problems) -> list[FieldError]:
    return [FieldError("FieldValueInvalid", path, problem, name) for problem in problems]
