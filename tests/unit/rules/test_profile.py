"""The two profiles (design: one switch), as the table of version differences has them."""

from __future__ import annotations

import pytest

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.profile import DEFAULT_PROFILE, PROFILES, Profile, profile_named

# field, as the documents describe documents, as 1.36 answers
ROWS = [
    ("memory_min_from_requests", True, False),  # 02 §6.2
    ("memory_high_without_request", True, False),  # 02 §6.1
    ("memory_oom_group", False, True),  # 02 §5
    ("sidecar_oom_rule", False, True),  # O-6
    ("pod_level_oom_share", False, True),  # O-6
    ("quota_with_exclusive_cpus", True, False),  # 02 §10
    ("resize_policy_defaulted", True, False),  # D-3
    ("resize_by_plain_patch", True, False),  # V-30
    ("resize_may_remove", True, False),  # 01 §12
    ("qos_change_at_metadata", True, False),  # 01 §12
    ("too_large_is_infeasible", True, False),
    ("too_large_refused_by_api", False, True),
    ("static_cpu_resize", True, False),
    ("limit_range_on_resize", False, True),  # 01 §12
    ("container_weight", "linear", "quadratic"),  # 02 §4.2
    ("driver_from_cri", False, True),  # 02 §2.2
    ("start_event_names_container", True, False),
    ("image_event_says_accessible", False, True),
    ("pull_event_says_size", False, True),
    ("pull_backoff_says_why", False, True),
    ("probe_error_says_state", False, True),
    ("init_started_reported", False, True),
    ("ready_to_start_condition", False, True),
    ("pod_observed_generation", False, True),
    ("host_ips_reported", False, True),
    ("volume_mounts_reported", False, True),
]


@pytest.mark.parametrize(("field", "old", "new"), ROWS, ids=[row[0] for row in ROWS])
def test_differences(field: str, old: object, new: object) -> None:
    assert (getattr(PROFILES["documents"], field), getattr(PROFILES["1.36"], field)) == (old, new)


def test_the_default_is_as_documented() -> None:
    assert DEFAULT_PROFILE.name == "documents"
    assert list(PROFILES) == ["documents", "1.36"]
    assert all(profile_named(name) is profile for name, profile in PROFILES.items())


def test_notes_belong_to_differences() -> None:
    """A note says where the real 1.27 did otherwise; 1.36 is the real code, so it has none."""
    fields = set(Profile.__struct_fields__)
    assert set(PROFILES["documents"].notes) <= fields
    assert all("real 1.27" in note for note in PROFILES["documents"].notes.values())
    assert PROFILES["1.36"].notes == {}


@pytest.mark.parametrize("name", ["", "1.28", "v1.36", "documents "])
def test_unknown_names(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"known: documents, 1\.36"):
        profile_named(name)
