"""The state of list and watch, without I/O: list, watch, and list again when the resourceVersion has expired.

`Reflector` gives the next request and converts each line into changes for its caller. A relist is compared with the
known objects, so it results in changes as well: a lost connection, an expired version and a restart need no other code.
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
    """`body` is the object's JSON; empty where a relist no longer has the object."""

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


class _StatusError(msgspec.Struct, frozen=True):
    code: int = 500
    reason: str = ""
    message: str = ""


_EVENT, _HEAD = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Head)
_PAGE, _STATUS_ERROR = msgspec.json.Decoder(_Page), msgspec.json.Decoder(_StatusError)


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
        """A page of the list where no version is known, else a watch."""
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
        """Take one page: the changes after the last one, None where there is another page to request."""
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
        return self._compare([(_HEAD.decode(item).metadata, bytes(item)) for item in items])

    def line(self, text: bytes) -> list[ObjectChange]:
        """Take one line of a watch. An expired version yields no changes; the next request is then a list."""
        event = _EVENT.decode(text)
        if event.type == "ERROR":
            self._start_over()
            status = _STATUS_ERROR.decode(event.object)
            if status.code == 410:
                return []
            raise ApiError(status.code, status.reason, status.message)
        metadata = _HEAD.decode(event.object).metadata
        self._version = metadata.resource_version
        if event.type == "BOOKMARK":
            return []
        if event.type == "DELETED":
            before = self._known.pop(metadata.key, None)
            return [ObjectChange("DELETED", metadata.key, metadata.uid, bytes(event.object))] if before else []
        return self._take(metadata, bytes(event.object))

    def refused(self, answer: ApiResponse) -> None:
        """Take an error in place of a watch: list again where the version is too old, else raise it."""
        self._start_over()
        if answer.status != 410:
            raise api_error(answer)

    def _start_over(self) -> None:
        self._version = self._follow = ""
        self._pages = []

    def _take(self, metadata: _Metadata, body: bytes) -> list[ObjectChange]:
        before = self._known.get(metadata.key)
        self._known[metadata.key] = metadata
        if before is None:
            return [ObjectChange("ADDED", metadata.key, metadata.uid, body)]
        if before.uid != metadata.uid:  # another object with the same name: the old one is deleted
            return [_deleted(before), ObjectChange("ADDED", metadata.key, metadata.uid, body)]
        if before.resource_version == metadata.resource_version:
            return []
        return [ObjectChange("MODIFIED", metadata.key, metadata.uid, body)]

    def _compare(self, items: list[tuple[_Metadata, bytes]]) -> list[ObjectChange]:
        left = set(self._known) - {metadata.key for metadata, _ in items}
        changes = [_deleted(self._known.pop(key)) for key in sorted(left)]
        for metadata, body in items:
            changes += self._take(metadata, body)
        return changes


def _deleted(metadata: _Metadata) -> ObjectChange:
    return ObjectChange("DELETED", metadata.key, metadata.uid, b"")
