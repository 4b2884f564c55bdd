"""The kinds of values of kubelet settings: how each is read from a document and from a flag.

A reader converts a value of JSON types to the one in KubeletConfig. Errors are added to the problems, one each, with
the path; the returned value is then ignored. A flag's text is first converted to the document's form
(`cpu=2,memory=4Gi` to a map), so each kind has one reader for both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from plimsoll.errors import InvalidConfigError, InvalidQuantityError
from plimsoll.rules.config.kubelet import PriorityPeriod
from plimsoll.rules.config.reserved_memory import ReservedMemory
from plimsoll.rules.config.thresholds import flag_map
from plimsoll.rules.cpuset import cpu_numbers
from plimsoll.rules.gotext import duration_nanos
from plimsoll.rules.model.objects import CPU, EPHEMERAL_STORAGE, MEMORY, ResourceList, Taint
from plimsoll.rules.quantity import QUANTITIES, ZERO, Quantity

Problems = list[InvalidConfigError]

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
RESERVABLE = (CPU, MEMORY, EPHEMERAL_STORAGE, "pid")  # N-4

# The name of each kind of value in the documentation and in errors.
Kind = Literal[
    "text", "boolean", "integer", "long", "number", "duration", "period", "texts", "map", "amounts", "thresholds",
    "quantities", "percentages", "cpus", "gates", "object", "list", "quantity", "headers", "reserved", "taints",
    "priorities",
]  # fmt: skip
KIND_WORDS: dict[Kind, str] = {
    "text": "a text",
    "boolean": "true or false",
    "integer": "a 32-bit integer",
    "long": "a 64-bit integer",
    "number": "a number",
    "duration": "a duration such as 1m30s",
    "period": "a duration such as 100ms",
    "texts": "a list of texts",
    "map": "a map of texts",
    "amounts": "a map from signal to text",
    "thresholds": "a map from signal to text",
    "quantities": "a map from resource to quantity",
    "quantity": "a positive quantity such as 10Mi",
    "percentages": "a map from resource to percentage",
    "cpus": "a list of CPUs such as 0-3,8",
    "gates": "a map from gate to true or false",
    "object": "an object",
    "list": "a list",
    "headers": "a map from header to a list of texts",
    "taints": "a list of taints",
    "reserved": "a list of NUMA nodes with limits",
    "priorities": "a list of priorities with seconds",
}


Reader = Callable[[Any, str, Problems], Any]


def _single(kind: Kind, convert: Callable[[Any], Any]) -> Reader:
    """`convert` returns None for a value of another type."""

    def read(value: Any, path: str, problems: Problems) -> Any:
        converted = convert(value)
        if converted is None:
            _mistyped(kind, value, path, problems)
        return converted

    return read


def _map_of(kind: Kind, read_item: Reader) -> Reader:
    def read(value: Any, path: str, problems: Problems) -> Any:
        return {name: read_item(item, at, problems) for name, item, at in _entries(kind, value, path, problems)}

    return read


def _whole(value: Any, beyond: int) -> int | None:
    number = _figure(value)
    if number is None or number != math.floor(number) or not -beyond <= number < beyond:
        return None
    return int(number)


def _figure(value: Any) -> int | float | None:
    """A JSON number of a reasonable size, also one with its text."""
    if isinstance(value, str) and type(value) is not str:
        try:
            value = float(value) if re.search("[.eE]", value) else int(value[:40])
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) < 1e30 else None  # excludes NaN


def _duration(value: Any, path: str, problems: Problems) -> Any:
    nanos = _nanos("duration", value, path, problems)
    return None if nanos is None else nanos / 10**9


def _period(value: Any, path: str, problems: Problems) -> Any:
    nanos = _nanos("period", value, path, problems)
    return None if nanos is None else nanos // 1000


def _nanos(kind: Kind, value: Any, path: str, problems: Problems) -> Any:
    if type(value) is not str:
        return _mistyped(kind, value, path, problems)
    try:
        return duration_nanos(value, path)
    except InvalidConfigError as error:
        problems.append(error)
        return None


def _texts(value: Any, path: str, problems: Problems) -> Any:
    return tuple(_text(item, at, problems) for item, at in _items("texts", value, path, problems))


def _taints(value: Any, path: str, problems: Problems) -> Any:
    """Each with a key and an effect; timeAdded is the API server's."""
    taints = []
    for item, at in _items("taints", value, path, problems):
        if not isinstance(item, Mapping):
            problems.append(InvalidConfigError(at, f"must be a taint with key and effect, not {shown(item)}"))
            continue
        fields = {name: _amount(item.get(name), f"{at}.{name}", problems) for name in ("key", "value", "effect")}
        if not fields["key"]:
            problems.append(InvalidConfigError(f"{at}.key", "must not be empty"))
        if fields["effect"] not in TAINT_EFFECTS:
            words = f"must be {', '.join(TAINT_EFFECTS[:-1])} or {TAINT_EFFECTS[-1]}"
            problems.append(InvalidConfigError(f"{at}.effect", f"{words}, not {shown(fields['effect'])}"))
        taints.append(Taint(**fields))
    return tuple(taints)


