"""Status patches: only what changed, nothing of other clients; sent again while the API is unreachable."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from plimsoll.codec.patch.strategic import apply_strategic
from plimsoll.codec.schema.schema import KINDS
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiResponse, Request, UnreachableError
from plimsoll.node.reporting.status_manager import Reporter, status_patch

READY = {"type": "Ready", "status": "True"}
PROBED = {"type": "PodResizePending", "status": "True", "lastProbeTime": "2026-01-01T00:00:00Z"}
PROBED_AGAIN = {**PROBED, "lastProbeTime": "2026-01-01T00:03:00Z"}
POD = next(kind for kind in KINDS if kind.name == "Pod")

CASES = {
    "nothing changed": ({"phase": "Running"}, {"phase": "Running"}, None),
    "phase": ({"phase": "Pending"}, {"phase": "Running"}, {"phase": "Running"}),
    "a reason that is no more": ({"reason": "Evicted"}, {}, {"reason": None}),
    "what others have written stays": ({"nominatedNodeName": "n2", "phase": "Pending"}, {"phase": "Pending"}, None),
    "one condition of two": (
        {"conditions": [READY, {"type": "Initialized", "status": "True"}]},
        {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]},
        {"conditions": [{"type": "Ready", "status": "False"}]},
    ),
    "a condition's message that is no more": (
        {"conditions": [{**READY, "message": "soon"}]},
        {"conditions": [READY]},
        {"conditions": [{**READY, "message": None}]},
    ),
    "a condition of others stays": ({"conditions": [{"type": "Gate", "status": "True"}]}, {"conditions": []}, None),
    "a gate that was closed meanwhile is not opened again": (
        {"conditions": [{"type": "Gate", "status": "False"}, {"type": "DisruptionTarget", "reason": "EvictionByAPI"}]},
        {"conditions": [{"type": "Gate", "status": "True"}, {"type": "DisruptionTarget", "reason": "Preemption"}]},
        None,
    ),
    "a disruption by the node": (
        {"conditions": [{"type": "Gate", "status": "False"}]},
        {
            "conditions": [
                {"type": "Gate", "status": "True"},
                {"type": "DisruptionTarget", "reason": "TerminationByKubelet"},
            ]
        },
        {"conditions": [{"type": "DisruptionTarget", "reason": "TerminationByKubelet"}]},
    ),
    "our own condition goes": (
        {"conditions": [{"type": "PodResizePending", "status": "True"}]},
        {"conditions": []},
        {"conditions": [{"$patch": "delete", "type": "PodResizePending"}]},
    ),
    "nulls mean nothing": ({"conditions": [{**READY, "lastProbeTime": None}]}, {"conditions": [READY]}, None),
    "probed again, with the same result": ({"conditions": [PROBED]}, {"conditions": [PROBED_AGAIN]}, None),
    "probed again, with another change": (
        {"phase": "Pending", "conditions": [PROBED]},
        {"phase": "Running", "conditions": [PROBED_AGAIN]},
        {"phase": "Running", "conditions": [PROBED_AGAIN]},
    ),
    "addresses are replaced": (
        {"podIPs": [{"ip": "10.0.0.1"}]},
        {"podIPs": [{"ip": "10.0.0.2"}]},
        {"podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}]},
    ),
}


@pytest.mark.parametrize(("has", "wants", "patch"), CASES.values(), ids=CASES)
def test_status_patch(has: dict[str, Any], wants: dict[str, Any], patch: dict[str, Any] | None) -> None:
    assert status_patch(has, wants) == patch


PATCHES = {name: case for name, case in CASES.items() if case[2] is not None}


@pytest.mark.parametrize(("has", "wants", "patch"), PATCHES.values(), ids=PATCHES)
def test_the_patch_applied_by_an_api_server_gives_the_status(
    has: dict[str, Any], wants: dict[str, Any], patch: dict[str, Any]
) -> None:
    after = apply_strategic(POD, {"status": has}, {"status": patch}).get("status", {})
    assert status_patch(after, wants) is None


class Api:
    """Returns the given answers and keeps the requests."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Any]] = []

    async def send(self, request: Request) -> ApiResponse:
        self.asked.append((request.method, request.path, msgspec.json.decode(request.body)))
        code = self.answers.pop(0) if self.answers else 200
        if code == 0:
            raise UnreachableError("gone for a while")
        reason = {404: "NotFound", 409: "Conflict"}.get(code, "")
        kind = {"kind": "Status", "reason": reason} if code >= 400 else {"kind": "Pod", "metadata": {"name": "web"}}
        return ApiResponse(code, msgspec.json.encode(kind))

    def lines(self, request: Request) -> Any:
        raise AssertionError("nothing is watched here")


@contextlib.asynccontextmanager
async def reporting(api: Api) -> Any:
    reporter = Reporter(Client(api))
    task = asyncio.create_task(reporter.run())
    try:
        yield reporter
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_status_is_sent_with_the_uid_and_once() -> None:
    async with reporting(api := Api()) as reporter:
        assert reporter.report("u", "default", "web", {}, {"phase": "Running"})
        await reporter.drained(5.0)
        assert not reporter.report("u", "default", "web", {}, {"phase": "Running"})
    path = "/api/v1/namespaces/default/pods/web/status"
    assert api.asked == [("PATCH", path, {"metadata": {"uid": "u"}, "status": {"phase": "Running"}})]


async def test_an_api_that_is_away_gets_the_newest_status_later() -> None:
    async with reporting(api := Api(0, 500, 200)) as reporter:
        reporter.report("u", "default", "web", {}, {"phase": "Pending"})
        await asyncio.sleep(0)
        reporter.report("u", "default", "web", {}, {"phase": "Running"})
        await reporter.drained(5.0)
    assert [each[2]["status"]["phase"] for each in api.asked][-1] == "Running"
    assert len(api.asked) == 3


async def test_the_last_status_comes_before_the_end() -> None:
    async with reporting(api := Api()) as reporter:
        reporter.report("u", "default", "web", {}, {"phase": "Failed"})
        reporter.finish("u", "default", "web")
        await reporter.drained(5.0)
    assert [each[0] for each in api.asked] == ["PATCH", "DELETE"]
    assert api.asked[1][2]["preconditions"] == {"uid": "u"}
    assert api.asked[1][2]["gracePeriodSeconds"] == 0


@pytest.mark.parametrize("code", [404, 409])
async def test_a_pod_that_is_gone_or_was_replaced_is_not_patched(code: int) -> None:
    async with reporting(api := Api(code)) as reporter:
        reporter.report("u", "default", "web", {}, {"phase": "Running"})
        await reporter.drained(5.0)
    assert len(api.asked) == 1
