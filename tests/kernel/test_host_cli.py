"""`plimsoll node` and `plimsoll cgroup` on this machine's kernel, as a user types them."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.cgroups.detect import CgroupsUnusable, default_root, this_host, writable
from plimsoll.cgroups.opening import open_cgroupfs

ROOT = Path(__file__).resolve().parents[2]
PODS = str(ROOT / "examples" / "three-classes.yaml")
CAPACITY = ("--capacity", "cpu=8,memory=4Gi")


def _problem() -> str:
    if os.geteuid() != 0:
        return "root is needed"
    try:
        default_root(this_host(), writable(this_host()))
    except CgroupsUnusable as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(_problem()), reason=f"host: {_problem()}")


class Machine:
    def __init__(self, root: str, home: Path) -> None:
        self.root, self._home = root, home
        self.driver = open_cgroupfs(this_host())

    def plimsoll(self, *args: str) -> subprocess.CompletedProcess[str]:
        options = (*CAPACITY, "--cgroup-root", self.root)
        before, _, command = " ".join(args).partition(" -- ")
        typed = [*before.split(), *options, *(["--", *args[args.index("--") + 1 :]] if command else [])]
        environment = {**os.environ, "PLIMSOLL_HOME": str(self._home), "NO_COLOR": "1"}
        return subprocess.run(
            [sys.executable, "-m", "plimsoll.cli.main", *typed],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
            cwd=ROOT,
        )

    def ok(self, *args: str) -> str:
        done = self.plimsoll(*args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_there(self, path: str) -> bool:
        return self.driver.look(path, ()) is not None


@pytest.fixture
def machine(tmp_path: Path, exercised: Callable[[str, str], None]) -> Iterator[Machine]:
    found = Machine(f"/plimsoll-test-{secrets.token_hex(4)}", tmp_path / "home")
    yield found
    found.plimsoll("node", "teardown", "--kill")
    assert not found.is_there(found.root)
    exercised("kernel", f"Linux {os.uname().release}, cgroup v{found.driver.version}, cgroupfs (this machine)")


def test_from_set_up_to_teardown(machine: Machine) -> None:
    assert "would be made" in machine.ok("node", "setup", "--dry-run")
    assert not machine.is_there(machine.root)
    assert "node set-up: " in machine.ok("node", "setup")
    assert "nothing to do" in machine.ok("node", "setup")
    made = machine.ok("cgroup", "apply", PODS)
    assert "write" in made and "pod default/gold" in made
    assert "nothing to do" in machine.ok("cgroup", "apply", PODS)
    status = machine.ok("node", "status")
    assert "set up" in status and "pods: 3" in status and "differs" not in status
    assert machine.ok("cgroup", "rm", "gold").count("remove") == 2
    assert "pods: 2" in machine.ok("node", "status")
    assert "nothing to do" not in machine.ok("node", "teardown")
    assert not machine.is_there(machine.root)


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


async def test_a_foreign_kubepods_is_never_touched(machine: Machine) -> None:
    await machine.driver.make(machine.root)
    await machine.driver.make(f"{machine.root}/kubepods")
    try:
        for verb in (("node", "setup"), ("cgroup", "apply", PODS)):
            done = machine.plimsoll(*verb)
            assert done.returncode == 2
            assert "was not made by plimsoll" in done.stderr and "--cgroup-root" in done.stderr
        assert machine.driver.children(f"{machine.root}/kubepods") == []
    finally:
        await machine.driver.remove(f"{machine.root}/kubepods")
        await machine.driver.remove(machine.root)
