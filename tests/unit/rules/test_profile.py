"""The table of profiles: one row per behaviour, one column per release, and the profile of a version."""

from __future__ import annotations

import itertools

import pytest

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.profile import (
    DEFAULT_PROFILE,
    DOCUMENTS,
    PROFILE_NAMES,
    RELEASES,
    Profile,
    minor,
    profile_named,
    profile_of,
    rows,
)
from plimsoll.rules.profile_differences import differences
from plimsoll.version import git_version

# Behaviour, the first release with it, and its values before and since: release notes and source of each release.
SWITCHES = [
    ("memory_oom_group", "1.28", False, True),
    ("init_started_reported", "1.28", False, True),
    ("class_from_status", "1.29", False, True),
    ("ready_to_start_condition", "1.29", False, True),
    ("host_ips_reported", "1.29", False, True),
    ("swap_rule", "1.30", "unlimited", "limited"),
    ("pull_event_says_size", "1.30", False, True),
    ("driver_from_cri", "1.31", False, True),
    ("critical_pods_swap", "1.31", True, False),
    ("volume_mounts_reported", "1.31", False, True),
    ("resize_by_plain_patch", "1.32", True, False),
    ("sidecar_oom_rule", "1.32", False, True),
    ("compressible_enforcement", "1.32", False, True),
    ("eviction_names_init_containers", "1.32", False, True),
    ("eviction_grace", "1.32", "maximum", "least"),
    ("node_grace_s", "1.32", 40, 50),
    ("limit_range_on_resize", "1.32", False, True),
    ("resize_status_field", "1.33", True, False),
    ("resize_conditions", "1.33", False, True),
    ("swap_prevents_resize", "1.33", False, True),
    ("pod_level_unmanaged", "1.34", False, True),
    ("too_large_for_absolute", "1.34", False, True),
    ("memory_limit_may_shrink", "1.34", False, True),
    ("ranking_counts_pod_level", "1.34", False, True),
    ("taint_text_names_taint", "1.34", True, False),
    ("pod_observed_generation", "1.34", False, True),
    ("start_event_names_container", "1.35", True, False),
    ("nominated_node_cleared", "1.35", False, True),
    ("too_large_refused_by_api", "1.36", False, True),
    ("memory_min_from_requests", "1.36", "always", "no"),
    ("sandbox_updated_first", "1.36", False, True),
    ("balanced_by_difference", "1.36", False, True),
    # the list of 1.37
    ("memory_high_without_request", "1.37", False, True),
    ("memory_high_of_pod", "1.37", False, True),
    ("memory_high_reset", "1.37", False, True),
    ("memory_low_of_kubepods", "1.37", False, True),
    ("class_per_container", "1.37", False, True),
    ("resize_footprint", "1.37", "containers", "pod"),
    ("declared_limits_cumulative", "1.37", True, False),
    ("pod_level_oom_share_floored", "1.37", False, True),
    ("sidecar_storage_limits", "1.37", False, True),
    ("claims_prevent_resize", "1.37", True, False),
    ("resize_checks", "1.37", "with init containers", "with volumes"),
    ("preemption_text", "1.37", "no new claims to deallocate, ", ""),
]


@pytest.mark.parametrize(("row", "release", "before", "since"), SWITCHES, ids=[f"{r} {n}" for n, r, *_ in SWITCHES])
def test_switches(row: str, release: str, before: object, since: object) -> None:
    previous = RELEASES[RELEASES.index(release) - 1]
    assert getattr(profile_named(previous), row) == before
    assert getattr(profile_named(release), row) == since


def test_every_row_begins_with_the_first_release_and_changes_at_each_entry() -> None:
    for row in rows():
        releases = list(row.releases)
        assert releases[0] == RELEASES[0], row.name
        assert releases == sorted(releases, key=minor) and set(releases) <= set(RELEASES), row.name
        values = list(row.releases.values())
        assert all(one != next_one for one, next_one in itertools.pairwise(values)), row.name
        assert row.about and row.clause, row.name


