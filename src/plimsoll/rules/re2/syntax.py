"""From the text of a pattern to a tree, with the syntax and the error messages of Go's `regexp/syntax`.

A tree is made of tuples: `("char", CharSet)`, `("cat", (…))`, `("alt", (…))`, `("repeat", tree, least, most, lazy)`,
`("group", tree)`, `("assert", name)`. Captured groups are not recorded: no caller reads them.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

import msgspec

Tree = tuple[Any, ...]
MAX_REPEAT = 1000
MAX_NESTING = 200
MAX_RUNE = 0x10FFFF
Range = tuple[int, int]

_DIGIT: tuple[Range, ...] = ((48, 57),)
_SPACE: tuple[Range, ...] = ((9, 10), (12, 13), (32, 32))
_WORD: tuple[Range, ...] = ((48, 57), (65, 90), (95, 95), (97, 122))
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: dict[str, tuple[Range, ...]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_CATEGORIES = frozenset(
    [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "Lm",
        "Lo",
        "M",
        "Mn",
        "Mc",
        "Me",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Ps",
        "Pe",
        "Pi",
        "Pf",
        "Po",
        "S",
        "Sm",
        "Sc",
        "Sk",
        "So",
        "Z",
        "Zs",
        "Zl",
        "Zp",
        "C",
        "Cc",
        "Cf",
        "Cs",
        "Co",
    ]
)


class RegexError(ValueError):
    """A pattern that Go would refuse; `str()` is Go's message."""

    def __init__(self, code: str, fragment: str) -> None:
        super().__init__(f"error parsing regexp: {code}: `{fragment}`")


class CharSet(msgspec.Struct, frozen=True):
    """Characters by code: in one of the ranges, or in one of the Unicode categories; or not, if negated."""

    ranges: tuple[Range, ...] = ()
    categories: tuple[tuple[str, bool], ...] = ()  # category, negated
    negated: bool = False
    fold: bool = False

    def has(self, char: str) -> bool:
        found = self._has(char)
        if not found and self.fold:
            found = any(len(each) == 1 and self._has(each) for each in (char.lower(), char.upper()))
        return found is not self.negated

    def _has(self, char: str) -> bool:
        code = ord(char)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        if not self.categories:
            return False
        category = unicodedata.category(char)
        return any(category.startswith(name) is not negated for name, negated in self.categories)


def _complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    if start <= MAX_RUNE:
        found.append((start, MAX_RUNE))
    return tuple(found)


class _Flags(msgspec.Struct, frozen=True):
    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


