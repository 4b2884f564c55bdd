"""Horizontal pod autoscalers are stored as autoscaling/v2 and served as v1, too.

v1 knows only the CPU usage. Everything else of v2 is in annotations there, so that a client that reads and writes v1
loses nothing: the other metrics in v1's own form of them, the behavior with capital letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.codec.schema.decode import DecodeError, decode_document
from plimsoll.codec.schema.schema import schema
from plimsoll.rules.model.json_object import JsonObject

DEFAULT_CPU_PERCENT = 80
_PREFIX = "autoscaling.alpha.kubernetes.io"
_METRICS, _CURRENT_METRICS, _CONDITIONS, _BEHAVIOR = (
    f"{_PREFIX}/{name}" for name in ("metrics", "current-metrics", "conditions", "behavior")
)
_TOLERANCES = (f"{_PREFIX}/scale-{direction}-tolerance" for direction in ("up", "down"))
_ANNOTATIONS = frozenset((_METRICS, _CURRENT_METRICS, _CONDITIONS, _BEHAVIOR, *_TOLERANCES))
_STORED = schema("autoscaling/v2", "HorizontalPodAutoscaler")
_RULES = ("StabilizationWindowSeconds", "SelectPolicy", "Policies", "Tolerance")
_STATUS = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
# Of each source: its name in v1, and where v2 has it. `target` is `current` in a status, also in v1's names.
_MEMBERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "object": {
        "target": ("describedObject",),
        "metricName": ("metric", "name"),
        "targetValue": ("target", "value"),
        "selector": ("metric", "selector"),
        "averageValue": ("target", "averageValue"),
    },
    "pods": {
        "metricName": ("metric", "name"),
        "targetAverageValue": ("target", "averageValue"),
        "selector": ("metric", "selector"),
    },
    "resource": {
        "name": ("name",),
        "targetAverageUtilization": ("target", "averageUtilization"),
        "targetAverageValue": ("target", "averageValue"),
    },
    "containerResource": {
        "name": ("name",),
        "targetAverageUtilization": ("target", "averageUtilization"),
        "targetAverageValue": ("target", "averageValue"),
        "container": ("container",),
    },
    "external": {
        "metricName": ("metric", "name"),
        "metricSelector": ("metric", "selector"),
        "targetValue": ("target", "value"),
        "targetAverageValue": ("target", "averageValue"),
    },
}
# Quantities that v1 prints as "0" where v2 has none.
_ZEROS = {
    "target": {"object": "targetValue", "pods": "targetAverageValue"},
    "current": {
        "object": "currentValue",
        "pods": "currentAverageValue",
        "resource": "currentAverageValue",
        "containerResource": "currentAverageValue",
        "external": "currentValue",
    },
}


def cpu_metric(percent: int) -> JsonObject:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def as_v1(stored: JsonObject) -> JsonObject:
    """A stored autoscaler as autoscaling/v1, without kind and apiVersion."""
    spec, status = stored.get("spec") or {}, stored.get("status") or {}
    metrics, current = spec.get("metrics") or [], status.get("currentMetrics") or []
    first: JsonObject = {name: spec[name] for name in ("scaleTargetRef", "minReplicas", "maxReplicas") if name in spec}
    percents = [percent for metric in metrics if (percent := _cpu_percent(metric, "target")) is not None]
    if percents:
        first["targetCPUUtilizationPercentage"] = percents[0]
    shown: JsonObject = {"currentReplicas": 0, **{name: status[name] for name in _STATUS if name in status}}
    for percent in (_cpu_percent(metric, "current") for metric in current):
        if percent is not None:
            shown["currentCPUUtilizationPercentage"] = percent
    others = [_metric_v1(metric, "target") for metric in metrics if _cpu_percent(metric, "target") is None]
    reported: dict[str, Any] = {
        _METRICS: others,
        _CURRENT_METRICS: [_metric_v1(metric, "current") for metric in current],
        _BEHAVIOR: _behavior_v1(spec.get("behavior") or {}),
        _CONDITIONS: status.get("conditions"),
    }
    texts = {name: msgspec.json.encode(value).decode() for name, value in reported.items() if value}
    return {**stored, "metadata": _annotated(stored["metadata"], texts), "spec": first, "status": shown}


def as_stored(sent: JsonObject) -> JsonObject:
    """A body in autoscaling/v1 as it is stored. An annotation that cannot be read counts as absent."""
    spec, status = sent.get("spec") or {}, sent.get("status") or {}
    annotated = _annotations((sent.get("metadata") or {}).get("annotations") or {})
    percent = spec.get("targetCPUUtilizationPercentage")
    metrics = [*annotated.get("metrics", ()), *([cpu_metric(percent)] if percent is not None else ())]
    new: JsonObject = {name: spec[name] for name in ("scaleTargetRef", "minReplicas", "maxReplicas") if name in spec}
    new["metrics"] = metrics or [cpu_metric(DEFAULT_CPU_PERCENT)]
    if annotated.get("behavior"):
        new["behavior"] = annotated["behavior"]
    reported: JsonObject = {name: status[name] for name in _STATUS if name in status}
    reported["currentMetrics"] = annotated.get("currentMetrics")
    if "currentMetrics" not in annotated and status.get("currentCPUUtilizationPercentage") is not None:
        used = {"averageUtilization": status["currentCPUUtilizationPercentage"]}
        reported["currentMetrics"] = [{"type": "Resource", "resource": {"name": "cpu", "current": used}}]
    if annotated.get("conditions"):
        reported["conditions"] = annotated["conditions"]
    return {**sent, "metadata": _annotated(sent.get("metadata") or {}, {}), "spec": new, "status": reported}


def _annotations(texts: Mapping[str, str]) -> JsonObject:
    """What the annotations say, in the form of v2 and with its types."""
    found: JsonObject = {}
    for annotation, part, name in (
        (_METRICS, "spec", "metrics"),
        (_BEHAVIOR, "spec", "behavior"),
        (_CURRENT_METRICS, "status", "currentMetrics"),
        (_CONDITIONS, "status", "conditions"),
    ):
        if annotation not in texts:
            continue
        try:
            value = msgspec.json.decode(texts[annotation])
            if name == "behavior":
                value = _small(value)
            elif name != "conditions":
                value = [_metric_v2(metric, "target" if part == "spec" else "current") for metric in value]
            read = decode_document(_STORED, {part: {name: value}}).document
        except (msgspec.DecodeError, DecodeError, TypeError, AttributeError):
            continue
        found[name] = (read.get(part) or {}).get(name)
    return found


def _cpu_percent(metric: JsonObject, part: str) -> int | None:
    source = metric.get("resource") or {}
    if metric.get("type") != "Resource" or source.get("name") != "cpu":
        return None
    percent: int | None = (source.get(part) or {}).get("averageUtilization")
    return percent


def _annotated(metadata: JsonObject, texts: Mapping[str, str]) -> JsonObject:
    kept = {name: text for name, text in (metadata.get("annotations") or {}).items() if name not in _ANNOTATIONS}
    rest = {name: value for name, value in metadata.items() if name != "annotations"}
    return {**rest, "annotations": {**kept, **texts}} if kept or texts else rest


def _v1_name(name: str, part: str) -> str:
    return part + name.removeprefix("target") if name.startswith("target") and name != "target" else name


def _metric_v1(metric: JsonObject, part: str) -> JsonObject:
    made: JsonObject = {"type": metric.get("type") or ""}
    for source, members in _MEMBERS.items():
        if (given := metric.get(source)) is None:
            continue
        zero = _ZEROS[part].get(source, "")
        values: JsonObject = {zero: "0"} if zero else {}
        for name, path in members.items():
            if (value := _at(given, [part if step == "target" else step for step in path])) is not None:
                values[_v1_name(name, part)] = value
        made[source] = values
    return made


def _metric_v2(metric: JsonObject, part: str) -> JsonObject:
    made: JsonObject = {"type": metric.get("type") or ""}
    for source, members in _MEMBERS.items():
        if not isinstance(given := metric.get(source), dict):
            continue
        values: JsonObject = {part: {"type": _target_type(source, given)} if part == "target" else {}}
        for name, path in members.items():
            value = given.get(_v1_name(name, part))
            if value is None or (source == "object" and name == "targetValue" and value == "0"):
                continue
            first, *rest = (part if step == "target" else step for step in path)
            if rest:
                values.setdefault(first, {})[rest[0]] = value
            else:
                values[first] = value
        made[source] = values
    return made


def _target_type(source: str, given: JsonObject) -> str:
    if source in ("resource", "containerResource"):
        return "AverageValue" if given.get("targetAverageUtilization") is None else "Utilization"
    if source == "object":
        return "Value" if given.get("averageValue") is None else "AverageValue"
    return "Value" if given.get("targetValue") is not None else "AverageValue"


def _at(value: Any, path: Iterable[str]) -> Any:
    for step in path:
        value = (value or {}).get(step)
    return value


def _behavior_v1(behavior: JsonObject) -> JsonObject:
    """As Go prints structs whose fields have no names of their own."""
    return {
        _capitals(direction): {**dict.fromkeys(_RULES), **_capitals(rules)} for direction, rules in behavior.items()
    }


def _capitals(value: Any) -> Any:
    if isinstance(value, str):
        return value[:1].upper() + value[1:]
    if isinstance(value, dict):
        return {_capitals(name): each if isinstance(each, str) else _capitals(each) for name, each in value.items()}
    return [_capitals(each) for each in value] if isinstance(value, list) else value


def _small(value: Any) -> Any:
    if isinstance(value, dict):
        return {name[:1].lower() + name[1:]: _small(each) for name, each in value.items() if each is not None}
    return [_small(each) for each in value] if isinstance(value, list) else value
