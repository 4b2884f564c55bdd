"""Validation of resizePolicy and of the rest of a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.validation import Relaxation, create_errors, pod_errors, relaxation, resource_errors
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.quantity import from_milli
from plimsoll.rules.resources.defaulting import defaulted
from tests.unit.rules.admission.pod_documents import C0, I0, container, pod, pod_level, shown

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
