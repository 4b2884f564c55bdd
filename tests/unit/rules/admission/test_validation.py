"""Validation of a pod at create (spec 01 §4, 03 §3.1): one row per clause, the error it gives and where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import FieldError
from plimsoll.rules.admission.validation import Relaxation, create_errors, pod_errors, relaxation, resource_errors
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.quantity import from_milli
from plimsoll.rules.resources.defaulting import defaulted

C0 = "spec.containers[0]"
I0 = "spec.initContainers[0]"
CPU_AND_MEMORY = {"cpu": "1", "memory": "1Gi"}


def container(name: str = "c", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "nginx", **fields}


def pod(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> Pod:
    document = {
        "metadata": {"name": "p", "namespace": "default", **(metadata or {})},
        "spec": {"containers": list(containers or (container(),)), **spec},
    }
    return defaulted(from_document(document, Pod))


def with_resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> Pod:
    resources = {"requests": requests, "limits": limits}
    return pod(container(resources={key: value for key, value in resources.items() if value is not None}))


def pod_level(resources: dict[str, Any], *containers: dict[str, Any], **spec: Any) -> Pod:
    return pod(*containers, resources=resources, **spec)


def shown(errors: list[FieldError]) -> list[str]:
    return sorted(map(str, errors))


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


# resizePolicy (§4.3, 03 §3.1)


def policy(*entries: tuple[str, str]) -> list[dict[str, str]]:
    return [{"resourceName": name, "restartPolicy": restart} for name, restart in entries]


POLICIES = [
    ("both", [("cpu", "NotRequired"), ("memory", "RestartContainer")], {}, []),
    ("twice", [("cpu", "NotRequired"), ("cpu", "NotRequired")], {}, [f'{C0}.resizePolicy[1]: Duplicate value: "cpu"']),
    ("no name", [("", "NotRequired")], {}, [f"{C0}.resizePolicy: Required value"]),
    (
        "other name",
        [("x.com/gpu", "NotRequired")],
        {},
        [f'{C0}.resizePolicy: Unsupported value: "x.com/gpu": supported values: "cpu", "memory"'],
    ),
    ("no policy", [("cpu", "")], {}, [f"{C0}.resizePolicy: Required value"]),
    (
        "other policy",
        [("cpu", "Maybe")],
        {},
        [f'{C0}.resizePolicy: Unsupported value: "Maybe": supported values: "NotRequired", "RestartContainer"'],
    ),
    (
        "never",
        [("cpu", "RestartContainer")],
        {"restartPolicy": "Never"},
        [
            f"{C0}.resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'"
        ],
    ),
    ("never, not required", [("cpu", "NotRequired")], {"restartPolicy": "Never"}, []),
]


@pytest.mark.parametrize(("entries", "spec", "errors"), [row[1:] for row in POLICIES], ids=[row[0] for row in POLICIES])
def test_resize_policy(entries, spec, errors):
    assert shown(create_errors(pod(container(resizePolicy=policy(*entries)), **spec))) == sorted(errors)


def test_only_sidecars_among_init_containers_may_restart_for_a_resize():
    entries = policy(("cpu", "NotRequired"), ("memory", "RestartContainer"))
    ordinary = pod(initContainers=[container("i", resizePolicy=entries)])
    assert shown(create_errors(ordinary)) == [
        f"{I0}.resizePolicy[1].restartPolicy: Invalid value: \"RestartContainer\": must not be set to 'RestartContainer' for non-sidecar initContainers"
    ]
    assert create_errors(pod(initContainers=[container("i", resizePolicy=entries, restartPolicy="Always")])) == []
    assert relaxation(ordinary) == Relaxation(init_restart=True)
    assert pod_errors(ordinary, relaxed=relaxation(ordinary)) == []


HALF_PAGES = {"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}}


@pytest.mark.parametrize(
    ("old", "relaxed"),
    [
        pytest.param(pod(container(resources=HALF_PAGES)), True, id="container"),
        pytest.param(pod(initContainers=[container("i", resources=HALF_PAGES)]), True, id="init container"),
        pytest.param(pod(overhead={"cpu": "1", "hugepages-2Mi": "3Mi"}), True, id="overhead"),
        pytest.param(pod_level(HALF_PAGES), False, id="pod level does not count"),
    ],
)
def test_v7_is_off_when_the_stored_pod_breaks_it(old, relaxed):
    assert relaxation(old).any_hugepages is relaxed
    assert (pod_errors(pod(container(resources=HALF_PAGES)), relaxed=relaxation(old)) == []) is relaxed


# The rest of a pod

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
BASICS = [
    ("name", pod(metadata={"name": ""}), ["metadata.name: Required value: name or generateName is required"]),
    ("generated name", pod(metadata={"name": "", "generateName": "p-"}), []),
    ("bad name", pod(metadata={"name": "P"}), [f'metadata.name: Invalid value: "P": {SUBDOMAIN}']),
    (
        "bad namespace",
        pod(metadata={"namespace": "a.b"}),
        ['metadata.namespace: Invalid value: "a.b": must not contain dots'],
    ),
    (
        "long label",
        pod(metadata={"labels": {"a": "b" * 64}}),
        [f'metadata.labels: Invalid value: "{"b" * 64}": must be no more than 63 bytes'],
    ),
    (
        "label key",
        pod(metadata={"labels": {"/a": ""}}),
        ['metadata.labels: Invalid value: "/a": prefix part must be non-empty'],
    ),
    ("annotation key with capitals", pod(metadata={"annotations": {"X.com/A": "any text"}}), []),
    (
        "annotations too long",
        pod(metadata={"annotations": {"a": "b" * 262144}}),
        ["metadata.annotations: Too long: may not be more than 262144 bytes"],
    ),
    ("no containers", defaulted(from_document({"metadata": {"name": "p"}}, Pod)), ["spec.containers: Required value"]),
    ("container without a name", pod(container("")), [f"{C0}.name: Required value"]),
    ("container name with dots", pod(container("a.b")), [f'{C0}.name: Invalid value: "a.b": must not contain dots']),
    ("same name", pod(container(), container()), ['spec.containers[1].name: Duplicate value: "c"']),
    ("same name, init", pod(initContainers=[container()]), [f'{I0}.name: Duplicate value: "c"']),
    ("no image", pod({"name": "c"}), [f"{C0}.image: Required value"]),
    (
        "image with a blank",
        pod({"name": "c", "image": " nginx"}),
        [f'{C0}.image: Invalid value: " nginx": must not have leading or trailing whitespace'],
    ),
    (
        "port",
        pod(container(ports=[{"containerPort": 70000}])),
        [f"{C0}.ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"],
    ),
    ("no port", pod(container(ports=[{}])), [f"{C0}.ports[0].containerPort: Required value"]),
    (
        "protocol",
        pod(container(ports=[{"containerPort": 1, "protocol": "X"}])),
        [f'{C0}.ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"'],
    ),
    (
        "host port taken",
        pod(
            container(ports=[{"containerPort": 1, "hostPort": 80}]),
            container("d", ports=[{"containerPort": 2, "hostPort": 80}]),
        ),
        ['spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//80"'],
    ),
    (
        "host port with the host's network",
        pod(container(ports=[{"containerPort": 1, "hostPort": 80}]), hostNetwork=True),
        [f"{C0}.ports[0].hostPort: Invalid value: 80: must match `containerPort` when `hostNetwork` is true"],
    ),
    (
        "restart policy",
        pod(restartPolicy="Sometimes"),
        ['spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'],
    ),
    ("node name", pod(nodeName="N"), [f'spec.nodeName: Invalid value: "N": {SUBDOMAIN}']),
    ("priority class", pod(priorityClassName="N"), [f'spec.priorityClassName: Invalid value: "N": {SUBDOMAIN}']),
    ("runtime class", pod(runtimeClassName="N"), [f'spec.runtimeClassName: Invalid value: "N": {SUBDOMAIN}']),
    (
        "toleration",
        pod(tolerations=[{"key": "k", "operator": "In"}]),
        ['spec.tolerations[0].operator: Unsupported value: "In": supported values: "Equal", "Exists"'],
    ),
    (
        "preemption",
        pod(preemptionPolicy="X"),
        ['spec.preemptionPolicy: Unsupported value: "X": supported values: "PreemptLowerPriority", "Never"'],
    ),
    (
        "node selector",
        pod(nodeSelector={"a": "b" * 64}),
        [f'spec.nodeSelector: Invalid value: "{"b" * 64}": must be no more than 63 bytes'],
    ),
    ("os", pod(os={"name": "beos"}), ['spec.os: Unsupported value: "beos": supported values: "linux", "windows"']),
    ("os without a name", pod(os={}), ["spec.os.name: Required value: cannot be empty"]),
]


@pytest.mark.parametrize(("wanted", "errors"), [row[1:] for row in BASICS], ids=[row[0] for row in BASICS])
def test_basics(wanted, errors):
    assert shown(create_errors(wanted)) == sorted(errors)


def test_errors_are_in_kubernetes_order():
    broken = pod(
        container("", resources={"requests": {"cpu": "-1"}}),
        metadata={"name": ""},
        restartPolicy="X",
        overhead={"foo": "1"},
    )
    assert [error.field for error in create_errors(broken)] == [
        "metadata.name",
        f"{C0}.name",
        f"{C0}.resources.requests[cpu]",
        "spec.restartPolicy",
        "spec.overhead.limits[foo]",
        "spec.overhead.limits[foo]",
    ]


MILLI = st.integers(0, 10**15)


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), st.tuples(MILLI, MILLI)))
def test_v8_exactly_the_names_with_a_request_above_the_limit(amounts):
    block = Resources(
        requests={name: from_milli(request) for name, (request, _) in amounts.items()},
        limits={name: from_milli(limit) for name, (_, limit) in amounts.items()},
    )
    errors = resource_errors(block, "r")
    above = {name for name, (request, limit) in amounts.items() if request > limit}
    assert {error.detail.split()[7] for error in errors} == above
    assert all(error.field == "r.requests" for error in errors)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=4), st.integers(0, 4 * 10**9))
def test_v24_the_pod_must_request_at_least_the_sum_of_its_containers(requests, own):
    containers = [
        container(f"c{index}", resources={"requests": {"cpu": f"{milli}m"}}) for index, milli in enumerate(requests)
    ]
    errors = create_errors(pod_level({"requests": {"cpu": f"{own}m"}}, *containers))
    assert [error.field for error in errors] == (["spec.resources.requests[cpu]"] if sum(requests) > own else [])
