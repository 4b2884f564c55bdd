"""Manifests as kubectl reads them: bytes → documents of JSON types, with the line of every field.

What kubectl accepts is not YAML by the book but the sum of several stages, and their order shows (tables Y1–Y4 of spec
06). They are all here, in kubectl's order:

1. **Text.** A byte order mark decides between UTF-8 and UTF-16; invalid bytes become U+FFFD.
2. **Mode.** If the first non-blank character is `{`, the input is a stream of JSON values (`jsonstream`).
3. **Cutting.** Otherwise the text is cut at lines that start with `---`, before any YAML is parsed: even inside a
   quoted scalar, and away from `%` directives. Such a line may hold only a comment besides.
4. **Parsing.** libyaml, of which go-yaml is a translation, turns each piece into events. Only the first document of a
   piece counts; what follows `...` is ignored.
5. **Building** (`_Builder`). Scalars are resolved (`scalars`), aliases are expanded within go-yaml's budget, merge keys
   are applied in the order of the text, and of two equal keys the later one wins. The builder keeps its own stack
   instead of calling itself, so no depth of nesting can exhaust Python's.
6. **Conversion to JSON.** What JSON cannot say is refused: NaN, infinity, null as a key. This happens after building,
   so a value that was overwritten is never refused. The builder leaves an `_Unsupported` in its place until then.

kubectl stops at the first error. `read` yields it in place of the broken document and goes on with the next, so that
one run tells all. An error of an earlier stage hides those of later stages in the same document, as in kubectl.

Line numbers are needed only when something is wrong, so they are never collected while reading. `Document.line_of` runs
the builder a second time; there, each member of a container is a pair (offset, value).
"""

from __future__ import annotations

import codecs
import itertools
import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import yaml

from plimsoll.codec import jsonstream
from plimsoll.codec.jsonstream import MAX_DUPLICATES, Path, Problem
from plimsoll.codec.scalars import MERGE_TAG, Scalar, ScalarError, json_number, key_text, resolve, shortened
from plimsoll.errors import PlimsollError

MAX_BYTES: Final = 64 << 20
MAX_DEPTH: Final = 10_000
# libyaml's time for a token grows with the depth of flow nesting. Below this depth that doesn't matter; beyond it, the
# sum of the depths of all events must stay within a few seconds' worth.
_HARMLESS_DEPTH: Final = 1_000
_MAX_DEEP_WORK: Final = 500_000_000
_EVENTS_PER_LOOK: Final = 1_024

# go-yaml's alias budget (Y3): of the values decoded, this share may come from aliases.
_FREE_ALIASED: Final = 100
_FREE_DECODED: Final = 1_000
_SHARE_FALLS_FROM: Final = 400_000
_SHARE_FALLS_TO: Final = 4_000_000

# The blanks of Go's unicode.IsSpace; Python's strip() would also take U+001C to U+001F.
_GO_BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_JSON_START: Final = re.compile(f"[{_GO_BLANKS}]*{{")
_SEPARATOR: Final = re.compile(r"^---([^\n]*)\n?", re.MULTILINE)
_NOTHING: Final = frozenset(["", "\n", "---\n"])  # not worth starting a parser
_LINE_BREAK: Final = re.compile(r"\r\n?|\n")
_CONTROL: Final = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_MERGE: Final = "<<"
_UNKNOWN_ESCAPE: Final = "found unknown escape character"
# Stand-ins for what libyaml must not see. These are characters for private use, so hardly ever in a manifest.
_HIDDEN_COLON, _HIDDEN_BACKSLASH, _HIDDEN_BOM = "\uf5f5", "\uf5f6", "\uf5f7"
_STAND_IN: Final = re.compile(f"[{_HIDDEN_COLON}{_HIDDEN_BACKSLASH}{_HIDDEN_BOM}]")
_SHOW_HIDDEN: Final = str.maketrans({_HIDDEN_COLON: ":", _HIDDEN_BACKSLASH: "", _HIDDEN_BOM: "\ufeff"})
_BOM_AT_LINE_START: Final = re.compile("(?<=[\n\r\x85\u2028\u2029])\ufeff")
_MAX_HIDDEN: Final = 100
_MAX_REPARSED: Final = 4 << 20  # characters
_SHOWN_KEY: Final = 60  # characters
_JSON_TYPES: Final[dict[type, str]] = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}