def _amount(value: Any, path: str, problems: Problems) -> str:
    """A text, or an unquoted number. Null is the empty text, as in Go."""
    if value is None:
        return ""
    if isinstance(value, str) or _figure(value) is not None:
        return str(value)
    problems.append(InvalidConfigError(path, f"must be a text or a number, not {shown(value)}"))
    return ""


def read_quantity(text: str, path: str, problems: Problems) -> Quantity | None:
    try:
        return QUANTITIES[text]
    except InvalidQuantityError as error:
        problems.append(InvalidConfigError(path, error.reason))
        return None


def _quantities(value: Any, path: str, problems: Problems) -> Any:
    resources: ResourceList = {}
    for name, item, at in _entries("quantities", value, path, problems):
        if name not in RESERVABLE:
            problems.append(InvalidConfigError(at, f'cannot reserve "{name}" resource'))
            continue
        before = len(problems)
        text = _amount(item, at, problems)
        amount = read_quantity(text, at, problems) if len(problems) == before else None
        if amount is not None and amount.nanos < 0:
            problems.append(InvalidConfigError(at, f"must not be negative: {text}"))
        elif amount is not None:
            resources[name] = amount
    return resources


def _quantity(value: Any, path: str, problems: Problems) -> Any:
    """An amount of bytes."""
    text = _amount(value, path, problems)
    amount = read_quantity(text, path, problems) if text else ZERO
    if text and amount is not None and amount.nanos <= 0:
        _mistyped("quantity", value, path, problems)
    return 0 if amount is None else amount.value


def _reserved(value: Any, path: str, problems: Problems) -> Any:
    """`[{"numaNode": 0, "limits": {"memory": "1Gi"}}]`."""
    entries = []
    for item, at in _items("reserved", value, path, problems):
        node = _whole(item.get("numaNode", 0), 2**31) if isinstance(item, Mapping) else None
        if node is None or node < 0 or not isinstance(item, Mapping):
            problems.append(InvalidConfigError(at, "must have numaNode, the number of a NUMA node, and limits"))
            continue
        amounts = {}
        for name, amount, where in _entries("reserved", item.get("limits", {}), f"{at}.limits", problems):
            quantity = read_quantity(_amount(amount, where, problems), where, problems)
            if quantity is not None:
                amounts[name] = quantity
        entries.append(ReservedMemory(node, amounts))
    return tuple(entries)


def _priorities(value: Any, path: str, problems: Problems) -> Any:
    """`[{"priority": 100000, "shutdownGracePeriodSeconds": 10}]`."""
    entries = []
    for item, at in _items("priorities", value, path, problems):
        if not isinstance(item, Mapping):
            problems.append(
                InvalidConfigError(at, f"must have priority and shutdownGracePeriodSeconds, not {shown(item)}")
            )
            continue
        priority = READERS["integer"](item.get("priority", 0), f"{at}.priority", problems)
        seconds = READERS["long"](
            item.get("shutdownGracePeriodSeconds", 0), f"{at}.shutdownGracePeriodSeconds", problems
        )
        if seconds is not None and seconds < 0:
            problems.append(InvalidConfigError(f"{at}.shutdownGracePeriodSeconds", "must not be negative"))
        problems += [
            InvalidConfigError(f"{at}.{name}", "unknown setting")
            for name in item
            if name not in ("priority", "shutdownGracePeriodSeconds")
        ]
        entries.append(PriorityPeriod(priority, seconds))
    return tuple(entries)


def _percentages(value: Any, path: str, problems: Problems) -> Any:
    shares: dict[str, int] = {}
    for name, item, at in _entries("percentages", value, path, problems):
        match = re.fullmatch("([0-9]{1,3})%", item, re.ASCII) if isinstance(item, str) else None
        if name != MEMORY:
            problems.append(InvalidConfigError(at, f'cannot reserve "{name}" resource'))
        elif match is None or int(match[1]) > 100:
            problems.append(InvalidConfigError(at, f"must be a whole percentage from 0% to 100%, not {shown(item)}"))
        else:
            shares[name] = int(match[1])
    return shares


