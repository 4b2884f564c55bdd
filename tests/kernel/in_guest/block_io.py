"""Block I/O of pods on a real disk: io.max, weights, and a log rotation storm, in one program.

    block_io.py cgroupfs|systemd [all]

Says each thing that was seen, and `all seen` at the end; anything else ends with an AssertionError. With `all` it also
measures weights and the storm, which takes minutes, and leaves the figures in measured.json. /scratch is a disk of 10
MiB per second, so that the disk, and not the emulated processor, decides who waits.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll.cgroups.drivers.block_io import on_this_machine
from plimsoll.cgroups.drivers.detect import entry_directories, open_cgroupfs, this_host
from plimsoll.cgroups.drivers.systemd import SystemdCgroups
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.linux.machine import this_machine
from plimsoll.node.agent import Agent
from plimsoll.rules.config.extras import extras_reading
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.node.node_config import NodeConfig, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from tests.e2e.real_node import CONFIG
from tests.kernel.guest import JOB_VARIABLE
from tests.kernel.in_guest.static_cpus import opened
from tests.pods_api import PodsApi

Document = dict[str, Any]
DISK, NAME, DATA = "/dev/vda", "vda", Path("/scratch")
CGROUPS = Path("/sys/fs/cgroup")
WAIT_S, MEASURE_S = 240.0, 8.0
MIB = 1 << 20
EXTRAS = {
    "apiVersion": "plimsoll.dev/v1",
    "kind": "NodeExtras",
    "ioControl": {"devices": [DISK], "ceilings": {"*": {"max": "wbps=16Mi"}}},
}
# Starting a program takes a while here, in which it reads and writes nothing: each one has work for half a minute.
WRITES = "while :; do dd if=/dev/zero of=/data/%s bs=64k count=1024 oflag=direct conv=notrunc 2>/dev/null; done"
READS = (
    "for part in 0 1 2 3 4 5 6 7; do "
    "(while :; do dd if=/data/%s of=/dev/null bs=64k skip=$((part * 64)) count=512 iflag=direct 2>/dev/null; done) & "
    "done; wait"
)
ROTATES = "while :; do dd if=$0 of=$0.1 bs=256k conv=fsync 2>/dev/null; mv -f $0.1 $0.2; done"
STORM = 6  # logs that are rotated at the same time


class IoNode:
    """The agent in this process, beside an API in memory."""

    def __init__(self, directory: Path, driver: DriverName, *, controls: bool) -> None:
        self._directory, self._api, self._name = directory, PodsApi(), driver
        self._files = open_cgroupfs(this_host())
        self._driver = SystemdCgroups(self._files) if driver == "systemd" else self._files
        self._controls = controls
        self.client = Client(self._api)

    async def begin(self) -> None:
        setting, self.notes = on_this_machine(self._setting(), self._files, by_runtime=False)
        tree = CgroupManager(self._driver, setting, self._directory / "cgroups")
        self._runtime = ProcessRuntime(self._directory / "runtime", partial(entry_directories, self._files))
        await opened(self._runtime)
        state = self._directory / "node"
        state.mkdir(parents=True, exist_ok=True)
        self.agent = Agent(setting, self._runtime, self._driver, tree, self.client, state, "n1")
        self._task = asyncio.create_task(self.agent.run())
        async with asyncio.timeout(WAIT_S):
            await self.agent.ready.wait()

    def _setting(self) -> NodeConfig:
        known = profile_named("1.36")
        io = extras_reading(EXTRAS).io_control if self._controls else None
        config = reading(CONFIG, known, {}).config
        return resolved(this_machine(), config, known, cgroup_version=2, driver=self._name, runtime="process", io=io)

    async def killed(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.begin()

    async def close(self) -> None:
        await self.agent.end()
        await self._task
        await self._runtime.open()
        await self._runtime.shutdown()

    async def create(self, name: str, script: str, *, guaranteed: bool, io_max: str = "") -> None:
        sizes = {"cpu": "1" if guaranteed else "100m", "memory": "64Mi"}
        container = {
            "name": "c", "image": "busybox", "command": ["sh", "-c", script],
            "resources": {"requests": sizes, **({"limits": sizes} if guaranteed else {})},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }  # fmt: skip
        spec = {
            "containers": [container], "volumes": [{"name": "data", "hostPath": {"path": str(DATA)}}],
            "nodeName": "n1", "terminationGracePeriodSeconds": 0,
        }  # fmt: skip
        metadata = {"name": name, "annotations": {"plimsoll.dev/io-max": io_max} if io_max else {}}
        await self.client.ask(
            request.create(
                request.PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, "default"
            )
        )

    async def run(self, name: str, script: str, *, guaranteed: bool, io_max: str = "") -> Path:
        """The pod's cgroup, as soon as it runs."""
        await self.create(name, script, guaranteed=guaranteed, io_max=io_max)
        pod = await self.until(name, "Running")
        return CGROUPS / self.agent.cgroups.paths(pod["metadata"]["uid"])[""].lstrip("/")

    async def annotate(self, name: str, io_max: str) -> None:
        change = {"metadata": {"annotations": {"plimsoll.dev/io-max": io_max}}}
        await self.client.ask(request.patch(request.PODS, name, change, "default", ""))

    async def until(self, name: str, phase: str) -> Document:
        end = time.monotonic() + WAIT_S
        while True:
            pod: Document = await self.client.ask(request.get(request.PODS, name, "default"))
            if pod["status"].get("phase") == phase:
                return pod
            assert time.monotonic() < end, f"{name}: {json.dumps(pod.get('status'))}; {self._task}"
            await asyncio.sleep(0.3)

    async def delete(self, name: str, cgroup: Path) -> None:
        await self.client.ask(request.delete(request.PODS, name, "default"))
        await eventually(lambda: not cgroup.exists(), f"{cgroup} is removed")

    def events(self, reason: str) -> list[str]:
        return [each["message"] for each in self._api.events if each["reason"] == reason]


