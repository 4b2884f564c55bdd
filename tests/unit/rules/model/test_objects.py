"""The lean objects: what absent means, and who is a sidecar, static, mirrored or critical (spec 01 §7 O-3, R-3)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from plimsoll.rules.model.objects import (
    Container,
    Metadata,
    Pod,
    PodSpec,
    Resources,
    is_critical,
    is_mirror,
    is_node_critical,
    is_pod_level_resource,
    is_sidecar,
    is_static,
)
from tests.examples import examples
from tests.unit.strategies import lean, valid_pods

MIRROR, SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"
NODE_CRITICAL = "system-node-critical"

# annotations, priority, class name → mirror, static, critical, node-critical
ROWS = [
    ("nothing", None, None, "", (False, False, False, False)),
    ("mirror, any value", {MIRROR: ""}, None, "", (True, False, True, False)),
    ("static from a file", {SOURCE: "file"}, None, "", (False, True, True, False)),
    ("source with an empty value", {SOURCE: ""}, None, "", (False, True, True, False)),
    ("from the API", {SOURCE: "api"}, None, "", (False, False, False, False)),
    ("another annotation", {"a": "b"}, None, "", (False, False, False, False)),
    ("priority just below", None, 1_999_999_999, NODE_CRITICAL, (False, False, False, False)),
    ("priority", None, 2_000_000_000, "", (False, False, True, False)),
    ("priority and class", None, 2_000_000_000, NODE_CRITICAL, (False, False, True, True)),
    ("class alone is not enough", None, None, NODE_CRITICAL, (False, False, False, False)),
    (
        "cluster-critical is not node-critical",
        None,
        2_000_000_000,
        "system-cluster-critical",
        (False, False, True, False),
    ),
    ("static and class", {SOURCE: "http"}, 0, NODE_CRITICAL, (False, True, True, True)),
]


@pytest.mark.parametrize(
    ("annotations", "priority", "class_name", "expected"),
    [row[1:] for row in ROWS],
    ids=[f"O-3 {row[0]}" for row in ROWS],
)
def test_who_is_critical(annotations, priority, class_name, expected) -> None:
    pod = Pod(Metadata(annotations=annotations), PodSpec(priority=priority, priority_class_name=class_name))
    assert (is_mirror(pod), is_static(pod), is_critical(pod), is_node_critical(pod)) == expected


NAMES = [
    ("cpu", True),
    ("memory", True),
    ("hugepages-2Mi", True),
    ("ephemeral-storage", False),
    ("nvidia.com/gpu", False),
]


@pytest.mark.parametrize(("name", "supported"), NAMES, ids=[f"R-3 {row[0]}" for row in NAMES])
def test_pod_level_names(name: str, supported: bool) -> None:
    assert is_pod_level_resource(name) is supported


def test_sidecars() -> None:
    assert is_sidecar(Container(restart_policy="Always"))
    assert not is_sidecar(Container())
    assert not is_sidecar(Container(restart_policy="Never"))


def test_absent_and_empty_differ() -> None:
    assert Resources(limits={}) != Resources()
    assert PodSpec(resources=Resources()) != PodSpec()
    assert Pod().spec.overhead is None


@settings(max_examples=examples(50), deadline=None)
@given(valid_pods())
def test_objects_are_frozen_and_comparable(document) -> None:
    pod = lean(document)
    assert pod == lean(document)
    with pytest.raises(AttributeError):
        pod.spec = PodSpec()  # type: ignore[misc]
    assert msgspec.structs.replace(pod, metadata=Metadata(name="other")) != pod
