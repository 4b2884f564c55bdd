"""Manifests as kubectl reads them: bytes → documents of JSON types, with the line of every field.

What kubectl accepts is not standard YAML but the result of several stages, and their order matters (06 Y1–Y4). In
kubectl's order:

1. **Text.** A byte order mark decides between UTF-8 and UTF-16; invalid bytes become U+FFFD.
2. **Mode.** If the first non-blank character is `{`, the input is a stream of JSON values (`json_stream`).
3. **Cutting.** Otherwise the text is cut at lines that start with `---`, before any YAML is parsed: even inside a
   quoted scalar, and away from `%` directives. Such a line may contain only a comment besides.
4. **Parsing.** libyaml, of which go-yaml is a translation, turns each piece into events. Only the first document of a
   piece counts; what follows `...` is ignored.
5. **Building** (`builder`). Scalars are resolved (`scalars`), aliases are expanded within go-yaml's budget, merge keys
   are applied in the order of the text, and of two equal keys the later one wins.
6. **Conversion to JSON** (`builder`, at its end). What JSON cannot express is refused: NaN, infinity, null as a key.

kubectl stops at the first error. `read` yields it in place of the invalid document and continues with the next, so
that one run reports all. An error of an earlier stage hides those of later stages in the same document, as in kubectl.

Line numbers are needed only for errors, so they are not collected while reading. `YamlDocument.line_of`
runs the builder a second time; there, each member of a container is a pair (offset, value).
"""

from __future__ import annotations

import codecs
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from plimsoll.codec.yaml.builder import UNKNOWN_ESCAPE, Builder
from plimsoll.codec.yaml.read_error import Path, ReadError
from plimsoll.codec.yaml.scalars import shortened
from plimsoll.errors import StructuredError

MAX_BYTES: Final = 64 << 20
MAX_DEPTH: Final = 10_000

# The white space of Go's unicode.IsSpace; Python's strip() would also remove U+001C to U+001F.
_GO_BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_JSON_START: Final = re.compile(f"[{_GO_BLANKS}]*{{")
_SEPARATOR: Final = re.compile(r"^---([^\n]*)\n?", re.MULTILINE)
_NOTHING: Final = frozenset(["", "\n", "---\n"])  # no parser needed
_LINE_BREAK: Final = r"\r\n?|\n"
# Placeholders for what libyaml must not see: private use characters, which manifests hardly ever contain.
_HIDDEN_COLON, _HIDDEN_BACKSLASH, _HIDDEN_BOM = "\uf5f5", "\uf5f6", "\uf5f7"
_STAND_IN: Final = f"[{_HIDDEN_COLON}{_HIDDEN_BACKSLASH}{_HIDDEN_BOM}]"
_SHOW_HIDDEN: Final = str.maketrans({_HIDDEN_COLON: ":", _HIDDEN_BACKSLASH: "", _HIDDEN_BOM: "\ufeff"})
_BOM_AT_LINE_START: Final = "(?<=[\n\r\x85\u2028\u2029])\ufeff"
_MAX_HIDDEN: Final = 100
_MAX_REPARSED: Final = 4 << 20  # characters
_JSON_TYPES: Final[dict[type, str]] = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}


class YamlError(StructuredError):
    """A document that cannot be read. `line` counts in the file, `document` among the documents of the input."""

    message: str
    document: int
    line: int | None

    def __str__(self) -> str:
        return self.message if self.line is None else f"line {self.line}: {self.message}"


class YamlDocument(msgspec.Struct, frozen=True, eq=False):
    """One document: its value in JSON types, and the lines of its fields.

    `index` counts from 1 without empty documents, which kubectl skips. `duplicates` are the repeated keys, of which the
    last one wins: (path, line of the later key).
    """

    value: Any
    index: int
    duplicates: list[tuple[Path, int]]
    _places: _Places

    def __repr__(self) -> str:
        """Without the value, which may be too deep for repr()."""
        return f"Document(index={self.index})"

    @property
    def line(self) -> int:
        """The line where the content starts, after blank lines and comments."""
        return self._places.line_of(())

    def line_of(self, path: Path) -> int:
        """The line of the key or element at this path, or of its nearest existing ancestor."""
        return self._places.line_of(path)


def read(data: bytes, max_depth: int = MAX_DEPTH) -> Iterator[YamlDocument | YamlError]:
    """All documents of a file in order, with an error in the place of each invalid one."""
    if len(data) > MAX_BYTES:
        yield YamlError(f"the input is larger than {MAX_BYTES >> 20} MiB", 1, None)
        return
    source = _Source(_decoded(data))
    results = _read_json if _JSON_START.match(source.text) else _read_yaml
    yield from _documents(source, results(source, max_depth))


def read_body(data: bytes, max_depth: int = MAX_DEPTH) -> YamlDocument | YamlError | None:
    """The first document of a request body with a YAML media type, None without any.

    An API server reads it as YAML also if it starts with a brace: commas may trail and comments are allowed. What is
    JSON is read as JSON, which is the same and faster.
    """
    source = _Source(_decoded(data))
    if _JSON_START.match(source.text):
        found = list(_read_json(source, max_depth))
        if len(found) == 1 and isinstance(found[0], _Parsed):
            return next(_documents(source, iter(found)))
    return next(_documents(source, _read_yaml(source, max_depth)), None)


