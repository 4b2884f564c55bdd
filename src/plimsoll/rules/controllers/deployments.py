"""Deployments: a ReplicaSet for each pod template; the newest one grows while the others shrink.

`rollout` computes the next sizes, and is called again after every change until it returns nothing. At any time there
are at most as many pods as maxSurge allows, and no available pod is removed below what maxUnavailable requires. When
the number of replicas changes during a rollout, all ReplicaSets grow or shrink in proportion (`proportional`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plimsoll.rules.controllers.pods import count_or_percent, desired_replicas
from plimsoll.rules.controllers.revisions import name_hash
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.scheduling.selectors import go_integer

POD_TEMPLATE_HASH = "pod-template-hash"
_PREFIX = "deployment.kubernetes.io/"
REVISION, HISTORY = f"{_PREFIX}revision", f"{_PREFIX}revision-history"
DESIRED, MAXIMUM = f"{_PREFIX}desired-replicas", f"{_PREFIX}max-replicas"
_NOT_COPIED = frozenset(
    {
        REVISION,
        HISTORY,
        DESIRED,
        MAXIMUM,
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
    }
)
_MAX_HISTORY = 2000  # characters
UNLIMITED = 2**31 - 1


# --- ReplicaSets of a deployment ---


def plain_template(document: Mapping[str, Any]) -> JsonObject:
    """The pod template without the label that a ReplicaSet adds, and without empty members."""
    template = document["spec"].get("template") or {}
    metadata = {name: value for name, value in (template.get("metadata") or {}).items() if value}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != POD_TEMPLATE_HASH}
    rest = {name: value for name, value in metadata.items() if name != "labels"}
    return {"metadata": {**rest, **({"labels": labels} if labels else {})}, "spec": template.get("spec") or {}}


def new_and_old(
    deployment: Mapping[str, Any], sets: Iterable[JsonObject]
) -> tuple[JsonObject | None, list[JsonObject]]:
    """The oldest ReplicaSet that has the current template, and all others, oldest first."""
    template = plain_template(deployment)
    ordered = sorted(sets, key=_created)
    new = next((each for each in ordered if plain_template(each) == template), None)
    return new, [each for each in ordered if each is not new]


def _created(document: Mapping[str, Any]) -> tuple[str, str]:
    metadata = document["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["name"]


def name_of(document: Mapping[str, Any]) -> str:
    return str(document["metadata"]["name"])


def annotation(document: Mapping[str, Any], name: str) -> str:
    return str((document["metadata"].get("annotations") or {}).get(name) or "")


def revision_of(document: Mapping[str, Any]) -> int:
    """0 where there is none, or none that is a number."""
    return go_integer(annotation(document, REVISION)) or 0


def next_revision(old: Iterable[Mapping[str, Any]]) -> int:
    return max(map(revision_of, old), default=0) + 1


def replica_set_of(
    deployment: Mapping[str, Any], reference: JsonObject, old: Sequence[Mapping[str, Any]] = ()
) -> JsonObject:
    """The ReplicaSet for the deployment's current template, with as many replicas as there is room for."""
    spec, metadata = deployment["spec"], deployment["metadata"]
    template = spec["template"]
    digest = name_hash(plain_template(deployment), (deployment.get("status") or {}).get("collisionCount"))
    labels = {**((template.get("metadata") or {}).get("labels") or {}), POD_TEMPLATE_HASH: digest}
    selector = spec.get("selector") or {}
    most = bounds(deployment)[0]
    annotations = {**_copied(deployment), REVISION: str(next_revision(old)), **_sizes(deployment)}
    room = most - sum(map(desired_replicas, old))
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name'][: 253 - 1 - len(digest)]}-{digest}",
            "namespace": metadata.get("namespace", ""),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [reference],
        },
        "spec": {
            "replicas": max(min(desired_replicas(deployment), room), 0),
            **({"minReadySeconds": spec["minReadySeconds"]} if spec.get("minReadySeconds") else {}),
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: digest},
            },
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        },
    }


def _copied(deployment: Mapping[str, Any]) -> dict[str, str]:
    every = deployment["metadata"].get("annotations") or {}
    return {name: value for name, value in every.items() if name not in _NOT_COPIED}


def _sizes(deployment: Mapping[str, Any]) -> dict[str, str]:
    surge = 0 if is_recreate(deployment) else max_surge(deployment)
    wanted = desired_replicas(deployment)
    return {DESIRED: str(wanted), MAXIMUM: str(wanted + surge)}


