"""Every topic of the project's vectors agrees in full; `./dev conformance` shows the same with its details."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.rules.profile import RELEASES, profile_named
from tests.conformance import quirks, run, topics

FILES = [(release, path) for release in RELEASES for path in sorted((run.VECTORS / release).glob("*.jsonl.gz"))]
LEAST = 60  # vectors of a topic


@pytest.mark.parametrize(("release", "path"), FILES, ids=[f"{each}-{path.name[0:12]}" for each, path in FILES])
def test_topic(release: str, path: Path) -> None:
    topic, profile = path.name.removesuffix(".jsonl.gz"), profile_named(release)
    wrong, agreed = [], 0
    for number, (given, expected) in enumerate(run.cases(path), 1):
        found = run.differences(run.TOPICS[topic], given, expected, profile)
        if not found:
            agreed += 1
        elif not quirks.quirk(topic, run.TOPICS[topic], given, expected, profile):
            wrong.append(f"line {number}: {found}")
    assert not wrong, wrong[: run.SHOWN]
    assert agreed >= LEAST - 5  # the file was really read


@pytest.mark.parametrize("release", RELEASES)
def test_a_wrong_answer_is_noticed(release: str) -> None:
    given, expected = next(run.cases(run.VECTORS / release / "k_convert.jsonl.gz"))
    wrong = {**expected, "shares": expected["shares"] + 1}
    assert run.differences(topics.convert, given, wrong, profile_named(release))


# A release's vectors notice that another release answers otherwise: topics that changed with it.
CHANGED = [
    ("1.27", "1.28", "e_container"),
    ("1.29", "1.28", "a_qos"),
    ("1.30", "1.29", "e_container"),
    ("1.32", "1.31", "c_oom"),
    ("1.33", "1.32", "b_aggregate"),
    ("1.34", "1.33", "i_eviction"),
    ("1.35", "1.34", "j_resize_api"),
    ("1.36", "1.35", "j_resize_kubelet"),
    ("1.37", "1.36", "h_node"),
]


@pytest.mark.parametrize(("release", "other", "topic"), CHANGED)
def test_releases_differ(release: str, other: str, topic: str) -> None:
    cases = run.cases(run.VECTORS / release / f"{topic}.jsonl.gz")
    assert any(run.differences(run.TOPICS[topic], *case, profile_named(other)) for case in cases)


BIG = {"limits": {"memory": "1.5Gi"}, "requests": {"memory": "1.5Gi"}}  # a fraction: the big representation
SMALL = {"limits": {"memory": "1536Mi"}, "requests": {"memory": "1536Mi"}}


def aging(resources: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "containers": [
            {"name": "a", "resources": {"limits": {"memory": "2Gi"}}},
            {"name": "b", "resources": resources},
        ],
        "resources": {"requests": {"memory": "65Mi"}},
        "overhead": {"memory": "64Mi"},
    }
    return {"pod": {"spec": spec}, "default": True}


def changed(given: dict[str, Any], **values: str) -> str:
    """The quirk for which these limits are accepted in place of Plimsoll's."""
    profile = profile_named("1.37")
    expected = topics.aggregate(given, profile)
    wrong = {**expected, **{key: {**expected[key], "memory": text} for key, text in values.items()}}
    assert wrong != expected
    return quirks.quirk("b_aggregate", topics.aggregate, given, wrong, profile)


def test_e5_lets_only_added_overhead_through() -> None:
    """Limits 2Gi + 1.5Gi at pod level: 3584Mi, and 64Mi more after each aggregate on the same object."""
    assert topics.aggregate(aging(BIG), profile_named("1.37"))["limitsExcludeOverhead"] == {"memory": "3584Mi"}
    assert changed(aging(BIG), limitsExcludeOverhead="3648Mi") == "E-5"
    assert changed(aging(BIG), limitsExcludeOverhead="3648Mi", limitsUseStatus="3712Mi") == "E-5"
    assert changed(aging(BIG), limitsExcludeOverhead="3649Mi") == ""
    assert changed(aging(BIG), limitsExcludeOverhead="3648Mi", limitsSkipPodLevel="3712Mi") == ""
    assert changed(aging(SMALL), limitsExcludeOverhead="3648Mi") == "", "an int64 is copied"
    assert changed({**aging(BIG), "huge": True}, limitsExcludeOverhead="1") == "", "the mark alone proves nothing"


def test_e5_the_class_is_computed_after_the_sums() -> None:
    """Request and limit of the pod are equal until overhead is added to the limit alone: Guaranteed, then Burstable."""
    limits = [{"memory": "0.25Ti", "cpu": "2"}, {"memory": "6591826Ki", "cpu": "2m"}]
    containers = [{"name": f"c{index}", "resources": {"limits": each}} for index, each in enumerate(limits)]
    spec = {"containers": containers, "resources": {"requests": {"memory": "569799Mi"}}, "overhead": {"memory": "1Gi"}}
    kubelet = {"cgroupVersion": 2, "cpuCFSQuota": True, "cpuCFSQuotaPeriodUs": 100_000}
    given, profile = {"pod": {"spec": spec}, "default": True, "kubelet": kubelet}, profile_named("1.37")
    assert topics.pod_cgroup(given, profile)["qosClass"] == "Guaranteed"
    aged = topics.pod_cgroup({**given, "aged": {"requests": 0, "limits": 1}}, profile)
    assert aged["qosClass"] == "Burstable"
    assert quirks.quirk("d_pod_cgroup", topics.pod_cgroup, given, aged, profile) == "E-5"
    wrong = {**aged, "qosClass": "BestEffort"}
    assert quirks.quirk("d_pod_cgroup", topics.pod_cgroup, given, wrong, profile) == ""


def test_q13_lets_only_the_real_rounding_through() -> None:
    """−0.8678Ki is −888.6272: the real code adds one to the quotient, so −887."""
    given, profile = {"a": "-0.8678Ki"}, profile_named("1.36")
    own = topics.quantity(given, profile)
    real = {**own["a"], "value": "-887", "milliValue": "-888626"}
    assert quirks.quirk("g_quantity", topics.quantity, given, {"a": real}, profile) == "Q-13"
    assert quirks.quirk("g_quantity", topics.quantity, given, {"a": {**real, "value": "-886"}}, profile) == ""
    assert quirks.quirk("g_quantity", topics.quantity, given, {"a": {**real, "sign": 1}}, profile) == ""


def test_q14_needs_an_amount_beyond_int64() -> None:
    def clause(memory: str) -> str:
        pod = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"memory": memory}}}]}}
        given = {"pod": pod, "default": True, "node": {"memoryCapacity": 1 << 34}, "huge": True}
        return quirks.quirk("c_oom", topics.oom, given, {}, profile_named("1.36"))

    assert (clause("9223372036854776"), clause("9223372036854775")) == ("Q-14", "")  # times 1000


def test_every_file_is_a_topic() -> None:
    assert {path.name for path in run.VECTORS.iterdir()} == set(RELEASES)
    for release in RELEASES:
        assert {path.name.removesuffix(".jsonl.gz") for path in (run.VECTORS / release).iterdir()} <= set(run.TOPICS)
