"""Label and field selectors of list, watch and collection delete, with Kubernetes' own parse errors (05 B6).

A selector is parsed once per request into a `Selection`; the fields it needs are read from the stored bytes into a
small struct (`Selectable`), not from a whole document: a list may check thousands of objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.label_selectors import label_terms
from plimsoll.api.machinery.status import bad_request
from plimsoll.rules.model.objects import SelectorTerm
from plimsoll.rules.scheduling.selectors import matches_label

# --- fields that selectors read ---


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _IP(msgspec.Struct, frozen=True, gc=False):
    ip: str = ""


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    restart_policy: str = ""
    scheduler_name: str = ""
    service_account_name: str = ""
    host_network: bool = False
    unschedulable: bool = False
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    type: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    pod_ips: tuple[_IP, ...] = msgspec.field(name="podIPs", default=())
    nominated_node_name: str = ""
    replicas: int = 0
    succeeded: int = 0


class _Reference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class _Source(msgspec.Struct, frozen=True, gc=False):
    component: str = ""


class Selectable(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()


class _Configured(Selectable, frozen=True, gc=False):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Typed(Selectable, frozen=True, gc=False):
    type: str = ""


class _Event(Selectable, frozen=True, gc=False, rename="camel"):
    involved_object: _Reference = _Reference()
    reason: str = ""
    reporting_component: str = ""
    source: _Source = _Source()
    type: str = ""


_SHAPES: dict[str, type[Selectable]] = {
    "pods": _Configured,
    "nodes": _Configured,
    "namespaces": _Configured,
    "replicasets": _Configured,
    "replicationcontrollers": _Configured,
    "jobs": _Configured,
    "services": _Configured,
    "events": _Event,
    "secrets": _Typed,
}


class _Custom(Selectable, frozen=True, gc=False):
    """An object of a custom kind, whose definition names the fields."""

    document: dict[str, Any] = {}

    def text(self, path: str) -> str:
        found: Any = self.document
        for step in path.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, bool):
            return _flag(found)
        return "" if found is None else str(found)


def _custom(body: bytes) -> _Custom:
    document = msgspec.json.decode(body)
    return _Custom(msgspec.convert(document["metadata"], _Metadata), document)


@lru_cache(512)  # custom resources come and go
def _reader(storage: str) -> Callable[[bytes], Selectable]:
    if "." in storage or storage in ("certificatesigningrequests", "clustertrustbundles"):
        return _custom
    return msgspec.json.Decoder(_SHAPES.get(storage, Selectable)).decode


def selectable(storage: str, body: bytes) -> Selectable:
    """From an object's stored bytes to the fields that selectors read. Stored objects have the right types."""
    return _reader(storage)(body)


def _flag(value: bool) -> str:
    return "true" if value else "false"


# field label → its text on a Selectable of the right shape
_FIELDS: dict[str, Callable[[Any], str]] = {
    "metadata.name": lambda o: o.metadata.name,
    "metadata.namespace": lambda o: o.metadata.namespace,
    "spec.nodeName": lambda o: o.spec.node_name,
    "spec.restartPolicy": lambda o: o.spec.restart_policy,
    "spec.schedulerName": lambda o: o.spec.scheduler_name,
    "spec.serviceAccountName": lambda o: o.spec.service_account_name,
    "spec.hostNetwork": lambda o: _flag(o.spec.host_network),
    "spec.unschedulable": lambda o: _flag(o.spec.unschedulable),
    "spec.clusterIP": lambda o: o.spec.cluster_ip,
    "spec.type": lambda o: o.spec.type,
    "status.phase": lambda o: o.status.phase,
    "status.podIP": lambda o: o.status.pod_ip or (o.status.pod_ips[0].ip if o.status.pod_ips else ""),
    "status.podIPs": lambda o: ",".join(address.ip for address in o.status.pod_ips),
    "status.nominatedNodeName": lambda o: o.status.nominated_node_name,
    "status.replicas": lambda o: str(o.status.replicas),
    "status.successful": lambda o: str(o.status.succeeded),
    **{
        f"involvedObject.{field.encode_name}": attrgetter(f"involved_object.{field.name}")
        for field in msgspec.structs.fields(_Reference)
    },
    "reason": lambda o: o.reason,
    "reportingComponent": lambda o: o.reporting_component,
    "source": lambda o: o.source.component or o.reporting_component,
    "type": lambda o: o.type,
}
# Other spellings of the same field.
_ALIASES = {"spec.host": "spec.nodeName", "reportingController": "reportingComponent"}


