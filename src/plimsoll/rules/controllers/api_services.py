"""APIServices: which server serves a group and version. Here it is always this one (`Local`)."""

from __future__ import annotations

from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems, dns_subdomain_problems

AUTO_MANAGED = "kube-aggregator.kubernetes.io/automanaged"
_MAX_GROUP_PRIORITY, _MAX_VERSION_PRIORITY = 20_000, 1_000
# Kubernetes' order of the groups; metrics and custom kinds follow.
_GROUP_PRIORITIES = {
    "": 18_000,
    "apps": 17_800,
    "events.k8s.io": 17_750,
    "authentication.k8s.io": 17_700,
    "authorization.k8s.io": 17_600,
    "autoscaling": 17_500,
    "batch": 17_400,
    "certificates.k8s.io": 17_300,
    "networking.k8s.io": 17_200,
    "policy": 17_100,
    "rbac.authorization.k8s.io": 17_000,
    "storage.k8s.io": 16_800,
    "apiextensions.k8s.io": 16_700,
    "admissionregistration.k8s.io": 16_700,
    "scheduling.k8s.io": 16_600,
    "coordination.k8s.io": 16_500,
    "node.k8s.io": 16_300,
    "discovery.k8s.io": 16_200,
    "metrics.k8s.io": 100,
}
_CUSTOM_PRIORITY = 1_000


def service_name(group: str, version: str) -> str:
    return f"{version}.{group}"


def local_service(group: str, version: str) -> JsonObject:
    """The APIService of a group and version of this server, without its status."""
    is_custom = group not in _GROUP_PRIORITIES
    spec: JsonObject = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": _GROUP_PRIORITIES.get(group, _CUSTOM_PRIORITY),
        "versionPriority": 100 if is_custom else 1 if not group else 15,
    }
    metadata = {"name": service_name(group, version), "labels": {AUTO_MANAGED: "true" if is_custom else "onstart"}}
    return {"metadata": metadata, "spec": {name: value for name, value in spec.items() if value != ""}}


def local_status(now: str) -> JsonObject:
    available = {
        "type": "Available",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "Local",
        "message": "Local APIServices are always available",
    }
    return {"conditions": [available]}


def api_service_errors(service: JsonObject) -> list[FieldError]:
    spec, name = service.get("spec") or {}, service["metadata"]["name"]
    group, version = spec.get("group") or "", spec.get("version") or ""
    errors: list[FieldError] = []

    def invalid(path: str, value: str | int, detail: str) -> None:
        errors.append(FieldError("FieldValueInvalid", path, detail, value))

    wanted = service_name(group, version)
    if name != wanted:
        invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"')
    if not group and version != "v1":
        reason = "only v1 may have an empty group and it better be legacy kube"
        errors.append(FieldError("FieldValueRequired", "spec.group", reason))
    for problem in dns_subdomain_problems(group) if group else ():
        invalid("spec.group", group, problem)
    for problem in dns_label_problems(version):
        invalid("spec.version", version, problem)
    for field, most in (("groupPriorityMinimum", _MAX_GROUP_PRIORITY), ("versionPriority", _MAX_VERSION_PRIORITY)):
        value = spec.get(field) or 0
        if not 0 < value <= most:
            invalid(f"spec.{field}", value, f"must be positive and less than {most}")
    if spec.get("service") is not None:
        reason = "this server does not forward requests to other API servers: only local APIServices can be written"
        errors.append(FieldError("FieldValueForbidden", "spec.service", reason))
    elif spec.get("caBundle"):
        invalid("spec.caBundle", "", "local APIServices may not have a caBundle")
    if spec.get("service") is None and spec.get("insecureSkipTLSVerify"):
        invalid("spec.insecureSkipTLSVerify", True, "local APIServices may not have insecureSkipTLSVerify")
    return errors
