"""Resizes as the API server gets to know of them: each step by itself, and nothing that was made from an older spec."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.api.server.in_process import InProcess, control_plane_user
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiResponse, Request
from plimsoll.node.reporting.status_manager import Reporter, StoredVersion
from tests.unit.api.api_client import PODS, STRATEGIC, ApiClient, api

Document = dict[str, Any]
WAIT_S = 10.0


class Wire:
    """To the real API server; keeps the answers to status patches, and can hold a patch back."""

    def __init__(self, inner: InProcess) -> None:
        self._inner = inner
        self.sent: list[tuple[int, Document, str]] = []  # code, status in the patch, version it names
        self.goes = asyncio.Event()
        self.goes.set()
        self.has_come, self.answered = asyncio.Event(), asyncio.Event()

    async def send(self, request: Request) -> ApiResponse:
        if request.method != "PATCH":
            return await self._inner.send(request)
        self.has_come.set()
        await self.goes.wait()
        answer = await self._inner.send(request)
        body = msgspec.json.decode(request.body)
        self.sent.append((answer.status, body["status"], body["metadata"].get("resourceVersion", "")))
        self.answered.set()
        return answer

    def lines(self, request: Request) -> Any:
        return self._inner.lines(request)


class StatusSender:
    def __init__(self, ask: ApiClient, wire: Wire, reporter: Reporter) -> None:
        self.ask, self.wire, self.reporter = ask, wire, reporter

    async def stored(self) -> Document:
        found: Document = await self.ask.ok("GET", f"{PODS}/web")
        return found

    async def report(self, made_from: Document, status: Document, *, must_be_seen: bool = False) -> None:
        meta = made_from["metadata"]
        version = StoredVersion(meta["resourceVersion"], meta["generation"])
        known = made_from["status"]
        self.reporter.report(
            meta["uid"], "default", "web", known, {**known, **status}, version, must_be_seen=must_be_seen
        )

    def observe(self, document: Document) -> None:
        meta = document["metadata"]
        version = StoredVersion(meta["resourceVersion"], meta["generation"])
        self.reporter.observe(meta["uid"], document["status"], version)

    async def resize(self, cpu: str) -> Document:
        change = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
        found: Document = await self.ask.ok("PATCH", f"{PODS}/web", change, STRATEGIC)
        return found


@contextlib.asynccontextmanager
async def sending(directory: Path) -> AsyncIterator[StatusSender]:
    async with api(directory, "documents") as ask:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web"},
            "spec": {"containers": [container], "nodeName": "n1"},
        }
        await ask.ok("POST", PODS, pod)
        wire = Wire(InProcess(ask.app, control_plane_user("node")))
        reporter = Reporter(Client(wire), versioned=True)
        task = asyncio.create_task(reporter.run())
        try:
            yield StatusSender(ask, wire, reporter)
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_a_status_that_must_be_seen_is_sent_by_itself(tmp_path: Path) -> None:
    async with sending(tmp_path) as sender:
        made_from = await sender.resize("2")
        await sender.report(made_from, {"resize": "InProgress"}, must_be_seen=True)
        await sender.report(made_from, {"resize": "Deferred"})  # never sent: a newer one follows at once
        await sender.report(made_from, {"resize": "Infeasible"})
        await sender.reporter.drained(WAIT_S)
        assert [(code, status) for code, status, _ in sender.wire.sent] == [
            (200, {"resize": "InProgress"}),
            (200, {"resize": "Infeasible"}),
        ]
        # The second names the version that the first has made.
        assert sender.wire.sent[0][2] == made_from["metadata"]["resourceVersion"] != sender.wire.sent[1][2]


async def test_what_was_made_from_an_older_spec_is_refused_and_dropped(tmp_path: Path) -> None:
    async with sending(tmp_path) as sender:
        older = await sender.resize("2")
        sender.wire.goes.clear()
        await sender.report(older, {"resize": "InProgress"})
        await asyncio.wait_for(sender.wire.has_come.wait(), WAIT_S)
        newer = await sender.resize("3")
        sender.wire.goes.set()
        await sender.reporter.drained(WAIT_S)
        assert [code for code, _, _ in sender.wire.sent] == [409]
        assert (await sender.stored())["status"]["resize"] == "Proposed"
        await sender.report(newer, {"resize": "Deferred"})
        await sender.reporter.drained(WAIT_S)
        assert (await sender.stored())["status"]["resize"] == "Deferred"


async def test_a_valid_status_is_sent_again_with_the_new_version(tmp_path: Path) -> None:
    """A client has set a label meanwhile: the spec is the same, so the status is."""
    async with sending(tmp_path) as sender:
        made_from = await sender.resize("2")
        sender.wire.goes.clear()
        await sender.report(made_from, {"resize": "InProgress"})
        await asyncio.wait_for(sender.wire.has_come.wait(), WAIT_S)
        await sender.ask.ok("PATCH", f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC)
        sender.wire.goes.set()
        await sender.reporter.drained(WAIT_S)
        assert [code for code, _, _ in sender.wire.sent] == [409, 200]
        assert (await sender.stored())["status"]["resize"] == "InProgress"


async def test_a_status_that_is_not_about_a_resize_names_no_version(tmp_path: Path) -> None:
    async with sending(tmp_path) as sender:
        await sender.report(await sender.stored(), {"message": "hello"})
        await sender.reporter.drained(WAIT_S)
        assert sender.wire.sent == [(200, {"message": "hello"}, "")]


async def test_a_resize_that_comes_before_a_status_of_the_older_spec(tmp_path: Path) -> None:
    """That patch names no version, and its answer has `resize`, which the next status removes."""
    async with sending(tmp_path) as sender:
        older = await sender.stored()
        sender.wire.goes.clear()
        await sender.report(older, {"message": "back-off"})
        await asyncio.wait_for(sender.wire.has_come.wait(), WAIT_S)
        newer = await sender.resize("2")
        assert newer["status"]["resize"] == "Proposed"
        done = {**newer, "status": {key: each for key, each in newer["status"].items() if key != "resize"}}
        await sender.report(done, {})
        sender.wire.goes.set()
        await sender.reporter.drained(WAIT_S)
        assert [status for _, status, _ in sender.wire.sent][-1]["resize"] is None
        assert "resize" not in (await sender.stored())["status"]


async def test_a_change_of_another_client_while_a_status_is_sent(tmp_path: Path) -> None:
    """The document that shows it comes before the answer to the patch."""
    async with sending(tmp_path) as sender:
        made_from = await sender.stored()
        await sender.report(made_from, {"message": "one"})
        await sender.reporter.drained(WAIT_S)
        sender.wire.goes.clear()
        sender.wire.has_come.clear()
        sender.wire.answered.clear()
        await sender.report(await sender.stored(), {"message": "one", "reason": "two"})
        await asyncio.wait_for(sender.wire.has_come.wait(), WAIT_S)
        foreign = {"status": {"message": "of another"}}
        changed = await sender.ask.ok("PATCH", f"{PODS}/web/status", foreign, STRATEGIC)
        sender.observe(changed)
        sender.wire.goes.set()
        await asyncio.wait_for(sender.wire.answered.wait(), WAIT_S)
        sender.observe(await sender.stored())
        await sender.reporter.drained(WAIT_S)
        status = (await sender.stored())["status"]
        assert (status["message"], status["reason"]) == ("one", "two")
