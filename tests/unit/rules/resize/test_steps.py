"""The order of writes (spec 02 §9, 03 §10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from plimsoll.rules.resize.allocation import Allocation, actuated_after, allocation_of, kept_sizes
from plimsoll.rules.resize.steps import (
    MemoryCheck,
    ResizePlan,
    Step,
    UpdateContainer,
    WritePod,
    is_resize_in_progress,
    pending_actuation,
    resize_plan,
    restart_message,
)
from plimsoll.rules.resources.values import Values

MI = 2**20


def container(name: str, cpu: str = "", memory: str = "", limit: str | None = None, **more: Any) -> dict[str, Any]:
    """`limit` is the memory limit alone; without it requests and limits are equal."""
    amounts = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    limits = amounts if limit is None else {"memory": limit} if limit else {}
    return {"name": name, "resources": {"requests": amounts, "limits": limits}, **more}


def pod(*containers: dict[str, Any], **spec: Any) -> Pod:
    return from_document({"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}, Pod)


def values(cpu_milli: int = 1000, memory_mi: int = 400) -> Values:
    """A pod cgroup's values for these totals."""
    return Values(cpu_milli * 1024 // 1000, cpu_milli * 100, 100_000, memory_mi * MI)


def plan(old: Pod, new: Pod, current: Values, wanted: Values, **more: Any) -> ResizePlan:
    running = more.pop("running", {each.name for each in (*new.spec.init_containers, *new.spec.containers)})
    more.setdefault("profile", profile_named("1.36"))
    return resize_plan(new, allocation_of(old), running, current, wanted, **more)


def short(step: Step) -> str:
    if isinstance(step, WritePod):
        parts = {
            "shares": step.values.cpu_shares,
            "quota": step.values.cpu_quota_us,
            "memory": None if step.values.memory_bytes is None else step.values.memory_bytes // MI,
        }
        return "pod " + " ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
    requests = {name: str(value) for name, value in (step.resources.requests or {}).items()}
    return f"{step.container} {step.resource}: {requests.get('cpu', '-')} {requests.get('memory', '-')}"


def shown(found: ResizePlan) -> list[str]:
    return [short(step) for step in found.steps]


def test_nothing_to_do() -> None:
    same = pod(container("a", "1", "400Mi"))
    found = plan(same, same, values(), values(2000))
    assert found.empty and found == ResizePlan()


# 02 §9's examples
def test_raise_one_to_two() -> None:
    old, new = pod(container("a", "1", "400Mi")), pod(container("a", "2", "400Mi"))
    found = plan(old, new, values(1000), values(2000))
    assert shown(found) == ["pod quota 200000", "pod shares 2048", "a cpu: 2 400Mi"]
    assert found.checks == ()


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (profile_named("1.36"), ["a cpu: 1 400Mi", "pod shares 1024", "pod quota 100000"]),
        (PROFILE_DOCUMENTS, ["a cpu: 1 400Mi", "pod quota 100000", "pod shares 1024"]),
    ],
    ids=["1.36", "documents"],
)
def test_lower_two_to_one(profile: Any, expected: list[str]) -> None:
    old, new = pod(container("a", "2", "400Mi")), pod(container("a", "1", "400Mi"))
    assert shown(plan(old, new, values(2000), values(1000), profile=profile)) == expected


def test_two_containers_that_trade_memory() -> None:
    old = pod(container("a", memory="400Mi"), container("b", memory="200Mi"))
    new = pod(container("a", memory="200Mi"), container("b", memory="400Mi"))
    for first, second, expected in ((old, new, ["a", "b"]), (new, old, ["b", "a"])):
        found = plan(first, second, values(0, 600), values(0, 600))
        assert [short(step).split()[0] for step in found.steps] == expected


def test_the_worked_example_of_cpu() -> None:
    old = pod(container("a", "1"), container("b", "500m"))
    new = pod(container("a", "500m"), container("b", "2"))
    found = plan(old, new, values(1500), values(2500))
    assert shown(found) == ["pod quota 250000", "pod shares 2560", "a cpu: 500m -", "b cpu: 2 -"]


def test_memory_before_cpu_and_each_with_the_values_of_its_moment() -> None:
    old, new = pod(container("a", "1", "400Mi")), pod(container("a", "2", "200Mi"))
    found = plan(old, new, values(1000, 400), values(2000, 200))
    assert shown(found) == [
        "a memory: 1 200Mi",
        "pod memory 200",
        "pod quota 200000",
        "pod shares 2048",
        "a cpu: 2 200Mi",
    ]


