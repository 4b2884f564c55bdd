"""JSON streams as kubectl reads them: one value after the other, separated only by white space.

kubectl reads a file whose first non-blank character is `{` as JSON only (Y4). Such files are mostly dumps (`kubectl get
-o json`), often large and nearly always valid, so there are two readers:

- `json` from the standard library, with hooks for Kubernetes' number rules. It is fast, but does not report offsets,
  and its C code fails on deep nesting.
- `_Scanner`, in Python: it has its own stack, records the offset of every key and reports Go's messages. It reads a
  value again if the fast reader failed or found a duplicate key, and if a line number is needed.

After a syntax error kubectl stops. Plimsoll continues at the next line that starts with `{`, which in an indented dump
is the next object.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from plimsoll.codec.yaml.read_error import MAX_DUPLICATES, Path, ReadError
from plimsoll.codec.yaml.scalars import json_number, shortened

MAX_RECOVERIES: Final = 50  # from syntax errors; with more of them this is not JSON

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_NEXT_OBJECT: Final = re.compile(r"^\{", re.MULTILINE)
_STRING: Final = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))((?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")
# Patterns that only an invalid or unusual text needs, compiled on first use.
_BROKEN_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)?(?P<fraction>\.[0-9]*)?(?P<exponent>[eE][-+]?)?"
_BROKEN_STRING: Final = r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*'
_BROKEN_ESCAPE: Final = r"\\(?:u[0-9a-fA-F]{0,3})?"
_LITERALS: Final[dict[str, tuple[str, bool | None]]] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}

_SURROGATE: Final = "[\ud800-\udfff]"
_SURROGATE_ESCAPE: Final = r"\\u[dD][89a-fA-F]"
_PAIR_ESCAPE: Final = r"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]"
_LONGEST_INT64: Final = 20  # characters, with the sign


class JsonValue(msgspec.Struct):
    """One value of a stream. `duplicates` are the repeated keys, each with its path and offset."""

    value: Any
    start: int
    end: int
    duplicates: list[tuple[Path, int]] = msgspec.field(default_factory=list)


def stream(text: str, max_depth: int) -> Iterator[JsonValue | ReadError]:
    """All values of a JSON stream; an error takes the place of an invalid value."""
    at = _skip_blanks(text, 0)
    recoveries = 0
    while at < len(text) and recoveries <= MAX_RECOVERIES:
        try:
            item = _decode(text, at, max_depth)
        except ReadError as error:
            yield error
            recoveries += error.end is None
            at = _next_object(text, max(error.offset, at + 1)) if error.end is None else error.end
        else:
            yield item
            at = item.end
        at = _skip_blanks(text, at)


def _next_object(text: str, at: int) -> int:
    found = _NEXT_OBJECT.search(text, at)
    return found.start() if found else len(text)


def located(text: str, start: int, max_depth: int) -> Any:
    """The value at an offset again, with every member of a container as a pair (offset, value)."""
    return _Scanner(text, start, max_depth, locate=True).scan().value


def _decode(text: str, start: int, max_depth: int) -> JsonValue:
    fast = _FastReader()
    try:
        value, end = fast.decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _Scanner(text, start, max_depth).scan()
    if fast.duplicates or is_deeper(value, max_depth) or _may_hold_lone_surrogate(text, start, end):
        return _Scanner(text, start, max_depth).scan()
    return JsonValue(value, start, end)


def is_deeper(value: Any, max_depth: int) -> bool:
    """Whether containers are nested more than this many times; without recursion."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(max_depth):
        members = (member for part in level for member in (part.values() if type(part) is dict else part))
        level = [member for member in members if type(member) is dict or type(member) is list]
        if not level:
            return False
    return bool(level)


def without_surrogates(text: str) -> str:
    """A lone surrogate cannot be written as UTF-8; Go replaces it by U+FFFD."""
    return re.sub(_SURROGATE, "\ufffd", text)


def _may_hold_lone_surrogate(text: str, start: int, end: int) -> bool:
    """Go writes U+FFFD for a lone surrogate, Python keeps it. An escaped backslash before it counts as suspicious."""
    halves = sum(1 for _ in re.compile(_SURROGATE_ESCAPE).finditer(text, start, end))
    return halves > 0 and halves != 2 * sum(1 for _ in re.compile(_PAIR_ESCAPE).finditer(text, start, end))


class _FastReader:
    """The standard library's decoder; anything unusual is an error here, which the scanner explains."""

    def __init__(self) -> None:
        self.duplicates = False
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._object, parse_int=_int, parse_float=_float, parse_constant=_constant
        )

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            self.duplicates = True
        return members


def _int(text: str) -> int | float:
    if len(text) < _LONGEST_INT64 - 1:
        return int(text)
    # JSON has no leading zeros: a longer text exceeds int64, and int() would refuse thousands of digits.
    return json_number(int(text)) if len(text) <= _LONGEST_INT64 else _float(text)


def _float(text: str) -> int | float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"json: cannot unmarshal number {shortened(text)} into Go value of type float64")
    return json_number(number)


def _constant(text: str) -> Any:
    raise ValueError(text)  # Python accepts NaN and Infinity


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


class _Frame:
    """An object or array that is not closed yet."""

    __slots__ = ("key", "key_at", "start", "value")

    def __init__(self, value: dict[str, Any] | list[Any], start: int) -> None:
        self.value = value
        self.start = start
        self.key = ""
        self.key_at = 0


