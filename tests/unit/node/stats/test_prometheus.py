"""The pages, read back by Prometheus' own parser and by our API server's reader of /metrics/resource."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.api.nodeproxy.metrics_api import UsageReading, readings
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.stats.prometheus import cadvisor_page, resource_page
from plimsoll.runtime.interface import ContainerPhase, ObservedContainer, ObservedSandbox
from tests.unit.node.played_node import MIB, POD, PODS, PlayedNode

PHASES: tuple[ContainerPhase, ...] = ("running", "running", "exited")
Read = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _read(text: str) -> Read:
    return {
        (sample.name, tuple(sorted((key, value) for key, value in sample.labels.items() if value))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def node(tmp_path: Path) -> PlayedNode:
    return PlayedNode(tmp_path)


def test_resource_page(node: PlayedNode) -> None:
    text = resource_page(node.stats.sample())
    found = _read(text)
    container = (("container", "app"), ("namespace", "default"), ("pod", "web"))
    pod = container[1:]
    assert found == {
        ("node_cpu_usage_seconds_total", ()): 5.0,
        ("node_memory_working_set_bytes", ()): 298 * MIB,
        ("pod_cpu_usage_seconds_total", pod): 2.0,
        ("pod_memory_working_set_bytes", pod): 18 * MIB,
        ("container_cpu_usage_seconds_total", container): 1.0,
        ("container_memory_working_set_bytes", container): 8 * MIB,
        ("container_start_time_seconds", container): 1_699_999_000,
        ("scrape_error", ()): 0,
    }


def test_the_api_server_can_read_it(node: PlayedNode) -> None:
    at_s = node.now_s
    assert readings(resource_page(node.stats.sample()), 0.0) == {
        ("", "", ""): UsageReading(at_s, 5.0, 298 * MIB),
        ("default", "web", "app"): UsageReading(at_s, 1.0, 8 * MIB, 1_699_999_000.0),
    }


def test_cadvisor_page(node: PlayedNode) -> None:
    cgroup = f"{POD}/c1"
    node.cgroups.put(cgroup, cpu_weight="4", cpu_max="20000 100000")
    node.cgroups.put(POD, cpu_weight="1", cpu_max="max 100000")
    snapshot = node.stats.sample()
    kills = {("app", "default", "web"): 3, ("gone", "default", "old"): 1}
    found = _read("".join(cadvisor_page(snapshot, node.stats.scraped(snapshot), kills)))
    container = (
        ("container", "app"), ("id", cgroup), ("image", "nginx"), ("name", "c1"), ("namespace", "default"), ("pod", "web"),
    )  # fmt: skip
    pod = (("id", POD), ("namespace", "default"), ("pod", "web"))
    for name, number in {
        "container_cpu_usage_seconds_total": 1.0,
        "container_cpu_user_seconds_total": 1.0,
        "container_cpu_system_seconds_total": 0.0,
        "container_cpu_cfs_periods_total": 7,
        "container_cpu_cfs_throttled_periods_total": 3,
        "container_cpu_cfs_throttled_seconds_total": 0.5,
        "container_memory_usage_bytes": 10 * MIB,
        "container_memory_working_set_bytes": 8 * MIB,
        "container_memory_rss": 5 * MIB,
        "container_memory_cache": 5 * MIB,
        "container_spec_memory_limit_bytes": 64 * MIB,
        "container_memory_failcnt_total": 2,  # the parser adds what every counter should end with
        "container_threads": 4,
        "container_start_time_seconds": 1_699_999_000,
        "container_spec_cpu_shares": 80,
        "container_spec_cpu_quota": 20000,
        "container_spec_cpu_period": 100000,
    }.items():
        assert found[name, container] == number, name
    assert (
        found[
            "container_memory_failures_total",
            tuple(sorted((*container, ("failure_type", "pgfault"), ("scope", "hierarchy")))),
        ]
        == 5
    )
    # Without the id of an instance: the series goes on after a restart, and while the container does not run.
    counted = {labels: number for (name, labels), number in found.items() if name == "container_oom_events_total"}
    assert counted == {
        (("container", "app"), ("namespace", "default"), ("pod", "web")): 3,
        (("container", "gone"), ("namespace", "default"), ("pod", "old")): 1,
    }
    assert found["container_cpu_usage_seconds_total", pod] == 2.0
    assert ("container_spec_cpu_quota", pod) not in found  # none
    assert ("container_spec_memory_limit_bytes", pod) not in found
    assert found["container_cpu_usage_seconds_total", (("id", "/"),)] == 5.0
    assert found["container_memory_working_set_bytes", (("id", PODS),)] == 98 * MIB


def test_what_the_agent_counts() -> None:
    meters = NodeMeters("n1")
    containers = [
        ObservedContainer(str(at), "c", phase, sandbox_id="s", pod_uid="u") for at, phase in enumerate(PHASES)
    ]
    meters.see(
        [
            ObservedSandbox("s", pod_uid="u", name="web", namespace="default"),
            ObservedSandbox("t", pod_uid="v", name="x", namespace="default", ready=False),
        ],
        containers,
    )
    meters.evictions.add("memory.available")
    meters.requested_resizes.add("cpu", "requests", "increase")
    meters.resize_took(0.07, success=True)
    meters.infeasible_resizes.add("insufficient_node_allocatable")
    meters.deferred_resizes_accepted.add("pod_updated")
    meters.probed("Liveness", "successful", "c", "web", "default", "u1")
    meters.probed("Liveness", "successful", "c", "web", "default", "u1")
    found = _read(meters.page())
    assert found["kubelet_node_name", (("node", "n1"),)] == 1
    assert found["kubelet_running_pods", ()] == 1
    assert found["kubelet_running_containers", (("container_state", "running"),)] == 2
    assert found["kubelet_running_containers", (("container_state", "created"),)] == 0
    assert found["kubelet_evictions_total", (("eviction_signal", "memory.available"),)] == 1
    assert (
        found[
            "kubelet_container_requested_resizes_total",
            (("operation", "increase"), ("requirement", "requests"), ("resource", "cpu")),
        ]
        == 1
    )
    assert found["kubelet_pod_resize_duration_milliseconds_bucket", (("le", "100"), ("success", "true"))] == 1
    assert found["kubelet_pod_infeasible_resizes_total", (("reason_detail", "insufficient_node_allocatable"),)] == 1
    assert found["kubelet_pod_deferred_accepted_resizes_total", (("retry_trigger", "pod_updated"),)] == 1
    assert found["process_resident_memory_bytes", ()] > MIB
    (probes,) = _read(meters.probes_page()).values()
    assert probes == 2
    meters.forget_pod("u1")
    assert not _read(meters.probes_page())
