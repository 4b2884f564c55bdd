"""Kinds with a pod template: a selector that must match it, a number of replicas, a way to replace pods.

Autoscalers of such kinds, too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.api.strategies.base import (
    Strategy,
    WriteContext,
    count_or_percent_errors,
    forbidden,
    immutable,
    invalid,
    required,
    unsupported,
)
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.rules import spec_rules
from plimsoll.rules.admission.pod_spec.spec import spec_errors
from plimsoll.rules.admission.pod_spec.warnings import claim_warnings, name_warnings, template_warnings
from plimsoll.rules.admission.validation import pod_errors
from plimsoll.rules.controllers.autoscalers import autoscaler_errors, autoscaler_status_errors
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems
from plimsoll.rules.model.objects import SelectorTerm
from plimsoll.rules.scheduling.selectors import matches_label
from plimsoll.rules.storage.objects import claim_spec_errors


class AutoscalerStrategy(Strategy):
    """Horizontal pod autoscalers: stored for a controller, of which this server has none."""

    def prepared_for_create(self, document: JsonObject, context: WriteContext) -> JsonObject:
        status = {"desiredReplicas": 0, "currentMetrics": None}
        return {**super().prepared_for_create(document, context), "status": status}

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        return autoscaler_errors(document, None, to_zero=context.gates.scale_to_zero)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return autoscaler_errors(new, old, to_zero=context.gates.scale_to_zero)

    def status_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return autoscaler_status_errors(new)

    def warnings(self, document: JsonObject) -> list[str]:
        return ["HorizontalPodAutoscaler: it has no effect unless a controller of autoscalers runs in the cluster"]


class WorkloadStrategy(Strategy):
    """Deployments, ReplicaSets and what they have in common with other kinds."""

    restart_policies: tuple[str, ...] = ("Always",)
    immutable_fields: tuple[str, ...] = ("selector",)
    numbers: tuple[str, ...] = ("revisionHistoryLimit",)
    names_pods = True  # the names of its pods begin with its own, and a client is warned where that is unfit

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        errors = number_errors(spec, "replicas", "minReadySeconds", "progressDeadlineSeconds", *self.numbers)
        errors += self.own_errors(spec, context) + self.selector_errors(spec)
        return errors + template_errors(self.template(spec), "spec.template", self.restart_policies, context)

    def template(self, spec: JsonObject) -> JsonObject:
        """As its pods will be."""
        template: JsonObject = spec.get("template") or {}
        return template

    def own_errors(self, spec: JsonObject, context: WriteContext) -> list[FieldError]:
        """What only this kind has."""
        if late := _deadline_errors(spec, "ReplicaSet"):
            return late
        strategy = spec.get("strategy") or {}
        rolling, type_ = strategy.get("rollingUpdate"), strategy.get("type") or "RollingUpdate"
        path = "spec.strategy"
        if type_ not in ("Recreate", "RollingUpdate"):
            return [unsupported(f"{path}.type", type_, ("Recreate", "RollingUpdate"))]
        if type_ == "Recreate" and rolling is not None:
            return [forbidden(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")]
        errors = rolling_errors(rolling or {}, f"{path}.rollingUpdate")
        deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
        if deadline is not None and 0 <= deadline <= ready:
            errors.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
        return errors

    def selector_errors(self, spec: JsonObject) -> list[FieldError]:
        return selector_errors(spec, self.resource.kind.lower())

    def warnings(self, document: JsonObject) -> list[str]:
        named = name_warnings(document["metadata"]["name"], "Pod names and hostnames") if self.names_pods else []
        return named + self.update_warnings({}, document)

    def update_warnings(self, old: JsonObject, new: JsonObject) -> list[str]:
        return template_warnings((new.get("spec") or {}).get("template") or {}, "spec.template")

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = self.create_errors(new, context)
        for field in self.immutable_fields:
            errors += immutable_errors(old, new, field)
        return errors


class DaemonSetStrategy(WorkloadStrategy):
    names_pods = False

    def own_errors(self, spec: JsonObject, context: WriteContext) -> list[FieldError]:
        strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
        type_ = strategy.get("type") or "RollingUpdate"
        if type_ not in ("RollingUpdate", "OnDelete"):
            return [unsupported(f"{path}.type", type_, ("RollingUpdate", "OnDelete"))]
        rolling = (strategy.get("rollingUpdate") or {}) if type_ == "RollingUpdate" else {}
        errors = _deadline_errors(spec, "DaemonSet")
        for field in ("maxUnavailable", "maxSurge"):
            errors += count_or_percent_errors(f"{path}.rollingUpdate.{field}", rolling.get(field))
        surge, unavailable = rolling.get("maxSurge"), rolling.get("maxUnavailable")
        if not errors and rolling and _is_zero(surge) and _is_zero(unavailable):
            reason = "cannot be 0 when maxSurge is 0"
            errors.append(invalid(f"{path}.rollingUpdate.maxUnavailable", unavailable, reason))
        if not _is_zero(surge) and not _is_zero(unavailable):
            reason = "may not be set when maxUnavailable is non-zero"
            errors.append(invalid(f"{path}.rollingUpdate.maxSurge", surge, reason))
        return errors


class StatefulSetStrategy(WorkloadStrategy):
    immutable_fields = ()
    numbers = ()
    names_pods = False
    changeable = (
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    )

    def template(self, spec: JsonObject) -> JsonObject:
        """With a volume for each claim, which takes the place of one of the same name."""
        names = [(each.get("metadata") or {}).get("name") for each in spec.get("volumeClaimTemplates") or ()]
        template = super().template(spec)
        if not names:
            return template
        claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
        own = template.get("spec") or {}
        volumes = [each for each in own.get("volumes") or () if each.get("name") not in names]
        return {**template, "spec": {**own, "volumes": [*volumes, *claims]}}

    def own_errors(self, spec: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = _deadline_errors(spec, "StatefulSet")
        policy = spec.get("podManagementPolicy") or ""
        if policy not in ("OrderedReady", "Parallel"):
            errors.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
        for index, template in enumerate(spec.get("volumeClaimTemplates") or []):
            path = f"spec.volumeClaimTemplates[{index}]"
            if not (template.get("metadata") or {}).get("name"):
                errors.append(required(f"{path}.metadata.name"))
            errors += claim_spec_errors(template.get("spec") or {}, f"{path}.spec")
        start = (spec.get("ordinals") or {}).get("start") or 0
        if start < 0:
            errors.append(invalid("spec.ordinals.start", start, "must be greater than or equal to 0"))
        if service := spec.get("serviceName"):
            errors += [invalid("spec.serviceName", service, problem) for problem in dns_label_problems(service)]
        retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
        for field, value in retention.items():
            if value not in ("Retain", "Delete"):
                path = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
                errors.append(unsupported(path, str(value), ("Retain", "Delete")))
        return errors + _ordered_update_errors(spec.get("updateStrategy") or {})

    def update_warnings(self, old: JsonObject, new: JsonObject) -> list[str]:
        spec = new.get("spec") or {}
        warnings = super().update_warnings(old, new)
        for index, template in enumerate(spec.get("volumeClaimTemplates") or ()):
            warnings += claim_warnings(template.get("spec") or {}, f"spec.volumeClaimTemplates[{index}]")
        if (spec.get("revisionHistoryLimit") or 0) < 0:
            text = "a negative value retains all historical revisions; a value >= 0 is recommended"
            warnings.append(f"spec.revisionHistoryLimit: {text}")
        return warnings

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = super().update_errors(old, new, context)
        before, after = (
            {name: value for name, value in (each.get("spec") or {}).items() if name not in self.changeable}
            for each in (old, new)
        )
        if before != after:
            first = "', '".join(self.changeable[:-1])
            allowed = f"'{first}' and '{self.changeable[-1]}'"
            reason = f"updates to statefulset spec for fields other than {allowed} are forbidden"
            errors.append(forbidden("spec", reason))
        return errors


class ReplicationControllerStrategy(WorkloadStrategy):
    immutable_fields = ()

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        if not (document.get("spec") or {}).get("template"):
            return [required("spec.template")]
        return super().create_errors(document, context)

    def own_errors(self, spec: JsonObject, context: WriteContext) -> list[FieldError]:
        return []

    def selector_errors(self, spec: JsonObject) -> list[FieldError]:
        """Its selector is a map of labels."""
        selector = spec.get("selector") or {}
        if not selector:
            return [required("spec.selector")]
        return _match_errors(spec, selector, [])


class ControllerRevisionStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = []
        if document.get("data") is None:
            errors.append(required("data", "data is mandatory"))
        revision = document.get("revision") or 0
        if revision < 0:
            errors.append(invalid("revision", revision, "must be greater than or equal to 0"))
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = self.create_errors(new, context)
        if old.get("data") != new.get("data"):
            errors.append(immutable("data", new.get("data")))
        return errors


class PodTemplateStrategy(Strategy):
    def warnings(self, document: JsonObject) -> list[str]:
        return self.update_warnings({}, document)

    def update_warnings(self, old: JsonObject, new: JsonObject) -> list[str]:
        return template_warnings(new.get("template") or {}, "template")

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        policies = ("Always", "OnFailure", "Never")
        return template_errors(document.get("template") or {}, "template", policies, context)

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self.create_errors(new, context)


# --- findings that kinds share ---


def immutable_errors(old: JsonObject, new: JsonObject, field: str) -> list[FieldError]:
    before, after = ((document.get("spec") or {}).get(field) for document in (old, new))
    return [] if before == after else [immutable(f"spec.{field}", after)]


def number_errors(spec: JsonObject, *fields: str, path: str = "spec") -> list[FieldError]:
    errors = []
    for field in fields:
        value = spec.get(field)
        if isinstance(value, int) and value < 0:
            errors.append(invalid(f"{path}.{field}", value, "must be greater than or equal to 0"))
    return errors


def rolling_errors(rolling: JsonObject, path: str) -> list[FieldError]:
    """A controller computes with these numbers, so they must be valid."""
    errors: list[FieldError] = []
    for field in ("maxUnavailable", "maxSurge"):
        errors += count_or_percent_errors(f"{path}.{field}", rolling.get(field))
    unavailable = rolling.get("maxUnavailable")
    if not errors and rolling and _is_zero(unavailable) and _is_zero(rolling.get("maxSurge")):
        errors.append(invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    if not errors and isinstance(unavailable, str) and int(unavailable.removesuffix("%")) > 100:
        errors.append(invalid(f"{path}.maxUnavailable", unavailable, "must not be greater than 100%"))
    return errors


def _is_zero(value: Any) -> bool:
    return value in (None, 0) or (isinstance(value, str) and not value.rstrip("%").strip("0"))


def _deadline_errors(spec: JsonObject, kind: str) -> list[FieldError]:
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    if pod_spec.get("activeDeadlineSeconds") is None:
        return []
    path = "spec.template.spec.activeDeadlineSeconds"
    return [forbidden(path, f"activeDeadlineSeconds in {kind} is not Supported")]


def _ordered_update_errors(strategy: JsonObject) -> list[FieldError]:
    type_, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    path = "spec.updateStrategy"
    if type_ not in ("RollingUpdate", "OnDelete"):
        return [invalid(path, type_, "must be 'RollingUpdate' or 'OnDelete'")]
    if type_ == "OnDelete":
        reason = "only allowed for updateStrategy 'RollingUpdate'"
        return [] if rolling is None else [invalid(f"{path}.rollingUpdate", None, reason)]
    errors = number_errors(rolling or {}, "partition", path=f"{path}.rollingUpdate")
    most = (rolling or {}).get("maxUnavailable")
    errors += count_or_percent_errors(f"{path}.rollingUpdate.maxUnavailable", most)
    if not errors and most is not None and _is_zero(most):
        errors.append(invalid(f"{path}.rollingUpdate.maxUnavailable", most, "cannot be 0"))
    return errors


def selector_errors(spec: JsonObject, kind: str) -> list[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    match_labels: dict[str, Any] = selector.get("matchLabels") or {}
    terms = [msgspec.convert(term, SelectorTerm) for term in selector.get("matchExpressions") or []]
    if not match_labels and not terms:
        return [invalid("spec.selector", None, f"{{}}: empty selector is invalid for {kind}")]
    return _match_errors(spec, match_labels, terms)


def _match_errors(spec: JsonObject, match_labels: dict[str, Any], terms: list[SelectorTerm]) -> list[FieldError]:
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if all(labels.get(key) == value for key, value in match_labels.items()) and all(
        matches_label(term, labels) for term in terms
    ):
        return []
    shown = ", ".join(f'"{key}":"{value}"' for key, value in sorted(labels.items()))
    path = "spec.template.metadata.labels"
    return [FieldError("FieldValueInvalid", path, f"{{{shown}}}: `selector` does not match template `labels`")]


def template_errors(
    template: JsonObject, path: str, policies: tuple[str, ...], context: WriteContext
) -> list[FieldError]:
    """The template is validated like a pod, below `path`."""
    pod = lean_pod(
        {"metadata": {"name": "template", **(template.get("metadata") or {})}, "spec": template.get("spec") or {}}
    )
    findings = [
        *(
            [forbidden("spec.ephemeralContainers", "ephemeral containers not allowed in pod template")]
            if pod.spec.ephemeral_containers
            else []
        ),
        *pod_errors(pod, gates=context.gates),
        *spec_errors(template.get("spec") or {}, spec_rules(context.profile)),
    ]
    errors = [msgspec.structs.replace(finding, field=f"{path}.{finding.field}") for finding in findings]
    policy = (template.get("spec") or {}).get("restartPolicy") or "Always"
    if policy == "Always" and policy not in policies:  # also where none is set
        valid = ", ".join(f'"{name}"' for name in policies)
        errors.append(required(f"{path}.spec.restartPolicy", f"valid values: {valid}"))
    elif policy not in policies:
        errors.append(unsupported(f"{path}.spec.restartPolicy", policy, policies))
    return errors
