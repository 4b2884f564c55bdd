"""From a user's KubeletConfiguration and command line to a KubeletConfig, by the rows of `table`.

The file is a document of JSON types. Kubelet settings without effect are accepted and listed; unknown names are
refused. Values are layered as in the kubelet: defaults of the profile, then the file, then flags. A flag's map replaces
the file's map, except that feature gates are merged name by name. `mergeDefaultEvictionSettings` belongs to the file's
layer, so it does not change a flag's map.

All errors, with their paths, are raised together as InvalidConfigsError. An invalid value counts as not set, so that
contradictions between the others are found as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.errors import InvalidConfigError, InvalidConfigsError
from plimsoll.rules.config.field_types import FLAG_TEXTS, READERS, Kind, Problems, shown, unquoted
from plimsoll.rules.config.gates import GATES, KNOWN_GATES, gates_in, refusal
from plimsoll.rules.config.kubelet import KubeletConfig, config_errors
from plimsoll.rules.config.table import API_VERSION, BY_NAME, KIND, ROWS, Row
from plimsoll.rules.config.thresholds import eviction_hard
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import CPU
from plimsoll.rules.profile import DOCUMENTS, Profile
from plimsoll.rules.quantity import from_units

FlagValues = dict[str, Any]  # by a row's name


class ParsedConfig(msgspec.Struct, frozen=True):
    """`without_effect` lists settings that are set but change nothing; `notes` are sentences for the user."""

    config: KubeletConfig
    without_effect: list[str]
    notes: list[str]


def default_config(profile: Profile) -> KubeletConfig:
    return reading(None, profile).config


def reading(
    document: object, profile: Profile, flags: Mapping[str, str | Sequence[str] | None] | None = None
) -> ParsedConfig:
    """The configuration. `flags` maps a row's name to the text, or texts, of its flag.

    Raises InvalidConfigsError with all errors.
    """
    problems: Problems = []
    from_file = _file_values(document, problems)
    missing = [BY_NAME[name] for name in from_file if not BY_NAME[name].is_in(profile)]
    for row in missing:
        del from_file[row.name]
    from_flags = _flag_values(flags or {}, problems)
    present = from_file | from_flags
    defaults = _default_values(profile)
    values = defaults | from_file
    values["evictionHard"] = dict(  # N-6
        eviction_hard(
            from_file.get("evictionHard"),
            merge_defaults=values["mergeDefaultEvictionSettings"],
            defaults=defaults["evictionHard"],
        )
    )
    values |= from_flags
    gates, notes = _resolved_gates(
        from_file.get("featureGates", {}) | from_flags.get("featureGates", {}), profile, problems
    )
    values["featureGates"] = gates
    notes += [
        f"{row.name} has no effect while the feature gate {row.gate} is off"
        for row in ROWS
        if row.gate and row.name in present and not gates[row.gate]
    ]
    notes += [
        f"{row.name} has no effect: the kubelet of {profile.release} does not know it yet ({row.since}) and ignores it"
        for row in missing
    ]
    notes += _replaced_by_cpu_list(values)
    given = document if isinstance(document, Mapping) else {}
    notes += [
        f"{path} is a number; a real kubelet does not start, because it expects a text: use quotes"
        for row in ROWS
        for path in unquoted(row.kind, given.get(row.name), row.name)
    ]
    values["podPidsLimit"] = max(values["podPidsLimit"], -1)  # the kubelet treats all negative values as −1

    config = KubeletConfig(**{row.attribute: values[row.name] for row in ROWS if row.attribute})
    problems += config_errors(config, profile)
    if problems:
        raise InvalidConfigsError(problems)
    return ParsedConfig(config, [row.name for row in ROWS if row.name in present and not row.attribute], notes)


def flag_value(row: Row, text: str) -> Any:
    """The value of one text of a row's flag; raises InvalidConfigsError with the flag as path.

    A boolean flag without a value is the text `true`.
    """
    problems: Problems = []
    value = _flag_part(row, text, problems)
    if problems:
        raise InvalidConfigsError(problems)
    return value


# The layers


def _default_values(profile: Profile) -> FlagValues:
    defaults = ((row, row.default_in(profile.name)) for row in ROWS if row.attribute)
    return {row.name: None if value is None else READERS[row.kind](value, row.name, []) for row, value in defaults}


def _file_values(document: object, problems: Problems) -> FlagValues:
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        problems.append(InvalidConfigError("", f"a {KIND} must be an object, not {shown(document)}"))
        return {}
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(name) not in (None, expected):
            problems.append(InvalidConfigError(name, f"must be {expected}, not {shown(document[name])}"))
    settings = {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
    values: FlagValues = {}
    for row, value in _settings(settings, _TREE, "", problems):
        found: Problems = []
        read = READERS[row.kind](value, row.name, found)
        if not found and row.zero_is_unset and not read:
            continue
        if not found:
            found += _out_of_bounds(row, read, row.name)
        if not found:
            values[row.name] = read
        problems += found
    return values


# The file's nested names: {"memorySwap": {"swapBehavior": row}, "maxPods": row, …}.
_Tree = dict[str, "Row | _Tree"]


def _tree() -> _Tree:
    tree: _Tree = {}
    for row in ROWS:
        *groups, name = row.name.split(".")
        level = tree
        for group in groups:
            level = level.setdefault(group, {})  # type: ignore[assignment]
        if row.in_file:
            level[name] = row
    return tree


_TREE = _tree()


def _settings(document: Mapping[Any, Any], tree: _Tree, above: str, problems: Problems) -> Iterator[tuple[Row, object]]:
    """Each known setting with its value. Null means not set."""
    for key, value in document.items():
        path = above + (key if isinstance(key, str) else shown(key))
        node = tree.get(key)
        if node is None:
            problems.append(
                InvalidConfigError(
                    path, f"unknown setting{_suggestion(path, [row.name for row in ROWS if row.in_file])}"
                )
            )
        elif value is None:
            continue
        elif isinstance(node, Row):
            yield node, value
        elif isinstance(value, Mapping):
            yield from _settings(value, node, f"{path}.", problems)
        else:
            problems.append(InvalidConfigError(path, f"must be an object, not {shown(value)}"))


def _suggestion(path: str, names: Iterable[str]) -> str:
    import difflib  # only for errors

    close = difflib.get_close_matches(path[:80], names, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""


def _flag_values(flags: Mapping[str, str | Sequence[str] | None], problems: Problems) -> FlagValues:
    """A repeated flag extends its map or list; for other values the last one counts."""
    values: FlagValues = {}
    for name, texts in flags.items():
        row = BY_NAME[name]
        for text in [texts] if isinstance(texts, str) else texts or ():
            found: Problems = []
            part = _flag_part(row, text, found)
            problems += found
            if found:
                continue
            earlier = values.get(name)
            if isinstance(earlier, dict):
                part = earlier | part
            elif earlier is not None and row.kind in ("texts", "reserved"):
                part = earlier + part
            values[name] = part
    return values


def _flag_part(row: Row, text: str, problems: Problems) -> Any:
    try:
        value = FLAG_TEXTS.get(row.kind, str)(text)
    except InvalidConfigError as error:
        problems.append(InvalidConfigError(row.flag, error.reason))
        return None
    found: Problems = []
    read = READERS[row.kind](value, row.flag, found)
    problems += found or _out_of_bounds(row, read, row.flag)
    return read


def _out_of_bounds(row: Row, value: Any, path: str) -> Problems:
    def bound(written: object) -> Any:
        return READERS[row.kind](written, path, [])

    if row.choices and value not in row.choices:
        wrong = f"be {' or '.join(row.choices)}"
    elif row.least is not None and value < bound(row.least):
        wrong = f"not be less than {row.least}"
    elif row.above is not None and value <= bound(row.above):
        wrong = f"be more than {row.above}"
    elif row.most is not None and value > bound(row.most):
        wrong = f"not be more than {row.most}"
    else:
        return []
    return [InvalidConfigError(path, f"must {wrong}")]


def _resolved_gates(
    configured: Mapping[str, bool], profile: Profile, problems: Problems
) -> tuple[dict[str, bool], list[str]]:
    gates = {gate.name: gate.default(profile) for gate in GATES}
    notes = []
    for name, on in configured.items():
        refused = "" if profile.name == DOCUMENTS else refusal(name, on, profile.release)
        if refused:
            problems.append(InvalidConfigError(f"featureGates[{name}]", refused))
        elif name in ("AllAlpha", "AllBeta"):
            notes.append(f"feature gate {name} is not supported: name the single gates")
        elif name not in KNOWN_GATES:
            notes.append(f"feature gate {name} changes nothing here{_suggestion(name, KNOWN_GATES)}")
        else:
            gates[name] = on
            if on and KNOWN_GATES[name].lacks:
                notes.append(f"feature gate {name}: {KNOWN_GATES[name].lacks}")
    return gates, notes


def _replaced_by_cpu_list(values: FlagValues) -> list[str]:
    """N-10: the number of reserved CPUs replaces every other cpu reservation."""
    if not values["reservedSystemCPUs"]:
        return []
    replaced = [name for name in ("systemReserved", "kubeReserved") if CPU in values[name]]
    values["kubeReserved"] = {name: amount for name, amount in values["kubeReserved"].items() if name != CPU}
    values["systemReserved"] = values["systemReserved"] | {CPU: from_units(len(values["reservedSystemCPUs"]))}
    return [f"reservedSystemCPUs replaces the cpu of {name}" for name in replaced]


# The way back

MASKED = "<masked>"

# Kinds that are not listed are written unchanged.
_WRITTEN: dict[Kind, Callable[[Any], Any]] = {
    "duration": lambda seconds: f"{int(seconds)}s" if seconds == int(seconds) else f"{round(seconds * 10**9)}ns",
    "period": lambda micros: f"{micros}us",
    "texts": list,
    "cpus": cpu_text,
    "quantities": lambda amounts: {name: str(amount) for name, amount in amounts.items()},
    "quantity": str,
    "percentages": lambda shares: {name: f"{share}%" for name, share in shares.items()},
    "headers": lambda headers: {name: [MASKED] for name in headers},
    "taints": lambda taints: [{"key": each.key, "value": each.value, "effect": each.effect} for each in taints],
    "reserved": lambda entries: [
        {"numaNode": each.node, "limits": {name: str(amount) for name, amount in each.limits.items()}}
        for each in entries
    ],
}


def config_document(config: KubeletConfig, profile: Profile) -> JsonObject:
    """For a node's `/configz`: every setting with an effect. Parsed with the same profile it gives the same
    configuration, except for headers of static pods, which may contain a secret: only their names are shown."""
    document: JsonObject = {"apiVersion": API_VERSION, "kind": KIND}
    for row in ROWS:
        value = getattr(config, row.attribute) if row.attribute and row.in_file and row.is_in(profile) else None
        if value is None:
            continue
        *groups, name = row.name.split(".")
        level = document
        for group in groups:
            level = level.setdefault(group, {})
        level[name] = _WRITTEN.get(row.kind, lambda written: written)(value)
    if profile.name != DOCUMENTS:  # which has gates that 1.27 did not have
        known = gates_in(profile.release)
        document["featureGates"] = {name: on for name, on in config.feature_gates.items() if name in known}
    return document
