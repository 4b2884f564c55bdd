"""RuntimeClass: findings, refusals, and what a pod gets from its class (05 B6)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.admission.runtime_class import runtime_class_errors, runtime_class_refusal, with_runtime_class
from plimsoll.rules.model.objects import Pod, Toleration
from plimsoll.rules.model.policies import RuntimeClass
from plimsoll.rules.resources.effective import pod_limits, pod_requests

OVERHEAD = {"cpu": "250m", "memory": "120Mi"}


def runtime_class(**members: Any) -> RuntimeClass:
    return from_document({"metadata": {"name": "kata"}, "handler": "kata-qemu", **members}, RuntimeClass)


def pod(**spec: Any) -> Pod:
    resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}}
    return from_document({"spec": {"containers": [{"name": "c", "resources": resources}], **spec}}, Pod)


LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
FINDINGS = [
    ("sound", {"overhead": {"podFixed": OVERHEAD}, "scheduling": {"nodeSelector": {"a": "b"}}}, []),
    ("no handler", {"handler": ""}, ['handler: Invalid value: "": ' + LABEL]),
    ("an upper-case handler", {"handler": "Kata"}, ['handler: Invalid value: "Kata": ' + LABEL]),
    ("a negative overhead", {"overhead": {"podFixed": {"cpu": "-1"}}},
     ['overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0']),
    ("a selector", {"scheduling": {"nodeSelector": {"a b": "c"}}}, ['scheduling.nodeSelector: Invalid value: "a b": name part']),
    ("a toleration", {"scheduling": {"tolerations": [{"key": "k", "operator": "In"}]}},
     ['scheduling.tolerations[0].operator: Unsupported value: "In"']),
]  # fmt: skip


@pytest.mark.parametrize(("members", "errors"), [row[1:] for row in FINDINGS], ids=[row[0] for row in FINDINGS])
def test_findings(members: dict[str, Any], errors: list[str]) -> None:
    found = [str(error) for error in runtime_class_errors(runtime_class(**members))]
    assert [text[: len(wanted)] for text, wanted in zip(found, errors, strict=True)] == errors


WITH = runtime_class(overhead={"podFixed": OVERHEAD})
PLACED = runtime_class(scheduling={"nodeSelector": {"disk": "ssd"}})
REFUSALS = [
    ("nothing", pod(), None, None),
    ("the class sets it", pod(), WITH, None),
    ("the same, written differently", pod(overhead={"cpu": "0.25", "memory": "122880Ki"}), WITH, None),
    ("another overhead", pod(overhead={"cpu": "1"}), WITH, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
    ("no class", pod(overhead={"cpu": "1"}), None, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ("a class without overhead", pod(overhead={"cpu": "1"}), runtime_class(),
     "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ("the same label", pod(nodeSelector={"disk": "ssd"}), PLACED, None),
    ("another label", pod(nodeSelector={"disk": "hdd"}), PLACED,
     "conflict: runtimeClass.scheduling.nodeSelector[disk] = ssd; pod.spec.nodeSelector[disk] = hdd"),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "of", "why"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_refusals(sent: Pod, of: RuntimeClass | None, why: str | None) -> None:
    assert runtime_class_refusal(sent, of) == why


def test_what_a_pod_gets() -> None:
    """E-1: 64Mi + 120Mi = 184Mi; the CPU overhead makes a request, but no limit where there is none."""
    scheduling = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
    after = with_runtime_class(
        pod(nodeSelector={"a": "b"}), runtime_class(overhead={"podFixed": OVERHEAD}, scheduling=scheduling)
    )
    assert {name: str(each) for name, each in pod_requests(after).items()} == {"cpu": "250m", "memory": "184Mi"}
    assert {name: str(each) for name, each in pod_limits(after).items()} == {"memory": "184Mi"}
    assert after.spec.node_selector == {"a": "b", "disk": "ssd"}
    assert after.spec.tolerations == (Toleration("kata", "Exists"),)
