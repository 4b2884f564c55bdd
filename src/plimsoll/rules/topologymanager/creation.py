"""The topology manager on one machine, and why a kubelet cannot create it (TM-2).

The checks are in the kubelet's order: each option, the distances of the NUMA nodes, their number.

Kubernetes: pkg/kubelet/cm/topologymanager/topology_manager.go NewManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.config.manager_options import (
    PREFER_CLOSEST,
    TOPOLOGY_OPTIONS_PATH,
    topology_option_errors,
    topology_options,
)
from plimsoll.rules.profile import Profile
from plimsoll.rules.topologymanager.admission import Scope, TopologySetting
from plimsoll.rules.topologymanager.merge import NONE, NumaLayout, TopologyPolicy


def topology_setting(
    policy: TopologyPolicy,
    scope: Scope,
    given: Mapping[str, str],
    layout: NumaLayout,
    gate: Callable[[str], bool],
    profile: Profile,
) -> TopologySetting:
    """`given`: the options; the policy `none` does not read them, nor the scope. Raises InvalidConfigError."""
    if policy == NONE:
        return TopologySetting(layout=NumaLayout(layout.nodes))
    for error in topology_option_errors(given, gate, profile):
        raise error
    options = topology_options(given)
    if options.prefer_closest and any(node not in layout.distances for node in layout.nodes):
        raise InvalidConfigError(
            f"{TOPOLOGY_OPTIONS_PATH}[{PREFER_CLOSEST}]",
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor",
        )
    if len(layout.nodes) > options.max_nodes:
        raise InvalidConfigError(
            "topologyManagerPolicy", f"unsupported on machines with more than {options.max_nodes} NUMA Nodes"
        )
    return TopologySetting(policy, scope, options, layout)
