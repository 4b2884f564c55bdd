"""`plimsoll audit` beside a running node, by its PodsAPI socket: no API server, no Node object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.up_process import CAPACITY, Up, problem

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(problem()), reason=f"up: {problem()}")]


def test_the_pods_of_the_socket_are_audited(tmp_path: Path) -> None:
    """The machine is larger than the declared node, so kubepods differs, and nothing below it does."""
    up = Up(tmp_path, "--profile", "1.37", "--feature-gates", "PodsAPI=true")
    try:
        up.ready()
        config = tmp_path / "kubelet.yaml"
        config.write_text(f"cgroupRoot: {up.root}\nfailCgroupV1: false\n")
        words = ["audit", "--pods-socket", str(up.state / "pods-api" / "pods-api.sock"), "--config", str(config)]
        done = subprocess.run(
            [sys.executable, "-m", "plimsoll.cli.main", *words, "--rule", "A01,A12", "-o", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
        (node,) = json.loads(done.stdout)["nodes"]
        assert (node["profile"], node["pods"]) == ("1.37", 3), done.stderr
        found = [each for answer in node["answers"] for each in answer.get("findings", ())]
        assert {each["path"] for each in found} == {f"{up.root}/kubepods"}, (CAPACITY, found)
        up.interrupt()
        assert up.ended() == 0, up.output
    finally:
        up.close()
