"""Static types and the cost of an expression before it is evaluated, with cel-go's messages.

The cost is an upper bound: every list, map and text of a schema counts as long as the schema allows it, or as long as a
request can be.
"""

from __future__ import annotations

import msgspec

from plimsoll.codec.cel.overloads import FUNCTIONS
from plimsoll.codec.cel.syntax import (
    Bind,
    Call,
    CompilationError,
    CompileError,
    Fold,
    Ident,
    ListOf,
    Literal,
    MapOf,
    MessageOf,
    Node,
    Select,
    dotted,
)
from plimsoll.codec.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    UINT,
    Type,
    filled,
    fits,
    joined,
    list_of,
    map_of,
)
from plimsoll.codec.cel.values import Uint

REQUEST_BYTES = 3 * 1024 * 1024
_TYPES: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_TYPE_NAMES = frozenset(
    [
        "int",
        "uint",
        "double",
        "bool",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "google.protobuf.Timestamp",
        "google.protobuf.Duration",
        "kubernetes.Quantity",
        "kubernetes.URL",
        "net.IP",
        "net.CIDR",
        "kubernetes.Semver",
    ]
)
_LINEAR = frozenset(
    [
        "matches",
        "find",
        "findAll",
        "startsWith",
        "endsWith",
        "contains",
        "indexOf",
        "lastIndexOf",
        "lowerAscii",
        "upperAscii",
        "replace",
        "split",
        "substring",
        "trim",
        "join",
        "quantity",
        "url",
        "isURL",
        "isQuantity",
        "ip",
        "cidr",
        "isIP",
        "isCIDR",
        "format",
    ]
)
_LISTS = frozenset(["isSorted", "sum", "min", "max", "indexOf", "lastIndexOf", "@in", "distinct", "sort", "reverse"])


PATCHES = "@patches"  # among the variables of expressions that may use `Object{…}` and `JSONPatch{…}`
_PATCH_FIELDS = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}


def patch_type(name: str) -> Type:
    return Type("object", fields=lambda _: DYN, shown=name)


class Checked(msgspec.Struct, frozen=True):
    type: Type
    cost: int


def check(text: str, tree: Node, variables: dict[str, Type]) -> Checked:
    """Raises CompilationError."""
    checker = _Checker(text)
    found = checker.visit(tree, variables)
    if checker.errors:
        raise CompilationError(sorted(checker.errors, key=str))
    return found