def _entries(kind: Kind, value: Any, path: str, problems: Problems) -> Iterator[tuple[str, Any, str]]:
    if not isinstance(value, Mapping):
        _mistyped(kind, value, path, problems)
        return
    for name, item in value.items():
        if isinstance(name, str):
            yield name, item, f"{path}[{name}]"
        else:
            problems.append(InvalidConfigError(path, f"names must be texts, not {shown(name)}"))


def unquoted(kind: Kind, value: Any, path: str) -> Iterator[str]:
    """The paths of numbers where Go has texts: they are read here, and a kubelet does not start with them."""
    if kind in ("map", "amounts", "thresholds", "quantities", "percentages") and isinstance(value, Mapping):
        yield from (f"{path}[{name}]" for name, item in value.items() if _figure(item) is not None)


def _items(kind: Kind, value: Any, path: str, problems: Problems) -> Iterator[tuple[Any, str]]:
    if not isinstance(value, (list, tuple)):
        _mistyped(kind, value, path, problems)
        return
    for index, item in enumerate(value):
        yield item, f"{path}[{index}]"


def _mistyped(kind: Kind, value: object, path: str, problems: Problems) -> None:
    problems.append(InvalidConfigError(path, f"must be {KIND_WORDS[kind]}, not {shown(value)}"))


def shown(value: object) -> str:
    if isinstance(value, (Mapping, list, tuple)):
        return "an object" if isinstance(value, Mapping) else "a list"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of that size"
    text = f'"{value}"' if type(value) is str else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


# type(), not isinstance(): the codec's numbers with their text are a subclass of str.
_text = _single("text", lambda value: value if type(value) is str else None)
_boolean = _single("boolean", lambda value: value if isinstance(value, bool) else None)
_amounts = _map_of("amounts", _amount)
READERS: dict[Kind, Reader] = {
    "text": _text,
    "boolean": _boolean,
    "integer": _single("integer", lambda value: _whole(value, 2**31)),
    "long": _single("long", lambda value: _whole(value, 2**63)),
    "number": _single("number", lambda value: None if (number := _figure(value)) is None else float(number)),
    "duration": _duration,
    "period": _period,
    "texts": _texts,
    "map": _map_of("map", _text),
    "amounts": _amounts,
    "thresholds": _amounts,
    "quantities": _quantities,
    "quantity": _quantity,
    "percentages": _percentages,
    "cpus": _single("cpus", lambda value: cpu_numbers(value) if type(value) is str else None),
    "gates": _map_of("gates", _boolean),
    "object": _single("object", lambda value: value if isinstance(value, Mapping) else None),
    "list": _single("list", lambda value: value if isinstance(value, (list, tuple)) else None),
    "headers": _map_of("headers", _texts),
    "taints": _taints,
    "reserved": _reserved,
    "priorities": _priorities,
}


# The command line's form of each kind → the document's form. Other kinds are texts in both.

_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


def _boolean_text(text: str) -> object:
    return _BOOLEANS.get(text.lower(), text)


def _integer_text(text: str) -> object:
    return int(text) if re.fullmatch("[+-]?[0-9]{1,30}", text, re.ASCII) else text


def _pairs(text: str) -> object:
    return flag_map(text, "=")


def _header_texts(text: str) -> object:
    """`a:one,a:two,b:three`, as in the kubelet's --manifest-url-header."""
    found: dict[str, list[str]] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition(":")
        found.setdefault(name.strip(), []).append(value.strip())
    return found


def _taint_objects(text: str) -> object:
    """`key=value:effect` or `key:effect`, separated by commas."""
    taints = []
    for part in filter(None, text.split(",")):
        left, _, effect = part.rpartition(":")
        key, _, value = left.partition("=")
        taints.append({"key": key, "value": value, "effect": effect})
    return taints


def _reserved_texts(text: str) -> object:
    """`0:memory=1Gi,hugepages-2Mi=10Mi;1:memory=1Gi`, as in the kubelet's --reserved-memory."""
    entries = []
    for part in filter(None, text.split(";")):
        node, _, limits = part.partition(":")
        entries.append({"numaNode": _integer_text(node), "limits": flag_map(limits, "=")})
    return entries


FLAG_TEXTS: dict[Kind, Callable[[str], object]] = {
    "boolean": _boolean_text,
    "integer": _integer_text,
    "long": _integer_text,
    "texts": lambda text: text.split(",") if text else [],
    "map": _pairs,
    "amounts": _pairs,
    "quantities": _pairs,
    "percentages": _pairs,
    "thresholds": lambda text: flag_map(text, "<"),
    "gates": lambda text: {name: _boolean_text(on) for name, on in flag_map(text, "=").items()},
    "headers": _header_texts,
    "taints": _taint_objects,
    "reserved": _reserved_texts,
    "object": lambda text: {},  # such a setting has no effect, so its text is not parsed
    "list": lambda text: [],
}
