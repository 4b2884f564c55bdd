"""Watches: order, selectors, bookmarks, initial events, Tables, ends (05 B6 Watch protocol, 06 E4)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.handlers import watch as watch_handler
from plimsoll.api.machinery.shared_lines import SharedLines
from plimsoll.store.records import History
from plimsoll.store.store import Store
from tests.unit.api.api_client import MERGE, PODS, TABLE, ApiClient, api, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def make(ask: ApiClient, name: str, label: str = "1") -> Any:
    return await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": name, "labels": {"k": label}}})


def relabel(value: str) -> Any:
    return {"metadata": {"labels": {"k": value}}}


async def test_a_watch_without_a_version_starts_with_the_existing_objects(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await make(ask, "a")
        for version in ("", "&resourceVersion=0"):
            async with ask.watching(f"{CONFIG_MAPS}?watch=1{version}") as watch:
                assert await watch.shown(1) == [("ADDED", "a")]
                assert watch.code == 200
                await make(ask, "b")
                event = await watch.event()
                assert (event["type"], event["object"]["kind"], event["object"]["apiVersion"]) == (
                    "ADDED",
                    "ConfigMap",
                    "v1",
                )
                await ask.ok("DELETE", f"{CONFIG_MAPS}/b")
                assert await watch.shown(1) == [("DELETED", "b")]


async def test_a_watch_from_a_list_misses_nothing(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        version = (await ask.ok("GET", CONFIG_MAPS))["metadata"]["resourceVersion"]
        await make(ask, "a")
        await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}, MERGE)
        async with ask.watching(f"{CONFIG_MAPS}?watch=true&resourceVersion={version}") as watch:
            assert await watch.shown(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        async with ask.watching(f"/api/v1/watch/namespaces/default/configmaps/a?resourceVersion={version}") as watch:
            assert await watch.shown(2) == [("ADDED", "a"), ("MODIFIED", "a")]


async def test_objects_that_start_and_stop_to_match(tmp_path: Path) -> None:
    """06 E4: the last matching state with the new version."""
    async with api(tmp_path) as ask:
        made = await make(ask, "a", "1")
        version = made["metadata"]["resourceVersion"]
        async with ask.watching(f"{CONFIG_MAPS}?watch=1&labelSelector=k%3D1&resourceVersion={version}") as watch:
            changed = await ask.ok("PATCH", f"{CONFIG_MAPS}/a", relabel("2"), MERGE)
            event = await watch.event()
            assert (event["type"], event["object"]["metadata"]["labels"]) == ("DELETED", {"k": "1"})
            assert event["object"]["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
            await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}, MERGE)  # nothing to this watcher
            await ask.ok("PATCH", f"{CONFIG_MAPS}/a", relabel("1"), MERGE)
            await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "2"}}, MERGE)
            await ask.ok("DELETE", f"{CONFIG_MAPS}/a")
            assert await watch.shown(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_pods_of_a_node(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod("other", nodeName="n2"))
        async with ask.watching("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1") as watch:
            await ask.ok("POST", PODS, pod())
            await ask.ok(
                "POST", f"{PODS}/demo/binding", {"metadata": {"name": "demo"}, "target": {"kind": "Node", "name": "n1"}}
            )
            assert await watch.shown(1) == [("ADDED", "demo")]


async def test_initial_events_and_their_end(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod("w2"))
        query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with ask.watching(f"{PODS}?{query}") as watch:
            first, mark = await watch.events(2)
            assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "w2")
            version = str(ask.app.cluster.store.version)
            assert mark == {
                "type": "BOOKMARK",
                "object": {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}},
                    "spec": {"containers": None},
                    "status": {},
                },
            }
            await ask.ok("POST", PODS, pod("w3"))
            assert await watch.shown(1) == [("ADDED", "w3")]
        async with ask.watching(f"{PODS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan") as watch:
            await ask.ok("POST", PODS, pod("w4"))
            assert await watch.shown(1) == [("ADDED", "w4")]


async def test_periodic_bookmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_handler, "BOOKMARK_EVERY_S", 0.05)
    query = "watch=1&allowWatchBookmarks=true&resourceVersion=0"
    async with api(tmp_path) as ask, ask.watching(f"{CONFIG_MAPS}?{query}") as watch:
        await ask.ok("POST", PODS, pod())  # of another kind: the bookmark says that it was seen
        version = ask.app.cluster.store.version
        async with asyncio.timeout(60):
            while True:
                event = await watch.event()
                assert event["type"] == "BOOKMARK"
                if event["object"] == {
                    "kind": "ConfigMap",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": str(version)},
                }:
                    break


async def test_a_watch_ends_after_its_time_with_a_bookmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_handler, "LAST_BOOKMARK_S", 0.9)
    query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=1"
    async with api(tmp_path) as ask, ask.watching(f"{CONFIG_MAPS}?{query}") as watch:
        assert (await watch.event())["type"] == "BOOKMARK"
        assert await watch.event() is None
        assert watch.ended


async def test_an_expired_version_is_an_event_not_a_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Store.open
    monkeypatch.setattr(Store, "open", lambda path, **more: opened(path, history=History(events=4), **more))
    async with api(tmp_path) as ask:
        await make(ask, "a")
        for number in range(20):
            await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"n": str(number)}}, MERGE)
        oldest = ask.app.cluster.store.oldest
        async with ask.watching(f"{CONFIG_MAPS}?watch=1&resourceVersion=2", accept=TABLE) as watch:
            event = await watch.event()
            assert event == {
                "type": "ERROR",
                "object": {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Failure",
                    "message": f"too old resource version: 2 ({oldest})",
                    "reason": "Expired",
                    "code": 410,
                },
            }
            assert (watch.code, await watch.event()) == (200, None)


async def test_a_table_watch_sends_its_columns_once(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await make(ask, "a")
        async with ask.watching(f"{CONFIG_MAPS}?watch=1", accept=TABLE) as watch:
            first = (await watch.event())["object"]
            assert (first["kind"], len(first["columnDefinitions"])) == ("Table", 3)
            changed = await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}, MERGE)
            second = (await watch.event())["object"]
            assert second["columnDefinitions"] is None
            assert second["metadata"] == {"resourceVersion": changed["metadata"]["resourceVersion"]}
            assert second["rows"][0]["cells"][:2] == ["a", 1]


async def test_bad_watches_are_refused_before_they_start(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        assert (await ask("GET", f"{PODS}?watch=1&fieldSelector=foo%3Dbar")).code == 400
        said = await ask("GET", f"{PODS}?watch=1&resourceVersion=abc")
        assert (said.code, "reason" in said.json) == (500, False)


async def test_a_watch_from_a_future_version_waits(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        after = ask.app.cluster.store.version + 1
        async with ask.watching(f"{CONFIG_MAPS}?watch=1&resourceVersion={after + 5}") as watch:
            for name in "abcdefgh":
                await make(ask, name)
            event = await watch.event()
            assert int(event["object"]["metadata"]["resourceVersion"]) > after + 5


async def test_a_change_is_encoded_once_for_all_watchers(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        async with (
            ask.watching(f"{PODS}?watch=1") as one,
            ask.watching("/api/v1/pods?watch=1&labelSelector=!x") as other,
        ):
            await ask.ok("POST", PODS, pod())
            assert await one.events(1) == await other.events(1)
        (change,) = ask.app.cluster.store._feeds.of("/pods/").changes
        assert len(change.shared.lines) == 1


async def test_a_table_is_made_once_for_all_watchers(tmp_path: Path) -> None:
    """Of a change of a large object: for 250 watchers it was decoded 250 times."""
    async with api(tmp_path) as ask:
        await make(ask, "a")
        path = f"{CONFIG_MAPS}?watch=1"
        async with (
            ask.watching(path, accept=TABLE) as one,
            ask.watching(path, accept=TABLE) as other,
            ask.watching(f"{path}&includeObject=None", accept=TABLE) as bare,
        ):
            assert await one.events(1) == await other.events(1)
            await bare.events(1)
            await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}, MERGE)
            assert await one.events(1) == await other.events(1)
            assert (await bare.event())["object"]["rows"][0]["object"] is None
        change = ask.app.cluster.store._feeds.of("/configmaps/").changes[-1]
        assert len(change.shared.lines) == 2


async def test_lines_for_other_watchers_take_bounded_memory(tmp_path: Path) -> None:
    """Hundreds of large objects were kept, each once or more."""
    async with api(tmp_path) as ask:
        cluster = ask.app.cluster
        cluster.shared_lines = SharedLines(100_000)
        await make(ask, "a")
        async with ask.watching(f"{CONFIG_MAPS}?watch=1&resourceVersion={cluster.store.version}") as watch:
            for number in range(10):
                await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": f"{number}" * 30_000}}, MERGE)
                await watch.event()
        changes = cluster.store._feeds.of("/configmaps/").changes
        kept = [sum(map(len, change.shared.lines.values())) for change in changes if change.shared is not None]
        assert 30_000 < sum(kept) <= 100_000
        assert kept[-1] > 30_000


async def test_watchers_are_counted_and_removed(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod())
        async with ask.watching(f"{PODS}?watch=1") as watch:
            await watch.event()
            assert ask.app.meter.watchers == {"pods": 1}
        assert ask.app.meter.watchers == {"pods": 0}
        assert ask.app.meter.in_flight == 0
