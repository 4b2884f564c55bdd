"""The configuration of Pod Security admission: PodSecurityConfiguration inside an AdmissionConfiguration.

Kubernetes: staging/src/k8s.io/pod-security-admission/admission/api.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.admission.pod_security import MODES, PREFIX, Exemptions, PodSecurity, Policy, policy_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems, dns_subdomain_problems

PLUGIN = "PodSecurity"
_OUTER = ("AdmissionConfiguration", ("apiserver.config.k8s.io/v1",))
_INNER = (
    "PodSecurityConfiguration",
    tuple(f"pod-security.admission.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1")),
)


def pod_security_from(document: Any, read: Callable[[str], Any]) -> PodSecurity:
    """From an AdmissionConfiguration; `read` reads the file that a plugin's `path` names. Raises InvalidConfigError."""
    outer = _checked(document, "", *_OUTER)
    _known(outer, "", ("apiVersion", "kind", "plugins"))
    found = PodSecurity()
    for index, plugin in enumerate(outer.get("plugins") or ()):
        at = f"plugins[{index}]"
        _known(plugin, at, ("name", "path", "configuration"))
        if plugin.get("name") != PLUGIN:
            raise InvalidConfigError(f"{at}.name", f"{plugin.get('name')!r} is not configurable here, only {PLUGIN} is")
        inner = plugin.get("configuration")
        if inner is None:
            inner = read(str(plugin.get("path") or ""))
        found = _configured(inner, f"{at}.configuration")
    return found


def _configured(document: Any, at: str) -> PodSecurity:
    inner = _checked(document, at, *_INNER)
    _known(inner, at, ("apiVersion", "kind", "defaults", "exemptions"))
    defaults, exemptions = inner.get("defaults") or {}, inner.get("exemptions") or {}
    fields = [*MODES, *(f"{mode}-version" for mode in MODES)]
    _known(defaults, f"{at}.defaults", fields)
    labels = {PREFIX + field: str(value) for field, value in defaults.items() if value}
    # A namespace's label `enforce` sets `warn` too; a default does not.
    labels = {PREFIX + "warn": "privileged", **labels}
    policy, errors = policy_of(labels, Policy())
    for error in errors:
        field = error.field.partition(PREFIX)[2].rstrip("]")
        raise InvalidConfigError(f"{at}.defaults.{field}", f"{error.value!r}: {error.detail}")
    _known(exemptions, f"{at}.exemptions", ("usernames", "namespaces", "runtimeClasses"))
    return PodSecurity(
        policy,
        Exemptions(
            namespaces=_names(exemptions, "namespaces", at, dns_label_problems),
            usernames=_names(exemptions, "usernames", at, lambda name: () if name else ("username must not be empty",)),
            runtime_classes=_names(exemptions, "runtimeClasses", at, dns_subdomain_problems),
        ),
    )


def _checked(document: Any, at: str, kind: str, versions: tuple[str, ...]) -> JsonObject:
    if not isinstance(document, dict) or document.get("kind") != kind or document.get("apiVersion") not in versions:
        raise InvalidConfigError(at, f"must be a {kind} of {versions[0]}")
    return document


def _known(value: Any, at: str, fields: Any) -> None:
    if not isinstance(value, dict):
        raise InvalidConfigError(at, "must be a map")
    for field in value:
        if field not in fields:
            raise InvalidConfigError(f"{at}.{field}".lstrip("."), f"unknown field; known are {', '.join(fields)}")


def _names(exemptions: JsonObject, field: str, at: str, problems: Callable[[str], Any]) -> tuple[str, ...]:
    names: list[str] = []
    for index, name in enumerate(exemptions.get(field) or ()):
        where = f"{at}.exemptions.{field}[{index}]"
        if not isinstance(name, str):
            raise InvalidConfigError(where, "must be text")
        for problem in problems(name):
            raise InvalidConfigError(where, f"{name!r}: {problem}")
        if name in names:
            raise InvalidConfigError(where, f"{name!r}: Duplicate value")
        names.append(name)
    return tuple(names)
