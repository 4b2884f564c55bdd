"""Texts of the kernel, as real machines show them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.kernel.files import (
    CpuMax,
    KernelTextError,
    MountLine,
    OwnCgroup,
    PressureLine,
    PressureStall,
    ProcessStat,
    SomeKeys,
    cpu_max,
    enabled_controllers,
    flat_keyed,
    mountinfo,
    number_or_max,
    own_cgroups,
    pressure,
    process_stat,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("low 0\nhigh 3\nmax 0\noom 0\noom_kill 1\n", {"low": 0, "high": 3, "max": 0, "oom": 0, "oom_kill": 1}),
        (b"usage_usec 12\nuser_usec 7\n", {"usage_usec": 12, "user_usec": 7}),
        ("", {}),
        ("populated 1\nfrozen 0\n", {"populated": 1, "frozen": 0}),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", {"oom_kill_disable": 0, "under_oom": 0, "oom_kill": 0}),
        ("hierarchical_memory_limit 9223372036854771712\n", {"hierarchical_memory_limit": 9223372036854771712}),
        ("a 1\nb", {"a": 1}),
    ],
)
def test_flat_keyed(text: str | bytes, found: dict[str, int]) -> None:
    assert flat_keyed(text) == found


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.integers(0, 1 << 64)))
def test_flat_keyed_there_and_back(values: dict[str, int]) -> None:
    assert flat_keyed("".join(f"{key} {value}\n" for key, value in values.items())) == values


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"anon 1\nfile 2\ninactive_file 3\n", {"a": 1, "i": 3}),
        (b"inactive_anon 7\ninactive_file 3\nanon_thp 9\n", {"i": 3}),
        (b"inactive_file 3\nanon 1", {"a": 1, "i": 3}),
        (b"", {}),
    ],
    ids=["first and last", "a key within another", "no newline at the end", "empty"],
)
def test_some_keys(text: bytes, found: dict[str, int]) -> None:
    assert SomeKeys({"anon": "a", "inactive_file": "i"}).of(text) == found


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,4}", fullmatch=True), st.integers(0, 1 << 64)), st.data())
def test_some_keys_are_those_of_the_whole_file(values: dict[str, int], data: st.DataObject) -> None:
    wanted = data.draw(st.sets(st.sampled_from(sorted(values)))) if values else set()
    text = "".join(f"{key} {value}\n" for key, value in values.items()).encode()
    assert SomeKeys({key: key for key in wanted}).of(text) == {key: flat_keyed(text)[key] for key in wanted}


@pytest.mark.parametrize(
    ("text", "found"), [("max\n", None), ("100", 100), (b"max\n", None), (b"0\n", 0), ("-1\n", -1)]
)
def test_number_or_max(text: str | bytes, found: int | None) -> None:
    assert number_or_max(text) == found


@pytest.mark.parametrize(
    ("text", "found"), [("max 100000\n", CpuMax(None, 100000)), ("50000 100000", CpuMax(50000, 100000))]
)
def test_cpu_max(text: str, found: CpuMax) -> None:
    assert cpu_max(text) == found


@pytest.mark.parametrize("text", ["", "max", "x 1", "1 x", "1 2 3"])
def test_no_cpu_max(text: str) -> None:
    with pytest.raises(KernelTextError):
        cpu_max(text)


BOTH = "some avg10=1.50 avg60=0.20 avg300=0.00 total=2000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
SOME = PressureLine(1.5, 0.2, 0.0, 2000)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (BOTH, PressureStall(SOME, PressureLine(0.0, 0.0, 0.0, 7))),
        (BOTH.encode(), PressureStall(SOME, PressureLine(0.0, 0.0, 0.0, 7))),
        (BOTH.splitlines()[0], PressureStall(SOME, None)),
        ("", PressureStall()),
    ],
    ids=["both", "bytes", "cpu before 5.13", "empty"],
)
def test_pressure(text: str | bytes, found: PressureStall) -> None:
    assert pressure(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "some avg10=x avg60=0 avg300=0 total=1\n",
        "some avg10=1.2.3 avg60=0 avg300=0 total=1\n",
        "some avg10=0 avg60=0 avg300=0\n",
        "some avg10=0 avg300=0 avg60=0 total=1\n",
        f"{BOTH}more avg10=0 avg60=0 avg300=0 total=1\n",
    ],
)
def test_pressure_of_another_kind(text: str) -> None:
    with pytest.raises(KernelTextError, match=r"some avg10=\S+"):
        pressure(text)


MOUNTS = [
    (
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate",
        MountLine("/", "/sys/fs/cgroup", False, "cgroup2", ("rw", "nsdelegate"), "0:26"),
    ),
    (
        "32 31 0:29 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro,relatime - cgroup cgroup rw,cpu,cpuacct",
        MountLine("/docker/ab", "/sys/fs/cgroup/cpu,cpuacct", True, "cgroup", ("rw", "cpu", "cpuacct"), "0:29"),
    ),
    (
        r"9 1 8:1 /a\040b /mnt/tab\011back\134slash rw - ext4 /dev/sda1 ro",
        MountLine("/a b", "/mnt/tab\tback\\slash", True, "ext4", ("ro",), "8:1"),
    ),
]


@pytest.mark.parametrize(("line", "found"), MOUNTS, ids=["optional fields", "part, read-only", "escapes"])
def test_mountinfo(line: str, found: MountLine) -> None:
    assert mountinfo(line + "\n") == [found]


@pytest.mark.parametrize("line", ["x", "1 2 3 / / rw cgroup2 none rw", "1 2 0:1 / - cgroup2 none rw"])
def test_no_mountinfo(line: str) -> None:
    with pytest.raises(KernelTextError, match="mountinfo"):
        mountinfo(line)


def test_own_cgroups() -> None:
    text = "9:name=systemd:/init.scope\n2:cpu,cpuacct:/a:b\n0::/user.slice/x (deleted)\n"
    assert own_cgroups(text) == [
        OwnCgroup(9, ("name=systemd",), "/init.scope"),
        OwnCgroup(2, ("cpu", "cpuacct"), "/a:b"),
        OwnCgroup(0, (), "/user.slice/x", removed=True),
    ]
    with pytest.raises(KernelTextError):
        own_cgroups("garbage\n")


def test_proc_cgroups() -> None:
    text = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t1\t1\nmemory\t0\t25\t0\n"
    assert enabled_controllers(text) == {"cpuset": True, "memory": False}


TAIL = "S 1 4711 4711 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1 1"


@pytest.mark.parametrize("name", ["sh", "a b", ") S 9", "(x)", "two\nlines", ""])
def test_process_stat(name: str) -> None:
    assert process_stat(f"4712 ({name}) {TAIL}\n") == ProcessStat(4712, name, "S", 1, 987654)


@pytest.mark.parametrize("text", ["", "1 sh S 1", "1 (sh) S 1 2"])
def test_no_process_stat(text: str) -> None:
    with pytest.raises(KernelTextError):
        process_stat(text)
