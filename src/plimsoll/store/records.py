"""The values that a store takes and returns.

A key is `<group>/<resource>/<namespace>/<name>`: the core group and the namespace of a cluster-wide object are empty
(`/pods/default/web`, `/nodes//n1`, `coordination.k8s.io/leases/kube-node-lease/n1`). A prefix is any beginning of a
key; end it with `/` to mean "all in this resource" or "all in this namespace".
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MAX_OBJECT_BYTES = 1_572_864  # as etcd's --max-request-bytes; every reader of an object takes time and memory for it
TOO_LARGE = f"the store accepts ({MAX_OBJECT_BYTES} bytes): make it smaller"
_MARK_BYTES = 4096  # by which one that is larger may grow: from an earlier version, and now being deleted

Kind = Literal["ADDED", "MODIFIED", "DELETED"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One object. `body` is its compact JSON, with `metadata.resourceVersion` = `version` in it."""

    key: str
    version: int
    body: bytes
    created: int  # the version that created the object: another one means another incarnation of the same name


class Delete(msgspec.Struct, frozen=True):
    """What `decide` returns to remove the object: its last state, stamped with the new version."""

    body: bytes


Decision = bytes | Delete | None


class Change(msgspec.Struct):
    """One committed change. Every watcher gets this same value: don't alter it, except `shared`.

    `before` is the body the change replaced or removed (None for ADDED), for objects that start or stop matching a
    selector. The body of a DELETED one is the last state stamped with the new version.
    """

    version: int
    kind: Kind
    key: str
    body: bytes
    before: bytes | None
    before_version: int
    created: int
    # For the layer above: what it computes once for all watchers (decoded objects, encoded lines). The store forgets it
    # when the change is no longer among the newest few hundred.
    shared: Any = None

    def record_before(self) -> Record | None:
        if self.before is None:
            return None
        return Record(self.key, self.before_version, self.before, self.created)

    def record_after(self) -> Record | None:
        return None if self.kind == "DELETED" else Record(self.key, self.version, self.body, self.created)


class History(msgspec.Struct, frozen=True):
    """How much of the past is kept, in memory and on disk: whichever bound is met first."""

    events: int = 8192
    bytes: int = 24 * 1024 * 1024  # bodies that only the history keeps


class StoreMetrics(msgspec.Struct):
    """Counters for metrics, plain numbers that only grow (but for `waiting`)."""

    commits: int = 0
    committed_changes: int = 0
    failed_commits: int = 0
    largest_batch: int = 0
    checkpoints: int = 0
    failed_checkpoints: int = 0
    waiting: int = 0  # changes decided and not yet durable


def is_too_large(change: Change) -> bool:
    before = 0 if change.before is None else len(change.before) + _MARK_BYTES
    return change.kind != "DELETED" and len(change.body) > max(MAX_OBJECT_BYTES, before)


def change_of(key: str, before: Record | None, version: int, decision: bytes | Delete) -> Change:
    """What a decision does to the record that it was made on."""
    if key.count("/") != 3 or not key.isprintable():  # what the log could not take would fail others with it
        raise ValueError(f"not a key: {key!r}")
    if before is None:
        if isinstance(decision, Delete):
            raise ValueError(f"there is no {key} to delete")
        return Change(version, "ADDED", key, bytes(decision), None, 0, version)
    if isinstance(decision, Delete):
        return Change(version, "DELETED", key, bytes(decision.body), before.body, before.version, before.created)
    return Change(version, "MODIFIED", key, bytes(decision), before.body, before.version, before.created)
