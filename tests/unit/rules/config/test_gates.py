"""Feature gates by release: as the binaries list them, and what a release refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.errors import InvalidConfigsError
from plimsoll.rules.config.gates import GATES, GateStage, gate_in, gates_in, refusal
from plimsoll.rules.config.parse import default_config, reading
from plimsoll.rules.profile import PROFILE_DOCUMENTS, RELEASES, profile_named

# How many gates the binaries of a release list, AllAlpha and AllBeta included.
COUNTS = {"1.27": 146, "1.28": 151, "1.29": 159, "1.30": 166, "1.31": 164, "1.32": 176, "1.33": 187, "1.34": 205}
COUNTS |= {"1.35": 215, "1.37": 251}

TABLE = Path(__file__).with_name("gates_by_release.txt")  # a: alpha, b: beta, g: GA, d: deprecated; +: on, !: locked
STAGES = {"a": "alpha", "b": "beta", "g": "GA", "d": "deprecated"}


def table() -> list[tuple[str, str, str]]:
    """(gate, release, its cell)."""
    (_, *releases), *rows = (line.split() for line in TABLE.read_text().splitlines())
    return [(name, release, cell) for name, *cells in rows for release, cell in zip(releases, cells, strict=True)]


def test_the_table_of_gates() -> None:
    rows = table()
    assert len(rows) == 57 * len(RELEASES)
    for name, release, cell in rows:
        found = gate_in(name, release)
        if cell == "-":
            assert found is None, (name, release)
        else:
            assert found is not None, (name, release)
            assert (found.stage, found.default, found.locked) == (STAGES[cell[0]], "+" in cell, "!" in cell), (
                name,
                release,
            )


@pytest.mark.parametrize(("release", "count"), COUNTS.items())
def test_every_gate_of_a_release(release: str, count: int) -> None:
    assert len(gates_in(release)) == count


def test_defaults_of_a_profile_are_the_release_s() -> None:
    for release in RELEASES:
        config, known = default_config(profile_named(release)), gates_in(release)
        for gate in GATES:
            if gate.name in known:
                assert config.gate(gate.name) == known[gate.name].default, (release, gate.name)
    assert default_config(profile_named("1.37")).gate("SidecarContainers")  # removed after GA: always on
    assert not default_config(profile_named("1.27")).gate("SidecarContainers")
    assert not default_config(profile_named("1.31")).gate("PodLevelResources")


REFUSALS = [
    ("1.34", "MemoryQoS=true", ""),
    ("1.34", "RotateKubeletServerCertificate=true", ""),
    ("1.34", "NodeSwap=true", ""),
    ("1.34", "NodeSwap=false", "cannot set feature gate NodeSwap to false, feature is locked to true"),
    ("1.31", "PodLevelResources=true", "unrecognized feature gate: PodLevelResources"),
    ("1.37", "SidecarContainers=true", "unrecognized feature gate: SidecarContainers"),
    ("1.37", "Foo=false", "unrecognized feature gate: Foo"),
]


@pytest.mark.parametrize(("release", "setting", "reason"), REFUSALS)
def test_a_gate_is_refused_in_the_release_s_words(release: str, setting: str, reason: str) -> None:
    name, _, value = setting.partition("=")
    assert refusal(name, value == "true", release) == reason
    if not reason:
        assert reading(None, profile_named(release), {"featureGates": setting})
        return
    with pytest.raises(InvalidConfigsError) as raised:
        reading(None, profile_named(release), {"featureGates": setting})
    assert [(error.path, error.reason) for error in raised.value.errors] == [(f"featureGates[{name}]", reason)]


def test_the_documents_profile_refuses_no_gate() -> None:
    got = reading(None, PROFILE_DOCUMENTS, {"featureGates": "Foo=true,NodeSwap=false"})
    assert got.notes == ["feature gate Foo changes nothing here"]
    assert not got.config.gate("NodeSwap")


def test_differences_between_releases() -> None:
    old, new = gates_in("1.36"), gates_in("1.37")
    assert (old["MemoryQoS"], new["MemoryQoS"]) == (GateStage("alpha", False, False), GateStage("beta", True, False))
    assert (old["SidecarContainers"], new.get("SidecarContainers")) == (GateStage("GA", True, True), None)
    assert old["QOSReserved"] == new["QOSReserved"]


@pytest.mark.parametrize(
    ("release", "default", "inodes"),
    [("1.27", None, None), ("1.29", None, None), ("1.30", "5%", None), ("1.33", "5%", "5%"), ("1.37", "5%", "5%")],
)
def test_default_thresholds_of_a_release(release: str, default: str | None, inodes: str | None) -> None:
    """imagefs.inodesFree is a default since 1.30; since 1.33 a file's thresholds can be merged with the defaults."""
    profile = profile_named(release)
    assert default_config(profile).eviction_hard.get("imagefs.inodesFree") == default
    merged = {"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": True}
    found = reading(merged, profile).config.eviction_hard
    assert (found["memory.available"], found.get("imagefs.inodesFree")) == ("1Gi", inodes)


def test_what_a_gate_does_not_do_is_said() -> None:
    got = reading(None, profile_named("1.37"), {"featureGates": "InPlacePodVerticalScalingMemoryBackedVolumes=true"})
    assert got.notes == [
        "feature gate InPlacePodVerticalScalingMemoryBackedVolumes: the API server and the node decide by it, but the "
        "agent does not change the size of the volume"
    ]
