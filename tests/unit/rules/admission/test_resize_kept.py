"""Validation of pods/resize: profiles, what the server keeps, capacity of the node, and properties."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.resize import (
    ResizeRefusal,
    capacity_verdict,
    kept_for_resize,
    spec_changed,
)
from plimsoll.rules.model.objects import Node
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from tests.unit.rules.admission.resize_documents import (
    ALL,
    GUARANTEED,
    INIT,
    NO_PLR,
    ONLY,
    RESTARTING,
    container,
    direct,
    document,
    resources,
    server,
    shown,
)


def test_step_6_gate_off_the_server_keeps_the_old_block_and_the_containers_change():
    kept = kept_for_resize(document(resources={"requests": {"cpu": "4"}}), document(), NO_PLR)
    assert kept["spec"]["resources"] == {"requests": {"cpu": "4"}}
    assert (
        "resources" not in kept_for_resize(document(), document(resources={"requests": {"cpu": "4"}}), NO_PLR)["spec"]
    )


def test_step_12_any_other_field_counts_when_the_pods_are_compared_as_they_are():
    assert shown(direct(document(), document(nodeSelector={"a": "b"}))) == [ONLY]
    assert shown(direct(document(), document(container(image="other")))) == [ONLY]
    assert direct(document(), document(nodeSelector={})) == []


@pytest.mark.parametrize(("field", "value"), [("name", "other"), ("namespace", "other"), ("uid", "other")])
def test_step_1_metadata_is_immutable_where_it_is_not_restored(field, value):
    found = shown(direct(document(), document(metadata={field: value})))
    assert found == [f'metadata.{field}: Invalid value: "{value}": field is immutable']
    assert server(document(), document(metadata={field: value})) == []


# Profile `documents`


def test_profile_documents_reports_a_class_change_as_the_documents_do():
    assert shown(server(document(container(resources=GUARANTEED)), document(), ALL, PROFILE_DOCUMENTS)) == [
        'metadata: Invalid value: "Burstable": Pod QoS is immutable'
    ]


def test_profile_documents_allows_removing_entries():
    less = document(container(resources={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}))
    assert server(document(), less, ALL, PROFILE_DOCUMENTS) == []
    assert server(document(), less, ALL, profile_named("1.36")) != []


# What is kept (§4.1)


def test_kept_are_resources_and_policies_only():
    old = document(
        container(image="a", env=[{"name": "A"}]), metadata={"labels": {"a": "b"}}, status={"phase": "Running"}
    )
    sent = document(
        container(resources=resources({"cpu": "2"}), image="b", resizePolicy=RESTARTING),
        metadata={"labels": {"x": "y"}, "resourceVersion": "7"},
        status={"phase": "Failed"},
        nodeSelector={"a": "b"},
    )
    kept = kept_for_resize(old, sent)
    expected = copy.deepcopy(old)
    expected["metadata"]["resourceVersion"] = "7"
    expected["spec"]["containers"][0].update(resources=resources({"cpu": "2"}), resizePolicy=RESTARTING)
    assert kept == expected
    assert spec_changed(old, kept)


def test_with_another_number_of_containers_nothing_is_restored():
    sent = document(container(), container("d"), metadata={"labels": {"x": "y"}}, nodeSelector={"a": "b"})
    assert kept_for_resize(document(), sent) == sent


def test_a_list_in_which_a_name_moved_stays_as_sent_and_the_other_is_restored():
    old = document(container("a", image="1"), container("b", image="1"), initContainers=[{**INIT, "image": "1"}])
    sent = document(
        container("a", image="2"),
        container("x", image="2"),
        initContainers=[{**INIT, "image": "2"}],
        nodeSelector={"a": "b"},
    )
    kept = kept_for_resize(old, sent)["spec"]
    assert kept["containers"] == sent["spec"]["containers"]
    assert kept["initContainers"] == old["spec"]["initContainers"]
    assert "nodeSelector" not in kept


def test_a_resize_to_equal_amounts_changes_nothing():
    kept = kept_for_resize(document(), document(container(resources=resources({"cpu": "1000m"}))))
    assert not spec_changed(document(), kept)


# The node (PodResizeValidator)


def node(cpu: str = "4", memory: str = "8Gi", labels: dict[str, str] | None = None) -> Node:
    return from_document(
        {"metadata": {"name": "n", "labels": labels or {}}, "status": {"allocatable": {"cpu": cpu, "memory": memory}}},
        Node,
    )


def verdict(new: dict[str, Any], where: Node | None, old: dict[str, Any] | None = None) -> ResizeRefusal | None:
    return capacity_verdict(with_defaults(old or document()), with_defaults(new), where)


BIG = document(container(resources=resources({"cpu": "4500m", "memory": "9Gi"}, {"cpu": "5", "memory": "9Gi"})))


SHORT = "node didn't have enough allocatable resources: "


@pytest.mark.parametrize(
    ("new", "where", "answer"),
    [
        pytest.param(BIG, node("5", "9Gi"), None, id="fits"),
        pytest.param(
            BIG,
            node(),
            (
                "NodeCapacity",
                SHORT
                + "cpu, requested: 4500, allocatable: 4000; memory, requested: 9663676416, allocatable: 8589934592",
            ),
            id="both",
        ),
        pytest.param(
            BIG,
            node(cpu="5"),
            ("NodeCapacity", SHORT + "memory, requested: 9663676416, allocatable: 8589934592"),
            id="memory",
        ),
        pytest.param(
            BIG,
            node("4499m", "9Gi"),
            ("NodeCapacity", SHORT + "cpu, requested: 4500, allocatable: 4499"),
            id="a thousandth short",
        ),
        pytest.param(
            BIG,
            node(labels={"kubernetes.io/os": "windows"}),
            ("UnsupportedPlatform", 'pod resize is only supported on linux nodes, node "n" is "windows"'),
            id="platform first",
        ),
        pytest.param(BIG, node("5", "9Gi", {"kubernetes.io/os": "linux"}), None, id="linux"),
        pytest.param(BIG, None, ("", 'node "n" not found'), id="no node"),
        pytest.param(document(), None, None, id="nothing changed"),
        pytest.param({**BIG, "spec": {**BIG["spec"], "nodeName": ""}}, None, None, id="not bound"),
        pytest.param(
            document(overhead={"cpu": "4"}),
            node(),
            ("NodeCapacity", SHORT + "cpu, requested: 5000, allocatable: 4000"),
            id="overhead counts",
        ),
        pytest.param(
            document(resources={"requests": {"cpu": "9"}}),
            node(),
            ("NodeCapacity", SHORT + "cpu, requested: 9000, allocatable: 4000"),
            id="pod level counts",
        ),
    ],
)
def test_capacity(new, where, answer):
    assert verdict(new, where) == (None if answer is None else ResizeRefusal(*answer))


# Properties

AMOUNT = st.integers(1, 10**6)


@given(AMOUNT, AMOUNT, AMOUNT, AMOUNT)
def test_any_amounts_of_a_burstable_pod_may_follow_any_others(cpu, memory, more_cpu, more_memory):
    after = {
        "requests": {"cpu": f"{cpu}m", "memory": str(memory)},
        "limits": {"cpu": f"{cpu + more_cpu}m", "memory": str(memory + more_memory)},
    }
    assert server(document(), document(container(resources=after))) == []


@given(
    st.dictionaries(
        st.sampled_from(["hostname", "nodeSelector", "tolerations", "terminationGracePeriodSeconds"]),
        st.just([]) | st.just({"a": "b"}),
    )
)
def test_what_the_server_restores_is_never_refused(extra):
    """The kept document depends only on resources and policies, and keeping twice is the same."""
    old, sent = document(), document(container(resources=resources({"cpu": "2"})))
    changed = {**sent, "spec": {**sent["spec"], **extra}}
    kept = kept_for_resize(old, changed)
    assert kept == kept_for_resize(old, sent) == kept_for_resize(old, kept)
