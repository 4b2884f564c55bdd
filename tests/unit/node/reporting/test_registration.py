"""A node's presence, against a whole API server in this process, as the user that a node is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.api.machinery.users import AUTHENTICATED, NODES, User
from plimsoll.api.server.in_process import InProcess
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiResponse, Request, UnreachableError
from plimsoll.node.reporting import registration
from plimsoll.node.reporting.registration import Registration
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.node.node_object import (
    DECLARED_CAPACITY,
    HandlerReport,
    ImageOnNode,
    MachineIdentity,
    NodeFacts,
    NodeHealth,
    RuntimeReport,
)
from plimsoll.rules.profile import profile_named
from tests.unit.api.api_client import ApiClient, api

NODE, LEASE = "/api/v1/nodes/n1", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
FACTS = NodeFacts("n1", "n1", "127.0.0.1", 10250, MachineIdentity("m"), "process://1", "v1.27.0+plimsoll.1")


def the_setting(profile: str, cores: int = 4, cgroup_version: CgroupVersion = 2) -> NodeConfig:
    named = profile_named(profile)
    return resolved(Machine(cores, 8 << 30, {}), default_config(named), named, cgroup_version=cgroup_version)


class Recorded:
    """A transport that remembers what it was asked, and can be cut off."""

    def __init__(self, inner: InProcess) -> None:
        self._inner = inner
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.cut = False
        self.refused = 0

    async def send(self, request: Request) -> ApiResponse:
        if self.cut:
            self.refused += 1
            raise UnreachableError("https://there: connection refused")
        self.asked.append((request.method, request.path))
        self.bodies.append(msgspec.json.decode(request.body) if request.body else None)
        return await self._inner.send(request)

    def lines(self, request: Request) -> Any:
        return self._inner.lines(request)


class Present:
    """One node that registers itself, and what is around it."""

    def __init__(self, ask: ApiClient, profile: str, facts: NodeFacts) -> None:
        self.ask = ask
        user = User(f"system:node:{facts.name}", frozenset({NODES, AUTHENTICATED}))
        self.wire = Recorded(InProcess(ask.app, user))
        self.health = NodeHealth()
        self.events: list[tuple[str, str, str]] = []
        self.node = Registration(
            Client(self.wire),
            facts,
            the_setting(profile),
            lambda: self.health,
            lambda *event: self.events.append(event),
            clock=lambda: ask.now_s,
        )

    def reasons(self) -> list[str]:
        reasons, self.events = [each[1] for each in self.events], []
        return reasons

    async def status(self) -> Any:
        return (await self.ask.ok("GET", NODE))["status"]

    async def has_lease(self) -> bool:
        return (await self.ask("GET", LEASE)).code == 200

    async def is_pressed(self) -> bool:
        return bool((await self.condition("MemoryPressure"))["status"] == "True")

    async def wire_refused(self, times: int) -> None:
        before = self.wire.refused

        async def often_enough() -> bool:
            return self.wire.refused >= before + times

        await self.eventually(often_enough)

    @staticmethod
    async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
        while True:
            if await check():
                return
            await asyncio.sleep(0.005)

    async def condition(self, kind: str) -> Any:
        return next(each for each in (await self.status())["conditions"] if each["type"] == kind)


@asynccontextmanager
async def present(tmp_path: Path, profile: str = "documents", facts: NodeFacts = FACTS) -> AsyncIterator[Present]:
    async with api(tmp_path, profile) as ask:
        yield Present(ask, profile, facts)


@pytest.mark.parametrize("profile", ["documents", "1.36"])
async def test_first_registration(tmp_path: Path, profile: str) -> None:
    async with present(tmp_path, profile) as here:
        await here.node.register()
        node = await here.ask.ok("GET", NODE)
        assert node["status"]["capacity"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}
        assert node["status"]["allocatable"]["memory"] == "8092Mi"
        assert here.node.uid == node["metadata"]["uid"]
        assert here.wire.asked == [("POST", "/api/v1/nodes")]
        assert here.reasons() == ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"]  # fmt: skip
        assert here.node.registered.is_set()


async def test_an_existing_node_gets_missing_labels(tmp_path: Path) -> None:
    async with present(tmp_path) as here:
        old = {"metadata": {"name": "n1", "labels": {"mine": "stays"}, "annotations": {DECLARED_CAPACITY: "cpu=1"}}}
        await here.ask.ok("POST", "/api/v1/nodes", {**old, "status": {"capacity": {"cpu": "1", "x/gpu": "1"}}})
        await here.node.register()
        node = await here.ask.ok("GET", NODE)
        assert node["metadata"]["labels"] | {"mine": "stays", "kubernetes.io/os": "linux"} == node["metadata"]["labels"]
        assert DECLARED_CAPACITY not in node["metadata"]["annotations"]
        assert node["status"]["capacity"] == {"cpu": "4", "memory": "8Gi", "pods": "110", "x/gpu": "1"}
        methods = [method for method, _ in here.wire.asked]
        assert methods == ["POST", "GET", "PATCH", "PATCH"]
        assert here.wire.asked[-1] == ("PATCH", f"{NODE}/status")


async def test_a_restart_reports_pressure_again_and_readiness_only_when_lost(tmp_path: Path) -> None:
    async with present(tmp_path) as here:
        await here.node.register()
        here.reasons()
        await here.node.register()
        assert here.reasons() == ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]


async def test_status_is_sent_when_it_has_changed(tmp_path: Path) -> None:
    async with present(tmp_path) as here:
        await here.node.register()
        here.reasons()
        here.ask.now_s += 10
        assert not await here.node.report(), "only heartbeats differ"
        here.health = NodeHealth(frozenset({"MemoryPressure"}))
        assert await here.node.report()
        found = await here.condition("MemoryPressure")
        assert (found["status"], found["lastTransitionTime"]) == ("True", "2026-11-16T00:00:10Z")
        assert (await here.condition("Ready"))["lastTransitionTime"] == "2026-11-16T00:00:00Z"
        assert here.reasons() == ["NodeHasInsufficientMemory"]
        here.ask.now_s += 299
        assert not await here.node.report()
        here.ask.now_s += 1
        assert await here.node.report(), "five minutes have passed"
        assert (await here.condition("Ready"))["lastHeartbeatTime"] == "2026-11-16T00:05:10Z"
        assert here.reasons() == []
        sent = here.wire.bodies[-1]["status"]
        assert sent.keys() == {"conditions", "$setElementOrder/conditions"}


@pytest.mark.parametrize("profile", ["documents", "1.33", "1.36", "1.37"])
async def test_a_status_is_stored_as_it_is_sent(tmp_path: Path, profile: str) -> None:
    """Otherwise it seems to have changed, and is sent again every ten seconds."""
    handlers = (HandlerReport("", True, True), HandlerReport("crun"), HandlerReport("runc", False, True))
    async with present(tmp_path, profile) as here:
        here.health = NodeHealth(
            images=(ImageOnNode(("a:1", "b:1"), 7), ImageOnNode((), 0)),
            warnings={"Enforced": "limits have no effect"},
            runtime=RuntimeReport("process://1", False, handlers),
            devices={"example.com/dongle": (2, 0)},
        )
        await here.node.register()
        await here.node.report()
        here.ask.now_s += 10
        assert not await here.node.report(), here.wire.bodies[-1]


async def test_a_condition_set_by_the_control_plane_is_corrected(tmp_path: Path) -> None:
    """The node was silent and became Unknown: the next report corrects that at once."""
    async with present(tmp_path) as here:
        await here.node.register()
        here.reasons()
        unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
        await here.ask.ok("PATCH", f"{NODE}/status", unknown, "application/strategic-merge-patch+json")
        assert await here.node.report()
        assert (await here.condition("Ready"))["status"] == "True"
        assert here.reasons() == ["NodeReady"]


async def test_the_node_for_admission(tmp_path: Path) -> None:
    async with present(tmp_path) as here:
        assert here.node.node().status.allocatable == here.node.setting.allocatable
        await here.node.register()
        taint = {"key": "a", "effect": "NoExecute"}
        await here.ask.ok("PATCH", NODE, {"spec": {"taints": [taint]}}, "application/merge-patch+json")
        await here.node.report()
        assert [each.key for each in here.node.node().spec.taints] == ["a"]
        assert here.node.node().metadata.labels["kubernetes.io/os"] == "linux"


async def test_a_deleted_node_comes_back(tmp_path: Path) -> None:
    async with present(tmp_path) as here:
        await here.node.register()
        first = here.node.uid
        assert (await here.ask("DELETE", NODE)).code == 200
        assert await here.node.report()
        assert here.node.uid != first
        assert (await here.ask.ok("GET", NODE))["metadata"]["uid"] == here.node.uid


async def test_the_lease(tmp_path: Path) -> None:
    async with present(tmp_path) as here:
        await here.node.register()
        await here.node.renew()
        first = await here.ask.ok("GET", LEASE)
        assert first["spec"]["renewTime"] == "2026-11-16T00:00:00.000000Z"
        assert first["metadata"]["ownerReferences"][0]["uid"] == here.node.uid
        here.ask.now_s += 10.25
        await here.node.renew()
        second = await here.ask.ok("GET", LEASE)
        assert second["spec"] == {
            "holderIdentity": "n1",
            "leaseDurationSeconds": 40,
            "renewTime": "2026-11-16T00:00:10.250000Z",
        }
        assert [method for method, path in here.wire.asked if "leases" in path] == ["GET", "POST", "PUT"]


async def test_a_lease_that_was_changed_or_deleted(tmp_path: Path) -> None:
    async with present(tmp_path) as here:
        await here.node.register()
        await here.node.renew()
        touched = await here.ask.ok("GET", LEASE)
        await here.ask.ok("PUT", LEASE, touched | {"spec": {**touched["spec"], "leaseTransitions": 1}})
        with pytest.raises(registration.RETRIED):
            await here.node.renew()
        await here.node.renew()
        assert (await here.ask.ok("GET", LEASE))["spec"]["leaseTransitions"] == 1
        await here.ask("DELETE", LEASE)
        with pytest.raises(registration.RETRIED):
            await here.node.renew()
        await here.node.renew()
        assert (await here.ask("GET", LEASE)).code == 200


async def test_run_survives_an_api_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off at first, and once more later; pressure is reported at once on request."""
    monkeypatch.setattr(registration, "RETRY_FIRST_S", 0.01)
    declared = msgspec.structs.replace(FACTS, declared_capacity="cpu=8,memory=4Gi")
    async with present(tmp_path, facts=declared) as here:
        here.wire.cut = True
        running = asyncio.create_task(here.node.run())
        try:
            async with asyncio.timeout(10):
                await here.wire_refused(2)
                assert not here.node.registered.is_set()
                here.wire.cut = False
                await here.node.registered.wait()
                await here.eventually(here.has_lease)
                here.wire.cut = True
                here.health = NodeHealth(frozenset({"MemoryPressure"}))
                here.node.report_soon()
                await here.wire_refused(2)
                here.wire.cut = False
                await here.eventually(here.is_pressed)
        finally:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert here.reasons()[:2] == ["Starting", "DeclaredCapacity"]
        node = await here.ask.ok("GET", NODE)
        assert node["metadata"]["annotations"][DECLARED_CAPACITY] == "cpu=8,memory=4Gi"


