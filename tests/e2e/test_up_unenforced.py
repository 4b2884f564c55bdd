"""Where limits cannot be enforced, every view says so: the report, describe, tree, node status, the Node's events."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up_process import PLIMSOLL, Up, close_all, problem

real = pytest.mark.skipif(bool(problem()), reason=f"up: {problem()}")
READ_ONLY = """
for at in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do mount -o remount,bind,ro "$at" || exit 99; done
exec "$@"
"""
Started = Callable[..., Up]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    made: list[Up] = []

    def start(*options: str, **how: Any) -> Up:
        made.append(Up(tmp_path, *options, **how))
        return made[-1]

    yield start
    close_all(made)


def plimsoll(up: Up, *words: str) -> str:
    environment = {"NO_COLOR": "1", "PLIMSOLL_HOME": str(up.state), "KUBECONFIG": str(up.state / "admin.kubeconfig")}
    done = subprocess.run(
        [PLIMSOLL, *words], capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **environment}
    )
    return done.stdout + done.stderr


@real
def test_read_only_cgroups(started: Started) -> None:
    up = started("--name", "n1", within=("unshare", "-m", "/bin/sh", "-c", READ_ONLY, "sh")).ready()
    assert "limits are not enforced)" in up.output
    assert "none, limits are not enforced" in up.output and "would be cpu." in up.output
    assert "the kernel has the values" not in up.output

    pod = plimsoll(up, "describe", "pod", "gold")
    assert "Not enforced:" in pod and "In the kernel" not in pod
    node = plimsoll(up, "describe", "node", "n1")
    assert "not enforced: this node cannot write cgroups" in node
    assert "LimitsNotEnforced" in node and "NodeAllocatableEnforced" not in node
    assert "have no cgroups: cgroups are not writable" in plimsoll(up, "tree")
    assert "the node agent that runs here enforces no limits" in plimsoll(
        up, "node", "status", "--cgroup-root", up.root
    )

    for kind in ("pods", "nodes"):
        assert "limits are not enforced on n1" in plimsoll(up, "top", kind)
    resized = plimsoll(up, "resize", "gold", "--memory", "96Mi", "--wait", "--yes")
    assert "done, but not enforced (cgroups are not writable on this machine" in resized, resized
    assert "the cgroups have the new values" not in resized

    score = plimsoll(up, "exec", "gold", "--", "cat", "/proc/self/oom_score_adj").strip()
    shown = next(line for line in up.output.splitlines() if line.strip().startswith("gold"))
    assert shown.split()[2] == score, "the score that the process has, not the one that it should have"


@real
def test_in_a_user_namespace(started: Started) -> None:
    """Its root may write cgroups, but not return to the namespaces that it was started in: pods did not run."""
    up = started(within=("unshare", "--map-root-user", "--mount")).ready()
    assert "is up (profile" in up.output, up.output
    assert "containers are plain processes of this machine" in up.output
    assert "root" in plimsoll(up, "exec", "gold", "--", "id")
    up.interrupt()
    assert up.ended() == 0
    assert up.left() == {}


def test_it_is_not_up_if_its_pods_do_not_run(started: Started) -> None:
    """A node too small for the pods: the report names them, and says nothing of success."""
    up = started("--simulate", "--capacity", "cpu=1,memory=120Mi").ready()
    assert "is up (profile" not in up.output
    assert "runs, but not the pods " in up.output
    assert " is not running: Pending" in up.output and "Insufficient memory" in up.output