def synced_annotations(
    deployment: Mapping[str, Any], new: Mapping[str, Any], old: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """What changes in the newest ReplicaSet's annotations: the deployment's own, and the revision when it is used
    again."""
    before = new["metadata"].get("annotations") or {}
    wanted = _copied(deployment)
    text, revision = annotation(new, REVISION), next_revision(old)
    known = go_integer(text) if text else 0
    if known is not None and known < revision:
        wanted[REVISION] = str(revision)
        if text:
            wanted[HISTORY] = _history(annotation(new, HISTORY), text)
    return {name: value for name, value in wanted.items() if before.get(name) != value}


def _history(before: str, revision: str) -> str:
    """The oldest revisions are removed when the text is too long."""
    every = [*filter(None, before.split(",")), revision]
    while len(",".join(every)) > _MAX_HISTORY:
        every = every[1:]
    return ",".join(every)


def surplus_sets(deployment: Mapping[str, Any], old: Iterable[JsonObject]) -> list[JsonObject]:
    """Old ReplicaSets beyond `revisionHistoryLimit`, the lowest revisions first; one that still has pods is kept."""
    limit = deployment["spec"].get("revisionHistoryLimit")
    if limit is None or limit == UNLIMITED:
        return []
    alive = [each for each in old if not each["metadata"].get("deletionTimestamp")]
    first = sorted(alive, key=lambda each: (revision_of(each), _created(each)))[: max(len(alive) - limit, 0)]
    return [
        each for each in first if not desired_replicas(each) and not _count(each, "replicas") and _is_observed(each)
    ]


def _is_observed(document: Mapping[str, Any]) -> bool:
    return _count(document, "observedGeneration") >= (document["metadata"].get("generation") or 0)


def _count(replica_set: Mapping[str, Any], field: str) -> int:
    return int((replica_set.get("status") or {}).get(field) or 0)


def total(sets: Iterable[Mapping[str, Any]], field: str) -> int:
    return sum(_count(each, field) for each in sets)


# --- bounds ---


def is_recreate(deployment: Mapping[str, Any]) -> bool:
    return (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"


def _rolling(deployment: Mapping[str, Any]) -> tuple[int, int]:
    """maxSurge and maxUnavailable as numbers; not both are 0."""
    wanted = desired_replicas(deployment)
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge = count_or_percent(rolling.get("maxSurge", "25%"), wanted, up=True)
    unavailable = count_or_percent(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    return surge, unavailable if surge or unavailable else 1


def max_surge(deployment: Mapping[str, Any]) -> int:
    return _rolling(deployment)[0]


def bounds(deployment: Mapping[str, Any]) -> tuple[int, int]:
    """The maximum number of pods, and the minimum number of available pods, during a rollout."""
    wanted = desired_replicas(deployment)
    if is_recreate(deployment):
        return wanted, wanted
    surge, unavailable = _rolling(deployment)
    return wanted + surge, max(wanted - min(unavailable, wanted), 0)


# --- sizes ---


def is_scaling(deployment: Mapping[str, Any], sets: Iterable[Mapping[str, Any]]) -> bool:
    """Whether `spec.replicas` has changed since the sizes were computed."""
    wanted = str(desired_replicas(deployment))
    known = [annotation(each, DESIRED) for each in sets if desired_replicas(each)]
    return any(go_integer(text) is not None and text != wanted for text in known)


def rollout(
    deployment: Mapping[str, Any], new: JsonObject, old: Sequence[JsonObject], *, runs_old: bool = False
) -> dict[str, int]:
    """The next number of replicas for each ReplicaSet that must change, by name. Called again until nothing changes.

    `runs_old`: whether pods of other templates still run, which Recreate waits for.
    """
    wanted = desired_replicas(deployment)
    if is_recreate(deployment):
        active = [each for each in old if desired_replicas(each)]
        if active:
            return {name_of(each): 0 for each in active}
        return {} if runs_old or desired_replicas(new) == wanted else {name_of(new): wanted}
    most, least = bounds(deployment)
    size = desired_replicas(new)
    every = [*old, new]
    if size > wanted:
        return {name_of(new): wanted}
    room = min(most - sum(map(desired_replicas, every)), wanted - size)
    if room > 0:
        return {name_of(new): size + room}
    return _shrunk(old, new, least)


def _shrunk(old: Sequence[JsonObject], new: JsonObject, least: int) -> dict[str, int]:
    """Shrink old ReplicaSets: unavailable pods first, then as many as stay above the minimum.

    Pods of the new ReplicaSet that are not available count as missing, so a template that never becomes available
    removes at most maxUnavailable pods.
    """
    every, sizes = [*old, new], {name_of(each): desired_replicas(each) for each in old}
    before = dict(sizes)
    missing = desired_replicas(new) - _count(new, "availableReplicas")
    left = sum(map(desired_replicas, every)) - least - missing
    if left <= 0 or not any(sizes.values()):
        return {}
    for each in sorted(old, key=_created):
        broken = min(max(sizes[name_of(each)] - _count(each, "availableReplicas"), 0), left)
        sizes[name_of(each)] -= broken
        left -= broken
    spare = total(every, "availableReplicas") - least
    for each in sorted(old, key=_created):
        working = max(min(sizes[name_of(each)], spare), 0)
        sizes[name_of(each)] -= working
        spare -= working
    return {name: size for name, size in sizes.items() if size != before[name]}


def proportional(
    deployment: Mapping[str, Any], new: JsonObject | None, old: Sequence[JsonObject]
) -> tuple[dict[str, int], list[JsonObject]]:
    """Sizes after a change of `spec.replicas`, and the ReplicaSets whose annotations then say so."""
    wanted = desired_replicas(deployment)
    every = [*old, *([] if new is None else [new])]
    active = [each for each in every if desired_replicas(each)]
    if len(active) <= 1:
        only = active[0] if active else new or max(old, key=_created, default=None)
        return ({}, []) if only is None else ({name_of(only): wanted}, [only])
    if new is not None and _is_saturated(new, wanted):
        others = [each for each in active if each is not new]
        return {name_of(each): 0 for each in others}, others
    if is_recreate(deployment):
        return {}, []
    return _shared(deployment, active, (bounds(deployment)[0] if wanted else 0)), active


def _is_saturated(new: Mapping[str, Any], wanted: int) -> bool:
    known = go_integer(annotation(new, DESIRED))
    return desired_replicas(new) == wanted == known and _count(new, "availableReplicas") == wanted


def _shared(deployment: Mapping[str, Any], active: Sequence[JsonObject], allowed: int) -> dict[str, int]:
    """Distribute what is missing or too much, the largest ReplicaSet first; it also gets the rest."""
    to_add = allowed - sum(map(desired_replicas, active))
    sizes = {name_of(each): desired_replicas(each) for each in active}
    if not to_add:
        return sizes
    # Of equal ones the newest grows first, and the oldest shrinks first.
    ordered = sorted(sorted(active, key=_created, reverse=to_add > 0), key=desired_replicas, reverse=True)
    added = 0
    for each in ordered:
        part = _proportion(deployment, each, to_add, added)
        sizes[name_of(each)] += part
        added += part
    first = name_of(ordered[0])
    sizes[first] = max(sizes[first] + to_add - added, 0)
    return sizes


def _proportion(deployment: Mapping[str, Any], replica_set: Mapping[str, Any], to_add: int, added: int) -> int:
    if to_add == added:
        return 0
    fraction, left = _fraction(deployment, replica_set), to_add - added
    return min(fraction, left) if to_add > 0 else max(fraction, left)


def _fraction(deployment: Mapping[str, Any], replica_set: Mapping[str, Any]) -> int:
    size = desired_replicas(replica_set)
    if not desired_replicas(deployment):
        return -size
    before = go_integer(annotation(replica_set, MAXIMUM)) or _count(deployment, "replicas")
    if not before:
        return 0
    return math.floor(size * bounds(deployment)[0] / before + 0.5) - size


def scaled(deployment: Mapping[str, Any], replica_set: Mapping[str, Any], size: int) -> JsonObject | None:
    """The patch of a ReplicaSet, or None where it is so already."""
    annotations = {name: text for name, text in _sizes(deployment).items() if annotation(replica_set, name) != text}
    change: JsonObject = {"metadata": {"annotations": annotations}} if annotations else {}
    if size != desired_replicas(replica_set):
        change["spec"] = {"replicas": size}
    return change or None


def scaling_message(replica_set: Mapping[str, Any], size: int) -> str:
    before = desired_replicas(replica_set)
    return f"Scaled {'up' if size > before else 'down'} replica set {name_of(replica_set)} from {before} to {size}"
