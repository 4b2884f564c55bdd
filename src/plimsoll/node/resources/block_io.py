"""Block I/O on this machine: the devices and files that its kernel has, and the annotations of pods that run.

A new pod with annotations that cannot be enforced is refused (`IoAnnotations.refusal`). A pod that runs keeps what it
had: its annotations about I/O are replaced with those that were last valid, and an event says why. So a wrong value is
never carried out in part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.errors import FieldError, InvalidConfigError
from plimsoll.linux.block_devices import BFQ, disk_number, scheduler
from plimsoll.rules.blockio.files import IO_LATENCY_FILE, IO_MAX_FILE, THROTTLE_V1
from plimsoll.rules.blockio.policy import ANNOTATIONS, IO_LATENCY, IoDevice, IoPolicy, annotation_field, io_errors
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.admission import AdmissionRefusal
from plimsoll.rules.node.node_config import NodeConfig

INVALID = "InvalidIOAnnotation"
COST = "io.cost.qos"
_BY_RUNTIME = (
    "cgroup v1 limits I/O only in the cgroup of each container, which the container runtime owns: use cgroup v2, or "
    "the embedded runtime"
)


def on_this_machine(setting: NodeConfig, driver: CgroupDriver, *, by_runtime: bool) -> tuple[NodeConfig, list[str]]:
    """The setting with the devices and files of this machine, and what has no effect on it.

    `by_runtime`: a container runtime owns the cgroups of containers. Raises InvalidConfigError where a device does not
    exist or this kernel does not control I/O."""
    policy = setting.policy.io
    if policy is None:
        return setting, []
    if why := driver.has(IO_MAX_FILE if driver.version == 2 else THROTTLE_V1["rbps"]):
        raise InvalidConfigError("ioControl", f"this machine cannot control I/O: {why}")
    devices = _devices(policy)
    has_bfq = [device for device in devices if scheduler(device.number) == BFQ]
    files = [BFQ_FILES[driver.version]] if has_bfq else []
    notes = []
    if driver.version == 2:
        if why := driver.has("io.weight"):
            notes.append(f"ioControl.weights: io.weight is not written: {why}")
        else:
            files.insert(0, "io.weight")
    without = "" if driver.version == 2 or not by_runtime else _BY_RUNTIME
    if without and any(ceiling.limits for ceiling in policy.ceilings.values()):
        raise InvalidConfigError("ioControl.ceilings", without)
    notes += [_no_weights(device, driver) for device in devices if not _weighs(device, driver)]
    by_systemd = driver.version == 2 and bool(has_bfq) and setting.driver == "systemd"
    policy = msgspec.structs.replace(
        policy,
        devices=devices,
        weight_files=tuple(files),
        no_limits=without,
        bfq_by_systemd=by_systemd,
        unweighted=tuple(notes),
    )
    return msgspec.structs.replace(setting, policy=msgspec.structs.replace(setting.policy, io=policy)), notes


BFQ_FILES = {1: "blkio.bfq.weight", 2: "io.bfq.weight"}


def _devices(policy: IoPolicy) -> tuple[IoDevice, ...]:
    found: dict[str, IoDevice] = {}
    for index, device in enumerate(policy.devices):
        field = f"ioControl.devices[{index}]"
        try:
            number = disk_number(device.path)
        except OSError as error:
            reason = f"{device.path}: {error.strerror or error}; `lsblk` lists the disks of this machine"
            raise InvalidConfigError(field, reason) from None
        if number in found:
            raise InvalidConfigError(field, f"{device.path} is the same disk as {found[number].path}")
        found[number] = IoDevice(device.path, number)
    return tuple(found.values())


def _weighs(device: IoDevice, driver: CgroupDriver) -> bool:
    """Whether the kernel divides this device by weight: with BFQ, or with io.cost."""
    if scheduler(device.number) == BFQ:
        return True
    root = driver.read("/", [COST]) if driver.version == 2 else None
    lines = root.files.get(COST, "").splitlines() if root is not None else []
    return any(line.split()[:1] == [device.number] and "enable=1" in line.split() for line in lines)


def _no_weights(device: IoDevice, driver: CgroupDriver) -> str:
    name = device.path.rpartition("/")[2]
    advice = f"`echo bfq > /sys/block/{name}/queue/scheduler`"
    if driver.version == 2:
        advice += f", or `echo '{device.number} enable=1' > /sys/fs/cgroup/{COST}`"
    return f"ioControl.weights have no effect on {device.path}, which divides its I/O by no weight: {advice}"


class IoAnnotations:
    def __init__(
        self,
        setting: NodeConfig,
        lacks: Callable[[str], str | None],
        sized: Callable[[str], Pod | None],
        warn: Callable[[RunPod, str, str], None],
    ) -> None:
        """`lacks`: why cgroups of this kernel do not have a file, or None. `sized`: the pod with this uid as its
        cgroups were last sized. `warn` gets the pod, a reason and a message."""
        self._policy, self._version = setting.policy.io, setting.policy.cgroup_version
        self._lacks, self._sized, self._warn = lacks, sized, warn
        self._reported: dict[str, tuple[str | None, ...]] = {}  # uid → the invalid values that were reported

    def errors(self, pod: Pod) -> list[FieldError]:
        errors = io_errors(pod, self._policy, self._version)
        text = (pod.metadata.annotations or {}).get(IO_LATENCY)
        if self._policy is not None and text is not None and not errors and (why := self._lacks(IO_LATENCY_FILE)):
            errors.append(FieldError("FieldValueInvalid", annotation_field(IO_LATENCY), why, text))
        return errors

    def refusal(self, pod: Pod) -> AdmissionRefusal | None:
        errors = self.errors(pod)
        return AdmissionRefusal(INVALID, "; ".join(map(str, errors))) if errors else None

    def in_force(self, pod: RunPod, before: Pod | None = None) -> RunPod:
        """A pod that runs, with annotations about I/O that can be enforced; `before`: with those in force."""
        uid = pod.metadata.uid
        errors = self.errors(pod) if self._policy is not None else []
        if not errors:
            self._reported.pop(uid, None)
            return pod
        own, before = pod.metadata.annotations or {}, before or self._sized(uid)
        earlier = (before.metadata.annotations if before is not None else None) or {}
        values = tuple(own.get(name) for name in ANNOTATIONS)
        kept = {name: earlier[name] for name in ANNOTATIONS if name in earlier}
        if self._reported.get(uid) != values:
            self._reported[uid] = values
            self._warn(pod, INVALID, f"{'; '.join(map(str, errors))}; {_stays(kept)}")
        others = {name: text for name, text in own.items() if name not in ANNOTATIONS}
        metadata = msgspec.structs.replace(pod.metadata, annotations={**others, **kept})
        return msgspec.structs.replace(pod, metadata=metadata)

    def forget(self, uid: str) -> None:
        self._reported.pop(uid, None)


def _stays(kept: Mapping[str, str]) -> str:
    if not kept:
        return "the pod's I/O stays as it is"
    return f"the pod keeps {', '.join(f'{name}: {text}' for name, text in kept.items())}"
