"""What a pod's own annotations change, and memory.min that leaves room for page cache."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.model.objects import Metadata, Pod
from plimsoll.rules.resources.memory import page_cache_safe_min
from plimsoll.rules.resources.node_policy import MEMORY_QOS, OOM_GROUP, NodePolicy, pod_policy

GI, MI = 1 << 30, 1 << 20


def asked(**annotations: str) -> Pod:
    names = {"group": OOM_GROUP, "qos": MEMORY_QOS}
    return Pod(Metadata("p", annotations={names[key]: text for key, text in annotations.items()} or None))


@pytest.mark.parametrize(
    ("pod", "group", "found"),
    [
        (asked(), True, True),
        (asked(group="true"), False, True),
        (asked(group="false"), True, False),
        (asked(group="yes"), True, True),
        (asked(group=""), False, False),
    ],
    ids=["nothing", "asked for", "declined", "another word", "empty"],
)
def test_oom_group(pod: Pod, group: bool, found: bool) -> None:
    assert pod_policy(pod, NodePolicy(GI, oom_group=group)).oom_group is found


@pytest.mark.parametrize(("word", "found"), [("off", False), ("on", True), ("false", True)])
def test_memory_qos(word: str, found: bool) -> None:
    assert pod_policy(asked(qos=word), NodePolicy(GI, memory_qos=True)).memory_qos is found
    assert pod_policy(asked(qos=word), NodePolicy(GI)).memory_qos is False  # an annotation does not enable the gate


def test_cgroup_v1_has_neither() -> None:
    policy = NodePolicy(GI, cgroup_version=1)
    assert pod_policy(asked(group="true", qos="off"), policy) is policy


@pytest.mark.parametrize(
    ("minimum", "limit", "found"),
    [
        (32 * MI, 32 * MI, 30195712),
        (16 * MI, 32 * MI, 16 * MI),
        (32 * MI, None, 32 * MI),
        (None, 32 * MI, None),
        (0, 32 * MI, 0),
    ],
    ids=["all of it", "less than that", "no limit", "not set", "reset"],
)
def test_page_cache_safe(minimum: int | None, limit: int | None, found: int | None) -> None:
    assert page_cache_safe_min(minimum, limit) == found


@given(st.integers(1, 1 << 50), st.integers(1, 1 << 50))
def test_room_is_left_and_nothing_is_added(minimum: int, limit: int) -> None:
    found = page_cache_safe_min(minimum, limit)
    assert found is not None
    assert found <= minimum
    assert found * 10 <= limit * 9
