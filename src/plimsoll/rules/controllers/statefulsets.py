"""StatefulSets: pods with ordinals, created in order, deleted in reverse order, updated from the last to the partition.

With OrderedReady each step waits until the pods before it are running, ready and available; with Parallel pods are
created and deleted at once, but still updated one after the other (or `maxUnavailable` at a time).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.rules.controllers.pods import (
    TERMINAL,
    available_in_s,
    count_or_percent,
    desired_replicas,
    is_available,
    is_ready,
    min_ready_seconds,
    phase_of,
    pod_from_template,
)
from plimsoll.rules.controllers.revisions import REVISION_HASH, hash_of, template_of
from plimsoll.rules.controllers.stateful_claims import with_claims
from plimsoll.rules.model.json_object import JsonObject

POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_NAME = re.compile(r"(.*)-([0-9]+)", re.ASCII)


class StatefulStep(msgspec.Struct, frozen=True):
    create: tuple[JsonObject, ...] = ()
    delete: tuple[JsonObject, ...] = ()
    status: JsonObject = {}
    requeue_s: float | None = None


def ordinal_of(pod: Mapping[str, Any], name: str) -> int | None:
    match = _NAME.fullmatch(pod["metadata"]["name"])
    return int(match[2]) if match and match[1] == name and str(int(match[2])) == match[2] else None


def _start(owner: Mapping[str, Any]) -> int:
    return int((owner["spec"].get("ordinals") or {}).get("start") or 0)


def _partition(owner: Mapping[str, Any]) -> int:
    return int(_rolling(owner).get("partition") or 0)


def _rolling(owner: Mapping[str, Any]) -> JsonObject:
    return (owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}


def _is_on_delete(owner: Mapping[str, Any]) -> bool:
    return bool((owner["spec"].get("updateStrategy") or {}).get("type") == "OnDelete")


def is_terminating(pod: Mapping[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_running_and_ready(pod: Mapping[str, Any]) -> bool:
    return phase_of(pod) == "Running" and is_ready(pod)


def is_healthy(pod: Mapping[str, Any]) -> bool:
    return is_running_and_ready(pod) and not is_terminating(pod)


def stateful_pod(
    owner: Mapping[str, Any], ordinal: int, revision: Mapping[str, Any], reference: JsonObject
) -> JsonObject:
    """The pod with this ordinal from a revision's template."""
    name = f"{owner['metadata']['name']}-{ordinal}"
    pod = pod_from_template(template_of(revision), reference, name=name)
    own = {POD_NAME: name, POD_INDEX: str(ordinal), REVISION_HASH: revision["metadata"]["name"]}
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **own}
    pod["spec"]["hostname"] = name
    if service := owner["spec"].get("serviceName"):
        pod["spec"]["subdomain"] = service
    return with_claims(owner, ordinal, pod)


def stateful_step(
    owner: JsonObject,
    pods: Sequence[JsonObject],
    current: JsonObject,
    update: JsonObject,
    now_s: float,
    reference: JsonObject,
) -> StatefulStep:
    """`current` and `update`: the revisions before and after an update; the same while there is none."""
    return _StatefulSet(owner, pods, current, update, now_s, reference).step()


