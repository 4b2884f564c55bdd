"""Block I/O of the node's pods, as the kernel has it, for /metrics: limits and weights in force, and what was done.

Only the devices that the node controls. On v1 the limits are in the cgroups of containers: their sum is the pod's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.metrics.exposition import Counter, Gauge
from plimsoll.node.metrics import IoMeters
from plimsoll.rules.blockio.files import IO_LATENCY_FILE, IO_MAX_FILE, THROTTLE_V1, lines_of
from plimsoll.rules.blockio.policy import IoPolicy
from plimsoll.rules.cgroups.rounding import kept

_STAT_V2 = "io.stat"
_STATS_V1 = {"bytes": "blkio.throttle.io_service_bytes_recursive", "operations": "blkio.throttle.io_serviced_recursive"}
_KEYS_V2 = {
    "rbytes": ("bytes", "read"),
    "wbytes": ("bytes", "write"),
    "rios": ("operations", "read"),
    "wios": ("operations", "write"),
}


class PodPaths(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    path: str  # of its own cgroup
    containers: tuple[str, ...] = ()


def see_io(meters: IoMeters, pods: Iterable[PodPaths], driver: CgroupDriver, policy: IoPolicy) -> None:
    """Set everything, when the page is requested; pods that have ended are dropped."""
    for metric in meters.all():
        metric.values.clear()
    devices = {device.key: device.path for device in policy.devices}
    read = _v2 if driver.version == 2 else _v1
    for pod in pods:
        for metric, labels, amount in read(meters, pod, driver, policy, devices):
            key = (pod.namespace, pod.name, *labels)
            metric.values[key] = metric.values.get(key, 0) + amount


_Row = tuple[Gauge | Counter, tuple[str, ...], int]


def _v2(
    meters: IoMeters, pod: PodPaths, driver: CgroupDriver, policy: IoPolicy, devices: Mapping[str, str]
) -> Iterator[_Row]:
    texts = _read(driver, pod.path, (*policy.weight_files[-1:], IO_MAX_FILE, IO_LATENCY_FILE, _STAT_V2))
    yield from _weight(meters, texts, policy)
    for file, suffix in ((IO_MAX_FILE, ""), (IO_LATENCY_FILE, "_us")):
        for device, values in lines_of(file, texts.get(file, "")).items():
            for key, amount in values.items():
                if device in devices:
                    yield meters.limit, (devices[device], f"{key}{suffix}"), int(amount)
    for line in texts.get(_STAT_V2, "").splitlines():
        device, *words = line.split()
        for key, _, amount in (word.partition("=") for word in words):
            if device in devices and key in _KEYS_V2:
                what, operation = _KEYS_V2[key]
                yield _metric(meters, what), (devices[device], operation), int(amount)


def _v1(
    meters: IoMeters, pod: PodPaths, driver: CgroupDriver, policy: IoPolicy, devices: Mapping[str, str]
) -> Iterator[_Row]:
    texts = _read(driver, pod.path, (*policy.weight_files[-1:], *_STATS_V1.values()))
    yield from _weight(meters, texts, policy)
    for path in pod.containers:
        own = _read(driver, path, THROTTLE_V1.values())
        for key, file in THROTTLE_V1.items():
            for device, values in lines_of(file, own.get(file, "")).items():
                if device in devices:
                    yield meters.limit, (devices[device], key), int(values[""])
    for what, file in _STATS_V1.items():
        for line in texts.get(file, "").splitlines():
            words = line.split()
            if len(words) == 3 and words[0] in devices and words[1] in ("Read", "Write"):
                yield _metric(meters, what), (devices[words[0]], words[1].lower()), int(words[2])


def _weight(meters: IoMeters, texts: Mapping[str, str], policy: IoPolicy) -> Iterator[_Row]:
    for file in policy.weight_files[-1:]:
        if file in texts:
            yield meters.weight, (), int(kept(file, texts[file]))


def _metric(meters: IoMeters, what: str) -> Counter:
    return meters.bytes if what == "bytes" else meters.operations


def _read(driver: CgroupDriver, path: str, files: Iterable[str]) -> Mapping[str, str]:
    cgroup = driver.read(path, files)
    return {} if cgroup is None else cgroup.files
