"""The CPU manager's state file in the kubelet's format: the same fields and the same checksum.

The checksum is FNV-1a over Go's text of the structure with checksum zero. So a kubelet can read Plimsoll's file, and
Plimsoll a kubelet's.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.codec.kernel.go_checksum import CorruptCheckpointError, fnv1a
from plimsoll.rules.cpuset import CPU_BOUND, cpu_numbers, cpu_text

Entries = Mapping[str, Mapping[str, frozenset[int]]]


NOT_V1 = "json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries of type string"


class CpuState(msgspec.Struct, frozen=True):
    """`shared`: the CPUs that no container owns exclusively."""

    policy: str
    shared: frozenset[int]
    owned: Entries


class _File(msgspec.Struct, frozen=True, omit_defaults=True):
    policy_name: str = msgspec.field(name="policyName")
    default: str = msgspec.field(name="defaultCpuSet")
    checksum: int
    entries: dict[str, dict[str, str]] = {}


def checksum(
    policy: str, default: str, entries: Mapping[str, Mapping[str, str]], name: str = "CPUManagerCheckpoint"
) -> int:
    inner = " ".join(
        f"{uid}:map[{' '.join(f'{name}:{containers[name]}' for name in sorted(containers))}]"
        for uid, containers in sorted(entries.items())
    )
    text = (
        f"(*state.{name}){{PolicyName:(string){policy} DefaultCPUSet:(string){default} "
        f"Entries:(map[string]map[string]string)map[{inner}] Checksum:(checksum.Checksum)0}}"
    )
    return fnv1a(text)


def cpu_state_json(state: CpuState) -> bytes:
    entries = {
        uid: {name: cpu_text(cpus) for name, cpus in containers.items()} for uid, containers in state.owned.items()
    }
    default = cpu_text(state.shared)
    return msgspec.json.encode(
        {
            "policyName": state.policy,
            "defaultCpuSet": default,
            **({"entries": entries} if entries else {}),
            "checksum": checksum(state.policy, default, entries),
        }
    )


def cpu_state_from_json(data: bytes, *, tries_v1: bool = False) -> CpuState:
    """`tries_v1`: the error of a damaged file is the one that a kubelet has with the oldest format (CM-28)."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise CorruptCheckpointError(str(error)) from None
    texts = ("CPUManagerCheckpoint", "CPUManagerCheckpointV2")  # of several releases (CM-27)
    sums = {checksum(file.policy_name, file.default, file.entries, name) for name in texts}
    if file.checksum not in {0, *sums}:
        raise CorruptCheckpointError(NOT_V1 if tries_v1 and file.entries else "checkpoint is corrupted")
    return CpuState(
        file.policy_name,
        _cpus(file.default, f'default cpu set "{file.default}"'),
        {
            uid: {
                name: _cpus(text, f'cpuset "{text}" for container "{name}" in pod "{uid}"')
                for name, text in each.items()
            }
            for uid, each in file.entries.items()
        },
    )


def _cpus(text: str, what: str) -> frozenset[int]:
    numbers = cpu_numbers(text)
    if numbers is None:
        raise CorruptCheckpointError(f"could not parse {what}: {_problem(text)}")
    return frozenset(numbers)


def _problem(text: str) -> str:
    """In the words of cpuset.Parse of k8s.io/utils, for a text that is no list."""
    part = next(part for part in text.split(",") if cpu_numbers(part or "-") is None)
    ends = part.split("-", 1)
    wrong = next((end for end in ends if not (end.isascii() and end.isdigit())), None)
    if wrong is not None:
        return f'strconv.Atoi: parsing "{wrong}": invalid syntax'
    if int(ends[0]) > int(ends[-1]):
        return f'invalid range "{part}" ({ends[0]} > {ends[-1]})'
    return f'"{part}" names CPUs above {CPU_BOUND - 1}'
