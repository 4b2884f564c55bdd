"""The kubelet configuration: what depends on the machine or on the release, and what a kubelet refuses there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.rules.config.kubelet import host_errors, on_host
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from tests.unit.rules.config.kubelet_documents import problems, read


@pytest.mark.parametrize(
    ("text", "version", "paths"),
    [
        ("{}", 1, []),
        ("{failCgroupV1: true}", 1, ["failCgroupV1"]),
        ("{failCgroupV1: true}", 2, []),
        ("{singleProcessOOMKill: false}", 1, ["singleProcessOOMKill"]),
        ("{singleProcessOOMKill: true}", 1, []),
        ("{singleProcessOOMKill: false}", 2, []),
        ("{memorySwap: {swapBehavior: LimitedSwap}}", 1, ["memorySwap.swapBehavior"]),
        ("{memorySwap: {swapBehavior: LimitedSwap}}", 2, []),
        ("{reservedSystemCPUs: 2-5}", 2, ["reservedSystemCPUs"]),
        ("{reservedSystemCPUs: 0-1}", 2, []),
    ],
)
def test_what_the_host_cannot_do(text: str, version: Any, paths: list[str]) -> None:
    errors = host_errors(read(text).config, PROFILE_DOCUMENTS, version, online_cpus=range(4))
    assert [error.path for error in errors] == paths


@pytest.mark.parametrize(
    ("release", "support"),
    [
        ("1.30", ""),
        ("1.31", ". cgroup v1 support is in maintenance mode"),
        ("1.34", ". cgroup v1 support is in maintenance mode"),
        ("1.35", ". cgroup v1 support is unsupported and will be removed in a future release"),
        ("1.37", ". cgroup v1 support is unsupported and will be removed in a future release"),
    ],
)
def test_what_a_release_says_about_cgroup_v1(release: str, support: str) -> None:
    (error,) = host_errors(read("{failCgroupV1: true}").config, profile_named(release), 1)
    text = f"kubelet is configured to not run on a host using cgroup v1{support}; set it to false to run"
    assert error.reason == text


def test_default_sysctls_of_pods() -> None:
    """The texts: pkg/kubelet/apis/config/validation/validation.go of 1.37."""
    release, on = profile_named("1.37"), "featureGates: {DefaultPodSysctls: true}, defaultPodSysctls: "
    forwarding = "{net.ipv4.ip_forward: '1'}"
    assert problems(f"{{defaultPodSysctls: {forwarding}}}", release) == {
        "defaultPodSysctls": "DefaultPodSysctls feature gate is required for Kubelet configuration option "
        "defaultPodSysctls"
    }
    assert read(f"{{{on}{forwarding}}}", release).config.default_pod_sysctls == {"net.ipv4.ip_forward": "1"}
    bad = "{Invalid.Sysctl: '1', vm.swappiness: '1', net.core.somaxconn: '1', net/core/somaxconn: '2', user/x: '3'}"
    assert problems(f"{{{on}{bad}}}", release) == {
        "defaultPodSysctls[Invalid.Sysctl]": '"Invalid.Sysctl" is not a valid sysctl name for defaultPodSysctls',
        "defaultPodSysctls[vm.swappiness]": '"vm.swappiness" is not known to be namespaced for defaultPodSysctls',
        "defaultPodSysctls[net/core/somaxconn]": 'duplicate sysctl "net.core.somaxconn" found in defaultPodSysctls',
    }
    older = problems(f"{{{on}{forwarding}}}", profile_named("1.36"))
    assert older["featureGates[DefaultPodSysctls]"] == "unrecognized feature gate: DefaultPodSysctls"


def test_missing_cpus_are_named() -> None:
    (error,) = host_errors(read("{reservedSystemCPUs: 2-5}").config, PROFILE_DOCUMENTS, 2, range(4))
    assert error.reason == "reserved-cpus: 2-5 is not a subset of online-cpus: 0-3"  # CM-5


@pytest.mark.parametrize(("configured", "v1", "v2"), [(None, True, False), (True, True, True), (False, False, False)])
def test_single_process_oom_kill_follows_the_host(configured: bool | None, v1: bool, v2: bool) -> None:
    """02 §5: config defaulting sets an unset field to false on v2 and true on v1."""
    config = msgspec.structs.replace(default_config(profile_named("1.36")), single_process_oom_kill=configured)
    assert (on_host(config, 1).single_process_oom_kill, on_host(config, 2).single_process_oom_kill) == (v1, v2)
