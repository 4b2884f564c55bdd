"""The I/O files of each level of the tree, with the reason for each value; nothing while the node does not control I/O.

The values come from `rules.blockio`. A limit is explained by the annotation that sets it, or by the ceiling of the
namespace; on v1, where each container has a part, by the division.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from plimsoll.rules.blockio.entries import LIMIT_KEYS, TARGET, Entries, amount_formula
from plimsoll.rules.blockio.files import (
    IO_LATENCY_FILE,
    IO_MAX_FILE,
    THROTTLE_V1,
    class_files,
    container_files,
    containers_at_once,
    kubepods_files,
    lines_of,
    pod_files,
    smallest_targets,
)
from plimsoll.rules.blockio.policy import (
    DEFAULT_WEIGHT,
    IO_LATENCY,
    IO_MAX,
    NO_IO,
    SYSTEMD_BFQ_SCALE,
    IoPolicy,
    PodIo,
    annotation_field,
    asked_entries,
    ceiling_field,
    io_weight,
)
from plimsoll.rules.cgroups.reasons import Reason, human_bytes
from plimsoll.rules.model.objects import Pod, QoSClass
from plimsoll.rules.node.node_config import NodeConfig

Explained = Sequence[tuple[str, str, str, Reason]]  # file, value, for people, reason
_WORDS = {"rbps": "read", "wbps": "write", "riops": "read", "wiops": "write"}
_BUFFERED = "cgroup v1 counts direct I/O and reads only: buffered writes are not limited"
_NO_REASONS: Mapping[str, Reason] = {}


def kubepods_io(setting: NodeConfig, pods: Iterable[PodIo], *, reasons: bool) -> Explained:
    if (policy := setting.policy.io) is None:
        return ()
    pods = list(pods)
    why = _group_reasons(policy, "kubepods", pods) if reasons else _NO_REASONS
    return _explained(kubepods_files(policy, pods), why)


def class_io(setting: NodeConfig, qos: QoSClass, pods: Iterable[PodIo], *, reasons: bool) -> Explained:
    if (policy := setting.policy.io) is None:
        return ()
    pods = list(pods)
    why = _group_reasons(policy, qos, pods) if reasons else _NO_REASONS
    return _explained(class_files(policy, qos, pods), why)


def pod_io_files(setting: NodeConfig, pod: Pod, qos: QoSClass, io: PodIo | None, *, reasons: bool) -> Explained:
    if (policy := setting.policy.io) is None:
        return ()
    files = pod_files(policy, qos, io or NO_IO, setting.policy.cgroup_version)
    return _explained(files, _pod_reasons(policy, pod, qos) if reasons else _NO_REASONS)


def container_io(setting: NodeConfig, pod: Pod, io: PodIo | None, *, reasons: bool) -> Explained:
    if (policy := setting.policy.io) is None or setting.policy.cgroup_version == 2:
        return ()
    files = container_files(policy, io or NO_IO, pod.spec, setting.policy.cgroup_version)
    return _explained(files, _part_reasons(policy, pod, io or NO_IO) if reasons else _NO_REASONS)


def _explained(files: Mapping[str, str], reasons: Mapping[str, Reason]) -> Explained:
    return [(file, text, _human(file, text), reasons.get(file, Reason())) for file, text in files.items()]


def _human(file: str, text: str) -> str:
    if file == IO_MAX_FILE:
        return "; ".join(filter(None, (_limits(values) for values in lines_of(file, text).values())))
    if file == IO_LATENCY_FILE:
        return ", ".join(f"{int(values[TARGET]) / 1000:g} ms" for values in lines_of(file, text).values())
    for key, name in THROTTLE_V1.items():
        if file == name:
            return ", ".join(_amount(key, int(values[""])) for values in lines_of(file, text).values())
    return ""


def _limits(values: Mapping[str, str]) -> str:
    return ", ".join(f"{_WORDS[key]} {_amount(key, int(values[key]))}" for key in LIMIT_KEYS if key in values)


def _amount(key: str, amount: int) -> str:
    return f"{human_bytes(amount)}/s" if key.endswith("bps") else f"{amount} operations/s"


def _weight_reasons(policy: IoPolicy, name: str, weight: int, note: str = "") -> dict[str, Reason]:
    source = f"ioControl.weights.{name}"
    reasons = dict.fromkeys(policy.weight_files, Reason("", source, note))
    if policy.bfq_by_systemd and weight > DEFAULT_WEIGHT:
        formula = f"{DEFAULT_WEIGHT} + ({weight} − {DEFAULT_WEIGHT}) · {SYSTEMD_BFQ_SCALE} = {io_weight(weight)}"
        reasons["io.weight"] = Reason(formula, source, "systemd converts it to io.bfq.weight")
    return reasons


def _group_reasons(policy: IoPolicy, name: QoSClass | Literal["kubepods"], pods: Sequence[PodIo]) -> dict[str, Reason]:
    beside = "beside system.slice, which has 100" if name == "kubepods" else ""
    weight = policy.weights.kubepods if name == "kubepods" else policy.weights.of(name)
    reasons = _weight_reasons(policy, name, weight, beside)
    steps = []
    for device, smallest in smallest_targets(pods).items():
        targets = [io.latency[device] for io in pods if device in io.latency]
        if len(targets) > 1:
            steps.append(f"{device}: min({', '.join(map(str, targets))}) = {smallest}")
    note = "io.latency protects only among cgroups with the same parent"
    reasons[IO_LATENCY_FILE] = Reason("; ".join(steps), "the smallest target of its pods", note)
    return reasons


def _pod_reasons(policy: IoPolicy, pod: Pod, qos: QoSClass) -> dict[str, Reason]:
    reasons = _weight_reasons(policy, qos, policy.weights.of(qos))
    reasons[IO_MAX_FILE] = _limits_reason(policy, pod, LIMIT_KEYS)
    formula = _steps(asked_entries(pod, IO_LATENCY), (TARGET,))
    reasons[IO_LATENCY_FILE] = Reason(formula, annotation_field(IO_LATENCY))
    return reasons


def _part_reasons(policy: IoPolicy, pod: Pod, io: PodIo) -> dict[str, Reason]:
    reasons, count = {}, containers_at_once(pod.spec)
    for key, file in THROTTLE_V1.items():
        whole = _limits_reason(policy, pod, (key,))
        steps = [whole.formula] if whole.formula else []
        if count > 1:
            steps += [
                f"{device}: max(⌊{values[key]} / {count}⌋, 1) = {max(values[key] // count, 1)}"
                for device, values in io.limits.items()
                if key in values
            ]
        reasons[file] = Reason("; ".join(steps), whole.source, _BUFFERED if key.startswith("w") else "")
    return reasons


def _limits_reason(policy: IoPolicy, pod: Pod, keys: Sequence[str]) -> Reason:
    key, ceiling = policy.ceiling(pod.metadata.namespace or "default")
    asked = asked_entries(pod, IO_MAX)
    named = {name for entry in asked for name in entry.values}
    sources = [annotation_field(IO_MAX)] if named.intersection(keys) else []
    bounded = {name for entry in ceiling.limits for name in entry.values if name in keys}
    rest = tuple(name for name in keys if name in bounded and name not in named)
    if rest or (bounded and not sources):
        sources.append(ceiling_field(key, "max"))
    steps = [_steps(asked, keys), _steps(ceiling.limits, rest)]
    return Reason("; ".join(filter(None, steps)), ", ".join(sources))


def _steps(entries: Entries, keys: Sequence[str]) -> str:
    found = []
    for entry in entries:
        for name in keys:
            amount = entry.values.get(name)
            if amount is not None and (step := amount_formula(name, entry.texts[name], amount)):
                found.append(f"{entry.device} {step}" if entry.device else step)
    return "; ".join(found)