async def eventually(read: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not read():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.1)


def number() -> str:
    return Path(f"/sys/block/{NAME}/dev").read_text().strip()


def counted(cgroup: Path) -> dict[str, int]:
    """The line of the disk in io.stat."""
    for line in (cgroup / "io.stat").read_text().splitlines():
        device, _, rest = line.partition(" ")
        if device == number():
            return {key: int(value) for key, _, value in (word.partition("=") for word in rest.split())}
    return {}


async def rate(key: str, *cgroups: Path) -> list[float]:
    """Of each cgroup, per second."""
    await asyncio.sleep(1.0)
    before, start = [counted(each).get(key, 0) for each in cgroups], time.monotonic()
    await asyncio.sleep(MEASURE_S)
    after, seconds = [counted(each).get(key, 0) for each in cgroups], time.monotonic() - start
    return [(now - past) / seconds for past, now in zip(before, after, strict=True)]


def said(what: str) -> None:
    print(f"seen: {what}", flush=True)


def scheduler(name: str) -> None:
    queue = Path(f"/sys/block/{NAME}/queue")
    (queue / "scheduler").write_text(name)
    if name == "bfq":
        (queue / "iosched/low_latency").write_text("0")  # or it raises the weight of processes that look interactive
        (queue / "iosched/strict_guarantees").write_text("1")  # or it does not wait for readers on an emulated CPU


# --- io.max ---


