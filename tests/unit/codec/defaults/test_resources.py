"""Defaults written back into a document (spec 01 §3): only resource lists change, in canonical text."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import InvalidObjectError
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod


def pod(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers), "x-unknown": [1], **fields.pop("spec", {})},
        **fields,
    }


ROWS = [
    ("D-1 requests from limits", {"limits": {"cpu": "1"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}),
    ("D-1 empty limits bring empty requests", {"limits": {}}, {"requests": {}, "limits": {}}),
    ("R-2 rounded up to a thousandth", {"requests": {"cpu": "0.1m"}}, {"requests": {"cpu": "1m"}}),
    (
        "Q-9 canonical text",
        {"requests": {"cpu": 0.5, "memory": " 1024Mi "}},
        {"requests": {"cpu": "500m", "memory": "1Gi"}},
    ),
    ("null list is absent", {"requests": None}, {}),
    (
        "other fields stay",
        {"claims": [{"name": "x"}], "limits": {"cpu": "1"}},
        {"claims": [{"name": "x"}], "requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
    ),
]


@pytest.mark.parametrize(("sent", "kept"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_container_resources(kind, sent, kept):
    document = pod({"name": "c"}, spec={kind: [{"name": "c", "resources": sent, "env": []}]})
    before = copy.deepcopy(document)
    after = with_defaults(document).document
    assert after["spec"][kind] == [{"name": "c", "resources": kept, "env": []}]
    assert after["spec"]["x-unknown"] == [1]
    assert document == before, "the argument is never changed"


def test_pod_level_overhead_and_status():
    document = pod(
        {"name": "c", "resources": {"requests": {"cpu": "2"}}},
        spec={"resources": {"limits": {"memory": "1024Mi"}}, "overhead": {"cpu": "0.1"}},
        status={
            "containerStatuses": [
                {
                    "name": "c",
                    "ready": True,
                    "allocatedResources": {"cpu": "1.0"},
                    "resources": {"limits": {"cpu": "1.0"}},
                }
            ],
            "resources": {"requests": {"cpu": "2.0"}},
        },
    )
    after = with_defaults(document).document
    assert after["spec"]["resources"] == {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    assert after["spec"]["overhead"] == {"cpu": "100m"}
    assert after["status"] == {
        "containerStatuses": [
            {"name": "c", "ready": True, "allocatedResources": {"cpu": "1"}, "resources": {"limits": {"cpu": "1"}}}
        ],
        "resources": {"requests": {"cpu": "2"}},
    }


def test_d3_resize_policy_of_profile_documents():
    document = pod({"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}})
    after = with_defaults(document, resize_policy=True).document
    assert after["spec"]["containers"][0]["resizePolicy"] == [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "NotRequired"},
    ]
    assert "resizePolicy" not in with_defaults(document).document["spec"]["containers"][0]


def test_a_container_that_is_null_is_an_empty_one():
    assert with_defaults(pod(None)).document["spec"]["containers"] == [{}]  # type: ignore[arg-type]


def test_a_bad_quantity_is_refused_with_its_path():
    with pytest.raises(InvalidObjectError) as raised:
        with_defaults(pod({"name": "c", "resources": {"limits": {"cpu": "1x"}}}))
    assert [error.field for error in raised.value.errors] == ["spec.containers[0].resources.limits[cpu]"]


TEXTS = st.sampled_from(["1", "1.5", "0.0001", "100m", "1Gi", "1e3", "0", "1.123"])
LISTS = st.none() | st.dictionaries(st.sampled_from(["cpu", "memory", "x.com/gpu"]), TEXTS)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": LISTS, "limits": LISTS})


@given(st.lists(RESOURCES, min_size=1, max_size=3), st.none() | RESOURCES, st.builds(Gates, pod_level=st.booleans()))
def test_both_views_agree_and_defaulting_twice_changes_nothing(blocks, own, gates):
    containers = [{"name": f"c{index}", "resources": block} for index, block in enumerate(blocks)]
    once = with_defaults(pod(*containers, spec={"resources": own}), gates=gates)
    assert from_document(once.document, Pod) == once.pod
    assert with_defaults(once.document, gates=gates) == once
