"""One line of `kubectl get` for every kind but pods: columns and cells (05 B7).

A `Printer` has its columns in the order they are sent; those with priority 1 show up with `-o wide`. Cells are computed
for each response, because ages and some states depend on the current time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from plimsoll.api.tables.pod_printer import NONE, part, pod_cells
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.timestamps import age, epoch_seconds, human_duration

Cells = Callable[[JsonObject, float], list[Any]]

UNKNOWN = "<unknown>"
_AGE = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed "
    "to be set in happens-before order across separate operations. Clients may not set this value. It is represented "
    "in RFC3339 form and is in UTC."
)
_NAME = "Name must be unique within a namespace."


class TableColumn(msgspec.Struct, frozen=True):
    name: str
    type: Literal["string", "integer", "boolean", "date"] = "string"
    description: str = ""
    priority: int = 0
    format: str = ""

    def definition(self) -> JsonObject:
        return {field: getattr(self, field) for field in ("name", "type", "format", "description", "priority")}


class Printer(msgspec.Struct, frozen=True):
    columns: tuple[TableColumn, ...]
    cells: Cells


NAME = TableColumn("Name", description=_NAME, format="name")
AGE = TableColumn("Age", description=_AGE)


def _columns(*names: str, wide: tuple[str, ...] = ()) -> tuple[TableColumn, ...]:
    """Name, then these, then those that only `-o wide` shows."""
    plain = tuple(AGE if name == "Age" else TableColumn(name) for name in names)
    return (NAME, *plain, *(TableColumn(name, priority=1) for name in wide))


def _created(document: JsonObject) -> Any:
    return part(document, "metadata").get("creationTimestamp")


def _name(document: JsonObject) -> str:
    return part(document, "metadata").get("name") or ""


def _age(document: JsonObject, now_s: float) -> str:
    return age(_created(document), now_s)


def _named(middle: Callable[[JsonObject], list[Any]]) -> Cells:
    """Name, these cells, Age."""
    return lambda document, now_s: [_name(document), *middle(document), _age(document, now_s)]


# --- kinds ---


def _pod(pod: JsonObject, now_s: float) -> list[Any]:
    ready, status, restarts, *wide = pod_cells(pod, now_s)
    return [_name(pod), ready, status, restarts, _age(pod, now_s), *wide]


def _node(profile: str) -> Cells:
    named = profile_named(profile)

    def cells(node: JsonObject, now_s: float) -> list[Any]:
        status, info = part(node, "status"), part(node, "status", "nodeInfo")
        addresses = status.get("addresses") or []
        kernel = info.get("kernelVersion") or UNKNOWN
        if named.node_table_shows_architecture and info.get("architecture"):
            kernel = f"{kernel} ({info['architecture']})"
        return [
            _name(node),
            _node_status(node),
            _node_roles(node),
            _age(node, now_s),
            info.get("kubeletVersion") or "",
            _address(addresses, "InternalIP"),
            _address(addresses, "ExternalIP"),
            info.get("osImage") or UNKNOWN,
            kernel,
            info.get("containerRuntimeVersion") or UNKNOWN,
        ]

    return cells


def _node_status(node: JsonObject) -> str:
    conditions = part(node, "status").get("conditions") or []
    ready = [condition.get("status") for condition in conditions if condition.get("type") == "Ready"]
    status = "Unknown" if not ready else "Ready" if ready[0] == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if part(node, "spec").get("unschedulable") else status


def _node_roles(node: JsonObject) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = part(node, "metadata", "labels")
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles)) or NONE


def _address(addresses: list[JsonObject], type_: str) -> str:
    return next((address.get("address") or NONE for address in addresses if address.get("type") == type_), NONE)


def _event(event: JsonObject, now_s: float) -> list[Any]:
    """In core/v1, whichever API group is requested."""
    about, source = part(event, "involvedObject"), part(event, "source")
    series = part(event, "series")
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return [
        age(last, now_s),
        event.get("type") or "",
        event.get("reason") or "",
        f"{(about.get('kind') or '').lower()}/{about.get('name') or ''}",
        about.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        (event.get("message") or "").strip(),
        age(first, now_s),
        series.get("count") or event.get("count") or 1,
        _name(event),
    ]


_EVENT_COLUMNS = (
    TableColumn("Last Seen", description="Time this event was last seen"),
    TableColumn("Type", description="Type of this event (Normal, Warning)"),
    TableColumn("Reason", description="Why the change of state happened"),
    TableColumn("Object", description="The object this event is about"),
    TableColumn("Subobject", description="The part of the object this event is about", priority=1),
    TableColumn("Source", description="Who reported this event", priority=1),
    TableColumn("Message", description="What happened"),
    TableColumn("First Seen", description="Time this event was first seen", priority=1),
    TableColumn("Count", description="How many times this event was seen", priority=1),
    TableColumn("Name", description=_NAME, priority=1, format="name"),
)


def _quota(quota: JsonObject) -> list[Any]:
    hard, used = part(quota, "status", "hard"), part(quota, "status", "used")
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        text = f"{name}: {_quantity(used.get(name))}/{_quantity(hard[name])}"
        (limits if name.startswith("limits") else requests).append(text)
    return [", ".join(requests), ", ".join(limits)]


def _quantity(value: Any) -> str:
    try:
        return str(QUANTITIES[str(value)]) if value is not None else "0"
    except InvalidQuantityError:
        return str(value)


def _priority_class(priority: JsonObject, now_s: float) -> list[Any]:
    return [
        _name(priority),
        priority.get("value") or 0,
        bool(priority.get("globalDefault")),
        _age(priority, now_s),
        priority.get("preemptionPolicy") or "PreemptLowerPriority",
    ]


def _disruption_budget(budget: JsonObject) -> list[Any]:
    bounds = [part(budget, "spec").get(field) for field in ("minAvailable", "maxUnavailable")]
    shown = ["N/A" if bound is None else str(bound) for bound in bounds]
    return [*shown, part(budget, "status").get("disruptionsAllowed") or 0]


def _template(document: JsonObject) -> list[str]:
    """Containers, Images, Selector: the wide cells of every workload."""
    containers = part(document, "spec", "template", "spec").get("containers") or []
    return [
        ",".join(container.get("name") or "" for container in containers),
        ",".join(container.get("image") or "" for container in containers),
        _selector(part(document, "spec").get("selector")),
    ]


def _selector(selector: JsonObject | None) -> str:
    if selector is None:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    words = {"In": "in", "NotIn": "notin"}
    for term in selector.get("matchExpressions") or []:
        key, operator = term.get("key"), term.get("operator")
        if operator in words:
            parts.append(f"{key} {words[operator]} ({','.join(sorted(term.get('values') or []))})")
        else:
            parts.append(f"!{key}" if operator == "DoesNotExist" else f"{key}")
    return ",".join(parts) or NONE


def _deployment(document: JsonObject, now_s: float) -> list[Any]:
    desired, ready, updated, available = _replicas(document, "readyReplicas", "updatedReplicas", "availableReplicas")
    replicas = [f"{ready}/{desired}", updated, available]
    return [_name(document), *replicas, _age(document, now_s), *_template(document)]


def _replica_set(document: JsonObject, now_s: float) -> list[Any]:
    replicas = _replicas(document, "replicas", "readyReplicas")
    return [_name(document), *replicas, _age(document, now_s), *_template(document)]


def _replicas(document: JsonObject, *fields: str) -> list[int]:
    """The desired number, then these of the status."""
    desired, status = part(document, "spec").get("replicas"), part(document, "status")
    return [1 if desired is None else int(desired), *(status.get(field) or 0 for field in fields)]


def _job(job: JsonObject, now_s: float) -> list[Any]:
    spec, status = part(job, "spec"), part(job, "status")
    done, desired, parallel = status.get("succeeded") or 0, spec.get("completions"), spec.get("parallelism") or 0
    if desired is not None:
        completions = f"{done}/{desired}"
    else:
        completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    cells = [_job_status(job, status), completions, _job_duration(status, now_s)]
    return [_name(job), *cells, _age(job, now_s), *_template(job)]


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


_WORKLOAD_WIDE = ("Containers", "Images", "Selector")

_PRINTERS: dict[str, Printer] = {
    "pods": Printer(
        (
            NAME,
            TableColumn("Ready", description="The aggregate readiness state of this pod for accepting traffic."),
            TableColumn("Status", description="The aggregate status of the containers in this pod."),
            TableColumn(
                "Restarts", description="How often containers of this pod were restarted, and when the last one was."
            ),
            AGE,
            TableColumn("IP", description="The pod's address, empty until it has one.", priority=1),
            TableColumn("Node", description="The node that the pod is bound to.", priority=1),
            TableColumn("Nominated Node", description="Where this pod waits for others to be preempted.", priority=1),
            TableColumn("Readiness Gates", description="How many of the pod's readiness gates are met.", priority=1),
        ),
        _pod,
    ),
    "events": Printer(_EVENT_COLUMNS, _event),
    "namespaces": Printer(
        _columns("Status", "Age"), _named(lambda namespace: [part(namespace, "status").get("phase") or ""])
    ),
    "configmaps": Printer(
        _columns("Data", "Age"),
        _named(lambda map_: [len(part(map_, "data")) + len(part(map_, "binaryData"))]),
    ),
    "resourcequotas": Printer(_columns("Request", "Limit", "Age"), _named(_quota)),
    "secrets": Printer(
        _columns("Type", "Data", "Age"),
        _named(lambda secret: [secret.get("type") or "", len(part(secret, "data"))]),
    ),
    "serviceaccounts": Printer(_columns("Age"), _named(lambda _: [])),
    "leases": Printer(
        _columns("Holder", "Age"), _named(lambda lease: [part(lease, "spec").get("holderIdentity") or ""])
    ),
    "priorityclasses": Printer(
        (
            NAME,
            TableColumn("Value", "integer", "The priority of pods of this class."),
            TableColumn("Global-Default", "boolean", "Whether pods without a class get this one."),
            AGE,
            TableColumn("PreemptionPolicy", description="Whether pods of this class may preempt others."),
        ),
        _priority_class,
    ),
    "runtimeclasses": Printer(
        _columns("Handler", "Age"), _named(lambda runtime_class: [runtime_class.get("handler") or ""])
    ),
    "poddisruptionbudgets": Printer(
        (
            NAME,
            TableColumn("Min Available", description="How many must stay available."),
            TableColumn("Max Unavailable", description="How many may be unavailable."),
            TableColumn("Allowed Disruptions", "integer", "How many may be disrupted now."),
            AGE,
        ),
        _named(_disruption_budget),
    ),
    "deployments": Printer(_columns("Ready", "Up-to-date", "Available", "Age", wide=_WORKLOAD_WIDE), _deployment),
    "replicasets": Printer(
        (
            NAME,
            TableColumn("Desired", "integer", "How many replicas are desired."),
            TableColumn("Current", "integer", "How many replicas there are."),
            TableColumn("Ready", "integer", "How many replicas are ready."),
            *_columns("Age", wide=_WORKLOAD_WIDE)[1:],
        ),
        _replica_set,
    ),
    "jobs": Printer(_columns("Status", "Completions", "Duration", "Age", wide=_WORKLOAD_WIDE), _job),
}
_NODE_COLUMNS = _columns(
    "Status",
    "Roles",
    "Age",
    "Version",
    wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
)
_PLAIN = Printer(
    (NAME, TableColumn("Created At", "date", _AGE)), lambda document, _: [_name(document), _created(document)]
)


def printer(storage: str, profile: str) -> Printer:
    """How objects of this kind are printed; kinds without a printer of their own show when they were created."""
    if storage == "nodes":
        return Printer(_NODE_COLUMNS, _node(profile))
    return _PRINTERS.get(storage, _PLAIN)
