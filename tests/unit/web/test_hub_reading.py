"""What an API server asks a node for while a dashboard is open: a real endpoint on loopback, whose figures are played."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.api.nodeproxy.client import NodeCalls
from plimsoll.codec.live_page import Frame
from plimsoll.web.hub import FLEET_S, Hub, Tab
from plimsoll.web.objects import ObjectsShown
from tests.unit.api.api_client import MERGE, PODS, ApiClient, api, pod
from tests.unit.node.endpoint_world import NODE, running_world

NODES = "/api/v1/nodes"


class Watching:
    """A hub with one tab on the node. `next_s`: what the node says of its next figures."""

    def __init__(self, hub: Hub, client: ApiClient) -> None:
        self.hub, self.client, self.next_s = hub, client, 0.0
        self.asked: list[Mapping[str, Sequence[str]]] = []
        self.parts = 0  # how often it was asked for only its own figures
        self.tab = Tab(NODE)
        hub._tabs.add(self.tab)

    async def live(self, query: Mapping[str, Sequence[str]]) -> bytes:
        if "part" in query:
            self.parts += 1
            return msgspec.json.encode({"name": NODE})
        self.asked.append(query)
        count = len(self.asked)
        frame = Frame("run", count, float(count), count - 1, node={"name": NODE, "usage": count}, next_s=self.next_s)
        return msgspec.json.encode(frame)

    async def tick(self) -> list[dict[str, Any]]:
        """What the tab gets of it."""
        await self.hub._tick(self.client.app)
        return [json.loads(line) for line in self.tab.taken().splitlines()]


@pytest.fixture
async def watching(tmp_path: Path) -> AsyncIterator[Watching]:
    (tmp_path / "node").mkdir()
    async with running_world(tmp_path / "node") as world, api(tmp_path / "state") as client:
        calls = NodeCalls(world.authority)
        found = Watching(Hub(calls), client)
        world.endpoint._pages = msgspec.structs.replace(world.endpoint._pages, asked={"live": found.live})
        await client.ok("POST", NODES, {"metadata": {"name": NODE}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": world.port}},
        }
        await client.ok("PATCH", f"{NODES}/{NODE}/status", {"status": status}, MERGE)
        yield found
        await calls.close()


async def test_a_node_is_read_when_it_has_something_new(watching: Watching) -> None:
    for _ in range(3):
        await watching.tick()
    assert [query.get("since") for query in watching.asked] == [None, ["1"], ["2"]], "it says nothing about that"
    watching.next_s = 20.0
    for _ in range(5):
        await watching.tick()
    assert len(watching.asked) == 4, "the fourth answer says that the fifth comes later"


async def test_what_is_shown_of_a_node_is_not_asked_for_twice(watching: Watching) -> None:
    await watching.tick()
    watching.parts, watching.next_s = 0, 20.0
    await watching.tick()
    watching.client.now_s += FLEET_S
    (fleet,) = await watching.tick()
    assert (fleet["topic"], fleet["data"]["nodes"]) == ("fleet", {NODE: {"name": NODE, "usage": 2, "at": 2.0}})
    assert watching.parts == 0


async def test_objects_are_listed_where_they_have_changed(tmp_path: Path) -> None:
    async with api(tmp_path) as client:
        cluster, shown = client.app.cluster, ObjectsShown()
        shown.delta(cluster)
        assert shown.delta(cluster) is None
        await client.ok("POST", PODS, pod("web"))
        delta = shown.delta(cluster) or {}
        assert [each["name"] for each in delta.pop("pods").values()] == ["web"]
        assert delta == {}
        await client.ok("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
        assert shown.delta(cluster) is None
        await client.ok("DELETE", f"{PODS}/web")
        delta = shown.delta(cluster) or {}
        assert [len(delta[kind]) for kind in ("podsGone",)] == [1]
