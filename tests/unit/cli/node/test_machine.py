"""Whose cgroup driver counts: the runtime's answer, the configuration's word, or what the runtime is configured with."""

from __future__ import annotations

import pytest

from plimsoll.cli.node.machine import RuntimeTold, query_runtime, socket_of
from plimsoll.errors import PlimsollError
from plimsoll.rules.model.cgroup_names import Driver

CASES = [
    pytest.param(None, None, None, None, "", id="nobody-says"),
    pytest.param(None, None, "cgroupfs", "cgroupfs", "", id="configuration-of-the-node"),
    pytest.param(None, "systemd", None, "systemd", "", id="configuration-of-the-runtime"),
    pytest.param(None, "systemd", "systemd", "systemd", "", id="both-alike"),
    pytest.param(None, "cgroupfs", "systemd", "systemd", "outside their pods' cgroups", id="they-differ"),
    pytest.param("systemd", "systemd", "cgroupfs", "systemd", "counts before cgroupfs", id="the-runtime-answers"),
    pytest.param("systemd", "systemd", None, "systemd", "", id="the-runtime-answers-alone"),
]


@pytest.mark.parametrize(("answered", "configured", "said", "driver", "words"), CASES)
def test_driver(
    answered: Driver | None, configured: Driver | None, said: str | None, driver: str | None, words: str
) -> None:
    told = RuntimeTold("unix:///s", "containerd", "1", answered, configured)
    found, warning = told.driver_for(said)
    assert found == driver
    assert words in warning and bool(words) == bool(warning)


@pytest.mark.parametrize(("name", "kind"), [("containerd", "containerd"), ("cri-o", "crio")])
def test_kind(name: str, kind: str) -> None:
    assert RuntimeTold("unix:///s", name, "1", None, None).kind == kind


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1", "run/containerd.sock", "npipe:////./pipe/x"])
def test_only_sockets(endpoint: str) -> None:
    with pytest.raises(PlimsollError, match="a unix socket"):
        socket_of(endpoint)


def test_nobody_answers(tmp_path: object) -> None:
    with pytest.raises(PlimsollError, match="no container runtime answers at /nonexistent"):
        query_runtime("unix:///nonexistent/socket", patience_s=0.1)