async def limits(node: IoNode, *, systemd: bool) -> Document:
    found: Document = {}
    cgroup = await node.run("writer", WRITES % "written", guaranteed=False, io_max="wbps=4Mi")

    def file_is(limit: str) -> bool:
        return (cgroup / "io.max").read_text().strip() == f"{number()} rbps=max wbps={limit} riops=max wiops=max"

    assert file_is(str(4 * MIB)), (cgroup / "io.max").read_text()
    for mebibytes in (4, 2):
        await node.annotate("writer", f"wbps={mebibytes}Mi")
        await eventually(lambda limit=str(mebibytes * MIB): file_is(limit), "the new limit in the kernel's file")
        (found_rate,) = await rate("wbytes", cgroup)
        assert abs(found_rate / (mebibytes * MIB) - 1) <= 0.1, found_rate
        found[f"io.max {mebibytes} MiB/s"] = round(found_rate / MIB, 2)
        said(f"a writer with wbps={mebibytes}Mi writes {found_rate / MIB:.2f} MiB/s")
    for text, why in (("wbps=lots", "is not a number of bytes per second"), ("wbps=17Mi", "more than 16777216")):
        await node.annotate("writer", text)
        await eventually(lambda why=why: any(why in each for each in node.events("InvalidIOAnnotation")), why)
        assert file_is(str(2 * MIB)), (cgroup / "io.max").read_text()
    said(f"a wrong value changes nothing: {node.events('InvalidIOAnnotation')[-1]}")
    await node.killed()
    await asyncio.sleep(2.0)
    assert file_is(str(2 * MIB)), (cgroup / "io.max").read_text()
    said("… also when the agent is started again")
    await node.create("greedy", "sleep 60", guaranteed=False, io_max="wbps=max")
    status = (await node.until("greedy", "Failed"))["status"]
    assert status["reason"] == "InvalidIOAnnotation", status
    assert "metadata.annotations[plimsoll.dev/io-max]: Forbidden" in status["message"], status
    said(f"a pod above its namespace's ceiling is refused: {status['message']}")
    await node.annotate("writer", "rbps=8Mi")
    await eventually(
        lambda: (
            (cgroup / "io.max").read_text().strip() == f"{number()} rbps={8 * MIB} wbps={16 * MIB} riops=max wiops=max"
        ),
        "the ceiling, where the pod sets nothing",
    )
    said("without a limit of its own, a pod has the ceiling of its namespace")
    await node.delete("writer", cgroup)
    cgroup = await node.run("both", "sleep 600", guaranteed=True, io_max="wbps=1Mi")
    await node.annotate("both", "wbps=2Mi")
    await eventually(lambda: f"wbps={2 * MIB}" in (cgroup / "io.max").read_text(), "the new limit")
    for file, value in weight_files(500, systemd=systemd).items():
        assert (cgroup / file).read_text().splitlines()[0] == f"default {value}", (file, (cgroup / file).read_text())
    assert node.events("CgroupRepaired") == [], node.events("CgroupRepaired")
    said("a change of a limit leaves the weights as they are")
    await node.delete("both", cgroup)
    return found


def weight_files(weight: int, *, systemd: bool) -> dict[str, int]:
    """systemd derives io.bfq.weight from io.weight."""
    return {"io.bfq.weight": weight, "io.weight": 100 + (weight - 100) * 11 if systemd and weight > 100 else weight}


def weights(systemd: bool) -> None:
    top = CGROUPS / ("kubepods.slice" if systemd else "kubepods")
    below = {"burstable": 100, "besteffort": 10}
    names = {name: f"kubepods-{name}.slice" if systemd else name for name in below}
    for path, weight in ((top, 500), *((top / names[name], weight) for name, weight in below.items())):
        for file, value in weight_files(weight, systemd=systemd).items():
            assert (path / file).read_text().splitlines()[0] == f"default {value}", (path, file)
    said("io.weight and io.bfq.weight of kubepods and the classes")


# --- weights ---


async def shares(node: IoNode) -> Document:
    found: Document = {}
    guaranteed = await node.run("gold", READS % "gold", guaranteed=True)
    burstable = await node.run("silver", READS % "silver", guaranteed=False)
    for what, choose in (("bfq", lambda: scheduler("bfq")), ("io.cost", io_cost), ("neither", no_weights)):
        choose()
        await asyncio.sleep(4.0)
        rates = await rate("rbytes", guaranteed, burstable)
        found[what] = {"Guaranteed MiB/s": round(rates[0] / MIB, 2), "Burstable MiB/s": round(rates[1] / MIB, 2)}
        ratio = found[what]["ratio"] = round(rates[0] / rates[1], 2)
        assert (3.5 <= ratio <= 6.5) if what != "neither" else (0.5 <= ratio <= 2.0), (what, rates)
        said(f"with {what}, weights of 500 and 100 give {ratio} to 1")
    scheduler("bfq")
    await node.delete("gold", guaranteed)
    await node.delete("silver", burstable)
    return found


