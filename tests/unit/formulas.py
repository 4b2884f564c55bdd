"""A calculator for the formulas that `explain` prints, written from the notation alone.

A formula is steps joined by `; `, each `expression = result`, where words up to a colon are commentary. ⌊ ⌋ and ⌈ ⌉
round, · is times, − is minus, ^ is power, ² is the square, and there are `max(…)` and `min(…)`. A step without `=` only
says something (`the most: 10000`).

Numbers are exact fractions. With `doubles=True` they are IEEE doubles, for what Kubernetes itself computes in doubles:
memory.high, swap and the quadratic weight.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import NamedTuple

Number = Fraction | float

_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(max|min)(?=\()|(.))")
_CLOSING = {"(": ")", "⌊": "⌋", "⌈": "⌉"}


class Step(NamedTuple):
    expression: str
    result: str


def steps(formula: str) -> list[Step]:
    """Only those with an `=`; what is left of it loses its commentary."""
    return [Step(*_without_words(step).split(" = ")) for step in formula.split("; ") if " = " in step]


def outcome(formula: str) -> str:
    """What the last step comes to: its result, or the first word after its commentary."""
    last = formula.rsplit("; ", maxsplit=1)[-1]
    if " = " in last:
        return last.rsplit(" = ", 1)[1]
    return last.rsplit(": ", 1)[-1].split(",")[0]


def _without_words(step: str) -> str:
    return step.rsplit(": ", 1)[-1]


def is_sum_of_many(step: Step) -> bool:
    """`sum of 12 = 3400`: more terms than are worth printing."""
    return re.fullmatch(r"sum of \d+", step.expression) is not None


def value_of(text: str, *, doubles: bool = False) -> Number:
    parser = _Parser(text, doubles)
    value = parser.sum()
    if parser.peek() is not None:
        raise ValueError(f"left over in {text!r}: {parser.tokens[parser.position :]}")
    return value


class _Parser:
    def __init__(self, text: str, doubles: bool) -> None:
        self.tokens = [match.group().strip() for match in _TOKEN.finditer(text) if match.group().strip()]
        self.position = 0
        self.doubles = doubles

    def peek(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        if token is None or (wanted is not None and token != wanted):
            raise ValueError(f"wanted {wanted!r}, found {token!r} in {self.tokens}")
        self.position += 1
        return token

    def sum(self) -> Number:
        value = self.product()
        while self.peek() in ("+", "−"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        return value

    def product(self) -> Number:
        value = self.power()
        while self.peek() in ("·", "/"):
            value = value * self.power() if self.take() == "·" else value / self.power()
        return value

    def power(self) -> Number:
        value = self.atom()
        if self.peek() == "²":
            self.take()
            value = value * value
        if self.peek() == "^":
            self.take()
            value = value ** self.power()
        return value

    def atom(self) -> Number:
        token = self.take()
        if token in ("−", "-"):
            return -self.atom()
        if token in _CLOSING:
            value = self.sum()
            self.take(_CLOSING[token])
            return value if token == "(" else self.number(math.floor(value) if token == "⌊" else math.ceil(value))
        if token in ("max", "min"):
            self.take("(")
            values = [self.sum()]
            while self.peek() == ",":
                self.take()
                values.append(self.sum())
            self.take(")")
            return max(values) if token == "max" else min(values)
        return self.number(token)

    def number(self, text: str | int) -> Number:
        return float(text) if self.doubles else Fraction(text)