@lru_cache(256)
def parse(pattern: str) -> Tree:
    """Raises RegexError."""
    parser = _Parser(pattern)
    tree, _ = parser.alternation(_Flags(), 0)
    if parser.at < len(pattern):
        raise RegexError("unexpected )", pattern)
    return tree


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def alternation(self, flags: _Flags, depth: int) -> tuple[Tree, _Flags]:
        if depth > MAX_NESTING:
            raise RegexError("expression nests too deeply", self.text)
        branches: list[Tree] = []
        items: list[Tree] = []
        text = self.text
        while self.at < len(text) and text[self.at] != ")":
            char = text[self.at]
            if char == "|":
                self.at += 1
                branches.append(("cat", tuple(items)))
                items = []
            elif char == "(":
                item, flags = self._group(flags, depth)
                if item is not None:
                    items.append(item)
            elif char in "*+?" or (char == "{" and self._counted() is not None):
                self._repeat(items, flags)
            elif text.startswith("\\Q", self.at):
                end = text.find("\\E", self.at + 2)
                literal = text[self.at + 2 : end if end >= 0 else len(text)]
                items += [_literal(each, flags) for each in literal]
                self.at = len(text) if end < 0 else end + 2
            else:
                items.append(self._single(char, flags))
        branches.append(("cat", tuple(items)))
        return (branches[0] if len(branches) == 1 else ("alt", tuple(branches))), flags

    def _group(self, flags: _Flags, depth: int) -> tuple[Tree | None, _Flags]:
        text, start = self.text, self.at
        self.at += 1
        inner = flags
        if text.startswith("?P<", self.at) or text.startswith("?<", self.at):
            end = text.find(">", self.at)
            name = text[text.index("<", self.at) + 1 : end]
            if end < 0:
                raise RegexError("invalid named capture", text[start:])
            if not name or not all(each.isascii() and (each.isalnum() or each == "_") for each in name):
                raise RegexError("invalid named capture", text[start : end + 1])
            self.at = end + 1
        elif text.startswith("?", self.at):
            inner = self._flags(flags, start)
            if text[self.at - 1] == ")":
                return None, inner
        tree, _ = self.alternation(inner, depth + 1)
        if self.at >= len(text):
            raise RegexError("missing closing )", text)
        self.at += 1
        return ("group", tree), flags

    def _flags(self, flags: _Flags, start: int) -> _Flags:
        """`(?i)` or `(?i:`; afterwards the position is behind the `)` or `:`."""
        self.at += 1
        sign, seen, values = True, False, msgspec.structs.asdict(flags)
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char in "imsU":
                values[char], seen = sign, True
            elif char == "-" and sign:
                sign, seen = False, False
            elif char in ":)" and (sign or seen):
                return _Flags(**values)
            else:
                break
        raise RegexError("invalid or unsupported Perl syntax", self.text[start : self.at])

    def _counted(self) -> tuple[int, int | None, int] | None:
        """`{2,5}` at the position: least, most, and where it ends."""
        end = self.text.find("}", self.at)
        if end < 0 or end - self.at > 12:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            return None
        most = int(high) if high else (None if comma else int(low))
        return int(low), most, end + 1

    def _repeat(self, items: list[Tree], flags: _Flags) -> None:
        start, char = self.at, self.text[self.at]
        counted = self._counted() if char == "{" else None
        if counted is not None:
            least, most, end = counted
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            end = start + 1
        lazy = flags.U
        if self.text.startswith("?", end):
            lazy, end = not lazy, end + 1
        operator = self.text[start:end]
        if not items:
            raise RegexError("missing argument to repetition operator", operator)
        if least > MAX_REPEAT or (most or 0) > MAX_REPEAT or (most is not None and least > most):
            raise RegexError("invalid repeat count", operator)
        if items[-1][0] == "repeat" and items[-1][5] == start:
            raise RegexError("invalid nested repetition operator", f"{items[-1][6]}{operator}")
        items[-1] = ("repeat", items[-1], least, most, lazy, end, operator)
        self.at = end

    def _single(self, char: str, flags: _Flags) -> Tree:
        self.at += 1
        if char == "^":
            return ("assert", "line-start" if flags.m else "start")
        if char == "$":
            return ("assert", "line-end" if flags.m else "end")
        if char == ".":
            return ("char", _ANY if flags.s else _ANY_BUT_NEWLINE)
        if char == "[":
            return ("char", self._set(flags))
        if char == "\\":
            return self._escape(flags)
        return _literal(char, flags)

    def _escape(self, flags: _Flags) -> Tree:
        text, start = self.text, self.at - 1
        if self.at >= len(text):
            raise RegexError("trailing backslash at end of expression", "")
        char = text[self.at]
        names = {"A": "start", "z": "end", "b": "word", "B": "no-word"}
        if char in names:
            self.at += 1
            return ("assert", names[char])
        if char.lower() in _PERL:
            self.at += 1
            return ("char", CharSet(_PERL[char.lower()], negated=char.isupper()))
        if char in "pP":
            category, negated = self._category(start)
            return ("char", CharSet((), (category,), negated))
        return _literal(chr(self._code(start)), flags)

    def _category(self, start: int) -> tuple[tuple[str, bool], bool]:
        """`\\pL`, `\\p{Lu}`, `\\P{^L}`: the category, and whether it is negated."""
        text = self.text
        negated = text[self.at] == "P"
        self.at += 1
        if text.startswith("{", self.at):
            end = text.find("}", self.at)
            if end < 0:
                raise RegexError("invalid character class range", text[start:])
            name, self.at = text[self.at + 1 : end], end + 1
        else:
            name = text[self.at : self.at + 1]
            self.at += 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name == "Any":
            name = ""
        elif name not in _CATEGORIES:
            raise RegexError("invalid character class range", text[start : self.at])
        return (name, False), negated

    def _code(self, start: int) -> int:
        """The character of an escape whose letter is at the position."""
        text, char = self.text, self.text[self.at]
        self.at += 1
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in "01234567":
            if char != "0" and not ("0" <= text[self.at : self.at + 1] <= "7"):
                raise RegexError("invalid escape sequence", text[start : self.at])
            digits = char
            while len(digits) < 3 and "0" <= text[self.at : self.at + 1] <= "7" and text[self.at : self.at + 1]:
                digits += text[self.at]
                self.at += 1
            return int(digits, 8)
        if char == "x":
            if text.startswith("{", self.at):
                end = text.find("}", self.at)
                digits, end = (text[self.at + 1 : end], end + 1) if end > 0 else ("", len(text))
            else:
                digits, end = text[self.at : self.at + 2], self.at + 2
                if len(digits) < 2:
                    digits = ""
            try:
                value = int(digits, 16)
            except ValueError:
                value = MAX_RUNE + 1
            if value > MAX_RUNE or not digits.isalnum():
                raise RegexError("invalid escape sequence", text[start:end])
            self.at = end
            return value
        if char.isascii() and not char.isalnum():
            return ord(char)
        raise RegexError("invalid escape sequence", text[start : self.at])

    def _set(self, flags: _Flags) -> CharSet:
        text, start = self.text, self.at - 1
        negated = text.startswith("^", self.at)
        self.at += negated
        ranges: list[Range] = []
        categories: list[tuple[str, bool]] = []
        is_first = True
        while is_first or not text.startswith("]", self.at):
            if self.at >= len(text):
                raise RegexError("missing closing ]", text[start:])
            is_first = False
            if text.startswith("[:", self.at) and (end := text.find(":]", self.at)) > 0:
                name = text[self.at + 2 : end]
                found = _POSIX.get(name.removeprefix("^"))
                if found is None:
                    raise RegexError("invalid character class range", text[self.at : end + 2])
                ranges += _complement(found) if name.startswith("^") else found
                self.at = end + 2
                continue
            if text[self.at] == "\\" and (letter := text[self.at + 1 : self.at + 2]) and letter in "dDsSwWpP":
                self.at += 1
                if letter in "pP":
                    (name, _), not_in = self._category(self.at - 1)
                    categories.append((name, not_in))
                else:
                    self.at += 1
                    found = _PERL[letter.lower()]
                    ranges += _complement(found) if letter.isupper() else found
                continue
            began = self.at
            low = high = self._set_char(start)
            if text.startswith("-", self.at) and not text.startswith("-]", self.at) and self.at + 1 < len(text):
                self.at += 1
                high = self._set_char(start)
                if high < low:
                    raise RegexError("invalid character class range", text[began : self.at])
            ranges.append((low, high))
        self.at += 1
        return CharSet(tuple(ranges), tuple(categories), negated, flags.i)

    def _set_char(self, start: int) -> int:
        if self.at >= len(self.text):
            raise RegexError("missing closing ]", self.text[start:])
        char = self.text[self.at]
        self.at += 1
        if char != "\\":
            return ord(char)
        if self.at >= len(self.text):
            raise RegexError("trailing backslash at end of expression", "")
        return self._code(self.at - 1)


_ANY = CharSet(((0, MAX_RUNE),))
_ANY_BUT_NEWLINE = CharSet(((10, 10),), negated=True)


def _literal(char: str, flags: _Flags) -> Tree:
    return ("char", CharSet(((ord(char), ord(char)),), fold=flags.i))
