"""Defaulting at create (spec 01 §3, R-2)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.quantity import parse
from plimsoll.rules.resources.defaulting import defaulted, rounded_list
from tests.examples import examples
from tests.unit.strategies import Json, lean, valid_pods


def texts(resources: Resources | None) -> tuple[Json | None, Json | None] | None:
    if resources is None:
        return None
    return tuple(
        None if each is None else {name: str(quantity) for name, quantity in each.items()}
        for each in (resources.requests, resources.limits)
    )  # type: ignore[return-value]


CONTAINERS = [
    ("D-1 per key", {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
     ({"cpu": "500m", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})),
    ("D-1 limits only", {"limits": {"cpu": "10m", "memory": "1Gi"}}, ({"cpu": "10m", "memory": "1Gi"}, {"cpu": "10m", "memory": "1Gi"})),
    ("D-1 extended and huge pages too", {"limits": {"x.y/z": "2", "hugepages-2Mi": "2Mi"}},
     ({"x.y/z": "2", "hugepages-2Mi": "2Mi"}, {"x.y/z": "2", "hugepages-2Mi": "2Mi"})),
    ("D-1 no default limit", {"requests": {"cpu": "1"}}, ({"cpu": "1"}, None)),
    ("D-1 empty limits bring empty requests", {"limits": {}}, ({}, {})),
    ("D-1 a zero request is set", {"limits": {"cpu": "1"}, "requests": {"cpu": "0"}}, ({"cpu": "0"}, {"cpu": "1"})),
    ("R-2", {"requests": {"cpu": "0.1m"}}, ({"cpu": "1m"}, None)),
    ("R-2 memory in thousandths", {"limits": {"memory": "1.0001"}}, ({"memory": "1001m"}, {"memory": "1001m"})),
    ("R-2 exact texts are kept", {"requests": {"cpu": "1.123"}}, ({"cpu": "1.123"}, None)),
    ("nothing", {}, (None, None)),
]  # fmt: skip


@pytest.mark.parametrize(("block", "expected"), [row[1:] for row in CONTAINERS], ids=[row[0] for row in CONTAINERS])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("gate", [True, False])
def test_containers(kind: str, gate: bool, block: Json, expected: tuple[Json | None, Json | None]) -> None:
    pod = defaulted(lean({"spec": {kind: [{"name": "c", "resources": block}]}}), gates=Gates(pod_level=gate))
    (container,) = pod.spec.init_containers + pod.spec.containers
    assert texts(container.resources) == expected


def cpu(name: str, amount: str, **limits: str) -> Json:
    return {"name": name, "resources": {"requests": {"cpu": amount}, **({"limits": limits} if limits else {})}}


PAGES = {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}}
POD_LEVEL = [
    ("D-2b container requests win over pod limits", [cpu("a", "50m")], {"limits": {"cpu": "1"}}, ({"cpu": "50m"}, {"cpu": "1"})),
    ("R-2 the sum is made before rounding", [cpu("a", "50m"), cpu("b", "0.0001"), cpu("c", "0.0005")], {"limits": {"cpu": "1"}},
     ({"cpu": "51m"}, {"cpu": "1"})),
    ("D-2b pod limit where containers say nothing", [{"name": "a"}], {"limits": {"cpu": "1", "memory": "1Gi"}},
     ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})),
    ("D-2b cpu from containers though limits name memory only", [cpu("a", "50m")], {"limits": {"memory": "1Gi"}},
     ({"cpu": "50m", "memory": "1Gi"}, {"memory": "1Gi"})),
    ("D-2b requests alone: nothing", [cpu("a", "50m")], {"requests": {"memory": "1Gi"}}, ({"memory": "1Gi"}, None)),
    ("D-2b a request stays", [cpu("a", "50m")], {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}, ({"cpu": "3"}, {"cpu": "4"})),
    ("D-2a huge pages from containers", [{"name": "a", "resources": PAGES}], {"limits": {"cpu": "2"}},
     ({"cpu": "1", "hugepages-2Mi": "4Mi"}, {"cpu": "2", "hugepages-2Mi": "4Mi"})),
    ("D-2a fills limits, so b. runs", [{"name": "a", "resources": PAGES}], {"requests": {"memory": "1Gi"}},
     ({"memory": "1Gi", "cpu": "1", "hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"})),
    ("D-2a not where pod level has the size", [{"name": "a", "resources": PAGES}], {"requests": {"hugepages-2Mi": "8Mi"}},
     ({"hugepages-2Mi": "8Mi"}, None)),
    ("D-2 empty maps: nothing", [cpu("a", "50m")], {"requests": {}, "limits": {}}, ({}, {})),
    ("D-2 empty block: nothing", [cpu("a", "50m")], {}, (None, None)),
    ("D-2 unsupported limits make no request", [cpu("a", "50m")], {"limits": {"x.y/z": "1"}}, ({"cpu": "50m"}, {"x.y/z": "1"})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("containers", "block", "expected"), [row[1:] for row in POD_LEVEL], ids=[row[0] for row in POD_LEVEL]
)
def test_pod_level(containers: list[Json], block: Json, expected: tuple[Json | None, Json | None]) -> None:
    raw = lean({"spec": {"containers": containers, "resources": block}})
    assert texts(defaulted(raw).spec.resources) == expected


def test_r2_the_containers_of_the_example_end_rounded() -> None:
    raw = lean(
        {
            "spec": {
                "containers": [cpu("a", "50m"), cpu("b", "0.0001"), cpu("c", "0.0005")],
                "resources": {"limits": {"cpu": "1"}},
            }
        }
    )
    assert [str(c.resources.requests["cpu"]) for c in defaulted(raw).spec.containers] == ["50m", "1m", "1m"]


def test_the_gate_off_leaves_pod_level_alone() -> None:
    raw = lean({"spec": {"containers": [cpu("a", "50m")], "resources": {"limits": {"cpu": "1"}}}})
    assert texts(defaulted(raw, gates=Gates(pod_level=False)).spec.resources) == (None, {"cpu": "1"})


POLICIES = [
    ("D-3 cpu and memory with a request", {"requests": {"memory": "1", "cpu": "1"}}, [], ["cpu", "memory"]),
    ("D-3 only where there is a request", {"requests": {"memory": "1"}}, [], ["memory"]),
    ("D-3 a request from a limit counts", {"limits": {"cpu": "1"}}, [], ["cpu"]),
    ("D-3 after the user's policies", {"requests": {"memory": "1", "cpu": "1"}}, ["memory"], ["memory", "cpu"]),
    ("D-3 nothing", {}, [], []),
]


@pytest.mark.parametrize(
    ("block", "own_names", "names"), [row[1:] for row in POLICIES], ids=[row[0] for row in POLICIES]
)
def test_resize_policy(block: Json, own_names: list[str], names: list[str]) -> None:
    policies = [{"resourceName": name, "restartPolicy": "RestartContainer"} for name in own_names]
    containers = [{"name": "c", "resources": block, "resizePolicy": policies}]
    raw = lean(
        {"spec": {"containers": containers, "initContainers": [{**containers[0], "name": "i", "resizePolicy": []}]}}
    )
    spec = defaulted(raw, resize_policy=True).spec
    assert [each.resource_name for each in spec.containers[0].resize_policy] == names
    assert [each.restart_policy for each in spec.containers[0].resize_policy[len(own_names) :]] == ["NotRequired"] * (
        len(names) - len(own_names)
    )
    assert spec.init_containers[0].resize_policy == (), "regular containers only"
    assert [each.resource_name for each in defaulted(raw).spec.containers[0].resize_policy] == own_names


def test_r2_everywhere_in_a_pod() -> None:
    fine, whole = {"cpu": "0.1m"}, {"cpu": parse("1m")}
    block = {"requests": fine, "limits": fine}
    status = {"name": "c", "resources": block, "allocatedResources": fine}
    pod = defaulted(
        lean(
            {
                "spec": {
                    "containers": [{"name": "c"}],
                    "overhead": fine,
                    "resources": {"requests": {"memory": "0.1m"}},
                },
                "status": {
                    "containerStatuses": [status],
                    "initContainerStatuses": [status],
                    "resources": block,
                    "allocatedResources": fine,
                },
            }
        )
    )
    assert pod.spec.overhead == whole
    assert pod.spec.resources.requests == {"memory": parse("1m")}
    for each in pod.status.container_statuses + pod.status.init_container_statuses:
        assert (each.resources.requests, each.resources.limits, each.allocated_resources) == (whole, whole, whole)
    assert (pod.status.resources.requests, pod.status.allocated_resources) == (whole, whole)


def test_rounded_list() -> None:
    assert rounded_list(None) is None
    assert rounded_list({}) == {}
    whole = {"cpu": parse("1m")}
    assert rounded_list(whole) is whole


@settings(max_examples=examples(200), deadline=None)
@given(valid_pods())
def test_once_is_enough(document: Json) -> None:
    """Idempotent, never lowering an amount, and the pod itself is not changed."""
    raw = lean(document)
    pod = defaulted(raw)
    assert defaulted(pod) == pod
    assert raw == lean(document)
    for before, after in zip(
        raw.spec.init_containers + raw.spec.containers, pod.spec.init_containers + pod.spec.containers, strict=True
    ):
        _check_block(before.resources, after.resources)
        for name in after.resources.limits or {}:
            assert name in after.resources.requests, "D-1"
    if raw.spec.resources is not None:
        _check_block(raw.spec.resources, pod.spec.resources)


def _check_block(before: Resources, after: Resources) -> None:
    for old, new in ((before.requests, after.requests), (before.limits, after.limits)):
        for name, quantity in (old or {}).items():
            assert 0 <= new[name].nanos - quantity.nanos < 10**6, "R-2 rounds up to the next thousandth"
        for quantity in (new or {}).values():
            assert quantity.nanos % 10**6 == 0


@settings(max_examples=examples(50), deadline=None)
@given(valid_pods())
def test_a_defaulted_pod_costs_no_copies(document: Json) -> None:
    pod = defaulted(lean(document))
    if pod.status == Pod().status and pod.spec.resources is None and pod.spec.overhead is None:
        again = defaulted(Pod(pod.metadata, pod.spec))
        assert again.spec is pod.spec
