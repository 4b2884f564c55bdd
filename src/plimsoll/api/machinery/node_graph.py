"""Which objects are related to which node: pods by their binding, and what these pods refer to.

The node authorizer asks it. It is kept from a watch of the pods, which is read at each question, so the answer is as
new as the last commit. What a bound pod refers to never changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from plimsoll.rules.admission.node_restriction import references
from plimsoll.store.errors import ExpiredError
from plimsoll.store.feed import Watch
from plimsoll.store.records import Change, Record
from plimsoll.store.store import Store

_decode = msgspec.json.Decoder().decode
_Object = tuple[str, str, str]  # resource, namespace, name


class _BoundPod(msgspec.Struct, frozen=True):
    node: str
    objects: tuple[_Object, ...]


class NodeGraph:
    def __init__(self, store: Store, pods: str) -> None:
        """`pods`: the prefix of their keys."""
        self._store, self._prefix = store, pods
        self._watch: Watch | None = None
        self._pods: dict[str, _BoundPod] = {}  # by key
        self._users: dict[_Object, Counter[str]] = {}  # how many pods of each node refer to it

    def is_related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        self._catch_up()
        if resource == "pods":
            bound = self._pods.get(f"{self._prefix}{namespace}/{name}")
            return bound is not None and bound.node == node
        if resource == "persistentvolumes":
            record = self._store.get(f"/persistentvolumes//{name}")
            claim = (_decode(record.body)["spec"].get("claimRef") or {}) if record is not None else {}
            resource, namespace, name = "persistentvolumeclaims", claim.get("namespace") or "", claim.get("name") or ""
        return node in self._users.get((resource, namespace, name), ())

    def _catch_up(self) -> None:
        if self._watch is None:
            self._read_all()
            return
        try:
            while changes := self._watch.ready():
                for change in changes:
                    self._apply(change)
        except ExpiredError:
            self._read_all()

    def _read_all(self) -> None:
        self._pods.clear()
        self._users.clear()
        version, records = self._store.list(self._prefix)
        self._watch = self._store.watch(self._prefix, version)
        for record in records:
            self._add(record)

    def _apply(self, change: Change) -> None:
        record = change.record_after()
        if record is None:
            self._remove(change.key)
        elif change.key not in self._pods:
            self._add(record)

    def _add(self, record: Record) -> None:
        pod: Mapping[str, Any] = _decode(record.body)
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if not node:
            return
        namespace = pod["metadata"].get("namespace") or ""
        objects = tuple((resource, namespace, name) for resource, name in references(pod))
        self._pods[record.key] = _BoundPod(node, objects)
        for each in objects:
            self._users.setdefault(each, Counter())[node] += 1

    def _remove(self, key: str) -> None:
        bound = self._pods.pop(key, None)
        if bound is None:
            return
        for each in bound.objects:
            users = self._users[each]
            users[bound.node] -= 1
            if not users[bound.node]:
                del users[bound.node]
            if not users:
                del self._users[each]
