"""An agent that was killed between two hierarchies of cgroup v1: the next one takes away what stands in some only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.engine.executor import Executor
from plimsoll.cgroups.engine.journal import Journal
from plimsoll.rules.cgroups.steps import Make


@pytest.mark.parametrize(
    "made_in", [("cpu",), ("cpu", "cpuset", "pids"), ("memory",), ()], ids=lambda each: "-".join(each) or "none"
)
async def test_a_cgroup_made_in_some_hierarchies_only_is_taken_away(tmp_path: Path, made_in: tuple[str, ...]) -> None:
    found = this_host()
    if os.geteuid() != 0 or found.version != 1:
        pytest.skip("needs root on a cgroup v1 host")
    driver, pod = open_cgroupfs(found), f"/plimsoll-test-{secrets.token_hex(4)}"
    steps = (Make(pod), Make(f"{pod}/container"))
    journal = Journal(tmp_path / "journal.jsonl")
    journal.begin("pod default/p", "boot", steps, {})
    await driver.make(pod)
    for controller in made_in:
        os.mkdir(found.v1[controller].mount_point + f"{pod}/container")
    executor = Executor(driver, journal, boot_id="boot", save_inodes=lambda _: None)
    assert await executor.recover(0) is not None
    assert journal.unfinished() is None
    assert driver.children("/").count(pod[1:]) == 0