def test_every_row_is_a_difference() -> None:
    for row in rows():
        assert len({str(row.documents), *map(str, row.releases.values())}) > 1, row.name


def test_the_default_is_as_documented() -> None:
    assert DEFAULT_PROFILE.name == DOCUMENTS
    assert ("documents", *(f"1.{number}" for number in range(27, 38))) == PROFILE_NAMES
    assert all(
        profile_named(name).name == name and profile_named(name) is profile_named(name) for name in PROFILE_NAMES
    )
    assert (DEFAULT_PROFILE.release, profile_named("1.34").release) == ("1.27", "1.34")


def test_notes_belong_to_rows() -> None:
    """A note says where the real 1.27 did otherwise; a release is the real code, so it has none."""
    assert set(DEFAULT_PROFILE.notes) <= set(Profile.__struct_fields__)
    assert all("real 1.27" in note for note in DEFAULT_PROFILE.notes.values())
    assert not any(profile_named(name).notes for name in RELEASES)


@pytest.mark.parametrize("name", ["", "1.26", "1.38", "v1.36", "documents "])
def test_unknown_names(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"known: documents, 1\.27, .*, 1\.37"):
        profile_named(name)


def test_differences() -> None:
    found = {each.row: each for each in differences(profile_named("1.31"), profile_named("1.34"))}
    assert found["resize_by_plain_patch"].release == "1.32"
    assert (found["resize_footprint"].old, found["resize_footprint"].new) == ("allocated", "containers")
    assert found["resize_footprint"].release == "1.33"
    assert "memory_limit_may_shrink" not in found  # only 1.33 forbids it
    assert {each.release for each in found.values()} == {"1.32", "1.33", "1.34"}
    assert differences(profile_named("1.34"), profile_named("1.34")) == []
    back = differences(profile_named("1.34"), profile_named("1.31"))
    assert [(each.row, each.new, each.old) for each in back] == [
        (each.row, each.old, each.new) for each in found.values()
    ]
    assert {each.release for each in differences(DEFAULT_PROFILE, profile_named("1.27"))} == {""}


VERSIONS = [
    ("v1.34.2", "1.34", "kubeletVersion of node n1"),
    ("v1.29.6-gke.1326000", "1.29", "kubeletVersion of node n1"),
    ("v1.31.0-eks-a737599", "1.31", "kubeletVersion of node n1"),
    ("v1.27.0+plimsoll.0.1.0", "documents", "kubeletVersion of node n1"),
    ("v1.36.0+plimsoll.0.1.0", "1.36", "kubeletVersion of node n1"),
    ("v1.38.1", "1.37", "kubeletVersion of node n1 is v1.38.1, newer than 1.37, the newest release with a profile"),
    ("v1.22.17", "1.27", "kubeletVersion of node n1 is v1.22.17, older than 1.27, the oldest release with a profile"),
    ("", "documents", "no Kubernetes version is known; --node or --profile tells one"),
    ("unknown", "documents", "no Kubernetes version is known; --node or --profile tells one"),
]


@pytest.mark.parametrize(("version", "name", "reason"), VERSIONS, ids=[each[0] for each in VERSIONS])
def test_the_profile_of_a_version(version: str, name: str, reason: str) -> None:
    chosen = profile_of(version, "kubeletVersion of node n1")
    assert (chosen.profile.name, chosen.reason) == (name, reason)
    assert str(chosen) == f"profile {name}: {reason}"


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_own_servers_and_nodes_say_which_profile_they_have(name: str) -> None:
    """1.27 and `documents` are both Kubernetes 1.27."""
    version = git_version(profile_named(name))
    assert version.startswith(f"v{profile_named(name).release}.0+plimsoll.")
    assert profile_of(version, "n").profile is profile_named(name)
