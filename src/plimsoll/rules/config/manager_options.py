"""Options of the CPU manager and topology manager policies, by release: which exist, and how they are parsed.

An option of alpha or beta quality needs a feature gate (CM-7, TM-2). Profile `documents` knows all options and needs no
gate. The texts are the kubelet's.

Kubernetes: pkg/kubelet/cm/cpumanager/policy_options.go, pkg/kubelet/cm/topologymanager/policy_options.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.profile import DOCUMENTS, Profile, minor

TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
NEVER, STABLE = 999, "Stable"
CPU_OPTIONS_PATH, TOPOLOGY_OPTIONS_PATH = "cpuManagerPolicyOptions", "topologyManagerPolicyOptions"
CPU_OPTIONS_GATE, TOPOLOGY_OPTIONS_GATE = "CPUManagerPolicyOptions", "TopologyManagerPolicyOptions"
MAX_ALLOWABLE = "max-allowable-numa-nodes"
PREFER_CLOSEST = "prefer-closest-numa-nodes"
ALIGN_BY_SOCKET, SINGLE_NUMA_NODE = "align-by-socket", "single-numa-node"
DEFAULT_MAX_NODES = 8
STATIC_ERROR, NONE_ERROR = "new static policy error: ", "new none policy error: "
INTEGER, INT64_LIMIT = re.compile(r"[+-]?[0-9]+"), 1 << 63


class Maturity(msgspec.Struct, frozen=True):
    """Minor releases since which the option has a quality."""

    alpha: int = NEVER
    beta: int = NEVER
    stable: int = NEVER

    def in_release(self, number: int) -> str:
        """Alpha, Beta, Stable, or nothing if the release does not have the option."""
        if number >= self.stable:
            return STABLE
        if number >= self.beta:
            return "Beta"
        return "Alpha" if number >= self.alpha else ""


CPU_OPTIONS = {
    "full-pcpus-only": Maturity(22, 23, 33),
    "distribute-cpus-across-numa": Maturity(23, 33),
    ALIGN_BY_SOCKET: Maturity(25),
    "distribute-cpus-across-cores": Maturity(31),
    "strict-cpu-reservation": Maturity(32, 33, 35),
    "prefer-align-cpus-by-uncorecache": Maturity(32, 34, 36),
}
TOPOLOGY_OPTIONS = {
    PREFER_CLOSEST: Maturity(26, 28, 32),
    MAX_ALLOWABLE: Maturity(beta=31, stable=35),
}
EXCLUSIVE_PAIRS = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)


class CpuOptions(msgspec.Struct, frozen=True):
    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


class TopologyOptions(msgspec.Struct, frozen=True):
    prefer_closest: bool = False
    max_nodes: int = DEFAULT_MAX_NODES


NO_CPU_OPTIONS, NO_TOPOLOGY_OPTIONS = CpuOptions(), TopologyOptions()


def cpu_options(options: Mapping[str, str]) -> CpuOptions:
    """Of a configuration without errors."""
    return CpuOptions(**{name.replace("-", "_"): value in TRUE for name, value in options.items()})


def topology_options(options: Mapping[str, str]) -> TopologyOptions:
    """Of a configuration without errors."""
    return TopologyOptions(options.get(PREFER_CLOSEST) in TRUE, int(options.get(MAX_ALLOWABLE, DEFAULT_MAX_NODES)))


def cpu_option_errors(
    options: Mapping[str, str], gate: Callable[[str], bool], profile: Profile, topology_policy: str = "none"
) -> Iterator[InvalidConfigError]:
    """Of the static policy. `gate`: whether a feature gate is on. Texts of CM-7 and CM-8."""
    for name, value in options.items():
        path = f"{CPU_OPTIONS_PATH}[{name}]"
        if unavailable := _unavailable("CPU", CPU_OPTIONS, name, gate, profile):
            yield _static_error(path, unavailable)
        elif value not in TRUE | FALSE:
            yield _static_error(path, _not_bool(name, value))
    chosen = {name for name, value in options.items() if value in TRUE}
    for first, second in EXCLUSIVE_PAIRS:
        if first in chosen and second in chosen:
            sentence = f"static policy options {first} and {second} can not be used at the same time"
            yield _static_error(CPU_OPTIONS_PATH, sentence)
    if ALIGN_BY_SOCKET in chosen and topology_policy == SINGLE_NUMA_NODE:
        other = f"Topolgy manager {SINGLE_NUMA_NODE} policy"
        sentence = f"{other} is incompatible with CPUManager {ALIGN_BY_SOCKET} policy option"
        yield _static_error(f"{CPU_OPTIONS_PATH}[{ALIGN_BY_SOCKET}]", sentence)


def _static_error(path: str, sentence: str) -> InvalidConfigError:
    return InvalidConfigError(path, f"{STATIC_ERROR}{sentence}")


def no_reservation() -> InvalidConfigError:
    """The static policy without reserved CPUs (CM-4)."""
    return InvalidConfigError(
        "cpuManagerPolicy", "[cpumanager] unable to determine reserved CPU resources for static policy"
    )


def options_need_gates(manager: str, options: Mapping[str, str], path: str, *gates: str) -> InvalidConfigError:
    """The kubelet's error about options of a manager while the gate for them is off."""
    listed = ", ".join(f'"{gate}"' for gate in gates)
    return InvalidConfigError(
        path, f"{manager} policy options {_go_map(options)} require feature gates {listed} enabled"
    )