class _Scanner:
    """Reads one value. The stack is a list, so the depth is bounded by `max_depth` alone."""

    def __init__(self, text: str, start: int, max_depth: int, locate: bool = False) -> None:
        self.text = text
        self.start = start
        self.at = start
        self.max_depth = max_depth
        self.locate = locate
        self.overflow: ReadError | None = None  # Go checks numbers only after the syntax
        self.stack: list[_Frame] = []
        self.duplicates: list[tuple[Path, int]] = []

    def scan(self) -> JsonValue:
        while True:
            self._skip()
            value_at = self.at
            if self._opened():
                continue
            done, value = self._closed(self._atom(), value_at)
            if done:
                break
        if self.overflow is not None:
            self.overflow.end = self.at
            raise self.overflow
        return JsonValue(value, self.start, self.at, self.duplicates)

    def _opened(self) -> bool:
        """Enter a container, up to its first value. `_atom` reads an empty one."""
        char = self._peek()
        if char not in "{[":
            return False
        if len(self.stack) >= self.max_depth:
            raise self._invalid("exceeded max depth")
        start = self.at
        self.at += 1
        self._skip()
        if self._peek() == ("}" if char == "{" else "]"):
            self.at = start
            return False
        self.stack.append(_Frame({} if char == "{" else [], start))
        if char == "{":
            self._key()
        return True

    def _closed(self, value: Any, value_at: int) -> tuple[bool, Any]:
        """Add a finished value to its container, and that to its own if it ends here."""
        while self.stack:
            frame = self.stack[-1]
            self._put(frame, value, value_at)
            self._skip()
            char = self._peek()
            in_object = isinstance(frame.value, dict)
            if char == ",":
                self.at += 1
                if in_object:
                    self._key()
                return False, None
            if char != ("}" if in_object else "]"):
                raise self._invalid("after object key:value pair" if in_object else "after array element")
            self.at += 1
            self.stack.pop()
            value, value_at = frame.value, frame.start
        return True, value

    def _put(self, frame: _Frame, value: Any, value_at: int) -> None:
        if isinstance(frame.value, list):
            frame.value.append((value_at, value) if self.locate else value)
        else:
            frame.value[frame.key] = (frame.key_at, value) if self.locate else value

    def _key(self) -> None:
        self._skip()
        frame = self.stack[-1]
        if self._peek() != '"':
            raise self._invalid("looking for beginning of object key string")
        frame.key_at = self.at
        frame.key = self._string()
        if frame.key in frame.value and len(self.duplicates) < MAX_DUPLICATES:
            self.duplicates.append((self._path(), frame.key_at))
        self._skip()
        if self._peek() != ":":
            raise self._invalid("after object key")
        self.at += 1

    def _path(self) -> Path:
        return tuple(frame.key if isinstance(frame.value, dict) else len(frame.value) for frame in self.stack)

    def _atom(self) -> Any:
        char = self._peek()
        if char in "{[":
            self.at = self.text.index("}" if char == "{" else "]", self.at) + 1
            return {} if char == "{" else []
        if char == '"':
            return self._string()
        if char in _LITERALS:
            return self._literal(*_LITERALS[char])
        if char == "-" or char in "0123456789":
            return self._number()
        raise self._invalid("looking for beginning of value")

    def _string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise self._broken_string()
        self.at = match.end()
        raw = match[0]
        if "\\" not in raw:
            return raw[1:-1]
        return without_surrogates(json.loads(raw))

    def _broken_string(self) -> ReadError:
        good = re.compile(_BROKEN_STRING).match(self.text, self.at)
        self.at = good.end() if good else self.at
        if self._peek() != "\\":
            return self._invalid("in string literal")
        escape = re.compile(_BROKEN_ESCAPE).match(self.text, self.at)
        self.at = escape.end() if escape else self.at
        unicode = escape is not None and len(escape[0]) > 1
        self._peek()
        return self._invalid("in \\u hexadecimal character escape" if unicode else "in string escape code")

    def _literal(self, word: str, value: bool | None) -> bool | None:
        for letter in word:
            if self._peek() != letter:
                raise self._invalid(f"in literal {word} (expecting '{letter}')")
            self.at += 1
        return value

    def _number(self) -> int | float:
        match = _NUMBER.match(self.text, self.at)
        if match is None or self.text[match.end() : match.end() + 1] in (".", "e", "E"):
            raise self._broken_number()
        start, self.at = self.at, match.end()
        try:
            return _float(match[0]) if match[2] else _int(match[0])
        except ValueError as error:
            self.overflow = self.overflow or ReadError(str(error), start)
            return 0

    def _broken_number(self) -> ReadError:
        good = re.compile(_BROKEN_NUMBER).match(self.text, self.at)
        self.at = good.end() if good else self.at
        self._peek()
        if good and good["exponent"]:
            return self._invalid("in exponent of numeric literal")
        return self._invalid(
            "after decimal point in numeric literal" if good and good["fraction"] else "in numeric literal"
        )

    def _skip(self) -> None:
        self.at = _skip_blanks(self.text, self.at)

    def _peek(self) -> str:
        try:
            return self.text[self.at]
        except IndexError:
            # The error is on the last line with text.
            raise ReadError("unexpected EOF", len(self.text.rstrip()) - 1) from None

    def _invalid(self, where: str) -> ReadError:
        char = self.text[self.at]
        shown = "\\'" if char == "'" else char if char.isprintable() else ascii(char)[1:-1]
        return ReadError(f"invalid character '{shown}' {where}", self.at)
