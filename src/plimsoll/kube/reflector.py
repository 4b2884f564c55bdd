"""List, then watch, then list again when the server has forgotten where we were: the state of that, without I/O.

`Reflector` says what to ask next and turns each line into changes for whoever keeps the objects. A relist is compared
with what is known, so its result is the same kind of changes: a lost connection, an expired version and a restart are
then all the normal case.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from plimsoll.kube.request import Answer, ApiError, Request, Resource, api_error, listing, watching

PAGE = 500
WATCH_TIMEOUT_S = 420
ChangeKind = Literal["ADDED", "MODIFIED", "DELETED"]
Key = tuple[str, str]  # namespace, name


class ObjectChange(msgspec.Struct, frozen=True):
    """DELETED carries the last state where the server sent one, after a relist only the identity."""

    kind: ChangeKind
    key: Key
    document: dict[str, Any]


class _Known(msgspec.Struct, frozen=True, gc=False):
    version: str
    uid: str

    def gone(self, key: Key) -> ObjectChange:
        return ObjectChange("DELETED", key, {"metadata": {"namespace": key[0], "name": key[1], "uid": self.uid}})


class Reflector:
    def __init__(self, resource: Resource, *, fields: str = "", namespace: str = "") -> None:
        self._resource, self._fields, self._namespace = resource, fields, namespace
        self._known: dict[Key, _Known] = {}
        self._pages: list[dict[str, Any]] = []
        self._follow = ""
        self._version = ""  # empty: list first

    @property
    def synced(self) -> bool:
        return bool(self._version)

    def request(self) -> Request:
        """A list page where we don't know where we are, else a watch."""
        if self._version:
            return watching(
                self._resource,
                self._version,
                namespace=self._namespace,
                fields=self._fields,
                timeout_s=WATCH_TIMEOUT_S,
            )
        return listing(self._resource, namespace=self._namespace, fields=self._fields, limit=PAGE, follow=self._follow)

    def listed(self, answer: Answer) -> list[ObjectChange] | None:
        """Take one page: the changes once it was the last, None where another page is to be asked for."""
        if answer.status >= 400:
            self._start_over()
            raise api_error(answer)
        page = msgspec.json.decode(answer.body)
        self._pages += page.get("items") or []
        self._follow = page["metadata"].get("continue", "")
        if self._follow:
            return None
        items, self._pages = self._pages, []
        self._version = page["metadata"]["resourceVersion"]
        return self._compared(items)

    def line(self, text: bytes) -> list[ObjectChange]:
        """Take one line of a watch. Expired: nothing, and the next request is a list."""
        event = msgspec.json.decode(text)
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            self._start_over()
            if found.get("code") == 410:
                return []
            raise ApiError(found.get("code", 500), found.get("reason", ""), found.get("message", ""))
        self._version = found["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return []
        return self._taken(kind, found)

    def refused(self, answer: Answer) -> None:
        """A watch that did not begin: list anew where the version is too old, else an error for the caller."""
        self._start_over()
        if answer.status != 410:
            raise api_error(answer)

    def _start_over(self) -> None:
        self._version = self._follow = ""
        self._pages = []

    def _taken(self, kind: str, found: dict[str, Any]) -> list[ObjectChange]:
        key = _key(found)
        before = self._known.get(key)
        if kind == "DELETED":
            self._known.pop(key, None)
            return [ObjectChange("DELETED", key, found)] if before else []
        metadata = found["metadata"]
        self._known[key] = _Known(metadata["resourceVersion"], metadata.get("uid", ""))
        if before is None:
            return [ObjectChange("ADDED", key, found)]
        if before.uid != metadata.get("uid", ""):  # a namesake: the old one is gone
            return [before.gone(key), ObjectChange("ADDED", key, found)]
        if before.version == metadata["resourceVersion"]:
            return []
        return [ObjectChange("MODIFIED", key, found)]

    def _compared(self, items: list[dict[str, Any]]) -> list[ObjectChange]:
        left = set(self._known) - {_key(each) for each in items}
        changes = [self._known.pop(key).gone(key) for key in sorted(left)]
        for each in items:
            changes += self._taken("ADDED", each)
        return changes


def _key(found: dict[str, Any]) -> Key:
    metadata = found["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
