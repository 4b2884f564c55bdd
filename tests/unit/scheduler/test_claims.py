"""Which nodes the claims of a pod allow, with kube-scheduler's reasons."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Metadata, Node, Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.scheduling.cycle import decide
from plimsoll.rules.scheduling.fit import node_load
from plimsoll.scheduler.claims import NO_VOLUME, UNBOUND, ClaimCache

PROFILE = profile_named("1.36")
POD = Pod(metadata=Metadata(name="p", namespace="d", uid="u"))


def node(name: str) -> Any:
    status = {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}}
    document = {"metadata": {"name": name, "labels": {"at": name}}, "status": status}
    return node_load(from_document(document, Node), (), PROFILE)


def volume(name: str, at: str, storage_class: str = "", **spec: Any) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "at", "operator": "In", "values": [at]}]}
    made = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        **spec,
    }
    return {"metadata": {"name": name}, "spec": made}


def claim(phase: str, storage_class: str = "", bound: str = "") -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec |= {"storageClassName": storage_class, "volumeName": bound}
    return {"metadata": {"name": "c", "namespace": "d", "uid": "c"}, "spec": spec, "status": {"phase": phase}}


def cache(*objects: tuple[str, str, str, dict[str, Any]]) -> ClaimCache:
    found = ClaimCache()
    found.set_claims("u", ("c",))
    for kind, namespace, name, document in objects:
        found.put(kind, namespace, name, document)
    return found


LATE = ("StorageClass", "", "late", {"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"})
PV, PVC = "PersistentVolume", "PersistentVolumeClaim"
CASES: list[tuple[str, ClaimCache, tuple[str, ...], str]] = [
    ("bound", cache((PVC, "d", "c", claim("Bound", bound="v")), (PV, "", "v", volume("v", "b"))), ("b",), ""),
    (
        "bound elsewhere",
        cache((PVC, "d", "c", claim("Bound", bound="v")), (PV, "", "v", volume("v", "z"))),
        (),
        f"0/2 nodes are available: 2 {PROFILE.volume_conflict_text}.",
    ),
    ("absent", cache(), (), '0/2 nodes are available: persistentvolumeclaim "c" not found.'),
    ("unbound", cache((PVC, "d", "c", claim("Pending"))), (), f"0/2 nodes are available: {UNBOUND}."),
    (
        "waits",
        cache(LATE, (PVC, "d", "c", claim("Pending", "late")), (PV, "", "v", volume("v", "a", "late"))),
        ("a",),
        "",
    ),
    (
        "waits in vain",
        cache(LATE, (PVC, "d", "c", claim("Pending", "late"))),
        (),
        f"0/2 nodes are available: 2 {NO_VOLUME}.",
    ),
]


@pytest.mark.parametrize(("claims", "nodes", "message"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_where_a_pod_with_a_claim_goes(claims: ClaimCache, nodes: tuple[str, ...], message: str) -> None:
    volumes, blocked = claims.filter_for(POD, PROFILE)
    decision = decide(POD, [node("a"), node("b")], PROFILE, volumes=volumes, blocked=blocked)
    assert decision.nodes == nodes
    assert decision.message.startswith(message)


def test_a_pod_without_claims_is_not_filtered() -> None:
    assert ClaimCache().filter_for(POD, PROFILE) == (None, "")


@pytest.mark.parametrize(
    ("release", "text"),
    [
        ("documents", "node(s) had volume node affinity conflict"),
        ("1.32", "node(s) had volume node affinity conflict"),
        ("1.33", "node(s) didn't match PersistentVolume's node affinity"),
    ],
)
def test_the_conflict_by_release(release: str, text: str) -> None:
    profile = profile_named(release)
    claims = cache((PVC, "d", "c", claim("Bound", bound="v")), (PV, "", "v", volume("v", "z")))
    volumes, _ = claims.filter_for(POD, profile)
    assert decide(POD, [node("a")], profile, volumes=volumes).message.startswith(f"0/1 nodes are available: 1 {text}.")
