"""The claims of a StatefulSet's pods: one for each template and ordinal, named `TEMPLATE-SET-ORDINAL`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.rules.model.json_object import JsonObject


def _templates(owner: Mapping[str, Any]) -> list[JsonObject]:
    return owner["spec"].get("volumeClaimTemplates") or []


def claim_name(template: str, owner: str, ordinal: int) -> str:
    return f"{template}-{owner}-{ordinal}"


def with_claims(owner: Mapping[str, Any], ordinal: int, pod: JsonObject) -> JsonObject:
    """The pod with the claims as volumes, which replace volumes of the same name."""
    templates = _templates(owner)
    if not templates:
        return pod
    name = owner["metadata"]["name"]
    claims = [
        {
            "name": each["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": claim_name(each["metadata"]["name"], name, ordinal)},
        }
        for each in templates
    ]
    names = {each["name"] for each in claims}
    others = [each for each in pod["spec"].get("volumes") or [] if each.get("name") not in names]
    return {**pod, "spec": {**pod["spec"], "volumes": [*claims, *others]}}


def claims_of(owner: Mapping[str, Any], ordinal: int) -> list[JsonObject]:
    """The claims that the pod with this ordinal needs."""
    metadata = owner["metadata"]
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                **{field: each["metadata"][field] for field in ("annotations",) if each["metadata"].get(field)},
                "name": claim_name(each["metadata"]["name"], metadata["name"], ordinal),
                "namespace": metadata["namespace"],
                "labels": {**(each["metadata"].get("labels") or {}), **labels},
            },
            "spec": each.get("spec") or {},
        }
        for each in _templates(owner)
    ]


def ordinal_of_claim(owner: Mapping[str, Any], claim: Mapping[str, Any]) -> int | None:
    """The ordinal whose claim this is; None for claims of others."""
    for template in _templates(owner):
        prefix = f"{template['metadata']['name']}-{owner['metadata']['name']}-"
        rest = claim["metadata"]["name"].removeprefix(prefix)
        if claim["metadata"]["name"].startswith(prefix) and rest.isdecimal() and str(int(rest)) == rest:
            return int(rest)
    return None


def claim_owners(
    owner: Mapping[str, Any], claim: Mapping[str, Any], pod: Mapping[str, Any] | None, reference: JsonObject
) -> list[JsonObject] | None:
    """The claim's ownerReferences by the retention policy; None if they are right already.

    With `whenDeleted: Delete` the set owns the claim. With `whenScaled: Delete` the pod of an ordinal that is no longer
    wanted owns it, so both are deleted together.
    """
    policy = owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    ordinal = ordinal_of_claim(owner, claim)
    if ordinal is None:
        return None
    start = (owner["spec"].get("ordinals") or {}).get("start") or 0
    replicas = owner["spec"].get("replicas")
    is_wanted = start <= ordinal < start + (1 if replicas is None else replicas)
    wanted: list[JsonObject] = []
    if policy.get("whenScaled") == "Delete" and not is_wanted and pod is not None:
        wanted = [_pod_reference(pod)]
    elif policy.get("whenDeleted") == "Delete":
        wanted = [{**reference, "controller": True, "blockOwnerDeletion": True}]
    known = claim["metadata"].get("ownerReferences") or []
    kept = [each for each in known if each.get("kind") not in ("StatefulSet", "Pod")]
    after = [*kept, *wanted]
    return None if _uids(after) == _uids(known) else after


def _uids(references: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(str(each.get("uid")) for each in references)


def _pod_reference(pod: Mapping[str, Any]) -> JsonObject:
    metadata = pod["metadata"]
    return {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
