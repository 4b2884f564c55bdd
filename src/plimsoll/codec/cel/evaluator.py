"""From a tree to functions that evaluate it.

Each node becomes one function of a `Frame`. The frame counts what the evaluation costs, so that no expression runs for
longer than its limit allows. `&&`, `||`, `all` and `exists` ignore an error where the other side decides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from plimsoll.codec.cel.authorizer import request_resource
from plimsoll.codec.cel.collections import sorted_by_keys
from plimsoll.codec.cel.overloads import FUNCTIONS, Overload, matching, self_comparison_cost
from plimsoll.codec.cel.syntax import Call, Fold, Ident, ListOf, Literal, MapOf, MessageOf, Node, Select, dotted
from plimsoll.codec.cel.values import (
    NONE,
    CostError,
    EvaluationError,
    LongError,
    Opaque,
    Optional,
    StoppedError,
    TypeValue,
    class_of,
    equal,
)

_VISITS = 100  # members of folds between two questions whether to stop, as in Kubernetes


class Allowance:
    """Of all evaluations in one place: what they may cost together, what they did cost, whether they are to stop."""

    __slots__ = ("is_stopped", "left", "spent")

    def __init__(self, left: int = sys.maxsize, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self.left = left
        self.spent = 0
        self.is_stopped = is_stopped


class Frame:
    __slots__ = ("_allowance", "_excess", "_visits", "cost", "limit", "variables")

    def __init__(self, variables: dict[str, Any], limit: int, allowance: Allowance) -> None:
        self.variables = variables
        self.cost = 0
        self.limit = min(limit, allowance.left)
        self._excess = CostError if limit <= allowance.left else LongError
        self._allowance = allowance
        self._visits = 0

    def spend(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self.limit:
            raise self._excess

    def visit(self) -> None:
        """The next member of a fold."""
        self.spend(2)
        self._visits += 1
        if self._visits % _VISITS == 0 and self._allowance.is_stopped():
            raise StoppedError


Evaluate = Callable[[Frame], Any]
_TYPE_VALUES = {
    "int": "int",
    "uint": "uint",
    "double": "double",
    "bool": "bool",
    "string": "string",
    "bytes": "bytes",
    "list": "list",
    "map": "map",
    "null_type": "null_type",
    "type": "type",
    "google.protobuf.Timestamp": "google.protobuf.Timestamp",
    "google.protobuf.Duration": "google.protobuf.Duration",
    "kubernetes.Quantity": "kubernetes.Quantity",
    "kubernetes.URL": "kubernetes.URL",
    "net.IP": "net.IP",
    "net.CIDR": "net.CIDR",
    "kubernetes.Semver": "kubernetes.Semver",
}


def evaluator(node: Node, scope: frozenset[str], names: dict[int, str]) -> Evaluate:
    """`names` has the real names of escaped fields, by the identity of their nodes."""
    match node:
        case Literal():
            value = node.value
            return lambda frame: value
        case Ident():
            return _ident(node, scope)
        case Select():
            return _select(node, scope, names)
        case Call():
            return _call(node, scope, names)
        case ListOf():
            return _list(node, scope, names)
        case MapOf():
            return _map(node, scope, names)
        case MessageOf():
            return _message(node, scope, names)
        case Fold():
            return _fold(node, scope, names)
    raise AssertionError(node)


def _with(frame: Frame, added: dict[str, Any], body: Evaluate) -> Any:
    before = frame.variables
    frame.variables = {**before, **added}
    try:
        return body(frame)
    finally:
        frame.variables = before


def _ident(node: Ident, scope: frozenset[str]) -> Evaluate:
    name = node.name
    if name not in scope and name in _TYPE_VALUES:
        value = TypeValue(_TYPE_VALUES[name])
        return lambda frame: value

    def ident(frame: Frame) -> Any:
        frame.spend(1)
        try:
            found = frame.variables[name]
        except KeyError:
            raise EvaluationError(f"no such attribute(s): {name}") from None
        return found(frame) if isinstance(found, Lazy) else found

    return ident


class Lazy:
    """A variable that is computed when it is first read, such as `variables.x` of a policy."""

    def __init__(self, compute: Callable[[Frame], Any]) -> None:
        self._compute = compute
        self._known: list[Any] = []

    def __call__(self, frame: Frame) -> Any:
        if not self._known:
            self._known.append(self._compute(frame))
        return self._known[0]


def _select(node: Select, scope: frozenset[str], names: dict[int, str]) -> Evaluate:
    full = dotted(node)
    if full in _TYPE_VALUES and full.split(".")[0] not in scope:
        value = TypeValue(_TYPE_VALUES[full])
        return lambda frame: value
    operand = evaluator(node.operand, scope, names)
    field = names.get(id(node), node.field)

    def find(value: Any) -> Optional:
        if isinstance(value, dict):
            return Optional(True, value[field]) if field in value else NONE
        if isinstance(value, Opaque) and value.kind == "authorizer" and field == "requestResource":
            return Optional(True, request_resource(value))
        raise EvaluationError("no such overload")

    if node.test:

        def test(frame: Frame) -> bool:
            frame.spend(1)
            value = operand(frame)
            if isinstance(value, Optional):
                return value.is_set and find(value.value).is_set
            return find(value).is_set

        return test

    def select(frame: Frame) -> Any:
        frame.spend(1)
        value = operand(frame)
        if isinstance(value, Optional):
            return find(value.value) if value.is_set else NONE
        found = find(value)
        if node.optional:
            return found
        if not found.is_set:
            raise EvaluationError(f"no such key: {field}")
        return found.value(frame) if isinstance(found.value, Lazy) else found.value

    return select


def _call(node: Call, scope: frozenset[str], names: dict[int, str]) -> Evaluate:
    name, inputs, is_method = node.name, node.args, node.target is not None
    if node.target is not None:
        full = dotted(node.target)
        if full and f"{full}.{name}" in FUNCTIONS and full.split(".")[0] not in scope:
            name, is_method = f"{full}.{name}", False
        elif name in ("@optMap", "@optFlatMap"):
            return _optional_map(node, scope, names)
        else:
            inputs = (node.target, *node.args)
    parts = tuple(evaluator(each, scope, names) for each in inputs)
    if name == "_?_:_":
        return _conditional(*parts)
    if name in ("_&&_", "_||_"):
        return _logical(parts[0], parts[1], decisive=name == "_||_")
    known: dict[tuple[str, ...], Overload] = {}

    def call(frame: Frame) -> Any:
        args = tuple([part(frame) for part in parts])
        kinds = tuple(map(class_of, args))
        found = known.get(kinds)
        if found is None:
            found = matching(name, args, is_method=is_method)
            if found is None:
                raise EvaluationError("no such overload")
            known[kinds] = found
        frame.spend(1 if found.cost is None else found.cost(*args))
        return found.run(*args)

    return call


def _conditional(condition: Evaluate, first: Evaluate, second: Evaluate) -> Evaluate:
    def conditional(frame: Frame) -> Any:
        value = condition(frame)
        if not isinstance(value, bool):
            raise EvaluationError("no such overload")
        return first(frame) if value else second(frame)

    return conditional


def _logical(left: Evaluate, right: Evaluate, *, decisive: bool) -> Evaluate:
    """With `decisive` False `&&`, else `||`: a decisive side decides, whatever the other side does."""

    def logical(frame: Frame) -> bool:
        problem: EvaluationError | None = None
        try:
            if _truth(left(frame)) is decisive:
                return decisive
        except CostError:
            raise
        except EvaluationError as error:
            problem = error
        other = right(frame)
        if problem is not None and other is not decisive:
            raise problem
        return _truth(other)

    return logical


def _optional_map(node: Call, scope: frozenset[str], names: dict[int, str]) -> Evaluate:
    assert node.target is not None
    assert isinstance(node.args[0], Literal)
    target, variable, is_flat = evaluator(node.target, scope, names), node.args[0].value, node.name == "@optFlatMap"
    body = evaluator(node.args[1], scope | {variable}, names)

    def run(frame: Frame) -> Any:
        value = target(frame)
        if not isinstance(value, Optional):
            raise EvaluationError("no such overload")
        if not value.is_set:
            return NONE
        found = _with(frame, {variable: value.value}, body)
        return found if is_flat else Optional(True, found)

    return run


def _list(node: ListOf, scope: frozenset[str], names: dict[int, str]) -> Evaluate:
    parts = tuple(evaluator(each, scope, names) for each in node.items)
    if not node.optional:

        def plain(frame: Frame) -> list[Any]:
            frame.spend(10)
            return [part(frame) for part in parts]

        return plain

    def run(frame: Frame) -> list[Any]:
        frame.spend(10)
        found = []
        for index, part in enumerate(parts):
            value = part(frame)
            if index not in node.optional:
                found.append(value)
            elif value.is_set:
                found.append(value.value)
        return found

    return run


def _put(found: dict[Any, Any], key: Any, value: Any, *, optional: bool) -> None:
    if not optional:
        found[key] = value
    elif value.is_set:
        found[key] = value.value


def _map(node: MapOf, scope: frozenset[str], names: dict[int, str]) -> Evaluate:
    parts = [
        (evaluator(key, scope, names), evaluator(value, scope, names), optional)
        for key, value, optional in node.entries
    ]

    def run(frame: Frame) -> dict[Any, Any]:
        frame.spend(30)
        found: dict[Any, Any] = {}
        for key_of, value_of, optional in parts:
            key, value = key_of(frame), value_of(frame)
            if isinstance(key, (list, dict, float)) or key is None:
                raise EvaluationError("unsupported key type")
            if key in found:
                raise EvaluationError(f"Failed with repeated key: {key}")
            _put(found, key, value, optional=optional)
        return found

    return run


def _message(node: MessageOf, scope: frozenset[str], names: dict[int, str]) -> Evaluate:
    parts = [(field, evaluator(value, scope, names), optional) for field, value, optional in node.fields]

    def run(frame: Frame) -> dict[str, Any]:
        frame.spend(40)
        found: dict[str, Any] = {}
        for field, value_of, optional in parts:
            value = value_of(frame)
            _put(found, field, value, optional=optional)
        return found

    return run


def _pairs(value: Any, *, is_double: bool) -> list[tuple[Any, ...]]:
    if isinstance(value, list):
        return list(enumerate(value)) if is_double else [(each,) for each in value]
    if isinstance(value, dict):
        return list(value.items()) if is_double else [(key,) for key in value]
    raise EvaluationError("no such overload")


def _fold(node: Fold, scope: frozenset[str], names: dict[int, str]) -> Evaluate:
    over, inner = evaluator(node.over, scope, names), scope.union(node.names)
    body = evaluator(node.body, inner, names)
    where = None if node.where is None else evaluator(node.where, inner, names)
    op, is_double = node.op, len(node.names) == 2

    def run(frame: Frame) -> Any:
        members = _pairs(over(frame), is_double=is_double)
        before = frame.variables
        state = _State(op)
        try:
            for member in members:
                frame.visit()
                frame.variables = {**before, **dict(zip(node.names, member, strict=True))}
                if where is not None and _truth(where(frame)) is False:
                    continue
                if state.take(member, body, frame):
                    break
        finally:
            frame.variables = before
        if op == "sortBy":
            frame.spend(self_comparison_cost(members))
        return state.result()

    return run


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("no such overload")
    return value


class _State:
    """The result of a fold while its members are visited."""

    def __init__(self, op: str) -> None:
        self.op = op
        self.items: list[Any] = []
        self.members: dict[Any, Any] = {}
        self.count = 0
        self.problem: EvaluationError | None = None
        self.decided = False

    def take(self, member: tuple[Any, ...], body: Evaluate, frame: Frame) -> bool:
        """Whether no further member matters."""
        if self.op in ("all", "exists"):
            try:
                if _truth(body(frame)) is (self.op == "exists"):
                    self.decided = True
            except CostError:
                raise
            except EvaluationError as error:
                self.problem = self.problem or error
            return self.decided
        value = body(frame)
        match self.op:
            case "existsOne":
                self.count += _truth(value)
            case "sortBy":
                self.items.append((value, member[-1]))
            case "filter":
                if _truth(value):
                    self.items.append(member[-1])
            case "transformMap":
                self.members[member[0]] = value
            case "transformMapEntry":
                if not isinstance(value, dict):
                    raise EvaluationError("no such overload")
                for key, each in value.items():
                    if key in self.members and not equal(self.members[key], each):
                        raise EvaluationError(f"insert failed: key {key} already exists")
                    self.members[key] = each
            case _:
                self.items.append(value)
        return False

    def result(self) -> Any:
        match self.op:
            case "all" | "exists":
                if self.decided:
                    return self.op == "exists"
                if self.problem is not None:
                    raise self.problem
                return self.op == "all"
            case "existsOne":
                return self.count == 1
            case "transformMap" | "transformMapEntry":
                return self.members
            case "sortBy":
                return sorted_by_keys(self.items)
        return self.items
