"""Random lives of a real node on a real kernel: pods come, grow, shrink, crash and go, memory is in use or runs short, and
the agent is killed. It is what `tests/unit/node/resize/test_resize_model.py` does in memory, with nothing simulated.

Two things must hold (03 §6, §10). The node never allocates more than it has. And when all is quiet, every control file of
the kernel is the same as on a second node that has only seen the pods in their final state.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.engine.observe import every_file, walk
from plimsoll.linux.files.append_log import AppendLog
from plimsoll.rules.quantity import Quantity, from_milli, parse
from tests.kernel.pressure_node import EATER, MIB, PressureNode, container, eater, pod, pressure_node

CAPACITY_MIB = 768
SETTINGS = {"evictionHard": {"memory.available": "64Mi"}, "evictionPressureTransitionPeriod": "1s"}
QUIET_S, STILL_S = 60.0, 1.0
FRESH_S = 5.0
FULL_S = 10.0
HOGS = 2  # in one life
PODS = "/api/v1/namespaces/default/pods"
JOINING = "import os, sys\nopen(sys.argv[3], 'w').write(str(os.getpid()))\n" + EATER
Document = dict[str, Any]

cpus = st.sampled_from(["50m", "500m", "1", "2", "3", "5"])
memories = st.sampled_from([16, 32, 64, 128, 256])
sizes = st.tuples(cpus, memories)
Size = tuple[str, int]
Step = tuple[Callable[..., None], tuple[Any, ...]]
policies = st.sampled_from(["NotRequired", "RestartContainer"])
factors = st.sampled_from([1, 2])


def resources(size: Size, factor: int) -> Document:
    """`factor` 1: Guaranteed; 2: Burstable, limits being twice the requests."""
    cpu, memory = size
    limits = {"cpu": str(from_milli(parse(cpu).milli * factor)), "memory": f"{memory * factor}Mi"}
    return {"requests": {"cpu": cpu, "memory": f"{memory}Mi"}, "limits": limits}


class DrawnLife(RuleBasedStateMachine):
    """Only draws the steps. They are run afterwards, since the draws must not depend on a real machine."""

    names = Bundle("names")
    number = 0  # of the pods of all lives

    def __init__(self, live: Callable[[list[Step]], None]) -> None:
        super().__init__()
        self._live = live
        self.steps: list[Step] = []
        self.sizes: dict[str, tuple[int, int]] = {}  # pod → factor, containers
        self.hogs = 0

    @initialize(target=names, drawn=st.tuples(*[st.tuples(factors, sizes, policies)] * 2))
    def begin(self, drawn: tuple[tuple[int, Size, str], ...]) -> MultipleResults[str]:
        """A life without pods shows nothing."""
        return multiple(*(self._created(factor, [size], policy) for factor, size, policy in drawn))

    @rule(target=names, factor=factors, wanted=st.lists(sizes, min_size=1, max_size=3), policy=policies)
    def create(self, factor: int, wanted: list[Size], policy: str) -> str:
        return self._created(factor, wanted, policy)

    def _created(self, factor: int, wanted: list[Size], policy: str) -> str:
        name = self._name("p")
        self.sizes[name] = (factor, len(wanted))
        self._then(NodeLife.create, name, [resources(size, factor) for size in wanted], policy)
        return name

    @rule(name=names, wanted=st.lists(sizes, min_size=3, max_size=3))
    def resize(self, name: str, wanted: list[Size]) -> None:
        factor, count = self.sizes[name]
        self._then(NodeLife.resize, name, [resources(size, factor) for size in wanted[:count]])

    @precondition(lambda self: len(self.sizes) > 1)
    @rule(name=consumes(names))
    def delete(self, name: str) -> None:
        del self.sizes[name]
        self._then(NodeLife.delete, name)

    @rule()
    def kill_the_agent(self) -> None:
        self._then(NodeLife.kill_the_agent)

    @precondition(lambda self: self.sizes)
    @rule(number=st.integers(0, 20))
    def crash(self, number: int) -> None:
        self._then(NodeLife.crash, number)

    @precondition(lambda self: self.sizes)
    @rule(number=st.integers(0, 20), used=st.integers(100, 900))
    def use_memory(self, number: int, used: int) -> None:
        self._then(NodeLife.use_memory, number, used)

    @precondition(lambda self: self.hogs < HOGS)
    @rule(mib=st.sampled_from([200, CAPACITY_MIB]))
    def run_short(self, mib: int) -> None:
        self.hogs += 1
        self._then(NodeLife.run_short, self._name("hog"), mib)

    @rule(pause_s=st.sampled_from([0.005, 0.05, 0.3]))
    def go_on(self, pause_s: float) -> None:
        self._then(NodeLife.go_on, pause_s)

    def teardown(self) -> None:
        self._live(self.steps)

    def _then(self, what: Callable[..., None], *words: Any) -> None:
        self.steps.append((what, words))

    @staticmethod
    def _name(kind: str) -> str:
        DrawnLife.number += 1
        return f"{kind}{DrawnLife.number}"


class NodeLife:
    """`other` is the node with which the first one is compared at the end of each life; both are empty again then."""

    def __init__(self, node: PressureNode, other: PressureNode) -> None:
        self.node, self.other = node, other
        self.eaters: list[subprocess.Popen[bytes]] = []
        self.hogs: list[str] = []
        self.allocatable: dict[str, str] = node.node_document()["status"]["allocatable"]
        self.counts: dict[str, int] = {}

    def live(self, steps: list[Step]) -> None:
        """Raises where something does not hold, with all that had happened."""
        happened: list[str] = []
        try:
            for what, words in steps:
                happened.append(f"{what.__name__} {words}")
                what(self, *words)
                self.never_more_than_there_is()
            self.like_a_fresh_one()
        except (AssertionError, OSError) as problem:
            raise AssertionError("\n".join([*happened, repr(problem), str(problem)])) from problem
        finally:
            self.hogs = []
            self._end_eaters()
            self.node.empty()
            self.other.empty()

    # --- what happens ---

    def create(self, name: str, given: list[Document], policy: str) -> None:
        containers = [
            container(
                f"c{index}",
                ["/bin/sleep", "1000000"],
                resources=each,
                resizePolicy=[{"resourceName": "memory", "restartPolicy": policy}],
            )
            for index, each in enumerate(given)
        ]
        self.node.create(pod(name, *containers, terminationGracePeriodSeconds=0))

    def resize(self, name: str, given: list[Document]) -> None:
        changed = [{"name": f"c{index}", "resources": each} for index, each in enumerate(given)]
        path = f"{PODS}/{name}" + ("" if self.node.profile == "documents" else "/resize")
        code, said = self.node.ask.answer("PATCH", path, {"spec": {"containers": changed}})
        assert code == 200 or (self.node.profile == "1.36" and code == 403), said  # larger than the node

    def delete(self, name: str) -> None:
        self.node.ask("DELETE", f"{PODS}/{name}")

    def kill_the_agent(self) -> None:
        self.node.kill_node()
        self.node.start_again()

    def crash(self, number: int) -> None:
        """One process of a container, if any runs."""
        pids = [pid for _, procs in self._containers() for pid in _pids(procs)]
        if pids:
            _killed(pids[number % len(pids)])

    def use_memory(self, number: int, used: int) -> None:
        """So much of its limit, in thousandths: what is lowered below that has to wait."""
        found = self._containers()
        if not found:
            return
        limit, procs = found[number % len(found)]
        command = ["/usr/bin/python3", "-S", "-I", "-c", JOINING, str(limit * used // 1000 // MIB), "0", str(procs)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.eaters.append(process)
        assert process.stdout is not None
        said, deadline = b"", time.monotonic() + FULL_S
        while b"full" not in said and select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            more = os.read(process.stdout.fileno(), 1024)
            if not more:  # its container has gone
                break
            said += more

    def run_short(self, name: str, mib: int) -> None:
        """A pod that promises nothing takes a good part of the node, or more than there is: it is evicted then."""
        self.hogs.append(name)
        self.node.create(pod(name, container("c", eater(mib, 400.0)), terminationGracePeriodSeconds=0))

    def go_on(self, pause_s: float) -> None:
        time.sleep(pause_s)  # what happens next comes sooner or later after what happened last

    # --- what must hold ---

    def never_more_than_there_is(self) -> None:
        total = {"cpu": parse("0"), "memory": parse("0")}
        for record in self._records():
            for given in record["allocation"]["containers"].values():
                total = {name: amount + _amount(given, name) for name, amount in total.items()}
        assert all(amount <= parse(self.allocatable[name]) for name, amount in total.items()), total

    def like_a_fresh_one(self) -> None:
        self._end_eaters()
        for name in self.hogs:  # one that takes more than there is never comes to rest
            self.delete(name)
        found = self._quiet()
        self._make_fresh(found)
        deadline = time.monotonic() + FRESH_S  # sums above the pods, and containers' names, may come a moment later
        while differing := _differing(self._files(self.node), self._files(self.other)):
            assert time.monotonic() < deadline, f"what is there, and what a fresh node has: {differing}"
            time.sleep(0.05)
        self.counts["lives"] = self.counts.get("lives", 0) + 1
        self.counts["pods"] = self.counts.get("pods", 0) + len(found)

    def _quiet(self) -> list[Document]:
        """The pods, as soon as nothing has changed for a while that was not as it should be."""
        deadline, still_since = time.monotonic() + QUIET_S, time.monotonic()
        before: list[Document] = []
        while True:
            found = self.node.pods()
            noise = self._noise(found)
            if noise or found != before:
                before, still_since = found, time.monotonic()
            elif time.monotonic() > still_since + STILL_S:
                return [each for each in found if each["status"].get("phase") != "Failed"]
            assert time.monotonic() < deadline, f"not quiet: {noise}\n{self.node.diagnosis()}"
            time.sleep(0.05)

    def _noise(self, found: list[Document]) -> str:
        """What is still going on, or not as it should be in the end."""
        for each in found:
            name, status = each["metadata"]["name"], each["status"]
            if "deletionTimestamp" in each["metadata"]:
                return f"{name} is to go"
            if status.get("phase") == "Failed":  # there was no room for it, or it was evicted
                continue
            types = {condition["type"] for condition in status.get("conditions", ())}
            shown = {one["name"]: one for one in status.get("containerStatuses", ())}
            is_pending = "PodResizePending" in types or status.get("resize") in ("Deferred", "Infeasible")
            if "PodResizeInProgress" in types or status.get("resize") in ("Proposed", "InProgress"):
                return f"{name} is being resized"
            wanted = {one["name"]: one.get("resources", {}) for one in each["spec"]["containers"]}
            if any(not shown.get(key, {}).get("state", {}).get("running") for key in wanted):
                return f"{name} does not run"
            if is_pending == all(shown[key].get("resources", {}) == size for key, size in wanted.items()):
                return f"{name}: {wanted} is wanted, {shown} is shown"
        uids = {each["metadata"]["uid"] for each in found if each["status"].get("phase") != "Failed"}
        there = {path.name.removeprefix("pod") for path in self.node.pod_cgroups()}
        return "" if there == uids else f"there are cgroups of {there}, and pods {uids}"

    def _make_fresh(self, found: list[Document]) -> None:
        """On the other node: these pods only, each as large as is allocated to it."""
        for each in found:
            given = {one["name"]: one for one in each["status"]["containerStatuses"]}
            containers = [
                {**one, "resources": given[one["name"]].get("resources", {}), "volumeMounts": []}
                for one in each["spec"]["containers"]
            ]
            self.other.create(pod(each["metadata"]["name"], *containers, terminationGracePeriodSeconds=0))
        if found:
            self.other.running(*(each["metadata"]["name"] for each in found))

    @staticmethod
    def _files(node: PressureNode) -> dict[str, dict[str, str]]:
        """Of every cgroup, by what people call it."""
        driver, found = open_cgroupfs(this_host()), {}
        called = {}
        for each in node.pods():
            called[f"pod{each['metadata']['uid']}"] = each["metadata"]["name"]
            for one in each["status"].get("containerStatuses", ()):
                if one.get("containerID"):
                    called[one["containerID"].removeprefix("plimsoll://")] = one["name"]
        for path in walk(driver, node.cgroup_root):
            seen = driver.read(path, every_file(driver.version))
            words = path.removeprefix(node.cgroup_root).split("/")
            if seen is not None:
                found["/".join(called.get(word, word) for word in words)] = dict(seen.files)
        return found

    # --- reads ---

    def _records(self) -> Iterator[Document]:
        """The agent's checkpoint of pods that have not ended; a pod that is being deleted counts until it has ended."""
        try:
            kept = AppendLog(self.node.state / "node" / "agent.jsonl").read()
        except FileNotFoundError:
            return
        alive = {
            each["metadata"]["uid"]
            for each in self.node.pods()
            if each["status"].get("phase") not in ("Failed", "Succeeded")
        }
        for uid, text in kept.items():
            record = json.loads(text)
            if uid in alive and "verdict" not in record and record.get("allocation"):
                yield record

    def _containers(self) -> list[tuple[int, Path]]:
        """The memory limit of each that has one, and where its processes are named; those of hogs are skipped."""
        limit = "memory.max" if this_host().version == 2 else "memory.limit_in_bytes"
        found = []
        for place in self.node.pod_cgroups():
            if place.parent.name == "besteffort":
                continue
            for path in _below(place):
                text = _text(path / limit)
                if text not in ("", "max") and int(text) < CAPACITY_MIB * MIB:
                    found.append((int(text), path / "cgroup.procs"))
        return found

    def _end_eaters(self) -> None:
        for process in self.eaters:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self.eaters = []


