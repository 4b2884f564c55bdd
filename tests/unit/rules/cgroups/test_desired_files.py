from __future__ import annotations

import pytest

from plimsoll.errors import InvalidNameError
from plimsoll.rules.cgroups.desired import Cgroup, DesiredFile
from plimsoll.rules.cgroups.desired_files import DesiredCgroup, ancestors, derived_id, parent_path, protected, wanted
from plimsoll.rules.cgroups.limits_in_use import capped_protection, fitted
from plimsoll.rules.cgroups.reconcile import Unmet
from plimsoll.rules.cgroups.steps import ObservedCgroup


def node(*children: Cgroup) -> Cgroup:
    return Cgroup("node", "n", "/", children=children)


def test_the_tree_is_laid_flat_with_the_cgroups_above_kubepods() -> None:
    tree = node(
        Cgroup("pods", "all", "/a/b/kubepods", (DesiredFile("memory.max", 4096),)), Cgroup("reserved", "sys", "/sys")
    )
    found = wanted(tree)
    assert list(found) == ["/a", "/a/b", "/a/b/kubepods", "/sys"]
    assert found["/a/b/kubepods"].files == {"memory.max": "4096"} and found["/a"].level == "root"


@pytest.mark.parametrize(
    "path",
    ["/kubepods/../x", "/kubepods//x", "/a\nb", "/kubepods/pod<uid>", "/" + "ü" * 128],
    ids=["up", "empty", "newline", "unknown-uid", "256-bytes"],
)
def test_what_can_be_no_cgroup_is_refused(path: str) -> None:
    with pytest.raises(InvalidNameError):
        wanted(node(Cgroup("pods", "all", path)))


def test_one_path_for_two_is_refused() -> None:
    with pytest.raises(InvalidNameError, match='is both "a" and "b"'):
        wanted(node(Cgroup("pod", "a", "/x"), Cgroup("pod", "b", "/x")))


def test_containers_without_a_pods_cgroup_are_the_runtimes_business() -> None:
    loose = Cgroup("pod", "p", "", children=(Cgroup("container", "c", "<the runtime's choice>/<id>"),))
    assert wanted(node(loose)) == {}


def test_a_derived_id_is_stable_and_unique() -> None:
    ids = {derived_id(uid, name) for uid in ("u1", "u2") for name in ("a", "b")}
    assert len(ids) == 4 and derived_id("u1", "a") in ids and all(len(each) == 64 for each in ids)


def test_paths() -> None:
    assert ancestors("/a/b/c") == ["/a", "/a/b"] and ancestors("/a") == []
    assert parent_path("/a/b") == "/a" and parent_path("/a") == "/"


PLAN = {
    "/top": DesiredCgroup("root", "/top", {}),
    "/top/kubepods": DesiredCgroup("pods", "all", {"memory.min": "12288", "memory.max": "90000"}),
    "/top/kubepods/burstable": DesiredCgroup("class", "Burstable", {"memory.low": "8192"}),
}


def test_kubepods_and_our_own_cgroups_above_hold_what_is_protected_below() -> None:
    own = protected(PLAN, ["/top"])
    assert own["/top"].files == {"memory.min": "12288", "memory.low": "8192"}
    assert own["/top/kubepods"].files == {"memory.min": "12288", "memory.max": "90000", "memory.low": "8192"}
    foreign = protected(PLAN, [])
    assert foreign["/top"].files == {} and foreign["/top/kubepods"].files["memory.low"] == "8192"


def test_an_ancestor_that_is_not_ours_is_named_where_it_holds_too_little() -> None:
    full = protected(PLAN, [])
    has = {"/top": ObservedCgroup({"memory.min": "12288", "memory.low": "0"})}
    assert [(each.file, each.want, each.have) for each in capped_protection(full, has, [])] == [
        ("memory.low", "8192", "0")
    ]
    assert capped_protection(full, has, ["/top"]) == []


@pytest.mark.parametrize(
    ("found", "used", "want", "expected"),
    [
        ("max", 0, "8192", "8192"),
        ("max", 8192, "8192", "8192"),
        ("max", 8193, "8192", "12288"),
        ("4096", 8193, "8192", "8192"),
        ("12288", 40960, "8192", "12288"),
        (None, 0, "8192", "8192"),
        (None, 0, "-8192", None),
        ("12288", 0, "-8192", "12288"),
        ("12288", 4096, "-8192", "4096"),
    ],
    ids=["unused", "just-fits", "in-use", "raised", "never-above-what-is", "new", "new-less-than-nothing",
         "less-than-nothing", "less-than-nothing-in-use"],
)  # fmt: skip
def test_a_class_limit_never_goes_below_what_is_in_use(
    found: str | None, used: int, want: str, expected: str | None
) -> None:
    plan = {"/c": DesiredCgroup("class", "c", {"memory.max": want})}
    snapshot = {} if found is None else {"/c": ObservedCgroup({"memory.max": found})}
    result = fitted(plan, snapshot, {"/c": used})
    assert result.plan["/c"].files.get("memory.max") == expected
    assert [(each.want, each.have) for each in result.unmet] == ([] if expected == want else [(want, expected)])
    assert all(isinstance(each, Unmet) for each in result.unmet)
