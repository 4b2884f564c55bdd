"""Resize through the server in both profiles: subresource and plain patch, marks, refusals (03 §4, §5; design §6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.api_client import MERGE, PODS, STRATEGIC, ApiClient, ApiReply, api, pod

DEMO = f"{PODS}/demo"
OTHER_FIELDS = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def resources(**amounts: Any) -> Any:
    return {"spec": {"containers": [{"name": "c", "resources": amounts}]}}


async def resize(ask: ApiClient, path: str = f"{DEMO}/resize", **amounts: Any) -> ApiReply:
    return await ask("PATCH", path, resources(**amounts), STRATEGIC)


async def start(ask: ApiClient, **spec: Any) -> None:
    await ask.ok(
        "POST", PODS, pod(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "1", "memory": "1Gi"}, **spec)
    )


@pytest.mark.parametrize("profile", ["documents", "1.36"])
async def test_a_resize_changes_spec_and_generation(tmp_path: Path, profile: str) -> None:
    async with api(tmp_path, profile) as ask:
        await ask.ok(
            "POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}
        )
        await start(ask, nodeName="n1")
        assert (await ask.ok("GET", f"{DEMO}/resize"))["kind"] == "Pod"
        found = (await resize(ask, requests={"cpu": "2"}, limits={"cpu": "2"})).json
        assert found["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
        assert found["metadata"]["generation"] == 2
        assert found["status"].get("resize") == ("Proposed" if profile == "documents" else None)
        same = (await resize(ask, requests={"cpu": "2000m"})).json
        assert same == found


async def test_everything_else_in_a_resize_is_restored(tmp_path: Path) -> None:
    async with api(tmp_path, "1.36") as ask:
        await start(ask)
        patch = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {"name": "c", "image": "other", "resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "3"}}}
                ]
            },
            "status": {"phase": "Running"},
        }
        found = await ask.ok("PATCH", f"{DEMO}/resize", patch, STRATEGIC)
        assert "labels" not in found["metadata"]
        assert (found["spec"]["containers"][0]["image"], found["status"]["phase"]) == ("nginx:1.27", "Pending")
        assert found["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "3"


@pytest.mark.parametrize(
    ("profile", "path", "amounts", "message"),
    [
        pytest.param("documents", DEMO, {"limits": {"cpu": "3"}}, 'metadata: Invalid value: "Burstable": Pod QoS is immutable', id="documents, plain"),
        pytest.param("documents", f"{DEMO}/resize", {"limits": {"cpu": "3"}}, 'metadata: Invalid value: "Burstable": Pod QoS is immutable', id="documents, resize"),
        pytest.param("1.36", f"{DEMO}/resize", {"limits": {"cpu": "3"}}, 'spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing', id="1.36, resize"),
        pytest.param("1.36", DEMO, {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}, f"spec: Forbidden: {OTHER_FIELDS}", id="1.36, plain"),
    ],
)  # fmt: skip
async def test_refusals_by_profile(tmp_path: Path, profile: str, path: str, amounts: Any, message: str) -> None:
    async with api(tmp_path, profile) as ask:
        await start(ask)
        said = await resize(ask, path, **amounts)
        assert (said.code, said.message) == (422, f'Pod "demo" is invalid: {message}')


async def test_a_plain_patch_resizes_in_documents(tmp_path: Path) -> None:
    async with api(tmp_path, "documents") as ask:
        await start(ask, nodeName="n1")
        found = (await resize(ask, DEMO, requests={"cpu": "2"}, limits={"cpu": "2"})).json
        assert (found["metadata"]["generation"], found["status"]["resize"]) == (2, "Proposed")


async def test_a_request_may_come_and_go_within_the_class_in_documents(tmp_path: Path) -> None:
    """§4.3. Policies are given at create (§3.1): later neither a first request nor a last one changes them."""
    async with api(tmp_path, "documents") as ask:
        made = await ask.ok("POST", PODS, pod(requests={"cpu": "1"}))
        policies = made["spec"]["containers"][0]["resizePolicy"]
        assert [each["resourceName"] for each in policies] == ["cpu"]
        found = (await resize(ask, DEMO, requests={"memory": "64Mi"})).json
        assert found["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "64Mi"}
        assert found["spec"]["containers"][0]["resizePolicy"] == policies
        found = (await resize(ask, DEMO, requests={"cpu": None})).json
        assert found["spec"]["containers"][0]["resources"]["requests"] == {"memory": "64Mi"}
        whole = {**found, "spec": {**found["spec"], "containers": [{**found["spec"]["containers"][0]}]}}
        del whole["spec"]["containers"][0]["resizePolicy"]
        assert (await ask.ok("PUT", DEMO, whole))["spec"]["containers"][0]["resizePolicy"] == policies


@pytest.mark.parametrize("path", [DEMO, f"{DEMO}/resize"])
async def test_a_resize_before_binding_needs_no_proposal(tmp_path: Path, path: str) -> None:
    async with api(tmp_path, "documents") as ask:
        await start(ask)
        found = (await resize(ask, path, requests={"cpu": "2"}, limits={"cpu": "2"})).json
        (status,) = found["status"]["containerStatuses"]
        assert (status["allocatedResources"], found["status"].get("resize")) == ({"cpu": "2", "memory": "1Gi"}, None)
        binding = {"metadata": {"name": "demo"}, "target": {"kind": "Node", "name": "n1"}}
        await ask.ok("POST", f"{DEMO}/binding", binding)
        found = (await resize(ask, path, requests={"cpu": "3"}, limits={"cpu": "3"})).json
        (status,) = found["status"]["containerStatuses"]
        assert (status["allocatedResources"]["cpu"], found["status"].get("resize")) == ("2", "Proposed")


@pytest.mark.parametrize("path", [DEMO, f"{DEMO}/resize"])
async def test_without_the_gate_resources_are_immutable(tmp_path: Path, path: str) -> None:
    from plimsoll.rules.config.parse import reading
    from plimsoll.rules.profile import PROFILE_DOCUMENTS

    gates = reading(None, PROFILE_DOCUMENTS, {"featureGates": "InPlacePodVerticalScaling=false"}).config.feature_gates
    async with api(tmp_path, "documents", gates=gates) as ask:
        await start(ask)
        said = await resize(ask, path, requests={"cpu": "2"}, limits={"cpu": "2"})
        assert said.code == (422 if path == DEMO else 404)
        listed = {each["name"] for each in (await ask.ok("GET", "/api/v1"))["resources"]}
        assert listed & {"pods/status", "pods/resize"} == {"pods/status"}


async def test_1_36_refuses_more_than_the_node_has(tmp_path: Path) -> None:
    async with api(tmp_path, "1.36") as ask:
        await start(ask, nodeName="n1")
        said = await resize(ask, requests={"cpu": "100"}, limits={"cpu": "100"})
        assert said.message == 'pods "demo" is forbidden: node "n1" not found'
        node = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}
        await ask.ok("POST", "/api/v1/nodes", node)
        said = await resize(ask, requests={"cpu": "100"}, limits={"cpu": "100"})
        assert said.message == (
            'pods "demo" is forbidden: node didn\'t have enough allocatable resources: cpu, requested: 100000, allocatable: 4000'
        )
        assert said.json["details"] == {"name": "demo", "kind": "pods", "causes": [{"reason": "NodeCapacity"}]}
        assert (await resize(ask, requests={"cpu": "3"}, limits={"cpu": "3"})).code == 200


async def test_the_timeline_of_document_003(tmp_path: Path) -> None:
    """03 §5, T=0 … T=12 as far as the API server plays a part; the agent's writes are made here."""
    async with api(tmp_path, "documents") as ask:
        await ask.ok("POST", PODS, pod(requests={"cpu": "1"}, nodeName="n1"))

        def stated(found: Any) -> tuple[Any, ...]:
            (status,) = found["status"]["containerStatuses"]
            actual = ((status.get("resources") or {}).get("requests") or {}).get("cpu")
            wanted = found["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            return wanted, status["allocatedResources"]["cpu"], actual, found["status"].get("resize")

        async def agent(version: str, allocated: str, actual: str, resize_state: str | None) -> ApiReply:
            status = {
                "name": "c",
                "image": "x",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "allocatedResources": {"cpu": allocated},
            }
            status |= {"resources": {"requests": {"cpu": actual}}, "state": {"running": {}}}
            body = {
                "metadata": {"resourceVersion": version},
                "status": {"containerStatuses": [status], "resize": resize_state},
            }
            return await ask("PATCH", f"{DEMO}/status", body, MERGE)

        def version(found: Any) -> str:
            text: str = found["metadata"]["resourceVersion"]
            return text

        t1 = await ask.ok("GET", DEMO)
        assert stated(t1) == ("1", "1", None, None)
        t2 = (await agent(version(t1), "1", "1", None)).json
        t3 = (await resize(ask, DEMO, requests={"cpu": "1.5"})).json
        assert stated(t3) == ("1500m", "1", "1", "Proposed")
        t4 = (await agent(version(t3), "1.5", "1", "InProgress")).json
        assert stated(t4) == ("1500m", "1500m", "1", "InProgress")
        t5 = (await resize(ask, DEMO, requests={"cpu": "2"})).json
        assert stated(t5) == ("2", "1500m", "1", "Proposed")
        t6 = await agent(version(t4), "1.5", "1.5", None)
        assert (t6.code, t6.json["reason"]) == (409, "Conflict")
        t7 = (await agent(version(t5), "1.5", "1.5", "Deferred")).json
        assert stated(t7) == ("2", "1500m", "1500m", "Deferred")
        t8 = (await resize(ask, requests={"cpu": "1.6"})).json
        assert stated(t8) == ("1600m", "1500m", "1500m", "Proposed")
        t9 = (await agent(version(t8), "1.6", "1.5", "InProgress")).json
        t10 = (await agent(version(t9), "1.6", "1.6", None)).json
        assert stated(t10) == ("1600m", "1600m", "1600m", None)
        t11 = (await resize(ask, requests={"cpu": "100"})).json
        assert stated(t11) == ("100", "1600m", "1600m", "Proposed")
        t12 = (await agent(version(t11), "1.6", "1.6", "Infeasible")).json
        assert stated(t12) == ("100", "1600m", "1600m", "Infeasible")
        assert t12["metadata"]["generation"] == 5
        assert t2["metadata"]["generation"] == 1
