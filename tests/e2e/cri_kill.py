"""A node over containerd under kill −9: of the agent, of containerd, of both; and every CRI call failing once.

The story and its records are those of `node_kill`: the containers themselves record what ran. With a real runtime one
more thing can go wrong: a call whose connection breaks is undone by the runtime, or not.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.e2e.containerd_node import Containerd, containerd_node, inside, node_options, own_containerd
from tests.e2e.node_kill import STAYING, Document, Story, Wanted
from tests.e2e.real_node import RealNode, real_node
from tests.kernel.test_host_faulty_cri import FAULTS, Fault, faulty, path
from tests.unit.net.grpc.grpc_server import Server

Act = Callable[["CriStory", Containerd], Awaitable[None]]

LOST = 255
LOGS = ("the log of ends-", "the log of fails-")
# Those that the agent makes in a pod's life.
AGENT_CALLS = [
    "Version", "Status", "ListPodSandbox", "PodSandboxStatus", "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox",
    "ListContainers", "ContainerStatus", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer",
    "ImageStatus",
]  # fmt: skip


class CriStory(Story):
    """A runtime that dies may take with it how a container ended (255, `Unknown`), what it said last, and a container
    that it had made and not started, whose number is then used up. One that it was just starting it may not know any
    more at all (`Failed to load container`, by its own log): then it runs again, as a kubelet would have it, and so does
    one with `OnFailure` whose end was lost. That each of the others ran exactly once is still asked for, and of those
    that stay nothing is excused."""

    runtime_has_died = False
    since_check: tuple[str, ...] = ()

    def __init__(self, node: RealNode, directory: Path, seed: int) -> None:
        super().__init__(node, directory, seed)
        self.lost: set[str] = set()
        self._ids: dict[str, set[str]] = {}  # pod → containers it has had
        self.forgotten: set[str] = set()
        self.daemon: Containerd | None = None

    def fault(self, text: str) -> None:
        if self.runtime_has_died and text.startswith(LOGS):  # the runtime itself copies the output
            self.counts["logs lost by the runtime"] += 1
            return
        context = "\n".join([*self._runtime_log(text)[-4:], *self._node_log(text)[-8:]])
        super().fault(f"{text[:1500]} (since the last check: {', '.join(self.since_check)})\n{context}")

    def _runtime_log(self, text: str) -> list[str]:
        """The runtime's log of the containers that a text names."""
        ids = set(re.findall("[0-9a-f]{64}", text))
        lines = self.daemon.log().splitlines() if self.daemon is not None else []
        return [line[:500] for line in lines if "level=info" not in line and any(each in line for each in ids)]

    def _node_log(self, text: str) -> list[str]:
        """The agent's log of the pods that a text names by uid, and who is in their cgroups."""
        uids = set(re.findall("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", text))
        names = {name for name, each in self.pods.items() if each.uid in uids} | uids
        lines = (self.node.directory / "node.log").read_text().splitlines()
        found = [line[:400] for line in lines if any(each in line for each in names)]
        for place in self.node.memory_cgroups():
            if any(each in place for each in uids):
                pids = (self.node.memory_root / place / "cgroup.procs").read_text().split()
                found.append(f"{place}: {[Path(f'/proc/{pid}/cmdline').read_bytes()[:80] for pid in pids]}")
        return found

    def is_excused(self, wanted: Wanted) -> bool:
        if wanted.kind == "stays" or not self.runtime_has_died or self.daemon is None:
            return False
        forgotten = set(
            re.findall(r'Failed to load container[^"]*"([0-9a-f]{64})', self.daemon.log().replace("\\", ""))
        )
        return wanted.name in self.forgotten or not forgotten.isdisjoint(self._ids.get(wanted.name, ()))

    def _wrong(self, wanted: Wanted, found: Document | None) -> str:
        if found is not None:
            self._ids.setdefault(wanted.name, set()).update(re.findall("[0-9a-f]{64}", str(found.get("status"))))
            for each in found.get("status", {}).get("containerStatuses", ()) if wanted.kind == "fails first" else ():
                if self.runtime_has_died and _is_lost(each.get("lastState", {}).get("terminated") or {}):
                    self.forgotten.add(wanted.name)  # how it ended is not known, and so it runs again
        if found is not None and self.is_excused(wanted):
            self.forgotten.add(wanted.name)
            self.counts["containers forgotten by the runtime"] = len(self.forgotten)
            ends = wanted.kind in ("ends", "fails first")
            phases = ("Succeeded", "Failed") if ends else ("Running",)
            return "" if found["status"].get("phase") in phases else f"{wanted.name}: {found['status']}"
        if found is not None and self.runtime_has_died:
            for each in found.get("status", {}).get("containerStatuses", ()):
                ended = each.get("state", {}).get("terminated") or {}
                if _is_lost(ended):
                    ended["exitCode"] = wanted.code
                    found["status"]["phase"] = "Failed" if wanted.code else "Succeeded"  # it failed with the 255
                    self.lost.add(wanted.name)
                    self.counts["ends lost by the runtime"] = len(self.lost)
                if wanted.kind != "fails first" and each.get("restartCount") == 1 and not each.get("lastState"):
                    each["restartCount"] = 0
        return super()._wrong(wanted, found)


