"""From stored bytes to the forms a client may request: the object itself, a Table row, its metadata (05 B7, 06 E3).

Bodies are stored without `kind` and `apiVersion`, as list items are printed. So one object is the resource's opening
and the body's rest, and a list is its bodies with commas between them. Only Tables and metadata views decode anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from plimsoll.api.machinery.encoding import encoded
from plimsoll.api.machinery.event_versions import as_new
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.negotiate import MediaType, View
from plimsoll.api.machinery.status import bad_request
from plimsoll.api.tables.pod_printer import pod_conditions
from plimsoll.api.tables.printers import Printer, printer
from plimsoll.rules.model.json_object import JsonObject

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
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
    """The members of the object in this resource's version: the stored bytes, except for events.k8s.io."""
    return encoded(as_new(_decode(body))) if resource.group == "events.k8s.io" else body


@cache
def opening(resource: ApiResource) -> bytes:
    return resource.opening()


def whole(resource: ApiResource, body: bytes) -> bytes:
    """One object with kind and apiVersion, without a line end."""
    return opening(resource) + stored_form(resource, body)[1:]


def document_of(body: bytes) -> JsonObject:
    document: JsonObject = _decode(body)
    return document


def item_list(resource: ApiResource, bodies: Sequence[bytes], list_meta: bytes) -> bytes:
    if resource.group == "events.k8s.io":
        bodies = [stored_form(resource, body) for body in bodies]
    head = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[' % (
        resource.kind.encode(),
        resource.group_version.encode(),
        list_meta,
    )
    return b"".join((head, b",".join(bodies), b"]}\n"))


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
        self._printer: Printer = printer(resource.storage, profile)

    def one(self, body: bytes, now_s: float, *, columns: bool = True) -> bytes:
        document = document_of(body)
        if self.view == "Table":
            meta = b'{"resourceVersion":%s}' % encoded(document["metadata"].get("resourceVersion", ""))
            return self._table([self._row(document, now_s)], meta, columns)
        return self._partial(encoded(document["metadata"]))

    def many(self, bodies: Iterable[bytes], list_meta: bytes, now_s: float) -> bytes:
        if self.view == "Table":
            return self._table([self._row(document_of(body), now_s) for body in bodies], list_meta) + b"\n"
        items = b",".join(self._partial(encoded(document_of(body)["metadata"])) for body in bodies)
        head = b'{"kind":"PartialObjectMetadataList","apiVersion":"%s","metadata":%s,"items":['
        return b"".join((head % (self._api_version, list_meta), items, b"]}\n"))

    def bookmark(self, version: int, *, ends_initial: bool, columns: bool) -> bytes:
        meta = bookmark_metadata(version, ends_initial)
        shown = self._partial(meta)
        if self.view != "Table":
            return shown
        row = b'{"cells":%s,"object":%s}' % (encoded(self._printer.cells({"metadata": {}}, 0.0)), shown)
        return self._table([row], b'{"resourceVersion":"%d"}' % version, columns)

    def _table(self, rows: list[bytes], meta: bytes, columns: bool = True) -> bytes:
        shown = encoded([column.definition() for column in self._printer.columns]) if columns else b"null"
        head = b'{"kind":"Table","apiVersion":"%s","metadata":%s,"columnDefinitions":%s,"rows":['
        return b"".join((head % (self._api_version, meta, shown), b",".join(rows), b"]}"))

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
