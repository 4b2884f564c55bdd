"""The forecast of `plimsoll resize` and its outcome on a real node: requests drawn from a fixed seed (03 §4, §6).

Each request is forecast first. Then it is sent, and the server, the node and the containers must do what was said; of
a refusal, what was named as the nearest request must be taken.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.codec.lean.lean import lean_pod
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.request import ListName, change_of, chosen_container, resize_patch
from tests.e2e.api_client import ApiClient
from tests.e2e.real_node import NODE, PODS, RealNode, real_node
from tests.e2e.waiting import until
from tests.unit.console import Ran, run

REQUESTS = 24
Document = dict[str, Any]
ResizeRequest = tuple[str, str, dict[str, str], tuple[ListName, ...]]


def sized(cpu: str, memory: str, /, **limits: str) -> Document:
    requests = {name: each for name, each in (("cpu", cpu), ("memory", memory)) if each}
    return {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}


def container(name: str, size: Document, *restarting: str, **more: str) -> Document:
    policy = [{"resourceName": each, "restartPolicy": "RestartContainer"} for each in restarting]
    command = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]
    return {"name": name, "image": "i", "command": command, "resources": size, "resizePolicy": policy, **more}


def pods() -> Iterator[Document]:
    """One of each class and more; the node has 8 CPUs and 2Gi."""
    sidecar = container("side", sized("100m", "32Mi"), "memory", restartPolicy="Always")
    for name, spec in (
        ("gold", {"containers": [container("c", sized("1", "200Mi", cpu="1", memory="200Mi"))]}),
        ("silver", {"containers": [container("c", sized("500m", "100Mi"), "cpu"), container("d", {})]}),
        ("capped", {"containers": [container("c", sized("1", "100Mi", cpu="2", memory="300Mi"), "memory")]}),
        ("sided", {"containers": [container("c", sized("250m", ""))], "initContainers": [sidecar]}),
        ("bronze", {"containers": [container("c", {})]}),
        ("whole", {"containers": [container("c", sized("500m", "64Mi")), container("d", {})],
                   "resources": sized("1", "256Mi", cpu="2", memory="512Mi")}),
        ("beside", {"containers": [container("c", sized("2", "400Mi"))]}),
    ):  # fmt: skip
        bound = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, **spec}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": bound}


class ForecastCheck:
    """One node, its pods, and requests one after the other: what is pending stays so until a later request."""

    def __init__(self, node: RealNode) -> None:
        self.node, self.ask, self.seen = node, ApiClient(node.kubeconfig), Counter[str]()
        for each in pods():
            self.ask("POST", PODS, each)
        until(lambda: all(self._is_ready(each["metadata"]["name"]) for each in pods()))

    def pod(self, name: str) -> Document:
        return self.ask("GET", f"{PODS}/{name}")

    def forecast(self, wanted: ResizeRequest) -> Document:
        found: Document = json.loads(self._resize(wanted, "--dry-run").out)
        return found

    def holds(self, wanted: ResizeRequest) -> None:
        said, name = self.forecast(wanted), wanted[0]
        outcome = said["outcome"]
        self.seen[outcome] += 1
        before = self.pod(name)
        if outcome == "refused":
            self._is_refused(before, wanted, said)
            return
        ran = self._resize(wanted, "--yes", "--wait", "--timeout", "90" if outcome == "accepted" else "0.5")
        after = self.pod(name)
        assert ran.code == (0 if outcome in ("accepted", "unchanged") else 1), (said, ran)
        assert _verdict(after) == (outcome if outcome in ("deferred", "infeasible") else ""), (said, after["status"])
        restarts = said.get("restarts", ()) if outcome == "accepted" else ()
        assert _restarted(before, after) == set(restarts), (said, ran, after["status"])

    def _is_refused(self, before: Document, wanted: ResizeRequest, said: Document) -> None:
        name, chosen, amounts, kinds = wanted
        pod = lean_pod(before)
        quantities = {each: parse(text) for each, text in amounts.items()}
        patch = resize_patch(pod, chosen, change_of(chosen_container(pod, chosen), quantities, kinds))
        code, found = self._tried(name, patch)
        assert code in (403, 422), (said, found)
        if "nearest" in said:
            code, found = self._tried(name, said["nearest"])
            assert code == 200, (said, found)
        self.seen["nearest"] += "nearest" in said

    def _tried(self, name: str, patch: Document) -> tuple[int, Document]:
        return self.ask.answer("PATCH", f"{PODS}/{name}/resize?dryRun=All", patch)

    def _resize(self, wanted: ResizeRequest, *more: str) -> Ran:
        name, chosen, amounts, kinds = wanted
        words = [word for each, text in amounts.items() for word in (f"--{each}", text)]
        words += [f"--{kind}-only" for kind in kinds]
        return run("resize", name, "-c", chosen, *words, *more, "-o", "json", "--kubeconfig", str(self.node.kubeconfig))

    def _is_ready(self, name: str) -> bool:
        statuses = self.pod(name)["status"].get("containerStatuses", ())
        return bool(statuses) and all(each["ready"] for each in statuses)


def _verdict(pod: Document) -> str:
    conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
    return str(conditions.get("PodResizePending", {}).get("reason", "")).lower()


def _restarted(before: Document, after: Document) -> set[str]:
    def counts(pod: Document) -> dict[str, int]:
        status = pod["status"]
        every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        return {each["name"]: each["restartCount"] for each in every}

    return {name for name, count in counts(after).items() if count != counts(before)[name]}


def requests_drawn(number: int) -> Iterator[ResizeRequest]:
    drawn = random.Random(number)
    cpus = ["0", "50m", "500m", "1", "2", "3", "5", "8", "9"]
    memories = ["0", "16Mi", "64Mi", "200Mi", "300Mi", "600Mi", "1Gi", "1500Mi", "3Gi"]
    every = [(each["metadata"]["name"], each["spec"]) for each in pods()]
    for _ in range(REQUESTS):
        name, spec = drawn.choice(every)
        chosen = drawn.choice([*spec["containers"], *spec.get("initContainers", ())])["name"]
        amounts = {"cpu": drawn.choice(cpus), "memory": drawn.choice(memories)}
        for left in drawn.choice([("cpu",), ("memory",), ()]):
            del amounts[left]
        kinds: tuple[ListName, ...] = drawn.choice([(), (), ("requests",), ("limits",)])
        yield name, chosen, amounts, kinds


@pytest.fixture(
    params=[pytest.param(each, marks=pytest.mark.xdist_group(f"forecast {each}")) for each in ("documents", "1.36")]
)
def checked(
    request: pytest.FixtureRequest, tmp_path: Path, exercised: Callable[[str, str], None]
) -> Iterator[ForecastCheck]:
    with real_node(tmp_path / "cluster", request.param) as node:
        exercised("forecast of resizes", f"this machine, profile {request.param}")
        made = ForecastCheck(node)
        yield made
        made.ask.close()


def test_the_resize_happens_as_forecast(checked: ForecastCheck) -> None:
    for wanted in requests_drawn(1):
        checked.holds(wanted)
    assert min(checked.seen[each] for each in ("accepted", "deferred", "refused", "nearest")) > 0, checked.seen


def test_who_is_in_the_way(checked: ForecastCheck) -> None:
    """Without all that are named it fits, with any of them left it does not."""
    wanted: ResizeRequest = ("beside", "c", {"cpu": "7"}, ())
    named = [each.partition("/")[2] for each in checked.forecast(wanted)["room"]["pods"]]
    assert len(named) > 1
    checked.holds(wanted)
    for name in named:
        assert _verdict(checked.pod("beside")) == "deferred"
        checked.ask("DELETE", f"{PODS}/{name}")
        until(lambda gone=name: checked.ask.answer("GET", f"{PODS}/{gone}")[0] == 404)
    until(lambda: not _verdict(checked.pod("beside")))
