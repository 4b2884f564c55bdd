"""Before exec: the program is found as a shell would, the environment completed as runtimes do."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.runtime.supervisor.child import StartError, cannot_run, completed_environment, found_program
from plimsoll.runtime.supervisor.containers import RequestError, signal_number
from plimsoll.runtime.supervisor.plan import LaunchPlan
from plimsoll.runtime.supervisor.spawn import exit_code


@pytest.fixture
def path(tmp_path: Path) -> str:
    for folder, name, mode in (("one", "tool", 0o644), ("two", "tool", 0o755), ("one", "data", 0o644)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).touch(mode)
        (tmp_path / folder / name).chmod(mode)
    (tmp_path / "one/folder").mkdir()
    return f"{tmp_path}/one:{tmp_path}/missing:{tmp_path}/two"


def test_a_program_is_found(path: str) -> None:
    assert found_program("tool", path).endswith("/two/tool")
    assert found_program("./as/given", path) == "./as/given"


@pytest.mark.parametrize(("name", "code"), [("missing", 127), ("data", 126), ("folder", 127)])
def test_a_program_is_not_found(path: str, name: str, code: int) -> None:
    with pytest.raises(StartError) as caught:
        found_program(name, path)
    assert (caught.value.code, caught.value.reason) == (code, "ContainerCannotRun")
    assert f'exec: "{name}": ' in caught.value.message


@pytest.mark.parametrize(
    ("error", "code"),
    [(FileNotFoundError(2, "No such file or directory"), 127), (PermissionError(13, "Permission denied"), 126),
     (OSError(8, "Exec format error"), 126), (NotADirectoryError(20, "Not a directory"), 127)],
)  # fmt: skip
def test_exec_fails(error: OSError, code: int) -> None:
    assert cannot_run("x", error).code == code


def test_the_environment_is_completed_and_never_overridden() -> None:
    found = completed_environment(LaunchPlan(("x",), {}, tty=True), "host")
    assert found == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOSTNAME": "host",
        "TERM": "xterm",
        "HOME": "/root",
    }
    given = {"PATH": "p", "HOSTNAME": "h", "TERM": "t", "HOME": "m"}
    assert completed_environment(LaunchPlan(("x",), given, tty=True), "host") == given


@pytest.mark.parametrize(("status", "code"), [(0, 0), (7 << 8, 7), (9, 137), (15, 143), (11 | 0x80, 139)])
def test_exit_code(status: int, code: int) -> None:
    assert exit_code(status) == code


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("", 15),
        ("SIGQUIT", 3),
        ("quit", 3),
        ("9", 9),
        ("SIGUSR1", 10),
        ("SIGRTMIN+3", 37),
        ("SIGRTMAX-2", 62),
        ("SIGRTMIN", 34),
    ],
)
def test_signal_number(name: str, number: int) -> None:
    assert signal_number(name) == number


@pytest.mark.parametrize("name", ["SIGNONE", "0x9", "TERM;"])
def test_no_signal(name: str) -> None:
    with pytest.raises(RequestError):
        signal_number(name)
