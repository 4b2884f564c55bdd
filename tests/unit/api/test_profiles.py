"""What the API server answers by release: versions, ways to resize, fields of the status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import PROFILE_NAMES, profile_named
from tests.unit.api.api_client import STRATEGIC, TABLE, api, pod

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


# release, versions of aggregated discovery in the order of preference
OFFERED = [
    ("documents", ["v2"]),
    ("1.27", ["v2beta1"]),
    ("1.30", ["v2", "v2beta1"]),
    ("1.32", ["v2", "v2beta1"]),
    ("1.33", ["v2"]),
]


@pytest.mark.parametrize(("release", "offered"), OFFERED)
async def test_versions_of_aggregated_discovery(tmp_path: Path, release: str, offered: list[str]) -> None:
    form = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
    async with api(tmp_path, release) as ask:
        for version in ("v2", "v2beta1"):
            for path in ("/api", "/apis"):
                answer = await ask("GET", path, accept=form.format(version))
                assert answer.code == (200 if version in offered else 406)
                if version in offered:
                    assert answer.headers["content-type"] == form.format(version)
                    assert answer.json["apiVersion"] == f"apidiscovery.k8s.io/{version}" and answer.json["items"]
        both = await ask("GET", "/api", accept=f"{form.format('v2')},{form.format('v2beta1')},application/json")
        assert both.json["apiVersion"] == f"apidiscovery.k8s.io/{offered[0]}"


@pytest.mark.parametrize(("release", "emulated"), [("1.32", None), ("1.33", ("33", "32")), ("1.37", ("37", "36"))])
async def test_the_emulated_version(tmp_path: Path, release: str, emulated: tuple[str, str] | None) -> None:
    async with api(tmp_path, release) as ask:
        found = await ask.ok("GET", "/version")
    minors = (found.get("emulationMinor"), found.get("minCompatibilityMinor"))
    assert minors == (emulated or (None, None))


# release, what is not among the columns, and the columns of a quota
COLUMNS = [
    (
        "1.28",
        {"jobs", "cronjobs", "persistentvolumes", "persistentvolumeclaims", "priorityclasses"},
        "Age Request Limit",
    ),
    ("1.29", {"jobs", "cronjobs", "priorityclasses"}, "Age Request Limit"),
    ("1.30", {"priorityclasses"}, "Age Request Limit"),
    ("1.32", set(), "Age Request Limit"),
    ("1.33", set(), "Request Limit Age"),
    ("documents", set(), "Request Limit Age"),
]
LATER = {
    "jobs": ("/apis/batch/v1/jobs", "Status"),
    "cronjobs": ("/apis/batch/v1/cronjobs", "Timezone"),
    "persistentvolumes": ("/api/v1/persistentvolumes", "VolumeAttributesClass"),
    "persistentvolumeclaims": ("/api/v1/persistentvolumeclaims", "VolumeAttributesClass"),
    "priorityclasses": ("/apis/scheduling.k8s.io/v1/priorityclasses", "PreemptionPolicy"),
}


@pytest.mark.parametrize(("release", "lacking", "quota"), COLUMNS, ids=[each[0] for each in COLUMNS])
async def test_columns_of_tables(tmp_path: Path, release: str, lacking: set[str], quota: str) -> None:
    async with api(tmp_path, release) as ask:
        spec = {"hard": {"requests.cpu": "1", "limits.cpu": "2"}}
        quotas = "/api/v1/namespaces/default/resourcequotas"
        await ask.ok("POST", quotas, {"metadata": {"name": "q"}, "spec": spec})
        status = {**spec, "used": {"requests.cpu": "0", "limits.cpu": "0"}}
        await ask.ok("PATCH", f"{quotas}/q/status", {"status": status}, STRATEGIC)
        found = set()
        for kind, (path, column) in LATER.items():
            table = await ask.ok("GET", path, accept=TABLE)
            names = [each["name"] for each in table["columnDefinitions"]]
            if column not in names:
                found.add(kind)
            assert all(len(row["cells"]) == len(names) for row in table["rows"])
        assert found == lacking
        table = await ask.ok("GET", quotas, accept=TABLE)
        names = [each["name"] for each in table["columnDefinitions"]]
        assert " ".join(names) == f"Name {quota}"
        cells = dict(zip(names, table["rows"][0]["cells"], strict=True))
        assert cells == {"Name": "q", "Age": "0s", "Request": "requests.cpu: 0/1", "Limit": "limits.cpu: 0/2"}


@pytest.mark.parametrize(("release", "code"), [("1.27", 400), ("1.28", 200), ("documents", 200)])
async def test_pods_are_selected_by_the_host_network(tmp_path: Path, release: str, code: int) -> None:
    async with api(tmp_path, release) as ask:
        answer = await ask("GET", f"{PODS}?fieldSelector=spec.hostNetwork%3Dtrue")
    assert answer.code == code
    if code == 400:
        assert answer.message == "field label not supported: spec.hostNetwork"


@pytest.mark.parametrize(("release", "code"), [("1.32", 422), ("1.33", 201), ("documents", 201)])
async def test_quotas_of_volume_attributes(tmp_path: Path, release: str, code: int) -> None:
    spec = {"hard": {"persistentvolumeclaims": "2"}, "scopes": ["VolumeAttributesClass"]}
    async with api(tmp_path, release) as ask:
        quotas = "/api/v1/namespaces/default/resourcequotas"
        answer = await ask("POST", quotas, {"metadata": {"name": "q"}, "spec": spec})
    assert answer.code == code
    if code == 422:
        assert "unsupported scope" in answer.message
