"""What a node refuses at admission because of a pod's security settings: AppArmor, sysctls, groups, user namespaces.

A sysctl is safe if it belongs to a namespace of the pod and affects nothing outside it; the others need
`allowedUnsafeSysctls`. Kubernetes: pkg/kubelet/sysctl, pkg/kubelet/lifecycle/predicate.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.model.sysctls import BEGINNINGS, MAX_LENGTH, namespace_of, normalized
from plimsoll.rules.node.admission import NO_APP_ARMOR, AdmissionRefusal

# Safe sysctls, and the first kernel that has them for each network namespace.
SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced": (0, 0),
    "net.ipv4.ip_local_port_range": (0, 0),
    "net.ipv4.tcp_syncookies": (0, 0),
    "net.ipv4.ping_group_range": (0, 0),
    "net.ipv4.ip_unprivileged_port_start": (0, 0),
    "net.ipv4.ip_local_reserved_ports": (3, 16),
    "net.ipv4.tcp_keepalive_time": (4, 5),
    "net.ipv4.tcp_fin_timeout": (4, 6),
    "net.ipv4.tcp_keepalive_intvl": (4, 5),
    "net.ipv4.tcp_keepalive_probes": (4, 5),
    "net.ipv4.tcp_rmem": (4, 15),
    "net.ipv4.tcp_wmem": (4, 15),
    "net.ipv4.tcp_slow_start_after_idle": (4, 15),
    "net.ipv4.tcp_notsent_lowat": (4, 6),
}
_PATTERN = re.compile(r"([a-z0-9][-_a-z0-9]*[./])*[a-z0-9][-_a-z0-9.*/]*\*?", re.ASCII)


class NodeSecurity(msgspec.Struct, frozen=True):
    has_app_armor: bool = False
    kernel: tuple[int, int] = (6, 0)
    unsafe_sysctls: tuple[str, ...] = ()  # allowedUnsafeSysctls
    strict_groups: bool = True  # the runtime can leave out the groups of the image


def security_refusals(pod: RunPod, node: NodeSecurity, *, asks_app_armor: bool) -> Iterator[AdmissionRefusal]:
    """In the order in which they are reported."""
    refusal = sysctl_refusal(pod, node)
    if refusal:
        yield AdmissionRefusal("SysctlForbidden", f"forbidden sysctl: {refusal}")
    context = pod.spec.security_context
    if context is not None and context.supplemental_groups_policy == "Strict" and not node.strict_groups:
        text = "SupplementalGroupsPolicy=Strict is not supported in this node"
        yield AdmissionRefusal("SupplementalGroupsPolicyNotSupported", text)
    if asks_app_armor and not node.has_app_armor:
        yield NO_APP_ARMOR


def sysctl_refusal(pod: RunPod, node: NodeSecurity) -> str:
    """The kubelet's sentence about the first sysctl that the pod may not set; "" if there is none."""
    context = pod.spec.security_context
    safe = {name for name, since in SAFE_SYSCTLS.items() if since <= node.kernel}
    shared = _host_namespaces(pod)
    for sysctl in context.sysctls if context is not None else ():
        name = normalized(sysctl.name)
        if name not in safe and not any(_matches(name, pattern) for pattern in node.unsafe_sysctls):
            return f'"{name}" not allowlisted'
        namespace = namespace_of(name)
        if namespace in shared:
            return f'"{name}" not allowed with host {namespace} enabled'
    return ""


def sysctls(pod: RunPod, defaults: Mapping[str, str]) -> dict[str, str]:
    """By normalized name: the pod's, and of the node's `defaultPodSysctls` those that affect only this pod.

    A pod in the host's network also has the host's UTS namespace. `kernel.shm` and `kernel.msg` are beginnings of
    names: the kubelet starts with such a default and never sets it.
    """
    shared = _host_namespaces(pod) | ({"UTS"} if pod.spec.host_network else set())
    chosen = {
        name: value
        for name, value in ((normalized(name), value) for name, value in defaults.items())
        if namespace_of(name) not in shared and name not in BEGINNINGS
    }
    context = pod.spec.security_context
    own = {normalized(each.name): each.value for each in context.sysctls} if context is not None else {}
    return chosen | own


def _host_namespaces(pod: RunPod) -> set[str]:
    """The namespaces that the pod shares with the host, as far as sysctls have them."""
    spec = pod.spec
    shared = {"IPC": spec.host_ipc, "Net": spec.host_network, "User": spec.host_users is not False}
    return {namespace for namespace, is_shared in shared.items() if is_shared}


def _matches(name: str, pattern: str) -> bool:
    plain = normalized(pattern)
    prefix, star, _ = plain.partition("*")
    return name.startswith(prefix) if star else name == plain


def check_unsafe_sysctls(patterns: tuple[str, ...]) -> None:
    """Raises InvalidConfigError for a pattern of `allowedUnsafeSysctls` that a kubelet does not start with."""
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern) or len(pattern) > MAX_LENGTH:
            raise InvalidConfigError("allowedUnsafeSysctls", f"sysctl {pattern!r} is not a name or a prefix with *")
        prefix = normalized(pattern).partition("*")[0]
        if not namespace_of(prefix):
            raise InvalidConfigError("allowedUnsafeSysctls", f'the sysctls "{prefix}" are not known to be namespaced')
