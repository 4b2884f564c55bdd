"""A whole node under kill −9: pods come, go and end while the agent, the API server or both die at any moment.

The record of what ran is independent. Every container writes its start in a file of its own on the host, carries a mark
on its command line by which it is found in /proc, and counts in its log. So, over all lives of the agent:

- a pod that stays was started once, keeps its container id, and its log has every number once and in order;
- one that ends was started once, its exit code is the program's, and what it said last is in its log;
- one that fails first was started twice, not more, and the end before it is reported;
- an init container ran once, before the others;
- whatever carries a mark is in the cgroup of its pod, no mark is there twice, and none is there without its pod.

A killed supervisor takes its containers along: they end as ContainerStatusUnknown with 137, and start again by policy.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from plimsoll.kube.request import ApiResponse, Request, UnreachableError
from tests.e2e.real_node import RealNode, cgroup_of, real_node

PODS = "/api/v1/namespaces/default/pods"
STAYING = 3
SETTLE_S = 45.0
SAID_S = 5.0
DEADLINE_S = 60.0
PATIENCE_S = 60.0
_MARK = re.compile(rb"mark=([a-z0-9-]+/[a-z0-9]+)/1;")
_PLACE = re.compile(r"/pod([0-9a-f-]{36})/")

Document = dict[str, Any]


class Wanted(msgspec.Struct):
    """What must be known of one pod in the end."""

    name: str
    kind: str
    code: int = 0
    uid: str = ""
    container_id: str = ""


def marked(name: str, container: str, script: str) -> str:
    """A shell script that records its start. The mark is on the command line of that shell alone."""
    return f"mark={name}/{container}/1; echo start >> /book/{name}.{container}; {script}"


def manifest(wanted: Wanted, book: Path) -> Document:
    name = wanted.name
    mounts = [{"name": "book", "mountPath": "/book"}, {"name": "own", "mountPath": "/own"}]

    def container(which: str, script: str) -> Document:
        command = ["sh", "-c", marked(name, which, script)]
        return {"name": which, "image": "busybox", "command": command, "volumeMounts": mounts}

    scripts = {
        "stays": "trap 'exit 0' TERM; n=0; while :; do echo line $n; n=$((n+1)); sleep 0.1; done",
        "comes": "trap 'exit 0' TERM; while :; do sleep 0.05; done",
        "ends": f"sleep 0.{wanted.code % 10}; echo final output {wanted.code}; exit {wanted.code}",
        "fails first": "if [ -e /own/once ]; then echo second; exit 0; fi; touch /own/once; echo first; exit 7",
        "has an init": "trap 'exit 0' TERM; cat /own/made; while :; do sleep 0.05; done",
    }
    policy = {"stays": "Always", "comes": "Always", "has an init": "Always", "fails first": "OnFailure"}
    spec: Document = {
        "containers": [container("c", scripts[wanted.kind])],
        "restartPolicy": policy.get(wanted.kind, "Never"),
        "terminationGracePeriodSeconds": 5,
        "volumes": [
            {"name": "book", "hostPath": {"path": str(book), "type": "Directory"}},
            {"name": "own", "emptyDir": {}},
        ],
    }
    if wanted.kind == "has an init":
        spec["initContainers"] = [container("i", "echo made >> /own/made")]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


class Story:
    def __init__(self, node: RealNode, directory: Path, seed: int) -> None:
        self.node, self.dice = node, random.Random(seed)
        self.book = directory / "book"
        self.book.mkdir()
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.pods: dict[str, Wanted] = {}
        self._leaving: set[str] = set()
        self._number = 0
        self._transport = HttpTransport(load(node.kubeconfig))

    def fault(self, text: str) -> None:
        self.faults.append(f"after {sum(v for k, v in self.counts.items() if k.startswith('kills'))} kills: {text}")

    # --- requests ---

    async def ask(self, method: str, path: str, body: Document | None = None) -> ApiResponse:
        """With retries: the API server may be just starting."""
        deadline = time.monotonic() + PATIENCE_S
        content = json.dumps(body).encode() if body is not None else b""
        while True:
            try:
                return await self._transport.send(Request(method, path, content, "application/json"))
            except (UnreachableError, TimeoutError, EOFError) as error:
                if time.monotonic() > deadline:
                    raise AssertionError(f"{method} {path}: {error}") from error
                await asyncio.sleep(0.05)

    async def listed(self) -> dict[str, Document]:
        answer = await self.ask("GET", PODS)
        return {each["metadata"]["name"]: each for each in msgspec.json.decode(answer.body)["items"]}

    async def add(self, kind: str, code: int = 0) -> None:
        self._number += 1
        wanted = Wanted(f"{kind.split(maxsplit=1)[0]}-{self._number}", kind, code)
        answer = await self.ask("POST", PODS, manifest(wanted, self.book))
        assert answer.status == 201, answer
        wanted.uid = msgspec.json.decode(answer.body)["metadata"]["uid"]
        self.pods[wanted.name] = wanted
        self.counts["pods"] += 1

    async def drop(self, name: str) -> None:
        await self.ask("DELETE", f"{PODS}/{name}")
        self._leaving.add(name)
        self.pods.pop(name)
        self.counts["deleted"] += 1

    # --- what is true at every moment ---

    def check_processes(self) -> None:
        found: dict[str, list[int]] = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            words = _words(int(entry))
            mark = _MARK.search(words)
            if mark is not None and str(self.book.parent).encode() not in words:
                found.setdefault(mark[1].decode(), []).append(int(entry))
        for name, pids in found.items():
            places = {pid: _place(pid, self.node.cgroup_root) for pid in pids}
            there = {pid: uid for pid, uid in places.items() if uid is not None}
            # `sleep` and the like have their own command line, but a forked shell has the shell's for a moment.
            leaders = [pid for pid in there if not _is_below(pid, pids)]
            if len(leaders) > 1:
                self.fault(f"{name} runs {len(leaders)} times: {there}")
            wanted = self.pods.get(name.split("/")[0])
            for pid, uid in there.items():
                # One that has ended meanwhile is in no cgroup, and has no command line.
                if (not uid or (wanted is not None and uid != wanted.uid)) and _words(pid):
                    self.fault(f"process {pid} of {name} is in cgroup {cgroup_of(pid)!r}")
            self.counts["processes seen"] += len(there)

    # --- what must be true in the end ---

    async def settled(self) -> None:
        """Waits until every pod is what it should be; what is not by then is a fault."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            there = await self.listed()
            wrong = [text for each in self.pods.values() if (text := self._wrong(each, there.get(each.name)))]
            wrong += [f"{name} was deleted and is still there" for name in self._leaving & there.keys()]
            if not wrong:
                break
            if time.monotonic() > deadline:
                for text in wrong:
                    self.fault(text)
                break
            await asyncio.sleep(0.1)
        self._leaving.clear()
        await self._traces()

    def is_excused(self, wanted: Wanted) -> bool:
        """Whether another process has lost it."""
        return False

    def _wrong(self, wanted: Wanted, found: Document | None) -> str:
        """Why it is not yet what it should be. What can never become right is a fault at once."""
        if found is None or found["metadata"]["uid"] != wanted.uid:
            return f"{wanted.name} is lost"
        status = found.get("status", {})
        containers = status.get("containerStatuses") or [{}]
        state, last, restarts = (containers[0].get(each) for each in ("state", "lastState", "restartCount"))
        phase, shown = status.get("phase"), f"{wanted.name}: {status}"
        if wanted.kind in ("stays", "comes", "has an init"):
            if phase != "Running" or not containers[0].get("ready"):
                return shown
            wanted.container_id = wanted.container_id or containers[0]["containerID"]
            if restarts or containers[0]["containerID"] != wanted.container_id:
                self.fault(f"restarted without need: {shown}")
            # A container that runs may not have said so yet.
            return "" if _starts(self.book, wanted.name, "c") else f"{wanted.name} has noted no start: {status}"
        ended = (state or {}).get("terminated")
        if not ended:
            return shown
        twice = wanted.kind == "fails first"
        if twice and not restarts:
            return shown
        if (ended["exitCode"], restarts) != (wanted.code, 1 if twice else 0):
            self.fault(f"another end than its own: {shown}")
        if twice and (last or {}).get("terminated", {}).get("exitCode") != 7:
            self.fault(f"its first end is not reported: {shown}")
        return "" if phase == ("Failed" if wanted.code else "Succeeded") else shown

    async def _log(self, wanted: Wanted) -> str:
        """Most write something, perhaps a moment after they have started; an agent that has just come back may listen on
        a port that the Node does not have yet."""
        began = time.monotonic()
        while True:
            answer = await self.ask("GET", f"{PODS}/{wanted.name}/log")
            text, waited_s = answer.body.decode(), time.monotonic() - began
            is_complete = bool(text) or wanted.kind == "comes" or waited_s > SAID_S
            if (answer.status == 200 and is_complete) or waited_s > DEADLINE_S:
                return text
            await asyncio.sleep(0.1)

    async def _traces(self) -> None:
        """The recorded starts, the logs, and the cgroups."""
        for wanted in self.pods.values():
            if self.is_excused(wanted):
                continue
            for which in ("c", "i") if wanted.kind == "has an init" else ("c",):
                starts = _starts(self.book, wanted.name, which)
                if starts != (2 if wanted.kind == "fails first" else 1):
                    self.fault(f"{wanted.name}/{which} was started {starts} times")
            text = await self._log(wanted)
            if wanted.kind == "stays":
                lines = text.splitlines()
                if lines != [f"line {number}" for number in range(len(lines))] or not lines:
                    self.fault(f"the log of {wanted.name} has gaps: {lines[:3]} … {len(lines)} lines")
                self.counts["log lines"] += len(lines)
            said = {"ends": f"final output {wanted.code}\n", "fails first": "second\n", "has an init": "made\n"}
            if wanted.kind in said and text != said[wanted.kind]:
                self.fault(f"the log of {wanted.name} is {text!r}")
        self.check_processes()
        wanted_uids = {each.uid for each in self.pods.values() if each.kind in ("stays", "comes", "has an init")}
        deadline = time.monotonic() + SETTLE_S
        while True:
            left = {uid for path in self.node.memory_cgroups() for uid in _PLACE.findall(f"/{path}/")}
            if left == wanted_uids:
                return
            if time.monotonic() > deadline:
                self.fault(f"cgroups of {left - wanted_uids} are left, of {wanted_uids - left} are missing")
                return
            await asyncio.sleep(0.1)

    # --- doing ---

    async def bustle(self) -> None:
        """A few pods come, a few go."""
        await self.add("comes")
        await self.add("ends", self.dice.randrange(1, 100))
        if self.dice.randrange(3) == 0:
            await self.add(self.dice.choice(("fails first", "has an init", "ends")))
        passing = [name for name, each in self.pods.items() if each.kind != "stays"]
        if len(passing) > 8:
            for name in self.dice.sample(passing, 3):
                if self.pods[name].kind in ("comes", "has an init"):
                    await self.drop(name)

    async def checked_and_cleared(self) -> None:
        await self.settled()
        for name in [name for name, each in self.pods.items() if each.kind != "stays"]:
            await self.drop(name)

    async def close(self) -> None:
        await self._transport.close()