def test_decreases_in_reverse_order_then_increases_in_order() -> None:
    sizes = {"a": ("2", "1"), "b": ("1", "2"), "c": ("2", "1"), "d": ("1", "2")}
    old = pod(*(container(name, before) for name, (before, _) in sizes.items()))
    new = pod(*(container(name, after) for name, (_, after) in sizes.items()))
    found = plan(old, new, values(6000), values(6000))
    assert [short(step)[0] for step in found.steps] == ["c", "a", "b", "d"]


@pytest.mark.parametrize(
    ("old", "new", "grows"),
    [
        pytest.param(("100Mi", "400Mi"), ("200Mi", "300Mi"), False, id="the limit decides"),
        pytest.param(("100Mi", "400Mi"), ("200Mi", "400Mi"), True, id="else the request"),
        pytest.param(("100Mi", ""), ("100Mi", "400Mi"), True, id="a new limit counts as growth"),
        pytest.param(("100Mi", "400Mi"), ("100Mi", ""), False, id="a limit taken away as shrinking"),
    ],
)
def test_the_direction(old: tuple[str, str], new: tuple[str, str], grows: bool) -> None:
    """Beside `z`, which grows and is first in the spec: a container that shrinks comes before it."""
    before = pod(container("z", "", "1Mi", ""), container("a", "", *old))
    after = pod(container("z", "", "2Mi", ""), container("a", "", *new))
    found = plan(before, after, values(), values())
    assert [short(step)[0] for step in found.steps] == (["z", "a"] if grows else ["a", "z"])


# --- the pod's limit ---


@pytest.mark.parametrize(
    ("current", "wanted", "expected"),
    [
        pytest.param(-1, 100000, ["pod", "a"], id="from unlimited counts as growth"),
        pytest.param(None, 100000, ["pod", "a"], id="None is unlimited too"),
        pytest.param(100000, -1, ["a", "pod"], id="to unlimited counts as shrinking"),
        pytest.param(100000, None, ["a"], id="a missing limit keeps the current one"),
        pytest.param(100000, 100000, ["a"], id="the same"),
    ],
)
def test_unlimited_is_the_smallest_number(current: int | None, wanted: int | None, expected: list[str]) -> None:
    old, new = pod(container("a", "1")), pod(container("a", "2"))
    found = plan(old, new, Values(512, current, 100_000), Values(512, wanted, 100_000))
    assert [short(step).split()[0] for step in found.steps] == expected


def test_a_limit_is_never_removed_at_pod_level() -> None:
    old, new = pod(container("a", memory="400Mi")), pod(container("a", "", "300Mi", ""))
    found = plan(old, new, values(0, 400), Values(2))
    assert shown(found) == ["a memory: - 300Mi"]


def test_a_pod_write_knows_before_and_after() -> None:
    old, new = pod(container("a", "1", "400Mi")), pod(container("a", "2", "500Mi"))
    found = plan(old, new, values(1000, 400), values(2000, 500))
    writes = [step for step in found.steps if isinstance(step, WritePod)]
    assert [step.values for step in writes] == [
        Values(memory_bytes=500 * MI),
        Values(cpu_quota_us=200000, cpu_period_us=100_000),
        Values(cpu_shares=2048),
    ]
    assert writes[0].before == values(1000, 400)
    assert [step.before for step in writes[1:]] == [step.after for step in writes[:-1]]
    assert writes[-1].after == values(2000, 500)


def test_after_a_failure_the_pod_is_checked_too() -> None:
    same = pod(container("a", "1", "400Mi"))
    assert shown(plan(same, same, values(2000, 400), values(1000, 400), after_failure=True)) == [
        "pod shares 1024",
        "pod quota 100000",
    ]


# --- restarts ---

RESTART_MEMORY = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}


def test_a_restart_replaces_the_update_and_adjusts_the_pod() -> None:
    old = pod(container("a", "1", "400Mi", **RESTART_MEMORY), container("b", "1", "100Mi"))
    new = pod(container("a", "2", "500Mi", **RESTART_MEMORY), container("b", "2", "100Mi"))
    found = plan(old, new, values(2000, 500), values(4000, 600))
    assert found.restarts == ("a",)
    assert shown(found) == ["pod memory 600", "pod quota 400000", "pod shares 4096", "b cpu: 2 100Mi"]
    assert restart_message("a") == "Container a resize requires restart"


def test_a_policy_matters_only_for_its_resource() -> None:
    old, new = pod(container("a", "1", "1Mi", **RESTART_MEMORY)), pod(container("a", "2", "1Mi", **RESTART_MEMORY))
    found = plan(old, new, values(1000), values(2000))
    assert found.restarts == ()
    assert shown(found)[-1] == "a cpu: 2 1Mi"


