"""List, then watch, then list again when the server has forgotten where we were: the state of that, without I/O.

`Reflector` says what to ask next and turns each line into changes for whoever keeps the objects. A relist is compared
with what is known, so its result is the same kind of changes: a lost connection, an expired version and a restart are
then all the normal case.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.kube.request import ApiError, ApiResponse, Request, ResourcePath, api_error, listing, watching

PAGE = 500
WATCH_TIMEOUT_S = 420
ChangeKind = Literal["ADDED", "MODIFIED", "DELETED"]
Key = tuple[str, str]  # namespace, name


class ObjectChange(msgspec.Struct, frozen=True):
    """`body` is the object's JSON, to be read into whatever type its user computes with; empty after a relist that no
    longer has it."""

    kind: ChangeKind
    key: Key
    uid: str
    body: bytes


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class _Head(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    follow: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


class _Trouble(msgspec.Struct, frozen=True):
    code: int = 500
    reason: str = ""
    message: str = ""


_EVENT, _HEAD = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Head)
_PAGE, _TROUBLE = msgspec.json.Decoder(_Page), msgspec.json.Decoder(_Trouble)


class Reflector:
    def __init__(self, resource: ResourcePath, *, fields: str = "", namespace: str = "") -> None:
        self._resource, self._fields, self._namespace = resource, fields, namespace
        self._known: dict[Key, _Metadata] = {}
        self._pages: list[msgspec.Raw] = []
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

    def listed(self, answer: ApiResponse) -> list[ObjectChange] | None:
        """Take one page: the changes once it was the last, None where another page is to be asked for."""
        if answer.status >= 400:
            self._start_over()
            raise api_error(answer)
        page = _PAGE.decode(answer.body)
        self._pages += page.items or []
        self._follow = page.metadata.follow
        if self._follow:
            return None
        items, self._pages = self._pages, []
        self._version = page.metadata.resource_version
        return self._compared([(_HEAD.decode(each).metadata, bytes(each)) for each in items])

    def line(self, text: bytes) -> list[ObjectChange]:
        """Take one line of a watch. Expired: nothing, and the next request is a list."""
        event = _EVENT.decode(text)
        if event.type == "ERROR":
            self._start_over()
            trouble = _TROUBLE.decode(event.object)
            if trouble.code == 410:
                return []
            raise ApiError(trouble.code, trouble.reason, trouble.message)
        found = _HEAD.decode(event.object).metadata
        self._version = found.resource_version
        if event.type == "BOOKMARK":
            return []
        if event.type == "DELETED":
            before = self._known.pop(found.key, None)
            return [ObjectChange("DELETED", found.key, found.uid, bytes(event.object))] if before else []
        return self._taken(found, bytes(event.object))

    def refused(self, answer: ApiResponse) -> None:
        """A watch that did not begin: list anew where the version is too old, else an error for the caller."""
        self._start_over()
        if answer.status != 410:
            raise api_error(answer)

    def _start_over(self) -> None:
        self._version = self._follow = ""
        self._pages = []

    def _taken(self, found: _Metadata, body: bytes) -> list[ObjectChange]:
        before = self._known.get(found.key)
        self._known[found.key] = found
        if before is None:
            return [ObjectChange("ADDED", found.key, found.uid, body)]
        if before.uid != found.uid:  # a namesake: the old one is gone
            return [_gone(before), ObjectChange("ADDED", found.key, found.uid, body)]
        if before.resource_version == found.resource_version:
            return []
        return [ObjectChange("MODIFIED", found.key, found.uid, body)]

    def _compared(self, items: list[tuple[_Metadata, bytes]]) -> list[ObjectChange]:
        left = set(self._known) - {found.key for found, _ in items}
        changes = [_gone(self._known.pop(key)) for key in sorted(left)]
        for found, body in items:
            changes += self._taken(found, body)
        return changes


def _gone(found: _Metadata) -> ObjectChange:
    return ObjectChange("DELETED", found.key, found.uid, b"")
