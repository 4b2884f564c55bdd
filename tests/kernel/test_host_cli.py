"""`plimsoll node` and `plimsoll cgroup` on this machine's kernel, as a user types them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.v1 import CgroupsV1
from plimsoll.cgroups.engine.journal import Journal
from plimsoll.rules.cgroups.steps import Make
from tests.e2e.up_process import problem

ROOT = Path(__file__).resolve().parents[2]
PODS = str(ROOT / "examples" / "three-classes.yaml")
CAPACITY = ("--capacity", "cpu=8,memory=4Gi")


pytestmark = pytest.mark.skipif(bool(problem()), reason=f"host: {problem()}")


class Machine:
    def __init__(self, root: str, home: Path) -> None:
        self.root, self.home = root, home
        self.driver = open_cgroupfs(this_host())

    def started(self, *args: str) -> subprocess.Popen[str]:
        options = (*CAPACITY, "--cgroup-root", self.root)
        before, _, command = " ".join(args).partition(" -- ")
        typed = [*before.split(), *options, *(["--", *args[args.index("--") + 1 :]] if command else [])]
        environment = {**os.environ, "PLIMSOLL_HOME": str(self.home), "NO_COLOR": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "plimsoll.cli.main", *typed],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    def plimsoll(self, *args: str) -> subprocess.CompletedProcess[str]:
        with self.started(*args) as process:
            try:
                out, err = process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def ok(self, *args: str) -> str:
        done = self.plimsoll(*args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_there(self, path: str) -> bool:
        return self.driver.read(path, ()) is not None


@pytest.fixture
def machine(tmp_path: Path, exercised: Callable[[str, str], None]) -> Iterator[Machine]:
    found = Machine(f"/plimsoll-test-{secrets.token_hex(4)}", tmp_path / "home")
    yield found
    found.plimsoll("node", "teardown", "--kill")
    assert not found.is_there(found.root)
    exercised("kernel", f"Linux {os.uname().release}, cgroup v{found.driver.version}, cgroupfs (this machine)")


def test_from_set_up_to_teardown(machine: Machine) -> None:
    assert "planned (dry run)" in machine.ok("node", "setup", "--dry-run")
    assert not machine.is_there(machine.root)
    assert "node set-up: " in machine.ok("node", "setup")
    assert "no changes" in machine.ok("node", "setup")
    made = machine.ok("cgroup", "apply", PODS)
    assert "write" in made and "pod default/gold" in made
    assert "no changes" in machine.ok("cgroup", "apply", PODS)
    status = machine.ok("node", "status")
    assert "set up" in status and "pods: 3" in status and "differs" not in status
    assert machine.ok("cgroup", "rm", "gold").count("remove") == 2
    assert "pods: 2" in machine.ok("node", "status")
    assert "no changes" not in machine.ok("node", "teardown")
    assert not machine.is_there(machine.root)


def test_what_a_killed_runtime_left_in_some_hierarchies_goes_too(machine: Machine) -> None:
    """A container's cgroup in one of them alone, and a pod's cgroup that has left the others already."""
    if not isinstance(machine.driver, CgroupsV1):
        pytest.skip("needs cgroup v1")
    machine.ok("cgroup", "apply", PODS)
    points = {name: Path(mount.mount_point) for name, mount in machine.driver.hierarchies.items()}
    below = machine.root.lstrip("/") + "/kubepods"
    cpuset = points["cpuset"] / below
    for pod in (*cpuset.glob("*/pod*"), *cpuset.glob("pod*")):
        (pod / ("ab" * 32)).mkdir()
    assert machine.ok("cgroup", "rm", "gold").count("remove") == 3
    pod = next((points["memory"] / below).glob("*/pod*"))
    for container in [each for each in pod.iterdir() if each.is_dir()]:
        container.rmdir()
    pod.rmdir()
    machine.ok("node", "teardown")
    assert not [point for point in points.values() if (point / machine.root.lstrip("/")).exists()]


def test_a_command_runs_in_its_container(machine: Machine) -> None:
    script = "cat /proc/self/cgroup; cat /proc/self/oom_score_adj; exit 7"
    done = machine.plimsoll("cgroup", "run", str(ROOT / "examples/burstable.yaml"), "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    assert f"{machine.root}/kubepods/burstable/pod" in done.stdout
    assert 2 <= int(done.stdout.split()[-1]) <= 999
    assert "pods: 0" in machine.ok("node", "status")


def test_drift_is_found_and_mended(machine: Machine) -> None:
    machine.ok("cgroup", "apply", PODS)
    file = "cpu.weight" if machine.driver.version == 2 else "cpu.shares"
    path = f"{machine.root}/kubepods/burstable"
    with machine.driver.directory(path, file) as directory:
        directory.write(file, "77")
    done = machine.plimsoll("node", "status")
    assert done.returncode == 1 and "differs" in done.stdout and f"{path} {file}" in done.stdout
    found = json.loads(machine.plimsoll("node", "status", "-o", "json").stdout)
    assert [step["file"] for step in found["drift"]] == [file]
    mended = machine.ok("node", "setup")
    assert f"write {path}\n    {file} " in mended and "(was 77)" in mended
    assert machine.plimsoll("node", "status").returncode == 0


@pytest.mark.parametrize(
    ("uid", "complaint"),
    [("../../x", "becomes the name of a cgroup"), ("a\\nb", "becomes the name"), ("x/y", "becomes the name")],
)
def test_a_hostile_uid_is_refused_before_anything_is_touched(
    machine: Machine, uid: str, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        f'{{apiVersion: v1, kind: Pod, metadata: {{name: p, uid: "{uid}"}}, spec: {{containers: [{{name: c, image: i}}]}}}}'
    )
    file.write_text("# yaml\n" + file.read_text())
    done = machine.plimsoll("cgroup", "apply", str(file))
    assert done.returncode == 2 and complaint in done.stderr
    assert not machine.is_there(machine.root)


def test_a_uid_longer_than_a_file_name_is_refused(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, uid: {'a' * 300}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
    )
    done = machine.plimsoll("cgroup", "apply", str(file))
    assert done.returncode == 2 and done.stderr.startswith("plimsoll: ")
    assert not machine.is_there(f"{machine.root}/kubepods/besteffort")


TWO = """
apiVersion: v1
kind: Pod
metadata: {name: two}
spec: {containers: [{name: a, image: i}, {name: b, image: i}]}
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("no-such-program",), 127),
        (("/etc/passwd",), 126),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("sh", "-c", "grep -q 'SigIgn:.*[02468ace]...$' /proc/self/status"), 0),
    ],
    ids=["missing", "not executable", "ended by a signal", "a broken pipe is not ignored"],
)
def test_exit_codes_of_run(machine: Machine, command: tuple[str, ...], code: int) -> None:
    done = machine.plimsoll("cgroup", "run", str(ROOT / "examples/burstable.yaml"), "--", *command)
    assert done.returncode == code, done.stderr
    assert "pods: 0" in machine.ok("node", "status")


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_who_runs_a_command_hands_signals_on(machine: Machine, tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = f"trap 'echo ended > {said}; exit 5' TERM; echo ready > {said}; sleep 60 & wait"
    running = machine.started("cgroup", "run", str(ROOT / "examples/burstable.yaml"), "--", "sh", "-c", script)
    _until(lambda: said.exists() and said.read_text() == "ready\n")
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 5 and said.read_text() == "ended\n"
    assert "pods: 0" in machine.ok("node", "status")


def test_the_last_container_out_removes_the_pod(machine: Machine, tmp_path: Path) -> None:
    file, ready, go = tmp_path / "two.yaml", tmp_path / "ready", tmp_path / "go"
    file.write_text(TWO)
    script = f"touch {ready}; while ! test -e {go}; do sleep 0.1; done; exit 9"
    first = machine.started("cgroup", "run", str(file), "-c", "a", "--", "sh", "-c", script)
    _until(ready.exists)
    again = machine.plimsoll("cgroup", "run", str(file), "-c", "a", "--", "true")
    assert again.returncode == 2 and "is already running" in again.stderr
    second = machine.plimsoll("cgroup", "run", str(file), "-c", "b", "--", "sh", "-c", "sleep 60 & exit 4")
    assert second.returncode == 4 and "the cgroups of the pod are kept" in second.stderr
    assert "pods: 1" in machine.ok("node", "status")
    go.touch()
    assert first.wait(60) == 9
    assert "pods: 0" in machine.ok("node", "status")


def test_removing_all_is_one_document(machine: Machine) -> None:
    machine.ok("cgroup", "apply", PODS)
    found = json.loads(machine.ok("cgroup", "rm", "--all", "-o", "json"))
    assert sum(step["do"] == "remove" for step in found["steps"]) == 6
    assert json.loads(machine.ok("cgroup", "rm", "--all", "-o", "json"))["steps"] == []


def test_a_name_of_two_pods_removes_neither(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text("---".join(TWO.replace("name: two", f"name: two, namespace: {each}") for each in ("red", "blue")))
    machine.ok("cgroup", "apply", str(file))
    done = machine.plimsoll("cgroup", "rm", "two")
    assert done.returncode == 2 and "red/two, blue/two" in done.stderr
    assert "remove" in machine.ok("cgroup", "rm", "red/two") and "pods: 1" in machine.ok("node", "status")


def test_unfinished_work_has_an_exit_code_of_its_own(machine: Machine) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    journal = Journal(machine.home / "node" / "journal.jsonl")
    machine.home.mkdir(mode=0o700)
    journal.begin("pod shop/web", boot, [Make(machine.root)], {})
    done = machine.plimsoll("node", "status")
    assert done.returncode == 1 and "incomplete: pod shop/web" in done.stdout
    dry = machine.plimsoll("node", "setup", "--dry-run")
    assert dry.returncode == 2 and "an earlier run of pod shop/web was interrupted" in dry.stderr
    machine.ok("node", "setup")
    assert "incomplete" not in machine.ok("node", "status")


def test_a_pod_with_less_than_a_page_is_refused_and_nothing_is_left(machine: Machine, tmp_path: Path) -> None:
    if machine.driver.version == 2:
        pytest.skip("cgroup v2 lets it have cgroups")
    file = tmp_path / "tiny.yaml"
    file.write_text(TWO.replace("image: i}", "image: i, resources: {limits: {memory: 100}}}"))
    done = machine.plimsoll("cgroup", "apply", str(file))
    assert done.returncode == 2 and "leaves no room" in done.stderr and "everything was rolled back" in done.stderr
    assert not machine.is_there(machine.root)


def test_whose_names_our_own_pods(machine: Machine) -> None:
    script = f"{sys.executable} -m plimsoll.cli.main whose $$"
    done = machine.plimsoll("cgroup", "run", str(ROOT / "examples/burstable.yaml"), "--", "sh", "-c", script)
    assert done.returncode == 0 and "default/burstable" in done.stdout, done.stderr


async def test_a_foreign_kubepods_is_never_touched(machine: Machine) -> None:
    await machine.driver.make(machine.root)
    await machine.driver.make(f"{machine.root}/kubepods")
    try:
        for verb in (("node", "setup"), ("cgroup", "apply", PODS)):
            done = machine.plimsoll(*verb)
            assert done.returncode == 2
            assert "was not created by plimsoll" in done.stderr and "--cgroup-root" in done.stderr
        assert machine.driver.children(f"{machine.root}/kubepods") == []
    finally:
        await machine.driver.remove(f"{machine.root}/kubepods")
        await machine.driver.remove(machine.root)
