"""Which worker of pytest-xdist runs which group of tests in `./dev test`.

Tests of kernels and clusters wait more than they compute, those of rules and codecs only compute. Some workers begin with
the latter at a low priority, the others with the former: the CPUs have something to do from the start to the end, and
tests that depend on time are not disturbed. Large groups go first: what is left at the end is short, and no worker goes
on alone.
"""

from __future__ import annotations

import os

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

UNIT = ("tests/unit/", "tests/conformance/")
COMPUTING = tuple(f"tests/{room}/" for room in ("conformance", "unit/cgroups", "unit/codec", "unit/rules"))
GUESTS = ("tests/kernel/test_guest", "tests/kernel/test_node_story", "tests/kernel/test_real_kubelet")  # minutes each
NICE = 10


def computes(worker: str, workers: int, cpus: int) -> bool:
    """Whether that worker (`gw0`) begins with tests that compute: one for two CPUs, and never all of them."""
    return int(worker.removeprefix("gw")) < min(max(1, cpus // 2), workers // 2)


def be_nice(worker: str, workers: int) -> None:
    if computes(worker, workers, os.cpu_count() or 1):
        os.nice(NICE)


def order(group: str, size: int, *, first: bool) -> tuple[bool, bool, int]:
    """The group with the largest value is next for a worker that computes `first`, or for the others."""
    if first:
        return group.startswith(UNIT), group.startswith(COMPUTING), size
    return not group.startswith(UNIT), group.startswith(GUESTS), size


class Scheduling(LoadGroupScheduling):
    def _assign_work_unit(self, node: WorkerController) -> None:
        first, queue = computes(node.gateway.id, self.numnodes, os.cpu_count() or 1), self.workqueue
        queue.move_to_end(max(queue, key=lambda group: order(group, len(queue[group]), first=first)), last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Groups that are complete are dropped: pytest-xdist looks through all of them after each test."""
        super().mark_test_complete(node, item_index, duration)
        groups = self.assigned_work[node]
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(groups[group].values()):
            del groups[group]
