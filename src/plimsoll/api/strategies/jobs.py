"""Jobs and CronJobs: what may be requested, and what may change later."""

from __future__ import annotations

import re
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from plimsoll.api.strategies.base import Strategy, WriteContext, immutable, invalid, required, unsupported
from plimsoll.api.strategies.workloads import WorkloadStrategy, immutable_errors, number_errors, template_errors
from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.warnings import name_warnings, template_warnings
from plimsoll.rules.controllers.cron_schedule import ScheduleError, parsed_schedule
from plimsoll.rules.controllers.job_indexes import indexes_problem, parsed_indexes
from plimsoll.rules.controllers.pods import has_condition
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems, qualified_name_problems

_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_POLICIES = ("OnFailure", "Never")
_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_MAX_PARALLELISM, _MAX_RULES, _MAX_CODES = 100_000, 20, 255
_MANY_INDEXES = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes "
    "might not be able to track completedIndexes when a big number of indexes fail"
)
_ZONE_IN_SCHEDULE = (
    "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)
_TIME_ZONE = re.compile(r"[A-Za-z._0-9+-]{1,14}", re.ASCII)


class JobStrategy(WorkloadStrategy):
    restart_policies = _POLICIES
    immutable_fields = (
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    )

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

    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        errors = super().create_errors(document, context)
        if _is_indexed(spec) and spec.get("completions"):
            name = f"{document['metadata']['name']}-{spec['completions'] - 1}"
            if dns_label_problems(name):
                reason = f"will not able to create pod with invalid DNS label: {name}"
                errors.append(invalid("metadata.name", document["metadata"]["name"], reason))
        return errors

    def own_errors(self, spec: JsonObject, context: WriteContext) -> list[FieldError]:
        return job_spec_errors(spec, "spec")

    def update_warnings(self, old: JsonObject, new: JsonObject) -> list[str]:
        return _job_warnings(new.get("spec") or {}, "spec")

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = super().update_errors(old, new, context) + _template_change(old, new, context.gates)
        before, after = old.get("spec") or {}, new.get("spec") or {}
        is_elastic = _is_indexed(after) and after.get("completions") == after.get("parallelism")
        return errors if is_elastic else errors + immutable_errors({"spec": before}, {"spec": after}, "completions")

    def status_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return _status_errors(old, new)


def _is_indexed(spec: JsonObject) -> bool:
    return bool(spec.get("completionMode") == "Indexed")


def _template_change(old: JsonObject, new: JsonObject, gates: Gates) -> list[FieldError]:
    """The template of a suspended job without pods may get other labels, nodes and resources; without the gates, other
    labels and nodes before the first start. Where resources may change, the template's metadata is not compared."""
    before, after = (((each.get("spec") or {}).get("template")) or {} for each in (old, new))
    status = old.get("status") or {}
    is_suspended, is_new = bool((old.get("spec") or {}).get("suspend")), not status.get("startTime")
    is_idle = is_suspended and (is_new or has_condition(old, "Suspended")) and not status.get("active")
    moves = is_idle if gates.suspended_scheduling else is_suspended and is_new
    if is_idle and gates.suspended_resources:
        fixed_before, fixed_after = (
            _fixed_spec(each.get("spec") or {}, moves=moves, resizes=True) for each in (before, after)
        )
        return [] if fixed_before == fixed_after else [immutable("spec.template.spec", after.get("spec"))]
    return [] if _fixed(before, moves=moves) == _fixed(after, moves=moves) else [immutable("spec.template", after)]


def _fixed(template: JsonObject, *, moves: bool) -> JsonObject:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    if moves:
        metadata = {name: value for name, value in metadata.items() if name not in ("labels", "annotations")}
    return {"metadata": metadata, "spec": _fixed_spec(spec, moves=moves, resizes=False)}


def _fixed_spec(spec: JsonObject, *, moves: bool, resizes: bool) -> JsonObject:
    """Without what may change: where its pods run (`moves`), the resources of containers (`resizes`)."""
    spec = {**spec}
    if moves:
        for field in ("nodeSelector", "tolerations", "schedulingGates"):
            spec.pop(field, None)
        affinity = {name: value for name, value in (spec.get("affinity") or {}).items() if name != "nodeAffinity"}
        spec["affinity"] = affinity
    for kind in ("initContainers", "containers") if resizes else ():
        if spec.get(kind):
            spec[kind] = [{name: value for name, value in each.items() if name != "resources"} for each in spec[kind]]
    return spec


def job_spec_errors(spec: JsonObject, path: str) -> list[FieldError]:
    """Everything about a job but its selector and template."""
    errors = number_errors(spec, *_NUMBERS, path=path)
    mode = spec.get("completionMode")
    if mode not in (None, "NonIndexed", "Indexed"):
        errors.append(unsupported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    errors += _indexed_errors(spec, path) if mode == "Indexed" else _plain_errors(spec, path)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if (manager := spec.get("managedBy")) is not None:
        errors += _manager_errors(manager, f"{path}.managedBy")
    policy, replacement = spec.get("podFailurePolicy"), spec.get("podReplacementPolicy")
    allowed = ("Failed",) if policy else ("Failed", "TerminatingOrFailed")
    if replacement is not None and replacement not in allowed:
        errors.append(unsupported(f"{path}.podReplacementPolicy", replacement, allowed))
    if policy is not None:
        errors += _failure_policy_errors(spec, policy, f"{path}.podFailurePolicy.rules")
    return errors


def _manager_errors(manager: str, path: str) -> list[FieldError]:
    if "/" not in manager.strip("/") or not all(manager.partition("/")[::2]):
        return [invalid(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    if len(manager) > 63:
        return [FieldError("FieldValueTooLong", path, "may not be more than 63 bytes", manager)]
    return []


def _plain_errors(spec: JsonObject, path: str) -> list[FieldError]:
    reason = "requires indexed completion mode"
    fields = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
    return [
        invalid(f"{path}.{field}", value if isinstance(value, int) else None, reason)
        for field in fields
        if (value := spec.get(field)) is not None
    ]


def _indexed_errors(spec: JsonObject, path: str) -> list[FieldError]:
    completions, parallelism, most = (spec.get(name) for name in ("completions", "parallelism", "maxFailedIndexes"))
    if completions is None:
        return [required(f"{path}.completions", "when completion mode is Indexed")]
    errors = []
    if parallelism is not None and parallelism > _MAX_PARALLELISM:
        reason = f"must be less than or equal to {_MAX_PARALLELISM} when completion mode is Indexed"
        errors.append(invalid(f"{path}.parallelism", parallelism, reason))
    if most is not None and most > completions:
        errors.append(invalid(f"{path}.maxFailedIndexes", most, "must be less than or equal to completions"))
    if policy := spec.get("successPolicy"):
        rules = policy.get("rules") or []
        where = f"{path}.successPolicy.rules"
        if not rules:
            reason = "at least one rules must be specified when the successPolicy is specified"
            errors.append(required(where, reason))
        if len(rules) > _MAX_RULES:
            errors.append(_too_many(where, len(rules), _MAX_RULES))
        for index, rule in enumerate(rules):
            errors += _success_rule_errors(rule, completions, f"{where}[{index}]")
    return errors


def _too_many(path: str, count: int, most: int) -> FieldError:
    return FieldError("FieldValueTooMany", path, f"must have at most {most} items", count)


def _success_rule_errors(rule: JsonObject, completions: int, path: str) -> list[FieldError]:
    text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if text is None and count is None:
        return [required(path, "at least one of succeededCount or succeededIndexes must be specified")]
    errors = []
    if text is not None and (problem := indexes_problem(text, completions)):
        errors.append(invalid(f"{path}.succeededIndexes", text, f"error parsing succeededIndexes: {problem}"))
    if count is not None:
        errors += number_errors(rule, "succeededCount", path=path)
        if count > completions:
            reason = f"must be less than or equal to {completions} (the number of specified completions)"
            errors.append(invalid(f"{path}.succeededCount", count, reason))
        if text is not None and not errors and count > (total := len(parsed_indexes(text, completions))):
            reason = (
                f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            )
            errors.append(invalid(f"{path}.succeededCount", count, reason))
    return errors


def _failure_policy_errors(spec: JsonObject, policy: JsonObject, path: str) -> list[FieldError]:
    rules = policy.get("rules") or []
    errors = [_too_many(path, len(rules), _MAX_RULES)] if len(rules) > _MAX_RULES else []
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    names = {each.get("name") for kind in ("containers", "initContainers") for each in pod_spec.get(kind) or ()}
    if pod_spec.get("restartPolicy") == "OnFailure":
        where, reason = (
            path.partition(".podFailurePolicy")[0],
            'only "Never" is supported when podFailurePolicy is specified',
        )
        errors.append(invalid(f"{where}.template.spec.restartPolicy", "OnFailure", reason))
    for index, rule in enumerate(rules):
        errors += _failure_rule_errors(spec, rule, f"{path}[{index}]", names)
    return errors


def _failure_rule_errors(spec: JsonObject, rule: JsonObject, path: str, names: set[Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    action, codes, conditions = rule.get("action") or "", rule.get("onExitCodes"), rule.get("onPodConditions")
    if not action:
        errors.append(required(f"{path}.action", f"valid values: {_quoted(_ACTIONS)}"))
    elif action not in _ACTIONS:
        errors.append(unsupported(f"{path}.action", action, _ACTIONS))
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        errors.append(invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    if codes is not None:
        errors += _exit_code_errors(codes, f"{path}.onExitCodes", names)
    for index, pattern in enumerate(conditions or ()):
        where = f"{path}.onPodConditions[{index}]"
        type_ = pattern.get("type") or ""
        errors += [invalid(f"{where}.type", type_, problem) for problem in qualified_name_problems(type_)]
        if pattern.get("status") not in ("True", "False", "Unknown"):
            errors.append(unsupported(f"{where}.status", str(pattern.get("status")), ("False", "True", "Unknown")))
    if codes is not None and conditions:
        errors.append(invalid(path, None, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not conditions:
        errors.append(invalid(path, None, "specifying one of OnExitCodes and OnPodConditions is required"))
    return errors


def _quoted(names: tuple[str, ...]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"


def _exit_code_errors(codes: JsonObject, path: str, names: set[Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values, container = codes.get("operator") or "", codes.get("values") or [], codes.get("containerName")
    if operator not in ("In", "NotIn"):
        errors.append(unsupported(f"{path}.operator", operator, ("In", "NotIn")))
    if container is not None and container not in names:
        reason = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid(f"{path}.containerName", container, reason))
    if not values:
        errors.append(invalid(f"{path}.values", None, "at least one value is required"))
    elif len(values) > _MAX_CODES:
        errors.append(_too_many(f"{path}.values", len(values), _MAX_CODES))
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.append(invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in seen:
            errors.append(FieldError("FieldValueDuplicate", f"{path}.values[{index}]", "", value))
        seen.add(value)
    if values != sorted(values):
        errors.append(invalid(f"{path}.values", msgspec.json.encode(values).decode(), "must be ordered"))
    return errors


# --- status ---


def _status_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    """What a controller, ours or another one, may not write."""
    before, after = old.get("status") or {}, new.get("status") or {}
    errors = number_errors(after, "active", "succeeded", "failed", "ready", "terminating", path="status")

    def conflict(one: str, other: str) -> None:
        if has_condition(new, one) and has_condition(new, other):
            errors.append(invalid("status.conditions", None, f"cannot set {one}=True and {other}=true conditions"))

    conflict("Complete", "Failed")
    conflict("Complete", "FailureTarget")
    conflict("SuccessCriteriaMet", "Failed")
    conflict("SuccessCriteriaMet", "FailureTarget")
    is_complete, is_done = has_condition(new, "Complete"), has_condition(new, "Complete", "Failed")
    if after.get("completionTime") and not is_complete:
        reason = "cannot set completionTime when there is no Complete=True condition"
        errors.append(invalid("status.completionTime", after["completionTime"], reason))
    if is_complete and not after.get("completionTime"):
        errors.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if is_done and not after.get("startTime"):
        errors.append(required("status.startTime", "startTime is required for finished job"))
    for field in ("active", "terminating"):
        if is_done and (after.get(field) or 0) > 0:
            errors.append(invalid(f"status.{field}", after[field], f"{field}>0 is invalid for finished job"))
    if (after.get("ready") or 0) > (after.get("active") or 0):
        errors.append(invalid("status.ready", after["ready"], "cannot set more ready pods than active"))
    for type_ in ("Failed", "Complete", "FailureTarget"):
        if has_condition(old, type_) and not has_condition(new, type_):
            reason = f"cannot disable the terminal {type_}=True condition"
            errors.append(invalid("status.conditions", None, reason))
    for field in ("failed", "succeeded"):
        if (after.get(field) or 0) < (before.get(field) or 0) and not _is_indexed(new.get("spec") or {}):
            errors.append(invalid(f"status.{field}", after.get(field) or 0, f"cannot decrease the {field} counter"))
    return errors


def _job_warnings(spec: JsonObject, path: str) -> list[str]:
    warnings = template_warnings(spec.get("template") or {}, f"{path}.template")
    if _is_indexed(spec) and (spec.get("completions") or 0) > 100_000 and (spec.get("parallelism") or 0) > 10_000:
        warnings.insert(0, f"{path}: {_MANY_INDEXES}")
    return warnings


# --- CronJobs ---


class CronJobStrategy(Strategy):
    def create_errors(self, document: JsonObject, context: WriteContext) -> list[FieldError]:
        errors = self._spec_errors(document, "", context)
        name = document["metadata"]["name"]
        if len(name) > 52:
            errors.append(invalid("metadata.name", name, "must be no more than 52 characters"))
        return errors

    def update_errors(self, old: JsonObject, new: JsonObject, context: WriteContext) -> list[FieldError]:
        return self._spec_errors(new, (old.get("spec") or {}).get("schedule") or "", context)

    def warnings(self, document: JsonObject) -> list[str]:
        named = name_warnings(document["metadata"]["name"], "Pod names and hostnames")
        job = ((document.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
        return named + _job_warnings(job, "spec.jobTemplate.spec")

    def update_warnings(self, old: JsonObject, new: JsonObject) -> list[str]:
        spec = new.get("spec") or {}
        warnings = _job_warnings((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
        return warnings + ([_ZONE_IN_SCHEDULE] if "TZ" in (spec.get("schedule") or "") else [])

    def _spec_errors(self, document: JsonObject, before: str, context: WriteContext) -> list[FieldError]:
        spec = document.get("spec") or {}
        numbers = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
        errors = _schedule_errors(spec, before) + number_errors(spec, *numbers)
        policy = spec.get("concurrencyPolicy") or ""
        if policy not in ("Allow", "Forbid", "Replace"):
            errors.append(unsupported("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace")))
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        path = "spec.jobTemplate.spec"
        if job.get("selector") is not None:
            errors.append(invalid(f"{path}.selector", None, "`selector` will be auto-generated"))
        if job.get("manualSelector"):
            errors.append(unsupported(f"{path}.manualSelector", "true", ("nil", "false")))
        errors += job_spec_errors(job, path)
        return errors + template_errors(job.get("template") or {}, f"{path}.template", _POLICIES, context)


def _schedule_errors(spec: JsonObject, before: str) -> list[FieldError]:
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not schedule:
        return [required("spec.schedule")]
    errors = []
    try:
        parsed_schedule(schedule)
    except ScheduleError as error:
        errors.append(invalid("spec.schedule", schedule, str(error)))
    if "TZ" in schedule and "TZ" not in before:
        reason = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid("spec.schedule", schedule, reason))
    elif "TZ" in schedule and zone is not None:
        reason = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        errors.append(invalid("spec.schedule", schedule, reason))
    return errors + ([] if zone is None else _zone_errors(zone))


def _zone_errors(zone: str) -> list[FieldError]:
    path = "spec.timeZone"
    if not zone:
        return [invalid(path, zone, "timeZone must be nil or non-empty string")]
    if zone.lower() == "local":
        return [
            invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
        ]
    if not all(_TIME_ZONE.fullmatch(part) and part not in (".", "..") for part in zone.split("/")):
        return [invalid(path, zone, f"unknown time zone {zone}")]
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return [invalid(path, zone, f"unknown time zone {zone}")]
    return []
