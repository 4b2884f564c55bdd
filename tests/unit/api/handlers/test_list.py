"""Lists: versions, chunks, tokens (05 B6 resourceVersion, List chunking)."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.handlers import list
from plimsoll.store.records import History
from plimsoll.store.store import Store
from tests.unit.api.api_client import MERGE, PODS, TABLE, ApiClient, api

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def fill(ask: ApiClient, *names: str) -> None:
    for name in names:
        await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": name, "labels": {"k": name[0]}}})


def names(found: Any) -> list[str]:
    return [each["metadata"]["name"] for each in found["items"]]


async def test_a_list_carries_its_version_and_bare_items(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await fill(ask, "b", "a")
        found = await ask.ok("GET", CONFIG_MAPS)
        assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
        assert found["metadata"] == {"resourceVersion": str(ask.app.cluster.store.version)}
        assert names(found) == ["a", "b"]
        assert "kind" not in found["items"][0]
        assert (await ask.ok("GET", "/api/v1/namespaces/nowhere/pods"))["items"] == []


async def test_order_is_by_namespace_then_name(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for namespace in ("kube-system", "default"):
            for name in ("b", "a-b", "a.b", "a"):
                await ask.ok("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": name}})
        found = await ask.ok("GET", "/api/v1/configmaps")
        places = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found["items"]]
        assert places == sorted(places)


async def test_chunks_of_one_snapshot(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await fill(ask, "l0", "l1", "l2", "l3", "l4")
        first = await ask.ok("GET", f"{CONFIG_MAPS}?limit=2")
        assert (names(first), first["metadata"]["remainingItemCount"]) == (["l0", "l1"], 3)
        version, token = first["metadata"]["resourceVersion"], first["metadata"]["continue"]
        decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        assert decoded == {"v": "meta.k8s.io/v1", "rv": int(version), "start": "/l1\0"}
        await ask.ok("DELETE", f"{CONFIG_MAPS}/l3")
        await fill(ask, "l11")
        second = await ask.ok("GET", f"{CONFIG_MAPS}?limit=2&continue={token}")
        assert (names(second), second["metadata"]["remainingItemCount"]) == (["l2", "l3"], 1)
        assert second["metadata"]["resourceVersion"] == version
        rest = await ask.ok("GET", f"{CONFIG_MAPS}?continue={second['metadata']['continue']}")
        assert names(rest) == ["l4"]
        assert rest["metadata"] == {"resourceVersion": version}
        table = await ask.ok("GET", f"{CONFIG_MAPS}?limit=2", accept=TABLE)
        assert (len(table["rows"]), table["metadata"]["remainingItemCount"]) == (2, 3)


async def test_selectors_leave_the_count_open(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await fill(ask, "a1", "b1", "a2", "b2", "a3")
        page = await ask.ok("GET", f"{CONFIG_MAPS}?limit=2&labelSelector=k%3Da")
        assert (names(page), "remainingItemCount" in page["metadata"]) == (["a1", "a2"], False)
        page = await ask.ok("GET", f"{CONFIG_MAPS}?limit=2&labelSelector=k%3Da&continue={page['metadata']['continue']}")
        assert (names(page), "continue" in page["metadata"]) == (["a3"], False)
        assert names(
            await ask.ok("GET", f"{CONFIG_MAPS}?fieldSelector=metadata.name!%3Da1,metadata.name!%3Db1&limit=9")
        ) == ["a2", "a3", "b2"]


@pytest.mark.parametrize(
    ("path", "selector", "found"),
    [
        pytest.param("/api/v1/namespaces/default/configmaps", "metadata.name=a1", ["a1"], id="in a namespace"),
        pytest.param("/api/v1/configmaps", "metadata.name=a1,metadata.namespace=default", ["a1"], id="both named"),
        pytest.param("/api/v1/configmaps", "metadata.name=a1", ["a1"], id="in all namespaces"),
        pytest.param("/api/v1/namespaces/default/configmaps", "metadata.name=nope", [], id="nothing"),
        pytest.param(
            "/api/v1/namespaces/default/configmaps", "metadata.name=a1,metadata.namespace=other", [], id="elsewhere"
        ),
        pytest.param("/api/v1/namespaces", "metadata.name=default", ["default"], id="cluster-wide"),
    ],
)
async def test_one_object_by_its_name(tmp_path: Path, path: str, selector: str, found: list[str]) -> None:
    async with api(tmp_path) as ask:
        await fill(ask, "a1", "a10")
        listed = await ask.ok("GET", f"{path}?fieldSelector={selector.replace('=', '%3D')}&limit=500")
        assert names(listed) == found
        assert listed["metadata"] == {"resourceVersion": str(ask.app.cluster.store.version)}


async def test_versions_of_lists(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await fill(ask, "a", "b")
        then = ask.app.cluster.store.version
        await fill(ask, "c")
        assert len(names(await ask.ok("GET", f"{CONFIG_MAPS}?resourceVersion=0&limit=1"))) == 3
        assert len(names(await ask.ok("GET", f"{CONFIG_MAPS}?resourceVersion={then}"))) == 3
        exact = await ask.ok("GET", f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
        assert (names(exact), exact["metadata"]["resourceVersion"]) == (["a", "b"], str(then))
        assert names(await ask.ok("GET", f"{CONFIG_MAPS}?resourceVersion={then}&limit=1")) == ["a"]
        assert (
            len(
                names(
                    await ask.ok(
                        "GET", f"{CONFIG_MAPS}?resourceVersion={then}&limit=9&resourceVersionMatch=NotOlderThan"
                    )
                )
            )
            == 3
        )


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("resourceVersion=abc", 400, 'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'),
        ("continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIvYVx1MDAwMCJ9&resourceVersion=5", 400, "specifying resource version is not allowed when using continue"),
        ("labelSelector=a b", 400, "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ],
)  # fmt: skip
async def test_refusals(tmp_path: Path, query: str, code: int, message: str) -> None:
    async with api(tmp_path) as ask:
        said = await ask("GET", f"{CONFIG_MAPS}?{query}")
        assert (said.code, said.message) == (code, message)


@pytest.mark.parametrize("token", ["x", "%21", "e30", "eyJ2IjoieCIsInJ2IjoxLCJzdGFydCI6Ii9hIn0", "////"])
async def test_unusable_tokens(tmp_path: Path, token: str) -> None:
    async with api(tmp_path) as ask:
        said = await ask("GET", f"{CONFIG_MAPS}?continue={token}")
        assert said.code == 400
        assert said.message.startswith("invalid continue token: ")


async def test_a_future_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list, "FUTURE_WAIT_S", 0.05)
    async with api(tmp_path) as ask:
        said = await ask("GET", f"{CONFIG_MAPS}?resourceVersion=99999999")
        assert (
            said.message == f"Timeout: Too large resource version: 99999999, current: {ask.app.cluster.store.version}"
        )
        assert (said.code, said.headers["retry-after"]) == (504, "1")
        assert (await ask("GET", f"{PODS}/x?resourceVersion=99999999")).code == 504


async def test_expired_versions_and_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("open", "open_etcd"):
        opened = partial(getattr(Store, name), history=History(events=4))
        monkeypatch.setattr(Store, name, opened)
    async with api(tmp_path) as ask:
        await fill(ask, "a", "b", "c")
        first = await ask.ok("GET", f"{CONFIG_MAPS}?limit=1")
        for number in range(20):
            await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"n": str(number)}}, MERGE)
        said = await ask(
            "GET", f"{CONFIG_MAPS}?resourceVersion={first['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
        )
        assert (said.code, said.json["reason"], said.message) == (
            410,
            "Expired",
            "The resourceVersion for the provided list is too old.",
        )
        said = await ask("GET", f"{CONFIG_MAPS}?limit=1&continue={first['metadata']['continue']}")
        assert (said.code, said.json["reason"]) == (410, "Expired")
        assert said.message.startswith(
            "The provided continue parameter is too old to display a consistent list result. "
        )
        renewed = said.json["metadata"]["continue"]
        assert names(await ask.ok("GET", f"{CONFIG_MAPS}?continue={renewed}")) == ["b", "c"]
