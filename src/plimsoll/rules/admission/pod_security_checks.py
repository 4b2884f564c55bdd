"""The checks of the Pod Security Standards: what `baseline` and `restricted` forbid in a pod, by their version.

A check gets a pod's metadata and spec as documents and returns what it finds, or None. `CHECKS` lists every check with
the versions of the standard from which each form of it holds. A check of `restricted` may replace one of `baseline`.

Kubernetes: staging/src/k8s.io/pod-security-admission/policy; the texts are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from plimsoll.rules.model.json_object import JsonObject

BASELINE, RESTRICTED = "baseline", "restricted"
LAST_MINOR = 37  # the newest version of the standard in the table

_CAPABILITIES = frozenset((
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
))  # fmt: skip
_SYSCTLS = frozenset((
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
))  # fmt: skip
_SYSCTLS_27 = _SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_29 = _SYSCTLS_27 | {
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
_SYSCTLS_32 = _SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
_SYSCTLS_37 = _SYSCTLS_32 | {"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"}
_SELINUX_TYPES = frozenset(("", "container_t", "container_init_t", "container_kvm_t"))
_VOLUMES = frozenset((
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
))  # fmt: skip
_PROFILES = ("RuntimeDefault", "Localhost")
_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD, _SECCOMP_CONTAINER = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
)


class Finding(msgspec.Struct, frozen=True):
    """`reason` is for lists of pods, `detail` names the fields of one pod."""

    reason: str
    detail: str


class PodView(msgspec.Struct, frozen=True):
    """A pod, or the pods of a workload's template."""

    metadata: JsonObject
    spec: JsonObject

    @property
    def context(self) -> JsonObject:
        return self.spec.get("securityContext") or {}

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.get("annotations") or {}

    def containers(self) -> Iterator[JsonObject]:
        for kind in ("initContainers", "containers", "ephemeralContainers"):
            yield from self.spec.get(kind) or ()

    def has_own_users(self) -> bool:
        return self.spec.get("hostUsers") is False

    def is_windows(self) -> bool:
        return (self.spec.get("os") or {}).get("name") == "windows"


Test = Callable[[PodView], Finding | None]


class Check(msgspec.Struct, frozen=True):
    """`forms`: the check from that minor version on. `replaces`: the check of `baseline` that it includes."""

    name: str
    level: str
    forms: tuple[tuple[int, Test], ...]
    replaces: str = ""

    def at(self, minor: int) -> Test | None:
        found = [test for since, test in self.forms if since <= minor]
        return found[-1] if found else None


# --- words ---


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plural(count: int, one: str, many: str = "") -> str:
    return one if count == 1 else many or f"{one}s"


def _named(word: str, names: list[str]) -> str:
    """`containers "a", "b"`"""
    return f"{_plural(len(names), word)} {_quoted(names)}"


def _setters(pod: bool, containers: list[str]) -> str:
    return " and ".join([*(["pod"] if pod else []), *([_named("container", containers)] if containers else [])])


def _context(container: JsonObject) -> JsonObject:
    return container.get("securityContext") or {}


def _of(container: JsonObject) -> str:
    return str(container.get("name") or "")


def _who(pod: PodView, field: str, is_bad: Callable[[Any], bool]) -> tuple[bool, list[str]]:
    """Whether the pod's securityContext has a bad value in this field, and which containers' have one."""

    def bad(context: JsonObject) -> bool:
        value = context.get(field)
        return value is not None and is_bad(value)

    return bad(pod.context), [_of(each) for each in pod.containers() if bad(_context(each))]


# --- baseline ---


def _app_armor(pod: PodView) -> Finding | None:
    def is_bad(profile: JsonObject) -> bool:
        return profile.get("type") not in _PROFILES

    of_pod, containers = _who(pod, "appArmorProfile", is_bad)
    contexts = [pod.context, *(_context(each) for each in pod.containers())]
    profiles = [context["appArmorProfile"] for context in contexts if context.get("appArmorProfile") is not None]
    values = sorted({str(profile.get("type") or "") for profile in profiles if is_bad(profile)})
    annotations = sorted(
        f'{name}="{value}"'
        for name, value in pod.annotations.items()
        if name.startswith(_APP_ARMOR_ANNOTATION)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    setters = [word for word in (_setters(of_pod, containers),) if word]
    if annotations:
        setters.append(_plural(len(annotations), "annotation"))
    if not setters:
        return None
    values += annotations
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(values)}"
    return Finding(_plural(len(values), "forbidden AppArmor profile"), detail)


