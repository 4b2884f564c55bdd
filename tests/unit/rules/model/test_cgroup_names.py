"""Names and paths of cgroups (spec 02 §2): both drivers, both ways, every runtime."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.errors import InvalidNameError
from plimsoll.rules.model.cgroup_names import (
    below,
    cgroup_path,
    cgroupfs_path,
    class_name,
    container_component,
    is_systemd_style,
    misplaced_container_path,
    parse_cgroupfs,
    parse_systemd,
    pod_name,
    root_name,
    slice_name,
    systemd_path,
)
from tests.examples import examples

UID = "dba294ab-05fe-4314-a6d0-f9e0b3848104"
SLICE_UID = UID.replace("-", "_")
ROOT = ("kubepods",)

# 02 §2.2, without the mount point
PATHS = [
    ("node", ROOT, "/kubepods", "/kubepods.slice"),
    ("Burstable", class_name(ROOT, "Burstable"), "/kubepods/burstable", "/kubepods.slice/kubepods-burstable.slice"),
    ("BestEffort", class_name(ROOT, "BestEffort"), "/kubepods/besteffort", "/kubepods.slice/kubepods-besteffort.slice"),
    ("Guaranteed has none", class_name(ROOT, "Guaranteed"), "/kubepods", "/kubepods.slice"),
    (
        "Guaranteed pod",
        pod_name(ROOT, "Guaranteed", UID),
        f"/kubepods/pod{UID}",
        f"/kubepods.slice/kubepods-pod{SLICE_UID}.slice",
    ),
    (
        "Burstable pod",
        pod_name(ROOT, "Burstable", UID),
        f"/kubepods/burstable/pod{UID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice",
    ),
    (
        "BestEffort pod",
        pod_name(ROOT, "BestEffort", UID),
        f"/kubepods/besteffort/pod{UID}",
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE_UID}.slice",
    ),
    ("root", (), "/", "/"),
    ("one empty component", ("",), "/", "/"),
    ("custom root", root_name("/custom"), "/custom/kubepods", "/custom.slice/custom-kubepods.slice"),
    (
        "§2.1 a root written as a slice is not special",
        root_name("/system.slice"),
        "/system.slice/kubepods",
        "/system.slice.slice/system.slice-kubepods.slice",
    ),
    ("§2.1 a root may have _", root_name("/x_y"), "/x_y/kubepods", "/x_y.slice/x_y-kubepods.slice"),
    ("§2.1 - becomes _", ("a-b", "c"), "/a-b/c", "/a_b.slice/a_b-c.slice"),
]


@pytest.mark.parametrize(
    ("name", "cgroupfs", "systemd"), [row[1:] for row in PATHS], ids=[f"02 §2.2 {row[0]}" for row in PATHS]
)
def test_paths(name: tuple[str, ...], cgroupfs: str, systemd: str) -> None:
    assert cgroupfs_path(name) == cgroup_path(name, "cgroupfs") == cgroupfs
    assert systemd_path(name) == cgroup_path(name, "systemd") == systemd


ID = "0123456789abcdef" * 4
CONTAINERS = [
    ("containerd", "cgroupfs", ID),
    ("containerd", "systemd", f"cri-containerd-{ID}.scope"),
    ("crio", "cgroupfs", f"crio-{ID}"),
    ("crio", "systemd", f"crio-{ID}.scope"),
]


@pytest.mark.parametrize(
    ("runtime", "driver", "component"), CONTAINERS, ids=[f"02 §2.2 {row[0]} {row[1]}" for row in CONTAINERS]
)
def test_containers(runtime, driver, component) -> None:
    assert container_component(ID, driver, runtime) == component


def test_misplaced_containers() -> None:
    """02 §2.2, driver mismatch: the triple is taken literally, at the root."""
    pod = pod_name(ROOT, "Guaranteed", UID)
    assert misplaced_container_path(pod, ID, "containerd") == f"/kubepods-pod{SLICE_UID}.slice:cri-containerd:{ID}"
    assert misplaced_container_path(pod, ID, "crio") == f"/kubepods-pod{SLICE_UID}.slice:crio:{ID}"
    assert slice_name(pod) == f"kubepods-pod{SLICE_UID}.slice"


ROOTS = [
    ("empty", "", True, ("kubepods",)),
    ("slash", "/", True, ("kubepods",)),
    ("custom", "/custom", True, ("custom", "kubepods")),
    ("no leading slash", "a", True, ("a", "kubepods")),
    ("empty components are kept", "/a/", True, ("a", "", "kubepods")),
    ("two slashes", "//", True, ("", "", "kubepods")),
    ("cgroupsPerQOS false", "/a/b", False, ("a", "b")),
    ("cgroupsPerQOS false, root", "/", False, ()),
]


@pytest.mark.parametrize(
    ("path", "per_qos", "name"), [row[1:] for row in ROOTS], ids=[f"02 §2.1 {row[0]}" for row in ROOTS]
)
def test_roots(path: str, per_qos: bool, name: tuple[str, ...]) -> None:
    assert root_name(path, cgroups_per_qos=per_qos) == name


def test_without_cgroups_per_qos_the_names_still_answer() -> None:
    root = root_name("/", cgroups_per_qos=False)
    assert cgroupfs_path(pod_name(root, "Burstable", "u")) == "/burstable/podu"


REFUSED = [
    ("slash in what is appended", lambda: below((), "a/b"), 'invalid character in component ["a/b"] of CgroupName'),
    (
        "_ in what is appended",
        lambda: pod_name(ROOT, "Burstable", "a_b"),
        'invalid character in component ["poda_b"] of CgroupName',
    ),
    (
        "empty component in a slice",
        lambda: systemd_path(root_name("/a/")),
        "error converting cgroup name [[a  kubepods]] to systemd format: invalid slice name: a--kubepods.slice",
    ),
    (
        "leading empty component",
        lambda: systemd_path(("", "a")),
        "error converting cgroup name [[ a]] to systemd format: invalid slice name: -a.slice",
    ),
]


@pytest.mark.parametrize(
    ("make", "sentence"), [row[1:] for row in REFUSED], ids=[f"02 §2.1 {row[0]}" for row in REFUSED]
)
def test_refused(make, sentence: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        make()
    assert str(caught.value) == sentence


def test_two_empty_components_are_systemds_root() -> None:
    assert systemd_path(("", "")) == "/"
    assert cgroupfs_path(("", "")) == "/"


SLICES = [
    ("/a.slice/a-b.slice", ("a", "b")),
    ("/a/b-c.slice", ("b", "c")),
    ("-.slice", ("", "")),
    ("/", ("/",)),
    ("/kubepods.slice/", ("kubepods",)),
    ("/kubepods-pod1_2.slice", ("kubepods", "pod1-2")),
]


@pytest.mark.parametrize(("path", "name"), SLICES, ids=[f"02 §2.1 reverse {row[0]}" for row in SLICES])
def test_reverse(path: str, name: tuple[str, ...]) -> None:
    assert parse_systemd(path) == name


def test_systemd_style() -> None:
    assert is_systemd_style("/kubepods.slice")
    assert not is_systemd_style("/kubepods")


components = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=12)
names = st.lists(components, min_size=1, max_size=5).map(tuple)


@settings(max_examples=examples(200), deadline=None)
@given(names)
def test_cgroupfs_both_ways(name: tuple[str, ...]) -> None:
    assert parse_cgroupfs(cgroupfs_path(name)) == name


@settings(max_examples=examples(200), deadline=None)
@given(names)
def test_systemd_both_ways(name: tuple[str, ...]) -> None:
    """`_` is banned from components exactly so that this holds."""
    path = systemd_path(name)
    assert parse_systemd(path) == name
    assert path.count("/") == len(name)
    assert is_systemd_style(path)


@settings(max_examples=examples(200), deadline=None)
@given(names, components)
def test_a_child_lies_in_its_parent(name: tuple[str, ...], component: str) -> None:
    for driver in ("cgroupfs", "systemd"):
        parent, child = cgroup_path(name, driver), cgroup_path(below(name, component), driver)
        assert child.startswith(parent + "/")
        assert child.count("/") == parent.count("/") + 1
