"""Which paths and texts are accepted, on plain directories; tests/kernel does the same on real cgroups."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.linux.cgroup_files import (
    CgroupError,
    CgroupGoneError,
    CgroupMount,
    Directory,
    KeptFile,
    check_text,
    components,
    open_beneath,
    write_once,
)

DIRECTORY = os.O_PATH | os.O_DIRECTORY


@pytest.fixture
def cgroup(tmp_path: Path) -> Iterator[Directory]:
    """A plain directory with a few files of a cgroup: what is checked here depends on no kernel."""
    for name, text in (("cgroup.procs", ""), ("memory.max", "max\n"), ("cpu.max", "max 100000\n")):
        (tmp_path / name).write_text(text)
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    with Directory(os.open(tmp_path, DIRECTORY | os.O_CLOEXEC), str(tmp_path)) as directory:
        yield directory


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/", []),
        ("/kubepods", ["kubepods"]),
        ("/kubepods/burstable/pod1", ["kubepods", "burstable", "pod1"]),
        ("/..hidden/...", ["..hidden", "..."]),
        ("/a.slice/a-b.slice:cri:x", ["a.slice", "a-b.slice:cri:x"]),
        ("/" + "n" * 255, ["n" * 255]),
    ],
)
def test_components(path: str, names: list[str]) -> None:
    assert components(path) == tuple(names)


HOSTILE = [
    ("relative", "kubepods", errno.EINVAL),
    ("empty", "", errno.EINVAL),
    ("up", "/kubepods/../../x", errno.EINVAL),
    ("up at the end", "/kubepods/..", errno.EINVAL),
    ("here", "/kubepods/./x", errno.EINVAL),
    ("empty inside", "/kubepods//x", errno.EINVAL),
    ("slash at the end", "/kubepods/", errno.EINVAL),
    ("two slashes", "//", errno.EINVAL),
    ("newline", "/kubepods/a\nb", errno.EINVAL),
    ("NUL", "/kubepods/a\0b", errno.EINVAL),
    ("escape", "/kubepods/\x1b[31m", errno.EINVAL),
    ("300 letters", "/kubepods/" + "n" * 300, errno.ENAMETOOLONG),
    ("256 bytes in fewer letters", "/" + "ü" * 128, errno.ENAMETOOLONG),
    ("a very long path", "/n" * 3000, errno.ENAMETOOLONG),
]


@pytest.mark.parametrize(("path", "number"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_hostile_paths(path: str, number: int) -> None:
    with pytest.raises(CgroupError) as caught:
        components(path)
    assert (caught.value.op, caught.value.errno) == ("refuse", number)
    shown = str(caught.value)
    assert shown.isprintable(), "one line, nothing that a terminal would obey"
    assert len(shown) < 4096


TEXTS = [
    ("memory.max", "419430400"),
    ("memory.max", "max"),
    ("memory.limit_in_bytes", "-1"),
    ("cpu.max", "50000 100000"),
    ("cpu.max", "max 100000"),
    ("cpuset.cpus", "0-3,8"),
    ("cpuset.cpus", ""),
    ("cgroup.subtree_control", "+cpu +memory -io"),
    ("freezer.state", "FROZEN"),
    ("cgroup.freeze", "0"),
    ("memory.pressure", "some 150000 2000000"),
    ("cgroup.event_control", "5 6 1048576"),
    ("io.weight", "default 100"),
    ("cgroup.type", "threaded"),
]
REFUSED = [
    ("memory.max", ""),
    ("memory.max", "1G"),
    ("memory.max", "1 "),
    ("memory.max", "1\n2"),
    ("memory.max", "max\n"),
    ("memory.max", "٣"),
    ("memory.max", "1" * 21),
    ("cpu.max", "1 2 3 4"),
    ("cpu.max", "max max"),
    ("cgroup.subtree_control", "cpu"),
    ("cgroup.subtree_control", "+cpu  +memory"),
    ("cgroup.subtree_control", "+../x"),
    ("freezer.state", "frozen"),
    ("release_agent", "/bin/sh"),
    ("devices.allow", "a *:* rwm"),
    ("../memory.max", "1"),
    ("a/memory.max", "1"),
    ("memory.max\n", "1"),
    ("", "1"),
    (".", "1"),
    ("..", "1"),
    ("n" * 256, "1"),
]


@pytest.mark.parametrize(("file", "text"), TEXTS)
def test_texts_that_control_files_accept(file: str, text: str) -> None:
    check_text("/sys/fs/cgroup/a", file, text)


@pytest.mark.parametrize(("file", "text"), REFUSED)
def test_nothing_else_is_written(file: str, text: str, cgroup: Directory) -> None:
    before = {path: path.read_bytes() for path in Path(cgroup.path).iterdir() if path.is_file()}
    with pytest.raises(CgroupError) as caught:
        cgroup.write(file, text)
    assert (caught.value.op, caught.value.errno) == ("refuse", errno.EINVAL)
    assert {path: path.read_bytes() for path in Path(cgroup.path).iterdir() if path.is_file()} == before


def test_read_and_write(cgroup: Directory) -> None:
    assert cgroup.read("cpu.max") == "max 100000"
    cgroup.write("cpu.max", "50000 100000")
    assert (Path(cgroup.path) / "cpu.max").read_bytes() == b"50000 100000"
    assert cgroup.read_if_there("memory.high") is None
    assert cgroup.children() == ["a", "b"]
    assert cgroup.inode == os.stat(cgroup.path).st_ino


def test_an_empty_cpu_list_reaches_the_kernel(cgroup: Directory) -> None:
    (Path(cgroup.path) / "cpuset.cpus").write_text("0-3\n")
    cgroup.write("cpuset.cpus", "")
    assert (Path(cgroup.path) / "cpuset.cpus").read_bytes() == b"\n-3\n", "a write of nothing would change nothing"


def test_a_pressure_trigger_ends_in_nul(cgroup: Directory) -> None:
    (Path(cgroup.path) / "cpu.pressure").touch()
    cgroup.write("cpu.pressure", "some 150000 2000000")
    assert (Path(cgroup.path) / "cpu.pressure").read_bytes() == b"some 150000 2000000\0"


def test_missing_file_and_missing_cgroup_differ(cgroup: Directory) -> None:
    with pytest.raises(CgroupError) as caught:
        cgroup.read("memory.high")
    assert not isinstance(caught.value, CgroupGoneError)
    assert str(caught.value) == f"open {cgroup.path}/memory.high: ENOENT (No such file or directory)"
    (Path(cgroup.path) / "cgroup.procs").unlink()  # a removed cgroup has no files any more
    with pytest.raises(CgroupGoneError):
        cgroup.read("memory.high")


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "memory.max").write_text("1")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "memory.high").symlink_to("memory.max")
    top = os.open(tmp_path, DIRECTORY)
    try:
        for path in ("link", "link/memory.max", "real/memory.high"):
            with pytest.raises(OSError, match="symbolic") as caught:
                open_beneath(top, path, os.O_RDONLY)
            assert caught.value.errno == errno.ELOOP
        os.close(open_beneath(top, "real/memory.max", os.O_RDONLY))
    finally:
        os.close(top)


def test_nothing_above_and_nothing_absolute(tmp_path: Path) -> None:
    top = os.open(tmp_path, DIRECTORY)
    try:
        for path in ("..", "../..", "/etc/passwd"):
            with pytest.raises(OSError, match="cross-device") as caught:
                open_beneath(top, path, os.O_RDONLY)
            assert caught.value.errno == errno.EXDEV
    finally:
        os.close(top)


def test_another_file_system_is_not_entered() -> None:
    top = os.open("/", DIRECTORY)
    try:
        with pytest.raises(OSError, match="cross-device") as caught:
            open_beneath(top, "proc/self", os.O_PATH)
        assert caught.value.errno == errno.EXDEV
    finally:
        os.close(top)


def test_fds_are_closed_on_exec(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    top = os.open(tmp_path, DIRECTORY)
    fd = open_beneath(top, "f", os.O_RDONLY)
    try:
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)
        os.close(top)


@pytest.mark.parametrize("place", ["/proc", "tmp"])
def test_a_mount_must_be_a_cgroup_file_system(place: str, tmp_path: Path) -> None:
    with pytest.raises(CgroupError) as caught:
        CgroupMount(str(tmp_path) if place == "tmp" else place, "cgroup2")
    assert caught.value.errno == errno.EXDEV
    assert "is not cgroup2 (0x63677270)" in str(caught.value)


def test_a_mount_point_that_is_missing_or_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/sys/fs/cgroup")
    for name, number in (("nothing", errno.ENOENT), ("link", errno.ENOTDIR)):
        with pytest.raises(CgroupError) as caught:
            CgroupMount(str(tmp_path / name), "cgroup2")
        assert caught.value.errno == number


def test_a_kept_file_is_read_each_time(cgroup: Directory) -> None:
    kept = KeptFile(cgroup, "memory.max")
    assert kept.read() == b"max\n"
    cgroup.write("memory.max", "4096")
    assert kept.read() == b"4096"
    kept.close()
    kept.close()


def test_an_error_quotes_everything() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(CgroupError) as caught:
            write_once(fd, "/sys/fs/cgroup/x/memory.max", "4096")
    finally:
        os.close(fd)
    assert str(caught.value) == "write /sys/fs/cgroup/x/memory.max '4096': ENOSPC (No space left on device)"


def test_a_short_write_is_an_error(tmp_path: Path) -> None:
    """A limit on file sizes lets two of four bytes through; in a process of its own, as it is the process's limit."""
    script = textwrap.dedent("""
        import os, resource, sys
        from plimsoll.linux.cgroup_files import CgroupError, write_once
        resource.setrlimit(resource.RLIMIT_FSIZE, (2, 2))
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
        try:
            write_once(fd, "/x/memory.max", "4096")
        except CgroupError as error:
            print(error)
    """)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "f")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "write /x/memory.max '4096': EIO (only 2 of 4 bytes were written)\n"
