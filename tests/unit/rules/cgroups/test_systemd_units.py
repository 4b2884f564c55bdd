from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import InvalidNameError
from plimsoll.rules.cgroups.systemd import LONGEST_NAME, MACHINE_UNITS, ROOT_SLICE, Unit, unit_of
from plimsoll.rules.model.cgroup_names import container_component, systemd_path

POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice"


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        pytest.param("/", Unit(ROOT_SLICE, ""), id="root"),
        pytest.param("/kubepods.slice", Unit("kubepods.slice", ROOT_SLICE), id="top"),
        pytest.param(POD, Unit("kubepods-burstable-pod12_34.slice", "kubepods-burstable.slice"), id="pod"),
        pytest.param(
            f"{POD}/cri-containerd-ab.scope",
            Unit("cri-containerd-ab.scope", "kubepods-burstable-pod12_34.slice", is_scope=True),
            id="container",
        ),
        pytest.param("/init.scope", Unit("init.scope", ROOT_SLICE, is_scope=True), id="scope-at-the-top"),
        pytest.param(f"{POD}/crio-ab.scope/container", None, id="below-a-scope"),
    ],
)
def test_the_unit_of_a_path(path: str, unit: Unit | None) -> None:
    assert unit_of(path) == unit


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/kubepods", id="cgroupfs-name"),
        pytest.param("kubepods", id="relative"),
        pytest.param("", id="empty"),
        pytest.param("//a.slice", id="empty-component"),
        pytest.param("/a.slice/", id="trailing"),
        pytest.param("/a.slice/b.slice", id="not-in-its-parent"),
        pytest.param("/a-b.slice", id="parent-left-out"),
        pytest.param("/a.slice/a-b.slice/a-c.slice", id="sibling"),
        pytest.param("/a--b.slice", id="empty-part"),
        pytest.param("/a-.slice", id="empty-last-part"),
        pytest.param("/-.slice", id="root-by-name"),
        pytest.param("/.slice", id="no-stem"),
        pytest.param("/.scope", id="scope-without-stem"),
        pytest.param("/-x.scope", id="option"),
        pytest.param("/..scope", id="dots"),
        pytest.param("/a@b.slice", id="template"),
        pytest.param("/a\\x2db.slice", id="escape"),
        pytest.param("/a\n.slice", id="newline"),
        pytest.param("/a.slice\n", id="newline-at-the-end"),
        pytest.param("/a b.slice", id="blank"),
        pytest.param("/ä.slice", id="not-ascii"),
        pytest.param("/٣.slice", id="digit-beyond-ascii"),
        pytest.param("/a.service", id="service"),
        pytest.param("/a.slice/../b.slice", id="up"),
        pytest.param(f"/{'a' * 250}.slice", id="too-long"),
    ],
)
def test_what_is_no_unit_of_ours_is_refused(path: str) -> None:
    with pytest.raises(InvalidNameError):
        unit_of(path)


def test_the_longest_name_is_taken() -> None:
    name = "a" * (LONGEST_NAME - len(".slice")) + ".slice"
    assert unit_of(f"/{name}") == Unit(name, ROOT_SLICE)


def test_the_machines_own_units_say_so() -> None:
    assert {name for name in ("system.slice", "init.scope", "kubepods.slice") if _own(name)} == {
        "system.slice",
        "init.scope",
    }
    assert Unit(ROOT_SLICE, "").is_machines_own
    assert "kubepods.slice" not in MACHINE_UNITS


def _own(name: str) -> bool:
    unit = unit_of(f"/{name}")
    return unit is not None and unit.is_machines_own


part = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=8)


@given(st.lists(part, min_size=1, max_size=4), st.sampled_from(["containerd", "crio", "process"]))
def test_every_path_that_hierarchy_spells_is_a_chain_of_units(parts: list[str], runtime: str) -> None:
    path = systemd_path(tuple(parts))
    unit = unit_of(path)
    assert unit is not None
    assert path.endswith(f"/{unit.name}")
    above = path.rpartition("/")[0]
    assert unit.parent == (above.rpartition("/")[2] or ROOT_SLICE)
    scope = container_component("a" * 64, "systemd", runtime)  # type: ignore[arg-type]
    assert unit_of(f"{path}/{scope}") == Unit(scope, unit.name, is_scope=True)
