"""Options of the CPU and topology managers, by release, with the kubelet's texts (CM-7, CM-8, TM-2)."""

from __future__ import annotations

import pytest

from plimsoll.rules.config.manager_options import (
    CpuOptions,
    TopologyOptions,
    cpu_option_errors,
    cpu_options,
    topology_option_errors,
    topology_options,
)
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import profile_named

ALPHA = 'new static policy error: CPU Manager Policy Alpha-level Options not enabled, but option "{}" provided'
UNKNOWN = 'new static policy error: unknown CPU Manager Policy option: "{}"'
BY_RELEASE = [
    ("documents", "align-by-socket", ""),
    ("1.27", "full-pcpus-only", ""),
    ("1.27", "distribute-cpus-across-numa", ALPHA),
    ("1.32", "distribute-cpus-across-numa", ALPHA),
    ("1.33", "distribute-cpus-across-numa", ""),
    ("1.36", "align-by-socket", ALPHA),
    ("1.30", "distribute-cpus-across-cores", UNKNOWN),
    ("1.31", "distribute-cpus-across-cores", ALPHA),
    ("1.31", "strict-cpu-reservation", UNKNOWN),
    ("1.32", "strict-cpu-reservation", ALPHA),
    ("1.33", "strict-cpu-reservation", ""),
    ("1.33", "prefer-align-cpus-by-uncorecache", ALPHA),
    ("1.34", "prefer-align-cpus-by-uncorecache", ""),
    ("1.36", "no-such", UNKNOWN),
]


@pytest.mark.parametrize(("release", "name", "text"), BY_RELEASE)
def test_by_release(release: str, name: str, text: str) -> None:
    profile = profile_named(release)
    config = default_config(profile)
    found = [error.reason for error in cpu_option_errors({name: "true"}, config.gate, profile)]
    assert found == ([text.format(name)] if text else [])


PAIRS = [
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_pairs(first: str, second: str) -> None:
    profile = profile_named("documents")
    (error,) = cpu_option_errors({second: "1", first: "t"}, lambda _: True, profile)
    sentence = f"static policy options {first} and {second} can not be used at the same time"
    assert error.reason == f"new static policy error: {sentence}"
    assert list(cpu_option_errors({second: "0", first: "t"}, lambda _: True, profile)) == []


def test_values() -> None:
    assert cpu_options({"full-pcpus-only": "True", "align-by-socket": "F"}) == CpuOptions(full_pcpus_only=True)
    found = topology_options({"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "16"})
    assert found == TopologyOptions(prefer_closest=True, max_nodes=16)


TOPOLOGY = [
    ("1.36", "max-allowable-numa-nodes", "7", 'the minimum value of "max-allowable-numa-nodes" should not be less than 8'),
    ("1.36", "max-allowable-numa-nodes", "x", 'unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: parsing "x": invalid syntax'),
    ("1.36", "max-allowable-numa-nodes", "-+9", 'unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: parsing "-+9": invalid syntax'),
    ("1.36", "max-allowable-numa-nodes", "9999999999999999999", 'unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: parsing "9999999999999999999": value out of range'),
    ("1.36", "max-allowable-numa-nodes", "12", ""),
    ("1.36", "max-allowable-numa-nodes", "+12", ""),
    ("1.30", "max-allowable-numa-nodes", "12", 'unknown Topology Manager Policy option: "max-allowable-numa-nodes"'),
    ("1.27", "prefer-closest-numa-nodes", "true", 'Topology Manager Policy Alpha-level Options not enabled, but option "prefer-closest-numa-nodes" provided'),
    ("1.28", "prefer-closest-numa-nodes", "true", ""),
    ("1.36", "prefer-closest-numa-nodes", "yes", 'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "yes": invalid syntax'),
    ("1.36", "nearest", "true", 'unknown Topology Manager Policy option: "nearest"'),
]  # fmt: skip


@pytest.mark.parametrize(("release", "name", "value", "text"), TOPOLOGY)
def test_topology_options(release: str, name: str, value: str, text: str) -> None:
    profile = profile_named(release)
    config = default_config(profile)
    found = [error.reason for error in topology_option_errors({name: value}, config.gate, profile)]
    assert found == ([text] if text else [])


@pytest.mark.parametrize(
    ("release", "text"),
    [("1.32", "Topology Manager Policy Beta-level Options"), ("1.33", "topology manager policy beta-level options")],
)
def test_a_gate_that_is_off(release: str, text: str) -> None:
    (error,) = topology_option_errors({"max-allowable-numa-nodes": "9"}, lambda _: False, profile_named(release))
    assert error.reason == f'{text} not enabled, but option "max-allowable-numa-nodes" provided'
