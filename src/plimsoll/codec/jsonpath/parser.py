"""The syntax of kubectl's JSONPath templates, with kubectl's error messages.

A template is text with expressions in braces. An expression is a path (`.a`, `['a']`, `..`, `*`, `[1:3]`, `[0,2]`,
`[?(@.a==1)]`), a quoted text, a number, `true`, `false`, or `range` and `end` around what is repeated. The grammar is
https://kubernetes.io/docs/reference/kubectl/jsonpath/.
"""

from __future__ import annotations

import re

import msgspec

_END = ""  # what `_next` returns after the last character
_QUOTED_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)")
_NAMED_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_CODED_ESCAPES = {"x": 2, "u": 4, "U": 8}  # how many hexadecimal digits follow


class TemplateError(ValueError):
    """A template that cannot be parsed or executed; `str()` is kubectl's message."""


class Text(msgspec.Struct, frozen=True):
    text: str


class Literal(msgspec.Struct, frozen=True):
    value: bool | int | float


class Field(msgspec.Struct, frozen=True):
    name: str


class Wildcard(msgspec.Struct, frozen=True):
    pass


class Recursive(msgspec.Struct, frozen=True):
    pass


class Keyword(msgspec.Struct, frozen=True):
    """`range` or `end`; another word is an error when it is executed."""

    name: str


class Slice(msgspec.Struct, frozen=True):
    start: int | None
    end: int | None
    step: int | None
    one: bool  # an index: `end` is start + 1


class Union(msgspec.Struct, frozen=True):
    members: tuple[Expression, ...]


class Filter(msgspec.Struct, frozen=True):
    left: Expression
    operator: str  # empty: whether `left` exists
    right: Expression


Node = Text | Literal | Field | Wildcard | Recursive | Keyword | Slice | Union | Filter
Expression = tuple[Node, ...]
Template = tuple[Text | Expression, ...]


def parsed(template: str) -> Template:
    """Text and expressions in their order. Raises TemplateError."""
    parts: list[Text | Expression] = []
    position = 0
    while position < len(template):
        brace = template.find("{", position)
        if brace < 0:
            parts.append(Text(template[position:]))
            break
        if brace > position:
            parts.append(Text(template[position:brace]))
        expression = _Expression(template, brace + 1)
        parts.append(expression.nodes())
        position = expression.position
    return tuple(parts)


def relaxed(path: str) -> str:
    """`.a.b`, `a.b` and `{a.b}` as `{.a.b}`, for options that take one path."""
    match = re.fullmatch(r"\{\.?([^{}]+)\}|\.?([^{}]+)", path)
    if match is None:
        raise TemplateError(
            "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'"
        )
    return f"{{.{match[1] or match[2]}}}"


def _inner(text: str) -> Expression:
    """An expression inside another one, such as the left side of a filter."""
    first = parsed(f"{{{text}}}")[0]
    assert isinstance(first, tuple)
    return first