@pytest.mark.parametrize(
    ("profile", "cgroup_version", "words"),
    [
        ("documents", 1, ""),
        ("1.34", 1, "cgroup v1 support is in maintenance mode, please migrate to cgroup v2"),
        ("1.37", 1, "cgroup v1 support is deprecated and will be removed in a future release"),
        ("1.37", 2, ""),
    ],
)
async def test_a_start_on_cgroup_v1(
    tmp_path: Path, profile: str, cgroup_version: CgroupVersion, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with present(tmp_path, profile) as here:
        here.node.setting = the_setting(profile, cgroup_version=cgroup_version)
        running = asyncio.create_task(here.node.run())
        try:
            async with asyncio.timeout(10):
                await here.node.registered.wait()
        finally:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        said = [text for kind, reason, text in here.events if (kind, reason) == ("Warning", "CgroupV1")]
        assert len(said) == bool(words)
        assert all(words in text and text in caplog.text for text in said)


async def test_another_node_may_not_be_registered(tmp_path: Path) -> None:
    async with present(tmp_path, facts=msgspec.structs.replace(FACTS, name="n1")) as here:
        here.node.facts = msgspec.structs.replace(FACTS, name="n2")
        with pytest.raises(registration.RETRIED, match="is not allowed to modify node"):
            await here.node.register()
