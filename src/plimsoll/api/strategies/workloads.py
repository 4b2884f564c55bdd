"""Deployments, ReplicaSets and Jobs: a pod template, a selector that must match it, a number of replicas."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.api.strategies.base import (
    Strategy,
    WriteContext,
    count_or_percent_errors,
    immutable,
    invalid,
    required,
    unsupported,
)
from plimsoll.api.strategies.pods import lean_pod
from plimsoll.errors import FieldError
from plimsoll.rules.admission.validation import pod_errors
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import SelectorTerm
from plimsoll.rules.scheduling.selectors import matches_label

_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")


class WorkloadStrategy(Strategy):
    restart_policies: tuple[str, ...] = ("Always",)

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        errors = _replica_errors(spec) + _rolling_errors(spec) + _selector_errors(spec)
        return errors + _template_errors(spec.get("template") or {}, self.restart_policies, context)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context) + _immutable_errors(old, new, "selector")


class JobStrategy(WorkloadStrategy):
    restart_policies = ("OnFailure", "Never")

    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        """A job without a selector gets one by its uid, and its pods the labels for it."""
        document = super().prepared_for_create(document, context)
        spec, metadata = dict(document.get("spec") or {}), document["metadata"]
        if spec.get("manualSelector") or spec.get("selector"):
            return document
        template = dict(spec.get("template") or {})
        own = dict(zip(_LABELS, (metadata["uid"], metadata["name"]) * 2, strict=True))
        labels = {**((template.get("metadata") or {}).get("labels") or {}), **own}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        selector = {"matchLabels": {_LABELS[0]: metadata["uid"]}}
        return {**document, "spec": {**spec, "template": template, "selector": selector}}

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return super().update_errors(old, new, context) + _immutable_errors(old, new, "template")


def _immutable_errors(old: JsonObject, new: JsonObject, field: str) -> list[FieldError]:
    before, after = ((document.get("spec") or {}).get(field) for document in (old, new))
    return [] if before == after else [immutable(f"spec.{field}", after)]


def _replica_errors(spec: JsonObject) -> list[FieldError]:
    errors = []
    for field in ("replicas", "parallelism", "completions", "backoffLimit", "minReadySeconds", "activeDeadlineSeconds"):
        value = spec.get(field)
        if isinstance(value, int) and value < 0:
            errors.append(invalid(f"spec.{field}", value, "must be greater than or equal to 0"))
    return errors


def _rolling_errors(spec: JsonObject) -> list[FieldError]:
    """Only Deployments have a strategy. A controller computes with these numbers, so they must be valid."""
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    errors = []
    for field in ("maxUnavailable", "maxSurge"):
        errors += count_or_percent_errors(f"spec.strategy.rollingUpdate.{field}", rolling.get(field))
    return errors


def _selector_errors(spec: JsonObject) -> list[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    match_labels: dict[str, Any] = selector.get("matchLabels") or {}
    terms = [msgspec.convert(term, SelectorTerm) for term in selector.get("matchExpressions") or []]
    if not match_labels and not terms:
        return [invalid("spec.selector", None, "{}: empty selector is invalid for deployment")]
    if all(labels.get(key) == value for key, value in match_labels.items()) and all(
        matches_label(term, labels) for term in terms
    ):
        return []
    shown = ", ".join(f'"{key}":"{value}"' for key, value in sorted(labels.items()))
    path = "spec.template.metadata.labels"
    return [FieldError("FieldValueInvalid", path, f"{{{shown}}}: `selector` does not match template `labels`")]


def _template_errors(template: JsonObject, policies: tuple[str, ...], context: WriteContext) -> list[FieldError]:
    """The template is validated like a pod, below `spec.template`."""
    pod = lean_pod(
        {"metadata": {"name": "template", **(template.get("metadata") or {})}, "spec": template.get("spec") or {}}
    )
    findings = pod_errors(pod, gates=context.gates)
    errors = [msgspec.structs.replace(finding, field=f"spec.template.{finding.field}") for finding in findings]
    policy = (template.get("spec") or {}).get("restartPolicy") or "Always"
    if policy not in policies:
        errors.append(unsupported("spec.template.spec.restartPolicy", policy, policies))
    return errors
