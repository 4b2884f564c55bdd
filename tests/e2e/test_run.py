"""`plimsoll run`: one pod in the foreground, with real limits or on a kernel in memory; nothing is left of it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from tests.e2e.waiting import until

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: demo}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: prepare, image: busybox, command: [sh, -c, "echo preparing for $WHO"], env: [ENV]}
  containers:
  - name: main
    image: busybox
    command: [sh, -c, 'SCRIPT']
    resources: {limits: {memory: 32Mi, cpu: 500m}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: people}
data: {who: everyone}
"""
ENV = "{name: WHO, valueFrom: {configMapKeyRef: {name: people, key: who}}}"
RUN_S = 90.0


@pytest.fixture
def words(tmp_path: Path) -> Iterator[list[str]]:
    """The command with places of its own; afterwards neither cgroups nor mounts of it are there."""
    if os.geteuid() != 0 or this_host().version != 1:
        pytest.skip("needs root on a cgroup v1 host")
    root, state = f"plimsoll-test-{secrets.token_hex(4)}", tmp_path / "state"
    state.mkdir(mode=0o700)
    command = [str(Path(sys.executable).with_name("plimsoll")), "run", str(tmp_path / "pod.yaml"), "--capacity"]
    yield [*command, "cpu=4,memory=1Gi", "--state-dir", str(state), "--cgroup-root", f"/{root}"]
    until(lambda: not list(Path("/sys/fs/cgroup").glob(f"*/{root}")))
    assert str(state) not in Path("/proc/self/mountinfo").read_text()
    assert list((state / "runs").iterdir()) == []


def manifest(words: list[str], script: str) -> None:
    Path(words[2]).write_text(MANIFEST.replace("SCRIPT", script).replace("ENV", ENV))


@pytest.mark.parametrize(
    ("script", "more", "code", "said"),
    [
        pytest.param("echo hello", (), 0, ["pod demo: Succeeded", "main: Completed, exit code 0"], id="success"),
        pytest.param("echo oops >&2; exit 4", (), 4, ["pod demo: Failed", "main: Error, exit code 4"], id="failure"),
        pytest.param(
            'exec python3 -c "bytearray(200 << 20)"',
            (),
            137,
            ["main: OOMKilled, exit code 137", "hit its memory limit of 32Mi: the kernel killed it"],
            id="out of memory",
        ),
        pytest.param("echo free", ("--simulate",), 0, ["note: simulated", "pod demo: Succeeded"], id="simulated"),
    ],
)
def test_how_it_ends(words: list[str], script: str, more: tuple[str, ...], code: int, said: list[str]) -> None:
    manifest(words, script)
    done = subprocess.run([*words, *more], capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == code, done.stderr
    assert "[prepare] preparing for everyone" in done.stdout
    for sentence in said:
        assert sentence in done.stderr


def test_ctrl_c_ends_it_with_its_grace(words: list[str]) -> None:
    manifest(words, 'trap "echo bye; exit 3" TERM; echo up; while :; do sleep 0.05; done')
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    while "up" not in (line := running.stdout.readline()):
        assert line, "it ended before it was up"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=RUN_S)
    assert running.returncode == 130
    assert "[main] bye" in out
    assert "main: Error, exit code 3" in err
    assert "Waiting up to 5 s for the pod to end; press Ctrl-C again to kill it." in err


def test_the_second_ctrl_c_kills_it(words: list[str]) -> None:
    manifest(words, 'trap "echo no" TERM; echo up; while :; do sleep 0.05; done')
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    for wanted in ("up", "no"):
        while wanted not in (line := running.stdout.readline()):
            assert line, "it ended before that"
        running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=RUN_S)
    assert running.returncode == 130
    assert "main: Error, exit code 137" in err


def test_what_is_wrong_with_the_manifest_is_said_before_anything_runs(words: list[str]) -> None:
    Path(words[2]).write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: A_b, image: x}]}\n"
    )
    state = Path(words[words.index("--state-dir") + 1]) / "runs"
    state.mkdir()
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 2
    assert "spec.containers[0].name" in done.stderr
