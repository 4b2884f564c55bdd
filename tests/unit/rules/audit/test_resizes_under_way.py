"""A resize that is under way is no drift: until it has ended, a file has the value before or after it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.codec.lean.audited_pod import audited_pod, redacted
from plimsoll.rules.audit.evidence import NodeEvidence
from plimsoll.rules.audit.table import audit
from plimsoll.rules.timestamps import rfc3339
from tests.unit.rules.audit.nodes import NOW_S, bent, container, found, healthy, pod, with_file

OLD = {"requests": {"memory": "256Mi", "cpu": "500m"}, "limits": {"memory": "512Mi", "cpu": "1"}}
NEW = {"requests": {"memory": "128Mi", "cpu": "250m"}, "limits": {"memory": "256Mi", "cpu": "2"}}
MIB = 1 << 20


def web(spec: dict[str, Any], allocated: dict[str, Any], actual: dict[str, Any], **status: Any) -> dict[str, Any]:
    """As a kubelet reports it: what is allocated shows only its requests."""
    document = pod("web", container(**spec), metadata={"generation": 2}, status=status)
    document["status"]["containerStatuses"] = [
        {**document_status(), "allocatedResources": allocated["requests"], "resources": actual}
    ]
    return document


def document_status() -> dict[str, Any]:
    (status,) = pod("web")["status"]["containerStatuses"]
    return dict(status)


def condition(kind: str, age_s: float, reason: str = "") -> dict[str, Any]:
    since = rfc3339(NOW_S - age_s)
    return {"conditions": [{"type": kind, "status": "True", "reason": reason, "lastTransitionTime": since}]}


def shown(tree: NodeEvidence, *pods: dict[str, Any]) -> NodeEvidence:
    """The tree of one moment with what the API shows of it."""
    return msgspec.structs.replace(tree, pods=tuple(audited_pod(msgspec.json.encode(each)) for each in pods))


def rules_found(evidence: NodeEvidence) -> set[str]:
    """Without A05: a score stays that of the request at the start."""
    findings = [each for answer in audit(evidence).answers for each in answer.findings]
    return {each.rule for each in findings if each.severity != "note"} - {"A05"}


BEFORE, AFTER = (healthy(pod("web", container(**each))) for each in (OLD, NEW))
IN_PROGRESS = web(NEW, NEW, OLD, observedGeneration=2, **condition("PodResizeInProgress", 60))
NOT_SEEN = web(NEW, OLD, OLD, observedGeneration=1)
DEFERRED = web(NEW, OLD, OLD, observedGeneration=2, **condition("PodResizePending", 60, "Deferred"))


@pytest.mark.parametrize(
    ("what", "tree", "status"),
    [
        ("a limit above which memory is used stays", BEFORE, IN_PROGRESS),
        ("it has ended, and the status is older", AFTER, IN_PROGRESS),
        ("the kubelet has not seen it", BEFORE, NOT_SEEN),
        ("the kubelet has done it, and the status is older", AFTER, NOT_SEEN),
        ("it waits", BEFORE, DEFERRED),
        ("it waits, and the class counts it", bent(BEFORE, with_file("class", "cpu.weight", "10")), DEFERRED),
        ("the pod has its values, the container not yet",
         bent(BEFORE, with_file("pod", "memory.max", str(256 * MIB)), with_file("pod", "cpu.max", "200000 100000")),
         IN_PROGRESS),
    ],
)  # fmt: skip
def test_it_is_no_drift(what: str, tree: NodeEvidence, status: dict[str, Any]) -> None:
    assert rules_found(shown(tree, status)) == set(), what


@pytest.mark.parametrize("status", [IN_PROGRESS, NOT_SEEN, DEFERRED])
def test_a_third_value_is_found(status: dict[str, Any]) -> None:
    changed = bent(BEFORE, with_file("container", "memory.max", str(300 * MIB)))
    assert [each.field for each in found(shown(changed, status), "A01")] == ["memory.max"]


def test_a_resize_that_waits_has_changed_nothing_yet() -> None:
    changed = bent(BEFORE, with_file("container", "cpu.max", "200000 100000"))
    (finding,) = found(shown(changed, DEFERRED), "A01")
    assert (finding.field, finding.observed) == ("cpu.max", "200000 100000")


def test_what_the_runtime_has_without_a_resize_is_found() -> None:
    """By a person with crictl: no resize is under way."""
    status = web(OLD, OLD, NEW, observedGeneration=2)
    assert rules_found(shown(AFTER, status)) >= {"A01", "A07"}


def test_a_resize_that_does_not_end_is_found_once() -> None:
    status = web(NEW, NEW, OLD, observedGeneration=2, **condition("PodResizeInProgress", 3600))
    assert rules_found(shown(BEFORE, status)) == {"A07"}


def test_a_kubelet_that_has_seen_the_spec_and_says_nothing_is_found() -> None:
    assert rules_found(shown(BEFORE, web(NEW, OLD, OLD, observedGeneration=2))) == {"A07"}


LEVEL = {"requests": {"memory": "256Mi", "cpu": "100m"}, "limits": {"memory": "512Mi", "cpu": "1"}}


@pytest.mark.parametrize(("generation", "rules"), [(2, set()), (1, {"A01"})])
def test_a_kubelet_takes_the_shares_of_a_container_without_request_at_a_resize(
    generation: int, rules: set[str]
) -> None:
    """It starts with those of the pod's limit; seen of kubelet 1.36.4, cpu.shares 512 and then 2."""
    document = pod("web", container(), spec={"resources": LEVEL}, metadata={"generation": generation})
    tree = healthy(document)
    assert rules_found(tree) == set()
    assert rules_found(bent(tree, with_file("container", "cpu.weight", "1"))) == rules


def test_pod_level_resources_under_way() -> None:
    """The spec is new, and the kubelet has not seen it."""
    resized = {**LEVEL, "requests": {"memory": "256Mi", "cpu": "200m"}}
    tree = healthy(pod("web", container(), spec={"resources": LEVEL}))
    status = pod("web", container(), spec={"resources": resized}, metadata={"generation": 2})
    status["status"] |= {
        "observedGeneration": 1,
        "containerStatuses": [{**document_status(), "resources": {}}],
        "allocatedResources": LEVEL["requests"],
        "resources": LEVEL,
    }
    assert rules_found(shown(tree, status)) == set()


@pytest.mark.parametrize(("age_s", "severity"), [(30, "note"), (300, "error")])
@pytest.mark.parametrize("by_dump", [False, True])
def test_a_class_follows_a_resize_within_a_minute(age_s: float, severity: str, by_dump: bool) -> None:
    """The managed fields as kube-apiserver 1.36.4 writes them. A dump has no more of them than that."""
    other = {"manager": "kubelet", "operation": "Update", "subresource": "status", "time": rfc3339(NOW_S)}
    written = {"manager": "kubectl", "operation": "Update", "subresource": "resize", "time": rfc3339(NOW_S - age_s)}
    document = pod("web", container(**OLD), metadata={"generation": 2, "managedFields": [other, written]})
    changed = bent(healthy(document), with_file("class", "cpu.weight", "10"))
    (finding,) = found(shown(changed, redacted(document) if by_dump else document), "A01")
    assert (finding.field, finding.severity) == ("cpu.weight", severity)
