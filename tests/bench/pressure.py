"""`./dev bench pressure`: from the moment in which memory runs short to the first signal, and until it is free again.

A real node of 512 MiB (this machine's kernel, or cgroup v2 in a guest with `--guest`), three quarters full; then one pod
takes memory at a given pace. What is measured, per run:

    crossing   the pods' working set passes the eviction threshold (read every half millisecond, every five in a guest)
    signal     the pod gets SIGTERM (by its own record), or its memory begins to shrink (KILL)
    free       what it had taken is free again

Beside it a real poller: the same node with its own eviction switched off, one poll every ten seconds from here, and the
pod killed at the poll that finds memory short. Its pod stops taking once it is past the threshold: else the kernel would
be first each time. The first eviction of an agent is reported separately. Goals: signal within 250 ms and
memory free within 400 ms in 99 of 100 runs (without grace), and watching memory on a node at rest costs at most 0.2 % of
a core.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from plimsoll.cgroups.drivers.detect import this_host  # noqa: E402
from tests.kernel.guest import GUEST_VARIABLE, JOB_VARIABLE, PYTHON, GuestMissingError  # noqa: E402
from tests.kernel.pressure_node import (  # noqa: E402
    MIB,
    PressureNode,
    container,
    eater,
    memory,
    pod,
    pressure_node,
)

SETTINGS = {"evictionHard": {"memory.available": "100Mi"}, "evictionPressureTransitionPeriod": "0s"}
CAPACITY_MIB, BALLAST_MIB, THRESHOLD_MIB = 512, 320, 100
POLL_S = 0.005 if GUEST_VARIABLE in os.environ else 0.0005  # a guest has one CPU, which the reader must not fill
KUBELET_POLL_S = 10.0
GRACES = {"both": (False, True), "specified": (False,), "none": (True,)}  # name → at once?
IDLE_S = 60.0
SIGNAL_GOAL_S = 0.25
GIVEN_UP_S, ASKED_EVERY_S = 60.0, 15.0
STOLEN_EVERY_S = 0.05


class Run:
    """One crossing, as seen from outside by a thread that does nothing else."""

    def __init__(self, node: PressureNode) -> None:
        self._path = node.kubepods / ("memory.usage_in_bytes" if this_host().version == 1 else "memory.current")
        self._stat = node.kubepods / "memory.stat"
        self._key = b"total_inactive_file " if this_host().version == 1 else b"\ninactive_file "
        self._mark = (CAPACITY_MIB - THRESHOLD_MIB) * MIB
        self.crossed_s = self.shrank_s = self.free_s = 0.0
        self.stood_still_s = 0.0  # the longest pause of this thread itself while memory was short
        self.over = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        fd, stat = os.open(self._path, os.O_RDONLY), os.open(self._stat, os.O_RDONLY)
        most, read_s = 0, time.monotonic()
        try:
            while not self._is_over.is_set():
                usage, before_s, read_s = int(os.pread(fd, 32, 0)), read_s, time.monotonic()
                now_s = read_s
                if self.crossed_s and not self.shrank_s:
                    self.stood_still_s = max(self.stood_still_s, now_s - before_s - POLL_S)
                if not self.crossed_s:
                    if usage - _after(os.pread(stat, 1 << 14, 0), self._key) > self._mark:
                        self.crossed_s, most = now_s, usage
                elif usage > most:
                    most = usage
                elif not self.shrank_s and usage < most - 4 * MIB:
                    self.shrank_s = now_s
                if self.shrank_s and usage < (BALLAST_MIB + 40) * MIB:
                    self.free_s = now_s
                    self.over.set()
                    return
                time.sleep(POLL_S)
        finally:
            os.close(fd)
            os.close(stat)

    def ended(self) -> bool:
        return bool(self.free_s)

    def is_short(self) -> bool:
        return int(self._path.read_text()) - _after(self._stat.read_bytes(), self._key) > self._mark

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


def _after(text: bytes, key: bytes) -> int:
    return int(text.partition(key)[2].split(b"\n", 1)[0])


def measured(node: PressureNode, pace: float, number: int, *, at_once: bool) -> dict[str, Any]:
    name = f"hog{number}"
    run = Run(node)
    try:
        node.create(pod(name, container("c", eater(600, pace), **memory("5Mi")), restartPolicy="Never"))
        deadline = time.monotonic() + GIVEN_UP_S
        # Asked seldom: in a guest with one CPU the question itself would keep the agent from its work.
        while not run.over.wait(ASKED_EVERY_S) and time.monotonic() < deadline:
            if node.status(name).get("phase") == "Failed":
                break
        node.until(lambda: node.status(name).get("phase") == "Failed")
        if not run.crossed_s:  # it was over between two reads from outside, so its time is unknown
            return {"unseen": True}
        node.until(run.ended)
        status = node.status(name)
        by_kernel = status.get("reason") != "Evicted" or any(
            each["state"].get("terminated", {}).get("reason") == "OOMKilled" for each in status["containerStatuses"]
        )
        signal_s = run.shrank_s
        if not at_once and not by_kernel and "term" in node.log(name):
            signal_s = node.said(name, "term")
        return {
            "by_kernel": by_kernel,
            "signal_s": signal_s - run.crossed_s,
            "free_s": run.free_s - run.crossed_s,
            "stood_still_s": run.stood_still_s,
            "ended_at_s": time.time() - (time.monotonic() - signal_s),
        }
    finally:
        run.close()
        node.ask.answer("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")
        node.until(lambda: not node.pod(name) and len(node.pod_cgroups()) == 1)


def percentile(values: list[float], share: float) -> float:
    """By nearest rank."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def line(title: str, values: list[float]) -> str:
    p50, p99, most = statistics.median(values), percentile(values, 0.99), max(values)
    return f"{title} p50 {p50 * 1000:6.0f} ms, p99 {p99 * 1000:6.0f} ms, most {most * 1000:6.0f} ms"


