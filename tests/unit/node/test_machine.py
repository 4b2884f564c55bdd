"""Which cgroup driver is used: the one that the runtime reports, the node's own or the runtime's configuration."""

from __future__ import annotations

import pytest

from plimsoll.errors import PlimsollError
from plimsoll.node.machine import RuntimeInfo, query_runtime, socket_path
from plimsoll.rules.model.cgroup_names import Driver

CASES = [
    pytest.param(None, None, None, None, "", id="not-configured"),
    pytest.param(None, None, "cgroupfs", "cgroupfs", "", id="configuration-of-the-node"),
    pytest.param(None, "systemd", None, "systemd", "", id="configuration-of-the-runtime"),
    pytest.param(None, "systemd", "systemd", "systemd", "", id="both-alike"),
    pytest.param(
        "systemd",
        "systemd",
        "cgroupfs",
        "systemd",
        "takes precedence over the configured cgroupfs",
        id="the-runtime-answers",
    ),
    pytest.param("systemd", "systemd", None, "systemd", "", id="the-runtime-answers-alone"),
]


@pytest.mark.parametrize(("answered", "configured", "own", "driver", "message"), CASES)
def test_driver(
    answered: Driver | None, configured: Driver | None, own: str | None, driver: str | None, message: str
) -> None:
    info = RuntimeInfo("unix:///s", "containerd", "1", answered, configured)
    found, warning = info.driver_for(own)
    assert found == driver
    assert message in warning and bool(message) == bool(warning)


@pytest.mark.parametrize(
    ("name", "own", "configured", "advice"),
    [
        ("containerd", "systemd", "cgroupfs", "set SystemdCgroup = true in the configuration of containerd"),
        ("containerd", "cgroupfs", "systemd", "set SystemdCgroup = false in the configuration of containerd"),
        ("cri-o", "systemd", "cgroupfs", 'set cgroup_manager = "systemd" in the configuration of CRI-O'),
    ],
)
def test_a_runtime_with_another_driver_is_an_error(name: str, own: str, configured: Driver, advice: str) -> None:
    info = RuntimeInfo("unix:///s", name, "1", None, configured)
    with pytest.raises(PlimsollError, match=f"{advice} and restart it, or use --driver {configured}$"):
        info.driver_for(own)


@pytest.mark.parametrize(("name", "kind"), [("containerd", "containerd"), ("cri-o", "crio")])
def test_kind(name: str, kind: str) -> None:
    assert RuntimeInfo("unix:///s", name, "1", None, None).kind == kind


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1", "run/containerd.sock", "npipe:////./pipe/x"])
def test_only_sockets(endpoint: str) -> None:
    with pytest.raises(PlimsollError, match="must be a unix socket"):
        socket_path(endpoint)


def test_no_answer(tmp_path: object) -> None:
    with pytest.raises(PlimsollError, match="no container runtime answers at /nonexistent"):
        query_runtime("unix:///nonexistent/socket", timeout_s=0.1)
