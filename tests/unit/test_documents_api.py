"""Statements of the five documents about the API server, with their own manifests and values, through the whole server.

No sockets, except where the server itself asks a node: there the node's endpoint is a real one, on loopback over TLS.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.auth.ca import Authority
from plimsoll.api.nodeproxy.client import NodeCalls
from plimsoll.api.nodeproxy.metrics_api import NodeMetrics
from plimsoll.api.server.app import App, Options
from plimsoll.api.server.services import controllers
from plimsoll.codec.yaml.reader import YamlDocument, read
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.rules.config.parse import reading
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from plimsoll.rules.quantity import QUANTITIES
from tests.unit.api.api_client import ADMIN, MERGE, PODS, START_S, STRATEGIC, ApiClient, ApiReply, api, pod
from tests.unit.documents.examples import DOCUMENTS, manifest
from tests.unit.documents.waiting import until

CLASSES = {
    "000-example": "Burstable",
    "001-besteffort": "BestEffort",
    "002-besteffort": "BestEffort",
    "002-burstable-bar-empty": "Burstable",
    "002-guaranteed-equal": "Guaranteed",
    "002-guaranteed-limits-only": "Guaranteed",
    "002-qos-demo": "Burstable",
    "003-demo": "Guaranteed",
    "004-busybox": "Burstable",
}


# --- 002-15, 002-16: the class ---


@pytest.mark.parametrize("profile", ["documents", "1.36"])
@pytest.mark.parametrize(("name", "qos"), CLASSES.items(), ids=CLASSES.keys())
async def test_the_server_computes_the_class(tmp_path: Path, name: str, qos: str, profile: str) -> None:
    other = "BestEffort" if qos != "BestEffort" else "Guaranteed"
    async with api(tmp_path, profile) as ask:
        sent = {**manifest(f"{name}.yaml"), "status": {"qosClass": other}}
        made = await ask.ok("POST", PODS, sent)
        assert made["status"]["qosClass"] == qos
        path = f"{PODS}/{made['metadata']['name']}"
        shown = (await ask("GET", path, accept="application/yaml")).body
        (document,) = read(shown)
        assert isinstance(document, YamlDocument) and document.value["status"]["qosClass"] == qos
        said = await ask("PATCH", f"{path}/status", {"status": {"qosClass": other}}, MERGE)
        assert said.code == 422 and f'status.qosClass: Invalid value: "{other}": field is immutable' in said.message
        await ask.ok("PATCH", f"{path}/status", {"status": {"qosClass": None, "phase": "Running"}}, MERGE)
        assert (await ask.ok("GET", path))["status"]["qosClass"] == qos


# --- 001-28: a replacement ---


async def test_a_failed_pod_is_replaced_by_its_replica_set_only(tmp_path: Path) -> None:
    async with api(tmp_path, services=[controllers]) as ask:
        bare = manifest("002-qos-demo.yaml")
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": bare["spec"]}
        sets = "/apis/apps/v1/namespaces/default/replicasets"
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        await ask.ok("POST", sets, {"metadata": {"name": "web"}, "spec": spec})
        await ask.ok("POST", PODS, bare)

        async def owned() -> dict[str, Any]:
            items = (await ask.ok("GET", f"{PODS}?labelSelector=app%3Dweb"))["items"]
            return {each["metadata"]["name"]: each["status"]["phase"] for each in items}

        (first,) = await until(owned)
        evicted = {"status": {"phase": "Failed", "reason": "Evicted"}}
        for name in (first, "qos-demo"):
            await ask.ok("PATCH", f"{PODS}/{name}/status", evicted, MERGE)

        async def replaced() -> Any:
            return {name: phase for name, phase in (await owned()).items() if phase == "Pending"}

        (second,) = await until(replaced)
        assert second != first
        found = await ask.ok("GET", f"{PODS}/{second}")
        assert found["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
        assert found["status"]["qosClass"] == "Burstable"
        everything = {each["metadata"]["name"] for each in (await ask.ok("GET", PODS))["items"]}
        assert everything == {"qos-demo", first, second}, "a bare pod is not replaced"
        assert (await ask.ok("GET", f"{PODS}/qos-demo"))["status"]["phase"] == "Failed"


# --- 003-21, 003-24, 003-29, 003-60, 003-61, 003-63, 003-66, 003-70, 003-75: a resize, as far as the server goes ---


def patch(name: str) -> Any:
    return json.loads((DOCUMENTS / f"003-patch-{name}.json").read_text(encoding="utf-8"))


async def resized(ask: ApiClient, name: str, subresource: str) -> ApiReply:
    return await ask("PATCH", f"{PODS}/demo{subresource}", patch(name), STRATEGIC)


@pytest.mark.parametrize(
    ("profile", "allocated"),
    [("documents", {"cpu": "1", "memory": "200Mi"}), ("1.36", None)],
    ids=["documents", "1.36"],
)
async def test_what_is_allocated_at_create(tmp_path: Path, profile: str, allocated: Any) -> None:
    async with api(tmp_path, profile) as ask:
        status = (await ask.ok("POST", PODS, manifest("003-demo.yaml")))["status"]
        found = [each["allocatedResources"] for each in status.get("containerStatuses", ())]
        assert found == ([] if allocated is None else [allocated])


@pytest.mark.parametrize(
    ("name", "resources"),
    [
        ("cpu-2", {"cpu": "2", "memory": "200Mi"}),
        ("cpu-3", {"cpu": "3", "memory": "200Mi"}),
        ("memory-500mi", {"cpu": "1", "memory": "500Mi"}),
    ],
)
@pytest.mark.parametrize(("profile", "way"), [("documents", ""), ("documents", "/resize"), ("1.36", "/resize")])
async def test_patches_of_the_practice(tmp_path: Path, profile: str, way: str, name: str, resources: Any) -> None:
    async with api(tmp_path, profile) as ask:
        node = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}
        await ask.ok("POST", "/api/v1/nodes", node)
        await ask.ok("POST", PODS, manifest("003-demo.yaml"))
        binding = {"metadata": {"name": "demo"}, "target": {"kind": "Node", "name": "n1"}}
        await ask.ok("POST", f"{PODS}/demo/binding", binding)
        found = (await resized(ask, name, way)).json
        assert found["spec"]["containers"][0]["resources"] == {"limits": resources, "requests": resources}
        assert found["status"].get("resize") == ("Proposed" if profile == "documents" else None)
        assert (found["status"]["qosClass"], found["metadata"]["generation"]) == ("Guaranteed", 2)


@pytest.mark.parametrize(
    ("profile", "way", "message"),
    [
        ("documents", "", 'Pod "demo" is invalid: metadata: Invalid value: "Burstable": Pod QoS is immutable'),
        ("1.36", "/resize", 'Pod "demo" is invalid: spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing'),
    ],
    ids=["documents", "1.36"],
)  # fmt: skip
async def test_the_class_stays(tmp_path: Path, profile: str, way: str, message: str) -> None:
    async with api(tmp_path, profile) as ask:
        await ask.ok("POST", PODS, manifest("003-demo.yaml"))
        await resized(ask, "cpu-2", way)
        said = await resized(ask, "qos-change", way)
        assert (said.code, said.message) == (422, message)
        found = (await ask.ok("GET", f"{PODS}/demo"))["spec"]["containers"][0]["resources"]
        assert found["requests"] == found["limits"] == {"cpu": "2", "memory": "200Mi"}


@pytest.mark.parametrize(("flag", "code"), [("true", 200), ("false", 422)])
async def test_the_gate_of_the_server(tmp_path: Path, flag: str, code: int) -> None:
    """The flag is the document's; it is read as `plimsoll api --feature-gates` reads it."""
    (container,) = manifest("003-kube-apiserver.yaml")["spec"]["containers"]
    (word,) = [each for each in container["command"] if each.startswith("--feature-gates=")]
    assert word == "--feature-gates=InPlacePodVerticalScaling=true"
    text = word.partition("=")[2].replace("true", flag)
    gates = reading(None, PROFILE_DOCUMENTS, {"featureGates": text}).config.feature_gates
    async with api(tmp_path, "documents", gates=gates) as ask:
        await ask.ok("POST", PODS, manifest("003-demo.yaml"))
        said = await resized(ask, "cpu-2", "")
        assert said.code == code
        if code == 422:
            assert "pod updates may not change fields other than" in said.message


