"""The tree of an expression, and the errors of every stage.

`at` is where a node stands in the text. Macros are expanded by the parser: `all`, `exists` and others become `Fold`.
"""

from __future__ import annotations

from typing import Any

import msgspec

RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)  # no identifiers


class CompileError(Exception):
    """An expression that cannot be compiled; `str()` is cel-go's message with the line and a caret."""

    def __init__(self, text: str, at: int, reason: str) -> None:
        before = text[:at]
        line = before.count("\n")
        column = at - (before.rfind("\n") + 1)
        shown = (text.split("\n")[line] if text else "").replace("\t", " ")
        self.reason, self.at = reason, at
        super().__init__(f"ERROR: <input>:{line + 1}:{column + 1}: {reason}\n | {shown}\n | {'.' * column}^")


class CompilationError(Exception):
    """Everything that is wrong with an expression, in the order of the text."""

    def __init__(self, errors: list[CompileError]) -> None:
        self.errors = errors
        super().__init__("\n".join(map(str, errors)))


class Node(msgspec.Struct, frozen=True, eq=False):
    at: int


class Literal(Node, frozen=True, eq=False):
    value: Any


class Ident(Node, frozen=True, eq=False):
    name: str


class Select(Node, frozen=True, eq=False):
    """`operand.field`; with `test` it is `has(operand.field)`, with `optional` it is `operand.?field`."""

    operand: Node
    field: str
    test: bool = False
    optional: bool = False


class Call(Node, frozen=True, eq=False):
    """A function, a method (with a target), or an operator, whose name is cel-go's, such as `_+_`."""

    name: str
    args: tuple[Node, ...]
    target: Node | None = None


class ListOf(Node, frozen=True, eq=False):
    items: tuple[Node, ...]
    optional: frozenset[int] = frozenset()  # indices of `?x`


class MapOf(Node, frozen=True, eq=False):
    entries: tuple[tuple[Node, Node, bool], ...]  # key, value, optional


class MessageOf(Node, frozen=True, eq=False):
    """`Object.spec{replicas: 3}`: a value of a named type."""

    name: str
    fields: tuple[tuple[str, Node, bool], ...]  # name, value, optional


class Fold(Node, frozen=True, eq=False):
    """One of the macros over a list or a map.

    `op` is all, exists, existsOne, filter, map, sortBy, transformList, transformMap or transformMapEntry. With one name
    it is the member (of a map: the key); with two they are index or key, and value. `body` is the predicate, the key to
    sort by, or what each member becomes; `where` chooses members before.
    """

    op: str
    over: Node
    names: tuple[str, ...]
    body: Node
    where: Node | None = None


def children(node: Node) -> list[Node]:
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*([node.target] if node.target is not None else []), *node.args]
        case ListOf():
            return list(node.items)
        case MapOf():
            return [each for key, value, _ in node.entries for each in (key, value)]
        case MessageOf():
            return [value for _, value, _ in node.fields]
        case Fold():
            return [node.over, *([node.where] if node.where is not None else []), node.body]
    return []


def names_in(node: Node) -> set[str]:
    """Every identifier, also those that a macro declares."""
    found: set[str] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if isinstance(each, Ident):
            found.add(each.name)
        stack += children(each)
    return found


def dotted(node: Node) -> str:
    """`a.b.c` of plain names; empty for anything else."""
    parts = []
    while isinstance(node, Select) and not node.test and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return ""
    return ".".join([node.name, *reversed(parts)])
