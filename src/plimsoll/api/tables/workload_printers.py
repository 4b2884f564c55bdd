"""One line of `kubectl get` for workloads: Deployments, StatefulSets, Jobs and the like (05 B7)."""

from __future__ import annotations

from typing import Any

from plimsoll.api.tables.columns import AGE, NAME, Printer, TableColumn, age_of, columns, name_of
from plimsoll.api.tables.pod_printer import NONE, part
from plimsoll.rules.controllers.adoption import selector_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.scheduling.selectors import selector_text
from plimsoll.rules.timestamps import age, epoch_seconds, human_duration

_UNKNOWN = "<unknown>"
_METRICS_SHOWN = 2
_METRIC_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}


def _template(document: JsonObject) -> list[str]:
    """Containers, Images, Selector: the wide cells of every workload."""
    containers = part(document, "spec", "template", "spec").get("containers") or []
    return [
        ",".join(container.get("name") or "" for container in containers),
        ",".join(container.get("image") or "" for container in containers),
        selector_text(selector_of(document)) or NONE,
    ]


def _deployment(document: JsonObject, now_s: float) -> list[Any]:
    desired, ready, updated, available = _replicas(document, "readyReplicas", "updatedReplicas", "availableReplicas")
    replicas = [f"{ready}/{desired}", updated, available]
    return [name_of(document), *replicas, age_of(document, now_s), *_template(document)]


def _replica_set(document: JsonObject, now_s: float) -> list[Any]:
    replicas = _replicas(document, "replicas", "readyReplicas")
    return [name_of(document), *replicas, age_of(document, now_s), *_template(document)]


def _replicas(document: JsonObject, *fields: str) -> list[int]:
    """The desired number, then these of the status."""
    desired, status = part(document, "spec").get("replicas"), part(document, "status")
    return [1 if desired is None else int(desired), *(status.get(field) or 0 for field in fields)]


def _autoscaler(autoscaler: JsonObject, now_s: float) -> list[Any]:
    spec, status = part(autoscaler, "spec"), part(autoscaler, "status")
    target, fewest = part(spec, "scaleTargetRef"), spec.get("minReplicas")
    current = status.get("currentMetrics") or []
    shown = [
        _metric(metric, current[index] if index < len(current) else {})
        for index, metric in enumerate(spec.get("metrics") or [])
    ]
    more = f" + {len(shown) - _METRICS_SHOWN} more..." if len(shown) > _METRICS_SHOWN else ""
    return [
        name_of(autoscaler),
        f"{target.get('kind') or ''}/{target.get('name') or ''}",
        ", ".join(shown[:_METRICS_SHOWN]) + more or NONE,
        "<unset>" if fewest is None else str(fewest),
        spec.get("maxReplicas") or 0,
        status.get("currentReplicas") or 0,
        age_of(autoscaler, now_s),
    ]


def _metric(metric: JsonObject, status: JsonObject) -> str:
    """`cpu: 40%/80%`: the value and the target."""
    name = _METRIC_SOURCES.get(metric.get("type") or "")
    if name is None:
        return "<unknown type>"
    source, target, current = part(metric, name), part(metric, name, "target"), part(status, name, "current")
    about = f"{source.get('name') or ''}: " if name in ("resource", "containerResource") else ""
    if (average := target.get("averageValue")) is not None:
        per_pod = " (avg)" if name in ("external", "object") else ""
        return f"{about}{current.get('averageValue') or _UNKNOWN}/{average}{per_pod}"
    if about:
        used, wanted = (each.get("averageUtilization") for each in (current, target))
        return f"{about}{_UNKNOWN if used is None else f'{used}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"
    return f"{current.get('value') or _UNKNOWN}/{target.get('value') or '0'}"


def _job(job: JsonObject, now_s: float) -> list[Any]:
    spec, status = part(job, "spec"), part(job, "status")
    done, desired, parallel = status.get("succeeded") or 0, spec.get("completions"), spec.get("parallelism") or 0
    if desired is not None:
        completions = f"{done}/{desired}"
    else:
        completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    cells = [_job_status(job, status), completions, _job_duration(status, now_s)]
    return [name_of(job), *cells, age_of(job, now_s), *_template(job)]


def _job_status(job: JsonObject, status: JsonObject) -> str:
    true = {condition.get("type") for condition in status.get("conditions") or [] if condition.get("status") == "True"}
    ended = [type_ for type_ in ("Complete", "Failed") if type_ in true]
    deleted = ["Terminating"] if part(job, "metadata").get("deletionTimestamp") else []
    open_ = [type_ for type_ in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if type_ in true]
    return [*ended, *deleted, *open_, "Running"][0]


