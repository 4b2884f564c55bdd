"""The defaults that the API server sets when an object is written (05 B6, 01 §3), volumes and pull policies included.

Pods and pod templates get the same defaults, with three exceptions: only pods get requests from limits, pod-level
resources, and host ports in the host's network. Resource lists are rounded everywhere (R-2). What admission adds
(tolerations, priority, service account) is not here, nor what the API sets only at creation (finalizers, phases).

Defaults are inserted in Go's field order. Parts that need no change are shared with the argument.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import lru_cache

from plimsoll.codec.defaults import autoscaling, networking, services
from plimsoll.codec.defaults.members import in_go_order, put
from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.codec.defaults.workloads import WORKLOADS
from plimsoll.codec.lean.lean import from_document, lean_pod
from plimsoll.codec.schema import custom
from plimsoll.codec.schema.custom import CustomKind
from plimsoll.codec.schema.schema import SchemaKind, struct
from plimsoll.rules.admission.limit_range import defaulted_limit_range
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import ResourceList
from plimsoll.rules.model.policies import LimitRange
from plimsoll.rules.quantity import QUANTITIES

# An image reference: domain and path in lower case, then tag, then digest.
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*+"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?P<digest>@[A-Za-z0-9+._-]+:[0-9a-fA-F]{32,})?"
)


@lru_cache(1024)
def pull_policy(image: str) -> str:
    """Always for the tag latest, explicit or implied; an invalid reference has no tag."""
    match = _IMAGE.fullmatch(image)
    if match is None:
        return "IfNotPresent"
    tag = match["tag"] or ("" if match["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


_MODE = 0o644
_BY_SOURCE: dict[str, JsonObject] = {
    "hostPath": {"type": ""},
    "secret": {"defaultMode": _MODE},
    "configMap": {"defaultMode": _MODE},
    "downwardAPI": {"defaultMode": _MODE},
    "projected": {"defaultMode": _MODE},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
_TOKEN_SECONDS = 3600
_RBAC = "rbac.authorization.k8s.io"


def defaulted_volume(volume: JsonObject) -> JsonObject:
    """A volume without any source is an emptyDir."""
    source = next((name for name in volume if name != "name" and volume[name] is not None), "")
    if not source:
        return {**volume, "emptyDir": {}}
    value = _filled(volume, source, _BY_SOURCE.get(source, {}))
    if source == "downwardAPI":
        value = _with_items(value)
    elif source == "projected":
        value = {**value, "sources": [_projection(each) for each in value.get("sources") or []]}
    elif source == "ephemeral":
        value = _ephemeral(value)
    elif source == "image" and not value.get("pullPolicy"):
        value = {**value, "pullPolicy": pull_policy(value.get("reference") or "")}
    return volume if value is volume[source] else {**volume, source: value}


def _filled(holder: JsonObject, name: str, defaults: JsonObject) -> JsonObject:
    return put(struct("core.Volume").fields[name].type.struct, holder[name], defaults) if defaults else holder[name]


def _with_items(source: JsonObject) -> JsonObject:
    items = source.get("items")
    return {**source, "items": [_file(item) for item in items]} if items else source


def _file(item: JsonObject) -> JsonObject:
    reference = item.get("fieldRef")
    return {**item, "fieldRef": put("core.ObjectFieldSelector", reference, {"apiVersion": "v1"})} if reference else item


def _projection(source: JsonObject) -> JsonObject:
    if source.get("downwardAPI"):
        return {**source, "downwardAPI": _with_items(source["downwardAPI"])}
    token = source.get("serviceAccountToken")
    if token is None or token.get("expirationSeconds") is not None:
        return source
    filled = put("core.ServiceAccountTokenProjection", token, {"expirationSeconds": _TOKEN_SECONDS})
    return {**source, "serviceAccountToken": filled}


def _ephemeral(source: JsonObject) -> JsonObject:
    template = source.get("volumeClaimTemplate")
    if not template:
        return source
    spec = put("core.PersistentVolumeClaimSpec", template.get("spec") or {}, {"volumeMode": "Filesystem"})
    return {**source, "volumeClaimTemplate": {**template, "spec": spec}}


_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_RESOURCES = (("resources", "limits"), ("resources", "requests"))

_POD_SPEC: JsonObject = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER: JsonObject = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE: JsonObject = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_HTTP: JsonObject = {"path": "/", "scheme": "HTTP"}


def with_kind_defaults(
    kind: SchemaKind,
    document: JsonObject,
    *,
    gates: Gates = DEFAULT_GATES,
    resize_policy: bool = False,
    stored: JsonObject | None = None,
) -> JsonObject:
    """A decoded document with Kubernetes' defaults; raises InvalidObjectError. Idempotent; does not change its
    argument.

    `stored`: the object that it updates.
    """
    if isinstance(kind, CustomKind):
        return custom.with_defaults(kind.schema, document) if kind.has_defaults else document
    if kind.name == "Pod":
        before = lean_pod(stored) if resize_policy and stored is not None else None
        document = with_defaults(document, gates=gates, resize_policy=resize_policy, stored=before).document
        spec = defaulted_pod_spec(document.get("spec") or {}, is_template=False)
        if spec["terminationGracePeriodSeconds"] < 0:
            spec["terminationGracePeriodSeconds"] = 1
        return {**document, "spec": spec}
    if workload := WORKLOADS.get(kind.name):
        return workload(document, _template_spec)
    change = _BY_KIND.get(kind.name)
    return document if change is None else change(document)


def _template_spec(spec: JsonObject) -> JsonObject:
    return defaulted_pod_spec(spec, is_template=True)


def defaulted_pod_spec(spec: JsonObject, *, is_template: bool) -> JsonObject:
    changed: JsonObject = {}
    if volumes := spec.get("volumes"):
        changed["volumes"] = [defaulted_volume(volume) for volume in volumes]
    for kind in _CONTAINERS:
        if containers := spec.get(kind):
            changed[kind] = [
                defaulted_container(container, kind, host_ports=bool(spec.get("hostNetwork")) and not is_template)
                for container in containers
            ]
    if is_template:
        _round_template(changed, spec)
    return put("core.PodSpec", {**spec, **changed}, _POD_SPEC)


def _round_template(changed: JsonObject, spec: JsonObject) -> None:
    for kind in _CONTAINERS:
        if kind in changed:
            changed[kind] = [_with_lists(each, *_RESOURCES) for each in changed[kind]]
    rounded = _with_lists(spec, ("overhead",), *_RESOURCES)
    changed.update({name: rounded[name] for name in ("overhead", "resources") if name in rounded})


def defaulted_container(container: JsonObject, kind: str, *, host_ports: bool) -> JsonObject:
    changed: JsonObject = {}
    if ports := container.get("ports"):
        changed["ports"] = [_port(port, host_ports and kind != "ephemeralContainers") for port in ports]
    if variables := container.get("env"):
        changed["env"] = [_variable(each) for each in variables]
    for name in _PROBES:
        if probe := container.get(name):
            changed[name] = _probe(probe)
    if lifecycle := container.get("lifecycle"):
        changed["lifecycle"] = {
            name: _handler(hook) if name in _HOOKS and hook else hook for name, hook in lifecycle.items()
        }
    name = "core.EphemeralContainer" if kind == "ephemeralContainers" else "core.Container"
    defaults = _CONTAINER
    if not container.get("imagePullPolicy"):
        defaults = {**_CONTAINER, "imagePullPolicy": pull_policy(container.get("image") or "")}
    return put(name, {**container, **changed} if changed else container, defaults)


def _port(port: JsonObject, on_host: bool) -> JsonObject:
    defaults: JsonObject = {"protocol": "TCP"}
    if on_host and port.get("containerPort"):
        defaults["hostPort"] = port["containerPort"]
    return put("core.ContainerPort", port, defaults)


def _variable(variable: JsonObject) -> JsonObject:
    source = variable.get("valueFrom")
    if not source or not source.get("fieldRef"):
        return variable
    reference = put("core.ObjectFieldSelector", source["fieldRef"], {"apiVersion": "v1"})
    return {**variable, "valueFrom": {**source, "fieldRef": reference}}


def _probe(probe: JsonObject) -> JsonObject:
    probe = _handler(probe)
    if probe.get("grpc") and probe["grpc"].get("service") is None:
        probe = {**probe, "grpc": put("core.GRPCAction", {**probe["grpc"], "service": ""}, {})}
    return put("core.Probe", probe, _PROBE)


def _handler(handler: JsonObject) -> JsonObject:
    if handler.get("httpGet") is None:
        return handler
    return {**handler, "httpGet": put("core.HTTPGetAction", handler["httpGet"], _HTTP)}


def _limit_range(document: JsonObject) -> JsonObject:
    items = (document.get("spec") or {}).get("limits") or ()
    if not items:
        return document
    lean = defaulted_limit_range(from_document(document, LimitRange))
    limits = []
    for entry, item in zip(items, lean.spec.limits, strict=True):
        lists = {
            "max": item.max,
            "min": item.min,
            "default": item.default,
            "defaultRequest": item.default_request,
            "maxLimitRequestRatio": item.max_limit_request_ratio,
        }
        texts = {name: _texts(amounts) for name, amounts in lists.items() if amounts}
        limits.append(in_go_order("core.LimitRangeItem", {**entry, **texts}))
    return {**document, "spec": {**document["spec"], "limits": limits}}


def _texts(amounts: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def _resource_quota(document: JsonObject) -> JsonObject:
    return _with_lists(document, ("spec", "hard"), ("status", "hard"), ("status", "used"))


def _node(document: JsonObject) -> JsonObject:
    return _with_lists(document, ("status", "capacity"), ("status", "allocatable"))


def _priority_class(document: JsonObject) -> JsonObject:
    return {**document, "preemptionPolicy": document.get("preemptionPolicy") or "PreemptLowerPriority"}


def _binding(document: JsonObject) -> JsonObject:
    """Subjects and the role are in RBAC's group, unless they are service accounts."""
    changed: JsonObject = {}
    if reference := document.get("roleRef"):
        changed["roleRef"] = {**reference, "apiGroup": reference.get("apiGroup") or _RBAC}
    if subjects := document.get("subjects"):
        changed["subjects"] = [
            {**each, "apiGroup": _RBAC} if each.get("kind") in ("User", "Group") and not each.get("apiGroup") else each
            for each in subjects
        ]
    return {**document, **changed}


