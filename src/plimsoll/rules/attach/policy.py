"""The policy of `plimsoll attach`: switches, per namespace, with ceilings.

    memoryQoS: tiered              # off, hard (memory.min), tiered (memory.low for Burstable)
    memoryThrottlingFactor: 0.9    # for memory.high; 0: no memory.high
    oomGroup: keep                 # keep, container (the kernel kills whole containers), process
    throttleWatchdog: "off"        # off, event, raise, reclaim, release: a container that is parked at memory.high
    proactiveReclaim: false        # reclaim cold memory while PSI shows no pressure
    cpuBurstPercent: 0             # of the quota, for cpu.max.burst
    repairOomScoreAdj: false       # processes whose oom_score_adj is that of an earlier request
    ceilings:                      # no pod of the namespace gets more
      memoryMin: 4Gi
      memoryLow: 8Gi
      cpuBurstPercent: 50
    memoryReserve: 256Mi           # Σ memory.min stays below allocatable by this much
    restoreOnExit: false           # write the values from before when attach ends
    ioControl:                     # block I/O: weights of classes, limits of pods; see rules.config.io_control
      devices: [/dev/vda]
      ceilings: {"*": {max: wbps=50Mi}}
    namespaces:
      payments: {memoryQoS: hard}  # the same switches and ceilings; what is not named is as above

Everything is off by default. A document that has an error is refused as a whole, with every error and its field.
Protection follows from requests, which quotas and the scheduler govern. A pod can decline it (`plimsoll.dev/memory-qos:
"off"`), never ask for more; only a CPU burst (`plimsoll.dev/cpu-burst-percent`), I/O limits (`plimsoll.dev/io-max`) and
latency targets (`plimsoll.dev/io-latency`) can be asked for, up to the ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from plimsoll.errors import FieldError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.blockio.policy import IoPolicy
from plimsoll.rules.config.field_types import Problems
from plimsoll.rules.config.io_control import read_io_control
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import dns_label_problems
from plimsoll.rules.oom.throttling import Policy as Watchdog
from plimsoll.rules.quantity import MAX_INT64, QUANTITIES
from plimsoll.rules.resources.node_policy import MEMORY_QOS, OFF, OOM_GROUP, asked_oom_group

MemoryQoS = Literal["off", "tiered", "hard"]
OomGroup = Literal["keep", "container", "process"]

CPU_BURST = "plimsoll.dev/cpu-burst-percent"
DEFAULT_FACTOR = 0.9
DEFAULT_RESERVE_BYTES = 256 << 20
MOST_NAMESPACES = 10_000


class Switches(msgspec.Struct, frozen=True):
    """For the pods of one namespace."""

    memory_qos: MemoryQoS = "off"
    factor: float | None = DEFAULT_FACTOR
    oom_group: OomGroup = "keep"
    watchdog: Watchdog = "off"
    reclaim: bool = False
    cpu_burst_percent: int = 0
    repair_scores: bool = False
    most_min_bytes: int | None = None
    most_low_bytes: int | None = None
    most_burst_percent: int | None = None


class AttachPolicy(msgspec.Struct, frozen=True):
    default: Switches = Switches()
    namespaces: Mapping[str, Switches] = {}
    reserve_bytes: int = DEFAULT_RESERVE_BYTES
    restore_on_exit: bool = False
    io: IoPolicy | None = None  # None: block I/O is left as it is

    def of(self, namespace: str) -> Switches:
        return self.namespaces.get(namespace, self.default)


_SWITCHES = {
    "memoryQoS": "memory_qos",
    "memoryThrottlingFactor": "factor",
    "oomGroup": "oom_group",
    "throttleWatchdog": "watchdog",
    "proactiveReclaim": "reclaim",
    "cpuBurstPercent": "cpu_burst_percent",
    "repairOomScoreAdj": "repair_scores",
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "memoryQoS": get_args(MemoryQoS),
    "oomGroup": get_args(OomGroup),
    "throttleWatchdog": get_args(Watchdog),
}
_CEILINGS = {"memoryMin": "most_min_bytes", "memoryLow": "most_low_bytes", "cpuBurstPercent": "most_burst_percent"}
_NODE = ("memoryReserve", "restoreOnExit", "ioControl", "namespaces")


def attach_policy(document: JsonObject) -> AttachPolicy:
    """Raises InvalidObjectError with every error."""
    errors: list[FieldError] = []
    default = _switches(document, "", Switches(), errors, also=_NODE)
    reserve = _bytes(document.get("memoryReserve", DEFAULT_RESERVE_BYTES), "memoryReserve", errors)
    restore = _flag(document.get("restoreOnExit", False), "restoreOnExit", errors)
    io = _io_control(document["ioControl"], errors) if "ioControl" in document else None
    namespaces: dict[str, Switches] = {}
    given = document.get("namespaces") or {}
    if not isinstance(given, dict):
        errors.append(_invalid("namespaces", given, "must be a map of namespaces"))
        given = {}
    if len(given) > MOST_NAMESPACES:
        errors.append(FieldError("FieldValueTooMany", "namespaces", f"must have at most {MOST_NAMESPACES} items"))
        given = {}
    for name, each in given.items():
        path = f"namespaces[{str(name)[:63]}]"
        problems = dns_label_problems(str(name))
        if problems:
            errors.append(_invalid(path, str(name)[:63], f"cannot be the name of a namespace: {problems[0]}"))
        elif isinstance(each, dict):
            namespaces[name] = _switches(each, f"{path}.", default, errors)
        else:
            errors.append(_invalid(path, each, "must be a map of switches"))
    if errors:
        raise InvalidObjectError(errors)
    return AttachPolicy(default, namespaces, reserve or 0, restore, io)


def _switches(
    document: JsonObject, at: str, default: Switches, errors: list[FieldError], also: tuple[str, ...] = ()
) -> Switches:
    values: dict[str, Any] = {}
    for name, given in document.items():
        path = f"{at}{name}"
        if name == "ceilings":
            values |= _ceilings(given, path, errors)
        elif name in _CHOICES:
            # YAML reads a plain `off` as false
            text = "off" if given is False and "off" in _CHOICES[name] else given
            if text in _CHOICES[name]:
                values[_SWITCHES[name]] = text
            else:
                listed = ", ".join(f'"{choice}"' for choice in _CHOICES[name])
                errors.append(FieldError("FieldValueNotSupported", path, f"supported values: {listed}", _shown(given)))
        elif name == "memoryThrottlingFactor":
            values["factor"] = _factor(given, path, errors)
        elif name == "cpuBurstPercent":
            values["cpu_burst_percent"] = _percent(given, path, errors)
        elif name in _SWITCHES:
            values[_SWITCHES[name]] = _flag(given, path, errors)
        elif name not in also:
            known = ", ".join(sorted([*_SWITCHES, "ceilings", *also]))
            errors.append(_invalid(path, name, f"unknown field; known are {known}"))
    return msgspec.structs.replace(default, **values)


def _ceilings(given: Any, path: str, errors: list[FieldError]) -> dict[str, int | None]:
    if not isinstance(given, dict):
        errors.append(_invalid(path, given, "must be a map of ceilings"))
        return {}
    found: dict[str, int | None] = {}
    for name, amount in given.items():
        if name not in _CEILINGS:
            errors.append(_invalid(f"{path}.{name}", name, f"unknown field; known are {', '.join(sorted(_CEILINGS))}"))
        elif name == "cpuBurstPercent":
            found[_CEILINGS[name]] = _percent(amount, f"{path}.{name}", errors)
        else:
            found[_CEILINGS[name]] = _bytes(amount, f"{path}.{name}", errors)
    return found


def _io_control(given: Any, errors: list[FieldError]) -> IoPolicy:
    """As in NodeExtras: devices, weights, ceilings."""
    problems: Problems = []
    policy = read_io_control(given, "ioControl", problems)
    errors += [FieldError("FieldValueInvalid", problem.path, problem.reason) for problem in problems]
    return policy


def _bytes(given: Any, path: str, errors: list[FieldError]) -> int | None:
    try:
        if isinstance(given, bool) or not isinstance(given, str | int):
            raise InvalidQuantityError(str(given), "must be a quantity such as 512Mi")
        amount = QUANTITIES[str(given)].value
        if not 0 <= amount < MAX_INT64:  # a quantity beyond int64 is parsed as MAX_INT64, as in Kubernetes
            raise InvalidQuantityError(str(given), "must be between 0 and 2^63 − 2 bytes")
    except InvalidQuantityError as error:
        errors.append(_invalid(path, given, str(error)))
        return None
    return amount


def _factor(given: Any, path: str, errors: list[FieldError]) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        errors.append(_invalid(path, given, "must be a number from 0 to 1; 0 sets no memory.high"))
        return None
    return float(given) or None


def _percent(given: Any, path: str, errors: list[FieldError]) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= 100:
        errors.append(_invalid(path, given, "must be a whole number from 0 to 100"))
        return 0
    return given


def _flag(given: Any, path: str, errors: list[FieldError]) -> bool:
    if not isinstance(given, bool):
        errors.append(_invalid(path, given, "must be true or false"))
        return False
    return given


def _invalid(path: str, given: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, _shown(given))


def _shown(given: Any) -> str | int:
    return given if isinstance(given, int) and not isinstance(given, bool) else str(given)[:80]


def burst_percent(annotations: Mapping[str, str] | None, switches: Switches) -> tuple[int, str]:
    """The CPU burst of a pod, and why its annotation is not followed; empty if it is, or if there is none."""
    asked = (annotations or {}).get(CPU_BURST)
    if asked is None:
        return switches.cpu_burst_percent, ""
    ceiling = switches.cpu_burst_percent if switches.most_burst_percent is None else switches.most_burst_percent
    if not (asked.isascii() and asked.isdecimal() and len(asked) <= 3 and int(asked) <= 100):
        return switches.cpu_burst_percent, f"{CPU_BURST}: {asked[:40]!r} is ignored: not a whole number from 0 to 100"
    if int(asked) > ceiling:
        return ceiling, f"{CPU_BURST}: {asked} is above the ceiling of the namespace, {ceiling} is used"
    return int(asked), ""


def annotation_problems(annotations: Mapping[str, str] | None) -> tuple[str, ...]:
    """Values of the other annotations of attach that mean nothing."""
    given = annotations or {}
    found = []
    if given.get(MEMORY_QOS, OFF) != OFF:
        found.append(f"{MEMORY_QOS}: {given[MEMORY_QOS][:40]!r} is ignored: a pod can only turn it {OFF}")
    if OOM_GROUP in given and asked_oom_group(given) is None:
        found.append(f"{OOM_GROUP}: {given[OOM_GROUP][:40]!r} is ignored: neither true nor false")
    return tuple(found)
