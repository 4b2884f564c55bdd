"""From stored bytes to the forms a client may request: the object itself, a Table row, its metadata (05 B7, 06 E3).

Bodies are stored without `kind` and `apiVersion`, as list items are printed. So one object is the resource's opening
and the body's rest, and a list is its bodies with commas between them. Only Tables and metadata views decode anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from functools import lru_cache

import msgspec

from plimsoll.api.machinery.encoding import as_yaml, encoded
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.negotiate import MediaType, View
from plimsoll.api.machinery.rounds import Pace
from plimsoll.api.machinery.status import bad_request
from plimsoll.api.machinery.versions import in_its_version, is_stored_form
from plimsoll.api.tables.columns import Printer
from plimsoll.api.tables.custom_printer import custom_printer
from plimsoll.api.tables.pod_printer import pod_conditions
from plimsoll.api.tables.printers import printer
from plimsoll.codec.schema.custom import served
from plimsoll.rules.model.json_object import JsonObject

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
PIECE_BYTES = 256 * 1024  # of a list, at least
_INCLUDES = ("", "Metadata", "Object", "None")
_decode = msgspec.json.Decoder().decode

# What a bookmark of a kind prints because its type always does (06 E4).
_ZERO_VALUES: dict[str, bytes] = {
    "pods": b',"spec":{"containers":null},"status":{}',
    "nodes": b',"spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{}}',
    "namespaces": b',"spec":{},"status":{}',
    "resourcequotas": b',"spec":{},"status":{}',
    "limitranges": b',"spec":{"limits":null}',
    "leases": b',"spec":{}',
    "priorityclasses": b',"value":0',
    "runtimeclasses": b',"handler":""',
}


def stored_form(resource: ApiResource, body: bytes) -> bytes:
    """The members of the object in this resource's version: the stored bytes, except for a second version and for
    custom kinds, which follow their current schema."""
    if resource.custom is not None:
        return encoded(served(resource.custom.kind, _decode(body)))
    return body if is_stored_form(resource) else encoded(in_its_version(resource, _decode(body)))


@lru_cache(512)  # custom resources come and go
def opening(resource: ApiResource) -> bytes:
    return resource.opening()


def whole(resource: ApiResource, body: bytes) -> bytes:
    """One object with kind and apiVersion, without a line end."""
    return opening(resource) + stored_form(resource, body)[1:]


def document_of(body: bytes) -> JsonObject:
    document: JsonObject = _decode(body)
    return document


async def gathered(head: bytes, items: AsyncIterator[bytes], tail: bytes, comma: bytes = b",") -> AsyncIterator[bytes]:
    """The text of a list, in pieces of about `PIECE_BYTES`."""
    parts, size, is_first = [head], len(head), True
    async for item in items:
        if size >= PIECE_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
        parts += (item,) if is_first else (comma, item)
        size += len(item)
        is_first = False
    parts.append(tail)
    yield b"".join(parts)


def item_list(resource: ApiResource, bodies: Sequence[bytes], list_meta: bytes, pace: Pace) -> AsyncIterator[bytes]:
    head = b'{"kind":"%s","apiVersion":"%s","metadata":%s,"items":[' % (
        resource.list_kind.encode(),
        resource.group_version.encode(),
        list_meta,
    )

    async def items() -> AsyncIterator[bytes]:
        for body in bodies:
            if pace.is_due():
                await pace.pause()
            yield stored_form(resource, body)

    return gathered(head, items(), b"]}\n")


def yaml_list(resource: ApiResource, bodies: Sequence[bytes], list_meta: bytes, pace: Pace) -> AsyncIterator[bytes]:
    """The same as YAML, with its keys in order, as one document of all items would print them."""
    head = f"apiVersion: {resource.group_version}\nitems:{'' if bodies else ' []'}\n".encode()
    tail = as_yaml({"kind": resource.list_kind, "metadata": _decode(list_meta)})

    async def items() -> AsyncIterator[bytes]:
        for body in bodies:
            if pace.is_due():
                await pace.pause()
            yield as_yaml([_decode(stored_form(resource, body))])

    return gathered(head, items(), tail, b"")


# --- tables and metadata ---


class Viewer:
    """Prints objects of one resource in one of the converted forms."""

    def __init__(self, resource: ApiResource, form: MediaType, include: str, profile: str) -> None:
        self._resource = resource
        self.view: View = form.view
        self._api_version = f"meta.k8s.io/{form.view_version}".encode()
        if self.view == "Table" and include not in _INCLUDES:
            raise bad_request(
                f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
                "must be 'Metadata', 'Object', 'None', or empty"
            )
        self._include = include or "Metadata"
        self._printer: Printer = (
            printer(resource.storage, profile) if resource.custom is None else custom_printer(resource.custom.columns)
        )

    def one(self, body: bytes, now_s: float, *, columns: bool = True) -> bytes:
        document = self._document(body)
        if self.view == "Table":
            meta = b'{"resourceVersion":%s}' % encoded(document["metadata"].get("resourceVersion", ""))
            return self._table([self._row(document, now_s)], meta, columns)
        return self._partial(encoded(document["metadata"]))

    def many(self, bodies: Iterable[bytes], list_meta: bytes, now_s: float, pace: Pace) -> AsyncIterator[bytes]:
        head = b'{"kind":"PartialObjectMetadataList","apiVersion":"%s","metadata":%s,"items":['
        head = self._table_head(list_meta) if self.view == "Table" else head % (self._api_version, list_meta)

        async def items() -> AsyncIterator[bytes]:
            for body in bodies:
                if pace.is_due():
                    await pace.pause()
                document = self._document(body)
                yield (
                    self._row(document, now_s) if self.view == "Table" else self._partial(encoded(document["metadata"]))
                )

        return gathered(head, items(), b"]}\n")

    def _document(self, body: bytes) -> JsonObject:
        custom = self._resource.custom
        return document_of(body) if custom is None else served(custom.kind, document_of(body))

    def bookmark(self, version: int, *, ends_initial: bool, columns: bool) -> bytes:
        meta = bookmark_metadata(version, ends_initial)
        shown = self._partial(meta)
        if self.view != "Table":
            return shown
        row = b'{"cells":%s,"object":%s}' % (encoded(self._printer.cells({"metadata": {}}, 0.0)), shown)
        return self._table([row], b'{"resourceVersion":"%d"}' % version, columns)

    def _table(self, rows: list[bytes], meta: bytes, columns: bool = True) -> bytes:
        return b"".join((self._table_head(meta, columns), b",".join(rows), b"]}"))

    def _table_head(self, meta: bytes, columns: bool = True) -> bytes:
        shown = encoded([column.definition() for column in self._printer.columns]) if columns else b"null"
        head = b'{"kind":"Table","apiVersion":"%s","metadata":%s,"columnDefinitions":%s,"rows":['
        return head % (self._api_version, meta, shown)

    def _row(self, document: JsonObject, now_s: float) -> bytes:
        parts = [b'{"cells":', encoded(self._printer.cells(document, now_s))]
        if self._resource.storage == "pods" and (conditions := pod_conditions(document)):
            parts += [b',"conditions":', encoded(conditions)]
        parts += [b',"object":', self._object(document), b"}"]
        return b"".join(parts)

    def _object(self, document: JsonObject) -> bytes:
        if self._include == "None":
            return b"null"
        if self._include == "Object":
            return whole(self._resource, encoded(document))
        return self._partial(encoded(document["metadata"]))

    def _partial(self, metadata: bytes) -> bytes:
        return b'{"kind":"PartialObjectMetadata","apiVersion":"%s","metadata":%s}' % (self._api_version, metadata)


def bookmark_metadata(version: int, ends_initial: bool) -> bytes:
    if ends_initial:
        return b'{"resourceVersion":"%d","annotations":{"%s":"true"}}' % (version, INITIAL_EVENTS_END.encode())
    return b'{"resourceVersion":"%d"}' % version


def bookmark(resource: ApiResource, version: int, *, ends_initial: bool) -> bytes:
    """Only metadata, and the zero values that the type prints anyway."""
    extra = _ZERO_VALUES.get(resource.storage, b"")
    return b"".join((opening(resource), b'"metadata":', bookmark_metadata(version, ends_initial), extra, b"}"))
