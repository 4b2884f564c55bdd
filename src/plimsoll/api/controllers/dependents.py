"""The objects that the owners of one kind control, and those without a controller that an owner may adopt.

Both are indexes kept from the store's changes. An owner takes what its selector matches and gives up the rest
(`rules.controllers.adoption`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from plimsoll.api.controllers.controller import ControllerContext, read
from plimsoll.kube.request import ResourcePath
from plimsoll.rules.controllers.adoption import adopted_references, claims, released_references, selector_of
from plimsoll.rules.controllers.owner_references import controller_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import LabelSelector
from plimsoll.rules.scheduling.selectors import matches_selector
from plimsoll.store.records import Record


class _Reference(msgspec.Struct):
    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Metadata(msgspec.Struct, rename="camel"):
    owner_references: list[_Reference] | None = None
    namespace: str = ""
    labels: dict[str, str] | None = None

    @property
    def controller(self) -> _Reference | None:
        return next((each for each in self.owner_references or () if each.controller), None)


class _Object(msgspec.Struct):
    metadata: _Metadata


_OBJECT = msgspec.json.Decoder(_Object)
_OWNERS = b'"ownerReferences":'


@lru_cache(256)  # this and the next: several controllers ask about the same body, one after the other
def _metadata(body: bytes) -> _Metadata:
    return _OBJECT.decode(body).metadata


@lru_cache(256)
def _controller(body: bytes) -> _Reference | None:
    return _metadata(body).controller if _OWNERS in body else None


class Orphans:
    """The keys of the objects of one kind that have no controller, by namespace. Shared by all that may adopt them."""

    def __init__(self) -> None:
        self._keys: dict[str, set[str]] = {}

    def note(self, key: str, *, is_orphan: bool) -> None:
        namespace = key.split("/")[2]
        if is_orphan:
            self._keys.setdefault(namespace, set()).add(key)
        elif namespace in self._keys:
            self._keys[namespace].discard(key)
            if not self._keys[namespace]:
                del self._keys[namespace]

    def of(self, namespace: str) -> list[str]:
        return sorted(self._keys.get(namespace, ()))


class Dependents:
    """`prefix`: of the owners in the store; `orphans`: the index for the kind of the dependents."""

    def __init__(self, context: ControllerContext, kind: str, prefix: str, orphans: Orphans) -> None:
        self._context, self._kind, self._prefix, self._orphans = context, kind, prefix, orphans
        self._keys: dict[str, set[str]] = {}  # owner's uid → keys
        self._selectors: dict[str, dict[str, tuple[str, LabelSelector]]] = {}  # namespace → owner's key → uid, selector
        self._unclaimed: dict[str, set[str]] = {}  # owner's key → orphans that match
        self._unsearched: set[str] = set()  # owners whose selector was not compared with all orphans yet
        self._noted: Record | None = None  # the last one

    def owner_changed(self, key: str, _: bytes) -> Iterable[str]:
        """An owner concerns itself; its selector is kept for orphans that come later."""
        namespace, owner = key.split("/")[2], self._context.document(key)
        known = self._selectors.setdefault(namespace, {})
        if owner is not None:
            now = (owner["metadata"]["uid"], selector_of(owner))
            if known.get(key) != now:
                known[key] = now
                self._unsearched.add(key)
        else:
            known.pop(key, None)
            self._unclaimed.pop(key, None)
            self._unsearched.discard(key)
        if not known:
            del self._selectors[namespace]
        return (key,)

    def concerns(self, key: str, body: bytes) -> Iterable[str]:
        """An object concerns its owner, and every owner that may adopt it."""
        self.note(key)
        owner = _controller(body)
        namespace = key.split("/")[2]
        if owner is not None:
            if owner.kind != self._kind:
                return ()
            if self._context.store.get(key) is None:
                self._forget(owner.uid, key)
            return (f"{self._prefix}{namespace}/{owner.name}",)
        selectors = self._selectors.get(namespace)
        if not selectors:
            return ()
        labels = _metadata(body).labels
        matching = [each for each, (_, selector) in selectors.items() if matches_selector(selector, labels)]
        for each in matching:
            self._unclaimed.setdefault(each, set()).add(key)
        return matching

    def note(self, key: str) -> None:
        """Take the object's present state into the indexes; a change asks for it twice, for its bodies."""
        record = self._context.store.get(key)
        if record is not None and record is self._noted:
            return
        self._noted = record
        owner = None if record is None else _controller(record.body)
        self._orphans.note(key, is_orphan=record is not None and owner is None)
        if owner is not None and owner.kind == self._kind:
            self._keys.setdefault(owner.uid, set()).add(key)

    def of(self, uid: str) -> list[JsonObject]:
        """Those that exist now and still have this owner."""
        found = []
        for key in sorted(self._keys.get(uid, ())):
            document = self._context.document(key)
            if document is not None and controller_of(document) == uid:
                found.append(document)
            else:
                self._forget(uid, key)
        return found

    def _forget(self, uid: str, key: str) -> None:
        keys = self._keys.get(uid, set())
        keys.discard(key)
        if not keys:
            self._keys.pop(uid, None)

    async def claimed(
        self, owner: JsonObject, reference: JsonObject, resource: ResourcePath, finalizer: str = ""
    ) -> list[JsonObject]:
        """What the owner controls, after adoption and release. `resource`: of the dependents.

        `finalizer`: what adopted objects get.
        """
        metadata = owner["metadata"]
        decided = claims(owner, [*self.of(metadata["uid"]), *self._adoptable(owner)])
        owned = list(decided.owned)
        for each in decided.release:
            left = released_references(each, metadata["uid"])
            await self._context.patch(resource, each, {"metadata": {"ownerReferences": left or None}})
        for each in decided.adopt:
            taken: JsonObject = {"ownerReferences": adopted_references(each, reference)}
            if finalizer and finalizer not in (each["metadata"].get("finalizers") or ()):
                taken["finalizers"] = [*(each["metadata"].get("finalizers") or ()), finalizer]
            if await self._context.patch(resource, each, {"metadata": taken}):
                owned.append({**each, "metadata": {**each["metadata"], **taken}})
        return owned

    def _adoptable(self, owner: JsonObject) -> list[JsonObject]:
        """Orphans that match: all of the namespace for a new selector, then those that changed."""
        namespace, selector = owner["metadata"]["namespace"], selector_of(owner)
        key = f"{self._prefix}{namespace}/{owner['metadata']['name']}"
        keys = self._unclaimed.pop(key, set())
        if key in self._unsearched:
            self._unsearched.discard(key)
            keys |= set(self._orphans.of(namespace))
        found = []
        for each in sorted(keys):
            record = self._context.store.get(each)
            if record is None or _controller(record.body) is not None:
                continue
            if matches_selector(selector, _metadata(record.body).labels):
                found.append(read(record))
        return found
