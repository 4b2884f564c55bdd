"""One pass as a decision: the example of 04 §5, graces, and who is next and why."""

from __future__ import annotations

import pytest

from plimsoll.rules.config.parse import default_config
from plimsoll.rules.config.thresholds import parsed_thresholds
from plimsoll.rules.eviction.assessment import Observation
from plimsoll.rules.eviction.decision import SHOWN, decision, why_sentence
from plimsoll.rules.eviction.usage import ContainerUsage, PodUsage
from plimsoll.rules.model.gates import resolved_gates
from plimsoll.rules.model.objects import CPU, MEMORY, Container, Metadata, Pod, PodSpec, Resources
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse

MIB = 1 << 20
OBSERVED = {"memory.available": Observation(parse("52Mi"), parse("8Gi"), 1.0)}
HARD = parsed_thresholds({"memory.available": "100Mi"})
SOFT = parsed_thresholds({}, {"memory.available": "100Mi"}, {"memory.available": "1m"})


def pod(name: str, memory: str = "", *, cpu: str = "", priority: int = 0, grace_s: int | None = None) -> Pod:
    requests = {key: parse(text) for key, text in ((MEMORY, memory), (CPU, cpu)) if text}
    spec = PodSpec(
        (Container("c", resources=Resources(requests or None)),),
        priority=priority,
        termination_grace_period_seconds=grace_s,
    )
    return Pod(Metadata(name, "ns", f"uid-{name}"), spec)


def using(mib: int) -> PodUsage:
    return PodUsage(mib * MIB, 3, (ContainerUsage("c", mib * MIB),))


# 04 §5, "Worked example"
A, B = pod("a"), pod("b", "100Mi")
C, D = pod("c", cpu="1", priority=10), pod("d", "1Gi")
USAGE = {"uid-a": using(50), "uid-b": using(300), "uid-c": using(500), "uid-d": using(900)}


def test_the_order_and_its_reasons() -> None:
    found = decision(HARD, OBSERVED, [A, B, C, D], USAGE, time_s=7.0)
    assert found is not None and found.victim is not None
    assert [(each.name, each.before) for each in found.order] == [
        ("b", "larger excess"),
        ("a", "lower priority"),
        ("c", "exceeds its request"),
        ("d", ""),
    ]
    assert (found.victim.name, found.grace_s, found.time_s, found.threshold) == ("b", 1.0, 7.0, "100Mi")
    assert found.message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. "
        "Container c was using 300Mi, request is 100Mi, has larger consumption of memory. "
    )
    assert found.annotations["starved_resource"] == "memory"


def test_no_pod_to_evict_is_reported() -> None:
    critical = pod("critical", priority=2_000_000_000)
    found = decision(HARD, OBSERVED, [critical], {"uid-critical": using(900)})
    assert found is not None
    assert found.victim is None
    assert [each.name for each in found.order] == ["critical"]
    assert decision((), OBSERVED, [A], USAGE) is None
    empty = decision(HARD, OBSERVED, [], {})
    assert empty is not None and empty.order == ()


@pytest.mark.parametrize(
    ("thresholds", "max_grace_s", "hard_grace_s", "own_s", "grace_s"),
    [
        (HARD, 30, None, 60, 1),
        (HARD, 30, 0, 60, 0),
        (HARD, 30, 60, 300, 60),
        (HARD, 30, 60, 5, 5),
        (HARD, 30, 60, 0, 1),
        (SOFT, 30, 0, 60, 30),
        (SOFT, 30, None, 5, 5),
        (SOFT, 0, None, 60, 1),
    ],
    ids=[
        "hard",
        "hard, at once",
        "hard, longer",
        "hard, the pod's own",
        "hard, never less than one",
        "soft, the extra does not count",
        "soft, the pod's own",
        "soft, never less than one",
    ],
)
def test_grace(
    thresholds: tuple[object, ...], max_grace_s: int, hard_grace_s: int | None, own_s: int, grace_s: int
) -> None:
    found = decision(
        thresholds,  # type: ignore[arg-type]
        OBSERVED,
        [pod("x", grace_s=own_s)],
        {"uid-x": using(1)},
        max_pod_grace_s=max_grace_s,
        hard_grace_s=hard_grace_s,
    )
    assert found is not None and found.grace_s == grace_s


def static(name: str) -> Pod:
    return Pod(
        Metadata(name, "ns", f"uid-{name}", annotations={"kubernetes.io/config.source": "file"}),
        PodSpec((Container("c"),)),
    )


def test_the_reason_is_against_the_pod_that_is_named_not_an_exempt_one_between() -> None:
    pods = [static("first"), pod("v"), static("between"), pod("n", priority=10)]
    usage = {"uid-first": using(400), "uid-v": using(300), "uid-between": using(200), "uid-n": using(900)}
    found = decision(HARD, OBSERVED, pods, usage)
    assert found is not None
    assert [(each.name, each.critical, each.before) for each in found.order] == [
        ("first", True, ""),
        ("v", False, "lower priority"),
        ("between", True, ""),
        ("n", False, ""),
    ]
    assert why_sentence(found) == (
        "memory.available is 52Mi and should be 100Mi: chosen before 1 other pod, 2 exempt; priority 0, uses 300Mi, "
        "requests 0; before ns/n (priority 10, uses 900Mi, requests 0) because: lower priority"
    )


def test_who_is_next_is_known_beyond_what_is_kept_of_the_order() -> None:
    exempt = [static(f"s{number}") for number in range(SHOWN)]
    usage = {f"uid-s{number}": using(500) for number in range(SHOWN)} | {"uid-v": using(300), "uid-n": using(100)}
    found = decision(HARD, OBSERVED, [*exempt, pod("v"), pod("n")], usage)
    assert found is not None and found.victim is not None and found.following is not None
    assert (len(found.order), found.pods, found.victim.name, found.following.name) == (SHOWN, SHOWN + 2, "v", "n")
    whole = decision(HARD, OBSERVED, [*exempt, pod("v"), pod("n")], usage, most=None)
    assert whole is not None and len(whole.order) == SHOWN + 2


@pytest.mark.parametrize(
    ("release", "named"),
    [("1.31", ["Container c"]), ("1.32", ["Container c", "Container i"]), ("1.34", ["Pod p", "Container c", "Container i"])],
)  # fmt: skip
def test_whom_the_message_names_by_release(release: str, named: list[str]) -> None:
    """04 §7: init containers since 1.32; the pod since 1.34, also if pod-level resources were switched on before."""
    small = Resources({MEMORY: parse("10Mi")})
    spec = PodSpec((Container("c", resources=small),), (Container("i", resources=small),), resources=small)
    containers = (ContainerUsage("c", 20 * MIB), ContainerUsage("i", 20 * MIB))
    profile = profile_named(release)
    gates = resolved_gates(default_config(profile).feature_gates | {"PodLevelResources": True}, profile)
    usage = {"u": PodUsage(40 * MIB, 3, containers)}
    found = decision(HARD, OBSERVED, [Pod(Metadata("p", "ns", "u"), spec)], usage, gates=gates)
    assert found is not None
    assert [each.partition(" was using")[0] for each in found.message.split(". ")[2:-1]] == named