def _capabilities(pod: PodView) -> Finding | None:
    containers, added = [], set()
    for each in pod.containers():
        extra = set((_context(each).get("capabilities") or {}).get("add") or ()) - _CAPABILITIES
        if extra:
            containers.append(_of(each))
            added |= extra
    if not containers:
        return None
    names = _named("container", containers)
    detail = f"{names} must not include {_quoted(sorted(added))} in securityContext.capabilities.add"
    return Finding("non-default capabilities", detail)


def _host_namespaces(pod: PodView) -> Finding | None:
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(field)]
    return Finding("host namespaces", ", ".join(shared)) if shared else None


def _host_paths(pod: PodView) -> Finding | None:
    names = [_of(volume) for volume in pod.spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Finding("hostPath volumes", _named("volume", names)) if names else None


def _host_ports(pod: PodView) -> Finding | None:
    used = {
        _of(each): {str(port["hostPort"]) for port in each.get("ports") or () if port.get("hostPort")}
        for each in pod.containers()
    }
    names = [name for name, ports in used.items() if ports]
    if not names:
        return None
    ports = sorted(set().union(*used.values()))
    words = f"{_plural(len(names), 'uses', 'use')} {_plural(len(ports), 'hostPort')}"
    return Finding("hostPort", f"{_named('container', names)} {words} {', '.join(ports)}")


def _probe_hosts(pod: PodView) -> Finding | None:
    names, hosts = set(), set()
    for each in pod.containers():
        lifecycle = each.get("lifecycle") or {}
        actions = [each.get(probe) for probe in ("livenessProbe", "readinessProbe", "startupProbe")]
        actions += [lifecycle.get("postStart"), lifecycle.get("preStop")]
        targets = [action.get(kind) for action in actions if action for kind in ("httpGet", "tcpSocket")]
        found = {target["host"] for target in targets if target and target.get("host")}
        if found:
            names.add(_of(each))
            hosts |= found
    if not names:
        return None
    words = f"{_plural(len(names), 'uses', 'use')} {_plural(len(hosts), 'probe or lifecycle host')}"
    return Finding("probe or lifecycle host", f"{_named('container', sorted(names))} {words} {_quoted(sorted(hosts))}")


def _privileged(pod: PodView) -> Finding | None:
    names = [_of(each) for each in pod.containers() if _context(each).get("privileged")]
    detail = f"{_named('container', names)} must not set securityContext.privileged=true"
    return Finding("privileged", detail) if names else None


def _proc_mount(pod: PodView) -> Finding | None:
    found = {_of(each): _context(each).get("procMount") for each in pod.containers()}
    bad = {name: value for name, value in found.items() if value not in (None, "Default")}
    if not bad:
        return None
    values = _quoted(sorted(set(map(str, bad.values()))))
    return Finding("procMount", f"{_named('container', list(bad))} must not set securityContext.procMount to {values}")


def _se_linux(pod: PodView, types: frozenset[str] = _SELINUX_TYPES) -> Finding | None:
    def is_bad(options: JsonObject) -> bool:
        return (options.get("type") or "") not in types or bool(options.get("user") or options.get("role"))

    of_pod, containers = _who(pod, "seLinuxOptions", is_bad)
    if not of_pod and not containers:
        return None
    contexts = [pod.context, *(_context(each) for each in pod.containers())]
    options = [context.get("seLinuxOptions") or {} for context in contexts]
    bad_types = sorted({each.get("type") or "" for each in options} - types)
    data = [_named("type", bad_types)] if bad_types else []
    data += [f"{field} may not be set" for field in ("user", "role") if any(each.get(field) for each in options)]
    what = f"{_setters(of_pod, containers)} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"
    return Finding("seLinuxOptions", what)


def _seccomp_annotations(pod: PodView) -> Finding | None:
    keys = [_SECCOMP_POD, *(f"{_SECCOMP_CONTAINER}{_of(each)}" for each in pod.containers())]
    bad = {
        f'{key}="{value}"'
        for key in keys
        if (value := pod.annotations.get(key)) is not None
        and value not in ("runtime/default", "docker/default")
        and not value.startswith("localhost/")
    }
    detail = f"forbidden {_plural(len(bad), 'annotation')} {', '.join(sorted(bad))}"
    return Finding("seccompProfile", detail) if bad else None


def _seccomp(pod: PodView) -> Finding | None:
    def is_bad(profile: JsonObject) -> bool:
        return profile.get("type") not in _PROFILES

    of_pod, containers = _who(pod, "seccompProfile", is_bad)
    if not of_pod and not containers:
        return None
    contexts = [pod.context, *(_context(each) for each in pod.containers())]
    profiles = [context["seccompProfile"] for context in contexts if context.get("seccompProfile") is not None]
    values = _quoted(sorted({str(profile.get("type") or "") for profile in profiles if is_bad(profile)}))
    detail = f"{_setters(of_pod, containers)} must not set securityContext.seccompProfile.type to {values}"
    return Finding("seccompProfile", detail)


def _sysctls(pod: PodView, allowed: frozenset[str] = _SYSCTLS) -> Finding | None:
    names = [str(each.get("name")) for each in pod.context.get("sysctls") or () if each.get("name") not in allowed]
    return Finding("forbidden sysctls", ", ".join(names)) if names else None


def _host_process(pod: PodView) -> Finding | None:
    of_pod, containers = _who(pod, "windowsOptions", lambda options: bool(options.get("hostProcess")))
    if not of_pod and not containers:
        return None
    what = f"{_setters(of_pod, containers)} must not set securityContext.windowsOptions.hostProcess=true"
    return Finding("hostProcess", what)


# --- restricted ---


def _escalation(pod: PodView) -> Finding | None:
    names = [_of(each) for each in pod.containers() if _context(each).get("allowPrivilegeEscalation") is not False]
    detail = f"{_named('container', names)} must set securityContext.allowPrivilegeEscalation=false"
    return Finding("allowPrivilegeEscalation != false", detail) if names else None


def _few_capabilities(pod: PodView) -> Finding | None:
    without_drop, adding, added = [], [], set()
    for each in pod.containers():
        capabilities = _context(each).get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()):
            without_drop.append(_of(each))
        extra = set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}
        if extra:
            adding.append(_of(each))
            added |= extra
    details = []
    if without_drop:
        details.append(f'{_named("container", without_drop)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        names = _named("container", adding)
        details.append(f"{names} must not include {_quoted(sorted(added))} in securityContext.capabilities.add")
    return Finding("unrestricted capabilities", "; ".join(details)) if details else None


def _volume_types(pod: PodView) -> Finding | None:
    names, kinds = [], set()
    for volume in pod.spec.get("volumes") or ():
        kind = next((field for field, value in volume.items() if field != "name" and value is not None), "unknown")
        if kind not in _VOLUMES:
            names.append(_of(volume))
            kinds.add(kind)
    if not names:
        return None
    words = f"{_plural(len(names), 'uses', 'use')} {_plural(len(kinds), 'restricted volume type')}"
    return Finding("restricted volume types", f"{_named('volume', names)} {words} {_quoted(sorted(kinds))}")


def _non_root(pod: PodView) -> Finding | None:
    reason = "runAsNonRoot != true"
    of_pod, containers = _who(pod, "runAsNonRoot", lambda value: value is False)
    if of_pod or containers:
        return Finding(reason, f"{_setters(of_pod, containers)} must not set securityContext.runAsNonRoot=false")
    if pod.context.get("runAsNonRoot"):
        return None
    unset = [_of(each) for each in pod.containers() if _context(each).get("runAsNonRoot") is None]
    detail = f"pod or {_named('container', unset)} must set securityContext.runAsNonRoot=true"
    return Finding(reason, detail) if unset else None


def _root_user(pod: PodView) -> Finding | None:
    of_pod, containers = _who(pod, "runAsUser", lambda value: value == 0)
    detail = f"{_setters(of_pod, containers)} must not set runAsUser=0"
    return Finding("runAsUser=0", detail) if of_pod or containers else None


def _some_seccomp(pod: PodView) -> Finding | None:
    if finding := _seccomp(pod):
        return finding
    if pod.context.get("seccompProfile") is not None:
        return None
    unset = [_of(each) for each in pod.containers() if _context(each).get("seccompProfile") is None]
    names = _named("container", unset)
    detail = f'pod or {names} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Finding("seccompProfile", detail) if unset else None


def _unless(exempt: Callable[[PodView], bool], test: Test, pod: PodView) -> Finding | None:
    return None if exempt(pod) else test(pod)


_not_windows = partial(partial, _unless, PodView.is_windows)
_not_own_users = partial(partial, _unless, PodView.has_own_users)

# In the order in which findings are listed: by name, first of baseline, then of restricted.
CHECKS = (
    Check("appArmorProfile", BASELINE, ((0, _app_armor),)),
    Check("capabilities_baseline", BASELINE, ((0, _capabilities),)),
    Check("hostNamespaces", BASELINE, ((0, _host_namespaces),)),
    Check("hostPathVolumes", BASELINE, ((0, _host_paths),)),
    Check("hostPorts", BASELINE, ((0, _host_ports),)),
    Check("hostProbesAndHostLifecycle", BASELINE, ((34, _probe_hosts),)),
    Check("privileged", BASELINE, ((0, _privileged),)),
    Check("procMount", BASELINE, ((0, _proc_mount), (35, _not_own_users(_proc_mount)))),
    Check(
        "seLinuxOptions",
        BASELINE,
        ((0, _se_linux), (31, partial(_se_linux, types=_SELINUX_TYPES | {"container_engine_t"}))),
    ),
    Check("seccompProfile_baseline", BASELINE, ((0, _seccomp_annotations), (19, _seccomp))),
    Check(
        "sysctls",
        BASELINE,
        (
            (0, _sysctls),
            (27, partial(_sysctls, allowed=_SYSCTLS_27)),
            (29, partial(_sysctls, allowed=_SYSCTLS_29)),
            (32, partial(_sysctls, allowed=_SYSCTLS_32)),
            (37, partial(_sysctls, allowed=_SYSCTLS_37)),
        ),
    ),
    Check("windowsHostProcess", BASELINE, ((0, _host_process),)),
    Check("allowPrivilegeEscalation", RESTRICTED, ((8, _escalation), (25, _not_windows(_escalation)))),
    Check(
        "capabilities_restricted",
        RESTRICTED,
        ((22, _few_capabilities), (25, _not_windows(_few_capabilities))),
        "capabilities_baseline",
    ),
    Check("procMount_restricted", RESTRICTED, ((35, _proc_mount),), "procMount"),
    Check("restrictedVolumes", RESTRICTED, ((0, _volume_types),), "hostPathVolumes"),
    Check("runAsNonRoot", RESTRICTED, ((0, _non_root), (35, _not_own_users(_non_root)))),
    Check("runAsUser", RESTRICTED, ((23, _root_user), (35, _not_own_users(_root_user)))),
    Check(
        "seccompProfile_restricted",
        RESTRICTED,
        ((19, _some_seccomp), (25, _not_windows(_some_seccomp))),
        "seccompProfile_baseline",
    ),
)


def findings(level: str, minor: int, pod: PodView) -> tuple[Finding, ...]:
    """What the standard of that level and version forbids in the pod."""
    if level not in (BASELINE, RESTRICTED):
        return ()
    valid = [(check, test) for check in CHECKS if (test := check.at(minor)) is not None]
    if level == BASELINE:
        valid = [each for each in valid if each[0].level == BASELINE]
    replaced = {check.replaces for check, _ in valid}
    found = (test(pod) for check, test in valid if check.name not in replaced)
    return tuple(finding for finding in found if finding is not None)
