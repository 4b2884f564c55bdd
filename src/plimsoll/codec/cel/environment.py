"""Compiling and evaluating expressions: the entry of this package.

A `Program` is compiled once and evaluated with values for its variables; both can be refused, never take unbounded
time, and read nothing from outside.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.codec.cel import authorizer, collections, kubernetes, optionals, standard, texts
from plimsoll.codec.cel.checker import check
from plimsoll.codec.cel.evaluator import Allowance, Evaluate, Frame, evaluator
from plimsoll.codec.cel.parser import parse
from plimsoll.codec.cel.syntax import RESERVED, CompilationError, CompileError, Node, Select, children, names_in
from plimsoll.codec.cel.types import Type
from plimsoll.codec.cel.values import EvaluationError

PER_CALL_LIMIT = 1_000_000  # of one evaluation
_LIBRARIES = (authorizer, collections, kubernetes, optionals, standard, texts)  # they register their functions

_ESCAPED_WORDS = RESERVED | {"true", "false", "null", "in"}


def unescaped(name: str) -> str:
    """The property that an identifier stands for: `__namespace__` → `namespace`, `a__dash__b` → `a-b`."""
    if name.startswith("__") and name.endswith("__") and name[2:-2] in _ESCAPED_WORDS:
        return name[2:-2]
    found, rest = [], name
    while "__" in rest:
        before, _, after = rest.partition("__")
        found.append(before)
        for word, char in (("underscores", "__"), ("dot", "."), ("dash", "-"), ("slash", "/")):
            if after.startswith(f"{word}__"):
                found.append(char)
                rest = after[len(word) + 2 :]
                break
        else:
            found.append("__")
            rest = after
    return "".join([*found, rest])


class Program(msgspec.Struct, frozen=True, eq=False):
    text: str
    type: Type
    cost: int  # at most, by the schemas of its variables
    names: frozenset[str]  # identifiers that it reads
    run: Evaluate

    def evaluate(
        self, variables: dict[str, Any], limit: int = PER_CALL_LIMIT, allowance: Allowance | None = None
    ) -> tuple[Any, int]:
        """The value and what it cost; raises EvaluationError, and LongError where the allowance is used up."""
        allowance = allowance or Allowance()
        frame = Frame(variables, limit, allowance)
        try:
            return self.run(frame), frame.cost
        except RecursionError:
            raise EvaluationError("the expression is nested too deeply") from None
        finally:
            allowance.left -= frame.cost
            allowance.spent += frame.cost

    def within(self, frame: Frame, variables: dict[str, Any]) -> Any:
        """The value as a part of another evaluation, which pays for it."""
        before = frame.variables
        frame.variables = variables
        try:
            return self.run(frame)
        finally:
            frame.variables = before


def compile_expression(text: str, variables: dict[str, Type], *, escaped: bool = False) -> Program:
    """Raises CompilationError. With `escaped`, field names of objects are escaped as in rules of custom kinds."""
    try:
        tree = parse(text)
        checked = check(text, tree, variables)
        real_names = _real_names(tree) if escaped else {}
        run = evaluator(tree, frozenset(variables), real_names)
    except CompileError as error:
        raise CompilationError([error]) from None
    except RecursionError:
        raise CompilationError([CompileError(text[:100], 0, "the expression is nested too deeply")]) from None
    return Program(text, checked.type, checked.cost, frozenset(names_in(tree)), run)


def _real_names(tree: Node) -> dict[int, str]:
    """By the identity of the nodes, which live as long as the tree."""
    found: dict[int, str] = {}
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Select) and "__" in node.field:
            found[id(node)] = unescaped(node.field)
        stack += children(node)
    return found
