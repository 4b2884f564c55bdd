"""Strategic merge patches, row by row of spec 05 B6.

The implementation was compared with `kubectl patch --local` over thousands of random patches, results and errors.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from plimsoll.codec.patch.json_patch import PatchError
from plimsoll.codec.patch.strategic import apply_strategic
from plimsoll.codec.schema.schema import schema

Document = dict[str, Any]
POD, NODE, DEPLOYMENT = schema("v1", "Pod"), schema("v1", "Node"), schema("apps/v1", "Deployment")


def containers(names: str) -> list[Document]:
    return [{"name": name, "image": "i"} for name in names]


def patched_spec(spec: Document, patch: Document) -> Document:
    live = {"spec": spec}
    before = copy.deepcopy(live), copy.deepcopy(patch)
    result = apply_strategic(POD, live, {"spec": patch})
    assert (live, patch) == before
    found: Document = result["spec"]
    return found


def names(elements: list[Document]) -> str:
    return "".join(each["name"] for each in elements)


ORDERS = [
    ("new to the front", "XB", None, "XABCD"),
    ("patch order", "DB", None, "ACDB"),
    ("placed", "X", "AXB", "AXBCD"),
    ("all placed", "", "DCBA", "DCBA"),
    ("unknown to both sides", "B", "ZB", "ABCD"),
]


@pytest.mark.parametrize(("patch", "order", "expected"), [row[1:] for row in ORDERS], ids=[row[0] for row in ORDERS])
def test_order(patch: str, order: str | None, expected: str) -> None:
    patch_document: Document = {"containers": [{"name": name} for name in patch]} if patch else {}
    if order is not None:
        patch_document["$setElementOrder/containers"] = [{"name": name} for name in order]
    assert names(patched_spec({"containers": containers("ABCD")}, patch_document)["containers"]) == expected


LIVE: Document = {
    "containers": [{"name": "a", "image": "1", "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "2"}]}, {"name": "b", "image": "2"}],
    "tolerations": [{"key": "x"}],
    "nodeSelector": {"k": "v", "l": "w"},
    "volumes": [{"name": "v", "emptyDir": {}}],
    "securityContext": {"runAsUser": 1, "fsGroup": 2},
}  # fmt: skip
A, B = LIVE["containers"]
ROWS = [
    ("scalars replace", {"containers": [{"name": "b", "image": "3"}]}, {"containers": [A, {"name": "b", "image": "3"}]}),
    ("nested lists merge", {"containers": [{"name": "a", "env": [{"name": "F", "value": "9"}]}]},
     {"containers": [{**A, "env": [A["env"][0], {"name": "F", "value": "9"}]}, B]}),
    ("null deletes", {"nodeSelector": {"k": None}}, {"nodeSelector": {"l": "w"}}),
    ("null for nothing is dropped", {"nodeSelector": {"zzz": None}, "hostname": None}, {}),
    ("null inside something new", {"dnsConfig": {"searches": None, "nameservers": ["1.1.1.1"]}}, {"dnsConfig": {"nameservers": ["1.1.1.1"]}}),
    ("atomic lists are replaced", {"tolerations": [{"key": "y"}]}, {"tolerations": [{"key": "y"}]}),
    ("delete an element", {"containers": [{"$patch": "delete", "name": "a"}]}, {"containers": [B]}),
    ("delete what is not there", {"containers": [{"$patch": "delete", "name": "z"}]}, {}),
    ("deletions come first", {"containers": [{"name": "b", "image": "5"}, {"$patch": "delete", "name": "b"}]}, {"containers": [{"name": "b", "image": "5"}, A]}),
    ("replace the list", {"containers": [{"$patch": "replace"}, {"name": "n"}]}, {"containers": [{"name": "n"}]}),
    ("the marked element's own data is dropped", {"containers": [{"name": "a", "$patch": "replace", "image": "z"}]}, {"containers": []}),
    ("replace a map", {"securityContext": {"$patch": "replace", "runAsUser": 5}}, {"securityContext": {"runAsUser": 5}}),
    ("delete a map", {"securityContext": {"$patch": "delete"}}, {"securityContext": {}}),
    ("retain keys", {"securityContext": {"$retainKeys": ["fsGroup"], "fsGroup": 3}}, {"securityContext": {"fsGroup": 3}}),
    ("retain keys of a volume", {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]},
     {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
    ("another type replaces", {"nodeSelector": "x"}, {"nodeSelector": "x"}),
    ("directives in atomic lists are data", {"tolerations": [{"$patch": "delete", "key": "x"}]}, {"tolerations": [{"$patch": "delete", "key": "x"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "changed"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_merges(patch: Document, changed: Document) -> None:
    assert patched_spec(LIVE, patch) == {**LIVE, **changed}


def finalizers(live: list[str], patch: Document) -> list[str]:
    found: list[str] = apply_strategic(POD, {"metadata": {"finalizers": live}}, {"metadata": patch})["metadata"][
        "finalizers"
    ]
    return found


def test_scalars() -> None:
    assert finalizers(["x", "y"], {"finalizers": ["z", "x"]}) == ["z", "x", "y"]
    assert finalizers(["x", "y"], {"$deleteFromPrimitiveList/finalizers": ["x", "q"]}) == ["y"]
    assert finalizers(["x", "y"], {"$deleteFromPrimitiveList/finalizers": ["x"], "finalizers": ["z"]}) == ["z", "y"]
    assert finalizers(["x", "y"], {"$setElementOrder/finalizers": ["y", "x"]}) == ["y", "x"]


def test_two_protocols_on_one_port_collide() -> None:
    ports = [{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]
    found = patched_spec(
        {"containers": [{"name": "c", "ports": ports}]},
        {"containers": [{"name": "c", "ports": [{"containerPort": 53, "name": "dns"}]}]},
    )
    assert found["containers"][0]["ports"] == [{**ports[0], "name": "dns"}, ports[1]]


def test_addresses_merge_by_type() -> None:
    live = {"status": {"addresses": [{"type": "InternalIP", "address": "1"}]}}
    patch = {"status": {"addresses": [{"type": "InternalIP", "address": "2"}, {"type": "InternalIP", "address": "3"}]}}
    assert apply_strategic(NODE, live, patch)["status"]["addresses"] == [{"type": "InternalIP", "address": "3"}]


def test_a_strategy_keeps_its_keys() -> None:
    live = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert apply_strategic(DEPLOYMENT, live, patch) == {"spec": {"strategy": {"type": "Recreate"}}}


def test_a_selector_that_is_replaced() -> None:
    kind = schema("policy/v1", "PodDisruptionBudget")
    live = {"spec": {"selector": {"matchLabels": {"a": "1"}}}}
    patch = {"spec": {"selector": {"matchLabels": {"b": "2"}}}}
    assert apply_strategic(kind, live, patch) == patch


ERRORS = [
    ("unknown directive", POD, {"spec": {"securityContext": {"$patch": "frob"}}}, "internal", "unknown patch type: frob in map: map[$patch:frob]"),
    ("merge is none", POD, {"spec": {"securityContext": {"$patch": "merge", "a": 1}}}, "internal", "unknown patch type: merge in map: map[$patch:merge a:1]"),
    ("order in the patch", POD, {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a"}, {"name": "b"}]}}, "internal",
     "The order in patch list:\n[map[name:a] map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:b] map[name:a]]\n"),
    ("unknown list", NODE, {"spec": {"$setElementOrder/zzz": [{"name": "a"}]}}, "internal", 'unable to find api field in struct NodeSpec for the json field "zzz"'),
    ("retain keys", POD, {"spec": {"securityContext": {"$retainKeys": ["a"], "runAsUser": 1}}}, "format", "invalid patch format of retainKeys"),
    ("no merge key", NODE, {"status": {"conditions": [{"status": "Unknown"}]}}, "internal", "map: map[status:Unknown] does not contain declared merge key: type"),
    ("null element", NODE, {"status": {"conditions": [None]}}, "internal", "list element types are not identical: [[map[type:Ready]] [<nil>]]"),
    ("broken directive", POD, {"spec": {"$setElementOrder": []}}, "format", "invalid patch format of setElementOrder list"),
    ("broken deletion", POD, {"metadata": {"$deleteFromPrimitiveList": ["x"]}}, "format", "invalid patch format of primitive list"),
    ("order is no list", POD, {"spec": {"$setElementOrder/containers": 5}}, "format", "expected a []interface {}, but received a int64"),
    ("an order for nothing", POD, {"spec": {"$setElementOrder/initContainers": [], "initContainers": []}}, "format", "no elements in any of the given slices"),
    ("merging is said of a list", POD, {"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}, "format",
     "merging lists cannot yet be specified in the patch"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "patch", "problem", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS]
)
def test_errors(kind: Any, patch: Document, problem: str, message: str) -> None:
    live = {"metadata": {}, "spec": LIVE if kind is POD else {}, "status": {"conditions": [{"type": "Ready"}]}}
    with pytest.raises(PatchError) as error:
        apply_strategic(kind, live, patch)
    assert (error.value.problem, error.value.message) == (problem, message)


MANY = 12_000
LARGE = {
    "retain keys": (
        {"annotations": {f"k{n}": "v" for n in range(MANY)}},
        {"annotations": {"$retainKeys": [f"k{n}" for n in range(MANY)]} | {f"k{n}": "w" for n in range(MANY)}},
    ),
    "deleted scalars": (
        {"finalizers": [f"k{n}" for n in range(MANY)]},
        {"$deleteFromPrimitiveList/finalizers": [f"q{n}" for n in range(MANY)]},
    ),
    "deleted elements": (
        {"ownerReferences": [{"uid": f"k{n}"} for n in range(MANY)]},
        {"ownerReferences": [{"uid": f"q{n}", "$patch": "delete"} for n in range(MANY)]},
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_patches_take_as_long_as_they_are(name: str) -> None:
    """0.1 s of CPU each. If each member was compared with each other one it was 3 s and more, and minutes at 3 MB."""
    live, patch = LARGE[name]
    before_s = time.thread_time()
    apply_strategic(POD, {"metadata": live}, {"metadata": patch})
    assert time.thread_time() - before_s < 1.5
