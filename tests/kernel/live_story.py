"""What a dashboard receives about a node, compared with the kernel's files: `python -m …live_story DIR`.

A real API server and a real agent with Memory QoS; a Burstable pod, which is resized, and one that the kernel kills. The
JSON of the views has the very figures that the browser draws. What went wrong is printed as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from plimsoll.kube.request import Request
from tests.e2e.real_node import NODE, RealNode, real_node
from tests.kernel.node_story import MIB, PODS, Document, Place, pod, shell, until

HOLDS = "kept=$(head -c 9000000 /dev/zero | tr '\\0' x); echo up; while :; do sleep 1; done"
GREEDY = "while :; do kept=$kept$kept$(head -c 1000000 /dev/zero | tr '\\0' x); done"
LINES = {"max": "memory.max", "high": "memory.high", "low": "memory.low", "min": "memory.min"}


async def view(place: Place, name: str, query: str = "") -> Any:
    answer = await place.transport.send(Request("GET", f"/dashboard/api/views/{name}?node={NODE}{query}"))
    assert answer.status == 200, answer
    return msgspec.json.decode(answer.body)


def in_kernel(directory: Path) -> dict[str, int]:
    """The files of cgroup v2; −1 is `max`."""
    texts = {name: (directory / file).read_text().strip() for name, file in LINES.items()}
    stat = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
    found = {name: -1 if text == "max" else int(text) for name, text in texts.items()}
    kinds = {"anon": "anon", "shmem": "shmem", "activeFile": "active_file", "inactiveFile": "inactive_file"}
    return {**found, **{name: int(stat[key]) for name, key in kinds.items()}}


async def shows_the_kernel(place: Place) -> None:
    resources = {"requests": {"cpu": "50m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}}
    await place.create(pod("steady", shell("app", HOLDS, resources=resources)))
    await until(lambda: place.log("steady", "app"), lambda text: text == "up\n")

    async def compared(level: str) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Before, shown, after: a reading between two equal ones of the kernel is of the same moment."""
        vessels = (await view(place, "hull"))["vessels"]
        found = [each for each in vessels if each["level"] == level and each["pod"] == "steady" and each["figures"]]
        if not found:
            return {}, {"not yet": 1}, {}
        directory = Path(f"/sys/fs/cgroup{found[0]['path']}")
        before = in_kernel(directory)
        vessels = (await view(place, "hull"))["vessels"]
        (shown,) = (each["figures"] for each in vessels if each["path"] == found[0]["path"])
        return before, {name: shown[name] for name in before}, in_kernel(directory)

    def same(found: tuple[dict[str, int], ...]) -> bool:
        return found[0] == found[1] == found[2]

    for level in ("container", "pod"):
        before, _, _ = await until(lambda level=level: compared(level), same)
        assert before["max"] == 32 * MIB and before["min"] == 16 * MIB and before["anon"] > 8 * MIB, (level, before)
        # 02 §4: request + 0.9 · (limit − request), in whole pages
        expected = (16 * MIB + 9 * 16 * MIB // 10) // 4096 * 4096
        assert before["high"] == (expected if level == "container" else -1), (level, before)
    # The declared lines have their formulas and sources beside them.
    vessels = (await view(place, "hull"))["vessels"]
    (container,) = (each for each in vessels if each["level"] == "container" and each["pod"] == "steady")
    (high,) = (line for line in container["lines"] if line["name"] == "high" and not line.get("of"))
    assert high["declaredBytes"] == expected and "0.9" in high["formula"], high

    larger = {"requests": {"memory": "24Mi"}, "limits": {"memory": "48Mi"}}  # only a new request is Proposed
    change = {"spec": {"containers": [{"name": "app", "resources": larger}]}}
    path, kind = f"{PODS}/steady", "application/strategic-merge-patch+json"
    answer = await place.transport.send(Request("PATCH", path, json.dumps(change).encode(), kind))
    assert answer.status == 200, answer
    await until(lambda: compared("container"), lambda found: same(found) and found[1]["max"] == 48 * MIB)
    seen = await until(lambda: view(place, "pod", "&pod=steady"), lambda found: _states(found)[-1:] == [""])
    assert _states(seen)[3:] == ["Proposed", "InProgress", ""], seen["marks"]


def _states(found: Document) -> list[str]:
    steps = sorted((each["step"] for each in found["marks"] if each.get("step")), key=lambda step: int(step["number"]))
    return [step["state"] for step in steps] if len(steps) > 3 else ["-"]


async def marks_an_oom_kill(place: Place) -> None:
    resources = {"requests": {"memory": "8Mi"}, "limits": {"memory": "12Mi"}}
    await place.create(pod("greedy", shell("app", GREEDY, resources=resources), restartPolicy="Never"))
    marked = await until(
        lambda: view(place, "hull"),
        lambda found: [each for each in found["marks"] if each["kind"] == "oom" and each["pod"] == "greedy"],
    )
    assert marked


async def story(node: RealNode) -> dict[str, str]:
    transport = HttpTransport(load(node.kubeconfig))
    faults: dict[str, str] = {}
    for part in (shows_the_kernel, marks_an_oom_kill):
        place = Place(node, transport, asyncio.Semaphore(1))
        try:
            await part(place)
            await place.cleared()
        except (AssertionError, OSError, ValueError, KeyError) as error:
            faults[part.__name__] = f"{type(error).__name__}: {error}"
    await transport.close()
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--driver", choices=("cgroupfs", "systemd"), default="cgroupfs")
    asked = parser.parse_args()
    options = ("--driver", asked.driver, "--capacity", "cpu=8,memory=4Gi,pods=110", "--feature-gates", "MemoryQoS=true")
    with real_node(asked.directory / "cluster", options=options, cgroup_root="/plimsolltest") as node:
        faults = asyncio.run(story(node))
        log = (node.directory / "node.log").read_text()[-6000:] if faults else ""
    print(json.dumps({"faults": faults, "log": log}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
