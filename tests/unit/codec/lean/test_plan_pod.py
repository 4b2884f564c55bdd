"""What `plan` steps over in a pod's JSON: no plan depends on it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.codec.lean.plan_pod import _Container, _Metadata, _Pod, _PodSpec, quick_decode
from plimsoll.rules.explain.plan import placement, pod_plan
from plimsoll.rules.model.objects import Container, Metadata, Pod, PodSpec
from plimsoll.rules.resources.node_policy import NodePolicy
from tests.examples import examples
from tests.unit.strategies import Json, valid_pods

NODE = NodePolicy(8 << 30, 8 << 30, memory_qos=True)
PLACE = placement(("kubepods",), "cgroupfs")

OF_CONTAINERS: dict[str, Any] = {
    "image": "nginx:1",
    "ports": [{"containerPort": 80, "hostPort": 80}],
    "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}],
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
}
OF_SPECS: dict[str, Any] = {
    "ephemeralContainers": [{"name": "debug"}],
    "nodeName": "here",
    "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
    "tolerations": [{"operator": "Exists"}],
    "nodeSelector": {"disk": "fast"},
    "affinity": {"nodeAffinity": {}},
    "preemptionPolicy": "Never",
    "runtimeClassName": "kata",
    "restartPolicy": "Always",
    "os": {"name": "linux"},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "hostNetwork": False,
    "terminationGracePeriodSeconds": 7,
    "activeDeadlineSeconds": 600,
}
OF_METADATA: dict[str, Any] = {
    "labels": {"app": "web"},
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-01T00:01:00Z",
    "deletionGracePeriodSeconds": 30,
    "generation": 2,
    "generateName": "web-",
}


def filled(document: Json) -> Json:
    spec = {**document["spec"], **OF_SPECS}
    for kind in ("containers", "initContainers"):
        spec[kind] = [{**each, **OF_CONTAINERS} for each in spec.get(kind, [])]
    return {**document, "metadata": {**document["metadata"], **OF_METADATA}, "spec": spec}


@settings(max_examples=examples(100), deadline=None)
@given(valid_pods())
def test_plans_are_the_same(document: Json) -> None:
    line = json.dumps(filled(document)).encode()
    whole, quick = pod_from_json(line), quick_decode()(line)
    assert pod_plan(quick, NODE, PLACE) == pod_plan(whole, NODE, PLACE)


@pytest.mark.parametrize(
    ("where", "name"),
    [("metadata", name) for name in OF_METADATA]
    + [("spec", name) for name in OF_SPECS]
    + [("container", name) for name in OF_CONTAINERS],
)
def test_skipped_fields_are_not_decoded(where: str, name: str) -> None:
    """Each alone, with a value of a kind that reading it would refuse."""
    places: dict[str, Json] = {"metadata": {"name": "p"}, "spec": {}, "container": {"name": "c"}}
    places[where][name] = 5
    line = json.dumps(
        {"metadata": places["metadata"], "spec": {**places["spec"], "containers": [places["container"]]}}
    ).encode()
    assert quick_decode()(line).spec.containers[0].name == "c"


@pytest.mark.parametrize(
    ("quick", "whole"),
    [(_Pod, Pod), (_PodSpec, PodSpec), (_Container, Container), (_Metadata, Metadata)],
    ids=lambda kind: kind.__name__,
)
def test_every_field_is_there_with_its_default(quick: type[msgspec.Struct], whole: type[msgspec.Struct]) -> None:
    """Rules read the one like the other: a field that is added to `objects` must be added here."""
    one, other = quick(), whole()
    for name in whole.__struct_fields__:
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine == theirs or isinstance(theirs, msgspec.Struct), name