def _go_map(options: Mapping[str, str]) -> str:
    return f"map[{' '.join(f'{name}:{value}' for name, value in sorted(options.items()))}]"


def none_option_error(options: Mapping[str, str]) -> InvalidConfigError | None:
    """The policy `none` has no options (CM-3)."""
    if not options:
        return None
    sentence = f"{NONE_ERROR}None policy: received unsupported options={_go_map(options)}"
    return InvalidConfigError(CPU_OPTIONS_PATH, sentence)


def topology_option_errors(
    options: Mapping[str, str], gate: Callable[[str], bool], profile: Profile
) -> Iterator[InvalidConfigError]:
    for name, value in options.items():
        path = f"{TOPOLOGY_OPTIONS_PATH}[{name}]"
        if unavailable := _unavailable("Topology", TOPOLOGY_OPTIONS, name, gate, profile):
            yield InvalidConfigError(path, unavailable)
        elif name == PREFER_CLOSEST:
            if value not in TRUE | FALSE:
                yield InvalidConfigError(path, _not_bool(name, value))
        elif why := _not_integer(value):
            sentence = f'unable to convert policy option to integer "{name}": strconv.Atoi: parsing "{value}": {why}'
            yield InvalidConfigError(path, sentence)
        elif int(value) < DEFAULT_MAX_NODES:
            sentence = f'the minimum value of "{name}" should not be less than {DEFAULT_MAX_NODES}'
            yield InvalidConfigError(path, sentence)


def _unavailable(
    manager: str, table: Mapping[str, Maturity], name: str, gate: Callable[[str], bool], profile: Profile
) -> str:
    """Why an option of a manager cannot be used in this release; empty if it can."""
    maturity = _maturity(table, name, profile)
    if not maturity:
        return f'unknown {manager} Manager Policy option: "{name}"'
    if maturity == STABLE or gate(f"{manager}ManagerPolicy{maturity}Options"):
        return ""
    options = f"{manager} Manager Policy {maturity}-level Options"
    if manager == "Topology" and not profile.topology_options_in_capitals:
        options = options.lower()
    return f'{options} not enabled, but option "{name}" provided'


def _maturity(table: Mapping[str, Maturity], name: str, profile: Profile) -> str:
    if name not in table:
        return ""
    return STABLE if profile.name == DOCUMENTS else table[name].in_release(minor(profile.release))


def _not_integer(value: str) -> str:
    """Why Go cannot parse the text as an int; empty if it can."""
    if not INTEGER.fullmatch(value):
        return "invalid syntax"
    return "" if -INT64_LIMIT <= int(value) < INT64_LIMIT else "value out of range"


def _not_bool(name: str, value: str) -> str:
    return f'bad value for option "{name}": strconv.ParseBool: parsing "{value}": invalid syntax'
