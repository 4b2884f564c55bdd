"""./dev, the locks, and the closing lines of a test run."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.project_files import ROOT, dev_module
from tests.scheduling import computes, order

RUNTIME = {"python": "3.11.7 in /a/.venv", "parts": "a", "packages": "runtime"}


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    return dev_module()


def finished(*command: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False)


# --- the command line


def test_help_has_one_line_for_each_command(dev: ModuleType) -> None:
    done = finished(sys.executable, ROOT / "dev", "--help")
    assert done.returncode == 0
    words = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert words == list(dev.COMMANDS)
    assert set(words) == {
        "up", "run", "check", "test", "prove", "lint", "bench", "conformance", "docs", "package", "lock", "clean"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(["tets"], "Did you mean 'test'?", id="near"),
        pytest.param(["qqqq"], "./dev --help lists all commands", id="far"),
        pytest.param(["clean", "all"], "takes no arguments", id="clean-with-arguments"),
        pytest.param(["check", "-k", "x"], "takes no arguments", id="check-with-arguments"),
        pytest.param(["lint", "--hard"], "takes only --fix", id="lint-with-unknown-option"),
        pytest.param(["prove", "no-such-area"], "Areas:", id="unknown-area"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_a_hint(args: list[str], said: str) -> None:
    done = finished(sys.executable, ROOT / "dev", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_package_index_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    """It took 25 s, and ended with what pip says about a version that it had not found."""
    for name in ("dev", "pyproject.toml", "requirements"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        index = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
    settings = {"PIP_INDEX_URL": index, "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1"}
    done = finished(sys.executable, tmp_path / "dev", "up", cwd=tmp_path, PATH="/usr/bin:/bin", **settings)
    assert done.returncode == 1
    assert "fetching uv from the package index" in done.stdout
    said = done.stderr.splitlines()
    assert said[0] == "./dev up: the package index cannot be reached (Connection refused)."
    assert "PIP_INDEX_URL" in done.stderr and "HTTPS_PROXY" in done.stderr and len(said) <= 4


def test_a_long_wait_says_for_what(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "PATIENCE_S", 0.05)
    command = [sys.executable, "-c", "import time; time.sleep(0.5); print('no'); raise SystemExit(1)"]
    assert dev.problem_of(command, waits_for="the package index") == "no"
    assert capsys.readouterr().out.startswith("waiting for the package index, 0 s\n")


def test_an_old_python_prints_which_version_is_needed() -> None:
    """The part that older Pythons run must come before anything that only new ones understand."""
    head, _, _ = (ROOT / "dev").read_text().partition("\nROOT = ")
    script = head.replace("sys.version_info < (3, 11)", "sys.version_info < (99,)")
    done = finished(sys.executable, "-c", f"__file__ = 'dev'\n{script}", PATH="/nowhere")
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr


# --- the stamp


@pytest.mark.parametrize(
    ("found", "wanted", "verdict"),
    [
        pytest.param({}, RUNTIME, "rebuild", id="none-yet"),
        pytest.param(RUNTIME, RUNTIME, "current", id="same"),
        pytest.param(RUNTIME | {"python": "3.12.1 in /a/.venv"}, RUNTIME, "rebuild", id="other-python"),
        pytest.param(RUNTIME | {"python": "3.11.7 in /b/.venv"}, RUNTIME, "rebuild", id="moved"),
        pytest.param(RUNTIME | {"parts": "b"}, RUNTIME, "update", id="other-locks"),
        pytest.param(RUNTIME, RUNTIME | {"packages": "dev"}, "update", id="dev-wanted"),
        pytest.param(RUNTIME | {"packages": "dev"}, RUNTIME, "current", id="dev-has-runtime-too"),
        pytest.param(RUNTIME | {"packages": "dev", "parts": "b"}, RUNTIME, "update", id="dev-with-other-locks"),
    ],
)
def test_verdict(dev: ModuleType, found: dict[str, str], wanted: dict[str, str], verdict: str) -> None:
    assert dev.verdict(found, wanted) == verdict


@pytest.mark.parametrize("stamp", [None, "", '{"python": '], ids=["none", "empty", "half"])
def test_an_incomplete_environment_counts_as_none(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: str | None
) -> None:
    monkeypatch.setattr(dev, "BIN", tmp_path)
    monkeypatch.setattr(dev, "STAMP", tmp_path / "stamp")
    (tmp_path / "python").touch()
    if stamp is not None:
        (tmp_path / "stamp").write_text(stamp)
    assert dev.found_stamp() == {}


@pytest.mark.parametrize("changed", ["dev", "pyproject.toml", "requirements/runtime.txt", "requirements/dev.txt"])
def test_stamp_follows_what_the_environment_is_built_from(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    (tmp_path / "requirements").mkdir()
    for name in ("dev", "pyproject.toml", "requirements/runtime.txt", "requirements/dev.txt"):
        (tmp_path / name).write_text("before")
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.setattr(dev, "LOCKS", tmp_path / "requirements")
    before = dev.wanted_stamp("dev")
    assert dev.wanted_stamp("dev") == before
    (tmp_path / changed).write_text("after")
    assert dev.wanted_stamp("dev")["parts"] != before["parts"]


# --- the locks


@pytest.mark.parametrize("name", ["runtime", "dev", "uv"])
def test_lock_has_versions_and_hashes_and_no_hosts(dev: ModuleType, name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert dev.lock_problems(text) == []
    assert not any(word in text for word in ("://", "file:", "--index", "--find-links", "--extra", "#"))


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.org/simple",
        "--find-links /srv/wheels",
        "click==8.1.7",
        "click==8.1.7 \\\n    --hash=sha256:abc",
        "click @ https://example.org/click.whl \\\n    --hash=sha256:" + "0" * 64,
        "click>=8 \\\n    --hash=sha256:" + "0" * 64,
        "-e /srv/click",
    ],
)
def test_an_invalid_lock_is_rejected(dev: ModuleType, line: str) -> None:
    good = "msgspec==0.18.6 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    assert dev.lock_problems(good) == []
    assert dev.lock_problems(good + line + "\n")


def test_dev_lock_has_the_runtime_versions() -> None:
    def pins(name: str) -> set[str]:
        lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
        return {line.split()[0] for line in lines if "==" in line}

    assert pins("runtime") <= pins("dev")


# --- the command in .venv, and continuous integration


@pytest.mark.parametrize("folder", ["short", "with space", "x" * 150], ids=["short", "space", "long"])
def test_the_command_starts_from_any_directory(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    venv = tmp_path / folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (tmp_path / "src/plimsoll/cli").mkdir(parents=True)
    (tmp_path / "src/plimsoll/cli/main.py").write_text(
        "import sys\ndef run():\n    print(sys.argv[1:], sys.flags.isolated)\n    sys.exit(7)\n"
    )
    for name, value in {"VENV": venv, "BIN": venv / "bin", "SRC": tmp_path / "src"}.items():
        monkeypatch.setattr(dev, name, value)
    dev.link_project()
    done = finished(venv / "bin" / "plimsoll", "a b", "c", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert (done.stdout, done.returncode, done.stderr) == ("['a b', 'c'] 1\n", 7, "")


def test_ci_runs_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec ./dev test"
    assert "set -euo pipefail" in script.read_text()


def test_missing_system_packages_are_listed_if_they_cannot_be_installed(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "SYSTEM_PACKAGES", {"present": "sh", "absent": "no-such-command"})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    dev.ensure_system_packages()
    assert "skipped: absent" in capsys.readouterr().out


# --- the closing lines of a test run

SAMPLE = """
import pytest