def io_cost() -> None:
    scheduler("none")
    # The kernel divides within a period of two latencies: it must be long for requests that take 7 ms each.
    speed = "rbps=9000000 rseqiops=9000 rrandiops=9000 wbps=9000000 wseqiops=9000 wrandiops=9000"
    (CGROUPS / "io.cost.qos").write_text(
        f"{number()} enable=1 ctrl=user rpct=95 rlat=200000 wpct=95 wlat=200000 min=50 max=150"
    )
    (CGROUPS / "io.cost.model").write_text(f"{number()} ctrl=user model=linear {speed}")


def no_weights() -> None:
    (CGROUPS / "io.cost.qos").write_text(f"{number()} enable=0")


# --- the storm ---


async def storm(node: IoNode, schedulers: tuple[str, ...]) -> Document:
    """Operations per second of a Guaranteed pod: alone, and while logs are rotated in system.slice."""
    found: Document = {}
    place = CGROUPS / "system.slice" / "logrotate"
    for path in (place.parent, place):
        path.mkdir(exist_ok=True)
    cgroup = await node.run("db", READS % "gold", guaranteed=True)
    for name in schedulers:
        scheduler(name)
        await asyncio.sleep(1.0)
        (alone,) = await rate("rios", cgroup)
        writers = rotating(place)
        await asyncio.sleep(2.0)
        (beside,) = await rate("rios", cgroup)
        (place / "cgroup.kill").write_text("1")
        for each in writers:
            each.wait()
        found[name] = {"alone": round(alone, 1), "in the storm": round(beside, 1), "share": round(beside / alone, 3)}
        said(f"scheduler {name}: {alone:.0f} reads/s alone, {beside:.0f} beside {STORM} log rotations")
    await node.delete("db", cgroup)
    return found


# --- all ---


def prepare(*, every: bool) -> None:
    subprocess.run(["/sbin/insmod", f"/lib/modules/{os.uname().release}/kernel/block/bfq.ko"], check=True)
    sizes = {"gold": 64, "silver": 64, **{f"log{index}": 8 for index in range(STORM)}} if every else {}
    for file, mebibytes in sizes.items():
        write = ["dd", "if=/dev/zero", f"of={DATA}/{file}", "bs=1M", f"count={mebibytes}", "oflag=direct"]
        subprocess.run(write, check=True, stderr=subprocess.DEVNULL)


def rotating(place: Path) -> list[subprocess.Popen[bytes]]:
    return [
        subprocess.Popen(["sh", "-c", f"echo $$ > {place}/cgroup.procs; {ROTATES}", f"{DATA}/log{index}"])
        for index in range(STORM)
    ]


async def main(driver: DriverName, *, every: bool) -> None:
    found: Document = {}
    with tempfile.TemporaryDirectory() as name:
        if every:
            node = IoNode(Path(name) / "without", driver, controls=False)
            await node.begin()
            try:
                found["storm without ioControl"] = await storm(node, ("none", "bfq"))
            finally:
                await node.close()
        scheduler("bfq")
        node = IoNode(Path(name) / "with", driver, controls=True)
        await node.begin()
        try:
            assert node.notes == [], node.notes
            weights(driver == "systemd")
            found["limits"] = await limits(node, systemd=driver == "systemd")
            if every:
                found["weights 500 and 100"] = await shares(node)
                found["storm with ioControl"] = await storm(node, ("bfq",))
                before = found["storm without ioControl"]["none"]["share"]
                assert found["storm with ioControl"]["bfq"]["share"] > max(0.6, 2 * before), found
        finally:
            await node.close()
    (Path(os.environ[JOB_VARIABLE]) / "measured.json").write_text(json.dumps(found))
    print("all seen")


if __name__ == "__main__":
    everything = "all" in sys.argv[2:]
    prepare(every=everything)
    sys.exit(asyncio.run(main("systemd" if sys.argv[1] == "systemd" else "cgroupfs", every=everything)))
