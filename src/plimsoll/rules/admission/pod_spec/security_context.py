"""Validation of security contexts.

Kubernetes: pkg/apis/core/validation, validatePodSpecSecurityContext and ValidateSecurityContext.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.field_errors import (
    descending_path_errors,
    duplicate,
    forbidden,
    invalid,
    one_of,
    required,
    too_long,
)
from plimsoll.rules.admission.pod_spec.operating_systems import windows_option_errors
from plimsoll.rules.admission.pod_spec.rules import SpecRules
from plimsoll.rules.model import sysctls
from plimsoll.rules.model.json_object import JsonObject

_MAX_ID = 2**31 - 1
_MAX_PROFILE = 4095
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_OF_POD = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
}
_SHM = ("kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced", "kernel.shm",
        "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg")  # fmt: skip


def host_user_errors(spec: JsonObject, at: str) -> Iterator[FieldError]:
    """What a pod with users of its own may not share with the host."""
    if spec.get("hostUsers") is not False:
        return
    for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(field):
            yield forbidden(f"{at}.{shown}", "when `hostUsers` is false")
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            if container.get("volumeDevices"):
                yield forbidden(f"{at}.{kind}[{index}].volumeDevices", "when `hostUsers` is false")


def pod_context_errors(spec: JsonObject, at: str, rules: SpecRules) -> Iterator[FieldError]:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        words = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{at}.shareProcessNamespace", True, words)
    context = spec.get("securityContext")
    if not context:
        return
    yield from _id_errors(context, at, ("fsGroup", "runAsUser", "runAsGroup"))
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _id_error(f"{at}.supplementalGroups[{index}]", group)
    names: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        path, name = f"{at}.sysctls[{index}].name", sysctl.get("name") or ""
        if not name:
            yield required(path)
        elif not sysctls.is_name(name):
            words = f"must have at most {sysctls.MAX_LENGTH} characters and match regex {sysctls.NAME_REGEX}"
            yield invalid(path, name, words)
        elif name in names:
            yield duplicate(path, name)
        names.add(name)
        if sharing := _shared_namespace(name.replace("/", "."), spec):
            yield invalid(path, name, f"may not be specified when '{sharing}' is true")
    for field, values in _OF_POD.items():
        yield from one_of(f"{at}.{field}", context.get(field), values)
    policies = ("MountOption", "Recursive") if rules.selinux_mount_option else ("Recursive",)
    yield from one_of(f"{at}.seLinuxChangePolicy", context.get("seLinuxChangePolicy"), policies)
    yield from _profile_errors(context, at)
    yield from windows_option_errors(context.get("windowsOptions"), f"{at}.windowsOptions")


def _shared_namespace(sysctl: str, spec: JsonObject) -> str:
    """The field by which the pod shares the namespace of this sysctl with the host; "" if it does not."""
    if spec.get("hostNetwork") and sysctl.startswith("net."):
        return "hostNetwork"
    if spec.get("hostIPC") and (sysctl in _SHM or sysctl.startswith("fs.mqueue.")):
        return "hostIPC"
    return ""


def container_context_errors(context: JsonObject, at: str, *, own_users: bool) -> Iterator[FieldError]:
    yield from _id_errors(context, at, ("runAsUser", "runAsGroup"))
    proc = context.get("procMount")
    yield from one_of(f"{at}.procMount", proc, ("Default", "Unmasked"))
    if proc == "Unmasked" and not own_users:
        yield invalid(f"{at}.procMount", proc, "`hostUsers` must be false to use `Unmasked`")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            yield invalid(at, "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            words = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield invalid(at, "", words)
    yield from _profile_errors(context, at)
    yield from windows_option_errors(context.get("windowsOptions"), f"{at}.windowsOptions")


def _profile_errors(context: JsonObject, at: str) -> Iterator[FieldError]:
    for field, word in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile = context.get(field)
        if profile is None:
            continue
        path, kind, name = f"{at}.{field}", profile.get("type") or "", profile.get("localhostProfile")
        if not kind:
            yield required(f"{path}.type", f"type is required when {field} is set")
        yield from one_of(f"{path}.type", kind or None, _PROFILES)
        if kind == "Localhost" and not name:
            yield required(f"{path}.localhostProfile", f"must be set when {word} type is Localhost")
        elif kind == "Localhost" and field == "seccompProfile":
            yield from descending_path_errors(f"{path}.localhostProfile", name)
        elif kind == "Localhost":
            if name != name.strip():
                yield invalid(f"{path}.localhostProfile", name, "must not be padded with whitespace")
            if len(name) > _MAX_PROFILE:
                yield too_long(f"{path}.localhostProfile", _MAX_PROFILE)
        elif kind != "Localhost" and name is not None:
            words = f"can only be set when {word} type is Localhost"
            yield invalid(f"{path}.localhostProfile", name, words)


def _id_errors(context: JsonObject, at: str, fields: Iterable[str]) -> Iterator[FieldError]:
    for field in fields:
        if context.get(field) is not None:
            yield from _id_error(f"{at}.{field}", context[field])


def _id_error(path: str, value: int) -> Iterator[FieldError]:
    if not 0 <= value <= _MAX_ID:
        yield invalid(path, value, f"must be between 0 and {_MAX_ID}, inclusive")
