"""Which worker of pytest-xdist runs which group of tests in `./dev test`.

Tests of kernels and clusters wait more than they compute, those of rules and codecs only compute. Some workers begin with
the latter, the others with the former, so that the CPUs have something to do from the start to the end. Large groups go
first: what is left at the end is short, and no worker goes on alone.
"""

from __future__ import annotations

import os

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

COMPUTING = ("tests/unit/", "tests/conformance/")  # the groups of modules of rules, codecs and the like
GUESTS = ("tests/kernel/test_guest", "tests/kernel/test_node_story", "tests/kernel/test_real_kubelet")  # minutes each


def computing_workers(workers: int, cpus: int) -> int:
    """How many of the workers begin with tests that compute: one for two CPUs, and never all of them."""
    return min(max(1, cpus // 2), workers - 1)


def order(group: str, size: int, *, computes: bool) -> tuple[bool, bool, int]:
    """The group with the largest value is next for a worker that prefers tests that compute, or the others."""
    return group.startswith(COMPUTING) == computes, group.startswith(GUESTS), size


class Scheduling(LoadGroupScheduling):
    def _assign_work_unit(self, node: WorkerController) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        computes = number < computing_workers(self.numnodes, os.cpu_count() or 1)
        queue = self.workqueue
        queue.move_to_end(max(queue, key=lambda group: order(group, len(queue[group]), computes=computes)), last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Groups that are complete are dropped: pytest-xdist looks through all of them after each test."""
        super().mark_test_complete(node, item_index, duration)
        groups = self.assigned_work[node]
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(groups[group].values()):
            del groups[group]
