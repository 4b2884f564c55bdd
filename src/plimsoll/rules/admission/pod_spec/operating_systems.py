"""Validation of what depends on the pod's operating system, and of the options for Windows, which have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plimsoll.errors import FieldError
from plimsoll.rules.admission.pod_spec.field_errors import forbidden, invalid, misnamed
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_subdomain_problems

_NOT_ON_WINDOWS = "cannot be set for a windows pod"
_OF_POD = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip
_OF_CONTAINER = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip
_SHARED = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")

Contexts = Sequence[tuple[str, JsonObject]]  # path and securityContext of each container


def system_errors(spec: JsonObject, at: str, contexts: Contexts) -> Iterator[FieldError]:
    own = spec.get("securityContext") or {}
    name = (spec.get("os") or {}).get("name")
    if name == "linux":
        for path, context in ((f"{at}.securityContext", own), *contexts):
            if context.get("windowsOptions") is not None:
                yield forbidden(f"{path}.windowsOptions", "windows options cannot be set for a linux pod")
    elif name == "windows":
        for field in _OF_POD:
            if own.get(field) not in (None, []):
                yield forbidden(f"{at}.securityContext.{field}", _NOT_ON_WINDOWS)
        for field in _SHARED:
            if spec.get(field) is not None and (field in ("hostUsers", "shareProcessNamespace") or spec[field]):
                yield forbidden(f"{at}.{field}", _NOT_ON_WINDOWS)
        for path, context in contexts:
            for field in _OF_CONTAINER:
                if context.get(field) is not None:
                    yield forbidden(f"{path}.{field}", _NOT_ON_WINDOWS)


def windows_option_errors(options: JsonObject | None, at: str) -> Iterator[FieldError]:
    if options is None:
        return
    if (name := options.get("gmsaCredentialSpecName")) is not None:
        yield from misnamed(f"{at}.gmsaCredentialSpecName", name, dns_subdomain_problems(name))
    for field in ("gmsaCredentialSpec", "runAsUserName"):
        if options.get(field) == "":
            yield invalid(f"{at}.{field}", "", f"{field} cannot be an empty string")


def host_process_errors(spec: JsonObject, at: str, contexts: Contexts) -> Iterator[FieldError]:
    """Containers that are processes of a Windows host."""
    own = ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    said = [(path, (context.get("windowsOptions") or {}).get("hostProcess")) for path, context in contexts]
    for path, value in said:
        if own is not None and value is not None and own != value:
            words = f"pod hostProcess value must be identical if both are specified, was {'true' if own else 'false'}"
            yield invalid(f"{path}.windowsOptions.hostProcess", value, words)
    count = sum(bool(own if value is None else value) for _, value in said)
    if not count:
        return
    if count != len(said):
        words = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield invalid(at, "", words)
    if not spec.get("hostNetwork"):
        yield invalid(f"{at}.hostNetwork", False, "hostNetwork must be true if pod contains any hostProcess containers")