def _differing(have: dict[str, dict[str, str]], want: dict[str, dict[str, str]]) -> Document:
    """cgroup → file → its value on the one node and on the other."""
    found: Document = {}
    for path in have.keys() | want.keys():
        one, other = have.get(path, {}), want.get(path, {})
        files = {name: (one.get(name), other.get(name)) for name in one.keys() | other.keys()}
        if files := {name: both for name, both in files.items() if both[0] != both[1]}:
            found[path] = files
    return found


def _amount(given: Document, name: str) -> Quantity:
    return parse(given.get("requests", {}).get(name, "0"))


def _below(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except OSError:  # it has gone
        return []


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # it has gone
        return ""


def _pids(procs: Path) -> list[int]:
    return [int(word) for word in _text(procs).split()]


def _killed(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def two_nodes(directory: Path, profile: str) -> Iterator[tuple[PressureNode, PressureNode]]:
    with (
        pressure_node(directory / "one", SETTINGS, profile=profile, capacity_mib=CAPACITY_MIB) as node,
        pressure_node(directory / "other", SETTINGS, profile=profile, capacity_mib=CAPACITY_MIB) as other,
    ):
        yield node, other


def run(directory: Path, profile: str, lives: int, steps: int, number: int | None = None) -> dict[str, int]:
    """Raises where something does not hold; else counts. Without a number (a seed) the lives are always the same."""
    chosen = settings(
        max_examples=lives,
        stateful_step_count=steps,
        deadline=None,
        derandomize=number is None,
        database=None,
        phases=[Phase.generate],  # on a real machine no life is lived twice: a shorter one proves nothing
        suppress_health_check=list(HealthCheck),
    )
    with two_nodes(directory, profile) as (node, other):
        life = NodeLife(node, other)

        def begin() -> DrawnLife:
            return DrawnLife(life.live)

        run_state_machine_as_test(begin if number is None else seed(number)(begin), settings=chosen)
    return life.counts
