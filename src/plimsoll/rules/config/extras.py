"""Settings of the agent beyond a KubeletConfiguration: a document of its own kind, `NodeExtras`.

It is one more document in the file of the KubeletConfiguration, so that any kubelet can read the kubelet's part:

    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    systemReserved: {cpu: 500m}
    ---
    apiVersion: plimsoll.dev/v1
    kind: NodeExtras
    capacity: {cpu: 8, memory: 4Gi}

One row per setting, as in `table`; other names are refused, each with its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from plimsoll.errors import InvalidConfigError, InvalidConfigsError
from plimsoll.rules.config.field_types import READERS, Problems, Reader, read_quantity, shown
from plimsoll.rules.model.objects import ResourceList
from plimsoll.rules.profile import Profile

if TYPE_CHECKING:
    from plimsoll.rules.blockio.policy import IoPolicy

API_VERSION = "plimsoll.dev/v1"
KIND = "NodeExtras"
_HEADER = {"apiVersion": API_VERSION, "kind": KIND}
MAX_CHECK_PERIOD_S = 60.0  # the kubelet's UpdateCgroups runs every minute
DIRECTORY = "dir:"  # before a path: the image is a whole root file system

MemoryAvailableFrom = Literal["cgroup", "meminfo"]
ThrottleWatchdog = Literal["off", "event", "raise", "reclaim", "release"]


class NodeExtras(msgspec.Struct, frozen=True):
    capacity: ResourceList = {}  # if the node has another size than the machine
    images: dict[str, str | tuple[str, ...]] = {}  # name → `dir:PATH`, or a command
    eviction_hard_grace_s: int | None = None  # None: as in Kubernetes; 0: at once
    eviction_reclaim_first: bool | None = None  # None: the profile's
    memory_available_from: MemoryAvailableFrom = "cgroup"
    throttle_watchdog: ThrottleWatchdog = "event"
    page_cache_safe_min: bool = False
    cgroup_check_period_s: float = 60.0
    io_control: IoPolicy | None = None  # None: block I/O is not controlled

    def reclaims_first(self, profile: Profile) -> bool:
        if self.eviction_reclaim_first is not None:
            return self.eviction_reclaim_first
        return profile.reclaim_before_eviction


class ExtraRow(msgspec.Struct, frozen=True):
    name: str
    attribute: str
    read: Reader
    description: str
    values: str


def _choice(*choices: str) -> Reader:
    def read(value: Any, path: str, problems: Problems) -> Any:
        if value in choices:
            return value
        problems.append(InvalidConfigError(path, f"must be {' or '.join(choices)}, not {shown(value)}"))
        return choices[0]

    return read


def _seconds(value: Any, path: str, problems: Problems) -> Any:
    before = len(problems)
    found = READERS["integer"](value, path, problems)
    if len(problems) == before and found < 0:
        problems.append(InvalidConfigError(path, "must not be less than 0"))
    return found


def _io_control(value: Any, path: str, problems: Problems) -> IoPolicy:
    from plimsoll.rules.config.io_control import read_io_control  # most nodes do not control I/O

    return read_io_control(value, path, problems)


def _check_period(value: Any, path: str, problems: Problems) -> Any:
    before = len(problems)
    found = READERS["duration"](value, path, problems)
    if len(problems) == before and not 0 < found <= MAX_CHECK_PERIOD_S:
        problems.append(InvalidConfigError(path, f"must be more than 0s and at most 1m0s, not {shown(value)}"))
    return found


def _capacity(value: Any, path: str, problems: Problems) -> Any:
    amounts: ResourceList = {}
    for name, text in READERS["amounts"](value, path, problems).items():
        if (amount := read_quantity(text, f"{path}[{name}]", problems)) is not None:
            amounts[name] = amount
    return amounts


def _images(value: Any, path: str, problems: Problems) -> Any:
    if not isinstance(value, Mapping):
        problems.append(
            InvalidConfigError(path, f"must be a map from image to command or dir:PATH, not {shown(value)}")
        )
        return {}
    found: dict[str, str | tuple[str, ...]] = {}
    for name, stands_for in value.items():
        at = f"{path}[{name}]"
        if type(stands_for) is str and stands_for.startswith(f"{DIRECTORY}/"):
            found[str(name)] = stands_for
        elif isinstance(stands_for, list) and stands_for:
            found[str(name)] = READERS["texts"](stands_for, at, problems)
        else:
            problems.append(InvalidConfigError(at, f"must be dir:/PATH or a list of words, not {shown(stands_for)}"))
    return found


# fmt: off
ROWS: tuple[ExtraRow, ...] = (
    ExtraRow("capacity", "capacity", _capacity,
             "The size of the node, in place of the machine's; the Node is annotated. `--capacity` overrides it.",
             "a map from resource to quantity; cpu and memory are required"),
    ExtraRow("images", "images", _images,
             "What the embedded runtime runs for an image name if the container has no command.",
             "a map from image to a list of words, or to `dir:/PATH`"),
    ExtraRow("evictionHardGraceSeconds", "eviction_hard_grace_s", _seconds,
             "Grace period of a hard threshold's victim, at most its own; 0 kills at once. Default: as in Kubernetes.",
             "a 32-bit integer"),
    ExtraRow("evictionReclaimFirst", "eviction_reclaim_first", READERS["boolean"],
             "Reclaim memory, for at most 50 ms, before a pod is evicted. Default: on in `documents`, off otherwise.",
             "true or false"),
    ExtraRow("memoryAvailableFrom", "memory_available_from", _choice("cgroup", "meminfo"),
             "The source of `memory.available`: the cgroup, as in the kubelet, or MemAvailable of /proc/meminfo.",
             "`cgroup` or `meminfo`"),
    ExtraRow("throttleWatchdog", "throttle_watchdog", _choice("off", "event", "raise", "reclaim", "release"),
             "What to do about a container that is parked at memory.high without progress.",
             "`off`, `event`, `raise`, `reclaim` or `release`"),
    ExtraRow("pageCacheSafeMin", "page_cache_safe_min", READERS["boolean"],
             "Keep memory.min below memory.max, so that a Guaranteed pod has room for page cache.",
             "true or false"),
    ExtraRow("cgroupCheckPeriod", "cgroup_check_period_s", _check_period,
             "How often every cgroup is compared with its desired values, besides the kernel's notifications.",
             "a duration such as 30s, at most 1m; default 1m"),
    ExtraRow("ioControl", "io_control", _io_control,
             "Control block I/O: weights by QoS class, limits and latency targets by annotation, ceilings by namespace "
             "([block I/O](block-io.md)). Default: off.",
             "an object with `devices`, `weights` and `ceilings`"),
)
# fmt: on
_BY_NAME = {row.name: row for row in ROWS}


def is_extras(document: object) -> bool:
    """Whether a document is a NodeExtras; a wrong version is then reported as an error."""
    if not isinstance(document, Mapping):
        return False
    return document.get("kind") == KIND or str(document.get("apiVersion", "")).startswith("plimsoll.dev/")


def extras_reading(document: object) -> NodeExtras:
    """Raises InvalidConfigsError with all errors, including unknown names."""
    problems: Problems = []
    if not isinstance(document, Mapping):
        raise InvalidConfigsError([InvalidConfigError("", f"{KIND} must be an object, not {shown(document)}")])
    for name, expected in _HEADER.items():
        if document.get(name) != expected:
            problems.append(InvalidConfigError(name, f"must be {expected}, not {shown(document.get(name))}"))
    values: dict[str, Any] = {}
    for name, value in document.items():
        row = _BY_NAME.get(name)
        if name in _HEADER:
            continue
        if row is None:
            problems.append(InvalidConfigError(str(name), f"unknown setting; known: {', '.join(_BY_NAME)}"))
        elif value is not None:
            values[row.attribute] = row.read(value, name, problems)
    if problems:
        raise InvalidConfigsError(problems)
    return NodeExtras(**values)
