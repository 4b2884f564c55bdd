"""Label and field selectors of list, watch and collection delete, with Kubernetes' own parse errors (05 B6).

A selector is parsed once per request into a `Selection`; the fields it needs are read from the stored bytes into a
small struct (`Selectable`), not from a whole document: a list may check thousands of objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

import msgspec

from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.status import StatusError, bad_request
from plimsoll.rules.model.names import label_value_problems, qualified_name_problems
from plimsoll.rules.model.objects import SelectorTerm
from plimsoll.rules.scheduling.selectors import go_integer, matches_label

MAX_TERMS = 10_000

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


# --- labels: Kubernetes' lexer and parser ---

_Token = Literal["end", "word", "!", "=", "==", "!=", "in", "notin", "(", ")", ",", ">", "<", "error"]
_SYMBOLS: tuple[_Token, ...] = ("!", "=", "==", "!=", "(", ")", ",", ">", "<")
_SPECIAL = frozenset("=!(),><")
_BLANKS = frozenset(" \t\r\n")
_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_NAMES = {"=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", ">": "Gt", "<": "Lt"}


class _SelectorError(Exception):
    """What follows `unable to parse requirement: `."""


def label_terms(text: str) -> list[SelectorTerm]:
    parser = _LabelParser(text)
    try:
        return parser.terms()
    except _SelectorError as error:
        raise bad_request(f"unable to parse requirement: {error}") from None


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def terms(self) -> list[SelectorTerm]:
        terms: list[SelectorTerm] = []
        while True:
            token, literal = self._next()
            if token == "end":
                return terms
            if token not in ("word", "!"):
                raise bad_request(f"found '{literal}', expected: !, identifier, or 'end of string'")
            terms.append(self._term())
            token, literal = self._take()
            if token == "end":
                return terms
            if token != ",":
                raise bad_request(f"found '{literal}', expected: ',' or 'end of string'")
            token, literal = self._next()
            if token not in ("word", "!"):
                raise bad_request(f"found '{literal}', expected: identifier after ','")

    def _next(self, *, operators: bool = False) -> tuple[_Token, str]:
        token, literal = self._tokens[self._at]
        # `in` and `notin` are keywords only where an operator is expected.
        return ("word" if token in ("in", "notin") and not operators else token), literal

    def _take(self, *, operators: bool = False) -> tuple[_Token, str]:
        token = self._next(operators=operators)
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _term(self) -> SelectorTerm:
        token, key = self._take()
        negated = token == "!"
        if negated:
            token, key = self._take()
        if token != "word":
            raise _SelectorError(f"found '{key}', expected: identifier")
        if problems := qualified_name_problems(key):
            raise _SelectorError(f'<nil>: Invalid value: "{key}": {"; ".join(problems)}')
        if self._next()[0] in ("end", ","):
            return SelectorTerm(key, "DoesNotExist" if negated else "Exists")
        if negated:
            return SelectorTerm(key, "DoesNotExist")
        operator, literal = self._take(operators=True)
        if operator not in _NAMES:
            raise _SelectorError(f"found '{literal}', expected: {_OPERATORS}")
        values = self._values() if operator in ("in", "notin") else [self._exact_value()]
        return _checked(SelectorTerm(key, _NAMES[operator], tuple(sorted(set(values)))))

    def _exact_value(self) -> str:
        if self._next()[0] in ("end", ","):
            return ""
        token, literal = self._take()
        if token != "word":
            raise _SelectorError(f"found '{literal}', expected: identifier")
        return literal

    def _values(self) -> list[str]:
        token, literal = self._take()
        if token != "(":
            raise _SelectorError(f"found '{literal}' expected: '('")
        token, literal = self._next()
        if token == ")":
            self._take()
            return [""]
        if token not in ("word", ","):
            raise _SelectorError(f"found '{literal}', expected: ',', ')' or identifier")
        values = self._identifiers()
        if self._take()[0] != ")":
            raise _SelectorError(f"found '{literal}', expected: ')'")
        return values

    def _identifiers(self) -> list[str]:
        values: list[str] = []
        while True:
            token, literal = self._take()
            if token == "word":
                values.append(literal)
                token, literal = self._next()
                if token == ")":
                    return values
                if token != ",":
                    raise _SelectorError(f"found '{literal}', expected: ',' or ')'")
            elif token == ",":
                if not values:
                    values.append("")
                token, _ = self._next()
                if token == ")":
                    return [*values, ""]
                if token == ",":
                    self._take()
                    values.append("")
            else:
                raise _SelectorError(f"found '{literal}', expected: ',', or identifier")


def _checked(term: SelectorTerm) -> SelectorTerm:
    errors = []
    if term.operator in ("Gt", "Lt") and go_integer(term.values[0]) is None:
        reason = "for 'Gt', 'Lt' operators, the value must be an integer"
        errors.append(f'values[0]: Invalid value: "{term.values[0]}": {reason}')
    for index, value in enumerate(term.values):
        if problems := label_value_problems(value):
            errors.append(f'values[{index}][{term.key}]: Invalid value: "{value}": {"; ".join(problems)}')
    if errors:
        raise _SelectorError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return term


def _tokens(text: str) -> Iterator[tuple[_Token, str]]:
    at, count = 0, 0
    while at < len(text):
        if text[at] in _BLANKS:
            at += 1
            continue
        start = at
        if text[at] in _SPECIAL:
            token, literal, at = _symbol(text, at)
            yield token, literal
        else:
            while at < len(text) and text[at] not in _SPECIAL and text[at] not in _BLANKS:
                at += 1
            word = text[start:at]
            yield (word if word in ("in", "notin") else "word"), word  # type: ignore[misc]
        count += 1
        if count > MAX_TERMS:
            raise _too_long()
    yield "end", ""


def _symbol(text: str, at: int) -> tuple[_Token, str, int]:
    """The longest symbol that starts here."""
    for length in (2, 1):
        literal = text[at : at + length]
        if literal in _SYMBOLS:
            return literal, literal, at + length
    return "error", f"error expected: keyword found '{text[at]}'", at + 1


def _too_long() -> StatusError:
    return bad_request(f"unable to parse requirement: more than {MAX_TERMS} words")
