"""A whole node and what every node must do, on whatever kernel and driver it is run: `python -m …node_story DIR`.

A real API server and a real agent, both started here; pods that run, answer requests, fail their probes, run out of
memory, crash, connect to each other, end gracefully, and those of the documents. Two parts at a time: each waits for what its
own pods do, and removes them afterwards. What went wrong is printed as JSON, with the times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from plimsoll.kube.request import Request, UnreachableError
from plimsoll.linux.cgroup_files import CgroupError
from tests.e2e.real_node import ROOT, RealNode, real_node

PODS = "/api/v1/namespaces/default/pods"
WAIT_S = 150.0
MIB = 1 << 20
HANDLES_TERM = "trap 'exit 0' TERM; echo up; while :; do sleep 0.2; done"
Document = dict[str, Any]


class Place:
    """One part's view of the node, with the pods that it has made."""

    def __init__(self, node: RealNode, transport: HttpTransport, programs: asyncio.Semaphore) -> None:
        self.node, self.transport, self._programs = node, transport, programs
        self.made: list[str] = []

    async def create(self, document: Document) -> str:
        body = json.dumps(document).encode()
        answer = await self.transport.send(Request("POST", PODS, body, "application/json"))
        assert answer.status == 201, answer
        self.made.append(document["metadata"]["name"])
        uid: str = msgspec.json.decode(answer.body)["metadata"]["uid"]
        return uid

    async def cleared(self) -> None:
        for name in self.made:
            await self.transport.send(Request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=1"))
        for name in self.made:
            await until(lambda name=name: self.status(name), lambda found: not found)  # type: ignore[misc]

    async def status(self, name: str) -> Document:
        answer = await self.transport.send(Request("GET", f"{PODS}/{name}"))
        if answer.status == 404:
            return {}
        status: Document = msgspec.json.decode(answer.body).get("status", {})
        return status

    async def container(self, pod: str, name: str) -> Document:
        every = (await self.status(pod)).get("containerStatuses", [])
        return next((each for each in every if each["name"] == name), {})

    async def running(self, name: str) -> Document:
        def ready(status: Document) -> bool:
            every = status.get("containerStatuses", [])
            return bool(every) and all(each.get("ready") for each in every)

        return await until(lambda: self.status(name), ready)

    async def log(self, pod: str, container: str) -> str:
        answer = await self.transport.send(Request("GET", f"{PODS}/{pod}/log?container={container}"))
        return answer.body.decode()

    async def events(self, pod: str) -> list[Document]:
        path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{pod}"
        answer = await self.transport.send(Request("GET", path))
        items: list[Document] = msgspec.json.decode(answer.body)["items"]
        return items

    async def verb(self, *words: str) -> tuple[int, str]:
        """`plimsoll` as a client of the node."""
        program = str(Path(sys.executable).with_name("plimsoll"))
        command = [program, *words]
        async with self._programs:
            done = await asyncio.to_thread(
                subprocess.run,
                command,
                capture_output=True,
                text=True,
                env={"KUBECONFIG": str(self.node.kubeconfig), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
                cwd=ROOT,
                timeout=WAIT_S,
                check=False,
            )
        return done.returncode, done.stdout + done.stderr


async def until(read: Callable[[], Awaitable[Any]], true: Callable[[Any], Any] = bool) -> Any:
    deadline = time.monotonic() + WAIT_S
    while True:
        found = None
        try:
            found = await read()
            if true(found):
                return found
        except (UnreachableError, TimeoutError):  # a guest may take longer than a client's timeout
            pass
        assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {found!r}"
        await asyncio.sleep(0.2)


def pod(name: str, *containers: Document, **spec: Any) -> Document:
    spec = {"terminationGracePeriodSeconds": 5, **spec, "containers": list(containers)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def shell(name: str, script: str, **more: Any) -> Document:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", script], **more}


def limits(memory: str, cpu: str = "500m") -> Document:
    return {"resources": {"limits": {"memory": memory, "cpu": cpu}}}


# --- what a node must do ---


async def runs_under_limits_speaks_and_goes(place: Place) -> None:
    uid = await place.create(pod("plain", shell("c", HANDLES_TERM, **limits("64Mi"))))
    status = await place.running("plain")
    assert (status["phase"], status["qosClass"]) == ("Running", "Guaranteed"), status
    container_id = status["containerStatuses"][0]["containerID"].removeprefix("plimsoll://")
    mark = uid.replace("-", "_") if "systemd" in place.node.node_options else uid
    (path,) = [each for each in place.node.memory_cgroups() if mark in each and container_id in each]
    directory = place.node.memory_root / path
    limit = next(file for file in (directory / "memory.max", directory / "memory.limit_in_bytes") if file.exists())
    assert int(limit.read_text()) == 64 * MIB, limit.read_text()
    assert (directory / "cgroup.procs").read_text().split(), "no process is in the container's cgroup"
    assert await until(lambda: place.log("plain", "c")) == "up\n"
    assert await place.verb("logs", "plain") == (0, "up\n")
    code, said = await place.verb("exec", "plain", "--", "sh", "-c", "echo $((6*7)); exit 3")
    assert (code, said.splitlines()[:1]) == (3, ["42"]), (code, said)
    await place.transport.send(Request("DELETE", f"{PODS}/plain"))
    await until(lambda: place.status("plain"), lambda found: not found)
    assert not [each for each in place.node.memory_cgroups() if mark in each]

    async def reasons() -> set[str]:
        return {each["reason"] for each in await place.events("plain")}

    await until(reasons, lambda found: {"Created", "Started", "Killing"} <= found)


# An exec in a guest of one CPU takes its time.
SLOW = {"timeoutSeconds": 10}


async def a_failed_probe_restarts_the_container(place: Place) -> None:
    script = "touch /tmp/well; sleep 4; rm /tmp/well; exec sleep 1000"
    probe: Document = {"exec": {"command": ["test", "-f", "/tmp/well"]}, "initialDelaySeconds": 1, **SLOW}
    probe |= {"periodSeconds": 1, "failureThreshold": 1}
    sick = shell("c", script, livenessProbe=probe, **limits("32Mi"))
    await place.create(pod("sick", sick, shell("well", HANDLES_TERM), terminationGracePeriodSeconds=1))
    found = await until(lambda: place.container("sick", "c"), lambda each: each.get("restartCount"))
    assert found["lastState"]["terminated"]["exitCode"] == 137, found
    assert (await place.container("sick", "well"))["restartCount"] == 0

    async def messages() -> list[str]:
        return [each["message"] for each in await place.events("sick")]

    await until(messages, lambda found: any("failed liveness probe, will be restarted" in each for each in found))


async def out_of_memory_restarts_that_container_alone(place: Place) -> None:
    hog = "sleep 1; exec python3 -c 'bytearray(100 << 20)'"
    await place.create(pod("hungry", shell("hog", hog, **limits("24Mi")), shell("calm", HANDLES_TERM)))

    def hit(found: Document) -> bool:
        last = found.get("lastState", {}).get("terminated", {})
        return bool(found.get("restartCount")) and last.get("reason") == "OOMKilled"

    found = await until(lambda: place.container("hungry", "hog"), hit)
    assert found["lastState"]["terminated"]["exitCode"] == 137, found
    assert (await place.container("hungry", "calm"))["restartCount"] == 0
    assert (await place.status("hungry"))["phase"] == "Running"


async def crashes_wait(place: Place) -> None:
    await place.create(pod("crash", shell("c", "exit 3")))

    def waits(found: Document) -> bool:
        waiting = found.get("state", {}).get("waiting", {})
        return waiting.get("reason") == "CrashLoopBackOff" and int(found["restartCount"]) >= 2

    found = await until(lambda: place.container("crash", "c"), waits)
    assert found["lastState"]["terminated"]["exitCode"] == 3, found
    assert "back-off 2s restarting failed container=c" in found["state"]["waiting"]["message"], found
    await until(lambda: place.events("crash"), lambda events: any(each["reason"] == "BackOff" for each in events))


async def containers_talk_over_localhost(place: Place) -> None:
    web: Document = {"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}
    web |= {"readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1, **SLOW}, **limits("64Mi")}
    ask = "import urllib.request as u, time\nfor _ in range(300):\n try:\n  print(u.urlopen('http://localhost').status, flush=True); break\n except OSError: time.sleep(0.2)\n"
    client = {"name": "client", "image": "busybox", "command": ["sh", "-c", 'python3 -c "$0"; exec sleep 1000', ask]}
    await place.create(pod("talk", web, client))
    await place.running("talk")
    assert await until(lambda: place.log("talk", "client")) == "200\n"


async def ends_politely(place: Place) -> None:
    script = "trap 'cat /tmp/hook > /dev/termination-log; exit 5' TERM; echo up; while :; do sleep 0.2; done"
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo ran > /tmp/hook"]}}}}
    document = pod("polite", shell("c", script, **hook, **limits("32Mi")), terminationGracePeriodSeconds=60)
    document["metadata"]["finalizers"] = ["plimsoll.dev/read-first"]  # so that its end can be read
    await place.create(document)
    await until(lambda: place.log("polite", "c"), lambda text: text == "up\n")
    await place.transport.send(Request("DELETE", f"{PODS}/polite"))
    found = await until(lambda: place.container("polite", "c"), lambda each: each["state"].get("terminated"))
    ended = found["state"]["terminated"]
    assert (ended["exitCode"], ended["message"], ended["reason"]) == (5, "ran\n", "Error"), ended
    patch = json.dumps({"metadata": {"finalizers": None}}).encode()
    await place.transport.send(Request("PATCH", f"{PODS}/polite", patch, "application/merge-patch+json"))
    await until(lambda: place.status("polite"), lambda status: not status)


async def pods_of_the_documents_run(place: Place) -> None:
    names = {"000-example": "example", "002-qos-demo": "qos-demo", "003-demo": "demo", "004-busybox": "busybox"}
    code, said = await place.verb("apply", *(f"-fexamples/documents/{each}.yaml" for each in names))
    assert code == 0, said
    place.made += names.values()
    for name in names.values():
        status = await place.running(name)
        assert (status["phase"], status["containerStatuses"][0]["restartCount"]) == ("Running", 0), status


PARTS = (
    runs_under_limits_speaks_and_goes,
    a_failed_probe_restarts_the_container,
    out_of_memory_restarts_that_container_alone,
    crashes_wait,
    containers_talk_over_localhost,
    ends_politely,
    pods_of_the_documents_run,
)


async def story(node: RealNode) -> dict[str, Any]:
    transport = HttpTransport(load(node.kubeconfig))
    programs = asyncio.Semaphore(1)  # one CPU: programs beside each other only take longer
    took: dict[str, float] = {}
    faults: dict[str, str] = {}

    two = asyncio.Semaphore(2)

    async def one(part: Callable[[Place], Awaitable[None]]) -> None:
        async with two:
            begun = time.monotonic()
            own = Place(node, transport, programs)
            try:
                await part(own)
                await own.cleared()
            except (AssertionError, CgroupError, OSError, ValueError, KeyError) as error:
                faults[part.__name__] = f"{type(error).__name__}: {error}"
            took[part.__name__] = round(time.monotonic() - begun, 1)

    await asyncio.gather(*map(one, PARTS))
    await transport.close()
    return {"seconds": took, "faults": faults}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--driver", choices=("cgroupfs", "systemd"), default="cgroupfs")
    parser.add_argument("--cgroup-root", default="")
    asked = parser.parse_args()
    options = ("--driver", asked.driver, "--capacity", "cpu=8,memory=4Gi,pods=110")
    with real_node(asked.directory / "cluster", options=options, cgroup_root=asked.cgroup_root) as node:
        answer = asyncio.run(story(node))
        if answer["faults"]:
            answer["log"] = (node.directory / "node.log").read_text()[-6000:]
    print(json.dumps(answer))
    return 1 if answer["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
