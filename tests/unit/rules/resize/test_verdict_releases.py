"""Resizes of pods with exclusive resources, by release (07 §6)."""

from __future__ import annotations

import pytest

from plimsoll.rules.profile import profile_named
from tests.unit.rules.resize.resized_pods import ONE, container, pod, setting, verdict
from tests.unit.rules.resize.test_verdict import STATIC_MEMORY

OLD_CPUS = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"
OLD_MEMORY = "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy"


@pytest.mark.parametrize(
    ("release", "cpu_policy", "memory_policy"),
    [("1.31", "", ""), ("1.32", OLD_CPUS, ""), ("1.33", OLD_CPUS, OLD_MEMORY), ("1.34", "", STATIC_MEMORY)],
    ids=lambda each: each[-25:] or "accepted",
)
def test_exclusive_resources_by_release(release: str, cpu_policy: str, memory_policy: str) -> None:
    """07 §6: a resize of memory alone."""
    new = pod(container(cpu="1", memory="2Gi"))
    for around, message in (({"static_cpus": True}, cpu_policy), ({"static_memory": True}, memory_policy)):
        found = verdict(ONE, new, setting(profile=profile_named(release), **around))
        assert (found.decision, found.message) == (("Infeasible", message) if message else ("Accepted", ""))
