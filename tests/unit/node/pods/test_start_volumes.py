"""The volumes of a pod are prepared while its cgroups are made: either may fail, or be cut off by the pod's deletion."""

from __future__ import annotations

import asyncio
import errno
import time
from pathlib import Path

import msgspec
import pytest

from plimsoll.cgroups.drivers.interface import CgroupError
from plimsoll.kube.request import ApiResponse, Request
from plimsoll.node.pods import worker as worker_module
from plimsoll.node.standalone import OnePodApi
from tests.unit.node.pods.one_pod_node import UID, Document, PodNode, RecordingRuntime, container
from tests.unit.node.test_agent import eventually

TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
MOUNT = {"name": "who", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
FORBIDDEN = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no tokens today"}


class TokenApi(OnePodApi):
    """Answers requests for tokens once `answers` is set: with a token, or with the refusal."""

    answers: asyncio.Event
    refusal: Document | None = None
    asked = cut_off = services_asked = 0

    async def send(self, request: Request) -> ApiResponse:
        self.services_asked += "/services" in request.path
        if not request.path.endswith("/token"):
            return await super().send(request)
        self.asked += 1
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.cut_off += 1
            raise
        if self.refusal is not None:
            return ApiResponse(403, msgspec.json.encode(self.refusal))
        status = {"token": "abc", "expirationTimestamp": "2999-01-01T00:00:00Z"}
        return ApiResponse(201, msgspec.json.encode({**msgspec.json.decode(request.body), "status": status}))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "RETRY_FIRST_S", 0.02)


def token_node(directory: Path) -> tuple[PodNode, TokenApi]:
    volumes = [{"name": "who", "projected": {"sources": [TOKEN]}}]
    node = PodNode(directory, container("a", volumeMounts=[MOUNT]), volumes=volumes, api=TokenApi)
    assert isinstance(node.api, TokenApi)
    node.api.answers = asyncio.Event()
    return node, node.api


def pods_left(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("pods/*")]


async def test_the_cgroups_are_made_while_a_token_is_requested(tmp_path: Path) -> None:
    """The sandbox waits for both, as with a kubelet."""
    node, api = token_node(tmp_path)
    async with node.running():
        await eventually(lambda: api.asked == 1 and "a" in node.agent.cgroups.paths(UID))
        await eventually(lambda: api.services_asked > 0)
        assert node.runtime.calls == []
        api.answers.set()
        await node.until_running()
        await eventually(lambda: [path.read_text() for path in tmp_path.glob("pods/*/volumes/*/who/token")] == ["abc"])
    assert node.runtime.calls[:2] == ["make sandbox", "make a"]
    assert api.asked == 1


async def test_a_refused_token_is_reported_and_requested_again(tmp_path: Path) -> None:
    node, api = token_node(tmp_path)
    api.refusal = FORBIDDEN
    api.answers.set()
    async with node.running():
        await eventually(lambda: "FailedMount" in node.reasons())
        event = next(each for each in node.events if each["reason"] == "FailedMount")
        assert "no tokens today" in event["message"]
        assert "a" in node.agent.cgroups.paths(UID)
        assert node.runtime.calls == []
        assert not node.agent.meters.started_pods.values
        api.refusal = None
        await node.until_running()


@pytest.mark.parametrize("makes_cgroups", [False, True], ids=["embedded", "CRI"])
async def test_cgroups_that_cannot_be_made_end_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, makes_cgroups: bool
) -> None:
    monkeypatch.setattr(RecordingRuntime, "makes_cgroups", makes_cgroups)
    node, api = token_node(tmp_path)
    make, is_full = node.kernel.make, True

    async def limited(path: str, *, pid: int | None = None) -> None:
        if is_full and UID in path:
            raise CgroupError("make", path, "", errno.ENOSPC)
        await make(path, pid=pid)

    monkeypatch.setattr(node.kernel, "make", limited)
    async with node.running():
        await eventually(lambda: "FailedSync" in node.reasons() and api.asked >= 2)
        await eventually(lambda: api.cut_off == api.asked)
        assert node.runtime.calls == []
        is_full = False
        api.answers.set()
        await node.until_running()


async def test_nothing_is_left_of_a_pod_that_is_deleted_while_a_token_is_requested(tmp_path: Path) -> None:
    node, api = token_node(tmp_path)
    async with node.running():
        await eventually(lambda: api.asked == 1 and "a" in node.agent.cgroups.paths(UID))
        path = node.agent.cgroups.paths(UID)[""]
        node.api.delete(1, time.time())
        await asyncio.wait_for(node.api.gone.wait(), 30)
        await eventually(lambda: not node.agent.pods.workers)
        assert (api.asked, api.cut_off) == (1, 1)
        assert not [task for task in asyncio.all_tasks() if "prepare" in str(task.get_coro())]
        assert node.runtime.calls == []
        assert node.kernel.read(path, ()) is None
        assert node.agent.cgroups.known() == {}
        assert pods_left(tmp_path) == []
