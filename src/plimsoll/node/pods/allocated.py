"""What is allocated on this node: the sum over its active pods, kept up to date at each question."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.node.checkpoint import NO_RECORD, Checkpoint, PodRecord
from plimsoll.node.pods.worker import PodWorker
from plimsoll.rules.model.pod_status import RunStatus
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.scheduling.fit import EMPTY, NodeLoad, requesting_load


class _Counted(msgspec.Struct, frozen=True):
    """What a pod's share was computed from."""

    pod: RunPod
    status: RunStatus | None
    record: PodRecord
    is_removed: bool

    def is_of(self, worker: PodWorker, record: PodRecord) -> bool:
        is_same = self.pod is worker.pod and self.status is worker.status and self.record is record
        return is_same and self.is_removed == worker.is_removed


class Allocated:
    """What is allocated on this node, kept as a sum, so that a verdict need not add up all pods each time.

    A pod counts as long as it is active: admitted by the node, not ended, not being terminated by it, and not removed
    from the API server (a forced deletion frees its place at once, as for the scheduler). Before each answer every pod
    is compared with what it was counted by (the pod, its status, its record; all three are replaced, never changed),
    and only those that have changed are counted again. So no caller has to report a change.
    """

    def __init__(self, checkpoint: Checkpoint, workers: Mapping[str, PodWorker]) -> None:
        self._checkpoint, self._workers = checkpoint, workers
        self._counted: dict[str, _Counted] = {}
        self._load = EMPTY

    def load(self) -> NodeLoad:
        """The pods and their sums, without a node."""
        changed, counted, records = [], self._counted, self._checkpoint.all()
        for uid, worker in self._workers.items():
            now, record = counted.get(uid), records.get(uid, NO_RECORD)
            if now is None or not now.is_of(worker, record):
                changed.append(uid)
        if changed:
            self._count(changed)
        if len(counted) > len(self._workers):
            gone = counted.keys() - self._workers.keys()
            self._load = self._load.without_pods(gone)
            for uid in gone:
                del counted[uid]
        return self._load

    def _count(self, uids: list[str]) -> None:
        counted: dict[str, _Counted] = {}
        removed, added = [], []
        for uid in uids:
            worker, record = self._workers[uid], self._checkpoint.get(uid)
            counted[uid] = _Counted(worker.pod, worker.status, record, worker.is_removed)
            load = self._load.residents.get(uid)
            if record.allocation is None or record.verdict is not None or worker.is_over or worker.is_removed:
                if load is not None:
                    removed.append(uid)
            elif load is None or load.pod is not worker.allocated_pod(record.allocation):
                added.append(requesting_load(worker.allocated_pod(record.allocation)))
        if removed or added:
            self._load = self._load.without_pods(removed).with_pods(added)
        self._counted |= counted
