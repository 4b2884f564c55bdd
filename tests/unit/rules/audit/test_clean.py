"""A tree that Plimsoll makes is clean in every profile, under both drivers and both cgroup versions; and speed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plimsoll.errors import PlimsollError
from plimsoll.rules.audit.evidence import NodeEvidence
from plimsoll.rules.audit.table import RULES, audit
from plimsoll.rules.profile import RELEASES
from tests.unit.rules.audit.nodes import bent, container_id, healthy, pod, with_record
from tests.unit.strategies import valid_pods

CONFIGS: list[dict[str, Any]] = [
    {},
    {"featureGates": {"MemoryQoS": True}},
    {"cgroupRoot": "/apps", "podPidsLimit": 512},
    {"cpuCFSQuota": False},
]
# About the kernel, the configuration and the manifest, not about the tree.
NOT_THE_TREE = {"A08", "A13", "A14", "A18", "A20", "A21", "A23"}


def running(document: dict[str, Any], number: int) -> dict[str, Any]:
    """The pod as it is once all its containers run."""
    name = f"p{number}"
    spec = document["spec"]
    statuses = {
        kind: [
            {
                "name": each["name"],
                "containerID": f"containerd://{container_id(name, each['name'])}",
                "state": {"running": {}},
            }
            for each in spec.get(field) or ()
            if kind == "containerStatuses" or each.get("restartPolicy") == "Always"
        ]
        for kind, field in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers"))
    }
    model = pod(name)
    return {**model, "spec": {**spec, "nodeName": "n1"}, "status": {"phase": "Running", **statuses}}


@given(
    pods=st.lists(valid_pods(stored=False), min_size=1, max_size=3),
    release=st.sampled_from(RELEASES),
    version=st.sampled_from((1, 2)),
    driver=st.sampled_from(("cgroupfs", "systemd")),
    config=st.sampled_from(CONFIGS),
)
def test_what_plimsoll_makes_is_clean(
    pods: list[dict[str, Any]], release: str, version: int, driver: str, config: dict[str, Any]
) -> None:
    try:
        evidence = healthy(
            *(running(each, number) for number, each in enumerate(pods)),
            release=release,
            version=version,
            driver=driver,
            config=config,
            oci_runtime="runc 1.3.2",
        )
    except (PlimsollError, AssertionError):
        assume(False)
        raise
    report = audit(evidence, [id for id in RULES if id not in NOT_THE_TREE])
    assert {each.rule: each.findings for each in report.answers if each.findings} == {}


def test_every_missing_part_is_named() -> None:
    """Without evidence every rule says why it cannot tell, or why it does not apply; none passes."""
    bare = NodeEvidence("n1")
    for answer in audit(bare).answers:
        assert answer.verdict == "cannot tell", answer.rule
        assert all(answer.reasons)


@pytest.mark.parametrize("part", ["cgroups", "kernel", "kubelet", "processes"])
def test_without_one_part_no_rule_that_needs_it_is_clean(part: str) -> None:
    evidence = bent(healthy(), with_record(**{part: None}))
    needed = {"kubelet": "configuration"}.get(part, part)
    for answer in audit(evidence).answers:
        if needed in RULES[answer.rule].needs:
            assert answer.verdict in ("cannot tell", "does not apply"), answer.rule


def test_hostile_pods_are_named_and_left_out() -> None:
    strange = pod("x")
    strange["metadata"]["uid"] = "../../etc"
    strange["status"]["containerStatuses"][0]["containerID"] = "containerd://../../x"
    evidence = healthy(pod())
    from plimsoll.codec.lean.audited_pod import audited_pod

    both = msgspec.structs.replace(evidence, pods=(*(evidence.pods or ()), audited_pod(msgspec.json.encode(strange))))
    (answer,) = audit(both, ["A01"]).answers
    assert answer.verdict == "cannot tell"
    assert "shop/x" in answer.reasons[0]
