"""A configuration told by `/configz` is the one that was given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.rules.config.document import config_document
from plimsoll.rules.config.parse import reading
from plimsoll.rules.profile import PROFILES

GIVEN: list[tuple[str, dict[str, Any]]] = [
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


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("document", [row[1] for row in GIVEN], ids=[row[0] for row in GIVEN])
def test_it_reads_back_the_same(document: dict[str, Any], profile: Any) -> None:
    config = reading(document, profile).config
    told = msgspec.json.decode(msgspec.json.encode(config_document(config)))
    assert reading(told, profile).config == config


def test_headers_are_not_told() -> None:
    """They may be a bearer token."""
    given = {"staticPodURL": "https://127.0.0.1/p", "staticPodURLHeader": {"Authorization": ["Bearer s3cret"]}}
    told = config_document(reading(given, PROFILES["1.36"]).config)
    assert told["staticPodURLHeader"] == {"Authorization": ["<masked>"]}
