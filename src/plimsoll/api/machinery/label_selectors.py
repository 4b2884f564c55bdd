"""Label selectors: Kubernetes' lexer and parser, with its parse errors (05 B6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from plimsoll.api.machinery.status import StatusError, bad_request
from plimsoll.rules.model.names import label_value_problems, qualified_name_problems
from plimsoll.rules.model.objects import SelectorTerm
from plimsoll.rules.scheduling.selectors import go_integer

MAX_TERMS = 10_000
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
