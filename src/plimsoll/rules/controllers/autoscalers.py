"""Horizontal pod autoscalers (autoscaling/v2): what the API server accepts, with Kubernetes' messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import container_resource_problems, dns_label_problems, path_segment_problems
from plimsoll.rules.quantity import QUANTITIES

_MAX_PERIOD_S, _MAX_WINDOW_S = 1_800, 3_600
_SELECT_POLICIES, _POLICY_TYPES = ("Disabled", "Max", "Min"), ("Percent", "Pods")
_METRIC_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
# In the order in which Kubernetes looks at them: of several only the first one is checked.
_SOURCES = {
    "object": "Object",
    "external": "External",
    "pods": "Pods",
    "resource": "Resource",
    "containerResource": "ContainerResource",
}
_TARGET_TYPES = ("Utilization", "Value", "AverageValue")
_SCALE_TO_ZERO = "must specify at least one Object or External metric to support scaling to zero replicas"


def _invalid(path: str, value: str | int, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, value)


def _required(path: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", path, detail)


def _forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> FieldError:
    shown = ", ".join(f'"{each}"' for each in supported)
    return FieldError("FieldValueNotSupported", path, f"supported values: {shown}", value)


def autoscaler_errors(autoscaler: JsonObject, old: JsonObject | None, *, to_zero: bool) -> list[FieldError]:
    """`to_zero`: gate HPAScaleToZero. What an old object has already is accepted."""
    spec, before = autoscaler.get("spec") or {}, (old or {}).get("spec") or {}
    least = 0 if to_zero or before.get("minReplicas") == 0 else 1
    errors = list(_replica_errors(spec, least))
    target, old_target = spec.get("scaleTargetRef") or {}, before.get("scaleTargetRef")
    same = old_target is not None and all(target.get(name) == old_target.get(name) for name in ("apiVersion", "kind"))
    core = target.get("kind") == "ReplicationController"
    errors += _reference_errors(target, "spec.scaleTargetRef", any_version=same, any_group=core)
    errors += _metrics_errors(spec, any_version=_has_invalid_version(before))
    for direction in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(direction)
        if rules is not None:
            errors += _rules_errors(rules, f"spec.behavior.{direction}")
    return errors


def autoscaler_status_errors(autoscaler: JsonObject) -> list[FieldError]:
    status = autoscaler.get("status") or {}
    return [
        _invalid(f"status.{name}", status[name], "must be greater than or equal to 0")
        for name in ("currentReplicas", "desiredReplicas")
        if (status.get(name) or 0) < 0
    ]


def _replica_errors(spec: JsonObject, least: int) -> Iterator[FieldError]:
    fewest, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if fewest is not None and fewest < least:
        yield _invalid("spec.minReplicas", fewest, f"must be greater than or equal to {least}")
    if most == 0:
        yield _required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield _invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if fewest is not None and most < fewest:
        yield _invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")


def _reference_errors(
    reference: JsonObject, at: str, *, any_version: bool = False, any_group: bool = False
) -> Iterator[FieldError]:
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        if not value:
            yield _required(f"{at}.{name}")
        yield from (_invalid(f"{at}.{name}", value, problem) for problem in path_segment_problems(value))
    version = reference.get("apiVersion") or ""
    if not any_version and (problem := _version_problem(version, any_group=any_group)):
        yield _invalid(f"{at}.apiVersion", version, problem)


def _version_problem(version: str, *, any_group: bool) -> str:
    if version.count("/") > 1:
        return f"unexpected GroupVersion string: {version}"
    return "" if any_group or "/" in version.lstrip("/") else "apiVersion must specify API group"


def _has_invalid_version(spec: JsonObject) -> bool:
    references = [
        metric["object"].get("describedObject") or {} for metric in spec.get("metrics") or () if metric.get("object")
    ]
    return any(_version_problem(each.get("apiVersion") or "", any_group=True) for each in references)


# --- metrics ---


def _metrics_errors(spec: JsonObject, *, any_version: bool) -> Iterator[FieldError]:
    metrics = spec.get("metrics") or ()
    for index, metric in enumerate(metrics):
        yield from _metric_errors(metric, f"spec.metrics[{index}]", any_version=any_version)
    if spec.get("minReplicas") == 0 and not any(each.get("type") in ("Object", "External") for each in metrics):
        yield _forbidden("spec.metrics", _SCALE_TO_ZERO)


def _metric_errors(metric: JsonObject, at: str, *, any_version: bool) -> Iterator[FieldError]:
    kind = metric.get("type") or ""
    if not kind:
        yield _required(f"{at}.type", "must specify a metric source type")
    if kind not in _METRIC_TYPES:
        yield _unsupported(f"{at}.type", kind, _METRIC_TYPES)
    present = [name for name in _SOURCES if metric.get(name) is not None]
    if present:
        yield from _source_errors(present[0], metric[present[0]], f"{at}.{present[0]}", any_version=any_version)
    expected = next((name for name, its in _SOURCES.items() if its == kind), "")
    if not expected:
        yield _unsupported(f"{at}.type", kind, _METRIC_TYPES)
    elif expected not in present:
        yield _required(f"{at}.{expected}", "must populate information for the given metric source")
    if len(present) > 1:
        for name in present:
            if name != expected:
                yield _forbidden(f"{at}.{name}", "must populate the given metric source only")


def _source_errors(name: str, source: JsonObject, at: str, *, any_version: bool) -> Iterator[FieldError]:
    target = source.get("target") or {}
    if name == "object":
        described = source.get("describedObject") or {}
        yield from _reference_errors(described, f"{at}.describedObject", any_version=any_version, any_group=True)
    if name in ("resource", "containerResource"):
        yield from _resource_errors(name, source, at)
    else:
        metric = (source.get("metric") or {}).get("name") or ""
        if not metric:
            yield _required(f"{at}.metric.name", "must specify a metric name")
        yield from (_invalid(f"{at}.metric.name", metric, problem) for problem in path_segment_problems(metric))
    yield from _target_errors(target, f"{at}.target")
    yield from _choice_errors(name, target, f"{at}.target")


def _resource_errors(name: str, source: JsonObject, at: str) -> Iterator[FieldError]:
    resource, container = source.get("name") or "", source.get("container") or ""
    if not resource:
        yield _required(f"{at}.name", "must specify a resource name")
    if name == "resource":
        return
    if resource:
        yield from (_invalid(f"{at}.name", resource, problem) for problem in container_resource_problems(resource))
    if not container:
        yield _required(f"{at}.container", "must specify a container")
    else:
        yield from (_invalid(f"{at}.container", container, problem) for problem in dns_label_problems(container))


def _target_errors(target: JsonObject, at: str) -> Iterator[FieldError]:
    kind = target.get("type") or ""
    if not kind:
        yield _required(f"{at}.type", "must specify a metric target type")
    if kind not in _TARGET_TYPES:
        yield _invalid(f"{at}.type", kind, "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        value = target.get(name)
        if value is not None and QUANTITIES[value].nanos <= 0:
            yield _invalid(f"{at}.{name}", value, "must be positive")
    percent = target.get("averageUtilization")
    if percent is not None and percent < 1:
        yield _invalid(f"{at}.averageUtilization", percent, "must be greater than 0")


def _choice_errors(name: str, target: JsonObject, at: str) -> Iterator[FieldError]:
    """Which of the values a source needs, and which exclude each other."""

    def has(value: str) -> bool:
        return target.get(value) is not None

    if name == "object" and not (has("value") or has("averageValue")):
        yield _required(f"{at}.averageValue", "must set either a target value or averageValue")
    if name == "external":
        if not (has("value") or has("averageValue")):
            detail = "must set either a target value for metric or a per-pod target"
            yield _required(f"{at}.averageValue", detail)
        if has("value") and has("averageValue"):
            yield _forbidden(f"{at}.value", "may not set both a target value for metric and a per-pod target")
    if name == "pods" and not has("averageValue"):
        yield _required(f"{at}.averageValue", "must specify a positive target averageValue")
    if name in ("resource", "containerResource"):
        if not (has("averageUtilization") or has("averageValue")):
            yield _required(f"{at}.averageUtilization", "must set either a target raw value or a target utilization")
        if has("averageUtilization") and has("averageValue"):
            yield _forbidden(f"{at}.averageValue", "may not set both a target raw value and a target utilization")


# --- behavior ---


def _rules_errors(rules: JsonObject, at: str) -> Iterator[FieldError]:
    window, select = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    if window is not None and window < 0:
        yield _invalid(f"{at}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > _MAX_WINDOW_S:
        detail = f"must be less than or equal to {_MAX_WINDOW_S}"
        yield _invalid(f"{at}.stabilizationWindowSeconds", window, detail)
    if select is not None and select not in _SELECT_POLICIES:
        yield _unsupported(f"{at}.selectPolicy", select, _SELECT_POLICIES)
    if not rules.get("policies"):
        yield _required(f"{at}.policies", "must specify at least one Policy")
    for index, policy in enumerate(rules.get("policies") or ()):
        yield from _policy_errors(policy, f"{at}.policies[{index}]")
    tolerance = rules.get("tolerance")
    if tolerance is not None and QUANTITIES[tolerance].nanos < 0:
        yield _invalid(f"{at}.tolerance", tolerance, "must be greater than or equal to 0")


def _policy_errors(policy: JsonObject, at: str) -> Iterator[FieldError]:
    kind: Any = policy.get("type") or ""
    if kind not in _POLICY_TYPES:
        yield _unsupported(f"{at}.type", kind, _POLICY_TYPES)
    for name in ("value", "periodSeconds"):
        if (policy.get(name) or 0) <= 0:
            yield _invalid(f"{at}.{name}", policy.get(name) or 0, "must be greater than zero")
    if (policy.get("periodSeconds") or 0) > _MAX_PERIOD_S:
        yield _invalid(f"{at}.periodSeconds", policy["periodSeconds"], f"must be less than or equal to {_MAX_PERIOD_S}")