def _documents(source: _Source, results: Iterator[_Parsed | ReadError]) -> Iterator[YamlDocument | YamlError]:
    for index, result in enumerate(results, 1):
        if isinstance(result, ReadError):
            yield YamlError(result.message, index, source.line(result.offset))
        elif not isinstance(result.value, dict):
            kind = _JSON_TYPES[type(result.value)]
            message = f"json: cannot unmarshal {kind} into Go value of type unstructured.detector"
            yield YamlError(message, index, result.places.line_of(()))
        else:
            duplicates = [(path, source.line(offset)) for path, offset in result.duplicates]
            yield YamlDocument(result.value, index, duplicates, result.places)


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    # kubectl joins the lines of a document with \n, whatever ended them.
    return text.replace("\r\n", "\n")


class _Source:
    """The whole input, and its lines on first use."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._line_starts: array[int] | None = None

    def line(self, offset: int) -> int:
        if self._line_starts is None:
            self._line_starts = array("Q", [0])
            self._line_starts.extend(match.end() for match in re.compile(_LINE_BREAK).finditer(self.text))
        return bisect_right(self._line_starts, offset)


class _Places:
    """The offsets of the parts of one document: a tree of pairs (offset, value), built on first use."""

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


class _Parsed(msgspec.Struct):
    value: Any
    duplicates: list[tuple[Path, int]]
    places: _Places


def _read_json(source: _Source, max_depth: int) -> Iterator[_Parsed | ReadError]:
    from plimsoll.codec.yaml import json_stream

    for item in json_stream.stream(source.text, max_depth):
        if isinstance(item, ReadError):
            yield item
        elif item.value is not None:
            locate = partial(json_stream.located, source.text, item.start, max_depth)
            yield _Parsed(item.value, item.duplicates, _Places(source, 0, item.start, locate))


def _read_yaml(source: _Source, max_depth: int) -> Iterator[_Parsed | ReadError]:
    for piece in _pieces(source.text):
        if isinstance(piece, ReadError):
            yield piece
            continue
        start, text = piece
        if text in _NOTHING:
            continue
        try:
            builder = _built(text, max_depth)
        except ReadError as problem:
            # An error at the end is on the last line with text.
            at = problem.offset if problem.offset < len(text) else max(0, len(text.rstrip()) - 1)
            yield ReadError(problem.message, start + at)
            continue
        if builder.root is not None:
            duplicates = [(path, start + offset) for path, offset in builder.duplicates]
            places = _Places(source, start, builder.start, partial(_located, text, max_depth))
            yield _Parsed(builder.root, duplicates, places)


def _pieces(text: str) -> Iterator[tuple[int, str] | ReadError]:
    """The text between separators, each with its offset (Y4).

    kubectl loses the document before a bad separator and everything after it. Plimsoll loses only the one that it
    starts.
    """
    start = 0
    spoiled: ReadError | None = None
    for separator in _SEPARATOR.finditer(text):
        bad = _bad_separator(separator)
        if spoiled is not None:
            yield spoiled
        elif separator.start() > start:
            yield _piece(text, start, separator.start())
        elif bad is None:
            continue  # kubectl passes a separator at the start to the YAML parser
        start, spoiled = separator.end(), bad
    yield spoiled if spoiled is not None else _piece(text, start, len(text))


def _bad_separator(separator: re.Match[str]) -> ReadError | None:
    rest = separator[1].strip(_GO_BLANKS)
    if not rest or rest.startswith("#"):
        return None
    return ReadError(f"invalid Yaml document separator: {shortened(rest)}", separator.start())


def _piece(text: str, start: int, end: int) -> tuple[int, str]:
    if text.startswith("\ufeff", start):
        start += 1  # libyaml skips it without counting it
    # kubectl ends every line with \n, also the last one: a block scalar shows the difference.
    return start, text[start:end] if text.endswith("\n", start, end) else text[start:end] + "\n"


def _built(text: str, max_depth: int, locate: bool = False) -> Builder:
    """The finished builder.

    What go-yaml accepts and libyaml refuses is hidden from libyaml, and the text is parsed again: a colon at the end of
    a plain scalar in a flow collection (`[a:]`), and `\\'` in double quotes. Large texts get fewer attempts. libyaml
    also skips a byte order mark at the start of any line, where go-yaml sees a character.
    """
    can_hide = not re.search(_STAND_IN, text)
    trials = min(_MAX_HIDDEN, 1 + _MAX_REPARSED // (len(text) + 1)) if can_hide else 0
    if can_hide and "\ufeff" in text:
        text = re.compile(_BOM_AT_LINE_START).sub(_HIDDEN_BOM, text)
    while True:
        has_hidden = can_hide and re.search(_STAND_IN, text) is not None
        builder = Builder(text, max_depth, locate, hidden=_SHOW_HIDDEN if has_hidden else None)
        try:
            builder.build()
        except ReadError as problem:
            stand_in = _stand_in(problem, text)
            if stand_in is None or trials == 0:
                raise
            text = text[: problem.offset] + stand_in + text[problem.offset + 1 :]
            trials -= 1
        else:
            return builder


def _stand_in(problem: ReadError, text: str) -> str | None:
    if problem.message == "found unexpected ':'":
        return _HIDDEN_COLON
    if problem.message == UNKNOWN_ESCAPE and text.startswith("\\'", problem.offset):
        return _HIDDEN_BACKSLASH
    return None


def _located(text: str, max_depth: int) -> Any:
    return _built(text, max_depth, locate=True).root
