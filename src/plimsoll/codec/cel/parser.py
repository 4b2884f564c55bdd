"""From text to a tree, with the macros of the standard, of optional values and of comprehensions with two variables."""

from __future__ import annotations

from functools import lru_cache

from plimsoll.codec.cel.lexer import Token, tokens
from plimsoll.codec.cel.syntax import (
    RESERVED,
    Call,
    CompileError,
    Fold,
    Ident,
    ListOf,
    Literal,
    MapOf,
    MessageOf,
    Node,
    Select,
    children,
    dotted,
)

MAX_TEXT = 100_000
MAX_DEPTH = 200
_LEVELS = (("||",), ("&&",), ("<", "<=", ">=", ">", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))
_NAMES = {"||": "_||_", "&&": "_&&_", "in": "@in"}
_FOLDS_OF_ONE = {
    "all": "all",
    "exists": "exists",
    "exists_one": "existsOne",
    "filter": "filter",
    "map": "map",
    "sortBy": "sortBy",
}
_FOLDS_OF_TWO = {
    "all": "all",
    "exists": "exists",
    "existsOne": "existsOne",
    "exists_one": "existsOne",
    "transformList": "transformList",
    "transformMap": "transformMap",
    "transformMapEntry": "transformMapEntry",
}


@lru_cache(512)
def parse(text: str) -> Node:
    """Raises CompileError."""
    if len(text) > MAX_TEXT:
        raise CompileError(
            text[:100], 0, f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_TEXT}"
        )
    parser = _Parser(text)
    tree = parser.expression()
    if parser.token.kind != "end":
        raise parser.unexpected("expecting <EOF>" if parser.token.kind != "op" else "")
    _check_depth(text, tree)
    return tree


