"""`want …, have … (reason)`: a desired tree compared with a kernel's."""

from __future__ import annotations

from plimsoll.rules.cgroups.desired import Cgroup, DesiredFile
from plimsoll.rules.cgroups.drift import drift, expected

POD = "/kubepods/podabc"
APP = f"{POD}/{'a' * 64}"


def tree(*, uid: str = "abc", limit: int = 268435456) -> Cgroup:
    app = Cgroup("container", "app", f"/kubepods/pod{uid}/<id>", (DesiredFile("memory.max", limit),))
    files = (
        DesiredFile("memory.max", limit),
        DesiredFile("cpu.max", "50000 100000"),
        DesiredFile("hugetlb.2MB.max", 0),
    )
    pod = Cgroup("pod", "shop/web-0", f"/kubepods/pod{uid}", files, children=(app,))
    pods = Cgroup("pods", "all pods", "/kubepods", (DesiredFile("hugetlb.2MB.max", 0),), children=(pod,))
    return Cgroup("node", "n", "/", children=(pods,))


def lacking(file: str) -> str | None:
    return "controller hugetlb is not mounted" if file.startswith("hugetlb.") else None


LIVE: dict[str, dict[str, str]] = {
    "/kubepods": {},
    POD: {"memory.max": "268435456", "cpu.max": "50000 100000"},
    APP: {"memory.max": "268435456"},
}
HUGE = "want hugetlb.2MB.max 0, have none (controller hugetlb is not mounted)"


def found(wanted: Cgroup, live: dict[str, dict[str, str]], names: dict[str, str]) -> dict[str, list[str]]:
    return drift(expected(wanted, live, names), live, lacking)


def test_what_is_as_wanted_says_nothing_and_what_no_cgroup_here_can_have_is_said_once() -> None:
    assert found(tree(), LIVE, {APP: "app"}) == {"/kubepods": [HUGE]}


def test_another_value_and_a_file_that_only_this_cgroup_lacks() -> None:
    live = LIVE | {POD: {"memory.max": "max"}}
    assert found(tree(), live, {APP: "app"})[POD] == [
        "want memory.max 268435456, have max",
        "want cpu.max 50000 100000, have none (the file is not in this cgroup)",
    ]


def test_what_the_kernel_rounds_is_equal() -> None:
    assert found(tree(limit=268435456 + 100), LIVE, {APP: "app"}) == {"/kubepods": [HUGE]}


def test_a_missing_container_is_reported_at_its_pod() -> None:
    assert found(tree(), LIVE, {})[POD] == ["want container app, have none"]
    assert found(tree(), LIVE, {APP: "another"})[POD] == ["want container app, have none"]


def test_a_missing_pod_is_one_line_and_so_is_one_without_a_uid() -> None:
    live = {"/kubepods": LIVE["/kubepods"]}
    assert found(tree(), live, {})["/kubepods"] == [HUGE, "want pod shop/web-0, have none"]
    assert found(tree(uid="<uid>"), live, {})["/kubepods"] == [
        HUGE,
        "want pod shop/web-0, have none (it has no uid yet)",
    ]
