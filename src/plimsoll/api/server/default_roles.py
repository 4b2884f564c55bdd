"""The default roles and bindings, written at the start: created where they are missing, completed where rules are.

As in Kubernetes a role with the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"` is not changed, and
what an administrator has added stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from plimsoll.api.machinery.cluster import Cluster, decoded, key
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.metadata import body_of
from plimsoll.rules.access.default_roles import default_bindings, default_roles
from plimsoll.rules.access.rbac import GROUP, PolicyRule, Subject, uncovered
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.store.records import Decision, Record

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_Rules = tuple[PolicyRule, ...]


async def ensure_roles(cluster: Cluster) -> None:
    wanted = {key(stored_resource(storage), "", name): document for storage, name, document in _documents()}

    def decide(records: list[Record | None], versions: list[int]) -> Sequence[Decision]:
        return [
            _decision(cluster, record, document, version)
            for record, document, version in zip(records, wanted.values(), versions, strict=True)
        ]

    await cluster.store.change_many(list(wanted), decide)


def _decision(cluster: Cluster, record: Record | None, wanted: JsonObject, version: int) -> Decision:
    if record is None:
        metadata = {**wanted["metadata"], "uid": cluster.new_uid(), "creationTimestamp": cluster.now()}
        return body_of({**wanted, "metadata": metadata}, version)
    stored = decoded(record)
    if (stored["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
        return None
    completed = _completed(stored, wanted)
    return None if completed is stored else body_of(completed, version)


def _completed(stored: JsonObject, wanted: JsonObject) -> JsonObject:
    """With the rules and subjects that are missing."""
    if "roleRef" in wanted:
        have = stored.get("subjects") or []
        missing = [subject for subject in wanted.get("subjects") or () if subject not in have]
        return {**stored, "subjects": [*have, *missing]} if missing else stored
    rules = [msgspec.convert(each.get("rules") or (), _Rules) for each in (stored, wanted)]
    lacking = [rule for rule in rules[1] if uncovered([rule], rules[0])]
    if not lacking or stored.get("aggregationRule"):
        return stored
    return {**stored, "rules": [*(stored.get("rules") or ()), *msgspec.to_builtins(lacking)]}


def _documents() -> Iterator[tuple[str, str, JsonObject]]:
    """(storage, name, document)."""
    annotations = {AUTOUPDATE: "true"}
    for role in default_roles():
        metadata: JsonObject = {"name": role.name, "labels": {**_LABELS, **role.labels}, "annotations": annotations}
        document: JsonObject = {"metadata": metadata, "rules": msgspec.to_builtins(role.rules)}
        if role.selects:
            selectors = [{"matchLabels": {role.selects: "true"}}]
            document["aggregationRule"] = {"clusterRoleSelectors": selectors}
        yield "clusterroles", role.name, document
    for name, subjects in default_bindings():
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        metadata = {"name": name, "labels": _LABELS, "annotations": annotations}
        binding: JsonObject = {"metadata": metadata, "roleRef": reference}
        if subjects:
            binding["subjects"] = [_subject(subject) for subject in subjects]
        yield "clusterrolebindings", name, binding


def _subject(subject: Subject) -> JsonObject:
    written: JsonObject = {"kind": subject.kind, "name": subject.name}
    if subject.kind == "ServiceAccount":
        return {**written, "namespace": subject.namespace}
    return {"kind": subject.kind, "apiGroup": GROUP, "name": subject.name}
