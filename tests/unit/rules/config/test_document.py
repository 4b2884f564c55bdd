"""The configuration in `/configz` is the one that was parsed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.rules.config.parse import config_document, reading
from plimsoll.rules.profile import PROFILE_NAMES, profile_named

DOCUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("nothing", {}),
    ("gates", {"featureGates": {"MemoryQoS": True, "InPlacePodVerticalScalingInitContainers": False}}),
    ("durations", {"cpuManagerReconcilePeriod": "1m30.5s", "syncFrequency": "2m", "fileCheckFrequency": "1ms"}),
    ("a period", {"featureGates": {"CustomCPUCFSQuotaPeriod": True}, "cpuCFSQuotaPeriod": "12345us"}),
    ("CPUs", {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1,3"}),
    (
        "amounts",
        {
            "systemReserved": {"cpu": "100m", "memory": "1.5Gi"},
            "kubeReserved": {"pid": "1000"},
            "evictionHard": {"memory.available": "5%"},
            "containerLogMaxSize": "10M",
        },
    ),
    ("swap", {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}),
    ("shares", {"featureGates": {"QOSReserved": True}, "qosReserved": {"memory": "50%"}}),
]


@pytest.mark.parametrize("profile", [profile_named("documents"), profile_named("1.36")], ids=["documents", "1.36"])
@pytest.mark.parametrize("document", [row[1] for row in DOCUMENTS], ids=[row[0] for row in DOCUMENTS])
def test_it_reads_back_the_same(document: dict[str, Any], profile: Any) -> None:
    config = reading(document, profile).config
    document = msgspec.json.decode(msgspec.json.encode(config_document(config, profile)))
    assert reading(document, profile).config == config


def test_header_values_are_masked() -> None:
    """They may be a bearer token."""
    source = {"staticPodURL": "https://127.0.0.1/p", "staticPodURLHeader": {"Authorization": ["Bearer s3cret"]}}
    document = config_document(reading(source, profile_named("1.36")).config, profile_named("1.36"))
    assert document["staticPodURLHeader"] == {"Authorization": ["<masked>"]}


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_the_defaults_of_every_profile_read_back(name: str) -> None:
    profile = profile_named(name)
    config = reading(None, profile).config
    assert reading(config_document(config, profile), profile).config == config
