"""What a node mounts for a claim."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.lifecycle.api_objects import ClaimedVolume, claimed_volume

BOUND = {"spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}


def _volume(**spec: Any) -> dict[str, Any]:
    return {"spec": {"accessModes": ["ReadWriteOnce"], **spec}}


CASES: list[tuple[str, dict[str, Any] | None, dict[str, Any] | None, ClaimedVolume]] = [
    ("hostPath", BOUND, _volume(hostPath={"path": "/a", "type": "Directory"}), ClaimedVolume("/a", "Directory")),
    ("local", BOUND, _volume(local={"path": "/b"}), ClaimedVolume("/b", "Directory")),
    (
        "read-only",
        BOUND,
        _volume(hostPath={"path": "/a"}, accessModes=["ReadOnlyMany"]),
        ClaimedVolume("/a", "", read_only=True),
    ),
    ("absent", None, None, ClaimedVolume(problem='persistentvolumeclaim "c" not found')),
    ("pending", {"spec": {}, "status": {"phase": "Pending"}}, None, ClaimedVolume(problem="PVC is not bound")),
    ("lost volume", BOUND, None, ClaimedVolume(problem="PVC is not bound")),
    (
        "driver",
        BOUND,
        _volume(csi={"driver": "d"}),
        ClaimedVolume(problem="this node mounts only PersistentVolumes with hostPath or local"),
    ),
    (
        "device",
        BOUND,
        _volume(local={"path": "/dev/x"}, volumeMode="Block"),
        ClaimedVolume(problem="this node does not support volumes with volumeMode Block"),
    ),
]


@pytest.mark.parametrize(("claim", "volume", "expected"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_what_is_mounted(claim: Any, volume: Any, expected: ClaimedVolume) -> None:
    assert claimed_volume(claim, volume, "c") == expected
