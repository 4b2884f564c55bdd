"""DaemonSets: one pod on every node that fits, bound by node affinity, replaced node by node.

A pod is pinned to its node by a required node affinity on `metadata.name`, and tolerates what makes a node unfit for
other pods: not ready, unreachable, pressure, cordoned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.rules.controllers.pods import (
    count_or_percent,
    is_available,
    is_ready,
    min_ready_seconds,
    next_available_s,
    phase_of,
    pod_from_template,
)
from plimsoll.rules.controllers.revisions import REVISION_HASH, hash_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.scheduling.selectors import is_tolerated, matches_affinity

_PREFIX = "node.kubernetes.io/"
_TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_OF_HOST_NETWORK = (("network-unavailable", "NoSchedule"),)


class DaemonStep(msgspec.Struct, frozen=True):
    create: tuple[JsonObject, ...] = ()
    delete: tuple[JsonObject, ...] = ()
    failed: tuple[tuple[str, JsonObject], ...] = ()  # node, ended pod: deleted with a growing delay
    status: JsonObject = {}
    requeue_s: float | None = None


# --- pods ---


def daemon_pod(owner: Mapping[str, Any], node: str, digest: str, reference: JsonObject) -> JsonObject:
    pod = pod_from_template(owner["spec"].get("template") or {}, reference, prefix=f"{owner['metadata']['name']}-")
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), REVISION_HASH: digest}
    spec = pod["spec"]
    spec["tolerations"] = daemon_tolerations(spec)
    affinity = dict(spec.get("affinity") or {})
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity["nodeAffinity"] = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [by_name]},
    }
    spec["affinity"] = affinity
    return pod


def daemon_tolerations(spec: Mapping[str, Any]) -> list[JsonObject]:
    wanted = _TOLERATED + (_OF_HOST_NETWORK if spec.get("hostNetwork") else ())
    added = [{"key": f"{_PREFIX}{name}", "operator": "Exists", "effect": effect} for name, effect in wanted]
    known = list(spec.get("tolerations") or ())
    return known + [each for each in added if each not in known]


def node_of(pod: Mapping[str, Any]) -> str:
    """The node that a pod runs on or is pinned to."""
    spec = pod.get("spec") or {}
    if name := spec.get("nodeName"):
        return str(name)
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and len(field.get("values") or ()) == 1:
                return str(field["values"][0])
    return ""


def fits(pod: Pod, node: Node) -> tuple[bool, bool]:
    """Whether the node should get a pod, and whether it may keep one. `pod`: from the template, with tolerations."""
    if pod.spec.node_name and pod.spec.node_name != node.metadata.name:
        return False, False
    if not matches_affinity(pod, node):
        return False, False
    hostile = [taint for taint in node.spec.taints if not is_tolerated(taint, pod.spec.tolerations)]
    effects = {taint.effect for taint in hostile}
    return not effects & {"NoSchedule", "NoExecute"}, "NoExecute" not in effects


# --- the step ---


def daemon_step(
    owner: JsonObject,
    pods: Sequence[JsonObject],
    nodes: Mapping[str, tuple[bool, bool]],
    digest: str,
    now_s: float,
    reference: JsonObject,
) -> DaemonStep:
    """`nodes`: for each node whether it should get a pod, and whether it may keep one. `digest`: of the template."""
    return _DaemonSet(owner, pods, nodes, digest, now_s, reference).step()


class _DaemonSet:
    def __init__(
        self,
        owner: JsonObject,
        pods: Sequence[JsonObject],
        nodes: Mapping[str, tuple[bool, bool]],
        digest: str,
        now_s: float,
        reference: JsonObject,
    ) -> None:
        self.owner, self.nodes, self.digest, self.now_s, self.reference = owner, nodes, digest, now_s, reference
        self.pods = pods
        self.min_ready_s = min_ready_seconds(owner)
        self.on: dict[str, list[JsonObject]] = {}
        for pod in sorted(pods, key=_created):
            self.on.setdefault(node_of(pod), []).append(pod)
        strategy = owner["spec"].get("updateStrategy") or {}
        self.rolls = strategy.get("type") != "OnDelete"
        rolling = (strategy.get("rollingUpdate") or {}) if self.rolls else {}
        wanted = sum(should for should, _ in nodes.values())
        self.surge = count_or_percent(rolling.get("maxSurge") or 0, wanted, up=True)
        unavailable = rolling.get("maxUnavailable")
        self.most = count_or_percent(1 if unavailable is None else unavailable, wanted, up=True)

    def step(self) -> DaemonStep:
        status = self._status()
        wait_s = next_available_s(self.pods, self.min_ready_s, self.now_s)
        if self.owner["metadata"].get("deletionTimestamp"):
            return DaemonStep(status=status)
        missing, delete, failed = self._managed()
        if self.rolls:
            more, outdated = self._surging() if self.surge else ([], self._outdated())
            missing += more
            delete += [pod for pod in outdated if not any(pod is each for each in delete)]
        create = tuple(daemon_pod(self.owner, node, self.digest, self.reference) for node in missing)
        return DaemonStep(create, tuple(delete), tuple(failed), status, wait_s)

    def _managed(self) -> tuple[list[str], list[JsonObject], list[tuple[str, JsonObject]]]:
        """Nodes without a pod, pods where none should be, and pods that have ended."""
        missing, delete, failed = [], [], []
        for node, (should, may) in self.nodes.items():
            pods = self.on.get(node, [])
            if should and not pods:
                missing.append(node)
            elif not may:
                delete += [pod for pod in pods if not _is_leaving(pod)]
            else:
                staying = [pod for pod in pods if not _is_leaving(pod)]
                failed += [(node, pod) for pod in staying if phase_of(pod) in ("Failed", "Succeeded")]
                running = [pod for pod in staying if phase_of(pod) not in ("Failed", "Succeeded")]
                delete += self._doubled(running)
        for node, pods in self.on.items():
            if node not in self.nodes:
                delete += [pod for pod in pods if not _is_leaving(pod)]
        return missing, delete, failed

    def _doubled(self, running: list[JsonObject]) -> list[JsonObject]:
        """One pod stays on a node; while it is replaced with a surge, one of each revision."""
        if not self.surge:
            return running[1:]
        old = [pod for pod in running if hash_of(pod) != self.digest]
        new = [pod for pod in running if hash_of(pod) == self.digest]
        return old[1:] + new[1:]

    def _is_available(self, pod: JsonObject) -> bool:
        return is_available(pod, self.min_ready_s, self.now_s)

    def _by_revision(self, node: str) -> tuple[JsonObject | None, JsonObject | None]:
        """The new and the old pod of a node that are not being deleted."""
        staying = [pod for pod in self.on.get(node, []) if not _is_leaving(pod)]
        new = next((pod for pod in staying if hash_of(pod) == self.digest), None)
        return new, next((pod for pod in staying if hash_of(pod) != self.digest), None)

    def _outdated(self) -> list[JsonObject]:
        """Old pods to delete: all that are not available, and as many others as may be missing."""
        missing, now, candidates = 0, [], []
        for node, (should, _) in self.nodes.items():
            if not should:
                continue
            new, old = self._by_revision(node)
            if new is None and old is not None and self._is_available(old):
                candidates.append(old)
            elif new is None and old is not None:
                now.append(old)
                missing += 1
            elif new is None or not self._is_available(new):
                missing += 1
        return now + candidates[: max(self.most - missing, 0)]

    def _surging(self) -> tuple[list[str], list[JsonObject]]:
        """Nodes that get a new pod beside the old one, and old pods whose successor is available."""
        doubled, now, candidates, delete = 0, [], [], []
        for node, (should, _) in self.nodes.items():
            new, old = self._by_revision(node)
            if old is None or not should:
                continue
            if new is not None:
                doubled += 1
                delete += [old] if self._is_available(new) else []
            elif self._is_available(old):
                candidates.append(node)
            else:
                now.append(node)
        return now + candidates[: max(self.surge - doubled - len(now), 0)], delete

    def _status(self) -> JsonObject:
        before = self.owner.get("status") or {}
        desired = current = misplaced = ready = available = updated = 0
        for node, (should, _) in self.nodes.items():
            pods = self.on.get(node, [])
            if not should:
                misplaced += bool(pods)
                continue
            desired += 1
            current += bool(pods)
            ready += any(is_ready(pod) for pod in pods)
            available += any(self._is_available(pod) for pod in pods)
            updated += any(hash_of(pod) == self.digest for pod in pods)
        shown = {
            "currentNumberScheduled": current,
            "numberMisscheduled": misplaced,
            "desiredNumberScheduled": desired,
            "numberReady": ready,
        }
        rest = {
            "observedGeneration": self.owner["metadata"].get("generation", 0),
            "updatedNumberScheduled": updated,
            "numberAvailable": available,
            "numberUnavailable": desired - available,
        }
        kept = {name: before[name] for name in ("collisionCount", "conditions") if name in before}
        return {**shown, **{name: value for name, value in rest.items() if value}, **kept}


def _created(pod: Mapping[str, Any]) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]


def _is_leaving(pod: Mapping[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
