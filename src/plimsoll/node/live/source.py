"""The pages `/live` and `/history`: samples the node while someone looks, and now and then for the history.

A sample is paced by its own cost: while a dashboard is open at most `LIVE_SHARE` of a CPU is spent on samples, and on
the history at most `HISTORY_SHARE`. Files stay open between samples, because opening them costs many times what reading
does; that happens once and does not count for the pace.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from plimsoll.aio import ExponentialBackoff, supervise
from plimsoll.cgroups.stats.usage import CgroupOpener, Pressures
from plimsoll.codec.live_page import Mark, MarkKind, SignalLive
from plimsoll.errors import PlimsollError
from plimsoll.node.live.history import History
from plimsoll.node.live.orders import eviction_order, kill_order, overview
from plimsoll.node.live.readers import CgroupReaders
from plimsoll.node.live.simulated import simulated_rows
from plimsoll.node.live.state import LiveState
from plimsoll.node.live.timelines import Timelines
from plimsoll.node.live.vessels import NodeVessels, VesselIds, node_vessels
from plimsoll.node.reporting.event_correlator import ObjectReference
from plimsoll.node.stats.stats import StatsSnapshot
from plimsoll.rules.config.thresholds import FsLayout, Threshold
from plimsoll.rules.eviction.assessment import NodeCondition, Observation, met_thresholds, wanted
from plimsoll.rules.eviction.slope import WINDOW_S, seconds_left, slope_per_s
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.node_config import NodeConfig

LIVE_SHARE, HISTORY_SHARE = 0.005, 0.0007
LIVE_LEAST_S, HISTORY_LEAST_S = 0.9, 10.0
ORDERS_S, RECORD_S = 2.0, 5.0
_KINDS: dict[str, MarkKind] = {
    "OOMKilling": "oom",
    "SystemOOM": "oom",
    "Evicted": "eviction",
    "EvictionThresholdMet": "eviction",
    "Preempting": "eviction",
    "BackOff": "restart",
    "ResizeError": "resize",
    "CgroupRepaired": "repair",
    "FailedCgroupRepair": "repair",
}
_STEPS = frozenset({"ResizeStarted", "ResizeCompleted", "ResizeDeferred", "ResizeInfeasible"})  # see `timelines`
log = logging.getLogger(__name__)


# The pods that have cgroups; by uid, the ids of their containers and the paths of their cgroups, each by name.
_PodsNow = tuple[list[Pod], Mapping[str, Mapping[str, str]], dict[str, dict[str, str]]]


class LivePods(Protocol):
    """The agent's pods."""

    def pods(self) -> list[Pod]: ...
    def containers(self) -> Mapping[str, Mapping[str, str]]:
        """Pod uid → name of each running container → id."""

    def paths(self, uid: str) -> Mapping[str, str]: ...
    def started_s(self, container_id: str) -> float:
        """0 if it is not known."""


class LivePressure(Protocol):
    """The part of the pressure manager that is shown."""

    @property
    def thresholds(self) -> Sequence[Threshold]: ...
    @property
    def layout(self) -> FsLayout: ...
    def conditions(self) -> tuple[NodeCondition, ...]: ...
    def observations(self) -> Mapping[str, Observation]: ...


