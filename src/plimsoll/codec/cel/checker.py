"""Static types of an expression before it is evaluated, with cel-go's messages, and its cost (`costs`)."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.codec.cel.costs import (
    CALL,
    IDENT,
    LIST,
    MAP,
    MESSAGE,
    ONE,
    SELECT,
    UNKNOWN,
    Estimate,
    Size,
    added,
    both,
    call_estimate,
    fold_cost,
    optional_map_cost,
    size_of,
    sort_by_estimate,
)
from plimsoll.codec.cel.overloads import COMPARABLE, FUNCTIONS, Overload
from plimsoll.codec.cel.syntax import (
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
from plimsoll.codec.cel.values import EvaluationError, Uint
from plimsoll.rules.re2.matcher import compiled
from plimsoll.rules.re2.syntax import RegexError

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


Scope = dict[str, Estimate]
PATCHES = "@patches"  # among the variables of expressions that may use `Object{…}` and `JSONPatch{…}`
_PATCH_FIELDS = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}


def patch_type(name: str) -> Type:
    return Type("object", fields=lambda _: DYN, shown=name)


def check(text: str, tree: Node, variables: dict[str, Type]) -> Estimate:
    """Raises CompilationError."""
    checker = _Checker(text, variables.get("self"))
    scope = {name: Estimate(type_, IDENT, path=(name,)) for name, type_ in variables.items()}
    found = checker.visit(tree, scope)
    if errors := checker.errors or checker.invalid:
        raise CompilationError(sorted(errors, key=lambda error: error.at))
    return found


def _inner(type_: Type) -> Type:
    """What an optional value holds."""
    return type_.params[0] if type_.params else DYN


def _is_same(one: Type, other: Type) -> bool:
    """dyn inside of another type is that of an empty list or map, which has the type of those beside it."""
    if one.name != other.name or one.shown != other.shown:
        return False
    pairs = zip(one.params, other.params, strict=False)
    return all("dyn" in (first.name, second.name) or _is_same(first, second) for first, second in pairs)


class _Checker:
    """A scope has the estimates of its variables, as each of their identifiers costs."""

    def __init__(self, text: str, root: Type | None) -> None:
        self.text, self.root = text, root
        self.errors: list[CompileError] = []
        self.invalid: list[CompileError] = []  # literals, which are judged after all types
        self.is_format = False  # inside of a call of format(), whose list may have members of any types

    def size(self, value: Estimate) -> Size:
        return size_of(value, self.root)

    def refuse(self, node: Node, reason: str) -> Estimate:
        self.errors.append(CompileError(self.text, node.at, reason))
        return Estimate(DYN, 0)

    def visit(self, node: Node, scope: Scope) -> Estimate:
        match node:
            case Literal():
                size = Size(len(node.value), len(node.value)) if isinstance(node.value, (str, bytes)) else ONE
                return Estimate(_TYPES[type(node.value)], 0, size)
            case Ident():
                return self._ident(node, scope)
            case Select():
                return self._select(node, scope)
            case Call():
                return self._call(node, scope)
            case ListOf():
                items = [self.visit(each, scope) for each in node.items]
                self._require_same(
                    (each, item.type, index in node.optional)
                    for index, (each, item) in enumerate(zip(node.items, items, strict=True))
                )
                member = joined([each.type for each in items])
                cost = added(LIST, *(each.cost for each in items))
                return Estimate(list_of(member), cost, Size(len(items), len(items)), member=self._union(items))
            case MapOf():
                keys = [self.visit(key, scope) for key, _, _ in node.entries]
                values = [self.visit(value, scope) for _, value, _ in node.entries]
                entries = [*zip(node.entries, keys, values, strict=True)]
                self._require_same((key, found.type, False) for (key, _, _), found, _ in entries)
                self._require_same((value, found.type, optional) for (_, value, optional), _, found in entries)
                type_ = map_of(joined([each.type for each in keys]), joined([each.type for each in values]))
                cost = added(MAP, *(each.cost for each in keys + values))
                return Estimate(type_, cost, Size(len(keys), len(keys)), member=self._union(values))
            case MessageOf():
                return self._message(node, scope)
            case Fold():
                return self._fold(node, scope)
        raise AssertionError(node)

    def _require_same(self, members: Iterable[tuple[Node, Type, bool]]) -> None:
        """Kubernetes wants members of one type in a list or map that an expression writes out. Of each member: its
        type, and whether it is optional; optional.none() fits to all."""
        first: Type | None = None
        for node, type_, optional in () if self.is_format else members:
            found = _inner(type_) if optional else type_
            if optional and found.name == "dyn":
                continue
            first = first or found
            if not _is_same(first, found):
                reason = f"expected type '{first}' but found '{found}'"
                self.invalid.append(CompileError(self.text, node.at, reason))
                return

    def _judge_literal(self, node: Call, name: str, found: Overload) -> None:
        """A time, duration or regular expression that is written out."""
        literal = node.args[0] if node.args else None
        if not isinstance(literal, Literal):
            return
        try:
            if name == "matches":
                compiled(literal.value)
            elif name in ("duration", "timestamp"):
                found.run(literal.value)
        except (EvaluationError, RegexError):
            self.invalid.append(CompileError(self.text, literal.at, f"invalid {name} argument"))

    def _union(self, values: list[Estimate]) -> Size:
        sizes = [self.size(each) for each in values]
        return Size(min(each.least for each in sizes), max(each.most for each in sizes)) if sizes else Size(0, 0)

    def _message(self, node: MessageOf, scope: Scope) -> Estimate:
        """`Object` and the types below it, and `JSONPatch`, where the expression makes patches."""
        is_object = node.name.split(".")[0] == "Object"
        if PATCHES not in scope or not (is_object or node.name == "JSONPatch"):
            return self.refuse(node, f"undeclared reference to '{node.name}' (in container '')")
        cost = MESSAGE
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
        return Estimate(patch_type(node.name), cost)

    def _ident(self, node: Ident, scope: Scope) -> Estimate:
        if node.name in scope:
            return scope[node.name]
        if node.name in _TYPE_NAMES:
            return Estimate(Type("type"), IDENT, path=(node.name,))
        return self.refuse(node, f"undeclared reference to '{node.name}' (in container '')")

    def _select(self, node: Select, scope: Scope) -> Estimate:
        if (name := dotted(node)) in _TYPE_NAMES and name.split(".")[0] not in scope:
            return Estimate(Type("type"), IDENT, path=(name,))
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
            return Estimate(BOOL, operand.cost)  # Kubernetes turns the cost of has() off
        if node.optional:  # a call of _?._
            return Estimate(Type("optional", (found,)), added(operand.cost, CALL))
        cost = added(operand.cost, SELECT) if operand.type.name in ("map", "object") else operand.cost
        return Estimate(Type("optional", (found,)) if optional else found, cost, path=(*operand.path, node.field))

    def _call(self, node: Call, scope: Scope) -> Estimate:
        if node.name in ("@optMap", "@optFlatMap"):
            return self._optional_map(node, scope)
        name, targets = node.name, [node.target] if node.target is not None else []
        full = dotted(node.target) if node.target is not None else ""
        if full and f"{full}.{name}" in FUNCTIONS and full.split(".")[0] not in scope:
            name, targets = f"{full}.{name}", []
        before, self.is_format = self.is_format, self.is_format or name == "format"
        args = [self.visit(each, scope) for each in (*targets, *node.args)]
        self.is_format = before
        cost = added(*(each.cost for each in args))
        types = [each.type for each in args]
        sizes = [self.size(each) for each in args]
        if name == "_?_:_":
            bound: dict[str, Type] = {}
            if not fits(BOOL, types[0], {}) or not (fits(types[1], types[2], bound) or fits(types[2], types[1], bound)):
                return self._no_overload(node, name, types, is_method=False)
            cost = added(args[0].cost, max(args[1].cost, args[2].cost))
            same = types[1] if types[1].name != "dyn" else DYN
            if types[2].name in ("dyn",) or types[1].name == "null":
                same = types[2]
            return Estimate(same, cost, sizes[1].union(sizes[2]), member=both(args[1].member, args[2].member))
        if name in ("_&&_", "_||_"):
            for arg, type_ in zip(node.args, types, strict=True):
                if not fits(BOOL, type_, {}):
                    self._expected_bool(arg, type_)
            return Estimate(BOOL, cost)
        overloads = FUNCTIONS.get(name)
        if overloads is None or (name.startswith("jsonpatch.") and PATCHES not in scope):
            return self.refuse(node, f"undeclared reference to '{name}' (in container '')")
        is_method = bool(targets)
        matched, results = [], []
        for each in overloads:
            bound = {}
            if each.is_method is not is_method or len(each.params) != len(types):
                continue
            if all(fits(param, type_, bound) for param, type_ in zip(each.params, types, strict=True)):
                matched.append(each)
                results.append(filled(each.result, bound))
        if not results:
            return self._no_overload(node, name, types, is_method=is_method)
        self._judge_literal(node, name, matched[0])
        result = results[0] if len({str(each) for each in results}) == 1 else DYN
        if name == "dyn":
            return Estimate(result, added(cost, CALL), sizes[0], member=args[0].member)
        if name == "_[_]" and types[0].name in ("list", "map"):
            place = "@items" if types[0].name == "list" else "@values"
            return Estimate(result, added(cost, CALL), args[0].member, (*args[0].path, place))
        literals = [each.value if isinstance(each, Literal) else None for each in (*targets, *node.args)]
        numbers = [each if type(each) is int else None for each in literals]
        spent, size = call_estimate(name, args, sizes, is_method=is_method, literals=numbers, root=self.root)
        member = both(args[0].member, args[1].member) if name == "_+_" else None
        return Estimate(result, added(cost, spent), size, member=member)

    def _optional_map(self, node: Call, scope: Scope) -> Estimate:
        assert node.target is not None
        target = self.visit(node.target, scope)
        if target.type.name not in ("optional", "dyn"):
            name = node.name.removeprefix("@")
            return self.refuse(node, f"found no matching overload for '{name}' applied to '{target.type}'")
        inner = target.type.params[0] if target.type.params else DYN
        name_node = node.args[0]
        assert isinstance(name_node, Literal)
        body = self.visit(node.args[1], {**scope, name_node.value: Estimate(inner, IDENT)})
        is_flat = node.name == "@optFlatMap"
        cost = optional_map_cost(target.cost, body.cost, is_flat=is_flat)
        return Estimate(body.type if is_flat else Type("optional", (body.type,)), cost)

    def _expected_bool(self, node: Node, type_: Type) -> Estimate:
        return self.refuse(node, f"expected type 'bool' but found '{type_}'")

    def _no_overload(self, node: Node, name: str, types: list[Type], *, is_method: bool) -> Estimate:
        if is_method:
            shown = f"'{types[0]}.({', '.join(map(str, types[1:]))})'"
        else:
            shown = f"'({', '.join(map(str, types))})'"
        return self.refuse(node, f"found no matching overload for '{name}' applied to {shown}")

    def _fold(self, node: Fold, scope: Scope) -> Estimate:
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
        keys = Estimate(key, IDENT, path=(*over.path, "@indices" if type_.name == "list" else "@keys"))
        place = "@items" if type_.name == "list" else "@values"
        values = Estimate(value, IDENT, path=(*over.path, place))
        if over.member is not None and self.size(values) == UNKNOWN:
            values = Estimate(value, IDENT, over.member, values.path)
        if len(node.names) == 2:
            inner = {**scope, node.names[0]: keys, node.names[1]: values}
        else:
            inner = {**scope, node.names[0]: values if type_.name == "list" else keys}
        where = self.visit(node.where, inner) if node.where is not None else Estimate(BOOL, 0)
        body = self.visit(node.body, inner)
        if node.op in ("all", "exists"):
            if not fits(BOOL, body.type, {}):
                return self._expected_bool(node.body, body.type)
        else:
            predicate = body.type if node.op in ("existsOne", "filter") else where.type
            if not fits(BOOL, predicate, {}):
                result = _result(node.op, body.type, key, value if type_.name == "list" else key)
                return self._no_overload(node, "_?_:_", [predicate, result, result], is_method=False)
        count = self.size(over)
        if node.op == "sortBy":
            if type_.name == "map" or body.type.name not in (*COMPARABLE, "dyn"):
                given = list_of(body.type)
                return self.refuse(
                    node, f"found no matching overload for '@sortByAssociatedKeys' applied to '{type_}.({given})'"
                )
            return Estimate(type_, *sort_by_estimate(over.cost, count, body))
        spent = fold_cost(node.op, count.most, None if node.where is None else where.cost, body.cost)
        cost = added(over.cost, spent)
        match node.op:
            case "all" | "exists" | "existsOne":
                return Estimate(BOOL, cost, ONE)
            case "filter":
                member = self.size(values if type_.name == "list" else keys)
                return Estimate(
                    type_ if type_.name == "list" else list_of(key), cost, count, member=Size(0, member.most)
                )
            case "transformMap":
                return Estimate(map_of(key, body.type), cost, count)
            case "transformMapEntry":
                return Estimate(body.type if body.type.name == "map" else map_of(DYN, DYN), cost, count)
        return Estimate(list_of(body.type), cost, count, member=Size(0, self.size(body).most))


def _result(op: str, body: Type, key: Type, member: Type) -> Type:
    """Of a fold, while its members are visited."""
    match op:
        case "existsOne":
            return INT
        case "filter":
            return list_of(member)
        case "transformMap":
            return map_of(key, body)
        case "transformMapEntry":
            return body
    return list_of(body)