def _job_duration(status: JsonObject, now_s: float) -> str:
    start = epoch_seconds(status.get("startTime"))
    if start is None:
        return ""
    end = epoch_seconds(status.get("completionTime"))
    return human_duration((now_s if end is None else end) - start)


def _stateful_set(document: JsonObject, now_s: float) -> list[Any]:
    desired, ready = _replicas(document, "readyReplicas")
    return [name_of(document), f"{ready}/{desired}", age_of(document, now_s), *_template(document)[:2]]


_DAEMON_COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


def _daemon_set(document: JsonObject, now_s: float) -> list[Any]:
    status = part(document, "status")
    counts = [status.get(name) or 0 for name in _DAEMON_COUNTS]
    wanted = part(document, "spec", "template", "spec", "nodeSelector")
    nodes = ",".join(f"{key}={value}" for key, value in sorted(wanted.items())) or NONE
    return [name_of(document), *counts, nodes, age_of(document, now_s), *_template(document)]


def _cron_job(document: JsonObject, now_s: float) -> list[Any]:
    spec, status = part(document, "spec"), part(document, "status")
    last = status.get("lastScheduleTime")
    job = {"spec": part(document, "spec", "jobTemplate", "spec")}
    return [
        name_of(document),
        spec.get("schedule") or "",
        spec.get("timeZone") or NONE,
        str(bool(spec.get("suspend"))),
        len(status.get("active") or ()),
        age(last, now_s) if last else NONE,
        age_of(document, now_s),
        *_template(job)[:2],
        NONE if job["spec"].get("selector") is None else _template(job)[2],
    ]


def _controller_revision(document: JsonObject, now_s: float) -> list[Any]:
    owners = part(document, "metadata").get("ownerReferences") or ()
    owner = next((each for each in owners if each.get("controller")), None)
    shown = NONE
    if owner is not None:
        group = (owner.get("apiVersion") or "").rpartition("/")[0]
        kind = (owner.get("kind") or "").lower()
        shown = f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return [name_of(document), shown, document.get("revision") or 0, age_of(document, now_s)]


def _pod_template(document: JsonObject, now_s: float) -> list[Any]:
    template = part(document, "template")
    labels = part(document, "template", "metadata", "labels")
    cells = _template({"spec": {"template": template}})[:2]
    shown = ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE
    return [name_of(document), *cells, shown, age_of(document, now_s)]


_WORKLOAD_WIDE = ("Containers", "Images", "Selector")

_REPLICAS = Printer(
    (
        NAME,
        TableColumn("Desired", "integer", "How many replicas are desired."),
        TableColumn("Current", "integer", "How many replicas there are."),
        TableColumn("Ready", "integer", "How many replicas are ready."),
        *columns("Age", wide=_WORKLOAD_WIDE)[1:],
    ),
    _replica_set,
)

WORKLOAD_PRINTERS: dict[str, Printer] = {
    "deployments": Printer(columns("Ready", "Up-to-date", "Available", "Age", wide=_WORKLOAD_WIDE), _deployment),
    "replicasets": _REPLICAS,
    "jobs": Printer(columns("Status", "Completions", "Duration", "Age", wide=_WORKLOAD_WIDE), _job),
    "replicationcontrollers": _REPLICAS,
    "statefulsets": Printer(columns("Ready", "Age", wide=_WORKLOAD_WIDE[:2]), _stateful_set),
    "daemonsets": Printer(
        (
            NAME,
            TableColumn("Desired", "integer", "How many nodes should run a pod."),
            TableColumn("Current", "integer", "How many nodes that should run a pod do."),
            TableColumn("Ready", "integer", "How many nodes have a pod that is ready."),
            TableColumn("Up-to-date", "integer", "How many nodes have a pod of the newest template."),
            TableColumn("Available", "integer", "How many nodes have a pod that is available."),
            *columns("Node Selector", "Age", wide=_WORKLOAD_WIDE)[1:],
        ),
        _daemon_set,
    ),
    "cronjobs": Printer(
        (
            *columns("Schedule", "Timezone", "Suspend"),
            TableColumn("Active", "integer", "How many jobs run."),
            *columns("Last Schedule", "Age", wide=_WORKLOAD_WIDE)[1:],
        ),
        _cron_job,
    ),
    "controllerrevisions": Printer(
        (*columns("Controller"), TableColumn("Revision", "integer", "Its number."), AGE), _controller_revision
    ),
    "horizontalpodautoscalers": Printer(
        columns("Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"), _autoscaler
    ),
    "podtemplates": Printer((*columns("Containers", "Images", "Pod Labels"), AGE), _pod_template),
}
