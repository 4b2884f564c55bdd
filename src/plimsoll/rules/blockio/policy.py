"""What the node controls, and what a pod gets of it: `ioControl` of NodeExtras, two annotations, and ceilings.

    plimsoll.dev/io-max: rbps=20Mi wbps=10Mi      limits of the pod, on each device
    plimsoll.dev/io-latency: target=10ms          the latency that the kernel protects the pod's I/O for

The ceiling of a namespace, or of `*` for all others, bounds both. A key of io.max that the pod does not set has the
ceiling's value, so that no pod of the namespace exceeds it; a larger one is refused. A latency target holds back the
I/O of everybody else, so a pod may have one only if the ceiling of its namespace has one, and no smaller one.
Anything that cannot be enforced as it is written is refused: the pod is not started with a part of it.
"""

from __future__ import annotations

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.blockio.entries import (
    LIMIT_KEYS,
    TARGET,
    ByDevice,
    Entries,
    IoTextError,
    by_device,
    latency_entries,
    limit_entries,
    shortened,
)
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import Pod, QoSClass

IO_MAX = "plimsoll.dev/io-max"
IO_LATENCY = "plimsoll.dev/io-latency"
ANNOTATIONS = (IO_MAX, IO_LATENCY)
OTHERS = "*"  # every namespace without a ceiling of its own
MIN_WEIGHT, DEFAULT_WEIGHT, MAX_WEIGHT = 1, 100, 1000  # what both io.weight and BFQ accept
SYSTEMD_BFQ_SCALE = 11
WEIGHTS_ON_V1 = {"io.weight": "blkio.bfq.weight", "io.bfq.weight": "blkio.bfq.weight"}
NO_LATENCY_V1 = "cgroup v1 has no io.latency"


class IoDevice(msgspec.Struct, frozen=True):
    """`number`: MAJOR:MINOR on this machine, "" where it is not known."""

    path: str
    number: str = ""

    @property
    def key(self) -> str:
        """How a control file names it."""
        return self.number or self.path


class IoWeights(msgspec.Struct, frozen=True):
    """kubepods beside system.slice, which has 100; each Guaranteed pod beside the cgroups of the two classes."""

    kubepods: int = 500
    guaranteed: int = 500
    burstable: int = 100
    besteffort: int = 10

    def of(self, qos: QoSClass) -> int:
        return {"Guaranteed": self.guaranteed, "Burstable": self.burstable, "BestEffort": self.besteffort}[qos]


class IoCeiling(msgspec.Struct, frozen=True):
    limits: Entries = ()
    latency: Entries = ()


NO_CEILING = IoCeiling()


class IoPolicy(msgspec.Struct, frozen=True):
    """`weight_files`: those that this kernel has. `no_limits`, `no_latency`: why pods cannot have any here.
    `bfq_by_systemd`: systemd writes io.bfq.weight, from io.weight (see `io_weight`)."""

    devices: tuple[IoDevice, ...]
    weights: IoWeights = IoWeights()
    ceilings: dict[str, IoCeiling] = {}
    weight_files: tuple[str, ...] = ("io.weight",)
    no_limits: str = ""
    no_latency: str = ""
    bfq_by_systemd: bool = False
    unweighted: tuple[str, ...] = ()  # why weights have no effect on some devices

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(device.path for device in self.devices)

    def ceiling(self, namespace: str) -> tuple[str, IoCeiling]:
        """The ceiling of a namespace, with its key in `ioControl.ceilings`."""
        key = namespace if namespace in self.ceilings else OTHERS
        return key, self.ceilings.get(key, NO_CEILING)


def io_weight(weight: int) -> int:
    """The io.weight that systemd converts to this io.bfq.weight: 100 + (500 − 100) · 11 = 4500.

    systemd maps 100 … 10000 to 100 … 1000, and 1 … 100 to itself, whenever it applies a unit."""
    return weight if weight <= DEFAULT_WEIGHT else DEFAULT_WEIGHT + (weight - DEFAULT_WEIGHT) * SYSTEMD_BFQ_SCALE


def on_v1(policy: IoPolicy) -> IoPolicy:
    """What of it cgroup v1 has."""
    files = tuple(WEIGHTS_ON_V1.get(file, file) for file in policy.weight_files)
    return msgspec.structs.replace(policy, weight_files=tuple(dict.fromkeys(files)))