def _is_lost(ended: Document) -> bool:
    return ended.get("reason") == "Unknown" and ended.get("exitCode") == LOST


async def _agent_dies(story: CriStory, _daemon: Containerd) -> None:
    await story.bustle()
    await asyncio.sleep(story.dice.uniform(0.0, 1.0))  # the moment of the kill
    story.node.kill_node()
    story.check_processes()
    if story.dice.randrange(4) == 0:  # while it starts
        story.node.start_node(wait=False)
        await asyncio.sleep(story.dice.uniform(0.1, 1.5))
        story.node.kill_node()
        story.counts["kills of the agent"] += 1
    story.node.start_node()
    story.counts["kills of the agent"] += 1


async def _containerd_ends(story: CriStory, daemon: Containerd) -> None:
    await _without(story, daemon, signal.SIGTERM, "restarts of containerd")


async def _containerd_dies(story: CriStory, daemon: Containerd) -> None:
    await _without(story, daemon, signal.SIGKILL, "kills of containerd")


async def _without(story: CriStory, daemon: Containerd, how: signal.Signals, counted: str) -> None:
    await story.bustle()
    await asyncio.sleep(story.dice.uniform(0.0, 1.0))
    await asyncio.to_thread(daemon.stop, how)
    story.check_processes()
    await asyncio.sleep(story.dice.uniform(0.0, 0.8))  # something ends meanwhile
    await asyncio.to_thread(daemon.start)
    story.counts[counted] += 1
    story.runtime_has_died = True


async def _both_die(story: CriStory, daemon: Containerd) -> None:
    await story.bustle()
    await asyncio.sleep(story.dice.uniform(0.0, 1.0))
    story.node.kill_node()
    await asyncio.to_thread(daemon.stop, signal.SIGKILL)
    await asyncio.to_thread(daemon.start)
    story.node.start_node()
    story.counts["kills of both"] += 1
    story.runtime_has_died = True


ACTS: dict[str, Act] = {
    "agent": _agent_dies,
    "containerd ends": _containerd_ends,
    "containerd dies": _containerd_dies,
    "both": _both_die,
}
CHECK_EVERY = 8


def run(directory: Path, seed: int, kills: dict[str, int]) -> tuple[dict[str, int], list[str]]:
    """What was counted, and every fault."""
    with containerd_node(directory / "cluster") as (node, daemon):
        return asyncio.run(_play(CriStory(node, directory, seed), daemon, kills))


async def _play(story: CriStory, daemon: Containerd, kills: dict[str, int]) -> tuple[dict[str, int], list[str]]:
    story.daemon = daemon
    for _ in range(STAYING):
        await story.add("stays")
    await story.settled()
    acts = [name for name, count in kills.items() for _ in range(count)]
    story.dice.shuffle(acts)
    for number, name in enumerate(acts, 1):
        await ACTS[name](story, daemon)
        story.since_check += (name,)
        if number % CHECK_EVERY == 0 or number == len(acts):
            await story.checked_and_cleared()
            story.since_check = ()
    await story.settled()
    for name in list(story.pods):  # an agent that ends does so in seconds, which is short for many pods of a runtime
        await story.drop(name)
    await story.settled()
    await story.close()
    print(dict(story.counts), *story.faults[:20], sep="\n", flush=True)  # the clean-up may fail, too
    return {**story.counts, "failed": len(story.faults)}, story.faults


def run_faults(directory: Path, seed: int, faults: list[Fault] = FAULTS) -> tuple[dict[str, int], list[str]]:
    """The agent with a runtime of which one call after the other fails twice, in each way."""
    return asyncio.run(_run_faults(directory, seed, faults))


async def _run_faults(directory: Path, seed: int, faults: list[Fault]) -> tuple[dict[str, int], list[str]]:
    with own_containerd() as daemon:
        async with Server(daemon.directory / "proxy.sock", forward_to=daemon.socket) as proxy:
            words = node_options(daemon, f"unix://{proxy.socket_path}")
            entered = real_node(directory / "cluster", options=words, before=inside(daemon))
            node = await asyncio.to_thread(entered.__enter__)
            try:
                story = CriStory(node, directory, seed)
                await story.add("stays")
                await story.settled()
                for name in AGENT_CALLS:
                    for fault in faults:
                        proxy.handlers = {name: faulty(path(name), fault)}
                        await story.add("comes")
                        await story.add("ends", 3)
                        await story.checked_and_cleared()
                        story.counts["calls failed in each way"] += 1
                proxy.handlers = {}
                await story.settled()
                await story.close()
            finally:
                await asyncio.to_thread(entered.__exit__, None, None, None)
    return {**story.counts, "failed": len(story.faults)}, story.faults
