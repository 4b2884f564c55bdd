"""Validation of resources: containers and pod level."""

from __future__ import annotations

import pytest

from plimsoll.rules.admission.validation import create_errors, pod_errors, resource_errors
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from tests.unit.rules.admission.pod_documents import C0, I0, container, pod, pod_level, shown

CPU_AND_MEMORY = {"cpu": "1", "memory": "1Gi"}


def with_resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> Pod:
    resources = {"requests": requests, "limits": limits}
    return pod(container(resources={key: value for key, value in resources.items() if value is not None}))


def test_v0_a_good_pod_has_no_errors():
    assert create_errors(with_resources(CPU_AND_MEMORY, CPU_AND_MEMORY)) == []


# Container resources (§4.1)

RESOURCES = [
    (
        "V-1 no qualified name",
        {"a b": "1"},
        {"a b": "1"},
        [
            f'{C0}.resources.{kind}[a b]: Invalid value: "a b": {problem}'
            for kind in ("limits", "requests")
            for problem in (
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
                "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
                "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                "must be a standard resource for containers",
            )
        ],
    ),
    (
        "V-2 and V-3 unknown",
        {"foo": "1"},
        None,
        [
            f'{C0}.resources.requests[foo]: Invalid value: "foo": must be a standard resource type or fully qualified',
            f'{C0}.resources.requests[foo]: Invalid value: "foo": must be a standard resource for containers',
        ],
    ),
    (
        "V-3 not for containers",
        {"pods": "1"},
        None,
        [f'{C0}.resources.requests[pods]: Invalid value: "pods": must be a standard resource for containers'],
    ),
    (
        "V-4 and V-10",
        {"requests.x.com/y": "1"},
        None,
        [
            f'{C0}.resources.requests[requests.x.com/y]: Invalid value: "requests.x.com/y": '
            "doesn't follow extended resource name standard",
            f"{C0}.resources.limits: Required value: Limit must be set for non overcommitable resources",
        ],
    ),
    (
        "V-5 request",
        {"cpu": "-2"},
        None,
        [f'{C0}.resources.requests[cpu]: Invalid value: "-2": must be greater than or equal to 0'],
    ),
    (
        "V-5 twice for a limit alone (V-15)",
        None,
        {"memory": "-1Mi"},
        [
            f'{C0}.resources.{kind}[memory]: Invalid value: "-1Mi": must be greater than or equal to 0'
            for kind in ("limits", "requests")
        ],
    ),
    (
        "V-6 half a device",
        {"x.com/gpu": "500m"},
        {"x.com/gpu": "500m"},
        [
            f'{C0}.resources.{kind}[x.com/gpu]: Invalid value: "500m": must be an integer'
            for kind in ("limits", "requests")
        ],
    ),
    (
        "V-7 no whole pages",
        {"cpu": "1"},
        {"hugepages-2Mi": "3Mi"},
        [
            f'{C0}.resources.{kind}[hugepages-2Mi]: Invalid value: "3Mi": '
            "3Mi is not positive integer multiple of hugepages-2Mi"
            for kind in ("limits", "requests")
        ],
    ),
    (
        "V-7 no page size",
        {"cpu": "1"},
        {"hugepages-x": "2Mi"},
        [
            f'{C0}.resources.{kind}[hugepages-x]: Invalid value: "2Mi": '
            "2Mi is not positive integer multiple of hugepages-x"
            for kind in ("limits", "requests")
        ],
    ),
    (
        "V-8 at requests, without the key",
        {"cpu": "2"},
        {"cpu": "1"},
        [f'{C0}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
    ),
    (
        "V-8 a thousandth too many",
        {"cpu": "1001m"},
        {"cpu": "1"},
        [f'{C0}.resources.requests: Invalid value: "1001m": must be less than or equal to cpu limit of 1'],
    ),
    (
        "V-15 a kept text is shown as written",
        {"cpu": "500m"},
        {"cpu": "200e-3"},
        [f'{C0}.resources.requests: Invalid value: "500m": must be less than or equal to cpu limit of 200e-3'],
    ),
    (
        "V-8 for a native name with prefix",
        {"kubernetes.io/batch": "2"},
        {"kubernetes.io/batch": "1"},
        [f'{C0}.resources.requests: Invalid value: "2": must be less than or equal to kubernetes.io/batch limit of 1'],
    ),
    (
        "V-9 fewer is wrong too",
        {"x.com/gpu": "1"},
        {"x.com/gpu": "2"},
        [f'{C0}.resources.requests: Invalid value: "1": must be equal to x.com/gpu limit of 2'],
    ),
    (
        "V-10 extended",
        {"x.com/gpu": "1"},
        None,
        [f"{C0}.resources.limits: Required value: Limit must be set for non overcommitable resources"],
    ),
    (
        "V-11 hugepages alone",
        None,
        {"hugepages-2Mi": "2Mi"},
        [f"{C0}.resources: Forbidden: HugePages require cpu or memory"],
    ),
    ("V-11 cpu in the other list", {"cpu": "0"}, {"hugepages-2Mi": "2Mi"}, []),
    ("zero is legal everywhere", {"cpu": "0", "memory": "0"}, {"cpu": "0", "memory": "0", "x.com/gpu": "0"}, []),
    ("equal in another unit", {"cpu": "1000m"}, {"cpu": "1"}, []),
    ("limits only", None, {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "x.com/gpu": "2"}, []),
]


@pytest.mark.parametrize(
    ("requests", "limits", "errors"), [row[1:] for row in RESOURCES], ids=[row[0] for row in RESOURCES]
)
def test_container_resources(requests, limits, errors):
    assert shown(create_errors(with_resources(requests, limits))) == sorted(errors)


def test_the_same_rules_hold_for_init_containers_and_for_a_block_by_itself():
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    sentence = 'Invalid value: "2": must be less than or equal to cpu limit of 1'
    assert shown(create_errors(pod(initContainers=[container("i", resources=resources)]))) == [
        f"{I0}.resources.requests: {sentence}"
    ]
    block = with_resources(resources["requests"], resources["limits"]).spec.containers[0].resources
    assert shown(resource_errors(block, "x.y")) == [f"x.y.requests: {sentence}"]


def test_v12_overhead_is_checked_like_limits():
    assert shown(create_errors(pod(overhead={"cpu": "-1", "hugepages-2Mi": "2Mi"}))) == [
        'spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'
    ]
    assert shown(create_errors(pod(overhead={"hugepages-2Mi": "2Mi"}))) == [
        "spec.overhead: Forbidden: HugePages require cpu or memory"
    ]


def test_v13_ephemeral_containers_have_no_resources():
    ephemeral = container(
        "e",
        resources={"requests": {"cpu": "1"}},
        resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    )
    wanted = pod(ephemeralContainers=[ephemeral])
    errors = [
        "spec.ephemeralContainers[0].resizePolicy: Forbidden: cannot be set for an Ephemeral Container",
        "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container",
    ]
    assert shown(pod_errors(wanted)) == errors
    assert shown(create_errors(wanted)) == ["spec.ephemeralContainers: Forbidden: cannot be set on create", *errors]
    assert pod_errors(pod(ephemeralContainers=[container("e", resources={})])) == []


def test_v14_a_mirror_pod_names_its_node():
    annotations = {"kubernetes.io/config.mirror": "abc"}
    assert shown(create_errors(pod(metadata={"annotations": annotations}))) == [
        'metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "abc": '
        "must set spec.nodeName if mirror pod annotation is set"
    ]
    assert create_errors(pod(metadata={"annotations": annotations}, nodeName="n")) == []


# Pod level (§4.2)

BIG = {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}


POD_LEVEL = [
    (
        "V-20 windows, only this error",
        {"requests": {"foo": "-1"}},
        {},
        {"os": {"name": "windows"}},
        ["spec.resources: Forbidden: may not be set for a windows pod"],
    ),
    (
        "V-21 claims, even none",
        {"claims": []},
        {},
        {},
        ["spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"],
    ),
    (
        "V-22 name",
        {"requests": {"ephemeral-storage": "1Gi"}},
        {},
        {},
        [
            'spec.resources.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"'
        ],
    ),
    (
        "V-23 request above limit",
        {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
        {},
        {},
        ['spec.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
    ),
    (
        "V-24 aggregate of the containers",
        {"requests": {"cpu": "2"}},
        {"requests": {"cpu": "3"}},
        {},
        [
            'spec.resources.requests[cpu]: Invalid value: "2": must be greater than or equal to aggregate container requests of 3'
        ],
    ),
    ("V-24 only where both are set", {"requests": {"memory": "1Gi"}}, {"requests": {"cpu": "3"}}, {}, []),
    (
        "V-24, V-25 and V-26 hugepages",
        {"limits": {"cpu": "4", "hugepages-2Mi": "2Mi"}},
        {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}},
        {},
        [
            'spec.resources.limits[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or equal to aggregate container limits of 4Mi',
            'spec.resources.containers[0][hugepages-2Mi].limits: Invalid value: "4Mi": must be less than or equal to pod limits of 2Mi',
            'spec.resources.requests[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or equal to aggregate container requests of 4Mi',
        ],
    ),
    (
        "V-26 one limit above the pod's",
        {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}},
        BIG,
        {},
        ['spec.resources.containers[0][cpu].limits: Invalid value: "4": must be less than or equal to pod limits of 3'],
    ),
    ("empty block", {}, BIG, {}, []),
]


@pytest.mark.parametrize(
    ("block", "own", "spec", "errors"), [row[1:] for row in POD_LEVEL], ids=[row[0] for row in POD_LEVEL]
)
def test_pod_level_resources(block, own, spec, errors):
    wanted = pod_level(block, container(resources=own), **spec)
    assert shown(create_errors(wanted)) == sorted(errors)
    assert create_errors(wanted, gates=Gates(pod_level=False)) == [], "gate off: the field is dropped before validation"


def test_v26_the_sum_of_limits_may_exceed_the_pods_and_init_containers_do_not_count():
    half = {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}
    block = {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    assert create_errors(pod_level(block, container("a", resources=half), container("b", resources=half))) == []
    init = container("i", resources={"requests": {"cpu": "1"}, "limits": {"cpu": "9"}})
    assert create_errors(pod_level(block, initContainers=[init])) == []
