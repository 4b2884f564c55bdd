"""Everything that is validated of a pod's spec on documents, in Kubernetes' order.

Kubernetes: ValidatePodSpec in pkg/apis/core/validation/validation.go; the texts and paths are the same. Resources,
ports, restart rules, tolerations and the names of containers are validated on lean pods (`rules.admission.validation`).
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.environment import environment_errors
from plimsoll.rules.admission.pod_spec.field_errors import duplicate, forbidden, invalid, misnamed, not_found, one_of
from plimsoll.rules.admission.pod_spec.host_names import dns_errors, host_name_errors
from plimsoll.rules.admission.pod_spec.mounts import mount_errors
from plimsoll.rules.admission.pod_spec.operating_systems import host_process_errors, system_errors
from plimsoll.rules.admission.pod_spec.placement import affinity_errors, gate_errors, spread_errors
from plimsoll.rules.admission.pod_spec.probes import port_name_problems, probe_and_hook_errors
from plimsoll.rules.admission.pod_spec.rules import DEFAULT_RULES, SpecRules
from plimsoll.rules.admission.pod_spec.security_context import (
    container_context_errors,
    host_user_errors,
    pod_context_errors,
)
from plimsoll.rules.admission.pod_spec.volumes import PULL_POLICIES, volume_errors
from plimsoll.rules.model.json_object import JsonObject

CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_AT = "spec"
_MOST_DEADLINE_S = 2**31 - 1
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")


def spec_errors(spec: JsonObject, rules: SpecRules = DEFAULT_RULES, *, pod_name: str = "") -> list[FieldError]:
    """Of a pod's defaulted spec, or a template's. `pod_name`: where it is known."""
    errors, volumes = volume_errors(spec.get("volumes") or [], pod_name, f"{_AT}.volumes")
    for kind in CONTAINERS:
        for index, container in enumerate(spec.get(kind) or ()):
            errors += _container_errors(container, f"{_AT}.{kind}[{index}]", kind, spec, volumes, rules)
    errors += _rest(spec, rules)
    return errors


def create_only_errors(spec: JsonObject) -> Iterator[FieldError]:
    """What is validated of pods, not of templates."""
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield forbidden(f"{_AT}.nodeName", "cannot be set until all schedulingGates have been cleared")


def _container_errors(
    container: JsonObject, at: str, kind: str, spec: JsonObject, volumes: dict[str, JsonObject], rules: SpecRules
) -> Iterator[FieldError]:
    yield from one_of(f"{at}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGE_POLICIES)
    names: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        if name := port.get("name") or "":
            path = f"{at}.ports[{index}].name"
            problems = [*misnamed(path, name, port_name_problems(name))]
            yield from problems
            if not problems and name in names:
                yield duplicate(path, name)
            names.add(name)
    if container.get("env") or container.get("envFrom"):
        every = {volume.get("name") or "": volume for volume in spec.get("volumes") or ()}
        yield from environment_errors(container, at, every, rules)
    yield from mount_errors(container, at, volumes)
    yield from one_of(f"{at}.imagePullPolicy", container.get("imagePullPolicy"), PULL_POLICIES)
    if (container.get("resources") or {}).get("claims"):
        yield from _claim_errors(container, at, spec)
    if context := container.get("securityContext"):
        own_users = spec.get("hostUsers") is False
        yield from container_context_errors(context, f"{at}.securityContext", own_users=own_users)
    if kind != "ephemeralContainers":  # those have none, see `ephemeral_containers`
        runs_once = kind == "initContainers" and container.get("restartPolicy") != "Always"
        grace_s, system = spec.get("terminationGracePeriodSeconds"), (spec.get("os") or {}).get("name")
        yield from probe_and_hook_errors(container, at, grace_s, system, rules, runs_once=runs_once)


def _claim_errors(container: JsonObject, at: str, spec: JsonObject) -> Iterator[FieldError]:
    known = [claim.get("name") or "" for claim in spec.get("resourceClaims") or ()]
    for index, claim in enumerate((container.get("resources") or {}).get("claims") or ()):
        path, name = f"{at}.resources.claims[{index}]", claim.get("name") or ""
        if name not in known:
            end = f": {', '.join(sorted(known))}" if known else " which is empty"
            yield not_found(path, name, f"must be one of the names in pod.spec.resourceClaims{end}")


def _rest(spec: JsonObject, rules: SpecRules) -> Iterator[FieldError]:
    contexts = [
        (f"{_AT}.{kind}[{index}].securityContext", container["securityContext"])
        for kind in CONTAINERS
        for index, container in enumerate(spec.get(kind) or ())
        if container.get("securityContext") is not None
    ]
    yield from pod_context_errors(spec, f"{_AT}.securityContext", rules)
    if affinity := spec.get("affinity"):
        yield from affinity_errors(affinity, f"{_AT}.affinity")
    yield from dns_errors(spec, _AT, rules)
    yield from gate_errors(spec, _AT)
    if constraints := spec.get("topologySpreadConstraints"):
        yield from spread_errors(constraints, f"{_AT}.topologySpreadConstraints")
    if contexts or spec.get("securityContext"):
        without = sum(len(spec.get(kind) or ()) for kind in CONTAINERS) - len(contexts)
        yield from host_process_errors(spec, _AT, [*contexts, *((_AT, {}) for _ in range(without))])
    yield from host_user_errors(spec, _AT)
    yield from host_name_errors(spec, _AT)
    if (deadline_s := spec.get("activeDeadlineSeconds")) is not None and not 1 <= deadline_s <= _MOST_DEADLINE_S:
        words = f"must be between 1 and {_MOST_DEADLINE_S}, inclusive"
        yield invalid(f"{_AT}.activeDeadlineSeconds", deadline_s, words)
    if spec.get("os"):
        yield from system_errors(spec, _AT, contexts)
