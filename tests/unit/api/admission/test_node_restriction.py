"""A node against the API server: what it reads and writes, with Kubernetes' sentences (05 B6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.machinery.users import AUTHENTICATED, NODES, User
from tests.unit.api.api_client import ADMIN, MERGE, PODS, ApiClient, api, pod

N1 = User("system:node:n1", frozenset({NODES, AUTHENTICATED}))
N2 = User("system:node:n2", frozenset({NODES, AUTHENTICATED}))
MAPS = "/api/v1/namespaces/default/configmaps"
NODE = "/api/v1/nodes/n1"
MIRROR = "kubernetes.io/config.mirror"
REASON = "no relationship found between node 'n1' and this object"


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[ApiClient]:
    """Two nodes. `mine` is bound to n1 and refers to four ConfigMaps; `other` is bound to n2."""
    async with api(tmp_path, "1.36") as client:
        for user in (N1, N2):
            client.user = user
            await client.ok("POST", "/api/v1/nodes", {"metadata": {"name": user.node}})
        client.user = ADMIN
        for name in ("env", "all", "volume", "projected", "private", "others"):
            await client.ok("POST", MAPS, {"metadata": {"name": name}})
        await client.ok("POST", PODS, _referring("mine", "n1"))
        volume = {"name": "v", "configMap": {"name": "others"}}
        await client.ok("POST", PODS, pod("other", nodeName="n2", volumes=[volume]))
        yield client


def _referring(name: str, node: str) -> dict[str, Any]:
    document = pod(name, nodeName=node)
    document["spec"]["containers"][0] |= {
        "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "a", "optional": True}}}],
        "envFrom": [{"configMapRef": {"name": "all"}}],
    }
    document["spec"]["volumes"] = [
        {"name": "v", "configMap": {"name": "volume"}},
        {"name": "p", "projected": {"sources": [{"configMap": {"name": "projected"}}]}},
    ]
    return document


async def _refusal(client: ApiClient, *args: Any, **options: Any) -> str:
    answer = await client(*args, **options)
    assert answer.code == 403, answer.body
    return answer.message


# --- reads ---


@pytest.mark.parametrize("name", ["env", "all", "volume", "projected"])
async def test_a_node_reads_what_its_pods_refer_to(ask: ApiClient, name: str) -> None:
    ask.user = N1
    await ask.ok("GET", f"{MAPS}/{name}")
    assert (await ask.ok("GET", f"{MAPS}?fieldSelector=metadata.name%3D{name}"))["items"]
    async with ask.watching(f"{MAPS}?watch=1&fieldSelector=metadata.name%3D{name}") as watched:
        assert (await watched.event())["object"]["metadata"]["name"] == name
    ask.user = N2
    assert (await ask("GET", f"{MAPS}/{name}")).code == 403


async def test_a_node_reads_no_other_config_map(ask: ApiClient) -> None:
    ask.user = N1
    where = 'User "system:node:n1" cannot {} resource "configmaps" in API group "" '
    for name in ("private", "others", "missing"):
        said = await _refusal(ask, "GET", f"{MAPS}/{name}")
        sentence = where.format("get") + f'in the namespace "default": {REASON}'
        assert said == f'configmaps "{name}" is forbidden: {sentence}'
    said = await _refusal(ask, "GET", MAPS)
    assert said.endswith(": No Object name found")
    said = await _refusal(ask, "GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Denv")
    assert said.endswith(": can only read namespaced object of this type")
    said = await _refusal(ask, "GET", f"{MAPS}?watch=1&fieldSelector=metadata.name%3Dprivate")
    assert REASON in said
    assert (await ask("PUT", f"{MAPS}/env", {"metadata": {"name": "env"}})).code == 403


async def test_access_follows_the_binding(ask: ApiClient) -> None:
    ask.user = ADMIN
    await ask.ok("POST", PODS, _referring("late", ""))
    ask.user = N2
    assert (await ask("GET", f"{MAPS}/env")).code == 403
    ask.user = ADMIN
    await ask.ok("POST", f"{PODS}/late/binding", {"target": {"kind": "Node", "name": "n2"}})
    ask.user = N2
    await ask.ok("GET", f"{MAPS}/env")
    await ask.ok("DELETE", f"{PODS}/late?gracePeriodSeconds=0")
    assert (await ask("GET", f"{MAPS}/env")).code == 403


async def test_pods_and_service_accounts(ask: ApiClient) -> None:
    ask.user = N1
    await ask.ok("GET", f"{PODS}/mine")
    await ask.ok("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1")
    assert REASON in await _refusal(ask, "GET", f"{PODS}/other")
    assert "can only list/watch pods with spec.nodeName field selector" in await _refusal(ask, "GET", PODS)
    accounts = "/api/v1/namespaces/{}/serviceaccounts/default"
    await ask.ok("GET", accounts.format("default"))
    assert REASON in await _refusal(ask, "GET", accounts.format("kube-system"))
    said = await _refusal(ask, "GET", "/api/v1/nodes/n2")
    assert said.endswith("node 'n1' cannot read 'n2', only its own Node object")
    for path in ("/api/v1/namespaces", "/apis/apps/v1/deployments", "/apis/coordination.k8s.io/v1/leases"):
        assert (await ask("GET", path)).code == 403


# --- mirror pods ---


def _mirror(**changes: Any) -> dict[str, Any]:
    document = pod("static-n1", nodeName="n1")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "?", "controller": True}
    document["metadata"] |= {"annotations": {MIRROR: "0"}, "ownerReferences": [owner]}
    document["metadata"] |= changes.pop("metadata", {})
    document["spec"] |= changes
    return document


def _owner(**changes: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "?", "controller": True} | changes
    return {"metadata": {"ownerReferences": [owner]}}


MIRRORS = [
    ({}, ""),
    ({"metadata": {"annotations": {}}}, 'node "n1" can only create mirror pods'),
    ({"nodeName": "n2"}, 'node "n1" can only create pods with spec.nodeName set to itself'),
    ({"metadata": {"ownerReferences": []}}, 'node "n1" can only create pods with an owner reference set to itself'),
    (_owner(name="n2"), 'node "n1" can only create pods with an owner reference set to itself'),
    (_owner(kind="Pod"), 'node "n1" can only create pods with an owner reference set to itself'),
    (_owner(controller=False), 'node "n1" can only create pods with a controller owner reference set to itself'),
    (_owner(blockOwnerDeletion=True), 'node "n1" must not set blockOwnerDeletion on an owner reference'),
    (_owner(uid="0000"), "node n1 UID mismatch: expected 0000 got "),
    ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
    (
        {"volumes": [{"name": "v", "configMap": {"name": "private"}}]},
        'node "n1" can not create pods that reference configmaps',
    ),
    (
        {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
        'node "n1" can not create pods that reference secrets',
    ),
    ({"imagePullSecrets": [{"name": "s"}]}, 'node "n1" can not create pods that reference secrets'),
    (
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        'node "n1" can not create pods that reference persistentvolumeclaims',
    ),
    (
        {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
        "a mirror pod may not use ServiceAccountToken volume projections",
    ),
    ({"metadata": {"finalizers": ["example.com/x"]}}, 'node "n1" can not create pods with finalizers'),
]


@pytest.mark.parametrize(("changes", "refusal"), MIRRORS, ids=[refusal or "a mirror pod" for _, refusal in MIRRORS])
async def test_mirror_pods(ask: ApiClient, changes: dict[str, Any], refusal: str) -> None:
    ask.user = N1
    uid = (await ask.ok("GET", NODE))["metadata"]["uid"]
    document = _mirror(**{name: dict(value) if isinstance(value, dict) else value for name, value in changes.items()})
    for owner in document["metadata"]["ownerReferences"]:
        owner["uid"] = uid if owner["uid"] == "?" else owner["uid"]
    if refusal:
        assert refusal in await _refusal(ask, "POST", PODS, document)
    else:
        created = await ask.ok("POST", PODS, document)
        assert "serviceAccountName" not in created["spec"], "a mirror pod has no access to the API"


# --- other pods ---


async def test_pods_of_another_node(ask: ApiClient) -> None:
    """Also an eviction, which must not use up the budget of pods elsewhere."""
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await ask.ok("POST", budgets, {"metadata": {"name": "b"}, "spec": {"selector": {}, "maxUnavailable": 1}})
    allowed = {"status": {"disruptionsAllowed": 1, "observedGeneration": 1}}
    await ask.ok("PATCH", f"{budgets}/b/status", allowed, MERGE)
    running = {"status": {"phase": "Running"}}
    await ask.ok("PATCH", f"{PODS}/other/status", running, MERGE)
    ask.user = N1
    only = "spec.nodeName set to itself"
    for method, path, body in (
        ("DELETE", f"{PODS}/other", None),
        ("PATCH", f"{PODS}/other/status", running),
        ("POST", f"{PODS}/other/eviction", {"metadata": {"name": "other"}}),
    ):
        assert only in await _refusal(ask, method, path, body, MERGE if method == "PATCH" else "application/json")
    ask.user = ADMIN
    assert (await ask.ok("GET", f"{budgets}/b"))["status"]["disruptionsAllowed"] == 1


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"status": {"phase": "Running"}}, ""),
        ({"metadata": {"labels": {"app": "db"}}}, 'node "n1" cannot update labels through pod status'),
        ({"metadata": {"finalizers": ["x.io/y"]}}, 'node "n1" cannot update finalizers through pod status'),
    ],
    ids=["status", "labels", "finalizers"],
)
async def test_pod_status(ask: ApiClient, change: Any, refusal: str) -> None:
    ask.user = N1
    answer = await ask("PATCH", f"{PODS}/mine/status", change, MERGE)
    assert (answer.code, refusal in answer.body.decode().replace('\\"', '"')) == (403 if refusal else 200, True)


async def test_a_node_writes_nothing_else_of_a_pod(ask: ApiClient) -> None:
    ask.user = N1
    for path in (f"{PODS}/mine", f"{PODS}/mine/resize"):
        assert (await ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, MERGE)).code == 403
    assert (await ask("POST", f"{PODS}/mine/binding", {"target": {"name": "n1"}})).code == 403


# --- the Node ---

FORBIDDEN = (
    "node-restriction.kubernetes.io/pci",
    "a.node-restriction.kubernetes.io/x",
    "x.k8s.io/y",
    "kubernetes.io/z",
)
OWN = ("node.kubernetes.io/pool", "kubelet.kubernetes.io/a", "topology.kubernetes.io/zone", "example.com/team", "plain")


@pytest.mark.parametrize("label", [*FORBIDDEN, *OWN])
async def test_labels(ask: ApiClient, label: str) -> None:
    ask.user = N1
    change = {"metadata": {"labels": {label: "v"}}}
    answer = await ask("PATCH", NODE, change, MERGE)
    if label in OWN:
        assert answer.code == 200
        return
    assert answer.message == f'nodes "n1" is forbidden: is not allowed to modify labels: {label}'
    ask.user = ADMIN
    await ask.ok("PATCH", NODE, change, MERGE)
    ask.user = N1
    removal = {"metadata": {"labels": {label: None}}}
    assert (await ask("PATCH", NODE, removal, MERGE)).code == 403
    ask.user = User("system:node:n3", N1.groups)
    new = {"metadata": {"name": "n3", "labels": {label: "v"}}}
    said = await _refusal(ask, "POST", "/api/v1/nodes", new)
    assert said == f'nodes "n3" is forbidden: node "n3" is not allowed to set the following labels: {label}'


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"spec": {"taints": []}}, "taints"),
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, "taints"),
        ({"spec": {"podCIDR": "10.0.0.0/24"}}, "podCIDR"),
        (_owner(), "ownerReferences"),
        ({"metadata": {"finalizers": ["example.com/x"]}}, "finalizers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_a_node_does_not_change_of_itself(ask: ApiClient, change: Any, field: str) -> None:
    ask.user = N1
    said = await _refusal(ask, "PATCH", NODE, change, MERGE)
    assert said == f'nodes "n1" is forbidden: node "n1" is not allowed to modify {field}'


async def test_config_source_and_other_nodes(ask: ApiClient) -> None:
    source = {"spec": {"configSource": {"configMap": {"name": "private", "namespace": "default"}}}}
    ask.user = N1
    assert "a new non-nil configSource" in await _refusal(ask, "PATCH", NODE, source, MERGE)
    assert 'node "n1" is not allowed to modify node "n2"' in await _refusal(
        ask, "PATCH", "/api/v1/nodes/n2/status", {"status": {}}, MERGE
    )
    assert 'not allowed to modify node "n9"' in await _refusal(
        ask, "POST", "/api/v1/nodes", {"metadata": {"name": "n9"}}
    )
    assert (await ask("DELETE", NODE)).code == 403
    leases = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
    await ask.ok("POST", leases.format("kube-node-lease"), {"metadata": {"name": "n1"}})
    same = "can only access node lease with the same name as the requesting node"
    assert same in await _refusal(ask, "POST", leases.format("kube-node-lease"), {"metadata": {"name": "n2"}})
    assert same in await _refusal(ask, "PUT", leases.format("kube-node-lease") + "/n2", {"metadata": {"name": "n2"}})
    assert '"kube-node-lease" system namespace' in await _refusal(
        ask, "POST", leases.format("default"), {"metadata": {"name": "n1"}}
    )