class _StatefulSet:
    def __init__(
        self,
        owner: JsonObject,
        pods: Sequence[JsonObject],
        current: JsonObject,
        update: JsonObject,
        now_s: float,
        reference: JsonObject,
    ) -> None:
        self.owner, self.current, self.update, self.now_s, self.reference = owner, current, update, now_s, reference
        self.is_ordered = owner["spec"].get("podManagementPolicy") != "Parallel"
        self.min_ready_s = min_ready_seconds(owner)
        self.by_ordinal = {
            ordinal: pod for pod in pods if (ordinal := ordinal_of(pod, owner["metadata"]["name"])) is not None
        }
        first = _start(owner)
        self.ordinals = range(first, first + desired_replicas(owner))
        self.condemned = sorted((each for each in self.by_ordinal if each not in self.ordinals), reverse=True)
        self.requeue_s: float | None = None

    def step(self) -> StatefulStep:
        create, delete, waits = self._filled()
        if not waits:
            surplus, waits = self._condemned()
            delete += surplus
        if not waits and not create and not delete and not _is_on_delete(self.owner):
            delete = self._outdated()
        if is_terminating(self.owner):
            create, delete = [], []
        return StatefulStep(tuple(create), tuple(delete), self._status(), self.requeue_s)

    def _filled(self) -> tuple[list[JsonObject], list[JsonObject], bool]:
        """Pods to create, ended pods to delete, and whether to wait before anything else."""
        create: list[JsonObject] = []
        delete: list[JsonObject] = []
        for ordinal in self.ordinals:
            pod = self.by_ordinal.get(ordinal)
            if pod is None:
                create.append(self._pod(ordinal))
            elif phase_of(pod) in TERMINAL:
                if not is_terminating(pod):
                    delete.append(pod)
            elif not self.is_ordered or self._is_available(pod):
                continue
            if self.is_ordered:
                return create, delete, True
        return create, delete, False

    def _is_available(self, pod: JsonObject) -> bool:
        if not is_healthy(pod):
            return False
        wait_s = available_in_s(pod, self.min_ready_s, self.now_s)
        if wait_s:
            self.requeue_s = wait_s
        return wait_s == 0

    def _condemned(self) -> tuple[list[JsonObject], bool]:
        """Pods beyond the last ordinal, and whether to wait before anything else."""
        pods = [self.by_ordinal[ordinal] for ordinal in self.condemned]
        if not self.is_ordered:
            return [pod for pod in pods if not is_terminating(pod)], False
        if not pods:
            return [], False
        # Those that stay come first, then those that go, by their ordinals: the last one waits for all of them.
        stay = [self.by_ordinal[ordinal] for ordinal in self.ordinals if ordinal in self.by_ordinal]
        first = next((pod for pod in (*stay, *reversed(pods)) if not self._is_available(pod)), None)
        waits = is_terminating(pods[0]) or (pods[0] is not first and not self._is_available(pods[0]))
        return ([] if waits else pods[:1]), True

    def _outdated(self) -> list[JsonObject]:
        """Pods of another revision, from the last to the partition, as many as may be missing."""
        value = _rolling(self.owner).get("maxUnavailable")
        most = max(count_or_percent(1 if value is None else value, desired_replicas(self.owner), up=True), 1)
        deleted: list[JsonObject] = []
        used = 0
        for ordinal in reversed(self.ordinals):
            pod = self.by_ordinal.get(ordinal)
            if ordinal - self.ordinals.start < _partition(self.owner) or used >= most:
                break
            if pod is None or is_terminating(pod):
                used += 1
            elif hash_of(pod) != self.update["metadata"]["name"]:
                deleted.append(pod)
                used += 1
            elif not self._is_available(pod):
                used += 1
        return deleted

    def _pod(self, ordinal: int) -> JsonObject:
        """Below the partition a pod that is missing gets the revision before the update."""
        place, rolling = ordinal - self.ordinals.start, self.owner["spec"].get("updateStrategy") or {}
        is_old = rolling.get("type") == "RollingUpdate" and place < _partition(self.owner)
        return stateful_pod(self.owner, ordinal, self.current if is_old else self.update, self.reference)

    # --- status ---

    def _status(self) -> JsonObject:
        before = self.owner.get("status") or {}
        pods = list(self.by_ordinal.values())
        current, update = self.current["metadata"]["name"], self.update["metadata"]["name"]
        replicas, ready = len(pods), sum(map(is_running_and_ready, pods))
        made_from = [hash_of(pod) for pod in pods if not is_terminating(pod)]
        old, new = made_from.count(current), made_from.count(update)
        if not _is_on_delete(self.owner) and new == replicas == ready and current != update:
            current, old = update, new
        status = {
            "observedGeneration": self.owner["metadata"].get("generation", 0),
            "replicas": replicas,
            "readyReplicas": ready,
            "currentReplicas": old,
            "updatedReplicas": new,
            "currentRevision": current,
            "updateRevision": update,
            "availableReplicas": sum(
                is_running_and_ready(pod) and is_available(pod, self.min_ready_s, self.now_s) for pod in pods
            ),
        }
        kept = {name: before[name] for name in ("conditions",) if name in before}
        shown = {name: value for name, value in status.items() if value or name in ("replicas", "availableReplicas")}
        return {**shown, "collisionCount": before.get("collisionCount") or 0, **kept}
