"""pods/ephemeralcontainers through the server: additions only, with Kubernetes' messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.api_client import MERGE, PODS, STRATEGIC, ApiClient, ApiReply, api, pod

DEMO = f"{PODS}/demo"
DEBUG = f"{DEMO}/ephemeralcontainers"
DEBUGGER = {"name": "debugger", "image": "busybox", "targetContainerName": "c"}


async def add(ask: ApiClient, *containers: dict[str, Any], **others: Any) -> ApiReply:
    return await ask("PATCH", DEBUG, {"spec": {"ephemeralContainers": list(containers), **others}}, STRATEGIC)


async def test_containers_are_added_one_after_the_other_and_nothing_else_changes(tmp_path: Path) -> None:
    async with api(tmp_path, "1.36") as ask:
        await ask.ok("POST", PODS, pod())
        found = (await add(ask, DEBUGGER, activeDeadlineSeconds=5)).json
        assert found["metadata"]["generation"] == 2 and "activeDeadlineSeconds" not in found["spec"]
        (first,) = found["spec"]["ephemeralContainers"]
        assert first["terminationMessagePath"] == "/dev/termination-log"  # defaulted
        found = (await add(ask, {"name": "more", "image": "busybox", "stdin": True, "tty": True})).json
        assert {each["name"] for each in found["spec"]["ephemeralContainers"]} == {"debugger", "more"}
        assert found["status"]["qosClass"] == "BestEffort"
        assert (await ask.ok("GET", DEBUG))["spec"] == found["spec"]
        again = (await add(ask, DEBUGGER)).json
        assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("container", "message"),
    [
        pytest.param({"name": "c", "image": "b"}, 'spec.ephemeralContainers[0].name: Duplicate value: "c"', id="name"),
        pytest.param({"name": "d"}, "spec.ephemeralContainers[0].image: Required value", id="image"),
        pytest.param(
            {"name": "d", "image": "b", "targetContainerName": "x"},
            'spec.ephemeralContainers[0].targetContainerName: Not found: "x"',
            id="target",
        ),
        *(
            pytest.param(
                {"name": "d", "image": "b", field: value},
                f"spec.ephemeralContainers[0].{field}: Forbidden: cannot be set for an Ephemeral Container",
                id=field,
            )
            for field, value in {
                "resources": {"limits": {"cpu": "1"}},
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"exec": {"command": ["true"]}},
                "readinessProbe": {"exec": {"command": ["true"]}},
                "startupProbe": {"exec": {"command": ["true"]}},
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
                "restartPolicy": "Always",
            }.items()
        ),
    ],
)
async def test_what_may_not_be_added(tmp_path: Path, container: dict[str, Any], message: str) -> None:
    async with api(tmp_path, "1.36") as ask:
        await ask.ok("POST", PODS, pod())
        refused = await add(ask, container)
        assert refused.code == 422 and message in refused.json["message"], refused.json["message"]


async def test_existing_ones_stay_as_they_are(tmp_path: Path) -> None:
    async with api(tmp_path, "1.36") as ask:
        await ask.ok("POST", PODS, pod())
        await add(ask, DEBUGGER)
        changed = await add(ask, {**DEBUGGER, "image": "other"})
        assert 'existing ephemeral containers "debugger" may not be changed' in changed.json["message"]
        removed = await ask("PATCH", DEBUG, {"spec": {"ephemeralContainers": None}}, MERGE)
        assert 'existing ephemeral containers "debugger" may not be removed' in removed.json["message"]
        plain = await ask("PATCH", DEMO, {"spec": {"ephemeralContainers": [{**DEBUGGER, "name": "two"}]}}, STRATEGIC)
        assert plain.code == 422
        relabelled = await ask("PATCH", DEMO, {"metadata": {"labels": {"a": "b"}}}, MERGE)
        assert relabelled.code == 200


async def test_a_new_pod_has_none(tmp_path: Path) -> None:
    async with api(tmp_path, "1.36") as ask:
        refused = await ask("POST", PODS, pod(ephemeralContainers=[DEBUGGER]))
        assert "spec.ephemeralContainers: Forbidden: cannot be set on create" in refused.json["message"]