def field_text(selectable: Selectable, field: str) -> str:
    return selectable.text(field) if isinstance(selectable, _Custom) else _FIELDS[field](selectable)


# --- a parsed selector ---


class FieldTerm(msgspec.Struct, frozen=True):
    field: str
    value: str
    is_equal: bool


class FieldTest(msgspec.Struct, frozen=True):
    """All terms about one field: thousands of them cost one look at the object."""

    field: str
    equal: frozenset[str]
    unequal: frozenset[str]

    def matches(self, text: str) -> bool:
        return text not in self.unequal and (not self.equal or self.equal == {text})


class Selection(msgspec.Struct, frozen=True):
    """All terms must match."""

    storage: str
    labels: tuple[SelectorTerm, ...] = ()
    fields: tuple[FieldTest, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, body: bytes) -> bool:
        return self.matches_selectable(selectable(self.storage, body))

    def matches_selectable(self, selectable: Selectable) -> bool:
        for test in self.fields:
            if not test.matches(field_text(selectable, test.field)):
                return False
        if self.labels:
            labels = selectable.metadata.labels or {}
            return all(matches_label(term, labels) for term in self.labels)
        return True

    def required(self, field: str) -> str | None:
        """The value that this field must have, if the selector requires one; the first of several."""
        return next((min(test.equal) for test in self.fields if test.field == field and test.equal), None)


def selection(resource: ApiResource, label_selector: str, field_selector: str) -> Selection:
    """Raises 400 with Kubernetes' message."""
    labels = tuple(label_terms(label_selector)) if label_selector else ()
    fields = field_tests(field_terms(resource, field_selector)) if field_selector else ()
    return Selection(resource.storage, labels, fields)


def field_tests(terms: Iterable[FieldTerm]) -> tuple[FieldTest, ...]:
    equal: dict[str, set[str]] = {}
    unequal: dict[str, set[str]] = {}
    for term in terms:
        equal.setdefault(term.field, set())
        unequal.setdefault(term.field, set())
        (equal if term.is_equal else unequal)[term.field].add(term.value)
    return tuple(FieldTest(field, frozenset(equal[field]), frozenset(unequal[field])) for field in equal)


# --- fields ---

_FIELD_OPERATOR = re.compile("!=|==?")


def field_terms(resource: ApiResource, text: str) -> Iterator[FieldTerm]:
    for part in sorted(_split_terms(text)):
        if not part:
            continue
        operator = _FIELD_OPERATOR.search(part)
        if operator is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, value = part[: operator.start()], _unescaped(part[operator.end() :])
        if not field and not value:
            continue
        yield FieldTerm(_known_field(resource, field), value, operator[0] != "!=")


def _split_terms(text: str) -> list[str]:
    """At commas without a backslash before them."""
    parts, start, escaped = [], 0, False
    for index, letter in enumerate(text):
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == ",":
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return parts


def _unescaped(text: str) -> str:
    if not any(letter in text for letter in "\\,="):
        return text
    letters, escaped = [], False
    for letter in text:
        if escaped:
            if letter not in "\\,=":
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{letter}")
            letters.append(letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(letter)}")
        else:
            letters.append(letter)
    if escaped:
        raise bad_request("invalid field selector: invalid escape sequence: \\")
    return "".join(letters)


def _known_field(resource: ApiResource, field: str) -> str:
    if field == "metadata.name" or (field == "metadata.namespace" and (resource.namespaced or not resource.fields)):
        return field
    if field in resource.fields:
        if field.startswith("regarding."):
            return "involvedObject." + field.removeprefix("regarding.")
        return _ALIASES.get(field, field)
    if resource.fields:
        raise bad_request(f"field label not supported: {field}")
    raise bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