def reported(title: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Printed, and as figures."""
    unseen = len([each for each in runs if "unseen" in each])
    runs = [each for each in runs if "unseen" not in each]
    mine = [each for each in runs if not each["by_kernel"]]
    first = len(runs) - len(mine)
    found: dict[str, Any] = {"runs": len(runs), "kernel_first": first, "not_seen_from_outside": unseen}
    if unseen:
        print(
            f"pressure     {title:34} {unseen} more were over between two reads from outside: not counted", flush=True
        )
    if mine:
        signals, frees = [each["signal_s"] for each in mine], [each["free_s"] for each in mine]
        found |= {
            name: {"p50_ms": round(statistics.median(each) * 1000), "p99_ms": round(percentile(each, 0.99) * 1000)}
            for name, each in (("signal", signals), ("free", frees))
        }
        print(f"pressure     {title:34} {len(runs)} runs: {line('signal', signals)}; {line('free', frees)}", flush=True)
        found["late"] = [
            [each["ended_at_s"] - each["signal_s"], each["ended_at_s"], each["stood_still_s"]]
            for each in mine
            if each["signal_s"] > SIGNAL_GOAL_S and "ended_at_s" in each
        ]
    if first:
        print(f"pressure     {title:34} the kernel was first in {first} of {len(runs)} runs", flush=True)
    return found


class Poller:
    """Reads the pods' memory every ten seconds and kills one pod when memory is short."""

    def __init__(self, node: PressureNode) -> None:
        self._node, self._mark = node, Run(node)
        self._mark.close()
        self.victim = ""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._is_over.wait(KUBELET_POLL_S):
            if self.victim and self._mark.is_short():
                for file in self._node.cgroup_files(self.victim, "cgroup.procs"):
                    for pid in file.read_text().split():
                        os.kill(int(pid), signal.SIGKILL)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


def polled(node: PressureNode, pace: float, count: int) -> list[dict[str, Any]]:
    """The same crossings with only the poller; each run begins at another moment between its polls."""
    runs, poller, dice = [], Poller(node), random.Random(1)
    try:
        for number in range(count):
            name = f"polled{number}"
            time.sleep(dice.uniform(0.0, KUBELET_POLL_S))  # a run ends with a poll: the next must not begin with it
            run = Run(node)
            mib = CAPACITY_MIB - THRESHOLD_MIB - BALLAST_MIB + 30
            node.create(pod(name, container("c", eater(mib, pace), **memory("5Mi")), restartPolicy="Never"))
            poller.victim = node.pod(name)["metadata"]["uid"]
            node.until(run.ended)
            run.close()
            by_kernel = bool([each for each in node.kills() if each.get("pod") == name])
            runs.append(
                {
                    "by_kernel": by_kernel,
                    "signal_s": run.shrank_s - run.crossed_s,
                    "free_s": run.free_s - run.crossed_s,
                }
            )
            poller.victim = ""
            node.ask.answer("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")
            node.until(lambda: len(node.pod_cgroups()) == 1)
    finally:
        poller.close()
    return runs


@contextmanager
def filled(extras: dict[str, Any], settings: dict[str, Any] = SETTINGS) -> Iterator[PressureNode]:
    with (
        tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as directory,
        pressure_node(Path(directory) / "cluster", settings, extras, capacity_mib=CAPACITY_MIB) as node,
    ):
        limits = {"resources": {"limits": {"memory": f"{BALLAST_MIB + 32}Mi", "cpu": "100m"}}}
        node.create(pod("ballast", container("c", eater(BALLAST_MIB), **limits)))
        node.full("ballast")
        yield node
        node.empty()


def idle_share(node: PressureNode) -> float:
    """Of one core, by the agent with a pod at rest: watching, and everything else it does then."""
    assert node.node is not None

    def spent_s() -> float:
        words = Path(f"/proc/{node.node.pid if node.node else 0}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    before_s, begin_s = spent_s(), time.monotonic()
    time.sleep(IDLE_S)  # what is measured is a minute in which nothing happens
    return (spent_s() - before_s) / (time.monotonic() - begin_s)


def measure(
    paces: list[float], count: int, fast: int, polls: int, graces: tuple[bool, ...], *, idle: bool
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    unwatched = 0.0
    if polls or idle:
        with filled({}, {"evictionHard": {"nodefs.available": "1Mi"}}) as node:
            if idle:
                unwatched = idle_share(node)
            if polls:
                title = f"{paces[0]:g} MiB/s, a real poll every 10 s"
                results[title] = reported(title, polled(node, paces[0], polls))
    number = 0
    for at_once in graces:
        grace = "without grace" if at_once else "grace as specified"
        with filled({"evictionHardGraceSeconds": 0} if at_once else {}) as node:
            number += 1
            first = f"{grace}: the first of an agent"
            results[first] = reported(first, [measured(node, paces[0], number, at_once=at_once)])
            for pace in paces:
                runs = []
                for _ in range(count):
                    number += 1
                    runs.append(measured(node, pace, number, at_once=at_once))
                results[f"{pace:g} MiB/s, {grace}"] = reported(f"{pace:g} MiB/s, {grace}", runs)
            if at_once and fast:
                runs = [measured(node, 1024.0, number + index + 1, at_once=True) for index in range(fast)]
                results["1 GiB/s, without grace"] = reported("1 GiB/s, without grace", runs)
            if at_once and idle:
                share = idle_share(node)
                results["idle_percent_of_a_core"] = round(share * 100, 3)
                results["idle_percent_without_watching_memory"] = round(unwatched * 100, 3)
                print(
                    f"pressure     the agent at rest, memory three quarters full: {share * 100:.2f} % of a core; "
                    f"without watching memory {unwatched * 100:.2f} %",
                    flush=True,
                )
    return results


class Stolen:
    """How much CPU time others got that this machine, if it is a virtual one, was to have: all in all, and when."""

    def __init__(self) -> None:
        self._moments = [(time.time(), self._seconds())]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @staticmethod
    def _seconds() -> float:
        return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")

    def _watch(self) -> None:
        while not self._is_over.wait(STOLEN_EVERY_S):
            self._moments.append((time.time(), self._seconds()))

    def between(self, begin_s: float, end_s: float) -> float:
        inside = [
            gone_s for at_s, gone_s in self._moments if begin_s - STOLEN_EVERY_S <= at_s <= end_s + STOLEN_EVERY_S
        ]
        return inside[-1] - inside[0] if inside else 0.0

    def report(self, results: dict[str, Any]) -> None:
        self._is_over.set()
        self._thread.join()
        self._moments.append((time.time(), self._seconds()))
        (begin_s, before_s), (end_s, after_s) = self._moments[0], self._moments[-1]
        print(
            f"pressure     {after_s - before_s:.1f} s of CPU time were taken from this machine in {end_s - begin_s:.0f} s"
        )
        for title, found in results.items():
            for crossed_s, signal_s, stood_still_s in found.get("late", ()) if isinstance(found, dict) else ():
                print(
                    f"pressure     {title:34} one signal after {(signal_s - crossed_s) * 1000:.0f} ms: meanwhile "
                    f"{self.between(crossed_s, signal_s) * 1000:.0f} ms of CPU time were taken from this machine, and the "
                    f"reader outside had to wait for up to {stood_still_s * 1000:.0f} ms",
                    flush=True,
                )


def in_guest(count: int, grace: str) -> None:
    from tests.kernel.kinds import run_in

    argv = [PYTHON, "tests/bench/pressure.py", "--count", str(count), "--paces", "20", "--fast", "0"]
    argv += ["--polls", "0", "--no-idle", "--grace", grace]
    try:
        stolen = Stolen()
        done = run_in("uml-v2", argv, 3600.0, memory_mib=900)
    except GuestMissingError as problem:
        print(f"pressure     not measured in a guest: {problem}")
        return
    print("\n".join(text.replace("pressure ", "uml v2   ", 1) for text in done.stdout.splitlines()))
    stolen.report(json.loads(done.files.get("bench.json", b"{}")))
    if done.status:
        raise SystemExit(done.report())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=50, help="runs per pace and grace")
    parser.add_argument("--paces", default="50,200", help="MiB/s")
    parser.add_argument("--fast", type=int, default=20, help="runs at 1 GiB/s")
    parser.add_argument("--polls", type=int, default=20, help="runs with a poller of ten seconds in place of the agent")
    parser.add_argument("--grace", choices=list(GRACES), default="both", help="of the eviction")
    parser.add_argument("--guest", action="store_true", help="only cgroup v2, in a guest")
    parser.add_argument("--guest-count", type=int, default=50, help="runs in the guest; 0 for none")
    parser.add_argument("--no-idle", action="store_true")
    asked = parser.parse_args()
    inside = GUEST_VARIABLE in os.environ
    if asked.guest and not inside:
        in_guest(asked.guest_count, asked.grace)
        return
    if not inside and (os.geteuid() != 0 or this_host().version != 1):
        print("pressure     not measured: root on a cgroup v1 host is needed")
        return
    paces = [float(text) for text in asked.paces.split(",")]
    print(f"pressure     {os.cpu_count()} CPUs, load before {os.getloadavg()[0]:.1f}", flush=True)
    stolen = None if inside else Stolen()
    results = measure(paces, asked.count, asked.fast, asked.polls, GRACES[asked.grace], idle=not asked.no_idle)
    if stolen is not None:
        stolen.report(results)
    print(f"pressure     load after {os.getloadavg()[0]:.1f}", flush=True)
    if inside:
        Path(os.environ[JOB_VARIABLE], "bench.json").write_text(json.dumps(results))
    else:
        print(json.dumps(results))
        if asked.guest_count:
            in_guest(asked.guest_count, asked.grace)


if __name__ == "__main__":
    main()