# --- who takes part ---


def test_only_running_containers() -> None:
    old, new = pod(container("a", "1"), container("b", "1")), pod(container("a", "2"), container("b", "2"))
    found = plan(old, new, values(2000), values(4000), running={"b"})
    assert [step.container for step in found.steps if isinstance(step, UpdateContainer)] == ["b"]
    assert plan(old, new, values(2000), values(4000), running=()).empty


def test_without_a_record_everything_is_new() -> None:
    found = resize_plan(
        pod(container("a", "1")), allocation_of(pod()), {"a"}, values(), values(), profile=profile_named("1.36")
    )
    assert [short(step)[0] for step in found.steps] == ["a"]


def test_init_containers_come_before_regular_ones_in_the_order() -> None:
    def sized(cpu: str) -> Pod:
        init = [container("plain", cpu), container("side", cpu, restartPolicy="Always")]
        return pod(container("main", cpu), initContainers=init)

    found = plan(sized("1"), sized("2"), values(), values())
    assert [short(step).split()[0] for step in found.steps] == ["plain", "side", "main"]
    off = Gates(init_containers=False)
    found = plan(sized("1"), sized("2"), values(), values(), gates=off)
    assert [short(step).split()[0] for step in found.steps] == ["side", "main"]


OLD_BLOCK, NEW_BLOCK = {"limits": {"cpu": "1", "memory": "400Mi"}}, {"limits": {"cpu": "2", "memory": "300Mi"}}


def test_a_container_without_limits_follows_the_pod_level() -> None:
    def made(block: Any, **policy: Any) -> Pod:
        limited = container("a", "1", "100Mi")
        return pod(
            limited, {"name": "b", **policy}, {"name": "c", "resources": {"limits": {"cpu": "1"}}}, resources=block
        )

    found = plan(made(OLD_BLOCK), made(NEW_BLOCK), values(1000, 400), values(2000, 300))
    assert shown(found) == [
        *("c memory: - -", "b memory: - -", "pod memory 300"),
        *("pod quota 200000", "pod shares 2048", "b cpu: - -"),
    ]
    limits = {step.container: step.resources.limits for step in found.steps if isinstance(step, UpdateContainer)}
    assert limits["b"] is None, "in the end it has no limits of its own"
    assert found.checks == (MemoryCheck(300 * MI), MemoryCheck(300 * MI, "c"), MemoryCheck(300 * MI, "b"))
    restart = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    old, new = made(OLD_BLOCK, resizePolicy=restart), made(NEW_BLOCK, resizePolicy=restart)
    assert plan(old, new, values(1000, 400), values(2000, 300)).restarts == ("b",)
    off = Gates(pod_level_resize=False)
    assert plan(old, new, values(1000, 400), values(2000, 300), gates=off).empty


def test_what_a_container_inherits_is_recorded_with_it() -> None:
    """A container that must restart does not lose that because the pod's own cgroup has its new size already."""
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    old, new = (pod({"name": "b", "resizePolicy": policy}, resources=block) for block in (OLD_BLOCK, NEW_BLOCK))
    gates = Gates(pod_level_resize=True)
    began = actuated_after(Allocation({}, True), old, ["b"], pod_level=True)
    assert began.inherited == {}
    assert [each.name for each in pending_actuation(new, began, {"b"}, gates).restarts] == ["b"]
    resized = actuated_after(began, new, [], pod_level=True)
    pending = pending_actuation(new, resized, {"b"}, gates)
    assert ([each.name for each in pending.restarts], pending.pod_level) == (["b"], False)
    assert kept_sizes(resized, ["b"], new.spec.resources) == {"b": Resources(limits=old.spec.resources.limits)}  # type: ignore[union-attr]
    again = actuated_after(resized, new, ["b"], pod_level=True)
    assert again.inherited == {} and not pending_actuation(new, again, {"b"}, gates)
    assert kept_sizes(again, ["b"], new.spec.resources) == {"b": Resources()}


def test_pod_level_alone() -> None:
    old = pod(container("a", "1", "100Mi"), resources=OLD_BLOCK)
    new = pod(container("a", "1", "100Mi"), resources=NEW_BLOCK)
    found = plan(old, new, values(1000, 400), values(2000, 300))
    assert shown(found) == ["pod memory 300", "pod quota 200000", "pod shares 2048"]
    assert found.checks == ()  # a pure change of the pod level is not checked
    assert plan(old, new, values(1000, 400), values(2000, 300), gates=Gates(pod_level_resize=False)).empty


# --- the memory check ---


