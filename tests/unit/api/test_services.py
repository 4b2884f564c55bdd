"""Services: addresses, ports, types, and the endpoints behind them."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.server.services import controllers
from plimsoll.rules.admission.service_addresses import ServiceRanges
from tests.unit.api.api_client import APPLY, MERGE, PODS, ApiClient, api, pod

SERVICES = "/api/v1/namespaces/default/services"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def service(name: str = "web", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec}}


async def test_a_service_gets_an_address_and_defaults(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", SERVICES, service())
        spec = made["spec"]
        assert ipaddress.ip_address(spec["clusterIP"]) in ipaddress.ip_network("10.96.0.0/12")
        assert spec == {
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}],
            "selector": {"app": "web"},
            "clusterIP": spec["clusterIP"],
            "clusterIPs": [spec["clusterIP"]],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        }
        assert made["status"] == {"loadBalancer": {}}


async def test_addresses_are_never_shared_and_free_after_a_deletion(tmp_path: Path) -> None:
    """A range of 14 addresses, two writers at a time, and a restart in between."""
    ranges = ServiceRanges("10.0.0.0/28")
    async with api(tmp_path, service_ranges=ranges) as ask:
        made = await asyncio.gather(*(ask.ok("POST", SERVICES, service(f"s{index}")) for index in range(12)))
        assert len({each["spec"]["clusterIP"] for each in made}) == 12
    async with api(tmp_path, service_ranges=ranges) as ask:
        taken = made[0]["spec"]["clusterIP"]
        said = await ask("POST", SERVICES, service("same", clusterIP=taken))
        assert said.code == 422
        assert said.message == (
            f'Service "same" is invalid: spec.clusterIPs: Invalid value: []string{{"{taken}"}}: failed to allocate IP '
            f"{taken}: provided IP is already allocated"
        )
        for index in range(2):
            await ask.ok("POST", SERVICES, service(f"last{index}"))
        said = await ask("POST", SERVICES, service("full"))
        assert said.code == 422 and "range is full" in said.message
        await ask.ok("DELETE", f"{SERVICES}/s0")
        again = await ask.ok("POST", SERVICES, service("same", clusterIP=taken))
        assert again["spec"]["clusterIPs"] == [taken]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"ports": []}, "spec.ports: Required value"),
        (
            {"clusterIP": "1.2.3.4"},
            "failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is not in the valid range",
        ),
        ({"clusterIP": "nine"}, 'spec.clusterIPs[0]: Invalid value: "nine": must be a valid IP address'),
        ({"type": "Foo"}, 'spec.type: Unsupported value: "Foo": supported values: "ClusterIP", "ExternalName"'),
        ({"type": "ExternalName"}, "spec.externalName: Required value"),
        ({"ports": [{"port": 80}, {"port": 81}]}, "spec.ports[0].name: Required value"),
        ({"ports": [{"port": 0}]}, "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
        ({"ports": [{"port": 1, "nodePort": 30001}]}, "may not be used when `type` is 'ClusterIP'"),
        ({"type": "NodePort", "ports": [{"port": 1, "nodePort": 80}]}, "The range of valid ports is 30000-32767"),
        ({"ipFamilyPolicy": "RequireDualStack"}, "this cluster is not configured for dual-stack services"),
        ({"ipFamilies": ["IPv6"]}, 'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'),
        ({"type": "NodePort", "clusterIP": "None"}, "may not be set to 'None' for NodePort services"),
    ],
)
async def test_an_invalid_service_is_refused(tmp_path: Path, spec: dict[str, Any], message: str) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", SERVICES, service(**spec))
        assert said.code == 422
        assert message in said.message


async def test_types_may_change_and_keep_the_address(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", SERVICES, service())
        said = await ask("PATCH", f"{SERVICES}/web", {"spec": {"type": "NodePort"}}, MERGE)
        ported = said.json
        assert ported["spec"]["clusterIP"] == made["spec"]["clusterIP"]
        number = ported["spec"]["ports"][0]["nodePort"]
        assert 30000 <= number <= 32767
        other = service("other", type="NodePort", ports=[{"port": 1, "nodePort": number}])
        assert "provided port is already allocated" in (await ask("POST", SERVICES, other)).message
        # A PUT without the allocated values keeps them.
        kept = await ask.ok("PUT", f"{SERVICES}/web", service(type="NodePort"))
        assert (kept["spec"]["clusterIP"], kept["spec"]["ports"][0]["nodePort"]) == (made["spec"]["clusterIP"], number)
        back = await ask.ok("PATCH", f"{SERVICES}/web", {"spec": {"type": "ClusterIP"}}, MERGE)
        assert "nodePort" not in back["spec"]["ports"][0]
        named = {"spec": {"type": "ExternalName", "externalName": "example.org"}}
        external = await ask.ok("PATCH", f"{SERVICES}/web", named, MERGE)
        assert "clusterIP" not in external["spec"] and "ipFamilies" not in external["spec"]
        again = await ask.ok("PATCH", f"{SERVICES}/web", {"spec": {"type": "ClusterIP", "externalName": None}}, MERGE)
        assert again["spec"]["clusterIP"]
        change = {"spec": {"clusterIP": "10.96.1.1", "clusterIPs": ["10.96.1.1"]}}
        assert "may not change once set" in (await ask("PATCH", f"{SERVICES}/web", change, MERGE)).message


async def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", SERVICES, service(type="NodePort"))
        assert any("NodePort: no effect on nodes" in each for each in said.warnings)
        said = await ask("POST", SERVICES, service("lb", type="LoadBalancer"))
        assert any("no load balancer is provided here" in each for each in said.warnings)
        assert said.json["spec"]["allocateLoadBalancerNodePorts"] is True
        assert not (await ask("POST", SERVICES, service("plain"))).warnings


async def test_a_port_s_key_in_managed_fields(tmp_path: Path) -> None:
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}}
    async with api(tmp_path) as ask:
        applied = {**body, "spec": {"ports": [{"port": 8080, "protocol": "UDP"}]}}
        await ask.ok("PATCH", f"{SERVICES}/x?fieldManager=one", applied, APPLY)
        found = await ask.ok("PATCH", f"{SERVICES}/x?fieldManager=two", applied, APPLY)
        keys = {".": {}, "f:port": {}, "f:protocol": {}}
        expected = {"f:spec": {"f:ports": {'k:{"port":8080,"protocol":"UDP"}': keys}}}
        assert [each["fieldsV1"] for each in found["metadata"]["managedFields"]] == [expected, expected]


# --- endpoints ---


async def _until(ask: ApiClient, path: str, holds: Callable[[Any], bool]) -> Any:
    """Wait by watching; the state that holds."""
    collection, _, name = path.rpartition("/")
    async with ask.watching(f"{collection}?watch=1&fieldSelector=metadata.name={name}") as watched:
        while True:
            event = await watched.event()
            if event["type"] != "DELETED" and holds(event["object"]):
                return event["object"]


async def _running(ask: ApiClient, name: str, ip: str, *, ready: bool = True, **spec: Any) -> None:
    sent = pod(name, **spec)
    sent["metadata"]["labels"] = {"app": "web"}
    sent["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8080}]
    await ask.ok("POST", PODS, sent)
    await _report(ask, name, ip, ready=ready)


async def _report(ask: ApiClient, name: str, ip: str, *, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions}
    await ask.ok("PATCH", f"{PODS}/{name}/status", {"status": status}, MERGE)


async def test_endpoints_follow_the_pods(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        await _running(ask, "a", "10.1.0.1")
        await _running(ask, "b", "10.1.0.2", ready=False)
        await ask.ok("POST", SERVICES, service(ports=[{"name": "w", "port": 80, "targetPort": "http"}]))
        found = await _until(ask, f"{ENDPOINTS}/web", lambda each: bool(each.get("subsets")))
        (subset,) = found["subsets"]
        assert [each["ip"] for each in subset["addresses"]] == ["10.1.0.1"]
        assert [each["ip"] for each in subset["notReadyAddresses"]] == ["10.1.0.2"]
        assert subset["ports"] == [{"name": "w", "port": 8080, "protocol": "TCP"}]
        assert subset["addresses"][0]["targetRef"]["name"] == "a"
        (made,) = [
            each
            for each in (await ask.ok("GET", SLICES))["items"]
            if each["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
        ]
        assert made["addressType"] == "IPv4"
        assert made["ports"] == [{"name": "w", "protocol": "TCP", "port": 8080}]
        by_address = {each["addresses"][0]: each["conditions"] for each in made["endpoints"]}
        assert by_address == {
            "10.1.0.1": {"ready": True, "serving": True, "terminating": False},
            "10.1.0.2": {"ready": False, "serving": False, "terminating": False},
        }
        await _report(ask, "b", "10.1.0.2", ready=True)
        await _until(ask, f"{ENDPOINTS}/web", lambda each: len(each["subsets"][0]["addresses"]) == 2)
        await ask.ok("PATCH", f"{SERVICES}/web", {"spec": {"publishNotReadyAddresses": True}}, MERGE)
        await _report(ask, "a", "10.1.0.1", ready=False)
        slice_path = f"{SLICES}/{made['metadata']['name']}"
        shown = await _until(
            ask,
            slice_path,
            lambda each: [one["conditions"]["serving"] for one in each["endpoints"]].count(False) == 1,
        )
        assert all(one["conditions"]["ready"] for one in shown["endpoints"])
        await ask.ok("DELETE", f"{PODS}/a")
        await _until(ask, slice_path, lambda each: len(each["endpoints"]) == 1)


async def test_the_endpoints_of_a_deleted_service_are_deleted(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        await ask.ok("POST", SERVICES, service())
        await _until(ask, f"{ENDPOINTS}/web", lambda each: True)
        async with ask.watching(f"{ENDPOINTS}?watch=1&fieldSelector=metadata.name=web") as watched:
            await watched.event()
            await ask.ok("DELETE", f"{SERVICES}/web")
            assert (await watched.event())["type"] == "DELETED"


async def test_the_service_kubernetes_has_the_server_s_address(tmp_path: Path) -> None:
    async with api(tmp_path, services=(controllers,)) as ask:
        found = await ask.ok("GET", f"{SERVICES}/kubernetes")
        assert found["spec"]["clusterIP"] == "10.96.0.1"
        assert found["spec"]["ports"] == [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]
        endpoints = await ask.ok("GET", f"{ENDPOINTS}/kubernetes")
        assert endpoints["subsets"] == [
            {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}
        ]
        shown = await ask.ok("GET", f"{SLICES}/kubernetes")
        assert shown["endpoints"] == [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]
        uid = found["metadata"]["uid"]
        await ask.ok("DELETE", f"{SERVICES}/kubernetes")
        again = await _until(ask, f"{SERVICES}/kubernetes", lambda each: each["metadata"]["uid"] != uid)
        assert again["spec"]["clusterIP"] == "10.96.0.1"


# --- quotas ---


async def _used(ask: ApiClient, name: str, holds: Callable[[Any], bool]) -> Any:
    path = f"/api/v1/namespaces/default/resourcequotas/{name}"
    return (await _until(ask, path, lambda each: holds((each.get("status") or {}).get("used") or {})))["status"]["used"]


async def test_quotas_count_services_node_ports_and_load_balancers(tmp_path: Path) -> None:
    hard = {"services": "3", "services.nodeports": "2", "services.loadbalancers": "1", "count/services": "9"}
    async with api(tmp_path, services=(controllers,)) as ask:
        await ask.ok("GET", f"{SERVICES}/kubernetes")  # counts, too
        await ask.ok(
            "POST", "/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}
        )
        await _used(ask, "q", lambda used: used.get("services") == "1" and used.get("services.nodeports") == "0")
        await ask.ok("POST", SERVICES, service("port", type="NodePort"))
        used = (await ask.ok("GET", "/api/v1/namespaces/default/resourcequotas/q"))["status"]["used"]
        assert (used["services"], used["services.nodeports"]) == ("2", "1")
        two = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
        said = await ask("POST", SERVICES, service("more", type="NodePort", ports=two))
        assert said.code == 403
        assert (
            "requested: services.nodeports=2, used: services.nodeports=1, limited: services.nodeports=2" in said.message
        )
        await ask.ok("POST", SERVICES, service("plain"))
        change = {"spec": {"type": "LoadBalancer", "ports": two}}
        said = await ask("PATCH", f"{SERVICES}/plain", change, MERGE)
        assert said.code == 403 and "services.nodeports=2" in said.message
        await ask.ok("PATCH", f"{SERVICES}/plain", {"spec": {"type": "LoadBalancer"}}, MERGE)
        await ask.ok("DELETE", f"{SERVICES}/plain")
        await _used(ask, "q", lambda used: used["services.loadbalancers"] == "0" and used["services.nodeports"] == "1")


async def test_a_quota_for_affinity_across_namespaces(tmp_path: Path) -> None:
    selector = {"matchExpressions": [{"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}]}
    term = {"labelSelector": {}, "topologyKey": "region", "namespaces": ["other"]}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    async with api(tmp_path, services=(controllers,)) as ask:
        sent = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}, "scopeSelector": selector}}
        await ask.ok("POST", "/api/v1/namespaces/default/resourcequotas", sent)
        await _used(ask, "q", lambda used: used.get("pods") == "0")
        await ask.ok("POST", PODS, pod("plain"))
        await ask.ok("POST", PODS, pod("first", affinity=anti))
        said = await ask("POST", PODS, pod("second", affinity=anti))
        assert said.code == 403 and "exceeded quota: q, requested: pods=1, used: pods=1" in said.message
