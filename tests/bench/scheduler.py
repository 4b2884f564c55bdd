"""How many pods a second the scheduler decides on one core, with 5,000 nodes and 50,000 pods on them.

A decision is what the loop does with a pod that it has taken from the queue: choose a node among all, and count the pod
there at once. Pods have the usual constraints (selectors, tolerations, preferences, host ports now and then), some
of the nodes are tainted or cordoned. Judged after multiplying by the machine factor of `api.py`.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from plimsoll.codec.lean.lean import from_document  # noqa: E402
from plimsoll.rules.model.objects import Node, Pod  # noqa: E402
from plimsoll.rules.profile import profile_named  # noqa: E402
from plimsoll.rules.scheduling.fit import resident_load  # noqa: E402
from plimsoll.rules.scheduling.preemption import Nominated  # noqa: E402
from plimsoll.scheduler.cache import SchedulerCache  # noqa: E402
from plimsoll.scheduler.choice import Choice  # noqa: E402
from tests.bench.api import machine_factor, verdict  # noqa: E402

NODES, PODS, ROUNDS = 5_000, 50_000, 5
GOAL_PER_S = 1_000.0


def a_node(chance: random.Random, index: int) -> Node:
    taints = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}] if chance.random() < 0.05 else []
    return from_document(
        {
            "metadata": {"name": f"n{index:04}", "labels": {"zone": chance.choice("abc")}},
            "spec": {"taints": taints, "unschedulable": chance.random() < 0.01},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        },
        Node,
    )


def a_pod(chance: random.Random, index: int) -> Pod:
    requests = {"cpu": chance.choice(["50m", "100m", "250m", "500m"]), "memory": chance.choice(["64Mi", "500M", "1Gi"])}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if index % 6 == 0:
        spec["nodeSelector"] = {"zone": chance.choice("abc")}
    if index % 8 == 0:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if index % 10 == 0:
        preference = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [chance.choice("abc")]}]}
        term = {"weight": chance.randint(1, 100), "preference": preference}
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    if index % 97 == 0:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    return from_document({"metadata": {"name": f"p{index}", "namespace": "d", "uid": f"u{index}"}, "spec": spec}, Pod)


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    chance = random.Random(1)
    cluster = SchedulerCache(profile_named("1.36"))
    for index in range(NODES):
        cluster.put_node(a_node(chance, index))
    choice = Choice(cluster, profile_named("1.36"))
    pods = [a_pod(chance, index) for index in range(PODS + ROUNDS * 1000)]
    no_nominees: Nominated = {}
    placed = 0

    def decided(index: int) -> None:
        nonlocal placed
        pod = pods[index]
        decision = choice.decide(pod, no_nominees, ())
        if decision.nodes:
            placed += 1
            chosen = chance.choice(decision.nodes)
            bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=chosen))
            cluster.assume(resident_load(bound, profile_named("1.36")), chosen)

    began = time.process_time()
    for index in range(PODS):
        decided(index)
    took = time.process_time() - began
    print(f"scheduler: {NODES} nodes filled with {placed} of {PODS} pods, {PODS / took:.0f} decided per CPU second")
    for number in range(ROUNDS):
        factor = machine_factor()
        first = PODS + number * 1000
        began = time.process_time()
        for index in range(first, first + 1000):
            decided(index)
        rate = 1000 / (time.process_time() - began)
        goal_text = f"≥ {GOAL_PER_S:g}: {verdict(rate * factor >= GOAL_PER_S)}"
        print(
            f"  1000 more: {rate:.0f} per CPU second, × factor {factor:.2f} = {rate * factor:.0f}   {goal_text}",
            flush=True,
        )


if __name__ == "__main__":
    main()
