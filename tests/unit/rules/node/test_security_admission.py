"""What a node refuses because of security settings, in the kubelet's words."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.errors import InvalidConfigError
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.security_admission import (
    SAFE_SYSCTLS,
    NodeSecurity,
    check_unsafe_sysctls,
    normalized,
    security_refusals,
    sysctls,
)


def pod(*names: str, **spec: Any) -> RunPod:
    context = {"sysctls": [{"name": name, "value": "1"} for name in names], **spec.pop("context", {})}
    return run_pod({"metadata": {"name": "p"}, "spec": {"securityContext": context, "containers": [], **spec}})


def refused(it: RunPod, node: NodeSecurity, *, app_armor: bool = False) -> list[tuple[str, str]]:
    return [(each.reason, each.event_text) for each in security_refusals(it, node, asks_app_armor=app_armor)]


NODE = NodeSecurity(unsafe_sysctls=("kernel.msg*", "net.core.somaxconn"))


@pytest.mark.parametrize(
    ("it", "expected"),
    [
        pytest.param(pod(*SAFE_SYSCTLS), "", id="safe"),
        pytest.param(pod("kernel/shm_rmid_forced"), "", id="slashes"),
        pytest.param(pod("kernel.sem"), '"kernel.sem" not allowlisted', id="unsafe"),
        pytest.param(pod("kernel.msgmax", "net.core.somaxconn"), "", id="allowed by the configuration"),
        pytest.param(pod("net.core.rmem_max"), '"net.core.rmem_max" not allowlisted', id="another"),
        pytest.param(
            pod("net.ipv4.tcp_syncookies", hostNetwork=True),
            '"net.ipv4.tcp_syncookies" not allowed with host Net enabled',
            id="host network",
        ),
        pytest.param(
            pod("kernel.msgmax", hostIPC=True), '"kernel.msgmax" not allowed with host IPC enabled', id="host IPC"
        ),
        pytest.param(pod("kernel.msgmax", hostNetwork=True), "", id="another namespace"),
    ],
)
def test_sysctls(it: RunPod, expected: str) -> None:
    assert refused(it, NODE) == ([("SysctlForbidden", f"forbidden sysctl: {expected}")] if expected else [])


def test_a_sysctl_of_later_kernels() -> None:
    assert refused(pod("net.ipv4.tcp_rmem"), NodeSecurity(kernel=(4, 14)))
    assert not refused(pod("net.ipv4.tcp_rmem"), NodeSecurity(kernel=(4, 15)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("net.ipv4.tcp_rmem", "net.ipv4.tcp_rmem"),
        ("net/ipv4/tcp_rmem", "net.ipv4.tcp_rmem"),
        ("net/ipv4/conf/eth0.100/forwarding", "net.ipv4.conf.eth0/100.forwarding"),
        ("net.ipv4.conf.eth0/100.forwarding", "net.ipv4.conf.eth0/100.forwarding"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert normalized(name) == expected
    assert sysctls(pod(name), {}) == {expected: "1"}


# pkg/kubelet/kuberuntime/kuberuntime_sandbox.go of 1.37, applyPodSysctls
DEFAULTS = {
    "net/core/somaxconn": "9",
    "kernel.shmmax": "9",
    "fs.mqueue.msg_max": "9",
    "kernel.domainname": "9",
    "user.max_user_namespaces": "9",
    "kernel.shm": "9",
}


@pytest.mark.parametrize(
    ("it", "expected"),
    [
        (pod(), {"net.core.somaxconn", "kernel.shmmax", "fs.mqueue.msg_max", "kernel.domainname"}),
        (pod(hostNetwork=True), {"kernel.shmmax", "fs.mqueue.msg_max"}),
        (pod(hostIPC=True), {"net.core.somaxconn", "kernel.domainname"}),
        (pod(hostNetwork=True, hostUsers=False), {"kernel.shmmax", "fs.mqueue.msg_max", "user.max_user_namespaces"}),
        (pod(hostNetwork=True, hostIPC=True), set()),
    ],
)
def test_default_sysctls_by_namespace(it: RunPod, expected: set[str]) -> None:
    assert sysctls(it, DEFAULTS) == dict.fromkeys(expected, "9")


def test_a_pods_own_sysctl_wins_over_the_default() -> None:
    assert sysctls(pod("net.core.somaxconn"), {"net.core.somaxconn": "9"}) == {"net.core.somaxconn": "1"}


def test_groups_and_app_armor() -> None:
    strict = pod(context={"supplementalGroupsPolicy": "Strict"})
    text = "SupplementalGroupsPolicy=Strict is not supported in this node"
    assert refused(strict, NodeSecurity(strict_groups=False)) == [("SupplementalGroupsPolicyNotSupported", text)]
    assert refused(strict, NodeSecurity()) == []
    merge = pod(context={"supplementalGroupsPolicy": "Merge"})
    assert refused(merge, NodeSecurity(strict_groups=False)) == []
    assert refused(pod(), NodeSecurity(), app_armor=True) == [
        ("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
    ]
    assert refused(pod(), NodeSecurity(has_app_armor=True), app_armor=True) == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("kernel.msg*", ""),
        ("net.*", ""),
        ("net/core/somaxconn", ""),
        ("kernel.panic", 'the sysctls "kernel.panic" are not known to be namespaced'),
        ("vm.*", 'the sysctls "vm." are not known to be namespaced'),
        ("a b", "sysctl 'a b' is not a name or a prefix with *"),
    ],
)
def test_unsafe_sysctls_in_the_configuration(pattern: str, reason: str) -> None:
    if not reason:
        check_unsafe_sysctls((pattern,))
        return
    with pytest.raises(InvalidConfigError) as error:
        check_unsafe_sysctls((pattern,))
    assert str(error.value) == f"allowedUnsafeSysctls: {reason}"
