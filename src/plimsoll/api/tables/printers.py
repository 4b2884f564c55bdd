"""One line of `kubectl get` for every kind but pods and workloads: columns and cells (05 B7)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from plimsoll.api.tables.columns import (
    AGE,
    AGE_TEXT,
    NAME,
    NAME_TEXT,
    Cells,
    Printer,
    TableColumn,
    age_of,
    columns,
    created,
    name_of,
    named,
)
from plimsoll.api.tables.pod_printer import NONE, part, pod_cells
from plimsoll.api.tables.service_printer import (
    endpoints_cells,
    ingress_cells,
    ingress_class_cells,
    service_cells,
    slice_cells,
)
from plimsoll.api.tables.storage_printers import STORAGE_PRINTERS
from plimsoll.api.tables.workload_printers import WORKLOAD_PRINTERS
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.admission.networking import DEFAULT_INGRESS_CLASS
from plimsoll.rules.controllers.adoption import selector_in
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.scheduling.selectors import selector_text
from plimsoll.rules.timestamps import age, human_duration

UNKNOWN = "<unknown>"


def _pod(pod: JsonObject, now_s: float) -> list[Any]:
    ready, status, restarts, *wide = pod_cells(pod, now_s)
    return [name_of(pod), ready, status, restarts, age_of(pod, now_s), *wide]


def _node(profile: str) -> Cells:
    named = profile_named(profile)

    def cells(node: JsonObject, now_s: float) -> list[Any]:
        status, info = part(node, "status"), part(node, "status", "nodeInfo")
        addresses = status.get("addresses") or []
        kernel = info.get("kernelVersion") or UNKNOWN
        if named.node_table_shows_architecture and info.get("architecture"):
            kernel = f"{kernel} ({info['architecture']})"
        return [
            name_of(node),
            _node_status(node),
            _node_roles(node),
            age_of(node, now_s),
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
        name_of(event),
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
    TableColumn("Name", description=NAME_TEXT, priority=1, format="name"),
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
        name_of(priority),
        priority.get("value") or 0,
        bool(priority.get("globalDefault")),
        age_of(priority, now_s),
        priority.get("preemptionPolicy") or "PreemptLowerPriority",
    ]


def _disruption_budget(budget: JsonObject) -> list[Any]:
    bounds = [part(budget, "spec").get(field) for field in ("minAvailable", "maxUnavailable")]
    shown = ["N/A" if bound is None else str(bound) for bound in bounds]
    return [*shown, part(budget, "status").get("disruptionsAllowed") or 0]


_BINDING_COLUMNS = columns("Role", "Age", wide=("Users", "Groups", "ServiceAccounts"))


def _binding(document: JsonObject, now_s: float) -> list[Any]:
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in document.get("subjects") or ():
        name = subject.get("name") or ""
        if subject.get("kind") == "ServiceAccount" and subject.get("namespace"):
            name = f"{subject['namespace']}/{name}"
        subjects.setdefault(subject.get("kind") or "", []).append(name)
    reference = part(document, "roleRef")
    listed = [", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")]
    role = f"{reference.get('kind')}/{reference.get('name')}"
    return [name_of(document), role, age_of(document, now_s), *listed]


def _signing_request(request: JsonObject, now_s: float) -> list[Any]:
    spec, status = part(request, "spec"), part(request, "status")
    types = {each.get("type") for each in status.get("conditions") or []}
    words = [each for each in ("Approved", "Denied", "Failed") if each in types] or ["Pending"]
    if status.get("certificate"):
        words.append("Issued")
    seconds = spec.get("expirationSeconds")
    asked = NONE if seconds is None else human_duration(seconds)
    signer, user = spec.get("signerName") or "", spec.get("username") or ""
    return [name_of(request), age_of(request, now_s), signer, user, asked, ",".join(words)]


def _webhooks(configuration: JsonObject) -> list[Any]:
    return [len(configuration.get("webhooks") or [])]


def _param_kind(policy: JsonObject) -> str:
    kind = part(policy, "spec", "paramKind")
    return f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else "<unset>"


def _policy_binding(binding: JsonObject) -> list[Any]:
    spec, reference = part(binding, "spec"), part(binding, "spec", "paramRef")
    names = [reference[field] for field in ("namespace", "name") if reference.get(field)]
    return [spec.get("policyName") or "", "/".join(names) or ("*" if reference else "<unset>")]


def _api_service(service: JsonObject) -> list[Any]:
    conditions = part(service, "status").get("conditions") or []
    found = next((each for each in conditions if each.get("type") == "Available"), {"status": "Unknown"})
    reason = f" ({found['reason']})" if found["status"] != "True" and found.get("reason") else ""
    return ["Local", f"{found['status']}{reason}"]


def _ingress_class(ingress_class: JsonObject, now_s: float) -> list[Any]:
    is_default = (ingress_class["metadata"].get("annotations") or {}).get(DEFAULT_INGRESS_CLASS) == "true"
    name = f"{name_of(ingress_class)} (default)" if is_default else name_of(ingress_class)
    return [name, *ingress_class_cells(ingress_class), age_of(ingress_class, now_s)]


def _service(service: JsonObject, now_s: float) -> list[Any]:
    *cells, selector = service_cells(service)
    return [name_of(service), *cells, age_of(service, now_s), selector]


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
        columns("Status", "Age"), named(lambda namespace: [part(namespace, "status").get("phase") or ""])
    ),
    "configmaps": Printer(
        columns("Data", "Age"),
        named(lambda map_: [len(part(map_, "data")) + len(part(map_, "binaryData"))]),
    ),
    "services": Printer(columns("Type", "Cluster-IP", "External-IP", "Port(s)", "Age", wide=("Selector",)), _service),
    "endpoints": Printer(columns("Endpoints", "Age"), named(endpoints_cells)),
    "endpointslices": Printer(columns("AddressType", "Ports", "Endpoints", "Age"), named(slice_cells)),
    "apiservices": Printer(columns("Service", "Available", "Age"), named(_api_service)),
    "ingresses": Printer(columns("Class", "Hosts", "Address", "Ports", "Age"), named(ingress_cells)),
    "ingressclasses": Printer(columns("Controller", "Parameters", "Age"), _ingress_class),
    "networkpolicies": Printer(
        columns("Pod-Selector", "Age"),
        named(lambda policy: [selector_text(selector_in(part(policy, "spec", "podSelector"))) or NONE]),
    ),
    "rolebindings": Printer(_BINDING_COLUMNS, _binding),
    "clusterrolebindings": Printer(_BINDING_COLUMNS, _binding),
    "secrets": Printer(
        columns("Type", "Data", "Age"),
        named(lambda secret: [secret.get("type") or "", len(part(secret, "data"))]),
    ),
    "resourcequotas": Printer(columns("Request", "Limit", "Age"), named(_quota)),
    "serviceaccounts": Printer(columns("Age"), named(lambda _: [])),
    "leases": Printer(columns("Holder", "Age"), named(lambda lease: [part(lease, "spec").get("holderIdentity") or ""])),
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
        columns("Handler", "Age"), named(lambda runtime_class: [runtime_class.get("handler") or ""])
    ),
    "poddisruptionbudgets": Printer(
        (
            NAME,
            TableColumn("Min Available", description="How many must stay available."),
            TableColumn("Max Unavailable", description="How many may be unavailable."),
            TableColumn("Allowed Disruptions", "integer", "How many may be disrupted now."),
            AGE,
        ),
        named(_disruption_budget),
    ),
    **STORAGE_PRINTERS,
    "certificatesigningrequests": Printer(
        columns("Age", "SignerName", "Requestor", "RequestedDuration", "Condition"), _signing_request
    ),
    "clustertrustbundles": Printer(
        (NAME, TableColumn("SignerName", description="The signer whose certificates they are.")),
        lambda bundle, _: [name_of(bundle), part(bundle, "spec").get("signerName") or NONE],
    ),
    "mutatingadmissionpolicies": Printer(
        columns("Mutations", "ParamKind", "Age"),
        named(lambda policy: [len(part(policy, "spec").get("mutations") or []), _param_kind(policy)]),
    ),
    "mutatingadmissionpolicybindings": Printer(columns("PolicyName", "ParamRef", "Age"), named(_policy_binding)),
    "mutatingwebhookconfigurations": Printer(columns("Webhooks", "Age"), named(_webhooks)),
    "validatingwebhookconfigurations": Printer(columns("Webhooks", "Age"), named(_webhooks)),
    "validatingadmissionpolicies": Printer(
        columns("Validations", "ParamKind", "Age"),
        named(lambda policy: [len(part(policy, "spec").get("validations") or []), _param_kind(policy)]),
    ),
    "validatingadmissionpolicybindings": Printer(columns("PolicyName", "ParamRef", "Age"), named(_policy_binding)),
    **WORKLOAD_PRINTERS,
}
_NODE_COLUMNS = columns(
    "Status",
    "Roles",
    "Age",
    "Version",
    wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
)
_PLAIN = Printer(
    (NAME, TableColumn("Created At", "date", AGE_TEXT)), lambda document, _: [name_of(document), created(document)]
)


# The column that a release may not have yet, and the row of the profile that says so.
_LATER = {
    "jobs": ("Status", "job_table_shows_status"),
    "cronjobs": ("Timezone", "job_table_shows_status"),
    "persistentvolumes": ("VolumeAttributesClass", "volume_table_shows_attributes"),
    "persistentvolumeclaims": ("VolumeAttributesClass", "volume_table_shows_attributes"),
    "priorityclasses": ("PreemptionPolicy", "priority_table_shows_preemption"),
}


@lru_cache(256)
def printer(storage: str, profile: str) -> Printer:
    """How objects of this kind are printed; kinds without a printer of their own show when they were created."""
    if storage == "nodes":
        return Printer(_NODE_COLUMNS, _node(profile))
    found, named_profile = _PRINTERS.get(storage, _PLAIN), profile_named(profile)
    order = list(range(len(found.columns)))
    if storage in _LATER:
        later, row = _LATER[storage]
        if not getattr(named_profile, row):
            order = [index for index in order if found.columns[index].name != later]
    elif storage == "resourcequotas" and not named_profile.quota_table_ends_with_age:
        order.insert(1, order.pop())
    return found if order == list(range(len(found.columns))) else _arranged(found, order)


def _arranged(found: Printer, order: list[int]) -> Printer:
    """With these of its columns, in this order."""

    def cells(document: JsonObject, now_s: float) -> list[Any]:
        every = found.cells(document, now_s)
        return [every[index] for index in order]

    return Printer(tuple(found.columns[index] for index in order), cells)