def test_real(exercised):
    exercised("kernel", "Linux 6.18, cgroup v1")

def test_real_too(exercised):
    exercised("kernel", "Linux 6.18, cgroup v1")
    exercised("browser", "Chromium")

@pytest.mark.skip(reason="no cgroup v2 here")
def test_skipped(): ...

def test_skipped_too():
    pytest.skip("no cgroup v2 here")

def test_pure(): ...
"""


def sample_run(folder: Path, sample: str, *options: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_sample.py").write_text(sample)
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options)
    return finished(*command, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


@pytest.mark.parametrize("options", [[], ["-p", "xdist", "-n2"], ["-q"]], ids=["plain", "xdist", "quiet"])
def test_closing_lines(tmp_path: Path, options: list[str]) -> None:
    done = sample_run(tmp_path, SAMPLE, *options)
    *_, skipped, browser, kernel, counts = done.stdout.splitlines()
    assert skipped == "skipped: 2 × no cgroup v2 here"
    assert browser == "exercised: browser: Chromium"
    assert kernel == "exercised: kernel: Linux 6.18, cgroup v1"
    assert "3 passed, 2 skipped" in counts
    assert done.returncode == 0


def test_closing_lines_of_a_run_without_anything_real(tmp_path: Path) -> None:
    done = sample_run(tmp_path, "def test_pure(): assert False\n")
    *_, exercised, counts = done.stdout.splitlines()
    assert exercised == "exercised: nothing beyond pure Python"
    assert "1 failed" in counts
    assert done.returncode == 1


# --- the last line, and a few failures on a real machine that are tried once more


@pytest.mark.parametrize(
    ("failed", "retried"),
    [
        pytest.param({"tests/kernel/a.py::b": True}, ["tests/kernel/a.py::b"], id="one"),
        pytest.param({"tests/e2e/a.py::b[x@y]@a group": True}, ["tests/e2e/a.py::b[x@y]"], id="of a group"),
        pytest.param({"tests/e2e/a.py::b[x@y]": True}, ["tests/e2e/a.py::b[x@y]"], id="of none"),
        pytest.param({"tests/kernel/a.py::b": True, "tests/unit/rules/a.py::b": True}, [], id="a rule fails too"),
        pytest.param({"tests/unit/store/a.py::b": True}, ["tests/unit/store/a.py::b"], id="with sockets or processes"),
        pytest.param({f"tests/kernel/a.py::b{number}": True for number in range(6)}, [], id="many"),
        pytest.param({}, [], id="none is known"),
    ],
)
def test_only_a_few_failures_on_real_machines_are_retried(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failed: dict[str, bool], retried: list[str]
) -> None:
    (tmp_path / "lastfailed").write_text(json.dumps(failed))
    monkeypatch.setattr(dev, "LAST_FAILED", tmp_path / "lastfailed")
    assert dev.tests_to_retry() == retried


@pytest.mark.parametrize(
    ("code", "lint", "counts", "retried", "line"),
    [
        pytest.param(0, [], {"passed": 9}, [], "PASSED: 9 passed", id="passed"),
        pytest.param(0, [], {"passed": 8, "skipped": 1}, [], "PASSED: 8 passed, 1 skipped", id="skipped"),
        pytest.param(1, [], {"failed": 1, "passed": 8}, [], "FAILED: 1 failed, 8 passed", id="failed"),
        pytest.param(0, ["mypy"], {"passed": 9}, [], "FAILED: lint (mypy), 9 passed", id="lint"),
        pytest.param(
            0, [], {"failed": 1, "passed": 8}, ["a::b"], "PASSED: 9 passed, 1 after a retry: a::b", id="retried"
        ),
        pytest.param(
            1, [], {"failed": 1, "passed": 8}, ["a::b"], "FAILED: 1 failed, 8 passed, 1 failed again: a::b", id="again"
        ),
        pytest.param(4, [], {}, [], "FAILED: pytest exited with 4", id="pytest-cannot-start"),
    ],
)
def test_the_last_line_says_whether_the_tests_passed(
    dev: ModuleType,
    capsys: pytest.CaptureFixture[str],
    code: int,
    lint: list[str],
    counts: dict[str, int],
    retried: list[str],
    line: str,
) -> None:
    exit_code = dev.conclude(code, lint, counts, retried)
    assert capsys.readouterr().out == f"{line}\n"
    assert (exit_code == 0) == line.startswith("PASSED")


@pytest.mark.parametrize(
    ("code", "types", "line"),
    [
        (0, True, "PASSED: 8 passed, 1 after a retry"),
        (1, True, "FAILED: 1 failed, 7 passed"),
        (0, False, "FAILED: lint (mypy), 8 passed"),
    ],
)
def test_a_test_that_failed_first_is_retried_alone(
    dev: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    code: int,
    types: bool,
    line: str,
) -> None:
    """The first run fails with one test of a real kernel; the second, of that test alone, ends with `code`.
    `types`: what mypy says, which runs beside the tests."""
    commands: list[list[str]] = []

    def call(command: list[str]) -> int:
        commands.append(command)
        first = len(commands) == 1
        (tmp_path / "lastfailed").write_text('{"tests/kernel/a.py::b": true}')
        (tmp_path / "counts").write_text(json.dumps({"failed": 1, "passed": 7} if first else {"passed": 1}))
        return 1 if first else code

    monkeypatch.setattr(dev, "LAST_FAILED", tmp_path / "lastfailed")
    monkeypatch.setattr(dev, "COUNTS", tmp_path / "counts")
    for name, result in {
        "call": call,
        "prepare": print,
        "ensure_system_packages": tuple,
        "failed_checks": lambda **_: [],
        "passes": lambda name, check: types,
        "write_bytecode": tuple,
    }.items():
        monkeypatch.setattr(dev, name, result)
    assert dev.test([]) == (code or int(not types))
    assert commands[1][-2:] == ["--once-more", "tests/kernel/a.py::b"]
    assert capsys.readouterr().out.splitlines()[-1].startswith(line)


SHARED = """
@pytest.fixture(scope="module")
def server():
    with open("starts", "a") as file:
        file.write("one\\n")

