"""Validation of a pod's security settings, of how it mounts volumes, and of its exact host name, on documents.

Kubernetes: pkg/apis/core/validation, validatePodSpecSecurityContext and what it calls; the texts are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_subdomain_problems

_MAX_ID = 2**31 - 1
_MAX_HOSTNAME = 64
_MAX_SYSCTL = 253
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"^({_SEGMENT}[\./])*{_SEGMENT}$"
_SYSCTL_NAME = re.compile(_SYSCTL, re.ASCII)
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_OF_POD = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "seLinuxChangePolicy": ("MountOption", "Recursive"),
}
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")


def security_errors(spec: JsonObject) -> list[FieldError]:
    """Of a pod's spec."""
    own_users = spec.get("hostUsers") is False
    errors = [*_pod_context_errors(spec.get("securityContext") or {}, "spec.securityContext")]
    if own_users:
        for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(field):
                errors.append(_forbidden(f"spec.{shown}", "when `hostUsers` is false"))
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            at = f"spec.{kind}[{index}]"
            if own_users and container.get("volumeDevices"):
                errors.append(_forbidden(f"{at}.volumeDevices", "when `hostUsers` is false"))
            context = container.get("securityContext") or {}
            errors += _container_context_errors(context, f"{at}.securityContext", own_users=own_users)
            for number, mount in enumerate(container.get("volumeMounts") or ()):
                privileged = bool(context.get("privileged"))
                errors += _mount_errors(mount, f"{at}.volumeMounts[{number}]", volumes, privileged=privileged)
    errors += _hostname_errors(spec)
    return errors


def _pod_context_errors(context: JsonObject, at: str) -> Iterator[FieldError]:
    yield from _id_errors(context, at, ("fsGroup", "runAsUser", "runAsGroup"))
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _id_error(f"{at}.supplementalGroups[{index}]", group)
    names: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        path, name = f"{at}.sysctls[{index}].name", sysctl.get("name") or ""
        if not name:
            yield FieldError("FieldValueRequired", path)
        elif len(name) > _MAX_SYSCTL or not _SYSCTL_NAME.match(name):
            yield _invalid(path, name, f"must have at most {_MAX_SYSCTL} characters and match regex {_SYSCTL}")
        elif name in names:
            yield FieldError("FieldValueDuplicate", path, value=name)
        names.add(name)
    for field, values in _OF_POD.items():
        yield from _one_of(f"{at}.{field}", context.get(field), values)
    yield from _profile_errors(context, at)


def _container_context_errors(context: JsonObject, at: str, *, own_users: bool) -> Iterator[FieldError]:
    yield from _id_errors(context, at, ("runAsUser", "runAsGroup"))
    proc = context.get("procMount")
    yield from _one_of(f"{at}.procMount", proc, ("Default", "Unmasked"))
    if proc == "Unmasked" and not own_users:
        yield _invalid(f"{at}.procMount", proc, "`hostUsers` must be false to use `Unmasked`")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            yield _invalid(at, "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            words = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield _invalid(at, "", words)
    yield from _profile_errors(context, at)


def _profile_errors(context: JsonObject, at: str) -> Iterator[FieldError]:
    for field, word in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile = context.get(field)
        if profile is None:
            continue
        path, kind, name = f"{at}.{field}", profile.get("type") or "", profile.get("localhostProfile")
        if not kind:
            yield FieldError("FieldValueRequired", f"{path}.type", f"type is required when {field} is set")
        yield from _one_of(f"{path}.type", kind or None, _PROFILES)
        if kind == "Localhost" and not name:
            words = f"must be set when {word} type is Localhost"
            yield FieldError("FieldValueRequired", f"{path}.localhostProfile", words)
        elif kind == "Localhost" and field == "seccompProfile":
            yield from _path_errors(f"{path}.localhostProfile", name)
        elif kind == "Localhost" and name != name.strip():
            yield _invalid(f"{path}.localhostProfile", name, "must not be padded with whitespace")
        elif kind != "Localhost" and name is not None:
            words = f"can only be set when {word} type is Localhost"
            yield _invalid(f"{path}.localhostProfile", name, words)


def _mount_errors(mount: JsonObject, at: str, volumes: set[Any], *, privileged: bool) -> Iterator[FieldError]:
    name = mount.get("name") or ""
    if not name:
        yield FieldError("FieldValueRequired", f"{at}.name")
    elif name not in volumes:
        yield FieldError("FieldValueNotFound", f"{at}.name", value=name)
    if not mount.get("mountPath"):
        yield FieldError("FieldValueRequired", f"{at}.mountPath")
    sub_path, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    yield from _path_errors(f"{at}.subPath", sub_path)
    if expression and sub_path:
        yield _invalid(f"{at}.subPathExpr", expression, "subPathExpr and subPath are mutually exclusive")
    yield from _path_errors(f"{at}.subPathExpr", expression)
    propagation = mount.get("mountPropagation")
    yield from _one_of(f"{at}.mountPropagation", propagation, _PROPAGATIONS)
    if propagation == "Bidirectional" and not privileged:
        words = "Bidirectional mount propagation is available only to privileged containers"
        yield _forbidden(f"{at}.mountPropagation", words)
    recursive = mount.get("recursiveReadOnly")
    yield from _one_of(f"{at}.recursiveReadOnly", recursive, _RECURSIVE)
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            yield _forbidden(f"{at}.recursiveReadOnly", "may only be specified when readOnly is true")
        if propagation not in (None, "None"):
            words = "may only be specified when mountPropagation is None or not specified"
            yield _forbidden(f"{at}.recursiveReadOnly", words)


def _hostname_errors(spec: JsonObject) -> Iterator[FieldError]:
    name, at = spec.get("hostnameOverride"), "spec.hostnameOverride"
    if name is None:
        return
    for field in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(field):
            yield _forbidden(at, f"may not be specified when {field} is true")
    if len(name) > _MAX_HOSTNAME:
        yield FieldError("FieldValueTooLong", at, f"may not be more than {_MAX_HOSTNAME} bytes")
    for problem in dns_subdomain_problems(name):
        yield _invalid(at, name, problem)


def _id_errors(context: JsonObject, at: str, fields: Iterable[str]) -> Iterator[FieldError]:
    for field in fields:
        if context.get(field) is not None:
            yield from _id_error(f"{at}.{field}", context[field])


def _id_error(path: str, value: int) -> Iterator[FieldError]:
    if not 0 <= value <= _MAX_ID:
        yield _invalid(path, value, f"must be between 0 and {_MAX_ID}, inclusive")


def _path_errors(path: str, value: str) -> Iterator[FieldError]:
    if value.startswith("/"):
        yield _invalid(path, value, "must be a relative path")
    if ".." in value.split("/"):
        yield _invalid(path, value, "must not contain '..'")


def _one_of(path: str, value: str | None, values: Iterable[str]) -> Iterator[FieldError]:
    if value is not None and value not in values:
        listed = ", ".join(f'"{each}"' for each in values)
        yield FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value)


def _invalid(path: str, value: str | int, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, value)


def _forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, detail)
