"""Features that a node declares, by release and gate."""

from __future__ import annotations

import pytest

from plimsoll.rules.config.parse import default_config
from plimsoll.rules.node.declared_features import declared_features
from plimsoll.rules.profile import profile_named

ALL = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
)


@pytest.mark.parametrize(
    ("release", "gates", "declared"),
    [
        pytest.param("documents", {}, (), id="documents"),
        pytest.param("1.34", {}, (), id="before"),
        pytest.param("1.35", {}, (), id="1.35: off"),
        pytest.param(
            "1.35",
            {"NodeDeclaredFeatures": True, "InPlacePodLevelResourcesVerticalScaling": True},
            ("InPlacePodLevelResourcesVerticalScaling",),
            id="1.35: on",
        ),
        pytest.param("1.36", {}, ALL, id="1.36"),
        pytest.param("1.36", {"RestartAllContainersOnContainerExits": False}, ALL[:3], id="1.36: a gate is off"),
        pytest.param("1.37", {}, ALL, id="1.37"),
    ],
)
def test_declared_features(release: str, gates: dict[str, bool], declared: tuple[str, ...]) -> None:
    profile = profile_named(release)
    found = declared_features(profile, {**default_config(profile).feature_gates, **gates})
    assert found == declared
