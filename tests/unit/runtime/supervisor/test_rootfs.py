"""The rules of the view: what is hidden, which disks are shown, what a volume must not show."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.runtime.supervisor.plan import Bind, LaunchPlan, plan_from
from plimsoll.runtime.supervisor.rootfs import disk_mounts, hidden_paths, is_below, seen_through

MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 27 254:1 / /usr ro - xfs /dev/vdb ro
29 27 254:2 / /a\040b rw - ext4 /dev/vdc rw
30 27 254:3 / /covered rw - ext4 /dev/vdd rw
31 30 0:30 / /covered rw - tmpfs tmpfs rw
32 23 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup rw
33 27 0:40 / /run/snap rw - squashfs /dev/loop0 ro
""".strip().splitlines()


def test_disks_but_not_the_root_nor_what_is_covered() -> None:
    assert disk_mounts(MOUNTINFO) == {"/usr", "/a b", "/run/snap"}


@pytest.mark.parametrize(
    ("path", "directories", "below"),
    [
        ("/a/b", ("/a",), True),
        ("/a", ("/a",), True),
        ("/ab", ("/a",), False),
        ("/a", ("/",), True),
        ("/a", (), False),
    ],
)
def test_is_below(path: str, directories: tuple[str, ...], below: bool) -> None:
    assert is_below(path, directories) is below


def test_hidden_paths_follow_links_and_are_not_nested(tmp_path: Path) -> None:
    found = hidden_paths([str(tmp_path)])
    assert "/var/run" not in found or not Path("/var/run").is_symlink()
    assert not any(is_below(one, [other]) for one in found for other in found if one != other)
    assert is_below(str(tmp_path.resolve()), found)
    assert "/" not in hidden_paths(["/"])


def test_where_a_volume_would_show_a_secret(tmp_path: Path) -> None:
    secret = tmp_path / "state"
    (secret / "pods/uid/volume").mkdir(parents=True)
    rows = {
        str(tmp_path): [("/v/state", str(secret))],
        "/": [(f"/v{secret}", str(secret))],
        str(secret): [("/v", str(secret))],
        str(secret / "pods/uid/volume"): [],  # a pod's own volume lies in it
        "/usr": [],
    }
    for host, shown in rows.items():
        assert seen_through([Bind(host, "/v")], [str(secret)]) == shown, host


def test_a_plan_crosses_the_wire() -> None:
    document = {
        "argv": ["a"], "environment": {"A": "b"}, "binds": [["/h", "/c", True]], "identity": [1, 2, [3], 4, False],
        "expose": ["/x"],
    }  # fmt: skip
    plan = plan_from(document)
    assert plan.binds == (Bind("/h", "/c", True),)
    assert plan.identity == (1, 2, (3,), 4, False)
    assert isinstance(plan, LaunchPlan) and plan.argv == ("a",)
    with pytest.raises(TypeError):
        plan_from(document | {"from another version": 1})
