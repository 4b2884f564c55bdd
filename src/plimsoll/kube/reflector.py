"""The state of list and watch, without I/O: list, watch, and list again when the resourceVersion has expired.

`Reflector` gives the next request and converts each line into changes for its caller. A relist is compared with the
known objects, so it results in changes as well: a lost connection, an expired version and a restart need no other code.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.kube.request import (
    ApiError,
    ApiResponse,
    Request,
    ResourcePath,
    UnusableAnswerError,
    api_error,
    decoded_as,
    listing,
    watching,
)

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
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _ListMetadata


class _StatusError(msgspec.Struct, frozen=True):
    code: int = 500
    reason: str = ""
    message: str = ""


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
        try:
            page = self._page(answer)
            self._pages += page.items or []
            self._follow = page.metadata.follow
            if self._follow:
                return None
            items = [(_metadata(item), bytes(item)) for item in self._pages]
        except (ApiError, UnusableAnswerError):
            self._start_over()
            raise
        self._pages = []
        self._version = page.metadata.resource_version
        return self._compare(items)

    def _page(self, answer: ApiResponse) -> _Page:
        """A wrong list would delete every object that it lacks, so it must be a list of this kind, with a version."""
        if answer.status >= 400:
            raise api_error(answer)
        page = decoded_as(answer.body, _Page, f"the list of {self._resource.plural}")
        kind = f"{self._resource.kind}List"
        if not page.kind.endswith("List") or (self._resource.kind and page.kind != kind):
            raise UnusableAnswerError(f"the list of {self._resource.plural} is a {page.kind or 'nameless kind'}")
        if not page.metadata.resource_version:
            raise UnusableAnswerError(f"the list of {self._resource.plural} has no resourceVersion")
        return page

    def line(self, text: bytes) -> list[ObjectChange]:
        """Take one line of a watch. An expired version yields no changes; the next request is then a list."""
        try:
            event = decoded_as(text, _Event, f"a line of the watch of {self._resource.plural}")
            if event.type == "ERROR":
                status = decoded_as(event.object, _StatusError, "the error of the watch")
                raise ApiError(status.code, status.reason, status.message)
            if event.type == "BOOKMARK":
                self._version = decoded_as(event.object, _Bookmark, "a bookmark").metadata.resource_version
                return []
            metadata = _metadata(event.object)
        except ApiError as error:
            self._start_over()
            if error.code == 410:
                return []
            raise
        except UnusableAnswerError:
            self._start_over()
            raise
        self._version = metadata.resource_version
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


def _metadata(item: msgspec.Raw) -> _Metadata:
    metadata = decoded_as(item, _Head, "an object").metadata
    if not metadata.name or not metadata.resource_version:
        raise UnusableAnswerError("an object has no name or no resourceVersion")
    return metadata


def _deleted(metadata: _Metadata) -> ObjectChange:
    return ObjectChange("DELETED", metadata.key, metadata.uid, b"")
