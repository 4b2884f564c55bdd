"""The agent enters the cgroup that kubeletCgroups names, on this machine's kernel: in a process of its own."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys

import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from tests.e2e.up_process import problem

pytestmark = pytest.mark.skipif(bool(problem()), reason=f"host: {problem()}")

AGENT = """
import asyncio, os, subprocess, sys
import msgspec
from plimsoll.cgroups.drivers.detect import this_host
from plimsoll.cgroups.drivers.detect import open_cgroupfs
from plimsoll.node.resources.kubelet_cgroups import OwnPlace
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import PROFILE_DOCUMENTS

config = msgspec.structs.replace(default_config(PROFILE_DOCUMENTS), kubelet_oom_score_adj=500, kubelet_cgroups=sys.argv[1])
driver = open_cgroupfs(this_host())
place = OwnPlace(config, driver)
notes = asyncio.run(place.take()) + asyncio.run(place.take())
print(notes, open("/proc/self/oom_score_adj").read().strip(), os.getpid() in driver.members(sys.argv[1]))
child = subprocess.Popen(["sleep", "100"])  # as the supervisor, which outlives the agent
print(repr(asyncio.run(place.leave())), sys.argv[1] in open("/proc/self/cgroup").read(), child.poll())
child.kill()
"""


def test_it_is_made_and_entered() -> None:
    """And removed at the end, since the agent has created it."""
    path, driver = f"/plimsoll-test-{secrets.token_hex(4)}", open_cgroupfs(this_host())
    done = subprocess.run([sys.executable, "-c", AGENT, path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[] 500 True\n'' False None\n", "")
    assert [mount for mount in driver.hierarchies.values() if mount.has(path)] == []


def test_a_cgroup_that_existed_before_stays() -> None:
    path, driver = f"/plimsoll-test-{secrets.token_hex(4)}", open_cgroupfs(this_host())
    asyncio.run(driver.make(path))
    try:
        done = subprocess.run([sys.executable, "-c", AGENT, path], capture_output=True, text=True, check=False)
        assert done.stderr == "" and done.stdout.startswith("[] 500 True\n''")
        assert driver.read(path, ()) is not None
    finally:
        asyncio.run(driver.remove(path))
