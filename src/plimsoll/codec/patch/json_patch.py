"""RFC 6902 and RFC 7386 patches, with the quirks of the library that Kubernetes uses for the former.

These are: the root cannot be replaced or removed; negative array indexes count from the end; `test` for null passes for
an absent value. Documents are never changed in place: a patched document shares the parts that did not change.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from plimsoll.codec.schema.decode import MAX_DEPTH, JsonError, may_repeat_keys, read_pairs
from plimsoll.codec.schema.tolerant_decode import Members, json_name, plain
from plimsoll.codec.yaml.json_stream import is_deeper
from plimsoll.errors import StructuredError
from plimsoll.rules.model.json_object import JsonObject

# Their Status: 400 BadRequest (decoding, format), 413 (too-large), 422 Invalid with `details: {}` (rejected), 500
# without reason (internal).
PatchProblem = Literal["decoding", "format", "too-large", "rejected", "internal"]

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
REJECTED = "the server rejected our request due to an error in our request"
_INDEX = re.compile(r"-?[0-9]{1,9}")
_OPERATION_FIELDS = frozenset({"op", "path", "from", "value"})
_MAX_PROBLEMS = 100


class PatchError(StructuredError):
    """A patch that cannot be applied; `message` is the text of the Status."""

    problem: PatchProblem
    message: str


class PatchTestError(PatchError):
    """A `test` that does not hold."""


def read_patch(data: bytes, *, is_list: bool = False) -> Any:
    """The JSON of a patch body: a list for RFC 6902, else an object; raises PatchError."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        value = plain(_pairs(data))  # Python's reader accepts some texts that msgspec refuses
    if is_deeper(value, MAX_DEPTH):
        raise _undecodable("exceeded max depth")
    if is_list:
        return _checked_operations([] if value is None else value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _undecodable(f"json: cannot unmarshal {json_name(value)} into Go value of type map[string]interface {{}}")
    return value


def patch_problems(data: bytes, *, is_list: bool = False) -> tuple[str, ...]:
    """Strict validation errors of a patch body itself: `duplicate field "spec.x"`, unknown members of an operation."""
    if not is_list and not may_repeat_keys(data):
        return ()
    value = _pairs(data)
    if not is_list:
        return tuple(_duplicates(value, ""))[:_MAX_PROBLEMS]
    problems: dict[str, None] = {}
    for index, operation in enumerate(value or ()):
        seen: set[str] = set()
        for name, _ in operation or ():
            if name in seen:
                problems[f'json patch duplicate field "[{index}].{name}"'] = None
            elif name not in _OPERATION_FIELDS:
                problems[f'json patch unknown field "[{index}].{name}"'] = None
            seen.add(name)
    return tuple(problems)[:_MAX_PROBLEMS]


def _pairs(data: bytes) -> Any:
    try:
        return read_pairs(data)
    except JsonError as error:
        raise _undecodable(str(error)) from None


def _undecodable(error: str) -> PatchError:
    return PatchError("decoding", f"error decoding patch: {error}")


def _checked_operations(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _undecodable(f"json: cannot unmarshal {json_name(value)} into Go value of type jsonpatch.Patch")
    for operation in value:
        if not isinstance(operation, dict) and operation is not None:
            raise _undecodable(
                f"json: cannot unmarshal {json_name(operation)} into Go value of type jsonpatch.Operation"
            )
    if len(value) > MAX_OPERATIONS:
        raise PatchError(
            "too-large",
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(value)}",
        )
    return value


def _duplicates(value: Any, at: str) -> dict[str, None]:
    found: dict[str, None] = {}
    if isinstance(value, Members):
        seen: set[str] = set()
        for name, member in value:
            here = f"{at}.{name}" if at else name
            if name in seen:
                found[f'duplicate field "{here}"'] = None
            seen.add(name)
            found.update(_duplicates(member, here))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            found.update(_duplicates(member, f"{at}[{index}]"))
    return found


def apply_merge_patch(document: JsonObject, patch: JsonObject) -> JsonObject:
    """RFC 7386."""
    result = dict(document)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            before = result.get(name)
            result[name] = apply_merge_patch(before if isinstance(before, dict) else {}, value)
        else:
            result[name] = value
    return result


def apply_json_patch(document: JsonObject, operations: list[Any]) -> Any:
    """RFC 6902; raises PatchError."""
    patching = _Patching(document)
    for operation in operations:
        patching.apply(operation)
    if is_deeper(patching.document, MAX_DEPTH):
        raise _rejected()
    return patching.document


class _Patching:
    """A document while operations are applied; `_own` are the containers that are already copied."""

    def __init__(self, document: JsonObject) -> None:
        self.document: Any = dict(document)
        self._own = {id(self.document): self.document}
        self._copied_bytes = 0

    def apply(self, operation: Any) -> None:
        if not isinstance(operation, dict):
            raise _rejected()
        name, path = operation.get("op"), operation.get("path")
        if not isinstance(path, str):
            raise _rejected()
        if name == "add":
            self._add(path, operation.get("value"))
        elif name == "remove":
            self._remove(path)
        elif name == "replace":
            self._replace(path, operation.get("value"))
        elif name == "test":
            self._test(path, operation.get("value"))
        elif name in ("move", "copy"):
            self._move(path, operation.get("from"), copying=name == "copy")
        else:
            raise _rejected()

    def _holder(self, path: str) -> tuple[Any, str]:
        """The container of a path, copied if necessary, and the last step."""
        if not path.startswith("/"):
            raise _rejected()
        *steps, last = (step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/"))
        holder: Any = self.document
        for step in steps:
            key = _key(holder, step)
            member: Any = holder[key]
            if not isinstance(member, (dict, list)):
                raise _rejected()
            if id(member) not in self._own:
                member = dict(member) if isinstance(member, dict) else list(member)
                self._own[id(member)] = member
                holder[key] = member
            holder = member
        return holder, last

    def _add(self, path: str, value: Any) -> None:
        holder, last = self._holder(path)
        if isinstance(holder, dict):
            holder[last] = value
        elif last == "-":
            holder.append(value)
        else:
            holder.insert(_index(last, len(holder) + 1), value)

    def _remove(self, path: str) -> Any:
        holder, last = self._holder(path)
        return holder.pop(_key(holder, last))

    def _replace(self, path: str, value: Any) -> None:
        holder, last = self._holder(path)
        holder[_key(holder, last)] = value

    def _test(self, path: str, wanted: Any) -> None:
        holder, last = self._holder(path)
        found = holder.get(last) if isinstance(holder, dict) else holder[_key(holder, last)]
        if not _same(found, wanted):
            raise PatchTestError("rejected", REJECTED)

    def _move(self, path: str, source: Any, *, copying: bool) -> None:
        if not isinstance(source, str):
            raise _rejected()
        if not copying:
            if path.startswith(f"{source}/"):
                raise _rejected()
            self._add(path, self._remove(source))
            return
        holder, last = self._holder(source)
        value = holder[_key(holder, last)]
        if is_deeper(value, MAX_DEPTH):
            raise _rejected()
        encoded = msgspec.json.encode(value)
        self._copied_bytes += len(encoded)
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise PatchError(
                "too-large",
                "Unable to complete the copy, the accumulated size increase of copy is "
                f"{self._copied_bytes}, exceeding the limit {MAX_COPIED_BYTES}",
            )
        self._add(path, msgspec.json.decode(encoded))


def _rejected() -> PatchError:
    return PatchError("rejected", REJECTED)


def _key(holder: Any, step: str) -> Any:
    """The key or index of an existing member."""
    if isinstance(holder, dict):
        if step not in holder:
            raise _rejected()
        return step
    return _index(step, len(holder))


def _index(step: str, size: int) -> int:
    if not _INDEX.fullmatch(step):
        raise _rejected()
    index = int(step)
    if not -size <= index < size:
        raise _rejected()
    return index + size if index < 0 else index


def _same(found: Any, wanted: Any) -> bool:
    """Equality of JSON values: True is not 1."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_same(member, wanted[name]) for name, member in found.items())
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)
