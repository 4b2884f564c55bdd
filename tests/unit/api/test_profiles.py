"""What the API server answers by release: versions, ways to resize, fields of the status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import PROFILE_NAMES, profile_named
from tests.unit.api.api_client import STRATEGIC, api, pod

PODS = "/api/v1/namespaces/default/pods"
DEMO = f"{PODS}/demo"
SIZE = {"cpu": "1", "memory": "1Gi"}
LARGER = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}]}}


def resizing(profile: str) -> dict[str, bool]:
    """The release's gates, with resize on: it was alpha up to 1.32."""
    return {**default_config(profile_named(profile)).feature_gates, "InPlacePodVerticalScaling": True}


@pytest.mark.parametrize("profile", PROFILE_NAMES)
async def test_the_version(tmp_path: Path, profile: str) -> None:
    async with api(tmp_path, profile) as ask:
        found = await ask.ok("GET", "/version")
    minor = "27" if profile == "documents" else profile.partition(".")[2]
    assert (found["major"], found["minor"]) == ("1", minor)
    assert found["gitVersion"].startswith(f"v1.{minor}.0+plimsoll.")


@pytest.mark.parametrize(
    ("profile", "policy"), [("1.27", None), ("1.28", None), ("1.29", "Always"), ("documents", "Always")]
)
async def test_sidecars_are_stored_since_the_release_that_has_them(
    tmp_path: Path, profile: str, policy: str | None
) -> None:
    """E-4: alpha and off in 1.28, not there before."""
    side = {"name": "s", "image": "i", "restartPolicy": "Always"}
    async with api(tmp_path, profile) as ask:
        stored = await ask.ok("POST", PODS, pod(initContainers=[side]))
    assert stored["spec"]["initContainers"][0].get("restartPolicy") == policy


# profile, answer to a plain patch, answer to /resize, what status.resize says
WAYS = [
    ("documents", 200, 200, "Proposed"),
    ("1.27", 200, 404, "Proposed"),
    ("1.31", 200, 404, "Proposed"),
    ("1.32", 422, 200, "Proposed"),
    ("1.33", 422, 200, None),
    ("1.35", 422, 200, None),
    ("1.37", 422, 200, None),
]


@pytest.mark.parametrize(("profile", "plain", "resize", "word"), WAYS, ids=[each[0] for each in WAYS])
async def test_ways_to_resize(tmp_path: Path, profile: str, plain: int, resize: int, word: str | None) -> None:
    async with api(tmp_path, profile, gates=resizing(profile)) as ask:
        capacity: dict[str, Any] = {"capacity": {"cpu": "4", "memory": "8Gi"}}
        await ask.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": capacity})
        await ask.ok("POST", PODS, pod(requests=SIZE, limits=SIZE, nodeName="n1"))
        report = {
            "name": "c",
            "image": "nginx",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "allocatedResources": SIZE,
        }
        await ask.ok("PATCH", f"{DEMO}/status", {"status": {"containerStatuses": [report]}}, STRATEGIC)
        codes = (
            (await ask("PATCH", DEMO, LARGER, STRATEGIC)).code,
            (await ask("PATCH", f"{DEMO}/resize", LARGER, STRATEGIC)).code,
        )
        assert codes == (plain, resize)
        found = await ask.ok("GET", DEMO)
        assert found["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
        assert found["status"].get("resize") == word
        listed = {each["name"] for each in (await ask.ok("GET", "/api/v1"))["resources"]}
        assert ("pods/resize" in listed) == (resize == 200)


@pytest.mark.parametrize("profile", ["1.27", "1.32"])
async def test_resize_is_off_by_default_up_to_1_32(tmp_path: Path, profile: str) -> None:
    async with api(tmp_path, profile) as ask:
        await ask.ok("POST", PODS, pod(requests=SIZE, limits=SIZE))
        assert (await ask("PATCH", DEMO, LARGER, STRATEGIC)).code == 422
        assert (await ask("PATCH", f"{DEMO}/resize", LARGER, STRATEGIC)).code == 404


@pytest.mark.parametrize(("profile", "kept"), [("1.31", False), ("1.33", False), ("1.34", True), ("1.37", True)])
async def test_pod_level_resources_exist_by_default_from_1_34(tmp_path: Path, profile: str, kept: bool) -> None:
    async with api(tmp_path, profile) as ask:
        found = await ask.ok("POST", PODS, pod(requests=SIZE, resources={"requests": {"cpu": "2"}}))
        assert ("resources" in found["spec"]) == kept


async def test_1_37_defaults_pod_level_limits(tmp_path: Path) -> None:
    async with api(tmp_path, "1.37") as ask:
        found = await ask.ok(
            "POST", PODS, pod(limits={"cpu": "11m", "memory": "8154M"}, resources={"requests": {"cpu": "201m"}})
        )
        assert found["spec"]["resources"] == {
            "limits": {"cpu": "201m", "memory": "8154M"},
            "requests": {"cpu": "201m", "memory": "8154M"},
        }
        assert found["status"]["qosClass"] == "Guaranteed"
