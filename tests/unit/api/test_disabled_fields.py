"""Fields of features that are off in a release, through the server: dropped on create and update, in templates too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import RELEASES, minor, profile_named
from tests.unit.api.api_client import MERGE, STRATEGIC, api, pod

PODS = "/api/v1/namespaces/default/pods"
NEVER = 99
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["a"]}


def mounting(**mount: Any) -> dict[str, Any]:
    mounted = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    return {"containers": [mounted], "volumes": [{"name": "v", "emptyDir": {}}]}


def projecting(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "projected": {"sources": [source]}}]}


# field, the release whose default has it on, and the spec
FIELDS: dict[str, tuple[int, dict[str, Any]]] = {
    "appArmorProfile": (30, {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
    "clusterTrustBundle": (37, projecting(clusterTrustBundle={"name": "b", "path": "p"})),
    "hostUsers": (33, {"hostUsers": False}),
    "hostnameOverride": (35, {"hostnameOverride": "other"}),
    "image volume": (35, {"volumes": [{"name": "i", "image": {"reference": "r"}}]}),
    "matchLabelKeys": (31, {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}),
    "procMount": (33, {"hostUsers": False, "containers": [
        {"name": "c", "image": "i", "securityContext": {"procMount": "Unmasked"}}]}),
    "recursiveReadOnly": (31, mounting(readOnly=True, recursiveReadOnly="IfPossible")),
    "resourceClaims": (NEVER, {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}),
    "schedulingGroup": (NEVER, {"schedulingGroup": {"podGroupName": "g"}}),
    "seLinuxChangePolicy": (33, {"securityContext": {"seLinuxChangePolicy": "Recursive"}}),
    "sidecar": (29, {"initContainers": [{"name": "s", "image": "i:1", "restartPolicy": "Always"}]}),
    "stopSignal": (NEVER, {"os": {"name": "linux"}, "containers": [
        {"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGHUP"}}]}),
    "supplementalGroupsPolicy": (33, {"securityContext": {"supplementalGroupsPolicy": "Strict"}}),
}  # fmt: skip
# What shows that the field is there.
SIGNS = {"image volume": '"reference"', "procMount": '"Unmasked"', "sidecar": '"restartPolicy":"Always"'}


@pytest.mark.parametrize("release", RELEASES)
async def test_fields_of_pods_by_release(tmp_path: Path, release: str) -> None:
    found = {}
    async with api(tmp_path, release) as ask:
        for index, (field, (_, spec)) in enumerate(FIELDS.items()):
            said = await ask("POST", PODS, pod(f"p{index}", restartPolicy="OnFailure", **spec))
            if field == "resourceClaims" and minor(release) >= 34:
                assert said.code == 403, "this server has no claims"
                found[field] = False
                continue
            assert said.code == 201, (field, said.body)
            body = said.body.partition(b'"spec":')[2].decode()
            found[field] = SIGNS.get(field, f'"{field}"') in body
    assert found == {field: minor(release) >= since for field, (since, _) in FIELDS.items()}


async def test_an_update_does_not_add_a_field_and_keeps_a_stored_one(tmp_path: Path) -> None:
    on = {**default_config(profile_named("1.32")).feature_gates, "UserNamespacesSupport": True}
    async with api(tmp_path, "1.32", gates=on) as ask:
        await ask.ok("POST", PODS, pod("with", hostUsers=False))
    async with api(tmp_path, "1.32") as ask:
        await ask.ok("POST", PODS, pod("without"))
        stored = await ask.ok("GET", f"{PODS}/without")
        patched = await ask.ok("PATCH", f"{PODS}/without", {"spec": {"hostUsers": False}}, MERGE)
        assert "hostUsers" not in patched["spec"]
        assert patched["metadata"]["generation"] == stored["metadata"]["generation"]
        kept = await ask.ok("PATCH", f"{PODS}/with", {"metadata": {"labels": {"a": "b"}}}, MERGE)
        assert kept["spec"]["hostUsers"] is False
        refused = await ask("PATCH", f"{PODS}/with", {"spec": {"hostUsers": True}}, MERGE)
        assert refused.code == 422, "a stored field is compared"


async def test_a_sidecar_is_not_added_by_an_update_where_there_are_none(tmp_path: Path) -> None:
    init = {"name": "s", "image": "i"}
    async with api(tmp_path, "1.28") as ask:
        await ask.ok("POST", PODS, pod(initContainers=[init]))
        sent = {"spec": {"initContainers": [{**init, "restartPolicy": "Always"}]}}
        patched = await ask.ok("PATCH", f"{PODS}/demo", sent, STRATEGIC)
    assert "restartPolicy" not in patched["spec"]["initContainers"][0]


async def test_templates_and_other_kinds_lose_the_fields_too(tmp_path: Path) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "hostnameOverride": "x",
            "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    job = {
        "metadata": {"name": "j"},
        "spec": {"managedBy": "a.b/c", "template": {"spec": {**template["spec"], "restartPolicy": "Never"}}},
    }
    async with api(tmp_path, "1.28") as ask:
        stored = (await ask.ok("POST", "/apis/apps/v1/namespaces/default/deployments", deployment))["spec"]["template"]
        assert "hostnameOverride" not in stored["spec"] and "restartPolicy" not in stored["spec"]["initContainers"][0]
        found = (await ask.ok("POST", "/apis/batch/v1/namespaces/default/jobs", job))["spec"]
        assert "managedBy" not in found and "podReplacementPolicy" not in found
        assert "restartPolicy" not in found["template"]["spec"]["initContainers"][0]


async def test_the_status_of_a_pod_has_the_fields_of_its_release(tmp_path: Path) -> None:
    status = {"observedGeneration": 1, "hostIPs": [{"ip": "10.0.0.1"}], "hostIP": "10.0.0.1"}
    found = {}
    for release in ("1.28", "1.29", "1.33", "1.34"):
        directory = tmp_path / release
        directory.mkdir()
        async with api(directory, release) as ask:
            await ask.ok("POST", PODS, pod())
            await ask.ok("PATCH", f"{PODS}/demo/status", {"status": status}, STRATEGIC)
            stored = (await ask.ok("GET", f"{PODS}/demo"))["status"]
            found[release] = sorted(stored.keys() & status.keys())
    assert found == {
        "1.28": ["hostIP"],
        "1.29": ["hostIP", "hostIPs"],
        "1.33": ["hostIP", "hostIPs"],
        "1.34": ["hostIP", "hostIPs", "observedGeneration"],
    }


async def test_observed_generations_stay_when_a_client_does_not_send_them(tmp_path: Path) -> None:
    ready = {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    status = {"observedGeneration": 1, "conditions": [{**ready, "observedGeneration": 1}]}
    async with api(tmp_path, "1.34") as ask:
        await ask.ok("POST", PODS, pod())
        await ask.ok("PATCH", f"{PODS}/demo/status", {"status": status}, MERGE)
        removed = {"status": {"observedGeneration": None, "conditions": [ready, {**ready, "type": "Other"}]}}
        found = (await ask.ok("PATCH", f"{PODS}/demo/status", removed, MERGE))["status"]
    assert found["observedGeneration"] == 1
    assert [each.get("observedGeneration") for each in found["conditions"]] == [1, None]