def _starts(book: Path, name: str, which: str) -> int:
    try:
        return len((book / f"{name}.{which}").read_text().split())
    except FileNotFoundError:
        return 0


def _words(pid: int) -> bytes:
    """Of its command line; none once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _place(pid: int, root: str) -> str | None:
    """The pod uid in whose cgroup it is; None: not of this node, or gone."""
    try:
        path = cgroup_of(pid)
    except OSError:
        return None
    if not path:
        return None
    if not path.startswith(f"{root}/"):
        return None if path.startswith("/plimsoll-test-") else ""
    found = _PLACE.search(path + "/")
    return found[1] if found else ""


def _is_below(pid: int, others: list[int]) -> bool:
    """Whether it is a child of another with the same mark."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return True
    return parent in others


async def _agent_dies(story: Story) -> None:
    node, dice = story.node, story.dice
    await story.bustle()
    await asyncio.sleep(dice.uniform(0.0, 0.5))  # the moment of the kill
    node.kill_node()
    story.check_processes()
    if dice.randrange(3) == 0:
        await asyncio.sleep(dice.uniform(0.0, 0.8))  # something ends meanwhile
    if dice.randrange(4) == 0:  # while it starts
        node.start_node(wait=False)
        await asyncio.sleep(dice.uniform(0.1, 1.2))
        node.kill_node()
        story.check_processes()
        story.counts["kills of the agent"] += 1
    node.start_node()
    story.counts["kills of the agent"] += 1


