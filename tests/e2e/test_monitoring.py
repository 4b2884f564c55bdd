"""deploy/monitoring against a running node: a real Prometheus scrapes it, every rule evaluates, every panel shows something.

The node of this machine has cgroup v1, which has neither memory.high nor pressure of cgroups. A second target serves
the page of a played node with the files of v2, so that every query has something to find.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.kube.kubeconfig import load
from plimsoll.node.stats.line_metrics import LineMetrics
from plimsoll.node.stats.prometheus import cadvisor_page
from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import pod, shell
from tests.e2e.real_node import NODE, RealNode, kubectl_for, real_node, running
from tests.e2e.waiting import until
from tests.prometheus import MONITORING, Prometheus, program, prometheus, promtool
from tests.unit.node.played_node import MIB, POD, PODS, PlayedNode

pytestmark = pytest.mark.xdist_group("monitoring")  # one node and one Prometheus for all
PSI = "some avg10=1.00 avg60=1.00 avg300=1.00 total={0}\nfull avg10=1.00 avg60=1.00 avg300=1.00 total={0}\n"
# Recording rules as the dashboards of the Kubernetes mixin need them: usage joined with pods, nodes and owners.
MIXIN = {
    "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate": """
        sum by (namespace, pod, container) (irate(container_cpu_usage_seconds_total{job="cadvisor", image!=""}[1m]))
        * on (namespace, pod) group_left (node) topk by (namespace, pod) (1, max by (namespace, pod, node) (kube_pod_info{node!=""}))""",
    "node_namespace_pod_container:container_memory_working_set_bytes": """
        container_memory_working_set_bytes{job="cadvisor", image!=""}
        * on (namespace, pod) group_left () topk by (namespace, pod) (1, max by (namespace, pod) (kube_pod_info{node!=""}))""",
    "namespace_memory:kube_pod_container_resource_requests:sum": """
        sum by (namespace) (sum by (namespace, pod) (max by (namespace, pod, container) (
          kube_pod_container_resource_requests{resource="memory", job="kube-state-metrics"}
        ) * on (namespace, pod) group_left () max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)))""",
    "namespace_cpu:kube_pod_container_resource_limits:sum": """
        sum by (namespace) (kube_pod_container_resource_limits{resource="cpu", job="kube-state-metrics"})""",
    "namespace_workload_pod:kube_pod_owner:relabel": """
        max by (namespace, workload, pod) (label_replace(
          label_replace(kube_pod_owner{owner_kind="ReplicaSet"}, "replicaset", "$1", "owner_name", "(.*)")
          * on (replicaset, namespace) group_left (owner_name) topk by (replicaset, namespace) (1,
            max by (replicaset, namespace, owner_name) (kube_replicaset_owner)),
          "workload", "$1", "owner_name", "(.*)"))""",
    "cluster:node_memory:ratio": """
        1 - sum by (node) (kube_node_status_allocatable{resource="memory"}) / sum by (node) (kube_node_status_capacity{resource="memory"})""",
}
BURSTABLE = "/kubepods/burstable"
BUSY = "while :; do :; done"
IDLE = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"


class Played:
    """A node with the files of cgroup v2, served as its agent would."""

    def __init__(self, directory: Path) -> None:
        self.node, self.lines, self.count = PlayedNode(directory), LineMetrics(), 0
        self.node.cgroups.use(BURSTABLE, cpu_us=1, memory_bytes=20 * MIB)
        for path, lowest in ((PODS, 16), (BURSTABLE, 16), (POD, 16), (f"{POD}/c1", 32)):
            self.node.cgroups.put(path, memory_min=str(lowest * MIB), memory_low="0", memory_high="max")
        self.node.cgroups.put(f"{POD}/c1", memory_high=str(48 * MIB))

    def page(self) -> str:
        """Each scrape finds a larger container, and more time waited."""
        self.count += 1
        self.node.now_s = time.time()
        used = (10 + self.count % 30) * MIB
        self.node.cgroups.use(f"{POD}/c1", cpu_us=self.count * 1000, memory_bytes=used, limit=str(64 * MIB))
        for path in (PODS, POD, f"{POD}/c1"):
            for resource in ("cpu", "memory", "io"):
                self.node.cgroups.put(path, **{f"{resource}_pressure": PSI.format(self.count * 300_000)})
        stats = self.node.stats
        snapshot = stats.sample()
        distances = [("memory.available", "hard", (500 - self.count) * MIB, 100 * MIB)]
        kills = {("app", "default", "web"): self.count // 10}
        read = stats.scraped(snapshot)
        lines = self.lines.page(snapshot, read, stats.class_paths(snapshot), distances)
        return "".join((*cadvisor_page(snapshot, read, kills), *lines))


class PageHandler(BaseHTTPRequestHandler):
    played: Played

    def do_GET(self) -> None:
        body = self.played.page().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    program("prometheus")
    with real_node(tmp_path_factory.mktemp("monitored") / "cluster") as made:
        yield made


@pytest.fixture(scope="module")
def cluster(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with kubectl_for(node, tmp_path_factory.mktemp("kubectl")) as kube:
        kube("apply", "-f", str(MONITORING / "rbac.yaml"))
        limits = {"limits": {"cpu": "100m", "memory": "64Mi"}, "requests": {"cpu": "50m", "memory": "32Mi"}}
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [shell("c", IDLE, resources=limits)]},
        }
        selector = {"matchLabels": {"app": "web"}}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"replicas": 1, "selector": selector, "template": template},
        }
        kube("create", "-f", "-", stdin=json.dumps(deployment))
        kube("create", "-f", "-", stdin=pod("busy", shell("c", BUSY, resources=limits)))
        running(kube, "busy")
        yield kube
        kube("delete", "deployment", "web")


@pytest.fixture(scope="module")
def metrics(
    node: RealNode,
    cluster: Kubectl,
    tmp_path_factory: pytest.TempPathFactory,
    exercised: Callable[[str, str], None],
) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("prometheus")
    access = load(node.kubeconfig)
    (directory / "token").write_text(cluster("create", "token", "prometheus", "-n", "monitoring").out.strip())
    (directory / "ca.crt").write_bytes(access.ca or b"")
    (directory / "rules.yml").write_text((MONITORING / "rules.yml").read_text())
    recorded = [{"record": name, "expr": " ".join(expr.split())} for name, expr in MIXIN.items()]
    (directory / "mixin.yml").write_text(json.dumps({"groups": [{"name": "mixin", "rules": recorded}]}))
    served = HTTPServer(("127.0.0.1", 0), type("Handler", (PageHandler,), {"played": Played(directory / "played")}))
    threading.Thread(target=served.serve_forever, daemon=True).start()
    text = (MONITORING / "prometheus.yml").read_text()
    text = text.replace("127.0.0.1:6443", access.server.removeprefix("https://"))
    text = text.replace("/etc/prometheus/plimsoll/", f"{directory}/")
    config: dict[str, Any] = yaml.safe_load(text)
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"].append("mixin.yml")
    played = [{"targets": [f"127.0.0.1:{served.server_port}"], "labels": {"node": NODE, "job": "cadvisor"}}]
    config["scrape_configs"].append({"job_name": "played", "static_configs": played, "honor_labels": True})
    try:
        with prometheus(directory, json.dumps(config)) as made:
            until(lambda: len(healthy(made)) == 5, lambda: f"{made.targets()}\n{made.log()}")
            until(lambda: bool(made.query("count_over_time(up[1m]) > 5")))
            exercised("monitoring", "Prometheus, promtool")
            yield made
    finally:
        served.shutdown()
        served.server_close()


def healthy(made: Prometheus) -> list[str]:
    targets = made.targets()
    return [target["labels"]["job"] for target in targets if target["health"] == "up"]


def test_every_target_is_scraped_with_the_rights_of_the_role(metrics: Prometheus) -> None:
    targets = metrics.targets()
    assert all(target["health"] == "up" for target in targets), [target["lastError"] for target in targets]
    jobs = {target["labels"]["job"] for target in targets}
    assert jobs == {"kubelet", "cadvisor", "kube-state-metrics", "kube-apiserver"}
    assert {target["labels"].get("node") for target in targets if target["labels"]["job"] == "kubelet"} == {NODE}


def test_every_rule_evaluates(metrics: Prometheus) -> None:
    until(lambda: all(rule["health"] == "ok" for rule in metrics.rules()))
    assert len(metrics.rules()) == 9 + len(MIXIN)


@pytest.mark.parametrize("record", [*MIXIN, "plimsoll:container_line_usage:ratio", "plimsoll:node_cpu_usage:ratio"])
def test_recording_rules_have_series(metrics: Prometheus, record: str) -> None:
    until(lambda: bool(metrics.query(record)))


def panels() -> dict[str, list[str]]:
    document = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in document["panels"]}


@pytest.mark.parametrize("title", panels())
def test_every_panel_shows_something(metrics: Prometheus, title: str) -> None:
    for expression in panels()[title]:
        query = re.sub(r"\$(?:node|namespace|pod)\b", ".*", expression)
        query = re.sub(r"\$__(?:rate_interval|range)", "30s", query)
        until(lambda query=query: bool(metrics.query(query)))


def test_the_metrics_agree_with_the_kernel(metrics: Prometheus, node: RealNode, cluster: Kubectl) -> None:
    (limit,) = metrics.query('plimsoll_line_bytes{level="container",pod="busy",line="max",kind="declared"}')
    assert int(limit["value"][1]) == 64 * MIB
    (usage,) = metrics.query('container_memory_usage_bytes{pod="busy",container="c"}')
    path, at_s = usage["metric"]["id"], float(usage["value"][0])
    mount = this_host().v1["memory"].mount_point
    assert int(Path(f"{mount}{path}/memory.limit_in_bytes").read_text()) == 64 * MIB
    now = int(Path(f"{mount}{path}/memory.usage_in_bytes").read_text())
    assert abs(now - int(usage["value"][1])) < 16 * MIB and at_s > 0
    (quota,) = metrics.query('container_spec_cpu_quota{pod="busy",container="c"}')
    assert int(quota["value"][1]) == int(
        Path(f"{this_host().v1['cpu'].mount_point}{path}/cpu.cfs_quota_us").read_text()
    )


# Names of the kubelet, cAdvisor and kube-apiserver that promtool would name otherwise.
INHERITED = {
    *("kubelet_evictions", "kubelet_preemptions", "container_memory_failcnt"),
    *("kubelet_pod_resize_duration_milliseconds", "container_spec_cpu_period", "container_memory_failures_total"),
}


@pytest.mark.parametrize(
    "path", ["metrics", "metrics/cadvisor", "metrics/resource", "metrics/probes", "/metrics", "/metrics/objects"]
)
def test_pages_pass_both_parsers(cluster: Kubectl, path: str) -> None:
    raw = path if path.startswith("/") else f"/api/v1/nodes/{NODE}/proxy/{path}"
    text = cluster("get", "--raw", raw).out
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(names) == len(set(names)) > 0
    checked = promtool("check", "metrics", stdin=text)
    complaints = [line for line in checked.stderr.splitlines() if line.split(" ")[0] not in INHERITED]
    assert not complaints, complaints


def test_targets_need_the_right(node: RealNode) -> None:
    """Without a token the pages of the API server are closed."""
    access = load(node.kubeconfig)
    context = ssl.create_default_context(cadata=(access.ca or b"").decode())
    for path in ("/metrics/objects", "/metrics/targets"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(access.server + path, context=context, timeout=30)
        assert refused.value.code in (401, 403)
