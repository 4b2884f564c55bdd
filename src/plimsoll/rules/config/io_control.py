"""The setting `ioControl` of NodeExtras, which turns the control of block I/O on:

ioControl:
  devices: [/dev/vda]
  weights: {kubepods: 500, Guaranteed: 500, Burstable: 100, BestEffort: 10}
  ceilings:
    "*": {max: wbps=50Mi}
    payments: {max: rbps=200Mi wbps=200Mi, latency: target=10ms}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.blockio.entries import (
    Entries,
    IoTextError,
    by_device,
    is_device_path,
    latency_entries,
    limit_entries,
)
from plimsoll.rules.blockio.policy import MAX_WEIGHT, MIN_WEIGHT, IoCeiling, IoDevice, IoPolicy, IoWeights
from plimsoll.rules.config.field_types import Problems, shown
from plimsoll.rules.model.names import dns_label_problems

OTHERS = "*"
_WEIGHTS = {name: name.lower() for name in ("kubepods", "Guaranteed", "Burstable", "BestEffort")}
_CEILING: dict[str, Callable[[str], Entries]] = {"max": limit_entries, "latency": latency_entries}


def read_io_control(value: Any, path: str, problems: Problems) -> IoPolicy:
    """Errors are added to `problems`, one each, with the path."""
    members = _members(value, path, ("devices", "weights", "ceilings"), problems)
    devices = _devices(members.get("devices"), f"{path}.devices", problems)
    return IoPolicy(
        tuple(IoDevice(device) for device in devices),
        _weights(members.get("weights"), f"{path}.weights", problems),
        _ceilings(members.get("ceilings"), f"{path}.ceilings", devices, problems),
    )


def _members(value: Any, path: str, known: tuple[str, ...], problems: Problems) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        problems.append(InvalidConfigError(path, f"must be an object, not {shown(value)}"))
        return {}
    for name in value:
        if name not in known:
            problems.append(InvalidConfigError(f"{path}.{name}", f"unknown setting; known: {', '.join(known)}"))
    return value


def _devices(value: Any, path: str, problems: Problems) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        found = "nothing" if value is None else shown(value)
        problems.append(InvalidConfigError(path, f"must list the disks to control, such as [/dev/vda], not {found}"))
        return ()
    for index, device in enumerate(value):
        if not isinstance(device, str) or not is_device_path(device):
            problems.append(InvalidConfigError(f"{path}[{index}]", f"must be a path below /dev, not {shown(device)}"))
        elif device in value[:index]:
            problems.append(InvalidConfigError(f"{path}[{index}]", f"{device} is listed twice"))
    return tuple(device for device in value if isinstance(device, str))


def _weights(value: Any, path: str, problems: Problems) -> IoWeights:
    if value is None:
        return IoWeights()
    found = {}
    for name, weight in _members(value, path, tuple(_WEIGHTS), problems).items():
        if type(weight) is not int or not MIN_WEIGHT <= weight <= MAX_WEIGHT:
            reason = f"must be a whole number from {MIN_WEIGHT} to {MAX_WEIGHT}, not {shown(weight)}"
            problems.append(InvalidConfigError(f"{path}.{name}", reason))
        elif name in _WEIGHTS:
            found[_WEIGHTS[name]] = weight
    return IoWeights(**found)


def _ceilings(value: Any, path: str, devices: tuple[str, ...], problems: Problems) -> dict[str, IoCeiling]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(InvalidConfigError(path, f"must be a map from namespace to ceiling, not {shown(value)}"))
        return {}
    found = {}
    for namespace, ceiling in value.items():
        at = f"{path}[{namespace}]"
        if namespace != OTHERS and (complaints := dns_label_problems(str(namespace))):
            problems.append(
                InvalidConfigError(at, f"is not a namespace, nor {OTHERS!r} for all others: {complaints[0]}")
            )
        entries = {}
        for kind, text in _members(ceiling, at, tuple(_CEILING), problems).items():
            if kind in _CEILING:
                entries[kind] = _entries(text, f"{at}.{kind}", _CEILING[kind], devices, problems)
        found[str(namespace)] = IoCeiling(entries.get("max", ()), entries.get("latency", ()))
    return found


def _entries(
    text: Any, path: str, read: Callable[[str], Entries], devices: tuple[str, ...], problems: Problems
) -> Entries:
    if not isinstance(text, str):
        problems.append(InvalidConfigError(path, f"must be a text, not {shown(text)}"))
        return ()
    try:
        entries = read(text)
        by_device(entries, devices)
    except IoTextError as error:
        problems.append(InvalidConfigError(path, str(error)))
        return ()
    return entries
