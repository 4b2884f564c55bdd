"""Starts one guest per kernel and driver, runs the tests of `in_guest/` that belong there, and reports each of them.

A test inside is a subtest here: its failure comes back with its own text, its skip with its own reason.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.kernel.conftest import InGuest
from tests.kernel.guest import NO_STATUS, PYTHON, TIMED_OUT, GuestMissingError, Result, required
from tests.kernel.kinds import KINDS, inner_tests, pytest_argv

IN_GUEST = "tests/kernel/in_guest"

LONG = pytest.mark.long
SUITE_S = 900.0  # for a guest that hangs: a suite takes up to two minutes on a quiet machine
SUITES = [
    pytest.param(
        "uml-v2",
        [
            "test_v2.py",
            "test_v2_events.py",
            "test_v2_tree.py",
            "test_v2_stats.py",
            "test_v2_block_io.py",
            "test_own_place.py",
            "test_audit.py",
        ],
        id="v2-cgroupfs",
    ),
    pytest.param("uml-v2", ["test_effects.py"], id="v2-effects", marks=LONG),
    pytest.param("uml-v2", ["test_runtime.py"], id="v2-runtime", marks=LONG),
    pytest.param("uml-v2", ["test_attacks.py"], id="v2-attacks", marks=LONG),
    pytest.param("uml-v2", ["test_agent.py"], id="v2-agent", marks=LONG),
    pytest.param("uml-v2-systemd", ["test_systemd.py", "test_agent.py"], id="v2-systemd"),
    pytest.param("uml-v2", ["test_resize.py"], id="v2-resize", marks=LONG),
    pytest.param("uml-v2-systemd", ["test_resize.py"], id="v2-systemd-resize", marks=LONG),
    pytest.param("uml-v1-systemd", ["test_resize.py"], id="v1-systemd-resize", marks=LONG),
    pytest.param(
        "uml-v2",
        ["../../e2e/test_resize_timeline.py::test_the_timeline_of_the_document"],
        id="v2-timeline",
        marks=LONG,
    ),
    pytest.param("uml-v1-systemd", ["test_systemd.py"], id="v1-systemd", marks=LONG),
    pytest.param("uml-v2-systemd", ["test_units.py"], id="v2-systemd-units", marks=LONG),
]


@pytest.mark.parametrize(("kind", "files"), SUITES)
def test_suite(kind: str, files: list[str], in_guest: InGuest, subtests: pytest.Subtests) -> None:
    done = in_guest(kind, pytest_argv(*(f"{IN_GUEST}/{name}" for name in files)), SUITE_S)
    tests = inner_tests(done)
    for test in tests:
        with subtests.test(msg=f"{kind}: {test.name}"):
            if test.outcome == "failed":
                pytest.fail(f"in {kind}: {test.name}\n{test.text}", pytrace=False)
            elif test.outcome == "skipped":
                pytest.skip(f"{kind}: {test.text}")
    # Nothing was run, or pytest itself broke: then there is no single test to blame.
    assert tests, done.report()
    assert done.status in (0, 1), done.report()
    assert_is_as_named(done, kind)


def assert_is_as_named(done: Result, kind: str) -> None:
    guest = KINDS[kind]
    assert done.facts["cgroup"] == str(guest.cgroup)
    assert (done.facts["init"] == "systemd") == guest.systemd


@pytest.mark.parametrize("kind", ["uml-v1", "uml-v1-systemd"])  # those of v2 run the suites
def test_a_guest_is_what_its_name_says(kind: str, in_guest: InGuest) -> None:
    done = in_guest(kind, ["/bin/sh", "-c", "echo said; echo complained >&2; exit 7"], 60.0, claims=False)
    assert (done.status, done.stdout, done.stderr) == (7, "said\n", "complained\n"), done.report()
    assert_is_as_named(done, kind)


def test_the_hosts_files_are_seen_and_can_not_be_changed(in_guest: InGuest, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("of the host\n")
    script = 'cat "$0"; echo changed >"$0"; cat "$0"; rm "$0"; echo new >"$0.new"'
    done = in_guest("uml-v2", ["/bin/sh", "-c", script, str(tmp_path / "file")], 60.0, claims=False)
    assert (done.status, done.stdout) == (0, "of the host\nchanged\n"), done.report()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "of the host\n"


def test_a_guest_that_takes_too_long_is_ended_with_all_its_processes(in_guest: InGuest) -> None:
    for timeout_s in (8.0, 30.0, 90.0):  # the start of the guest counts, and a busy machine takes its time for it
        done = in_guest("uml-v2", ["/bin/sh", "-c", "echo started; exec sleep 600"], timeout_s, claims=False)
        assert done.status == TIMED_OUT
        end = time.monotonic() + 60
        while left := guest_processes(done.facts["job"]):  # killed, and taken away by init within a few seconds
            assert time.monotonic() < end, left
            time.sleep(0.1)
        if done.stdout:
            break
    assert done.stdout == "started\n"


def test_a_guest_that_dies_has_no_status(in_guest: InGuest) -> None:
    done = in_guest("uml-v2", ["/bin/busybox", "poweroff", "-f"], 60.0, claims=False)
    assert done.status == NO_STATUS


def guest_processes(job: str) -> list[str]:
    """Processes whose command line names the guest's job directory, zombies left aside."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if job.encode() in command:
            found.append(f"{entry.name} {command.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


@LONG
def test_cpus_memory_and_devices_of_one_numa_node(in_guest: InGuest) -> None:
    done = in_guest("qemu-v2-numa", [PYTHON, "-m", "tests.kernel.in_guest.numa"], 1200.0)
    assert done.stdout.endswith("all seen\n"), done.report()


@LONG
def test_several_cpus_cpuset_and_pressure(in_guest: InGuest) -> None:
    done = in_guest("qemu-v2-systemd", [PYTHON, f"{IN_GUEST}/several_cpus.py"], 300.0)
    assert done.status == 0, done.report()
    assert done.stdout.endswith("all seen\n"), done.report()
    assert done.facts["cpus"] == "2"


def test_what_is_missing_is_named_by_its_package() -> None:
    with pytest.raises(GuestMissingError, match=r"needs the Debian packages a-kernel b-tools$"):
        required({"/nowhere/kernel": "a-kernel", "no-such-command-here": "b-tools", "/bin/sh": "dash"})


@pytest.mark.parametrize(
    ("kind", "driver"),
    [
        pytest.param("qemu-v2-8", "cgroupfs", id="cgroupfs", marks=LONG),
        pytest.param("qemu-v2-systemd-8", "systemd", id="systemd", marks=LONG),
    ],
)
def test_exclusive_cpus_on_eight(kind: str, driver: str, in_guest: InGuest) -> None:
    """With an API in memory; `./dev prove static_cpus` has a real one, and real kills."""
    done = in_guest(kind, [PYTHON, "-m", "tests.kernel.in_guest.static_cpus", driver], 600.0)
    assert done.status == 0, done.report()
    assert done.stdout.endswith("all seen\n"), done.report()