def _check_depth(text: str, tree: Node) -> None:
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise CompileError(text, level[0].at, f"expression recursion limit exceeded: {MAX_DEPTH}")
        level = [inner for each in level for inner in children(each)]


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.index = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    def take(self, *operators: str) -> Token | None:
        token = self.token
        if token.kind == "op" and token.text in operators:
            self.index += 1
            return token
        return None

    def need(self, operator: str) -> Token:
        token = self.take(operator)
        if token is None:
            raise self.unexpected(f"expecting '{operator}'")
        return token

    def unexpected(self, wanted: str = "") -> CompileError:
        token = self.token
        words = "mismatched input" if wanted else "extraneous input"
        return CompileError(self.text, token.at, f"Syntax error: {words} '{token.text}' {wanted or 'expecting <EOF>'}")

    def error(self, node: Node, reason: str) -> CompileError:
        return CompileError(self.text, node.at, reason)

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH // 4:
            raise CompileError(self.text, self.token.at, f"expression recursion limit exceeded: {MAX_DEPTH // 4}")
        condition = self.binary(0)
        if (mark := self.take("?")) is not None:
            first = self.binary(0)
            self.need(":")
            condition = Call(mark.at, "_?_:_", (condition, first, self.expression()))
        self.depth -= 1
        return condition

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        if level < 2:  # chains of && and || are balanced, as cel-go does
            parts: list[Node] = [left]
            marks: list[int] = []
            while (mark := self.take(*_LEVELS[level])) is not None:
                marks.append(mark.at)
                parts.append(self.binary(level + 1))
            return _balanced(_NAMES[_LEVELS[level][0]], parts, marks)
        while (mark := self.take(*_LEVELS[level])) is not None:
            name = _NAMES.get(mark.text, f"_{mark.text}_")
            left = Call(mark.at, name, (left, self.binary(level + 1)))
        return left

    def unary(self) -> Node:
        marks: list[Token] = []
        while (mark := self.take("!", "-")) is not None:
            if marks and marks[-1].text != mark.text:
                raise CompileError(self.text, mark.at, f"Syntax error: no viable alternative at input '{mark.text}'")
            marks.append(mark)
        if len(marks) % 2 and marks[0].text == "-" and self._is_number():
            token = self.token
            self.index += 1
            return self.members(Literal(marks[-1].at, -token.value))
        node = self.members(self.primary())
        if isinstance(node, Literal) and type(node.value) is int and node.value == 2**63:
            raise self.error(node, "invalid int literal")
        if len(marks) % 2:
            return Call(marks[-1].at, "!_" if marks[0].text == "!" else "-_", (node,))
        return node

    def _is_number(self) -> bool:
        return self.token.kind == "literal" and type(self.token.value) in (int, float)

    def primary(self) -> Node:
        token = self.token
        if token.kind == "literal":
            self.index += 1
            return Literal(token.at, token.value)
        if self.take("("):
            inner = self.expression()
            self.need(")")
            return inner
        if self.take("["):
            return self._list(token.at)
        if self.take("{"):
            return self._map(token.at)
        if token.kind == "op" and token.text == ".":
            self.index += 1
        name = self.token
        if name.kind != "name":
            raise self.unexpected(
                "expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM, STRING, IDENTIFIER}"
            )
        self.index += 1
        if (mark := self.take("(")) is not None:
            args = self._arguments()
            return self._global(Call(mark.at, name.text, args))
        if name.text in RESERVED:
            raise CompileError(self.text, name.at, f"reserved identifier: {name.text}")
        return Ident(name.at, name.text)

    def members(self, node: Node) -> Node:
        while (mark := self.take(".", "[") or (self.take("{") if dotted(node) else None)) is not None:
            if mark.text == "{":
                node = self._message(mark.at, dotted(node))
                continue
            optional = self.take("?") is not None
            if mark.text == "[":
                index = self.expression()
                self.need("]")
                node = Call(mark.at, "_[?_]" if optional else "_[_]", (node, index))
                continue
            name = self.token
            if name.kind not in ("name", "quoted"):
                raise self.unexpected("expecting IDENTIFIER")
            self.index += 1
            opened = None if optional or name.kind == "quoted" else self.take("(")
            if opened is not None:
                args = self._arguments()
                node = self._method(Call(opened.at, name.text, args, node))
            else:
                node = Select(mark.at, node, name.text, optional=optional)
        return node

    def _arguments(self) -> tuple[Node, ...]:
        args: list[Node] = []
        if self.take(")"):
            return ()
        while True:
            args.append(self.expression())
            if self.take(")"):
                return tuple(args)
            self.need(",")

    def _list(self, at: int) -> Node:
        items: list[Node] = []
        optional: set[int] = set()
        while not self.take("]"):
            if self.take("?"):
                optional.add(len(items))
            items.append(self.expression())
            if not self.take(","):
                self.need("]")
                break
        return ListOf(at, tuple(items), frozenset(optional))

    def _map(self, at: int) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while not self.take("}"):
            optional = self.take("?") is not None
            key = self.expression()
            self.need(":")
            entries.append((key, self.expression(), optional))
            if not self.take(","):
                self.need("}")
                break
        return MapOf(at, tuple(entries))

    def _message(self, at: int, name: str) -> Node:
        fields: list[tuple[str, Node, bool]] = []
        while not self.take("}"):
            optional = self.take("?") is not None
            field = self.token
            if field.kind not in ("name", "quoted"):
                raise self.unexpected("expecting IDENTIFIER")
            self.index += 1
            self.need(":")
            fields.append((field.text, self.expression(), optional))
            if not self.take(","):
                self.need("}")
                break
        return MessageOf(at, name, tuple(fields))

    # --- macros ---

    def _global(self, call: Call) -> Node:
        if call.name == "has" and len(call.args) == 1:
            argument = call.args[0]
            if not isinstance(argument, Select) or argument.optional:
                raise self.error(argument, "invalid argument to has() macro")
            return Select(call.at, argument.operand, argument.field, test=True)
        return call

    def _method(self, call: Call) -> Node:
        assert call.target is not None
        count = len(call.args)
        if call.name in ("optMap", "optFlatMap") and count == 2:
            name = Literal(call.args[0].at, self._variable(call.args[0]))
            return Call(call.at, f"@{call.name}", (name, call.args[1]), call.target)
        if call.name in _FOLDS_OF_ONE and (count == 2 or (call.name == "map" and count == 3)):
            names = (self._variable(call.args[0]),)
            where = call.args[1] if count == 3 else None
            return Fold(call.at, _FOLDS_OF_ONE[call.name], call.target, names, call.args[-1], where)
        if call.name in _FOLDS_OF_TWO and (count == 3 or (call.name.startswith("transform") and count == 4)):
            pair = (self._variable(call.args[0]), self._variable(call.args[1]))
            if pair[0] == pair[1]:
                raise self.error(call.args[1], f"duplicate variable name: {pair[0]}")
            where = call.args[2] if count == 4 else None
            return Fold(call.at, _FOLDS_OF_TWO[call.name], call.target, pair, call.args[-1], where)
        return call

    def _variable(self, node: Node) -> str:
        if not isinstance(node, Ident):
            raise self.error(node, "argument must be a simple name")
        return node.name


def _balanced(name: str, parts: list[Node], marks: list[int]) -> Node:
    if len(parts) == 1:
        return parts[0]
    middle = (len(parts) + 1) // 2
    left = _balanced(name, parts[:middle], marks[: middle - 1])
    right = _balanced(name, parts[middle:], marks[middle:])
    return Call(marks[middle - 1], name, (left, right))