class PodIo(msgspec.Struct, frozen=True):
    """`limits`, `latency`: path of a device → key → amount, without what is not limited."""

    limits: dict[str, dict[str, int]] = {}
    latency: dict[str, int] = {}  # in µs


NO_IO = PodIo()


def annotation_field(name: str) -> str:
    return f"metadata.annotations[{name}]"


def ceiling_field(key: str, kind: str) -> str:
    return f"ioControl.ceilings[{key}].{kind}"


def asked_entries(pod: Pod, name: str) -> Entries:
    """What an annotation says; nothing if it is not valid."""
    text = (pod.metadata.annotations or {}).get(name)
    if text is None:
        return ()
    try:
        return limit_entries(text) if name == IO_MAX else latency_entries(text)
    except IoTextError:
        return ()


def pod_io(pod: Pod, policy: IoPolicy, version: CgroupVersion) -> PodIo:
    """Never above the ceilings. Of annotations that are not valid, what can be enforced: a pod that runs may have been
    valid when it was admitted, before the node's settings changed."""
    return _resolved(pod, policy, version)[0]


def io_errors(pod: Pod, policy: IoPolicy | None, version: CgroupVersion) -> list[FieldError]:
    """Everything that is wrong with the pod's annotations; nothing while I/O is not controlled."""
    return [] if policy is None else _resolved(pod, policy, version)[1]


def _resolved(pod: Pod, policy: IoPolicy, version: CgroupVersion) -> tuple[PodIo, list[FieldError]]:
    errors: list[FieldError] = []
    namespace = pod.metadata.namespace or "default"
    annotations = pod.metadata.annotations or {}
    key, ceiling = policy.ceiling(namespace)
    limits = by_device(ceiling.limits, policy.paths)
    targets: dict[str, int] = {}
    if (text := annotations.get(IO_MAX)) is not None:
        limits = _asked_limits(text, limits, key, policy, errors)
    if (text := annotations.get(IO_LATENCY)) is not None:
        try:
            asked = by_device(latency_entries(text), policy.paths)
            if without := NO_LATENCY_V1 if version == 1 else policy.no_latency:
                raise IoTextError(without)
        except IoTextError as error:
            errors.append(_invalid(IO_LATENCY, text, error))
        else:
            least = by_device(ceiling.latency, policy.paths)
            targets = _allowed_targets(asked, least, key, namespace, errors)
    amounts = {
        device: {name: amount for name in LIMIT_KEYS if (amount := values.get(name)) is not None}
        for device, values in limits.items()
    }
    return PodIo({device: values for device, values in amounts.items() if values}, targets), errors


def _asked_limits(text: str, ceilings: ByDevice, key: str, policy: IoPolicy, errors: list[FieldError]) -> ByDevice:
    try:
        if policy.no_limits:
            raise IoTextError(policy.no_limits)
        asked = by_device(limit_entries(text), policy.paths)
    except IoTextError as error:
        errors.append(_invalid(IO_MAX, text, error))
        return ceilings
    found = {device: dict(values) for device, values in ceilings.items()}
    for device, values in asked.items():
        for name, amount in values.items():
            most = ceilings[device].get(name)
            if most is None or (amount is not None and amount <= most):
                found[device][name] = amount
                continue
            wants = "no limit" if amount is None else str(amount)
            detail = f"{name} of {device} is {wants}, more than {most} ({ceiling_field(key, 'max')} of this node)"
            errors.append(FieldError("FieldValueForbidden", annotation_field(IO_MAX), detail))
    return found


def _invalid(annotation: str, text: str, error: IoTextError) -> FieldError:
    return FieldError("FieldValueInvalid", annotation_field(annotation), str(error), shortened(text))


def _allowed_targets(
    asked: ByDevice, least: ByDevice, key: str, namespace: str, errors: list[FieldError]
) -> dict[str, int]:
    field, where = annotation_field(IO_LATENCY), ceiling_field(key, "latency")
    found: dict[str, int] = {}
    for device, values in asked.items():
        target, allowed = values.get(TARGET), least[device].get(TARGET)
        if target is None:
            continue
        if allowed is None:
            detail = f"namespace {namespace} may not set a target on {device}: {where} of this node has none"
            errors.append(FieldError("FieldValueForbidden", field, detail))
            continue
        if target < allowed:
            detail = f"target of {device} is {target} µs, less than {allowed} µs ({where} of this node)"
            errors.append(FieldError("FieldValueForbidden", field, detail))
        found[device] = max(target, allowed)
    return found
