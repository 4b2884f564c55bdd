"""The policy document: every switch, every error with its field, and what a pod may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.errors import InvalidObjectError
from plimsoll.rules.attach.policy import CPU_BURST, AttachPolicy, Switches, attach_policy, burst_percent


def test_everything_is_off_by_default() -> None:
    assert attach_policy({}) == AttachPolicy()
    assert attach_policy({}).of("any") == Switches("off", 0.9, "keep", "off", False, 0, False, None, None, None)


def test_a_namespace_has_the_defaults_and_its_own_switches() -> None:
    policy = attach_policy(
        {
            "memoryQoS": "tiered",
            "memoryThrottlingFactor": 0,
            "cpuBurstPercent": 10,
            "memoryReserve": "1Gi",
            "restoreOnExit": True,
            "namespaces": {
                "shop": {"memoryQoS": "hard", "ceilings": {"memoryMin": "2Gi"}},
                "off": {"memoryQoS": False},
            },
        }
    )
    assert (policy.reserve_bytes, policy.restore_on_exit) == (1 << 30, True)
    assert policy.of("other") == Switches("tiered", None, cpu_burst_percent=10)
    assert policy.of("shop") == Switches("hard", None, cpu_burst_percent=10, most_min_bytes=2 << 30)
    assert policy.of("off").memory_qos == "off"  # YAML's plain off


BAD: list[tuple[dict[str, Any], str]] = [
    ({"memoryQoS": "max"}, 'memoryQoS: Unsupported value: "max"'),
    ({"memoryQos": "hard"}, 'memoryQos: Invalid value: "memoryQos": unknown field'),
    ({"memoryThrottlingFactor": 1.5}, "memoryThrottlingFactor: Invalid value"),
    ({"memoryThrottlingFactor": True}, "memoryThrottlingFactor: Invalid value"),
    ({"cpuBurstPercent": -1}, "cpuBurstPercent: Invalid value: -1"),
    ({"cpuBurstPercent": 10**30}, "cpuBurstPercent: Invalid value"),
    ({"memoryReserve": "-1Gi"}, 'memoryReserve: Invalid value: "-1Gi"'),
    ({"memoryReserve": "9" * 50}, "memoryReserve: Invalid value"),
    ({"memoryReserve": ["1Gi"]}, "memoryReserve: Invalid value"),
    ({"ceilings": {"memoryMin": "lots"}}, 'ceilings.memoryMin: Invalid value: "lots"'),
    ({"ceilings": {"memoryMin": "999999999999Ei"}}, 'ceilings.memoryMin: Invalid value: "999999999999Ei"'),
    ({"ceilings": {"memoryLow": "8Ei"}}, 'ceilings.memoryLow: Invalid value: "8Ei"'),
    ({"ceilings": {"memoryMax": "1Gi"}}, "ceilings.memoryMax: Invalid value"),
    ({"ceilings": 3}, "ceilings: Invalid value: 3"),
    ({"restoreOnExit": "yes"}, "restoreOnExit: Invalid value"),
    ({"repairOomScoreAdj": 1}, "repairOomScoreAdj: Invalid value: 1"),
    ({"namespaces": ["a"]}, "namespaces: Invalid value"),
    ({"namespaces": {"a": "hard"}}, "namespaces[a]: Invalid value"),
    ({"namespaces": {"a": {"memoryReserve": "1Gi"}}}, "namespaces[a].memoryReserve: Invalid value"),
    ({"namespaces": {"a": {"oomGroup": "all"}}}, "namespaces[a].oomGroup: Unsupported value"),
    ({"namespaces": {"../../etc": {}}}, "namespaces[../../etc]: Invalid value"),
    ({"namespaces": {"Payments": {}}}, "namespaces[Payments]: Invalid value"),
    ({"ioWeight": 100}, 'ioWeight: Invalid value: "ioWeight": unknown field; known are '),
    ({"ioControl": None}, "ioControl: Invalid value: must be an object"),
    ({"ioControl": {"devices": ["vda"]}}, "ioControl.devices[0]: Invalid value: must be a path below /dev"),
    ({"ioControl": {"devices": ["/dev/vda"], "weights": {"BestEffort": 0}}}, "ioControl.weights.BestEffort: Invalid"),
    ({"ioControl": {"devices": ["/dev/vda"], "ceilings": {"*": {"max": "wbps=-1"}}}}, "ioControl.ceilings[*].max: "),
    ({"namespaces": {"a": {"ioControl": {}}}}, "namespaces[a].ioControl: Invalid value"),
    ({"namespaces": {str(n): {} for n in range(10_001)}}, "namespaces: Too many"),
]


@pytest.mark.parametrize(("document", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_bad_document_is_refused_with_the_field(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidObjectError) as caught:
        attach_policy(document)
    assert message in str(caught.value)


def test_every_error_is_listed() -> None:
    with pytest.raises(InvalidObjectError) as caught:
        attach_policy({"memoryQoS": "x", "namespaces": {"a": {"oomGroup": 1}}, "memoryReserve": ""})
    assert len(caught.value.errors) == 3


@pytest.mark.parametrize(
    ("asked", "percent", "says"),
    [
        (None, 10, ""),
        ("0", 0, ""),
        ("25", 25, ""),
        ("30", 30, ""),
        ("31", 30, "above the ceiling"),
        ("101", 10, "not a whole number from 0 to 100"),
        ("-5", 10, "not a whole number"),
        ("1" * 5000, 10, "not a whole number"),
        ("٣", 10, "not a whole number"),  # a digit, but not ASCII
        ("", 10, "not a whole number"),
    ],
)
def test_a_pod_asks_for_a_burst_up_to_the_ceiling(asked: str | None, percent: int, says: str) -> None:
    switches = Switches(cpu_burst_percent=10, most_burst_percent=30)
    found, problem = burst_percent(None if asked is None else {CPU_BURST: asked}, switches)
    assert found == percent
    assert (says in problem) if says else not problem
    assert len(problem) < 200


def test_without_a_ceiling_a_pod_can_only_ask_for_less() -> None:
    assert burst_percent({CPU_BURST: "100"}, Switches(cpu_burst_percent=10))[0] == 10
    assert burst_percent({CPU_BURST: "5"}, Switches(cpu_burst_percent=10)) == (5, "")
