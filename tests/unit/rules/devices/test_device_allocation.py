"""Devices: worked examples 44 to 50 of 07 §9; a device is never given twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from plimsoll.rules.devices.allocation import (
    Device,
    DeviceAllocation,
    DeviceError,
    Ids,
    Pool,
    Preferred,
    device_hints,
    pod_device_limits,
)
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.numa import NO_HINT, Hint, mask_of
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.topologymanager.admission import TopologyAffinityError, TopologySetting, allocate
from plimsoll.rules.topologymanager.merge import NumaLayout
from tests.examples import examples
from tests.unit.strategies import Json, lean

GPU = "example.com/gpu"
Records = dict[str, dict[str, dict[str, Ids]]]


def pool(*, asks: bool = False, stopped: bool = False, **nodes: tuple[int, ...] | None) -> Pool:
    return Pool({name: Device(name, True, on) for name, on in nodes.items()}, stopped=stopped, asks=asks)


FOUR = pool(d0=(0,), d1=(0,), d2=(1,), d3=(1,))


def container(name: str, count: int, **more: Any) -> Json:
    return {"name": name, "resources": {"limits": {GPU: str(count)}}, **more}


def pod(uid: str, *containers: Json, inits: tuple[Json, ...] = ()) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(inits)}
    return defaulted(lean({"metadata": {"uid": uid, "name": uid}, "spec": spec}))


def given_to(
    devices: Pool, records: Records, count: int, hint: Hint = NO_HINT, preferred: Preferred = lambda *_: ()
) -> str:
    asked = pod(f"u{len(records)}", container("c", count))
    allocation = DeviceAllocation(asked, {GPU: devices}, records, (0, 1), preferred)
    allocation.allocate(asked.spec.containers[0], hint)
    records[asked.metadata.uid] = allocation.result
    return " ".join(sorted(allocation.result["c"][GPU]))


def hints(devices: Pool, count: int, nodes: tuple[int, ...] = (0, 1)) -> str:
    asked = pod("a", container("c", count))
    found = DeviceAllocation(asked, {GPU: devices}, {}, nodes).hints(asked.spec.containers[0])[GPU]
    return "nil" if found is None else "".join(map(str, found))


ONE = Hint(mask_of([1]), preferred=True)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, "{[0] T}{[1] T}{[0 1] F}"),
        (2, "{[0] T}{[1] T}{[0 1] F}"),
        (3, "{[0 1] T}"),
        (4, "{[0 1] T}"),
        (5, ""),
    ],
)
def test_44_hints(count: int, expected: str) -> None:
    assert hints(FOUR, count) == expected


def test_a_limit_of_zero_takes_part() -> None:
    """DM-6, DM-11: no device is needed, but every mask is a hint, and a dead plugin refuses the pod."""
    assert hints(FOUR, 0) == "{[0] T}{[1] T}{[0 1] F}"
    asked = pod("a", container("c", 0))
    allocation = DeviceAllocation(asked, {GPU: FOUR}, {}, (0, 1))
    assert list(map(str, allocation.pod_hints()[GPU] or ())) == ["{[0] T}", "{[1] T}", "{[0 1] F}"]
    allocation.allocate(asked.spec.containers[0])
    assert allocation.result == {}
    with pytest.raises(DeviceError, match="no healthy devices present; cannot allocate unhealthy devices"):
        DeviceAllocation(asked, {GPU: pool(d0=(0,), stopped=True)}, {}, (0, 1)).allocate(asked.spec.containers[0])


def test_45_the_mask_does_not_confine() -> None:
    records: Records = {}
    assert [given_to(FOUR, records, 2, ONE) for _ in range(2)] == ["d2 d3", "d0 d1"]
    with pytest.raises(DeviceError) as caught:
        given_to(FOUR, records, 1, ONE)
    assert str(caught.value) == (
        "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 1, "
        "Available: 0, which is unexpected"
    )


class Asked:
    """A plugin that prefers some devices, and remembers what it was asked."""

    def __init__(self, *answer: str) -> None:
        self.answer, self.calls = answer, list[tuple[str, str, int]]()

    def __call__(self, _: str, available: Ids, must: Ids, size: int) -> tuple[str, ...]:
        self.calls.append((" ".join(sorted(available)), " ".join(sorted(must)), size))
        return self.answer


ASKING = Pool(FOUR.devices, asks=True)


def test_46_preferred() -> None:
    asked = Asked("d3")
    assert given_to(ASKING, {}, 1, ONE, asked) == "d3"
    assert asked.calls == [("d2 d3", "", 1)]
    assert given_to(ASKING, {}, 1, ONE, Asked("d0")) in ("d2", "d3")
    silent = Asked("d3")
    given_to(FOUR, {}, 1, ONE, silent)
    assert silent.calls == []  # the plugin has not the option


def test_47_preferred_beyond_the_mask() -> None:
    asked = Asked("d1", "d2", "d3")
    assert given_to(ASKING, {}, 3, ONE, asked) == "d1 d2 d3"
    assert asked.calls == [("d0 d1 d2 d3", "d2 d3", 3)]
    assert len(given_to(ASKING, {}, 3, ONE, Asked("unknown", "d9")).split()) == 3  # a plugin that lies


def test_48_two_nodes() -> None:
    spread = pool(d0=(0, 2), d1=(2,), d2=(2,))
    assert hints(spread, 1, (0, 1, 2, 3)) == "{[0] T}{[2] T}{[0 2] F}"
    assert {hints(spread, count, (0, 1, 2, 3)) for count in (2, 3)} == {"{[2] T}{[0 2] F}"}


def test_48_before_1_36_all_nodes_count() -> None:
    devices = {"d0": Device("d0", True, (0,))}
    wide = device_hints(devices, frozenset({"d0"}), frozenset(), 1, (0, 1), narrow=False)
    assert "".join(map(str, wide)) == "{[0] T}{[0 1] F}"
    assert [str(each) for each in device_hints(devices, frozenset({"d0"}), frozenset(), 1, (0, 1))] == ["{[0] T}"]


def test_49_health() -> None:
    devices = {f"d{n}": Device(f"d{n}", n < 3) for n in range(4)}
    some, gone = Pool(devices), Pool(devices, stopped=True)
    assert (some.capacity, len(some.healthy)) == (4, 3)
    assert (gone.capacity, len(gone.healthy)) == (4, 0)
    with pytest.raises(DeviceError, match="Requested: 4, Available: 3"):
        given_to(some, {}, 4)
    with pytest.raises(DeviceError, match="no healthy devices present; cannot allocate unhealthy devices"):
        given_to(gone, {}, 1)
    asked = pod("a", container("c", 1))
    allocation = DeviceAllocation(asked, {}, {"b": {"c": {GPU: frozenset({"d0"})}}}, (0,))
    with pytest.raises(DeviceError, match="cannot allocate unregistered device example"):
        allocation.allocate(asked.spec.containers[0])


def test_50_an_init_container_holds_one_of_each_node() -> None:
    asked = pod("a", container("c", 1), inits=(container("i", 2),))
    records = {"a": {"i": {GPU: frozenset({"d1", "d2"})}}}
    allocation = DeviceAllocation(asked, {GPU: FOUR}, records, (0, 1))
    allocation.allocate(asked.spec.init_containers[0])
    found = allocation.hints(asked.spec.containers[0])[GPU]
    assert "".join(map(str, found or ())) == "{[0 1] F}"
    setting = TopologySetting("restricted", layout=NumaLayout((0, 1)))
    with pytest.raises(TopologyAffinityError) as caught:
        allocate(asked, [DeviceAllocation(asked, {GPU: FOUR}, records, (0, 1))], setting)
    assert (caught.value.reason, str(caught.value)) == (
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
    )


def test_devices_without_topology() -> None:
    assert hints(pool(d0=None, d1=None), 1) == "nil"
    assert hints(pool(d0=(0,), d1=(0,), d2=None), 3) == ""  # they never count (DM-7) …
    assert given_to(pool(d0=(0,), d1=(0,), d2=None), {}, 3) == "d0 d1 d2"  # … although Allocate gives them


def test_changes_after_the_assignment() -> None:
    records = {"u1": {"c": {GPU: frozenset({"d0"})}}}
    more = pod("u1", container("c", 2))
    with pytest.raises(DeviceError, match='pod "u1" container "c" changed request for resource "example'):
        DeviceAllocation(more, {GPU: FOUR}, records, (0, 1)).allocate(more.spec.containers[0])
    assert DeviceAllocation(more, {GPU: FOUR}, records, (0, 1)).hints(more.spec.containers[0]) == {GPU: ()}
    ill = Pool({**FOUR.devices, "d0": Device("d0", healthy=False, nodes=(0,))})
    same = pod("u1", container("c", 1))
    with pytest.raises(DeviceError, match="previously allocated devices are no longer healthy"):
        DeviceAllocation(same, {GPU: ill}, records, (0, 1)).allocate(same.spec.containers[0])


def test_the_limits_of_a_pod() -> None:
    sidecar = container("s", 1, restartPolicy="Always")
    asked = pod("a", container("x", 2), container("y", 1), inits=(container("i", 3), sidecar, container("j", 4)))
    assert pod_device_limits(asked, [GPU]) == {GPU: 5}


# --- for every sequence of pods ---


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.lists(st.integers(0, 3), min_size=1, max_size=3),
            st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=2),
            st.booleans(),
            st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
            st.sampled_from(["container", "pod"]),
        ),
        max_size=10,
    )
)
def test_never_twice(lives: list[Any]) -> None:
    devices = pool(d0=(0,), d1=(0,), d2=(1,), d3=(1,), d4=None, d5=(0, 1))
    records: Records = {}
    for number, apps, inits, leaves, policy, scope in lives:
        uid = f"u{number}"
        if uid in records:
            if leaves:
                del records[uid]
            continue
        asked = pod(
            uid,
            *(container(f"c{n}", count) for n, count in enumerate(apps)),
            inits=tuple(
                container(f"i{n}", count, **({"restartPolicy": "Always"} if sidecar else {}))
                for n, (count, sidecar) in enumerate(inits)
            ),
        )
        allocation = DeviceAllocation(asked, {GPU: devices}, records, (0, 1))
        try:
            allocate(asked, [allocation], TopologySetting(policy, scope, layout=NumaLayout((0, 1))))
        except (DeviceError, TopologyAffinityError):
            event("refused")
            continue
        event("assigned")
        records[uid] = allocation.result
        lasting = [f"c{n}" for n in range(len(apps))] + [f"i{n}" for n, (_, sidecar) in enumerate(inits) if sidecar]
        own = [allocation.result[name][GPU] for name in lasting if name in allocation.result]
        assert sum(map(len, own)) == len(frozenset().union(*own)), "two containers that run together share a device"
        mine = frozenset().union(*(each[GPU] for each in allocation.result.values()))
        others = frozenset().union(
            *(each[GPU] for key, containers in records.items() if key != uid for each in containers.values())
        )
        assert not mine & others