@pytest.mark.parametrize("number", range(6))
def test_with_the_server(server, number): ...

def test_wrong(): assert False

def test_priority(worker_id):
    import os
    assert os.nice(0) == min(19, int(os.environ["NICE"]) + (10 if worker_id == "gw0" else 0))
"""


def test_the_counts_of_a_run_are_saved_for_the_last_line(dev: ModuleType, tmp_path: Path) -> None:
    """And what the tests of a module share is made by one worker, and the first worker has a low priority."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_sample.py").write_text(SAMPLE + SHARED)
    options = ("-p", "xdist", "-n2", "--dist", "loadgroup", "--no-loadscope-reorder")
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "NICE": str(os.nice(0))}
    finished(sys.executable, "-m", "pytest", *options, cwd=tmp_path, **environment)
    saved = tmp_path / dev.COUNTS.relative_to(ROOT)
    assert json.loads(saved.read_text()) == {"failed": 1, "passed": 10, "skipped": 2}
    assert (tmp_path / "starts").read_text() == "one\n"


# --- which worker runs what

GROUPS = {
    "tests/unit/rules/a.py": 3,
    "kubectl": 90,
    "tests/unit/api/b.py": 80,
    "tests/unit/codec/c.py": 20,
    "tests/kernel/test_guests.py::v2": 1,
    "agent": 20,
}
UNIT = ["tests/unit/codec/c.py", "tests/unit/rules/a.py", "tests/unit/api/b.py"]
REAL = ["tests/kernel/test_guests.py::v2", "kubectl", "agent"]


@pytest.mark.parametrize(
    ("first", "expected"), [(True, UNIT), (False, REAL)], ids=["what computes first", "what waits first"]
)
def test_the_order_of_groups(first: bool, expected: list[str]) -> None:
    found = sorted(GROUPS, key=lambda group: order(group, GROUPS[group], first=first), reverse=True)
    assert found[:3] == expected


@pytest.mark.parametrize(("workers", "cpus", "count"), [(6, 2, 1), (5, 1, 1), (8, 8, 4), (2, 8, 1), (1, 2, 0)])
def test_some_workers_begin_with_tests_that_compute(workers: int, cpus: int, count: int) -> None:
    assert [computes(f"gw{number}", workers, cpus) for number in range(workers)] == [True] * count + [False] * (
        workers - count
    )


# --- generated pages


def test_generated_pages_are_current() -> None:
    done = finished(sys.executable, ROOT / "docs" / "build.py", "--check", PYTHONPATH=str(ROOT / "src"))
    assert (done.returncode, done.stdout) == (0, "")
