"""The node of `explain`: the effect of its Node object, configuration and pods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.console import Ran, run

Json = dict[str, Any]


def pod(name: str, resources: Json, spec: Json | None = None, status: Json | None = None) -> Json:
    containers = [{"name": "c", "image": "i", "resources": resources}]
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return {**document, "spec": {"containers": containers, **(spec or {})}, "status": status or {}}


class Desk:
    """A folder to put files in, and `plimsoll explain` beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, value: object) -> str:
        path = self.folder / name
        path.write_text(json.dumps(value))
        return str(path)

    def explain(self, pods: list[Json], *words: str, config: Json | None = None) -> Ran:
        options = ["--config", self.file("config.json", config)] if config is not None else []
        return run("explain", self.file("pods.json", {"kind": "List", "items": pods}), *options, *words)

    def table(self, pods: list[Json], *words: str, config: Json | None = None) -> list[list[str]]:
        ran = self.explain(pods, "-o", "table", *words, config=config)
        assert ran.code == 0, ran.err
        return [line.split() for line in ran.out.splitlines()[1:]]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


CAPACITY = ("--capacity", "cpu=4,memory=16Gi")


def test_limited_swap_of_a_described_node(desk: Desk) -> None:
    """02 §5: 2Gi of 16Gi, swap 8Gi → 1073741824; without swap there is none."""
    config = {"memorySwap": {"swapBehavior": "LimitedSwap"}}
    burstable = [pod("p", {"requests": {"memory": "2Gi"}, "limits": {"memory": "3Gi"}})]
    for words, expected in (
        (("--capacity", "cpu=4,memory=16Gi,swap=8Gi"), "1073741824"),
        (("--node", desk.file("node.json", _node("n", {"swap": {"capacity": 8 << 30}}))), "1073741824"),
        (CAPACITY, "0"),
    ):
        rows = desk.table(burstable, "--profile", "1.36", *words, config=config)
        assert [row[-1] for row in rows if row[4] == "memory.swap.max"] == [expected]


def _node(name: str, info: Json | None = None, **capacity: str) -> Json:
    status = {"capacity": {"cpu": "4", "memory": "16Gi", **capacity}, "nodeInfo": info or {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def test_without_cgroups_per_qos_only_containers_have_cgroups(desk: Desk) -> None:
    """02 §1."""
    config = {"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"]}
    pods = [pod("p", {"limits": {"cpu": "1", "memory": "1Gi"}})]
    assert {row[0] for row in desk.table(pods, *CAPACITY, config=config)} == {"container"}
    script = desk.explain(pods, *CAPACITY, "-o", "sh", config=config).out
    assert "memory.max" not in script  # nothing is written at the root, or where the runtime decides


def test_strict_reservation_excludes_reserved_cpus_from_sharing(desk: Desk) -> None:
    """02 §10: SHARED is ALL − RESERVED then. 16 CPUs, 2 reserved, 4 owned: 10, and 12 without the option."""
    owner = [pod("o", {"limits": {"cpu": "4", "memory": "1Gi"}}), pod("e", {})]
    base = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "2"}}
    for options, shared in (({}, 12), ({"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}, 10)):
        ran = desk.explain(owner, "--capacity", "cpu=16,memory=64Gi", config={**base, **options})
        assert f"shared CPUs  {shared} " in ran.out


def test_more_exclusive_cpus_than_available(desk: Desk) -> None:
    config = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}}
    pods = [pod(name, {"limits": {"cpu": "3", "memory": "1Gi"}}) for name in ("a", "b")]
    assert "6 exclusive CPUs are requested but only 3 are available" in desk.explain(pods, *CAPACITY, config=config).out


@pytest.mark.parametrize("words", [("--capacity", "cpu=4,memory=16Gi,pods=250"), ("--node", "")], ids=["list", "Node"])
def test_the_number_of_pods_of_the_node(desk: Desk, words: tuple[str, str]) -> None:
    given = words if words[1] else ("--node", desk.file("node.json", _node("n", pods="250")))
    assert "pods 250" in desk.explain([pod("p", {})], *given).out


def test_only_pods_that_are_on_the_node(desk: Desk) -> None:
    pods = [
        pod("here", {}, {"nodeName": "n"}),
        pod("nowhere", {}),
        pod("elsewhere", {}, {"nodeName": "m"}),
        pod("ended", {}, {"nodeName": "n"}, {"phase": "Succeeded"}),
    ]
    ran = desk.explain(pods, "-o", "json", "--node", desk.file("node.json", _node("n")))
    assert [each["name"] for each in json.loads(ran.out)["pods"]] == ["here", "nowhere"]
    assert "1 pods have ended" in ran.err and "1 pods are bound to nodes other than n" in ran.err


def test_a_node_object_that_differs_from_the_options(desk: Desk) -> None:
    info = {"kubeletVersion": "v1.34.1", "containerRuntimeVersion": "cri-o://1.34"}
    ran = desk.explain([pod("p", {})], "--node", desk.file("node.json", _node("n", info)))
    assert "--runtime crio" in ran.err and ran.out.startswith("profile 1.34: kubeletVersion of node n\n")
    other = desk.explain([pod("p", {})], "--node", desk.file("node.json", _node("n", info)), "--profile", "1.36")
    assert "the Node runs kubelet v1.34.1: its profile is 1.34" in other.err


def test_configuration_as_a_node_serves_it(desk: Desk) -> None:
    ran = desk.explain([pod("p", {})], *CAPACITY, config={"kubeletconfig": {"maxPods": 7}})
    assert (ran.code, "pods 7" in ran.out) == (0, True)


def test_flags_of_the_kubelet(desk: Desk) -> None:
    ran = desk.explain([pod("p", {})], *CAPACITY, "--cgroup-driver", "systemd", "--address", "::1")
    assert "/kubepods.slice" in ran.out and "these settings have no effect: address" in ran.err


@pytest.mark.parametrize("capacity", ["", "cpu=4,cpu=5,memory=1Gi", "=3,cpu=4,memory=1Gi", "cpu=3500m,memory=1Gi"])
def test_invalid_capacities(desk: Desk, capacity: str) -> None:
    assert desk.explain([pod("p", {})], "--capacity", capacity).code == 2


@pytest.mark.parametrize("line", ['{"kind":"List","items":[]}', '{"kind":"Node"}', "{}"])
def test_plan_accepts_only_pods(line: str) -> None:
    ran = run("plan", *CAPACITY, stdin=line + "\n")
    assert ran.code == 2 and json.loads(ran.out)["line"] == 1