async def test_a_server_without_the_gate_shows_no_allocated_resources(tmp_path: Path) -> None:
    """03 §4.3: fields of the feature are dropped at every write; a pod stored with a policy keeps them."""
    words = (f"InPlacePodVerticalScaling={each}" for each in ("true", "false"))
    on, off = (reading(None, PROFILE_DOCUMENTS, {"featureGates": word}).config.feature_gates for word in words)
    resources = {"cpu": "1", "memory": "200Mi"}
    entry = {"name": "demo", "allocatedResources": resources, "resources": {"requests": resources}}
    status = {"status": {"resize": "InProgress", "containerStatuses": [entry]}}
    async with api(tmp_path, "documents", gates=on) as ask:
        before = await ask.ok("POST", PODS, manifest("003-demo.yaml"))
        assert before["status"]["containerStatuses"][0]["allocatedResources"] == resources
    async with api(tmp_path, "documents", gates=off) as ask:
        kept = (await ask.ok("PATCH", f"{PODS}/demo/status", status, MERGE))["status"]
        assert (kept["resize"], kept["containerStatuses"][0]["allocatedResources"]) == ("InProgress", resources)
        document = manifest("003-demo.yaml")
        made = await ask.ok("POST", PODS, {**document, "metadata": {"name": "plain"}})
        assert "resizePolicy" not in made["spec"]["containers"][0]
        assert "containerStatuses" not in made["status"]
        written = (await ask.ok("PATCH", f"{PODS}/plain/status", status, MERGE))["status"]
        assert not {"allocatedResources", "resources"} & written["containerStatuses"][0].keys()
        assert "resize" not in written