async def _api_dies(story: Story) -> None:
    await story.bustle()
    await asyncio.sleep(story.dice.uniform(0.0, 0.4))
    story.node.kill_api()
    await asyncio.sleep(story.dice.uniform(0.0, 0.6))
    story.check_processes()
    story.node.start_api()
    story.counts["kills of the API server"] += 1


async def _both_die(story: Story) -> None:
    await story.bustle()
    await asyncio.sleep(story.dice.uniform(0.0, 0.4))
    story.node.kill_api()
    story.node.kill_node()
    story.check_processes()
    story.node.start_node(wait=False)  # it must wait for the API server
    await asyncio.sleep(story.dice.uniform(0.0, 0.8))
    story.node.start_api()
    await story.listed()
    story.counts["kills of both"] += 1


async def _supervisor_dies(story: Story) -> None:
    await story.checked_and_cleared()
    await story.add("comes")
    await story.settled()
    (name,) = [each.name for each in story.pods.values() if each.kind == "comes"]
    never = manifest(Wanted("never", "comes"), story.book)
    never["spec"]["restartPolicy"] = "Never"
    assert (await story.ask("POST", PODS, never)).status == 201
    await _until(
        story,
        lambda there: there["never"]["status"].get("phase") == "Running" and _starts(story.book, "never", "c") == 1,
    )
    os.kill(story.node.supervisor_pid(), signal.SIGKILL)
    story.counts["kills of the supervisor"] += 1

    def came_back(there: dict[str, Document]) -> bool:
        every = [there[each]["status"]["containerStatuses"][0] for each in story.pods]
        recorded = all(_starts(story.book, each, "c") >= 2 for each in story.pods)  # a moment after it is ready
        return recorded and all(each["ready"] and each["restartCount"] == 1 for each in every)

    await _until(story, came_back)
    await _until(story, lambda there: there["never"]["status"]["phase"] == "Failed")
    there = await story.listed()
    for each in (*story.pods, "never"):
        status = there[each]["status"]["containerStatuses"][0]
        ended = status["state" if each == "never" else "lastState"]["terminated"]
        if (ended["exitCode"], ended["reason"]) != (137, "ContainerStatusUnknown"):
            story.fault(f"{each} ended as {ended}")
        if (starts := _starts(story.book, each, "c")) != (1 if each == "never" else 2):
            story.fault(f"{each} was started {starts} times")
    if there[name]["status"]["phase"] != "Running":
        story.fault(f"{name}: {there[name]['status']}")
    story.check_processes()


