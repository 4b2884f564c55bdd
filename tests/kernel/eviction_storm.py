"""Evictions one after the other while other pods come and go, and the agent is killed at random moments of them.

Each hog passes the threshold and stays there, so that an agent that was killed finds the shortage when it comes back.
Half of them do not end on SIGTERM, and so still have their memory when the next agent starts. Beside them
live a Guaranteed pod and a Burstable one within its request, for the whole time. Counted as faults: an evicted pod
without reason, message or condition, one that was evicted twice or ran again, a neighbour that was hurt.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

from tests.e2e.api_client import ApiClient
from tests.kernel.pressure_node import Document, PressureNode, container, eater, memory, pod, pressure_node, stubborn

SETTINGS: Document = {"evictionHard": {"memory.available": "100Mi"}, "evictionPressureTransitionPeriod": "0s"}
PACE = 300.0
NEIGHBOURS = ("gold", "silver")
MESSAGE = "The node was low on resource: memory. Threshold quantity: 100Mi, available: "


class Visitors(threading.Thread):
    """Small pods within their request, made and deleted without a pause by a client of its own."""

    def __init__(self, node: PressureNode, seed: int) -> None:
        super().__init__(daemon=True)
        self._ask, self._dice, self._is_over = ApiClient(node.kubeconfig), random.Random(seed), threading.Event()
        self.created = 0
        self.faults: list[str] = []

    def run(self) -> None:
        there: list[str] = []
        while not self._is_over.wait(self._dice.uniform(0.05, 0.4)):
            name = f"visitor{self.created}"
            visitor = pod(name, container("c", eater(1), **memory("12Mi")), terminationGracePeriodSeconds=1)
            self._ask("POST", "/api/v1/namespaces/default/pods", visitor)
            there.append(name)
            self.created += 1
            while len(there) > 3:
                self._end(there.pop(0))
        for name in there:
            self._end(name)

    def _end(self, name: str) -> None:
        status, found = self._ask.answer("GET", f"/api/v1/namespaces/default/pods/{name}")
        if status == 200 and found["status"].get("phase") == "Failed":
            self.faults.append(f"{name} was hurt: {found['status'].get('reason')} {found['status'].get('message')}")
        self._ask.answer("DELETE", f"/api/v1/namespaces/default/pods/{name}")

    def close(self) -> None:
        self._is_over.set()
        self.join()
        self._ask.close()


def run(directory: Path, seed: int, evictions: int) -> tuple[dict[str, int], list[str]]:
    """Counts and faults."""
    dice, counts, faults = random.Random(seed), Counter[str](), []
    with pressure_node(directory / "cluster", SETTINGS) as node:
        gold = {"resources": {"limits": {"memory": "90Mi", "cpu": "100m"}}}
        node.create(
            pod("gold", container("c", eater(60), **gold)), pod("silver", container("c", eater(60), **memory("90Mi")))
        )
        for name in NEIGHBOURS:
            node.full(name)
        before = {name: node.container(name)["containerID"] for name in NEIGHBOURS}
        visitors = Visitors(node, seed)
        visitors.start()
        try:
            while counts["hogs"] < evictions and not faults:
                faults += _one(node, f"hog{counts['hogs']}", dice, counts)
                counts["hogs"] += 1
                faults += _neighbours(node, before)
        finally:
            visitors.close()
        faults += visitors.faults
        faults += _evicted(node, counts["hogs"])
        counts["visitors"] = visitors.created
        node.empty()
    return {**counts, "failed": len(faults)}, faults


def _one(node: PressureNode, name: str, dice: random.Random, counts: Counter[str]) -> list[str]:
    eats = dice.choice([eater, stubborn])
    counts["stubborn"] += eats is stubborn
    node.create(pod(name, container("c", eats(320, PACE), **memory("5Mi")), container("side", eater(1))))
    moment = dice.choice(["never", "any", "during"])
    if moment == "any":
        time.sleep(dice.uniform(0.0, 2.5))  # the moment of the kill, not a wait for anything
    elif moment == "during":
        node.said(name, "term")
        counts["kills_beside_a_victim"] += eats is stubborn
    if moment != "never":
        node.kill_node()
        node.start_again()
        counts["kills"] += 1
    node.until(lambda: node.status(name).get("phase") == "Failed")
    status = node.status(name)
    if status.get("reason") != "Evicted":
        return [f"{name} ended otherwise: {status.get('reason')} {status.get('message')}"]
    counts["evictions"] += 1
    return []


def _neighbours(node: PressureNode, before: dict[str, str]) -> list[str]:
    found = {name: node.container(name) for name in before}
    return [
        f"{name} was hurt: {each}"
        for name, each in found.items()
        if (each.get("containerID"), each.get("restartCount")) != (before[name], 0)
    ]


def _evicted(node: PressureNode, evictions: int) -> list[str]:
    """Checked once more at the very end: what was evicted stays so, with its reason, and was evicted once."""
    faults = []
    counted = Counter[str]()
    for event in node.events("Evicted"):
        counted[event["involvedObject"]["name"]] += int(event.get("count") or 1)
    for number in range(evictions):
        name = f"hog{number}"
        status = node.status(name)
        if (status.get("phase"), status.get("reason")) != ("Failed", "Evicted"):
            faults.append(f"{name} is no longer evicted: {status.get('phase')} {status.get('reason')}")
            continue
        if not status.get("message", "").startswith(MESSAGE):
            faults.append(f"{name} has no message: {status.get('message')!r}")
        if not [each for each in status["conditions"] if each["type"] == "DisruptionTarget"]:
            faults.append(f"{name} lacks DisruptionTarget")
        if counted[name] > 1:
            faults.append(f"{name} was evicted {counted[name]} times")
        if running := [each["name"] for each in status.get("containerStatuses", []) if "running" in each["state"]]:
            faults.append(f"{name} still runs {running}")
        if any(each["restartCount"] for each in status.get("containerStatuses", [])):
            faults.append(f"{name} ran again")
    return faults
