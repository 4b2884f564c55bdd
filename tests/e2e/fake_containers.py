"""What the fake node knows of its pods: containers with a log and resources, and the status that follows from them.

A container "runs" from the first sync on, and writes one line when it starts and one when it ends. Its command may be
`true` or `false`: then it ends at once. `kill 1` by exec ends it, and restartPolicy says what happens then.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from plimsoll.rules.profile import Profile

Document = dict[str, Any]
_RESIZE_CONDITIONS = {"InProgress": "PodResizeInProgress", "Infeasible": "PodResizePending"}


class Log:
    """Lines with their time; a follower gets each as it comes, until the container ends."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self._ended = False
        self._more = asyncio.Condition()

    async def write(self, text: str) -> None:
        async with self._more:
            self._append(text)
            self._more.notify_all()

    def begin(self, text: str) -> None:
        self._append(text)

    def end(self, text: str) -> None:
        self._append(text)
        self._ended = True
        asyncio.get_running_loop().create_task(self._wake())

    def _append(self, text: str) -> None:
        self.lines.append((datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z"), text))

    async def _wake(self) -> None:
        async with self._more:
            self._more.notify_all()

    async def read(self, tail: int | None, follow: bool) -> AsyncIterator[tuple[str, str]]:
        at = 0 if tail is None else max(len(self.lines) - tail, 0)
        while True:
            while at < len(self.lines):
                yield self.lines[at]
                at += 1
            if not follow or self._ended:
                return
            async with self._more:
                await self._more.wait_for(lambda: at < len(self.lines) or self._ended)  # noqa: B023


class Container:
    def __init__(self, spec: Document) -> None:
        self.name: str = spec["name"]
        self.image: str = spec["image"]
        self.command: list[str] = (spec.get("command") or []) + (spec.get("args") or [])
        self.allocated: Document = copy.deepcopy(spec.get("resources") or {})
        self.actual: Document = copy.deepcopy(self.allocated)
        self.log = Log()
        self.previous_log: Log | None = None
        self.started_at = ""
        self.ended: Document | None = None
        self.last_end: Document | None = None
        self.restarts = 0

    def start(self, stamp: str) -> None:
        self.started_at = stamp
        self.ended = None
        self.log.begin(f"{self.name} started, attempt {self.restarts}")

    def stop(self, stamp: str, code: int) -> None:
        if self.ended is not None or not self.started_at:
            return
        self.log.end(f"{self.name} ended with {code}")
        self.ended = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "startedAt": self.started_at,
            "finishedAt": stamp,
            "containerID": self.id,
        }

    def restart(self, stamp: str, code: int) -> None:
        self.stop(stamp, code)
        self.last_end, self.previous_log = self.ended, self.log
        self.log = Log()
        self.restarts += 1
        self.start(stamp)

    @property
    def id(self) -> str:
        return "fake://" + hashlib.sha256(f"{self.name} {self.restarts}".encode()).hexdigest()

    def must_restart(self, pod: Document) -> bool:
        """Whether a resource that changes has RestartContainer (03 §3.1)."""
        (spec,) = (each for each in pod["spec"]["containers"] if each["name"] == self.name)
        policies = {each["resourceName"]: each["restartPolicy"] for each in spec.get("resizePolicy") or ()}
        return any(
            policies.get(name) == "RestartContainer"
            and (self.allocated.get(kind) or {}).get(name) != (self.actual.get(kind) or {}).get(name)
            for kind in ("requests", "limits")
            for name in ("cpu", "memory")
        )

    def status(self) -> Document:
        running = {"running": {"startedAt": self.started_at}}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "containerID": self.id,
            "ready": self.ended is None,
            "started": self.ended is None,
            "restartCount": self.restarts,
            "state": running if self.ended is None else {"terminated": self.ended},
            "lastState": {} if self.last_end is None else {"terminated": self.last_end},
            "allocatedResources": self.allocated.get("requests") or {},
            "resources": self.actual,
        }


class FakePod:
    def __init__(self, pod: Document, wake: asyncio.Event) -> None:
        self.policy: str = pod["spec"]["restartPolicy"]
        self.containers = {each["name"]: Container(each) for each in pod["spec"]["containers"]}
        self.verdict = ""  # of a resize: InProgress, Infeasible
        self.verdict_since = ""
        self.reported: Document = {}
        self.wake = wake

    def run_commands(self, stamp: str) -> None:
        for each in self.containers.values():
            if not each.started_at:
                each.start(stamp)
                if each.command in (["true"], ["false"]):
                    each.stop(stamp, int(each.command == ["false"]))

    def kill(self, name: str, stamp: str) -> None:
        each = self.containers[name]
        if self.policy == "Never":
            each.stop(stamp, 143)
        else:
            each.restart(stamp, 143)
        self.wake.set()

    @property
    def has_started(self) -> bool:
        return all(each.started_at for each in self.containers.values())

    @property
    def phase(self) -> str:
        ends = [each.ended for each in self.containers.values()]
        if None in ends:
            return "Running"
        return "Failed" if any(each["exitCode"] for each in ends if each) else "Succeeded"


def pod_status(pod: Document, played: FakePod, profile: Profile) -> Document:
    """A patch of the status, complete in what the node has to say."""
    phase, containers = played.phase, played.containers.values()
    since = max(each.started_at for each in containers)
    is_ready = str(phase == "Running")
    conditions: list[Document] = [
        {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        for kind, status in (("Initialized", "True"), ("Ready", is_ready), ("ContainersReady", is_ready))
    ]
    for verdict, kind in _RESIZE_CONDITIONS.items():
        if played.verdict != verdict:
            conditions.append({"type": kind, "$patch": "delete"})
            continue
        found = {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": played.verdict_since}
        if verdict == "Infeasible":
            found |= {"reason": verdict, "message": "Node didn't have enough capacity: cpu"}
        conditions.append(found)
    status: Document = {
        "phase": phase,
        "conditions": conditions,
        "hostIP": "127.0.0.1",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "startTime": min(each.started_at for each in containers),
        "containerStatuses": [each.status() for each in containers],
    }
    if profile.resize_status_field:
        status["resize"] = played.verdict or None
    else:
        status["observedGeneration"] = pod["metadata"]["generation"]
    return status