def _secret(document: JsonObject) -> JsonObject:
    """`stringData` is only written: its texts become members of `data`, in place of older ones."""
    texts = document.get("stringData") or {}
    changed: JsonObject = {"type": document.get("type") or "Opaque"}
    if texts:
        encoded = {key: base64.b64encode(text.encode(errors="surrogatepass")).decode() for key, text in texts.items()}
        changed["data"] = {**(document.get("data") or {}), **encoded}
    filled = {name: value for name, value in document.items() if name != "stringData"}
    return in_go_order("core.Secret", {**filled, **changed})


def _runtime_class(document: JsonObject) -> JsonObject:
    return _with_lists(document, ("overhead", "podFixed"))


def _service(document: JsonObject) -> JsonObject:
    spec = document.get("spec") or {}
    given = {name: value for name, value in spec.items() if value not in (None, "")}
    if "sessionAffinityConfig" in services.service_defaults(given):
        given.pop("sessionAffinityConfig", None)
    if ports := given.get("ports"):
        given["ports"] = [_service_port(port) for port in ports]
    return {**document, "spec": put("core.ServiceSpec", given, services.service_defaults(given))}


def _service_port(port: JsonObject) -> JsonObject:
    defaults = services.port_defaults(port)
    given = {name: value for name, value in port.items() if name not in defaults or value}
    return put("core.ServicePort", given, defaults)


