"""The timelines of resizes, T0…Tn of each pod, from every version of a pod that the agent receives (03 §5).

The first steps of a pod (created, received, running) become marks together with its first resize; a pod that is never
resized has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from plimsoll.codec.live_page import Mark
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.resize.timeline import ResizeRow, is_resize, resize_row, step_words
from plimsoll.rules.timestamps import epoch_seconds

RUNNING = 2  # T2: later steps belong to resizes


class _Timeline(msgspec.Struct):
    row: ResizeRow
    number: int
    early: list[Mark]
    is_shown: bool = False


class Timelines:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pods: dict[str, _Timeline] = {}

    def seen(self, pod: RunPod) -> Iterator[Mark]:
        """The marks that a version of the pod leads to."""
        row, now_s = resize_row(pod), self._clock()
        found = self._pods.get(pod.metadata.uid)
        if found is None:
            created = epoch_seconds(pod.metadata.creation_timestamp) or now_s
            first = _mark(pod, created, 0, ResizeRow(row.spec, {}, {}), "created")
            words = "the node agent has found it" if row.actual else "received by the node"
            early = [first, _mark(pod, now_s, 1, row, words)]
            self._pods[pod.metadata.uid] = _Timeline(row, 1, early)
            return
        before, found.row = found.row, row
        if before == row:
            return
        if not found.is_shown and not is_resize(before, row):
            found.number = RUNNING
            found.early[RUNNING:] = [_mark(pod, now_s, RUNNING, row, step_words(before, row))]
            return
        if not found.is_shown:
            found.is_shown = True
            yield from found.early
            found.early = []
        found.number += 1
        yield _mark(pod, now_s, found.number, row, step_words(before, row))

    def conflicted(self, namespace: str, name: str, uid: str) -> Iterator[Mark]:
        """The API server has refused a status, because the pod has changed since it was computed (409)."""
        found = self._pods.get(uid)
        if found is not None and found.is_shown:
            found.number += 1
            text = "409 Conflict: the pod has changed, its status is computed again"
            yield Mark(
                self._clock(), "resize", text, "Conflict", namespace, name, uid, step=_step(found.number, found.row)
            )

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)


def _mark(pod: RunPod, at_s: float, number: int, row: ResizeRow, words: str) -> Mark:
    about = pod.metadata
    step = _step(number, row)
    return Mark(at_s, "resize", words[:1000], "", about.namespace, about.name, about.uid, step=step)


def _step(number: int, row: ResizeRow) -> dict[str, object]:
    return {"number": number, "spec": row.spec, "allocated": row.allocated, "actual": row.actual, "state": row.state}
