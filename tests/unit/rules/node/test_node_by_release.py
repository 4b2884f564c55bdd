"""Labels of a Node and the times of its lease, by release.

Read in every release from 1.27 to 1.37: the labels of `initialNode` and the kubelet's defaults are the same in all; the
grace period of the node lifecycle controller grew from 40 s to 50 s in 1.32, so that a node may miss four renewals.
"""

from __future__ import annotations

import pytest

from plimsoll.linux.identity import machine_identity
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.node.node_object import NodeFacts, node_labels
from plimsoll.rules.profile import FIRST_MINOR, LAST_MINOR, profile_named
from plimsoll.version import git_version

GRACE_S = {27: 40, 28: 40, 29: 40, 30: 40, 31: 40, 32: 50, 33: 50, 34: 50, 35: 50, 36: 50, 37: 50}


@pytest.mark.parametrize("minor", range(FIRST_MINOR, LAST_MINOR + 1), ids="1.{}".format)
def test_labels_and_lease(minor: int) -> None:
    profile = profile_named(f"1.{minor}")
    config = default_config(profile)
    assert (config.node_lease_s, config.node_status_update_s, config.node_status_report_s) == (40, 10, 300)
    assert profile.node_grace_s == GRACE_S[minor]
    assert git_version(profile).startswith(f"v1.{minor}.")
    facts = NodeFacts("n1", "host", "127.0.0.1", 10250, machine_identity(), "x://1", "v1", {"tier": "a"})
    assert set(node_labels(facts)) == {
        "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname",
        "kubernetes.io/os", "tier",
    }  # fmt: skip
    assert node_labels(facts)["kubernetes.io/hostname"] == "host"