_BY_KIND: dict[str, Callable[[JsonObject], JsonObject]] = {
    "LimitRange": _limit_range,
    "ResourceQuota": _resource_quota,
    "Node": _node,
    "PriorityClass": _priority_class,
    "RuntimeClass": _runtime_class,
    "Secret": _secret,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
    "Service": _service,
    "Endpoints": services.endpoints,
    "EndpointSlice": services.endpoint_slice,
    "NetworkPolicy": networking.network_policy,
    "IngressClass": networking.ingress_class,
    "HorizontalPodAutoscaler": autoscaling.autoscaler,
}


def _with_lists(document: JsonObject, *paths: tuple[str, ...]) -> JsonObject:
    """The document with the resource lists at these paths rounded."""
    for path in paths:
        document = _with_rounded(document, path)
    return document


def _with_rounded(document: JsonObject, path: tuple[str, ...]) -> JsonObject:
    name, *rest = path
    value = document.get(name)
    if not isinstance(value, dict):
        return document
    rounded = _with_rounded(value, tuple(rest)) if rest else _rounded(value)
    return document if rounded is value else {**document, name: rounded}


def _rounded(amounts: dict[str, str]) -> dict[str, str]:
    quantities = {name: QUANTITIES[text] for name, text in amounts.items()}
    if not any(each.is_fine for each in quantities.values()):
        return amounts
    return {name: str(each.rounded_to_milli()) for name, each in quantities.items()}
