"""`status.declaredFeatures` of a Node, by which the scheduler and the API server of 1.36 and newer judge a node
(https://kubernetes.io/docs/concepts/scheduling-eviction/node-declared-features/).

A feature is declared while the release knows it as such and its gate is on. Features that this node does not have are
never declared.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.rules.config.gates import gate_in
from plimsoll.rules.profile import DOCUMENTS, Profile, minor

GATE = "NodeDeclaredFeatures"
_SINCE = {
    "ExtendWebSocketsToKubelet": 36,
    "InPlacePodLevelResourcesVerticalScaling": 35,
    "InPlacePodVerticalScalingInitContainers": 36,
    "RestartAllContainersOnContainerExits": 35,
}


def declared_features(profile: Profile, feature_gates: Mapping[str, bool]) -> tuple[str, ...]:
    """Sorted. `feature_gates`: those that a configuration can set; others have the default of the release."""
    if profile.name == DOCUMENTS or not _is_on(GATE, profile, feature_gates):
        return ()
    release = minor(profile.release)
    return tuple(
        name for name, since in sorted(_SINCE.items()) if release >= since and _is_on(name, profile, feature_gates)
    )


def _is_on(name: str, profile: Profile, feature_gates: Mapping[str, bool]) -> bool:
    stage = gate_in(name, profile.release)
    return feature_gates.get(name, stage is not None and stage.default)
