"""From libyaml's events to the value of one YAML document, as built by go-yaml and converted to JSON.

**The stack.** Events come in the order of the text. A `_Frame` is a mapping or sequence that is still open; a finished
value is added to the frame on top, as an element, as a key, or under the pending key. Nothing here is recursive, so no
depth of nesting can exhaust Python's stack.

**Aliases.** An anchor keeps its value and its weight, the number of values go-yaml decodes for it. An alias gets a copy
and adds the weight to the count of values from aliases; if that share of all decoded values is too large, the document
is refused (Y3). So a small text cannot become a giant value.

**Merge keys.** `<<` puts the members of other maps into this one at its place in the text: keys above it are
overwritten, keys below overwrite. What only a merge has set may be written once more without being a duplicate.

**Errors** have an order. A syntax error stops immediately. A build error is recorded (`_fail`) and raised only after
the last event, because a later syntax error takes precedence. What JSON cannot express (NaN, infinity, null as a key)
is reported last, and only if it is still present: an `_Unsupported` takes its place meanwhile, and a later key of the
same name removes it.

The caller replaces text that libyaml must not see by placeholders, and `hidden` restores it in every scalar.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec

from plimsoll.codec.yaml import libyaml
from plimsoll.codec.yaml.read_error import MAX_DUPLICATES, Path, ReadError
from plimsoll.codec.yaml.scalars import MERGE_TAG, Scalar, ScalarError, json_number, key_text, resolve, shortened

UNKNOWN_ESCAPE: Final = "found unknown escape character"  # libyaml's message

# libyaml's time for a token grows with the depth of flow nesting. Below this depth that doesn't matter; beyond it, the
# sum of the depths of all events must stay within a few seconds' worth.
_HARMLESS_DEPTH: Final = 1_000
_MAX_DEEP_WORK: Final = 500_000_000
_EVENTS_PER_CHECK: Final = 1_024

# go-yaml's alias budget (Y3): the share of decoded values that may come from aliases.
_FREE_ALIASED: Final = 100
_FREE_DECODED: Final = 1_000
_SHARE_FALLS_FROM: Final = 400_000
_SHARE_FALLS_TO: Final = 4_000_000

# What libyaml's reader refuses. Compiled at the first error, because that takes milliseconds.
_CONTROL: Final = "[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_ESCAPE: Final = r"\\(.)"
_MERGE: Final = "<<"
_SHOWN_KEY: Final = 60  # characters


class _Unsupported(msgspec.Struct):
    """Placeholder in a built value for something that JSON cannot express. Keys are refused at an earlier stage than
    values."""

    message: str
    offset: int
    stage: int


class _Anchor(msgspec.Struct):
    """The value of an alias. `weight` is the number of values that decoding it decodes; 0 while it is open."""

    value: Any
    weight: int


class _Frame(msgspec.Struct):
    """A mapping or sequence that is not closed yet."""

    value: dict[str, Any] | list[Any]
    is_flow: bool
    offset: int
    decoded: int  # go-yaml's count before this value
    anchor: _Anchor | None = None
    key: str | None = None
    key_at: int = 0
    merging: bool = False  # the key is `<<`
    merged: set[str] = msgspec.field(default_factory=set)  # set only by a merge: setting one again is no duplicate
    refused: _Unsupported | None = None  # why the key is refused

    def step(self) -> str | int:
        return len(self.value) if isinstance(self.value, list) else self.key or ""


class Builder:
    """Builds `root`, the value of one document, or raises ReadError. `start` is where its content starts.

    With `locate`, members are pairs (offset, value). `hidden` maps the placeholders in the text to what they replace.
    """

    def __init__(self, text: str, max_depth: int, locate: bool, hidden: dict[int, str] | None) -> None:
        self.text = text
        self.max_depth = max_depth
        self.locate = locate
        self.root: Any = None
        self.start = 0
        self.duplicates: list[tuple[Path, int]] = []
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._decoded = 1  # go-yaml counts the document too
        self._aliased = 0
        self._failure: ReadError | None = None
        self._has_unsupported = False
        self._has_slash_escape = "\\/" in text
        self._hidden = hidden

    def build(self) -> None:
        parser = libyaml.CParser(self.text)
        try:
            self._consume(parser)
        except libyaml.ReaderError as error:
            found = re.search(_CONTROL, self.text)
            raise ReadError(error.reason, found.start() if found else 0) from error
        except (libyaml.ScannerError, libyaml.ParserError) as error:
            mark: Any = error.problem_mark
            raise ReadError(str(error.problem), mark.index) from error
        finally:
            parser.dispose()
        if self._failure is not None:
            raise self._failure
        if self._has_unsupported and not self.locate:
            self._refuse_unsupported()

    def _consume(self, parser: libyaml.CParser) -> None:
        handlers: dict[type, Callable[[Any], None]] = {
            libyaml.ScalarEvent: self._on_scalar,
            libyaml.MappingStartEvent: partial(self._on_start, dict),
            libyaml.SequenceStartEvent: partial(self._on_start, list),
            libyaml.MappingEndEvent: self._on_end,
            libyaml.SequenceEndEvent: self._on_end,
            libyaml.AliasEvent: self._on_alias,
        }
        work = 0
        for count in itertools.count():
            event: Any = parser.get_event()
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
            elif isinstance(event, (libyaml.DocumentEndEvent, libyaml.StreamEndEvent)):
                return
            if count % _EVENTS_PER_CHECK == 0 and len(self._stack) > _HARMLESS_DEPTH:
                work += len(self._stack) * _EVENTS_PER_CHECK
                if work > _MAX_DEEP_WORK:
                    raise ReadError("the document is too large for its depth", event.start_mark.index)

    def _on_scalar(self, event: Any) -> None:
        offset = event.start_mark.index
        implicit = event.implicit[0]
        if event.value == _MERGE and self._awaits_key() and (implicit or event.tag == MERGE_TAG):
            self._take_merge_key(event)
            return
        self._count(offset)
        if self._has_slash_escape and event.style == '"':
            self._check_escapes(event)
        if "?" in event.value and not event.style and self._stack and self._stack[-1].is_flow:
            raise self._stray_question_mark(offset)
        text = event.value.translate(self._hidden) if self._hidden else event.value
        value: Scalar = None
        try:
            value = resolve(event.tag, text, implicit)
        except ScalarError as error:
            self._fail(str(error), offset)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(value, 1)
        self._add(value, offset)

    def _on_start(self, kind: type[dict[str, Any] | list[Any]], event: Any) -> None:
        offset = event.start_mark.index
        if len(self._stack) >= self.max_depth:
            raise ReadError(f"exceeded max depth of {self.max_depth}", offset)
        frame = _Frame(kind(), event.flow_style, offset, self._decoded)
        # go-yaml decodes the maps of a list under `<<`, but not the list.
        if not (kind is list and self._stack and self._stack[-1].merging):
            self._count(offset)
        if event.anchor is not None:
            frame.anchor = self._anchors[event.anchor] = _Anchor(None, 0)
        self._stack.append(frame)

    def _on_end(self, event: Any) -> None:
        frame = self._stack.pop()
        if frame.anchor is not None:
            frame.anchor.value = frame.value
            frame.anchor.weight = max(1, self._decoded - frame.decoded)
        self._add(frame.value, frame.offset)

    def _on_alias(self, event: Any) -> None:
        offset = event.start_mark.index
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            raise ReadError(f"unknown anchor '{shortened(event.anchor)}' referenced", offset)
        if anchor.weight == 0:
            self._fail(f"anchor '{shortened(event.anchor)}' value contains itself", offset)
        self._decoded += anchor.weight
        self._aliased += anchor.weight
        self._count(offset)
        value = None if self._failure else self._copied(anchor.value, offset)
        self._add(value, offset, aliased=True)

    def _count(self, offset: int) -> None:
        """Count one decoded value; go-yaml checks its budget at each, so the allowed share depends on the current
        count."""
        self._decoded += 1
        if self._aliased <= _FREE_ALIASED or self._decoded <= _FREE_DECODED:
            return
        if self._aliased / self._decoded > _allowed_share(self._decoded):
            self._fail("document contains excessive aliasing", offset)

    def _fail(self, message: str, offset: int) -> None:
        """Record the first build error; parsing continues, because a later syntax error takes precedence."""
        if self._failure is None:
            self._failure = ReadError(message, offset)

    def _check_escapes(self, event: Any) -> None:
        """libyaml accepts `\\/` as a slash, as in YAML 1.2; go-yaml does not (Y2)."""
        start = event.start_mark.index
        for escape in re.compile(_ESCAPE, re.DOTALL).finditer(self.text, start, event.end_mark.index):
            if escape[1] == "/":
                raise ReadError(UNKNOWN_ESCAPE, escape.start())

    def _stray_question_mark(self, offset: int) -> ReadError:
        """In a flow collection go-yaml ends a plain scalar at `?`, and a key cannot start there: `[http://x?y]`."""
        closing = "}" if isinstance(self._stack[-1].value, dict) else "]"
        return ReadError(f"did not find expected ',' or '{closing}'", self.text.index("?", offset))

    def _awaits_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].key is None and type(self._stack[-1].value) is dict

    def _take_merge_key(self, event: Any) -> None:
        frame = self._stack[-1]
        frame.key = _MERGE
        frame.merging = True
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(_MERGE, 1)

    def _add(self, value: Any, offset: int, aliased: bool = False) -> None:
        """Add a finished value to its container."""
        if not self._stack:
            self.start = offset
            self.root = self._as_json(value, offset)
            return
        frame = self._stack[-1]
        members = frame.value
        if isinstance(members, list):
            members.append((offset, value) if self.locate else self._as_json(value, offset))
        elif frame.key is None:
            self._take_key(frame, value, offset)
        else:
            if frame.merging:
                self._merge(frame, members, value, offset, aliased)
            else:
                self._put(frame, members, frame.key, value, offset)
            frame.key = None

    def _as_json(self, value: Any, offset: int) -> Any:
        if type(value) is not int and type(value) is not float:
            return value
        number = json_number(value)
        if math.isfinite(number):
            return number
        self._has_unsupported = True
        name = "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
        return _Unsupported(f"error converting YAML to JSON: json: unsupported value: {name}", offset, stage=2)

    def _take_key(self, frame: _Frame, value: Any, offset: int) -> None:
        frame.key_at = offset
        if isinstance(value, (dict, list)):
            frame.key = ""
            shown = self.text[offset : offset + _SHOWN_KEY].partition("\n")[0]
            self._fail(f"invalid map key: {shown}", offset)
            return
        try:
            frame.key = key_text(value)
        except ScalarError as error:
            self._has_unsupported = True
            frame.key = f"\0{value}"  # a unique name, so that no other key overwrites it
            frame.refused = _Unsupported(str(error), offset, stage=1)

    def _put(self, frame: _Frame, members: dict[str, Any], key: str, value: Any, offset: int) -> None:
        if key in frame.merged:
            frame.merged.discard(key)
        elif key in members and len(self.duplicates) < MAX_DUPLICATES:
            self.duplicates.append((tuple(outer.step() for outer in self._stack), frame.key_at))
        if self.locate:
            members[key] = (frame.key_at, value)
        else:
            members[key] = frame.refused or self._as_json(value, offset)
        frame.refused = None

    def _merge(self, frame: _Frame, members: dict[str, Any], value: Any, offset: int, aliased: bool) -> None:
        frame.merging = False
        maps = [value]
        if isinstance(value, list) and not aliased:
            # The earlier map of a list wins, so it comes last.
            maps = [part[1] if self.locate else part for part in reversed(value)]
        for part in maps:
            if not isinstance(part, dict):
                self._fail("map merge requires map or sequence of maps as the value", offset)
                return
            frame.merged.update(key for key in part if key not in members)
            members.update(part)

    def _copied(self, value: Any, offset: int) -> Any:
        """An alias gets a copy of the value, so that changing one field does not change another."""
        if not isinstance(value, (dict, list)):
            return value
        root = _shell(value)
        copying = [(value, root, len(self._stack) + 1)]
        while copying:
            original, twin, depth = copying.pop()
            if depth > self.max_depth:
                raise ReadError(f"exceeded max depth of {self.max_depth}", offset)
            for key, member in _members(original):
                twin[key] = member
                if isinstance(member, (dict, list)):
                    twin[key] = _shell(member)
                    copying.append((member, twin[key], depth + 1))
        return root

    def _refuse_unsupported(self) -> None:
        found: list[_Unsupported] = []
        walking: list[Any] = [[self.root]]
        while walking:
            for _, member in _members(walking.pop()):
                if isinstance(member, _Unsupported):
                    found.append(member)
                elif isinstance(member, (dict, list)):
                    walking.append(member)
        if found:
            first = min(found, key=lambda unsupported: (unsupported.stage, unsupported.offset))
            raise ReadError(first.message, first.offset)


def _shell(value: Any) -> Any:
    return {} if isinstance(value, dict) else [None] * len(value)


def _members(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _allowed_share(decoded: int) -> float:
    fallen = (decoded - _SHARE_FALLS_FROM) / (_SHARE_FALLS_TO - _SHARE_FALLS_FROM)
    return 0.99 - 0.89 * min(1.0, max(0.0, fallen))
