"""/resize at the API (03 §4.1, §4.2): what is kept of a request, what is refused, and whether the node is large enough."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import FieldError
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.admission.resize import (
    ResizeRefusal,
    capacity_verdict,
    kept_for_resize,
    resize_errors,
    spec_changed,
)
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named

BURSTABLE = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
GUARANTEED = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
NO_PLR = Gates(pod_level_resize=False)
NO_INIT = Gates(init_containers=False)
NEW = profile_named("1.36")
ALL = Gates()


def container(name: str = "c", resources: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "nginx", "resources": BURSTABLE if resources is None else resources, **fields}


def document(
    *containers: dict[str, Any],
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "demo", "namespace": "default", "uid": "u", "generation": 3, **(metadata or {})},
        "spec": {"nodeName": "n", "containers": list(containers or (container(),)), **spec},
        "status": status or {},
    }


def resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "requests": {**BURSTABLE["requests"], **(requests or {})},
        "limits": {**BURSTABLE["limits"], **(limits or {})},
    }


def direct(old: dict[str, Any], new: dict[str, Any], gates: Gates = ALL, profile: Any = NEW) -> list[FieldError]:
    return resize_errors(with_defaults(old), with_defaults(new), gates, profile)


def server(old: dict[str, Any], new: dict[str, Any], gates: Gates = ALL, profile: Any = NEW) -> list[FieldError]:
    stored, sent = with_defaults(old), with_defaults(new)
    kept = kept_for_resize(stored.document, sent.document, gates)
    return resize_errors(stored, PodVersion(kept, from_document(kept, Pod)), gates, profile)


def shown(errors: list[FieldError]) -> list[str]:
    return sorted(map(str, errors))


ONLY = "spec: Forbidden: only cpu and memory resources are mutable"
QOS = 'spec: Invalid value: "": Pod QOS Class may not change as a result of resizing'

# What may change (step 9: adding is fine)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(resources({"cpu": "1500m"}), id="cpu request"),
        pytest.param(resources({"memory": "512Mi"}, {"memory": "1Gi"}), id="memory down"),
        pytest.param(resources({"cpu": "1000m", "memory": "1024Mi"}), id="same by value"),
    ],
)
def test_cpu_and_memory_may_change(after):
    assert server(document(), document(container(resources=after))) == []


def test_step_9_entries_may_be_added():
    assert server(document(container(resources={"requests": {"cpu": "1"}})), document()) == []
    assert (
        server(document(container(resources=BURSTABLE), container("d", {})), document(container(), container("d")))
        == []
    )


# What is refused, step by step. Rows: old, new, gates, expected.

INIT = container("i", {"requests": {"cpu": "1"}})
SIDECAR = container("i", {"requests": {"cpu": "1"}}, restartPolicy="Always")
RESTARTING = [
    {"resourceName": "cpu", "restartPolicy": "RestartContainer"},
    {"resourceName": "memory", "restartPolicy": "RestartContainer"},
]
RUNNING = {"name": "c", "state": {"running": {}}}


def init(spec: dict[str, Any], cpu: str = "2", **changes: Any) -> dict[str, Any]:
    return {**spec, "resources": {"requests": {"cpu": cpu}}, **changes}


STEPS = [
    (
        "1 create validation",
        document(),
        document(container(resources=resources({"cpu": "3"}))),
        ALL,
        ['spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal to cpu limit of 2'],
    ),
    (
        "1 hugepages rule off when the old pod breaks it",
        document(container(resources=resources({}, {"hugepages-2Mi": "3Mi"}))),
        document(container(resources=resources({"cpu": "1100m"}, {"hugepages-2Mi": "3Mi"}))),
        ALL,
        [],
    ),
    (
        "1 a name twice",
        document(container(), container("d")),
        document(container(), container("c")),
        ALL,
        [
            'spec.containers[1].name: Duplicate value: "c"',
            "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize",
        ],
    ),
    (
        "2 mirror pod, nothing else is said",
        document(metadata={"annotations": {"kubernetes.io/config.mirror": ""}}),
        document(
            container(resources=resources({"cpu": "3"})), metadata={"annotations": {"kubernetes.io/config.mirror": ""}}
        ),
        ALL,
        ["[]: Forbidden: static pods cannot be resized"],
    ),
    (
        "2 config.source plays no part",
        document(metadata={"annotations": {"kubernetes.io/config.source": "file"}}),
        document(
            container(resources=resources({"cpu": "2"})),
            metadata={"annotations": {"kubernetes.io/config.source": "file"}},
        ),
        ALL,
        [],
    ),
    (
        "3 windows",
        document(os={"name": "windows"}),
        document(container(resources=resources({"cpu": "3"})), os={"name": "windows"}),
        ALL,
        ["[]: Forbidden: windows pods cannot be resized"],
    ),
    ("4 class computed", document(), document(container(resources=GUARANTEED)), ALL, [QOS]),
    (
        "4 class stored",
        document(status={"qosClass": "Guaranteed"}),
        document(),
        ALL,
        ['spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing'],
    ),
    (
        "5 node without support",
        document(status={"containerStatuses": [{"name": "x"}, RUNNING, {**RUNNING, "resources": {}}]}),
        document(),
        ALL,
        ["spec: Forbidden: Pod running on node without support for resize"],
    ),
    (
        "5 empty resources are support",
        document(status={"containerStatuses": [{**RUNNING, "resources": {}}]}),
        document(),
        ALL,
        [],
    ),
    (
        "5 nothing runs",
        document(status={"containerStatuses": [{"name": "c", "state": {"waiting": {}}}]}),
        document(),
        ALL,
        [],
    ),
    (
        "6 gate off, stop",
        document(resources={"requests": {"cpu": "4"}}),
        document(container("other"), resources={"requests": {"cpu": "4"}}),
        NO_PLR,
        [
            "[]: Forbidden: resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"
        ],
    ),
    (
        "6 an empty block does not count",
        document(container(resources={}), resources={}),
        document(container(resources={}), resources={}),
        NO_PLR,
        [],
    ),
    (
        "6 block removed",
        document(resources={"requests": {"cpu": "4"}}),
        document(),
        ALL,
        ["spec.resources: Forbidden: pod-level resources cannot be removed"],
    ),
    (
        "6 entries removed, once per list",
        document(resources={"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"cpu": "5", "memory": "9Gi"}}),
        document(resources={"requests": {}, "limits": {"memory": "9Gi"}}),
        ALL,
        ["spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"],
    ),
    (
        "6 cpu and memory change",
        document(resources={"requests": {"cpu": "4"}}),
        document(resources={"requests": {"cpu": "5", "memory": "8Gi"}}),
        ALL,
        [],
    ),
    (
        "6 block of cpu and memory added",
        document(),
        document(resources={"requests": {"cpu": "5", "memory": "8Gi"}}),
        ALL,
        [],
    ),
    (
        "6 hugepages at pod level",
        document(resources={"requests": {"cpu": "4"}, "limits": {"cpu": "4", "hugepages-2Mi": "2Mi"}}),
        document(resources={"requests": {"cpu": "4"}, "limits": {"cpu": "4", "hugepages-2Mi": "4Mi"}}),
        ALL,
        ["spec: Forbidden: only cpu and memory resources are mutable at pod-level"],
    ),
    (
        "7 devices that stand for cpu",
        document(status={"nodeAllocatableResourceClaimStatuses": [{"name": "x"}]}),
        document(),
        ALL,
        ["spec: Forbidden: pods with node allocatable resource claims cannot be resized"],
    ),
    (
        "8 container added, stop",
        document(),
        document(container(resources={}), container("d")),
        ALL,
        ["spec.containers: Forbidden: containers may not be added or removed on resize"],
    ),
    (
        "8 both lists are examined",
        document(container("a"), container("b"), initContainers=[INIT]),
        document(container("b"), container("a")),
        ALL,
        [
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
            "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize",
            "spec.initContainers: Forbidden: initContainers may not be added or removed on resize",
        ],
    ),
    (
        "9 removed, once per list",
        document(),
        document(container(resources={"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Gi"}})),
        ALL,
        ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"],
    ),
    (
        "9 zero counts as present",
        document(container(resources=resources({"ephemeral-storage": "0"}))),
        document(),
        ALL,
        [ONLY, "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"],
    ),
    (
        "9 init container",
        document(initContainers=[INIT]),
        document(initContainers=[{**INIT, "resources": {}}]),
        ALL,
        ["spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be removed"],
    ),
    (
        "10 other resources",
        document(),
        document(container(resources=resources({}, {"ephemeral-storage": "1Gi"}))),
        ALL,
        [ONLY],
    ),
    (
        "10 once per container",
        document(container("a"), container("b")),
        document(*(container(name, resources({}, {"x.com/gpu": "1"})) for name in "ab")),
        ALL,
        [ONLY, ONLY],
    ),
    ("10 resize policy", document(), document(container(resizePolicy=RESTARTING)), ALL, [ONLY]),
    (
        "10 old claims always count",
        document(container(resources={**BURSTABLE, "claims": [{"name": "x"}]})),
        document(container(resources={**BURSTABLE, "claims": [{"name": "x"}]})),
        ALL,
        [ONLY],
    ),
    (
        "10 new claims never do",
        document(),
        document(container(resources={**BURSTABLE, "claims": [{"name": "x"}]})),
        ALL,
        [],
    ),
    ("11 init container", document(initContainers=[INIT]), document(initContainers=[init(INIT)]), ALL, []),
    (
        "11 sidecar without the gate",
        document(initContainers=[SIDECAR]),
        document(initContainers=[init(SIDECAR)]),
        NO_INIT,
        [],
    ),
    (
        "11 init container without the gate",
        document(initContainers=[INIT]),
        document(initContainers=[init(INIT)]),
        NO_INIT,
        ["spec: Forbidden: resources for non-sidecar init containers are immutable"],
    ),
    (
        "11 other resources of an init container",
        document(initContainers=[INIT]),
        document(initContainers=[{**INIT, "resources": {"requests": {"cpu": "1", "ephemeral-storage": "1"}}}]),
        ALL,
        ["spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable"],
    ),
    (
        "11 one error for each restarting policy",
        document(initContainers=[{**INIT, "resizePolicy": RESTARTING}]),
        document(initContainers=[init({**INIT, "resizePolicy": RESTARTING})]),
        ALL,
        [
            "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        ]
        * 2,
    ),
    (
        "11 unchanged, whatever its policy",
        document(initContainers=[{**INIT, "resizePolicy": RESTARTING}]),
        document(initContainers=[{**INIT, "resizePolicy": RESTARTING}]),
        ALL,
        [],
    ),
    (
        "12 empty block dropped",
        document(container(resources={}), resources={}),
        document(container(resources={})),
        ALL,
        [ONLY],
    ),
    (
        "12 not reached after another error",
        document(resources={}),
        document(container(resources={})),
        ALL,
        [
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ],
    ),
]


@pytest.mark.parametrize(("old", "new", "gates", "errors"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS])
def test_steps(old, new, gates, errors):
    assert shown(server(old, new, gates)) == sorted(errors)


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
