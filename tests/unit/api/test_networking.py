"""Ingresses, their classes and network policies: what Kubernetes' suite asks of an API server about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.api.api_client import MERGE, TABLE, api

GROUP = "/apis/networking.k8s.io/v1"
INGRESSES, POLICIES = f"{GROUP}/namespaces/default/ingresses", f"{GROUP}/namespaces/default/networkpolicies"
CLASSES = f"{GROUP}/ingressclasses"
DEFAULT = {"ingressclass.kubernetes.io/is-default-class": "true"}


def ingress(name: str = "a", *hosts: str, **spec: Any) -> dict[str, Any]:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    paths = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
    rules = [{"host": host, "http": paths} for host in hosts] or [{"http": paths}]
    return {"metadata": {"name": name, "labels": {"set": "x"}}, "spec": {"rules": rules, **spec}}


async def test_the_life_of_an_ingress(tmp_path: Path) -> None:
    """e2e: Ingress API should support creating Ingress API operations."""
    async with api(tmp_path) as ask:
        groups = {each["name"]: each for each in (await ask.ok("GET", "/apis"))["groups"]}
        assert groups["networking.k8s.io"]["preferredVersion"]["groupVersion"] == "networking.k8s.io/v1"
        found = {each["name"] for each in (await ask.ok("GET", GROUP))["resources"]}
        assert {"ingresses", "ingresses/status", "ingressclasses", "networkpolicies"} <= found
        made = await ask.ok("POST", INGRESSES, ingress("a", "one.example.com"))
        assert (made["metadata"]["generation"], made["status"]) == (1, {"loadBalancer": {}})
        for name in ("b", "c"):
            await ask.ok("POST", INGRESSES, ingress(name))
        async with ask.watching(f"{INGRESSES}?watch=1&labelSelector=set%3Dx") as watched:
            patched = await ask.ok("PATCH", f"{INGRESSES}/a", {"metadata": {"annotations": {"p": "1"}}}, MERGE)
            assert [(await watched.event())["type"] for _ in range(4)] == ["ADDED", "ADDED", "ADDED", "MODIFIED"]
        patched["spec"]["rules"][0]["host"] = "two.example.com"
        assert (await ask.ok("PUT", f"{INGRESSES}/a", patched))["metadata"]["generation"] == 2
        status = {"metadata": {"annotations": {"s": "1"}}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
        reported = await ask.ok("PATCH", f"{INGRESSES}/a/status", status, MERGE)
        assert (reported["metadata"]["annotations"]["s"], reported["metadata"]["generation"]) == ("1", 2)
        wrong = {"status": {"loadBalancer": {"ingress": [{"ip": "x", "hostname": "1.2.3.4"}]}}}
        assert (await ask("PATCH", f"{INGRESSES}/a/status", wrong, MERGE)).code == 422
        table = await ask.ok("GET", f"{INGRESSES}/a", accept=TABLE)
        assert table["rows"][0]["cells"][:5] == ["a", "<none>", "two.example.com", "1.2.3.4", "80"]
        await ask.ok("DELETE", f"{INGRESSES}/a")
        await ask.ok("DELETE", f"{INGRESSES}?labelSelector=set%3Dx")
        assert (await ask.ok("GET", f"{GROUP}/ingresses"))["items"] == []


async def test_the_newest_default_class_is_taken(tmp_path: Path) -> None:
    """e2e: IngressClass should set default value on new IngressClass; should choose the newest one."""
    async with api(tmp_path) as ask:
        for name in ("older", "newer"):
            made = {"metadata": {"name": name, "annotations": DEFAULT}, "spec": {"controller": "example.com/c"}}
            await ask.ok("POST", CLASSES, made)
            ask.now_s += 2
        assert (await ask.ok("POST", INGRESSES, ingress("a")))["spec"]["ingressClassName"] == "newer"
        assert (await ask.ok("POST", INGRESSES, ingress("b", ingressClassName="own")))["spec"][
            "ingressClassName"
        ] == "own"
        annotated = ingress("c")
        annotated["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "old"}
        said = await ask("POST", INGRESSES, annotated)
        assert "ingressClassName" not in said.json["spec"]
        assert "is deprecated" in said.warnings[0]
        shown = await ask.ok("GET", f"{CLASSES}/newer", accept=TABLE)
        assert shown["rows"][0]["cells"][:3] == ["newer (default)", "example.com/c", "<none>"]


async def test_the_controller_of_a_class_stays(tmp_path: Path) -> None:
    spec = {"controller": "example.com/c", "parameters": {"apiGroup": "g.example.com", "kind": "K", "name": "n"}}
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", CLASSES, {"metadata": {"name": "a"}, "spec": spec})
        assert made["spec"]["parameters"]["scope"] == "Cluster"
        refused = await ask("PATCH", f"{CLASSES}/a", {"spec": {"controller": "example.com/d"}}, MERGE)
        assert (refused.code, refused.message.endswith("field is immutable")) == (422, True)
        shown = await ask.ok("GET", f"{CLASSES}/a", accept=TABLE)
        assert shown["rows"][0]["cells"][2] == "K.g.example.com/n"


async def test_the_life_of_a_network_policy(tmp_path: Path) -> None:
    """e2e: NetworkPolicy API should support creating NetworkPolicy API operations."""
    selector = {"matchLabels": {"app": "a"}}
    async with api(tmp_path) as ask:
        spec = {"podSelector": selector, "ingress": [{"ports": [{"port": 80}]}], "egress": [{}]}
        said = await ask("POST", POLICIES, {"metadata": {"name": "a"}, "spec": spec})
        made = said.json
        assert made["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert made["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 80}]
        assert "no effect unless a network plugin" in said.warnings[0]
        only = await ask.ok("POST", POLICIES, {"metadata": {"name": "b"}, "spec": {"podSelector": {}}})
        assert only["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
        shown = await ask.ok("GET", POLICIES, accept=TABLE)
        assert [row["cells"][:2] for row in shown["rows"]] == [["a", "app=a"], ["b", "<none>"]]
