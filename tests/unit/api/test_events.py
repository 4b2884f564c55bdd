"""Events: one store, two views (05 B8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.api_client import MERGE, api

CORE = "/api/v1/namespaces/default/events"
NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
ABOUT = {"kind": "Pod", "namespace": "default", "name": "u", "uid": "1"}
OLD_STYLE = {
    "metadata": {"name": "u.1"},
    "involvedObject": ABOUT,
    "reason": "Started",
    "message": "m",
    "type": "Normal",
    "count": 2,
}
NEW_STYLE = {
    "metadata": {"name": "u.2"},
    "regarding": ABOUT,
    "eventTime": "2026-11-15T20:28:29.255984Z",
    "reportingController": "default-scheduler",
    "reportingInstance": "default-scheduler-h",
    "action": "Binding",
    "reason": "Scheduled",
    "note": "n",
    "type": "Normal",
}


async def test_both_views_of_an_old_event(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok(
            "POST", CORE, {**OLD_STYLE, "source": {"component": "kubelet"}, "firstTimestamp": "2026-11-15T20:00:00Z"}
        )
        assert (made["kind"], made["apiVersion"], made["eventTime"], made["lastTimestamp"]) == (
            "Event",
            "v1",
            None,
            None,
        )
        assert (made["reportingComponent"], made["reportingInstance"]) == ("", "")
        found = await ask.ok("GET", f"{NEW}/u.1")
        assert (found["kind"], found["apiVersion"]) == ("Event", "events.k8s.io/v1")
        assert (found["regarding"], found["note"], found["deprecatedCount"]) == (ABOUT, "m", 2)
        assert found["deprecatedSource"] == {"component": "kubelet"}
        assert "involvedObject" not in found
        listed = await ask.ok("GET", NEW)
        assert (listed["kind"], listed["items"][0]["note"]) == ("EventList", "m")


async def test_both_views_of_a_new_event(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", NEW, NEW_STYLE)
        assert (made["note"], made["eventTime"]) == ("n", "2026-11-15T20:28:29.255984Z")
        found = await ask.ok("GET", f"{CORE}/u.2")
        assert (found["involvedObject"], found["message"], found["reportingComponent"]) == (
            ABOUT,
            "n",
            "default-scheduler",
        )
        assert (found["source"], found["firstTimestamp"], found["action"]) == ({}, None, "Binding")
        patched = await ask.ok(
            "PATCH", f"{NEW}/u.2", {"series": {"count": 2, "lastObservedTime": "2026-11-15T20:30:00.000000Z"}}, MERGE
        )
        assert (patched["series"]["count"], patched["note"]) == (2, "n")
        async with ask.watching(f"{NEW}?watch=1&fieldSelector=regarding.name%3Du") as watch:
            assert (await watch.event())["object"]["note"] == "n"
        async with ask.watching(f"{CORE}?watch=1&fieldSelector=involvedObject.name%3Du") as watch:
            assert (await watch.event())["object"]["message"] == "n"


async def test_repeats_by_patch(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", CORE, OLD_STYLE)
        patched = await ask.ok("PATCH", f"{CORE}/u.1", {"count": 3, "lastTimestamp": "2026-11-15T20:30:00Z"}, MERGE)
        assert (patched["count"], patched["lastTimestamp"]) == (3, "2026-11-15T20:30:00Z")


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        (CORE, {"involvedObject": {"namespace": "kube-system"}}, 'involvedObject.namespace: Invalid value: "kube-system": does not match event.namespace'),
        (NEW, {"eventTime": None}, "eventTime: Required value"),
        (NEW, {"reportingController": ""}, "reportingController: Required value"),
        (NEW, {"action": ""}, "action: Required value"),
        (NEW, {"reason": ""}, "reason: Required value"),
        (NEW, {"type": "Bad"}, 'type: Invalid value: "Bad"'),
        (NEW, {"note": "x" * 1025}, "can have at most 1024 characters"),
        (CORE, {"eventTime": "2026-11-15T20:28:29.255984Z"}, "action: Required value"),
    ],
)  # fmt: skip
async def test_refusals(tmp_path: Path, path: str, change: Any, message: str) -> None:
    async with api(tmp_path) as ask:
        said = await ask("POST", path, {**(OLD_STYLE if path == CORE else NEW_STYLE), **change})
        assert said.code == 422
        assert message in said.message


async def test_old_events_of_cluster_objects_are_in_default(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        event = {
            **OLD_STYLE,
            "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
            "type": "Whatever",
            "message": "x" * 2000,
        }
        assert (await ask("POST", CORE, event)).code == 201
        assert (await ask("POST", "/api/v1/namespaces/kube-system/events", event)).code == 422


async def test_fields_of_the_other_group_are_unknown_fields(tmp_path: Path) -> None:
    """Their values have not been validated, so they must not become fields of the other version."""
    body = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "involvedObject": "no object at all",
        "eventTime": "2026-11-15T20:30:00.000000Z",
        "reportingController": "a.io/b",
        "reportingInstance": "i",
        "action": "Do",
        "reason": "Because",
        "type": "Normal",
    }
    async with api(tmp_path) as ask:
        said = await ask.ok("POST", "/apis/events.k8s.io/v1/namespaces/default/events", body)
        assert (said["regarding"]["name"], "involvedObject" in said) == ("p", False)
        stored = await ask.ok("GET", "/api/v1/namespaces/default/events/e")
        assert stored["involvedObject"]["name"] == "p"