@pytest.mark.parametrize(
    ("profile", "way", "by_limit_range"),
    [("documents", "", 200), ("documents", "/resize", 200), ("1.36", "/resize", 403)],
)
async def test_limit_range_and_quota_on_a_resize(tmp_path: Path, profile: str, way: str, by_limit_range: int) -> None:
    namespace = "/api/v1/namespaces/default"
    async with api(tmp_path, profile) as ask:
        await ask.ok("POST", PODS, manifest("003-demo.yaml"))
        limits = [{"type": "Container", "max": {"cpu": "1"}}]
        await ask.ok("POST", f"{namespace}/limitranges", {"metadata": {"name": "lr"}, "spec": {"limits": limits}})
        assert (await resized(ask, "cpu-2", way)).code == by_limit_range
        assert (await ask("DELETE", f"{namespace}/limitranges/lr")).code == 200
        used = (await ask.ok("GET", f"{PODS}/demo"))["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        quota = {"metadata": {"name": "rq"}, "spec": {"hard": {"cpu": "2500m"}}}
        await ask.ok("POST", f"{namespace}/resourcequotas", quota)
        status = {"status": {"hard": {"cpu": "2500m"}, "used": {"cpu": used}}}
        await ask.ok("PATCH", f"{namespace}/resourcequotas/rq/status", status, MERGE)
        said = await resized(ask, "cpu-3", way)
        assert said.code == 403
        assert said.message == (
            f'pods "demo" is forbidden: exceeded quota: rq, requested: cpu={3 - int(used)}, used: cpu={used}, '
            "limited: cpu=2500m"
        )


async def test_1_36_rejects_more_than_the_node_has(tmp_path: Path) -> None:
    """T=11 of the timeline, on document 004's node."""
    async with api(tmp_path, "1.36") as ask:
        node = manifest("004-node.yaml")
        node["status"]["allocatable"] = {"cpu": "46", "memory": "258486256Ki", "pods": "256"}
        await ask.ok("POST", "/api/v1/nodes", node)
        sent = manifest("003-timeline.yaml")
        sent["spec"]["nodeName"] = "node-48"
        name = (await ask.ok("POST", PODS, sent))["metadata"]["name"]
        said = await ask("PATCH", f"{PODS}/{name}/resize", patch("timeline-4"), STRATEGIC)
        assert said.code == 403
        assert "cpu, requested: 100000, allocatable: 46000" in said.message
        assert (await ask("PATCH", f"{PODS}/{name}/resize", patch("timeline-3"), STRATEGIC)).code == 200


# --- 004-16: a node without allocatable ---


async def test_a_node_without_allocatable_gets_its_capacity(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        sent = manifest("004-node.yaml")
        found = (await ask.ok("POST", "/api/v1/nodes", sent))["status"]
        assert found["allocatable"] == found["capacity"] == sent["status"]["capacity"]
        sent["metadata"]["name"], sent["status"]["allocatable"] = "other", {"cpu": "46"}
        found = (await ask.ok("POST", "/api/v1/nodes", sent))["status"]
        assert found["allocatable"] == {"cpu": "46"}


# --- 004-76, 004-77: the metrics API ---


@asynccontextmanager
async def node_endpoint(authority: Authority, name: str, page: Callable[[], str]) -> AsyncIterator[int]:
    """A node's own endpoint as far as metrics go; only the API server is let in. Yields the port."""
    identity = authority.issue_node(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(authority.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    chain = authority.ca_file.with_name("node.pem")
    chain.write_bytes(identity.certificate + b"\n" + identity.key)
    context.load_cert_chain(chain)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            assert head.startswith(b"GET /metrics/resource HTTP/1.1\r\n"), head
            body = page().encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
            await writer.drain()

    async def until_hung_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(until_hung_up, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_pod_metrics_contain_only_usage(tmp_path: Path) -> None:
    authority = Authority(private_directory(tmp_path / "state"))
    authority.prepare(["127.0.0.1"])
    calls = NodeCalls(authority)
    metrics = NodeMetrics(calls)
    client: ApiClient

    def page() -> str:
        labels, stamp = '{container="netperf",namespace="default",pod="smoke-pod-01"}', int(client.now_s * 1000)
        return (
            f"container_cpu_usage_seconds_total{labels} 7.5 {stamp}\n"
            f"container_memory_working_set_bytes{labels} {1808 << 10} {stamp}\n"
        )

    options = Options(
        tmp_path / "state",
        lambda scope, headers: ADMIN,
        profile=profile_named("documents"),
        clock=lambda: client.now_s,
        handlers=dict(metrics.handlers()),
    )
    app = App(options)
    client = ApiClient(app)
    async with app.running(), node_endpoint(authority, "n1", page) as port:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await client.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
        sent = pod("smoke-pod-01", {"cpu": "250m", "memory": "64Mi"}, {"cpu": "500m", "memory": "64Mi"}, nodeName="n1")
        sent["spec"]["containers"][0]["name"] = "netperf"
        await client.ok("POST", PODS, sent)
        path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/smoke-pod-01"
        assert (await client("GET", path)).code == 404, "one reading of a counter is no use yet"
        client.now_s = START_S + 15
        found = await client.ok("GET", path)
        await calls.close()
    (container,) = found.pop("containers")
    assert found == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "smoke-pod-01", "namespace": "default", "creationTimestamp": "2026-11-16T00:00:00Z"},
        "timestamp": "2026-11-16T00:00:15Z",
        "window": "15.000s",
    }
    assert container.keys() == {"name", "usage"} and container["usage"].keys() == {"cpu", "memory"}
    assert container["usage"]["memory"] == "1808Ki"
    assert QUANTITIES[container["usage"]["cpu"]] == QUANTITIES["0"]
