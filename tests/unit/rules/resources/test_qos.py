"""QoS classes (spec 01 §5)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.qos import computed_qos_class, qos_class
from tests.examples import examples
from tests.unit.strategies import Json, lean, plain_pods, valid_pods

FULL = {"limits": {"cpu": "10m", "memory": "1Gi"}}
EQUAL = {"requests": {"cpu": "10m", "memory": "1Gi"}, "limits": {"cpu": "10m", "memory": "1Gi"}}
G, B, E = "Guaranteed", "Burstable", "BestEffort"

# containers' blocks, fields of the spec, class
ROWS = [
    ("§5 table: limits only, both", [FULL, {"limits": {"cpu": "100m", "memory": "100Mi"}}], {}, G),
    ("§5 table: second container empty", [EQUAL, {}], {}, B),
    ("§5 table: memory here, cpu there", [{"limits": {"memory": "1Gi"}}, {"limits": {"cpu": "100m"}}], {}, B),
    ("§5 table: nothing at all", [{}], {}, E),
    ("§5 table: a device only", [{"limits": {"nvidia.com/gpu": "1"}}], {}, E),
    ("§5 table: cpu only", [{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}], {}, B),
    ("QC-1 zero is absent", [{"limits": {"cpu": "0", "memory": "0"}}], {}, E),
    ("QC-1 a zero limit is no limit", [EQUAL, {"limits": {"cpu": "0", "memory": "1Gi"}}], {}, B),
    ("QC-3 an init container without limits", [EQUAL], {"initContainers": [{"name": "i"}]}, B),
    ("QC-3 an init container with limits", [EQUAL], {"initContainers": [{"name": "i", "resources": EQUAL}]}, G),
    ("QC-3 ephemeral containers never", [EQUAL], {"ephemeralContainers": [{"name": "e"}]}, G),
    ("QC-3 overhead never", [{}], {"overhead": {"cpu": "1"}}, E),
    ("QC-3 huge pages and disk never", [{"limits": {"hugepages-2Mi": "2Mi", "ephemeral-storage": "1Gi"}}], {}, E),
    ("QC-4 requests below limits", [{"requests": {"cpu": "5m"}, **FULL}], {}, B),
    ("QC-4 requests only", [{"requests": {"cpu": "1", "memory": "1Gi"}}], {}, B),
    ("Q-17 equal by value", [{"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}], {}, G),
    ("QC-2 an empty block: containers are not considered", [EQUAL], {"resources": {}}, E),
    ("QC-2 requests without limits", [{}], {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}, B),
    ("QC-2 equal, containers empty", [{}], {"resources": EQUAL}, G),
    ("QC-2 cpu limit missing", [EQUAL], {"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}}, B),
    ("QC-2 only huge pages", [{}], {"resources": {"limits": {"hugepages-2Mi": "2Mi"}}}, E),
    ("QC-2 zeros", [EQUAL], {"resources": {"limits": {"cpu": "0", "memory": "0"}, "requests": {"cpu": "0"}}}, E),
]  # fmt: skip


def document(blocks: list[Json], fields: Json) -> Json:
    return {"spec": {"containers": [{"name": f"c{i}", "resources": block} for i, block in enumerate(blocks)], **fields}}


@pytest.mark.parametrize(("blocks", "fields", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_class(blocks: list[Json], fields: Json, expected: str) -> None:
    raw = lean(document(blocks, fields))
    # D-2 would fill a pod-level block; the rows about QC-2 are of the block as it stands.
    pod = raw if "resources" in fields else defaulted(raw)
    assert computed_qos_class(pod) == expected


def test_without_the_gate_containers_decide() -> None:
    pod = defaulted(lean(document([EQUAL], {"resources": {}})), gates=Gates(pod_level=False))
    assert computed_qos_class(pod, gates=Gates(pod_level=False)) == G
    assert qos_class(pod, gates=Gates(pod_level=False)) == G


def test_a_stored_class_wins() -> None:
    pod = lean({**document([EQUAL], {}), "status": {"qosClass": "BestEffort"}})
    assert (qos_class(pod), computed_qos_class(pod)) == (E, G)
    assert qos_class(lean({**document([EQUAL], {}), "status": {"qosClass": ""}})) == G


@settings(max_examples=examples(150), deadline=None)
@given(plain_pods())
def test_second_writing(source: Json) -> None:
    """QC-5: for a valid pod, Guaranteed means that every container has both limits and equal requests."""
    pod = defaulted(lean(source))
    entries = [
        (block.requests.get(name) if block.requests else None, block.limits.get(name) if block.limits else None)
        for block in (container.resources for container in pod.spec.containers)
        for name in ("cpu", "memory")
    ]
    if not any(request or limit for request, limit in entries):
        expected = E
    elif all(limit and request == limit for request, limit in entries):
        expected = G
    else:
        expected = B
    assert computed_qos_class(pod) == expected


@settings(max_examples=examples(100), deadline=None)
@given(valid_pods(pod_level=False, stored=False))
def test_order_of_containers_does_not_matter(source: Json) -> None:
    spec = source["spec"]
    reordered = {**source, "spec": {**spec, "containers": spec["containers"][::-1]}}
    assert computed_qos_class(defaulted(lean(source))) == computed_qos_class(defaulted(lean(reordered)))
    as_init = {
        "spec": {
            "containers": spec["containers"][:1],
            "initContainers": spec["containers"][1:] + spec.get("initContainers", []),
        }
    }
    assert computed_qos_class(defaulted(lean(source))) == computed_qos_class(defaulted(lean(as_init))), "QC-3: by sum"
