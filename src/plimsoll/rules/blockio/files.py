"""I/O as the kernel's control files, cgroup v2 and v1.

v2: io.weight (and io.bfq.weight, where a device uses BFQ) by class; io.max and io.latency in the pod's cgroup, for all
of its containers together. io.latency works only among cgroups with the same parent, so the class and kubepods have
the smallest target of their pods.

v1: blkio.bfq.weight by class. blkio.throttle.* bounds only the processes of one cgroup itself, never those below it,
so each container gets an equal part of the pod's limits: ⌊10485760 / 2⌋ = 5242880 for two containers.

These files have one line per device and take one device per write; a device without a line has the default.

Kernel: Documentation/admin-guide/cgroup-v2.rst, Documentation/admin-guide/cgroup-v1/blkio-controller.rst.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.rules.blockio.entries import LIMIT_KEYS, MAX, TARGET
from plimsoll.rules.blockio.policy import IoPolicy, PodIo, io_weight
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import PodSpec, QoSClass, is_sidecar

IO_MAX_FILE, IO_LATENCY_FILE = "io.max", "io.latency"
THROTTLE_V1 = {
    "rbps": "blkio.throttle.read_bps_device",
    "wbps": "blkio.throttle.write_bps_device",
    "riops": "blkio.throttle.read_iops_device",
    "wiops": "blkio.throttle.write_iops_device",
}
WEIGHT_FILES = ("io.bfq.weight", "io.weight", "blkio.bfq.weight")
# file → the keys of one line; "" for a line with a number only
_KEYS: Mapping[str, tuple[str, ...]] = {
    IO_MAX_FILE: LIMIT_KEYS,
    IO_LATENCY_FILE: (TARGET,),
    **dict.fromkeys(THROTTLE_V1.values(), ("",)),
}
KEYED_FILES: dict[CgroupVersion, tuple[str, ...]] = {
    2: (IO_MAX_FILE, IO_LATENCY_FILE),
    1: tuple(THROTTLE_V1.values()),
}

Lines = dict[str, dict[str, str]]  # device → key → text, without defaults


# --- what a cgroup gets ---


def kubepods_files(policy: IoPolicy, pods: Iterable[PodIo]) -> dict[str, str]:
    return _weights(policy, policy.weights.kubepods) | latency_files(policy, smallest_targets(pods))


def class_files(policy: IoPolicy, qos: QoSClass, pods: Iterable[PodIo]) -> dict[str, str]:
    return _weights(policy, policy.weights.of(qos)) | latency_files(policy, smallest_targets(pods))


def pod_files(policy: IoPolicy, qos: QoSClass, io: PodIo, version: CgroupVersion) -> dict[str, str]:
    """A Guaranteed pod is beside the classes and has a weight; pods of the other classes share that of their class."""
    files = _weights(policy, policy.weights.guaranteed) if qos == "Guaranteed" else {}
    if version == 1:
        return files
    lines = [f"{_key(policy, device)} {_limit_line(values)}" for device, values in io.limits.items()]
    return files | ({IO_MAX_FILE: "\n".join(lines)} if lines else {}) | latency_files(policy, io.latency)


def container_files(policy: IoPolicy, io: PodIo, spec: PodSpec, version: CgroupVersion) -> dict[str, str]:
    """v1 only: an equal part of the pod's limits."""
    files: dict[str, list[str]] = {}
    for device, values in io.limits.items() if version == 1 else ():
        for key, amount in values.items():
            part = max(amount // containers_at_once(spec), 1)
            files.setdefault(THROTTLE_V1[key], []).append(f"{_key(policy, device)} {part}")
    return {file: "\n".join(lines) for file, lines in files.items()}


def containers_at_once(spec: PodSpec) -> int:
    """Init containers that are not sidecars run before the others."""
    sidecars = sum(1 for container in spec.init_containers if is_sidecar(container))
    return max(len(spec.containers) + sidecars + len(spec.ephemeral_containers), 1)


def smallest_targets(pods: Iterable[PodIo]) -> dict[str, int]:
    found: dict[str, int] = {}
    for io in pods:
        for device, target in io.latency.items():
            found[device] = min(target, found.get(device, target))
    return found


def latency_files(policy: IoPolicy, targets: Mapping[str, int]) -> dict[str, str]:
    lines = [f"{_key(policy, device)} {TARGET}={target}" for device, target in sorted(targets.items())]
    return {IO_LATENCY_FILE: "\n".join(lines)} if lines else {}


def _weights(policy: IoPolicy, weight: int) -> dict[str, str]:
    own = {"io.weight": str(io_weight(weight))} if policy.bfq_by_systemd else {}
    return {file: own.get(file, str(weight)) for file in policy.weight_files}


def _limit_line(values: Mapping[str, int]) -> str:
    return " ".join(f"{key}={values.get(key, MAX)}" for key in LIMIT_KEYS)


def _key(policy: IoPolicy, path: str) -> str:
    return next(device.key for device in policy.devices if device.path == path)


# --- texts of these files ---


def is_keyed(file: str) -> bool:
    return file in _KEYS


def lines_of(file: str, text: str) -> Lines:
    """The lines of a file without those that are at the default, as the kernel or a writer spells them."""
    found: Lines = {}
    default = _default(file)
    for line in text.splitlines():
        device, _, rest = line.strip().partition(" ")
        if not rest.strip():
            continue
        words = [word.partition("=") for word in rest.split()]
        pairs = ((key, value) if equals else ("", key) for key, equals, value in words)
        values = {key: value for key, value in pairs if key in _KEYS[file] and value != default}
        if values:
            found[device] = values
    return found


def kept_lines(file: str, text: str) -> str:
    """One form for texts that mean the same."""
    return "\n".join(
        f"{device} {_line(file, values, every=False)}" for device, values in sorted(lines_of(file, text).items())
    )


def writes(file: str, wanted: str, found: str) -> list[str]:
    """The texts to write, one for each device: what is wanted, and the default where another one has a value."""
    lines, before = lines_of(file, wanted), lines_of(file, found)
    every: Lines = {**{device: {} for device in before}, **lines}
    return [f"{device} {_line(file, values)}" for device, values in every.items() if values != before.get(device)]


def is_mixture(file: str, text: str, texts: Iterable[str], devices: Iterable[str]) -> bool:
    """Whether the line of each of these devices is that of one of `texts`: a write of several may have been cut off."""
    known = [lines_of(file, each) for each in texts]
    found = lines_of(file, text)
    return all(any(found.get(device) == lines.get(device) for lines in known) for device in devices)


def with_lines(file: str, text: str, other: str, devices: Iterable[str]) -> str:
    """`text` with the lines of these devices as `other` has them."""
    lines, theirs = lines_of(file, text), lines_of(file, other)
    for device in devices:
        lines[device] = theirs.get(device, {})
    return "\n".join(f"{device} {_line(file, values)}" for device, values in sorted(lines.items()) if values)


def _line(file: str, values: Mapping[str, str], *, every: bool = True) -> str:
    default = _default(file)
    if _KEYS[file] == ("",):
        return values.get("", default)
    return " ".join(f"{key}={values.get(key, default)}" for key in _KEYS[file] if every or key in values)


def _default(file: str) -> str:
    return "0" if _KEYS[file] == ("",) else MAX
