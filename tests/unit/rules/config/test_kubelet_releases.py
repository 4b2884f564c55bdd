"""The kubelet configuration, by release: settings that a kubelet does not know yet, and values that it does not accept."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.config.kubelet import host_errors
from plimsoll.rules.config.parse import config_document, reading
from plimsoll.rules.config.table import ROWS
from plimsoll.rules.profile import DOCUMENTS, profile_named
from tests.unit.rules.config.kubelet_documents import problems, read

# Setting, the release before it, the release that it came with, and a file whose effect is a changed attribute.
NEW_SETTINGS = [
    ("imageMaximumGCAge", "1.28", "1.29", "{imageMaximumGCAge: 9h}", "image_max_age_s"),
    ("failCgroupV1", "1.30", "1.31", "{failCgroupV1: true}", "fail_cgroup_v1"),
    ("singleProcessOOMKill", "1.31", "1.32", "{singleProcessOOMKill: true}", "single_process_oom_kill"),
    (
        "mergeDefaultEvictionSettings",
        "1.32",
        "1.33",
        "{evictionHard: {}, mergeDefaultEvictionSettings: true}",
        "eviction_hard",
    ),
    (
        "memoryReservationPolicy",
        "1.35",
        "1.36",
        "{memoryReservationPolicy: TieredReservation, featureGates: {MemoryQoS: true}}",
        "memory_reservation_policy",
    ),
]


@pytest.mark.parametrize(
    ("name", "before", "since", "text", "attribute"), NEW_SETTINGS, ids=[r[0] for r in NEW_SETTINGS]
)
def test_a_kubelet_ignores_a_setting_that_it_does_not_know_yet(
    name: str, before: str, since: str, text: str, attribute: str
) -> None:
    """It reads the file once more without the check for unknown names."""
    bare = text.replace("mergeDefaultEvictionSettings: true", "")  # what is compared with
    unset = {release: read(bare if bare != text else "{}", profile_named(release)) for release in (before, since)}
    old, new = read(text, profile_named(before)), read(text, profile_named(since))
    assert getattr(old.config, attribute) == getattr(unset[before].config, attribute)
    assert getattr(new.config, attribute) != getattr(unset[since].config, attribute)
    assert [note for note in old.notes if name in note] == [
        f"{name} has no effect: the kubelet of {before} does not know it yet ({since}) and ignores it"
    ]
    assert not [note for note in new.notes if name in note]
    assert not [note for note in read(text, profile_named(DOCUMENTS)).notes if name in note]


def test_a_node_reports_only_settings_of_its_release() -> None:
    profile = profile_named("1.31")
    document = config_document(reading(None, profile).config, profile)
    late = {row.name.partition(".")[0] for row in ROWS if row.since > "1.31"}
    assert not late & document.keys() and "failCgroupV1" in document


@pytest.mark.parametrize("owner", ["system", "kube"])
def test_reserved_cgroups_with_cpu_alone_are_possible_since_1_32(owner: str) -> None:
    """01 §10.4."""
    text = f"{{enforceNodeAllocatable: [pods, {owner}-reserved-compressible], {owner}ReservedCgroup: /r}}"
    reason = f'"{owner}-reserved-compressible" is not one of pods, system-reserved, kube-reserved, none'
    assert problems(text, profile_named("1.31")) == {"enforceNodeAllocatable": reason}
    read(text, profile_named("1.32"))
    read(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{evictionHard: {containerfs.available: 10%}}", "evictionHard[containerfs.available]"),
        ("{evictionMinimumReclaim: {containerfs.inodesFree: 1%}}", "evictionMinimumReclaim[containerfs.inodesFree]"),
        ("{evictionSoftGracePeriod: {containerfs.available: 1m}}", "evictionSoftGracePeriod[containerfs.available]"),
    ],
)
def test_thresholds_of_containerfs_are_possible_since_1_29(text: str, path: str) -> None:
    """04 §1."""
    reason = f"unsupported eviction signal {path.partition('[')[2][:-1]}"
    assert problems(text, profile_named("1.28")) == {path: reason}
    read(text, profile_named("1.29"))
    read(text)


@pytest.mark.parametrize(("release", "is_refused"), [("1.27", False), ("1.29", False), ("1.30", True), ("1.37", True)])
def test_limited_swap_on_v1_is_refused_since_1_30(release: str, is_refused: bool) -> None:
    """02 §5: 1.27 limits memory and swap together there; 1.28 and 1.29 give no swap."""
    profile = profile_named(release)
    gates: Any = {"featureGates": "NodeSwap=true"} if release < "1.30" else {}
    config = read("{memorySwap: {swapBehavior: LimitedSwap}}", profile, **gates).config
    found = [error.path for error in host_errors(config, profile, 1) if error.path != "failCgroupV1"]
    assert found == (["memorySwap.swapBehavior"] if is_refused else [])


def test_options_of_managers_while_the_gate_for_them_is_off() -> None:
    """07 §8: in 1.27 it is off for the topology manager. The kubelet looks at no option before this."""
    cpus = "{cpuManagerPolicyOptions: {full-pcpus-only: 'true', x: y}, featureGates: {CPUManagerPolicyOptions: false}}"
    needed = 'map[full-pcpus-only:true x:y] require feature gates "CPUManager", "CPUManagerPolicyOptions" enabled'
    assert problems(cpus, profile_named("1.32")) == {"cpuManagerPolicyOptions": f"CPU Manager policy options {needed}"}
    locked = problems(cpus, profile_named("1.33"))
    assert "featureGates[CPUManagerPolicyOptions]" in locked
    closest = "{topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}}"
    needed = 'map[prefer-closest-numa-nodes:true] require feature gates "TopologyManagerPolicyOptions" enabled'
    assert problems(closest, profile_named("1.27")) == {
        "topologyManagerPolicyOptions": f"topology manager policy options {needed}"
    }
    read(closest, profile_named("1.28"))


@pytest.mark.parametrize(("release", "is_static"), [("1.27", False), ("1.31", False)])
def test_the_memory_manager_can_be_off_up_to_1_31(release: str, is_static: bool) -> None:
    text = "{{memoryManagerPolicy: Static, featureGates: {{MemoryManager: {}}}}}"
    assert read(text.format("false"), profile_named(release)).config.static_memory is is_static
    assert read(text.format("true"), profile_named(release)).config.static_memory
    assert read("{memoryManagerPolicy: Static}", profile_named("1.37")).config.static_memory


def test_a_period_of_restarts_needs_its_gate() -> None:
    """04 §11: off in 1.32 to 1.34, where the kubelet does not start with it."""
    text = "{crashLoopBackOff: {maxContainerRestartPeriod: 9s}}"
    sentence = (
        "FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set"
    )
    for release in ("1.32", "1.34"):
        assert problems(text, profile_named(release)) == {"crashLoopBackOff.maxContainerRestartPeriod": sentence}
        on = read(text, profile_named(release), featureGates="KubeletCrashLoopBackOffMax=true")
        assert on.config.crash_loop_max_period_s == 9
    assert read(text, profile_named("1.35")).config.crash_loop_max_period_s == 9
    assert read(text, profile_named("1.31")).config.crash_loop_max_period_s == 300


def test_without_the_hierarchy_nothing_is_enforced() -> None:
    """01 §10.4: [none] since 1.31, before only an empty list."""
    for values, is_refused in (("[none]", True), ("[]", False)):
        text = f"{{cgroupsPerQOS: false, enforceNodeAllocatable: {values}}}"
        if is_refused:
            found = problems(text, profile_named("1.30"))
            assert found == {"enforceNodeAllocatable": "must be empty without cgroupsPerQOS"}
        else:
            read(text, profile_named("1.30"))
        read(text, profile_named("1.31"))
        read(text)
