"""Defaults of horizontal pod autoscalers."""

from __future__ import annotations

from plimsoll.codec.autoscaler_versions import DEFAULT_CPU_PERCENT, cpu_metric
from plimsoll.rules.model.json_object import JsonObject

_PERIOD_S = 15
_PERCENT: JsonObject = {"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S}
_PODS: JsonObject = {"type": "Pods", "value": 4, "periodSeconds": _PERIOD_S}
# stabilizationWindowSeconds downwards is an option of the controller.
_RULES: dict[str, JsonObject] = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [_PODS, _PERCENT]},
    "scaleDown": {"selectPolicy": "Max", "policies": [_PERCENT]},
}


def autoscaler(document: JsonObject) -> JsonObject:
    """autoscaling/v1 has its default of the metrics in the form that is stored."""
    given = {name: value for name, value in (document.get("spec") or {}).items() if value is not None}
    spec: JsonObject = {"minReplicas": 1, **given}
    if document.get("apiVersion") == "autoscaling/v2":
        spec["metrics"] = spec.get("metrics") or [cpu_metric(DEFAULT_CPU_PERCENT)]
        if "behavior" in spec:
            spec["behavior"] = behavior(spec["behavior"])
    return {**document, "spec": spec}


def behavior(given: JsonObject) -> JsonObject:
    return {
        direction: {
            **defaults,
            **{name: value for name, value in (given.get(direction) or {}).items() if value is not None},
        }
        for direction, defaults in _RULES.items()
    }