class YamlError(PlimsollError):
    """A document that cannot be read. `line` counts in the file, `document` among the documents of the input."""

    def __init__(self, message: str, document: int, line: int | None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.message = message
        self.document = document
        self.line = line


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One document: its value in JSON types, and where things stand in the file.

    `index` counts from 1 and leaves out empty documents, as kubectl skips them. `duplicates` are the keys written
    twice, of which the last one won: (path, line of the later key).
    """

    value: Any = field(repr=False)  # it may be deeper than repr() can go
    index: int
    duplicates: list[tuple[Path, int]]
    _places: _Places = field(repr=False)

    @property
    def line(self) -> int:
        """The line where the content starts, after blank lines and comments."""
        return self._places.line_of(())

    def line_of(self, path: Path) -> int:
        """The line of the key or element at this path, or of its nearest ancestor that is there."""
        return self._places.line_of(path)


def read(data: bytes, max_depth: int = MAX_DEPTH) -> Iterator[Document | YamlError]:
    """All documents of a file in order, an error in the place of each broken one."""
    if len(data) > MAX_BYTES:
        yield YamlError(f"the input is larger than {MAX_BYTES >> 20} MiB", 1, None)
        return
    source = _Source(_decoded(data))
    results = _read_json if _JSON_START.match(source.text) else _read_yaml
    for index, result in enumerate(results(source, max_depth), 1):
        if isinstance(result, Problem):
            yield YamlError(result.message, index, source.line(result.offset))
        elif not isinstance(result.value, dict):
            kind = _JSON_TYPES[type(result.value)]
            message = f"json: cannot unmarshal {kind} into Go value of type unstructured.detector"
            yield YamlError(message, index, result.places.line_of(()))
        else:
            duplicates = [(path, source.line(offset)) for path, offset in result.duplicates]
            yield Document(result.value, index, duplicates, result.places)


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    # kubectl joins the lines of a document with \n, whichever of the two ended them.
    return text.replace("\r\n", "\n")


class _Source:
    """The whole input, and the lines of it once somebody asks."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._line_starts: array[int] | None = None

    def line(self, offset: int) -> int:
        if self._line_starts is None:
            self._line_starts = array("Q", [0])
            self._line_starts.extend(match.end() for match in _LINE_BREAK.finditer(self.text))
        return bisect_right(self._line_starts, offset)


class _Places:
    """Where the parts of one document stand: a tree of pairs (offset, value), made at the first question."""

    def __init__(self, source: _Source, base: int, start: int, locate: Callable[[], Any]) -> None:
        self._source = source
        self._base = base
        self._start = start
        self._locate = locate
        self._tree: Any = None

    def line_of(self, path: Path) -> int:
        offset = self._start
        if path and self._tree is None:
            self._tree = self._locate()
        tree = self._tree
        for step in path:
            inside = step in tree if isinstance(tree, dict) else isinstance(tree, list) and step in range(len(tree))
            if not inside:
                break
            offset, tree = tree[step]
        return self._source.line(self._base + offset)


@dataclass(slots=True)
class _Parsed:
    value: Any
    duplicates: list[tuple[Path, int]]
    places: _Places


def _read_json(source: _Source, max_depth: int) -> Iterator[_Parsed | Problem]:
    for item in jsonstream.stream(source.text, max_depth):
        if isinstance(item, Problem):
            yield item
        elif item.value is not None:
            locate = partial(jsonstream.located, source.text, item.start, max_depth)
            yield _Parsed(item.value, item.duplicates, _Places(source, 0, item.start, locate))


def _read_yaml(source: _Source, max_depth: int) -> Iterator[_Parsed | Problem]:
    for piece in _pieces(source.text):
        if isinstance(piece, Problem):
            yield piece
            continue
        start, text = piece
        if text in _NOTHING:
            continue
        try:
            builder = _built(text, max_depth)
        except Problem as problem:
            # What is missing at the end is missing on the last line with text.
            at = problem.offset if problem.offset < len(text) else max(0, len(text.rstrip()) - 1)
            yield Problem(problem.message, start + at)
            continue
        if builder.root is not None:
            duplicates = [(path, start + offset) for path, offset in builder.duplicates]
            places = _Places(source, start, builder.start, partial(_located, text, max_depth))
            yield _Parsed(builder.root, duplicates, places)


def _pieces(text: str) -> Iterator[tuple[int, str] | Problem]:
    """The text between separators, each with its offset (Y4).

    kubectl loses the document before a bad separator and everything after it. We lose the one that it starts.
    """
    start = 0
    spoiled: Problem | None = None
    for separator in _SEPARATOR.finditer(text):
        bad = _bad_separator(separator)
        if spoiled is not None:
            yield spoiled
        elif separator.start() > start:
            yield _piece(text, start, separator.start())
        elif bad is None:
            continue  # with nothing before it, kubectl leaves the separator to the YAML parser
        start, spoiled = separator.end(), bad
    yield spoiled if spoiled is not None else _piece(text, start, len(text))


def _bad_separator(separator: re.Match[str]) -> Problem | None:
    rest = separator[1].strip(_GO_BLANKS)
    if not rest or rest.startswith("#"):
        return None
    return Problem(f"invalid Yaml document separator: {shortened(rest)}", separator.start())


def _piece(text: str, start: int, end: int) -> tuple[int, str]:
    if text.startswith("\ufeff", start):
        start += 1  # libyaml skips it without counting it
    # kubectl ends every line with \n, also the last one: a block scalar shows the difference.
    return start, text[start:end] if text.endswith("\n", start, end) else text[start:end] + "\n"


def _built(text: str, max_depth: int, locate: bool = False) -> _Builder:
    """The builder, when it is done.

    What go-yaml takes and libyaml refuses is hidden from libyaml, and the text is parsed again: a colon at the end of a
    plain scalar in a flow collection (`[a:]`), and `\\'` in double quotes. Large texts get fewer trials. libyaml also
    skips a byte order mark at the start of any line, where go-yaml sees a character.
    """
    can_hide = not _STAND_IN.search(text)
    trials = min(_MAX_HIDDEN, 1 + _MAX_REPARSED // (len(text) + 1)) if can_hide else 0
    if can_hide and "\ufeff" in text:
        text = _BOM_AT_LINE_START.sub(_HIDDEN_BOM, text)
    while True:
        builder = _Builder(text, max_depth, locate, has_hidden=can_hide and _STAND_IN.search(text) is not None)
        try:
            builder.build()
        except Problem as problem:
            stand_in = _stand_in(problem, text)
            if stand_in is None or trials == 0:
                raise
            text = text[: problem.offset] + stand_in + text[problem.offset + 1 :]
            trials -= 1
        else:
            return builder


def _stand_in(problem: Problem, text: str) -> str | None:
    if problem.message == "found unexpected ':'":
        return _HIDDEN_COLON
    if problem.message == _UNKNOWN_ESCAPE and text.startswith("\\'", problem.offset):
        return _HIDDEN_BACKSLASH
    return None


def _located(text: str, max_depth: int) -> Any:
    return _built(text, max_depth, locate=True).root


@dataclass(slots=True)
class _Unsupported:
    """Stands in a built value for something JSON cannot say. Keys are refused at an earlier stage than values."""

    message: str
    offset: int
    stage: int


@dataclass(slots=True)
class _Anchor:
    """What an alias stands for. `weight` is the number of values that decoding it decodes; 0 while it is open."""

    value: Any
    weight: int


@dataclass(slots=True)
class _Frame:
    """A mapping or sequence that is not closed yet."""

    value: dict[str, Any] | list[Any]
    is_flow: bool
    offset: int
    decoded: int  # go-yaml's count before this one
    anchor: _Anchor | None = None
    key: str | None = None
    key_at: int = 0
    merging: bool = False  # the key is `<<`
    merged: set[str] = field(default_factory=set)  # keys that only a merge has set: to write one again is no duplicate
    refused: _Unsupported | None = None  # why the key cannot be one

    def step(self) -> str | int:
        return len(self.value) if isinstance(self.value, list) else self.key or ""


class _Builder:
    """Makes the value of one document out of libyaml's events. With `locate`, members are pairs (offset, value)."""

    def __init__(self, text: str, max_depth: int, locate: bool, has_hidden: bool) -> None:
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
        self._failure: Problem | None = None
        self._has_unsupported = False
        self._has_slash_escape = "\\/" in text
        self._has_hidden = has_hidden

    def build(self) -> None:
        loader = yaml.CSafeLoader(self.text)
        try:
            self._consume(loader)
        except yaml.reader.ReaderError as error:
            found = _CONTROL.search(self.text)
            raise Problem(error.reason, found.start() if found else 0) from error
        except yaml.MarkedYAMLError as error:
            mark: Any = error.problem_mark
            raise Problem(str(error.problem), mark.index) from error
        finally:
            loader.dispose()
        if self._failure is not None:
            raise self._failure
        if self._has_unsupported and not self.locate:
            self._refuse_unsupported()

    def _consume(self, loader: yaml.CSafeLoader) -> None:
        handlers: dict[type, Callable[[Any], None]] = {
            yaml.ScalarEvent: self._on_scalar,
            yaml.MappingStartEvent: partial(self._on_start, dict),
            yaml.SequenceStartEvent: partial(self._on_start, list),
            yaml.MappingEndEvent: self._on_end,
            yaml.SequenceEndEvent: self._on_end,
            yaml.AliasEvent: self._on_alias,
        }
        work = 0
        for count in itertools.count():
            event: Any = loader.get_event()
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
            elif isinstance(event, (yaml.DocumentEndEvent, yaml.StreamEndEvent)):
                return
            if count % _EVENTS_PER_LOOK == 0 and len(self._stack) > _HARMLESS_DEPTH:
                work += len(self._stack) * _EVENTS_PER_LOOK
                if work > _MAX_DEEP_WORK:
                    raise Problem("the document is too large for its depth", event.start_mark.index)

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
        value: Scalar = None
        try:
            value = resolve(
                event.tag, event.value.translate(_SHOW_HIDDEN) if self._has_hidden else event.value, implicit
            )
        except ScalarError as error:
            self._fail(str(error), offset)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(value, 1)
        self._add(value, offset)

    def _on_start(self, kind: type[dict[str, Any] | list[Any]], event: Any) -> None:
        offset = event.start_mark.index
        if len(self._stack) >= self.max_depth:
            raise Problem(f"exceeded max depth of {self.max_depth}", offset)
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
            raise Problem(f"unknown anchor '{shortened(event.anchor)}' referenced", offset)
        if anchor.weight == 0:
            self._fail(f"anchor '{shortened(event.anchor)}' value contains itself", offset)
        self._decoded += anchor.weight
        self._aliased += anchor.weight
        self._count(offset)
        value = None if self._failure else self._copied(anchor.value, offset)
        self._add(value, offset, aliased=True)

    def _count(self, offset: int) -> None:
        """Count one decoded value; go-yaml checks its budget at each, so the share that is allowed is that of now."""
        self._decoded += 1
        if self._aliased <= _FREE_ALIASED or self._decoded <= _FREE_DECODED:
            return
        if self._aliased / self._decoded > _allowed_share(self._decoded):
            self._fail("document contains excessive aliasing", offset)

    def _fail(self, message: str, offset: int) -> None:
        """Keep the first failure to build; parsing goes on, as a syntax error further down would come before it."""
        if self._failure is None:
            self._failure = Problem(message, offset)

    def _check_escapes(self, event: Any) -> None:
        """libyaml takes `\\/` for a slash, as YAML 1.2 does; go-yaml knows no such escape (Y2)."""
        start = event.start_mark.index
        for escape in _ESCAPE.finditer(self.text, start, event.end_mark.index):
            if escape[1] == "/":
                raise Problem(_UNKNOWN_ESCAPE, escape.start())

    def _stray_question_mark(self, offset: int) -> Problem:
        """In a flow collection go-yaml ends a plain scalar at `?`, and a key cannot start there: `[http://x?y]`."""
        closing = "}" if isinstance(self._stack[-1].value, dict) else "]"
        return Problem(f"did not find expected ',' or '{closing}'", self.text.index("?", offset))

    def _awaits_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].key is None and type(self._stack[-1].value) is dict

    def _take_merge_key(self, event: Any) -> None:
        frame = self._stack[-1]
        frame.key = _MERGE
        frame.merging = True
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(_MERGE, 1)

    def _add(self, value: Any, offset: int, aliased: bool = False) -> None:
        """Put a finished value where it belongs."""
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
            frame.key = f"\0{value}"  # a name of its own, so that no other key overwrites it
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
        """An alias gets a value of its own, so that nobody changes two fields by setting one."""
        if not isinstance(value, (dict, list)):
            return value
        root = _shell(value)
        copying = [(value, root, len(self._stack) + 1)]
        while copying:
            original, twin, depth = copying.pop()
            if depth > self.max_depth:
                raise Problem(f"exceeded max depth of {self.max_depth}", offset)
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
            raise Problem(first.message, first.offset)


def _shell(value: Any) -> Any:
    return {} if isinstance(value, dict) else [None] * len(value)


def _members(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _allowed_share(decoded: int) -> float:
    fallen = (decoded - _SHARE_FALLS_FROM) / (_SHARE_FALLS_TO - _SHARE_FALLS_FROM)
    return 0.99 - 0.89 * min(1.0, max(0.0, fallen))
