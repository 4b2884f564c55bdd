"""Amounts nothing can be computed from are named with their field; priorities that admission would fill in."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Pod, is_critical, is_node_critical
from plimsoll.rules.resources.bounds import fits, oversized
from plimsoll.rules.resources.defaulting import admitted


def pod(*limits: dict[str, str], **spec: Any) -> Pod:
    containers = [{"name": f"c{index}", "resources": {"limits": each}} for index, each in enumerate(limits)]
    return from_document({"spec": {"containers": containers, **spec}}, Pod)


FINDINGS = [
    ("all is well", pod({"cpu": "1", "memory": "8Ei"}), []),
    ("one amount", pod({"memory": "12E"}), ["spec.containers[0].resources.limits[memory]"]),
    ("cpu counts in thousandths", pod({"cpu": "1e16"}), ["spec.containers[0].resources.limits[cpu]"]),
    ("only the sum", pod({"memory": "9E"}, {"memory": "9E"}), ["spec"]),
    ("overhead", pod({}, overhead={"memory": "12E"}), ["spec.overhead[memory]"]),
    ("page size", pod({"hugepages-x": "1"}), ["spec.containers[0].resources.limits[hugepages-x]"]),
    ("page size zero", pod({"hugepages-0": "1"}), ["spec.containers[0].resources.limits[hugepages-0]"]),
]


@pytest.mark.parametrize(("source", "fields"), [row[1:] for row in FINDINGS], ids=[row[0] for row in FINDINGS])
def test_findings(source: Pod, fields: list[str]) -> None:
    assert [error.field for error in oversized(source)] == fields


def test_fits() -> None:
    assert fits({}) and fits({"memory": 2**63 - 1, "hugepages-2Mi": 1})
    assert not fits({"memory": 2**63}) and not fits({"hugepages-x": 1})


def test_built_in_priorities() -> None:
    """05 A5: 2000000000 and 2000001000; any other class is the cluster's to know."""
    node = admitted(pod({}, priorityClassName="system-node-critical"))
    assert node.spec.priority == 2000001000 and is_node_critical(node)
    cluster = admitted(pod({}, priorityClassName="system-cluster-critical"))
    assert cluster.spec.priority == 2000000000 and is_critical(cluster) and not is_node_critical(cluster)
    for source in (pod({}, priorityClassName="gold"), pod({}, priorityClassName="system-node-critical", priority=7)):
        assert admitted(source) is source