class _Checker:
    def __init__(self, text: str) -> None:
        self.text = text
        self.errors: list[CompileError] = []

    def refuse(self, node: Node, reason: str) -> Checked:
        self.errors.append(CompileError(self.text, node.at, reason))
        return Checked(DYN, 0)

    def visit(self, node: Node, scope: dict[str, Type]) -> Checked:
        match node:
            case Literal():
                type_ = _TYPES[type(node.value)]
                if isinstance(node.value, (str, bytes)):
                    type_ = Type(type_.name, longest=len(node.value))
                return Checked(type_, 0)
            case Ident():
                return self._ident(node, scope)
            case Select():
                return self._select(node, scope)
            case Call():
                return self._call(node, scope)
            case ListOf():
                items = [self.visit(each, scope) for each in node.items]
                member = joined([each.type for each in items])
                return Checked(list_of(member, len(items)), 10 + sum(each.cost for each in items))
            case MapOf():
                keys = [self.visit(key, scope) for key, _, _ in node.entries]
                values = [self.visit(value, scope) for _, value, _ in node.entries]
                type_ = map_of(joined([each.type for each in keys]), joined([each.type for each in values]), len(keys))
                return Checked(type_, 30 + sum(each.cost for each in keys + values))
            case MessageOf():
                return self._message(node, scope)
            case Bind():
                value = self.visit(node.value, scope)
                body = self.visit(node.body, {**scope, node.name: value.type})
                return Checked(body.type, value.cost + body.cost)
            case Fold():
                return self._fold(node, scope)
        raise AssertionError(node)

    def _message(self, node: MessageOf, scope: dict[str, Type]) -> Checked:
        """`Object` and the types below it, and `JSONPatch`, where the expression makes patches."""
        is_object = node.name.split(".")[0] == "Object"
        if PATCHES not in scope or not (is_object or node.name == "JSONPatch"):
            return self.refuse(node, f"undeclared reference to '{node.name}' (in container '')")
        cost = 40
        for name, value, optional in node.fields:
            found = self.visit(value, scope)
            cost += found.cost
            type_ = found.type
            if optional and type_.name == "optional":
                type_ = type_.params[0] if type_.params else DYN
            inner = type_.params[0] if type_.name == "list" and type_.params else type_
            if is_object and inner.shown.split(".")[0] != "Object":
                continue
            if not is_object and name not in _PATCH_FIELDS:
                self.refuse(node, f"undefined field '{name}'")
                continue
            wanted = f"{node.name}.{name}" if is_object else str(_PATCH_FIELDS[name])
            if inner.shown != wanted if is_object else not fits(_PATCH_FIELDS[name], type_, {}):
                self.refuse(value, f"expected type of field '{name}' is '{wanted}' but provided type is '{inner}'")
        return Checked(patch_type(node.name), cost)

    def _ident(self, node: Ident, scope: dict[str, Type]) -> Checked:
        if node.name in scope:
            return Checked(scope[node.name], 1)
        if node.name in _TYPE_NAMES:
            return Checked(Type("type"), 1)
        return self.refuse(node, f"undeclared reference to '{node.name}' (in container '')")

    def _select(self, node: Select, scope: dict[str, Type]) -> Checked:
        if (name := dotted(node)) in _TYPE_NAMES and name.split(".")[0] not in scope:
            return Checked(Type("type"), 1)
        operand = self.visit(node.operand, scope)
        type_ = operand.type
        if type_.name == "optional":
            type_ = type_.params[0] if type_.params else DYN
            optional = True
        else:
            optional = node.optional
        if type_.name == "dyn":
            found = DYN
        elif type_.name == "map":
            found = type_.params[1] if type_.params else DYN
        elif type_.name == "authorizer" and node.field == "requestResource":
            found = Type("resourcecheck")
        elif type_.name == "object" and type_.fields is not None:
            field = type_.fields(node.field)
            if field is None:
                return self.refuse(node, f"undefined field '{node.field}'")
            found = field
        else:
            return self.refuse(node, f"type '{type_}' does not support field selection")
        if node.test:
            return Checked(BOOL, operand.cost + 1)
        return Checked(Type("optional", (found,)) if optional else found, operand.cost + 1)

    def _call(self, node: Call, scope: dict[str, Type]) -> Checked:
        if node.name in ("@optMap", "@optFlatMap"):
            return self._optional_map(node, scope)
        name, targets = node.name, [node.target] if node.target is not None else []
        full = dotted(node.target) if node.target is not None else ""
        if full and f"{full}.{name}" in FUNCTIONS and full.split(".")[0] not in scope:
            name, targets = f"{full}.{name}", []
        args = [self.visit(each, scope) for each in (*targets, *node.args)]
        cost = sum(each.cost for each in args)
        types = [each.type for each in args]
        if name == "_?_:_":
            bound: dict[str, Type] = {}
            if not fits(BOOL, types[0], {}) or not (fits(types[1], types[2], bound) or fits(types[2], types[1], bound)):
                return self._no_overload(node, name, types, is_method=False)
            branch = max(args[1].cost, args[2].cost)
            same = types[1] if types[1].name != "dyn" else DYN
            if types[2].name in ("dyn",) or types[1].name == "null":
                same = types[2]
            return Checked(same, args[0].cost + branch)
        if name in ("_&&_", "_||_"):
            if not all(fits(BOOL, each, {}) for each in types):
                return self._no_overload(node, name, types, is_method=False)
            return Checked(BOOL, cost)
        overloads = FUNCTIONS.get(name)
        if overloads is None or (name.startswith("jsonpatch.") and PATCHES not in scope):
            return self.refuse(node, f"undeclared reference to '{name}' (in container '')")
        is_method = bool(targets)
        results = []
        for each in overloads:
            bound = {}
            if each.is_method is not is_method or len(each.params) != len(types):
                continue
            if all(fits(param, type_, bound) for param, type_ in zip(each.params, types, strict=True)):
                results.append(filled(each.result, bound))
        if not results:
            return self._no_overload(node, name, types, is_method=is_method)
        result = results[0] if len({each.name for each in results}) == 1 else DYN
        if name == "_+_" and all(each.longest is not None for each in types) and len(types) == 2:
            result = Type(result.name, result.params, longest=(types[0].longest or 0) + (types[1].longest or 0))
        return Checked(result, cost + _call_cost(name, types))

    def _optional_map(self, node: Call, scope: dict[str, Type]) -> Checked:
        assert node.target is not None
        target = self.visit(node.target, scope)
        if target.type.name not in ("optional", "dyn"):
            name = node.name.removeprefix("@")
            return self.refuse(node, f"found no matching overload for '{name}' applied to '{target.type}'")
        inner = target.type.params[0] if target.type.params else DYN
        name_node = node.args[0]
        assert isinstance(name_node, Literal)
        body = self.visit(node.args[1], {**scope, name_node.value: inner})
        result = body.type if node.name == "@optFlatMap" else Type("optional", (body.type,))
        return Checked(result, target.cost + body.cost + 1)

    def _no_overload(self, node: Call, name: str, types: list[Type], *, is_method: bool) -> Checked:
        if is_method:
            shown = f"'{types[0]}.({', '.join(map(str, types[1:]))})'"
        else:
            shown = f"'({', '.join(map(str, types))})'"
        return self.refuse(node, f"found no matching overload for '{name}' applied to {shown}")

    def _fold(self, node: Fold, scope: dict[str, Type]) -> Checked:
        over = self.visit(node.over, scope)
        type_ = over.type
        key: Type
        if type_.name == "list":
            key, value = INT, type_.params[0]
        elif type_.name == "map":
            key, value = type_.params[0], type_.params[1]
        elif type_.name == "dyn":
            key, value = DYN, DYN
        else:
            reason = f"expression of type '{type_}' cannot be range of a comprehension (must be list, map, or dynamic)"
            return self.refuse(node.over, reason)
        if len(node.names) == 2:
            inner = {**scope, node.names[0]: key, node.names[1]: value}
        else:
            inner = {**scope, node.names[0]: key if type_.name == "map" else value}
        where = self.visit(node.where, inner) if node.where is not None else Checked(BOOL, 0)
        body = self.visit(node.body, inner)
        predicate = body if node.op in ("all", "exists", "existsOne", "filter") else where
        if not fits(BOOL, predicate.type, {}):
            at = node.body if predicate is body else node.where
            assert at is not None
            return self.refuse(at, f"found no matching overload for '{node.op}' applied to '({predicate.type})'")
        count = longest(type_)
        cost = over.cost + count * (where.cost + body.cost + 2)
        match node.op:
            case "all" | "exists" | "existsOne":
                return Checked(BOOL, cost)
            case "filter":
                return Checked(type_ if type_.name == "list" else list_of(key), cost)
            case "transformMap":
                return Checked(map_of(key, body.type, type_.longest), cost)
            case "transformMapEntry":
                return Checked(body.type if body.type.name == "map" else map_of(DYN, DYN), cost)
        return Checked(list_of(body.type, type_.longest), cost)


def longest(type_: Type) -> int:
    """How many members or characters a value of this type can have at most."""
    return type_.longest if type_.longest is not None else REQUEST_BYTES


def _call_cost(name: str, types: list[Type]) -> int:
    if name in ("matches", "find", "findAll") and len(types) >= 2:
        return 1 + (longest(types[0]) + 1) // 10 * (longest(types[1]) // 4 + 1)
    if name in ("_==_", "_!=_"):
        sizes = [longest(each) for each in types if each.name in ("string", "bytes", "list", "map")]
        return 1 + (min(sizes) // 10 if sizes else 0)
    if name in _LISTS or name.startswith("sets."):
        sizes = [longest(each) for each in types if each.name in ("list", "map")]
        if name == "@in":
            return 1 + (sizes[0] if sizes and types[1].name == "list" else 0)
        product = 1
        for each in sizes:
            product *= each
        return 1 + product
    if name in _LINEAR or name in ("_+_", "_<_", "_<=_", "_>_", "_>=_"):
        return 1 + sum(longest(each) for each in types if each.name in ("string", "bytes")) // 10
    return 1
