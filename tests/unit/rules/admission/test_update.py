"""A plain PATCH or PUT of a pod (03 §4.3, 01 V-30): the few fields that may change, and the message for the rest."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.rules.admission.update import plain_patch_errors, proposed
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named

BURSTABLE = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
FIXED = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
FIXED_DOCUMENTED = f"{FIXED},`spec.containers[*].resources` (for CPU/memory only)"


def container(name: str = "c", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "nginx", "resources": BURSTABLE, **fields}


def pod(
    *containers: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "demo", "namespace": "default", **(metadata or {})},
        "spec": {"containers": list(containers or (container(),)), **spec},
        "status": status or {},
    }


def amounts(**changes: str) -> dict[str, Any]:
    return {"requests": {**BURSTABLE["requests"], **changes}, "limits": BURSTABLE["limits"]}


def found(old: dict[str, Any], new: dict[str, Any], profile: Any = PROFILE_DOCUMENTS, **gates: bool) -> list[str]:
    return [str(error) for error in plain_patch_errors(with_defaults(old), with_defaults(new), profile, **gates)]


SECONDS = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
ROWS = [
    ("nothing", pod(), pod(), []),
    ("image", pod(), pod(container(image="other")), []),
    ("init image", pod(initContainers=[container("i")]), pod(initContainers=[container("i", image="other")]), []),
    ("metadata", pod(), pod(metadata={"labels": {"a": "b"}}), []),
    ("deadline set", pod(), pod(activeDeadlineSeconds=10), []),
    ("deadline nearer", pod(activeDeadlineSeconds=10), pod(activeDeadlineSeconds=5), []),
    (
        "deadline later",
        pod(activeDeadlineSeconds=5),
        pod(activeDeadlineSeconds=10),
        ["spec.activeDeadlineSeconds: Invalid value: 10: must be less than or equal to previous value"],
    ),
    (
        "deadline removed",
        pod(activeDeadlineSeconds=5),
        pod(),
        ['spec.activeDeadlineSeconds: Invalid value: "null": must not update from a positive integer to nil value'],
    ),
    (
        "deadline negative",
        pod(),
        pod(activeDeadlineSeconds=-1),
        ["spec.activeDeadlineSeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive"],
    ),
    ("toleration added", pod(), pod(tolerations=[SECONDS]), []),
    ("toleration's seconds", pod(tolerations=[SECONDS]), pod(tolerations=[{**SECONDS, "tolerationSeconds": 5}]), []),
    (
        "toleration removed",
        pod(tolerations=[SECONDS]),
        pod(),
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    ),
    ("gate removed", pod(schedulingGates=[{"name": "g"}]), pod(), []),
    (
        "gate added",
        pod(),
        pod(schedulingGates=[{"name": "g"}]),
        ["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"],
    ),
    ("grace to 1", pod(terminationGracePeriodSeconds=-5), pod(terminationGracePeriodSeconds=1), []),
    ("grace to 2", pod(terminationGracePeriodSeconds=-5), pod(terminationGracePeriodSeconds=2), [FIXED]),
    (
        "container added",
        pod(),
        pod(container(), container("d")),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"],
    ),
    (
        "init container removed",
        pod(initContainers=[container("i")]),
        pod(),
        ["spec.initContainers: Forbidden: pod updates may not add or remove containers"],
    ),
    ("anything else", pod(), pod(hostname="x"), [FIXED]),
    (
        "mirror annotation",
        pod(),
        pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}, nodeName="n"),
        ["metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation", FIXED],
    ),
    ("create validation", pod(), pod(container(image="")), ["spec.containers[0].image: Required value"]),
]


@pytest.mark.parametrize(("old", "new", "errors"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_both_profiles(old, new, errors):
    assert found(old, new, profile_named("1.36")) == errors
    assert found(old, new) == [FIXED_DOCUMENTED if error == FIXED else error for error in errors]


# Resources. Rows: old, new, what documents says; 1.36 refuses them all.
RESIZES = [
    ("cpu and memory", pod(), pod(container(resources=amounts(cpu="2", memory="1536Mi"))), []),
    ("a limit removed", pod(), pod(container(resources={"requests": BURSTABLE["requests"]})), []),
    ("a limit added", pod(container(resources={"requests": BURSTABLE["requests"]})), pod(), []),
    (
        "another class",
        pod(container(resources={"limits": {"cpu": "1", "memory": "1Gi"}})),
        pod(),
        ['metadata: Invalid value: "Burstable": Pod QoS is immutable'],
    ),
    ("another resource", pod(), pod(container(resources=amounts(**{"ephemeral-storage": "1Gi"}))), [FIXED_DOCUMENTED]),
    (
        "resize policy",
        pod(),
        pod(container(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}])),
        [FIXED_DOCUMENTED],
    ),
    (
        "an init container",
        pod(initContainers=[container("i")]),
        pod(initContainers=[container("i", resources=amounts(cpu="2"))]),
        [FIXED_DOCUMENTED],
    ),
]


@pytest.mark.parametrize(("old", "new", "errors"), [row[1:] for row in RESIZES], ids=[row[0] for row in RESIZES])
def test_resources_in_profile_documents_only(old, new, errors):
    assert found(old, new) == errors
    assert found(old, new, profile_named("1.36")) == [FIXED]
    assert found(old, new, gate=False) == [FIXED]


def test_equal_amounts_are_no_change():
    assert found(pod(), pod(container(resources=amounts(cpu="1000m"))), profile_named("1.36")) == []


def test_request_above_limit_is_ordinary_validation():
    assert found(pod(), pod(container(resources=amounts(cpu="3")))) == [
        'spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal to cpu limit of 2'
    ]


# status.resize = Proposed


def status(**allocated: str) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1", "memory": "1Gi", **allocated}}]}


def bound(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return pod(*containers, nodeName="n1", **more)


SIDE = {"name": "s", "image": "i", "restartPolicy": "Always"}


def with_sidecar(cpu: str) -> dict[str, Any]:
    side = {**SIDE, "resources": {"requests": {"cpu": cpu}}}
    return bound(
        initContainers=[side], status={"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "1"}}]}
    )


def with_level(cpu: str, **status: Any) -> dict[str, Any]:
    return bound(container(resources={}), resources={"requests": {"cpu": cpu}}, status=status)


PROPOSALS = [
    (
        "T=3: cpu 1 to 1.5",
        bound(status=status()),
        bound(container(resources=amounts(cpu="1500m")), status=status()),
        True,
    ),
    (
        "T=5: again before it is done",
        bound(container(resources=amounts(cpu="1500m")), status=status(cpu="1500m")),
        bound(container(resources=amounts(cpu="2")), status=status(cpu="1500m")),
        True,
    ),
    (
        "back to what is allocated",
        bound(container(resources=amounts(cpu="2")), status=status()),
        bound(status=status()),
        False,
    ),
    ("unchanged, although not yet allocated", bound(status=status(cpu="2")), bound(status=status(cpu="2")), False),
    ("equal amounts", bound(status=status()), bound(container(resources=amounts(cpu="1000m")), status=status()), False),
    (
        "no requests",
        bound(container(resources={}), status=status()),
        bound(container(resources={}), status=status()),
        False,
    ),
    ("no status yet", bound(), bound(container(resources=amounts(cpu="2"))), False),
    ("no node yet", pod(status=status()), pod(container(resources=amounts(cpu="2")), status=status()), False),
    ("a sidecar", with_sidecar("1"), with_sidecar("2"), True),
    ("a sidecar, back to what is allocated", with_sidecar("2"), with_sidecar("1"), False),
    ("the pod level", with_level("1"), with_level("2", allocatedResources={"cpu": "1", "memory": "1Gi"}), True),
    ("the pod level, back", with_level("2"), with_level("1", allocatedResources={"cpu": "1", "memory": "1Gi"}), False),
    ("the pod level, not reported", with_level("1"), with_level("2"), False),
    (
        "status without allocated",
        bound(),
        bound(container(resources=amounts(cpu="2")), status={"containerStatuses": [{"name": "c"}]}),
        True,
    ),
]


@pytest.mark.parametrize(("old", "new", "answer"), [row[1:] for row in PROPOSALS], ids=[row[0] for row in PROPOSALS])
def test_proposed(old, new, answer):
    assert proposed(with_defaults(old).pod, with_defaults(new).pod) is answer


@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 2000))
def test_proposed_means_changed_and_not_what_is_allocated(old, new, allocated):
    before = bound(container(resources=amounts(cpu=f"{old}m")), status=status(cpu=f"{allocated}m"))
    after = bound(container(resources=amounts(cpu=f"{new}m")), status=status(cpu=f"{allocated}m"))
    assert found(before, after) == []
    assert proposed(with_defaults(before).pod, with_defaults(after).pod) == (new not in (old, allocated))


def test_the_work_grows_linearly_with_the_tolerations():
    """Each was compared with all of them: an update of a pod with 3,000 took 11 seconds."""

    def calls(count: int) -> int:
        many = [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]
        before, after, seen = pod(tolerations=many), pod(tolerations=[*many, SECONDS]), []
        sys.setprofile(lambda frame, event, argument: seen.append(event) if event in ("call", "c_call") else None)
        try:
            assert found(before, after) == []
        finally:
            sys.setprofile(None)
        return len(seen)

    assert calls(400) < 6 * calls(100)