async def _until(story: Story, true: Callable[[dict[str, Document]], bool]) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not true(there := await story.listed()):
        if time.monotonic() > deadline:
            story.fault(f"not within {SETTLE_S:g} s: {[each['status'] for each in there.values()]}")
            return
        await asyncio.sleep(0.1)


async def _play(story: Story, kills: dict[str, int]) -> None:
    for _ in range(STAYING):
        await story.add("stays")
    await story.settled()
    dying: dict[str, Callable[[Story], Awaitable[None]]] = {
        "agent": _agent_dies,
        "API server": _api_dies,
        "both": _both_die,
    }
    for who, doing in dying.items():
        counted = f"kills of {'' if who == 'both' else 'the '}{who}"
        while story.counts[counted] < kills.get(who, 0) and not story.faults:
            await doing(story)
            if story.counts[counted] % 10 == 0 or len(story.pods) > 25:
                await story.checked_and_cleared()
        await story.checked_and_cleared()
    if kills.get("supervisor") and not story.faults:
        await _supervisor_dies(story)
    await story.close()


def run(directory: Path, seed: int, kills: dict[str, int]) -> tuple[dict[str, int], list[str]]:
    """`kills`: how many of "agent", "API server", "both", "supervisor". Counts, and everything that was wrong."""
    with real_node(directory / "cluster") as node:
        story = Story(node, directory, seed)
        try:
            asyncio.run(_play(story, kills))
        finally:  # faults are printed now: the clean-up may fail, too
            for log in ("node.log", "api.log"):
                if "Traceback" in (text := (node.directory / log).read_text()):
                    story.fault(f"a traceback in {log}:\n{text[text.index('Traceback') - 300 :][:3000]}")
            print("\n".join(story.faults[:20]), flush=True)
    faults = [f"seed {seed}: {fault}" for fault in story.faults]
    return {**story.counts, "failed": len(faults)}, faults