class LiveSource:
    def __init__(
        self,
        setting: NodeConfig,
        files: CgroupOpener | None,
        pods: LivePods,
        pressure: LivePressure,
        pressures: Callable[[], Pressures | None],
        measured: Callable[[], StatsSnapshot],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`files`: None on a simulated kernel; there `measured` has the figures. `pressures`: of the whole machine."""
        self._setting, self._pods, self._pressure, self._pressures = setting, pods, pressure, pressures
        self._measured = measured
        self._simulated, self._clock = files is None, clock
        self._readers, self._ids = CgroupReaders(files), VesselIds()
        self.state, self.history = LiveState(secrets.token_hex(6)), History()
        self._vessels = NodeVessels([], {}, {})
        self._key: _PodsNow | None = None
        self._signals: dict[str, deque[tuple[float, float]]] = {}
        self._cost_s, self._ordered_s = 0.0, float("-inf")
        self._recorded, self._recorded_s = 0, float("-inf")
        self._containers: dict[tuple[str, str], str] = {}
        self._timelines = Timelines(clock)
        self._lock = asyncio.Lock()

    # --- pages ---

    async def live_page(self, query: Mapping[str, Sequence[str]]) -> bytes:
        """`since` and `run`: what the reader has already."""
        await self.sample(self._live_pace_s)
        if _one(query, "part") == "node":
            return msgspec.json.encode({**self.state.node, "at": self.state.at_s})
        given = _one(query, "since")
        since = int(given) if given.isdecimal() and _one(query, "run") == self.state.run else 0
        next_s = max(0.0, round(self.state.at_s + self._live_pace_s - self._clock(), 2))
        return msgspec.json.encode(msgspec.structs.replace(self.state.frame(since), next_s=next_s))

    @property
    def _live_pace_s(self) -> float:
        return max(LIVE_LEAST_S, self._cost_s / LIVE_SHARE)

    async def history_page(self, query: Mapping[str, Sequence[str]]) -> bytes:
        """`from` and `to`, in seconds since the epoch."""
        first, last = (_number(_one(query, name)) for name in ("from", "to"))
        return msgspec.json.encode(self.history.page(first or 0.0, float("inf") if last is None else last))

    async def run(self) -> None:
        """Until cancelled: sample for the history. A failure never ends the agent."""
        await supervise("history", self._record_history, ExponentialBackoff(HISTORY_LEAST_S, 60 * HISTORY_LEAST_S))

    async def _record_history(self) -> None:
        try:
            while True:
                await asyncio.sleep(max(HISTORY_LEAST_S, self._cost_s / HISTORY_SHARE))
                try:
                    await self.sample(HISTORY_LEAST_S / 2)
                except (PlimsollError, OSError) as error:
                    log.warning("no sample for the history: %s", error)
        finally:
            self._readers.close()

    def happened(self, reference: ObjectReference, kind: str, reason: str, message: str) -> None:
        """An event was recorded."""
        warning = kind == "Warning"
        mark = _KINDS.get(reason, "event" if warning else None)
        if mark is None or reason in _STEPS:
            return
        is_pod = reference.kind == "Pod"
        self.state.add_mark(
            Mark(
                self._clock(),
                mark,
                message[:1000],
                reason,
                reference.namespace if is_pod else "",
                reference.name if is_pod else "",
                reference.uid if is_pod else "",
                _container_in(reference.field_path),
                warning,
            )
        )

    def pod_seen(self, uid: str, pod: RunPod | None) -> None:
        """A version of a pod has arrived, or that it was deleted."""
        if pod is None:
            self._timelines.forget(uid)
            return
        for mark in self._timelines.seen(pod):
            self.state.add_mark(mark)

    def status_refused(self, namespace: str, name: str, uid: str) -> None:
        """A status of the pod was refused with 409."""
        for mark in self._timelines.conflicted(namespace, name, uid):
            self.state.add_mark(mark)

    # --- samples ---

    async def sample(self, max_age_s: float) -> None:
        """Read everything, unless the last reading is newer than that."""
        async with self._lock:
            if self._clock() - self.state.at_s < max_age_s and self.state.seq:
                return
            began_s, opening_s = time.thread_time(), self._readers.opening_s
            pods = self._pods_now()
            if has_changed := pods != self._key:
                spent_s = time.thread_time() - began_s
                await self._renew_vessels(*pods)
                began_s = time.thread_time() - spent_s  # pods change seldom
            now_s = self._clock()
            self.state.begin(now_s)
            if has_changed:
                self.state.set_vessels(self._vessels.listed)
                self._key = pods
            for name, row in self._rows(now_s):
                self.state.set_row(name, row)
            self.state.set_node(self._node(now_s))
            if now_s - self._ordered_s >= ORDERS_S:
                self._ordered_s = now_s
                self.state.set_orders(self._orders())
            self._record()
            cost_s = time.thread_time() - began_s - (self._readers.opening_s - opening_s)
            self._cost_s = 0.7 * self._cost_s + 0.3 * cost_s

    def _rows(self, now_s: float) -> Iterable[tuple[str, list[int]]]:
        if self._simulated:
            yield from simulated_rows(self._measured(), self.state.vessels).items()
            return
        for name, path in self._vessels.paths.items():
            row = self._readers.read(path, now_s)
            if row is not None:
                yield name, row
        self._readers.keep_only(self._vessels.paths.values())

    def _pods_now(self) -> _PodsNow:
        pods = self._pods.pods()
        paths = {pod.metadata.uid: dict(self._pods.paths(pod.metadata.uid)) for pod in pods}
        return [pod for pod in pods if paths[pod.metadata.uid] or self._simulated], self._pods.containers(), paths

    async def _renew_vessels(
        self, pods: list[Pod], containers: Mapping[str, Mapping[str, str]], paths: dict[str, dict[str, str]]
    ) -> None:
        self._note_restarts(pods, containers)
        self._vessels = await asyncio.to_thread(node_vessels, pods, containers, paths, self._setting, self._ids)
        self._ids.keep_only(self._vessels.paths.values())

    def _note_restarts(self, pods: Iterable[Pod], containers: Mapping[str, Mapping[str, str]]) -> None:
        known: dict[tuple[str, str], str] = {}
        for pod in pods:
            uid = pod.metadata.uid
            for name, container_id in containers.get(uid, {}).items():
                known[uid, name] = container_id
                before = self._containers.get((uid, name))
                if before is not None and before != container_id:
                    self._mark_restart(pod, name, container_id)
            for (owner, name), container_id in self._containers.items():
                if owner == uid:
                    known.setdefault((owner, name), container_id)  # it has ended and may come back
        self._containers = known

    def _mark_restart(self, pod: Pod, name: str, container_id: str) -> None:
        text = f"container {name} was started again"
        at_s, about = self._pods.started_s(container_id) or self._clock(), pod.metadata
        self.state.add_mark(Mark(at_s, "restart", text, "Restarted", about.namespace, about.name, about.uid, name))

    def _record(self) -> None:
        """Add to the history what is new since its last frame; not every sample that is taken for a dashboard."""
        state, last = self.state, self.history
        if state.at_s - self._recorded_s < RECORD_S:
            return
        self._recorded_s = state.at_s
        frame = state.frame(0 if last.wants_complete else self._recorded)
        self._recorded = state.seq
        last.add(frame)

    def _node(self, now_s: float) -> dict[str, Any]:
        found = self._pressures()
        stalls = {}
        for name in ("cpu", "memory", "io"):
            stall = None if found is None else getattr(found, name)
            if stall is not None:
                lines = {"some": stall.some, "full": stall.full}
                stalls[name] = {
                    kind: [line.avg10, line.avg60, line.avg300] for kind, line in lines.items() if line is not None
                }
        return {
            **self._vessels.facts,
            "conditions": list(self._pressure.conditions()),
            "signals": [msgspec.to_builtins(each) for each in self._signals_now(now_s)],
            "pressure": stalls,
            "simulated": self._simulated,
            **overview(self.state.vessels, self.state.rows),
        }

    def _signals_now(self, now_s: float) -> Iterable[SignalLive]:
        thresholds, observations = self._pressure.thresholds, self._pressure.observations()
        met = met_thresholds(thresholds, observations)
        for signal, seen in observations.items():
            readings = self._signals.setdefault(signal, deque())
            readings.append((now_s, float(seen.available.value)))
            while readings[0][0] < now_s - WINDOW_S:
                readings.popleft()
        for threshold in thresholds:
            observed = observations.get(threshold.signal)
            if observed is None:
                continue
            least = wanted(threshold, observed.capacity).value
            slope = slope_per_s(self._signals[threshold.signal])
            left = seconds_left(observed.available.value - least, slope)
            yield SignalLive(
                threshold.signal,
                observed.available.value,
                observed.capacity.value,
                least,
                threshold.grace_s,
                threshold in met,
                round(slope, 1),
                -1.0 if left is None else round(left, 1),
            )

    def _orders(self) -> dict[str, Any]:
        vessels, rows, gates = self.state.vessels, self.state.rows, self._setting.policy.gates
        return {
            "eviction": eviction_order(self._pods.pods(), vessels, rows, self._pressure.layout, gates),
            "oom": kill_order(vessels, rows, self._setting.machine.memory_bytes),
        }


def _container_in(field_path: str) -> str:
    """`spec.containers{app}` → app."""
    return field_path.partition("{")[2].rstrip("}")


def _one(query: Mapping[str, Sequence[str]], name: str) -> str:
    return next(iter(query.get(name) or ()), "")


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