@pytest.mark.parametrize(
    ("old", "new", "current", "wanted", "checks"),
    [
        pytest.param("400Mi", "300Mi", 400, 300, [(None, 300), ("a", 300)], id="lowered"),
        pytest.param("400Mi", "500Mi", 400, 500, [], id="raised"),
        pytest.param("", "500Mi", None, 500, [(None, 500), ("a", 500)], id="added"),
        pytest.param("400Mi", "", 400, None, [], id="taken away"),
        pytest.param("400Mi", "300Mi", 400, 400, [("a", 300)], id="the container alone"),
    ],
)
def test_what_is_checked(
    old: str, new: str, current: int | None, wanted: int | None, checks: list[tuple[str | None, int]]
) -> None:
    before, after = pod(container("a", "", "100Mi", old)), pod(container("a", "", "200Mi", new))
    now, then = (Values(2, memory_bytes=-1 if mi is None else mi * MI) for mi in (current, wanted))
    if wanted is None:
        then = Values(2)
    found = plan(before, after, now, then)
    assert found.checks == tuple(MemoryCheck(mi * MI, name) for name, mi in checks)


def test_a_restart_checks_the_pod() -> None:
    old, new = (pod(container("a", "1", memory, **RESTART_MEMORY)) for memory in ("400Mi", "300Mi"))
    assert plan(old, new, values(1000, 400), values(1000, 300)).checks == (MemoryCheck(300 * MI),)


def test_cpu_alone_is_not_checked() -> None:
    old, new = pod(container("a", "1", "400Mi")), pod(container("a", "2", "400Mi"))
    assert plan(old, new, values(1000, 400), values(2000, 300)).checks == ()


def test_the_message_of_a_failed_check() -> None:
    assert MemoryCheck(100).refusal(99, 99) is None
    assert MemoryCheck(100).refusal(100, 100) == (
        "cannot decrease memory limits: attempting to set pod memory limit (100) below current usage (100)"
    )
    assert MemoryCheck(100, "x").refusal(150, 200) == (
        'cannot decrease memory limits: attempting to set container "x" memory limit (100) below current usage (200)'
    )
    assert MemoryCheck(100, "x").refusal(99, 200) is None


# --- in progress (03 §8) ---


def test_in_progress() -> None:
    old, new = pod(container("a", "1")), pod(container("a", "2"))
    assert is_resize_in_progress(new, allocation_of(old), {"a"})
    assert not is_resize_in_progress(new, allocation_of(new), {"a"})
    assert not is_resize_in_progress(new, allocation_of(old), ())


def test_ordinary_init_containers_are_never_in_progress() -> None:
    def sized(cpu: str, **more: Any) -> Pod:
        return pod(container("a", "1"), initContainers=[container("i", cpu, **more)])

    assert not is_resize_in_progress(sized("2"), allocation_of(sized("1")), {"a", "i"})
    always = {"restartPolicy": "Always"}
    assert is_resize_in_progress(sized("2", **always), allocation_of(sized("1", **always)), {"a", "i"})


def test_pod_level_in_progress() -> None:
    old, new = (pod(container("a", "1"), resources={"requests": {"cpu": cpu}}) for cpu in ("1", "2"))
    assert is_resize_in_progress(new, allocation_of(old), {"a"})
    assert not is_resize_in_progress(new, allocation_of(old), {"a"}, Gates(pod_level_resize=False))


# --- the point of the order ---

_SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5)


@given(_SIZES, st.sampled_from([PROFILE_DOCUMENTS, profile_named("1.36")]))
def test_no_container_is_ever_larger_than_its_pod_and_the_end_is_right(
    rows: list[tuple[int, int]], profile: Any
) -> None:
    """Carried out step by step, as the kernel sees it."""
    old = pod(*(container(f"c{index}", memory=f"{before}Mi") for index, (before, _) in enumerate(rows)))
    new = pod(*(container(f"c{index}", memory=f"{after}Mi") for index, (_, after) in enumerate(rows)))
    limits = {f"c{index}": before * MI for index, (before, _) in enumerate(rows)}
    pod_limit = sum(limits.values())
    wanted = sum(after for _, after in rows)
    for step in plan(old, new, values(0, pod_limit // MI), values(0, wanted), profile=profile).steps:
        if isinstance(step, WritePod):
            assert step.values.memory_bytes is not None
            pod_limit = step.values.memory_bytes
        else:
            assert step.resources.limits is not None
            limits[step.container] = step.resources.limits["memory"].value
        assert sum(limits.values()) <= max(pod_limit, sum(before for before, _ in rows) * MI)
        assert max(limits.values()) <= pod_limit
    assert pod_limit == wanted * MI
    assert list(limits.values()) == [after * MI for _, after in rows]
