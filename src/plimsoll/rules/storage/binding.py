"""Which volume belongs to which claim (the persistent volume binder), and which nodes can use a volume.

Only volumes that exist are bound: nothing here makes volumes. A claim whose class waits for its first consumer is bound
when a pod that uses it has a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.storage.objects import class_of_claim

NO_PROVISIONER = "kubernetes.io/no-provisioner"
BOUND, BOUND_BY_CONTROLLER = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"
WAITS = "WaitForFirstConsumer"


class Occurrence(msgspec.Struct, frozen=True):
    """An event about a claim."""

    type: str
    reason: str
    message: str


class Verdict(msgspec.Struct, frozen=True):
    """The volume to bind, or what is said about a claim that stays pending."""

    volume: JsonObject | None = None
    event: Occurrence | None = None


def is_bound(claim: JsonObject) -> bool:
    annotations = claim["metadata"].get("annotations") or {}
    return bool((claim.get("spec") or {}).get("volumeName")) and BOUND in annotations


def refers_to(volume: JsonObject, claim: JsonObject) -> bool:
    reference = (volume.get("spec") or {}).get("claimRef") or {}
    metadata = claim["metadata"]
    if (reference.get("namespace"), reference.get("name")) != (metadata.get("namespace"), metadata["name"]):
        return False
    return not reference.get("uid") or reference["uid"] == metadata["uid"]


def _storage(resources: Mapping[str, Any] | None) -> int:
    text = (resources or {}).get("storage")
    return QUANTITIES[str(text)].nanos if text is not None else 0


def _selects(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    if not selector:
        return True
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(term: JsonObject, labels: Mapping[str, str]) -> bool:
    key, values = term.get("key") or "", term.get("values") or ()
    match term.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt" as operator:
            found, bound = labels.get(key, ""), str(values[0]) if values else ""
            if not found.isdecimal() or not bound.isdecimal():
                return False
            return int(found) > int(bound) if operator == "Gt" else int(found) < int(bound)
    return False


def node_can_use(volume: JsonObject, node_name: str, labels: Mapping[str, str]) -> bool:
    """By the volume's node affinity; without one every node can."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if not required:
        return True
    for term in required.get("nodeSelectorTerms") or ():
        expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
        if not expressions and not fields:
            continue
        if all(_holds(each, labels) for each in expressions) and all(
            _holds(each, {"metadata.name": node_name}) for each in fields
        ):
            return True
    return False


def fitting_volume(claim: JsonObject, volumes: Iterable[JsonObject]) -> JsonObject | None:
    """The smallest volume that satisfies the claim; one that is reserved for it comes first."""
    spec = claim.get("spec") or {}
    wanted, modes = _storage((spec.get("resources") or {}).get("requests")), set(spec.get("accessModes") or ())
    found: list[tuple[int, str, JsonObject]] = []
    for volume in volumes:
        of_volume = volume.get("spec") or {}
        if volume["metadata"].get("deletionTimestamp"):
            continue
        if spec.get("volumeName") and volume["metadata"]["name"] != spec["volumeName"]:
            continue
        size = _storage(of_volume.get("capacity"))
        fits = (
            size >= wanted
            and modes <= set(of_volume.get("accessModes") or ())
            and (of_volume.get("storageClassName") or "") == class_of_claim(claim)
            and (of_volume.get("volumeMode") or "Filesystem") == (spec.get("volumeMode") or "Filesystem")
            and (of_volume.get("volumeAttributesClassName") or "") == (spec.get("volumeAttributesClassName") or "")
        )
        reference = of_volume.get("claimRef")
        if reference:
            if refers_to(volume, claim) and fits:
                return volume
            continue
        if fits and _selects(spec.get("selector"), volume["metadata"].get("labels") or {}):
            found.append((size, volume["metadata"]["name"], volume))
    return min(found, key=lambda each: each[:2])[2] if found else None


def claim_verdict(
    claim: JsonObject,
    volumes: Iterable[JsonObject],
    storage_class: JsonObject | None,
    node: JsonObject | None,
) -> Verdict:
    """What to do about a claim that is not bound. `node`: the node of its first consumer, if that is known."""
    waits = (storage_class or {}).get("volumeBindingMode") == WAITS and not (claim.get("spec") or {}).get("volumeName")
    candidates = list(volumes)
    if waits:
        if node is None:
            text = "waiting for first consumer to be created before binding"
            return Verdict(event=Occurrence("Normal", WAITS, text))
        labels = node["metadata"].get("labels") or {}
        candidates = [each for each in candidates if node_can_use(each, node["metadata"]["name"], labels)]
    chosen = fitting_volume(claim, candidates)
    if chosen is not None:
        return Verdict(chosen)
    name = class_of_claim(claim)
    if not name:
        text = "no persistent volumes available for this claim and no storage class is set"
        return Verdict(event=Occurrence("Normal", "FailedBinding", text))
    if storage_class is None:
        text = f'storageclass.storage.k8s.io "{name}" not found'
        return Verdict(event=Occurrence("Warning", "ProvisioningFailed", text))
    provisioner = storage_class.get("provisioner") or ""
    if provisioner == NO_PROVISIONER:
        text = f'storageclass.storage.k8s.io "{name}" has no provisioner, and no persistent volume fits this claim'
        return Verdict(event=Occurrence("Normal", "FailedBinding", text))
    text = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
        "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
        "correctly registered."
    )
    return Verdict(event=Occurrence("Normal", "ExternalProvisioning", text))


def volume_phase(volume: JsonObject, claim: JsonObject | None) -> str:
    """`claim`: the one that the volume refers to, if it exists with the same uid."""
    reference = (volume.get("spec") or {}).get("claimRef")
    if not reference:
        return "Available"
    if claim is not None:
        return "Bound" if (claim.get("spec") or {}).get("volumeName") == volume["metadata"]["name"] else "Available"
    return "Released" if reference.get("uid") else "Available"


def claims_of_pod(pod: JsonObject) -> list[str]:
    """Names of the claims that a pod mounts; generic ephemeral volumes have one of their own."""
    found = []
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append(str(volume["persistentVolumeClaim"].get("claimName") or ""))
        elif volume.get("ephemeral"):
            found.append(f"{pod['metadata']['name']}-{volume['name']}")
    return found