class _Expression:
    """Parses from behind `{` until behind `}`."""

    def __init__(self, template: str, start: int) -> None:
        self._template = template
        self.position = start
        self._nodes: list[Node] = []

    def nodes(self) -> Expression:
        while not self._skipped("}"):
            if self._skipped("[?("):
                self._filter()
            elif self._skipped(".."):
                self._recursive()
            else:
                self._node()
        return tuple(self._nodes)

    def _node(self) -> None:
        start, character = self.position, self._next()
        if character in (_END, "\r", "\n"):
            raise TemplateError("unclosed action")
        if character in " @$":  # `@` and `$` are the current object
            return
        if character == "[":
            self._brackets()
        elif character in "\"'":
            self._quoted(character)
        elif character == ".":
            self._field()
        elif character in "+-" or character.isdecimal():
            self._number(start)
        elif _is_word(character):
            self._word(start)
        else:
            raise TemplateError(f"unrecognized character in action: U+{ord(character):04X} '{character}'")

    def _next(self) -> str:
        character = self._template[self.position : self.position + 1]
        self.position += len(character)
        return character

    def _skipped(self, prefix: str) -> bool:
        if self._template.startswith(prefix, self.position):
            self.position += len(prefix)
            return True
        return False

    def _until_terminator(self) -> None:
        while self.position < len(self._template) and not _is_terminator(self._template[self.position]):
            self.position += 2 if self._template[self.position] == "\\" else 1

    def _recursive(self) -> None:
        if self._nodes and isinstance(self._nodes[-1], Recursive):
            raise TemplateError("invalid multiple recursive descent")
        self._nodes.append(Recursive())
        if _is_word(self._template[self.position : self.position + 1]):
            self._field()

    def _field(self) -> None:
        start = self.position
        self._until_terminator()
        name = self._template[start : self.position]
        self._nodes.append(Wildcard() if name == "*" else Field(name.replace("\\", "")))

    def _word(self, start: int) -> None:
        while self.position < len(self._template) and not _is_terminator(self._template[self.position]):
            self.position += 1
        word = self._template[start : self.position]
        self._nodes.append(Literal(word == "true") if word in ("true", "false") else Keyword(word))

    def _number(self, start: int) -> None:
        while (character := self._template[self.position : self.position + 1]) == "." or character.isdecimal():
            self.position += 1
        text = self._template[start : self.position]
        try:
            self._nodes.append(Literal(int(text) if "." not in text else float(text)))
        except ValueError:
            raise TemplateError(f"cannot parse number {text}") from None

    def _quoted(self, quote: str) -> None:
        start = self.position - 1
        while True:
            character = self._next()
            if character in (_END, "\n"):
                raise TemplateError("unterminated quoted string")
            if character == quote and self._template[self.position - 2] != "\\":
                break
        text = self._template[start : self.position]
        unquoted = _unquoted(text[1:-1], quote)
        if unquoted is None:
            raise TemplateError(f"unquote string {text} error invalid syntax")
        self._nodes.append(Text(unquoted))

    def _brackets(self) -> None:
        start = self.position
        while (character := self._next()) != "]":
            if character in (_END, "\n"):
                raise TemplateError("unterminated array")
        text = self._template[start : self.position - 1]
        members = text.split(",")
        if len(members) > 1:
            self._nodes.append(Union(tuple(_inner(f"[{member.strip(' ')}]") for member in members)))
        elif (key := _QUOTED_KEY.fullmatch(text)) is not None:
            self._nodes += _inner(f".{key[1]}")
        else:
            self._nodes.append(_slice(":" if text == "*" else text))

    def _filter(self) -> None:
        start, quote, closed = self.position, "", False
        while True:
            character = self._next()
            if character in (_END, "\n"):
                raise TemplateError("unterminated filter")
            if character in "\"'":
                if not quote:
                    quote = character
                elif character == quote and self._template[self.position - 2] != "\\":
                    closed = True
            elif character == ")" and bool(quote) == closed:
                break
        text = self._template[start : self.position - 1]
        if self._next() != "]":
            raise TemplateError("unclosed array expect ]")
        found = _COMPARISON.fullmatch(text)
        if found is None:
            self._nodes.append(Filter(_inner(text), "", ()))
        else:
            self._nodes.append(Filter(_inner(found[1]), found[2], _inner(found[3])))


def _slice(text: str) -> Slice:
    match = _SLICE.fullmatch(text)
    if match is None:
        raise TemplateError(f"invalid array index {text}")
    numbers: list[int | None] = []
    for part in match.groups(""):
        digits = part.removeprefix(":")
        if digits == "-":
            raise TemplateError(f"array index {digits} is not a number")
        numbers.append(int(digits) if digits else None)
    start, end, step = numbers
    one = match[2] is None
    return Slice(start, (start or 0) + 1 if one else end, step, one)


def _unquoted(text: str, quote: str) -> str | None:
    """Go's escapes in a quoted text; None if one is invalid."""
    result, position = [], 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            result.append(character)
            continue
        escape = text[position : position + 1]
        position += 1
        if escape in _NAMED_ESCAPES or escape == quote:
            result.append(_NAMED_ESCAPES.get(escape, quote))
            continue
        octal = escape.isascii() and escape.isdigit()
        if octal:
            position -= 1
        size, base = (3, 8) if octal else (_CODED_ESCAPES.get(escape, 0), 16)
        digits = text[position : position + size]
        position += size
        try:
            if not size or len(digits) < size:
                return None
            result.append(chr(int(digits, base)))
        except ValueError:
            return None
    return "".join(result)


def _is_word(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()


def _is_terminator(character: str) -> bool:
    return character in " \t\r\n.,[]$@{}"
