"""Static pods from a directory and what the API shows of them, without a node around: sources, changes, mirrors."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.codec.manifests.static_pods import StaticPod, static_pods
from plimsoll.kube.client import Client
from plimsoll.kube.reflector import ObjectChange
from plimsoll.kube.request import UnreachableError
from plimsoll.node.sources.mirror_pods import MirrorPods
from plimsoll.node.sources.static_pods import StaticPods
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.config.parse import reading
from plimsoll.rules.profile import DEFAULT_PROFILE
from tests.pods_api import PodsApi
from tests.unit.codec.manifests.test_static_pods import SEEN, manifest

WAIT_S = 10.0


def config(path: Path) -> KubeletConfig:
    return reading(None, DEFAULT_PROFILE, {"staticPodPath": [str(path)]}).config


async def eventually(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if check():
                return
            await asyncio.sleep(0.02)


class Source:
    def __init__(self, path: Path) -> None:
        self.changes: list[tuple[str, str]] = []
        self.wrong: list[str] = []
        self.static = StaticPods(config(path), "n1", self._take, lambda: 0.0, self.wrong.append)

    def _take(self, changes: list[ObjectChange]) -> None:
        self.changes += [(each.kind, each.key[1]) for each in changes]


@contextlib.asynccontextmanager
async def watched(path: Path) -> AsyncIterator[Source]:
    source = Source(path)
    await source.static.begin()
    task = asyncio.create_task(source.static.run())
    try:
        yield source
    finally:
        task.cancel()
        await asyncio.wait([task])


def put(file: Path, name: str = "web", **spec: Any) -> None:
    file.write_text(json.dumps(manifest(name, **spec)))


async def test_files_come_change_and_go(tmp_path: Path) -> None:
    put(tmp_path / "a.yaml", "a")
    async with watched(tmp_path) as source:
        assert source.changes == [("ADDED", "a-n1")], "known before anything else is done"
        put(tmp_path / "b.json", "b")
        await eventually(lambda: len(source.changes) == 2)
        put(tmp_path / "a.yaml", "a", hostNetwork=True)
        await eventually(lambda: len(source.changes) == 4)
        (tmp_path / "b.json").rename(tmp_path / ".b.json")
        await eventually(lambda: len(source.changes) == 5)
        assert source.changes[1:] == [
            ("ADDED", "b-n1"),
            ("DELETED", "a-n1"),
            ("ADDED", "a-n1"),
            ("DELETED", "b-n1"),
        ]
        assert source.wrong == []


async def test_a_manifest_written_in_pieces_is_one(tmp_path: Path) -> None:
    """Its first half would be a pod of its own."""
    async with watched(tmp_path) as source:
        with (tmp_path / "web.yaml").open("w") as file:
            file.write("kind: Pod\napiVersion: v1\nmetadata: {name: web}\nspec:\n  containers:\n")
            for name in ("a", "b", "c"):
                file.write(f"  - {{name: {name}, image: x}}\n")
                file.flush()
                await asyncio.sleep(0.03)
        await eventually(lambda: source.changes)
        assert source.changes == [("ADDED", "web-n1")]
        (pod,) = source.static.pods.values()
        assert [each["name"] for each in pod.document["spec"]["containers"]] == ["a", "b", "c"]


async def test_a_file_may_be_the_path_and_be_replaced(tmp_path: Path) -> None:
    put(tmp_path / "one.yaml", "one")
    put(tmp_path / "two.yaml", "two")
    async with watched(tmp_path / "one.yaml") as source:
        assert list(source.static.pods) == [("default", "one-n1")]
        put(tmp_path / "fresh", "new")
        (tmp_path / "fresh").rename(tmp_path / "one.yaml")
        await eventually(lambda: list(source.static.pods) == [("default", "new-n1")])


async def test_an_error_is_reported_once_and_other_manifests_are_read(tmp_path: Path) -> None:
    put(tmp_path / "a.yaml", "same")
    put(tmp_path / "b.yaml", "same", hostNetwork=True)
    (tmp_path / "c.yaml").write_text("kind: [")
    (tmp_path / "deep").mkdir()
    async with watched(tmp_path) as source:
        assert source.changes == [("ADDED", "same-n1")]
        assert len(source.wrong) == 2 and "a.yaml already has a pod default/same-n1" in " ".join(source.wrong)
        put(tmp_path / "d.yaml", "d")
        await eventually(lambda: len(source.changes) == 2)
        assert len(source.wrong) == 2
        (tmp_path / "d.yaml").write_text("kind: {")
        await eventually(lambda: len(source.wrong) == 3)
        assert ("default", "d-n1") in source.static.pods, "what it was before goes on"


async def test_a_directory_that_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "manifests"
    async with watched(path) as source:
        assert source.wrong == [f"{path} does not exist"]
        path.mkdir()
        put(path / "a.yaml", "a")
        await eventually(lambda: source.changes == [("ADDED", "a-n1")])


# --- mirrors ---


class Api(PodsApi):
    away = False

    async def send(self, request: Any) -> Any:
        if self.away:
            raise UnreachableError("no API")
        return await super().send(request)


class Mirrors:
    def __init__(self) -> None:
        self.api = Api()
        self.static: dict[tuple[str, str], StaticPod] = {}
        self.running: set[tuple[str, str]] = set()
        self.node_uid = "node-uid"
        self.node_uid_reads = 0
        self.mirrors = MirrorPods(Client(self.api), lambda: self.static, self.running.__contains__, self._read_node_uid)
        self.others: list[str] = []

    def _read_node_uid(self) -> str:
        self.node_uid_reads += 1
        return self.node_uid

    def want(self, name: str, **spec: Any) -> StaticPod:
        data = json.dumps(manifest(name, **spec)).encode()
        (pod,) = static_pods(data, f"/{name}", "file", "n1", SEEN)
        self.static = {**self.static, pod.key: pod}
        self.mirrors.wake()
        return pod

    def hashes(self) -> dict[str, str]:
        return {
            name: each["metadata"]["annotations"]["kubernetes.io/config.mirror"] for name, each in self.api.pods.items()
        }

    @contextlib.asynccontextmanager
    async def running_with_api(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self.mirrors.run()), asyncio.create_task(self._watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _watch(self) -> None:
        self._seen([{"type": "ADDED", "object": each} for each in self.api.pods.values()])
        async for line in self.api.lines(None):  # type: ignore[arg-type]
            if isinstance(line, bytes):
                self._seen([msgspec.json.decode(line)])

    def _seen(self, lines: list[dict[str, Any]]) -> None:
        changes = []
        for line in lines:
            meta = line["object"]["metadata"]
            key = meta["namespace"], meta["name"]
            changes.append(ObjectChange(line["type"], key, meta["uid"], msgspec.json.encode(line["object"])))
        others, _ = self.mirrors.split(changes)
        self.others += [each.key[1] for each in others]


async def test_mirrors_follow_the_static_pods() -> None:
    world = Mirrors()
    async with world.running_with_api():
        web = world.want("web")
        await eventually(lambda: world.hashes() == {"web-n1": web.uid})
        await eventually(lambda: world.mirrors.mirror_of(web) is not None)
        changed = world.want("web", hostNetwork=True)
        await eventually(lambda: world.hashes() == {"web-n1": changed.uid})
        world.running.add(changed.key)
        world.static = {}
        other = world.want("other")
        await eventually(lambda: "other-n1" in world.hashes())  # so that all were compared again
        assert world.hashes() == {"web-n1": changed.uid, "other-n1": other.uid}, "while it still runs, it is shown"
        world.running.clear()
        world.static = {}
        world.mirrors.wake()
        await eventually(lambda: world.hashes() == {})


async def test_a_deleted_mirror_is_created_again() -> None:
    world = Mirrors()
    async with world.running_with_api():
        web = world.want("web")
        await eventually(lambda: world.mirrors.mirror_of(web))
        before = world.api.pods["web-n1"]["metadata"]["uid"]
        world.api._delete("web-n1", world.api.pods["web-n1"], {})
        await eventually(lambda: world.api.pods.get("web-n1", {}).get("metadata", {}).get("uid", before) != before)
        assert world.hashes() == {"web-n1": web.uid}


async def test_an_api_that_is_away_and_a_node_that_is_not_registered() -> None:
    world = Mirrors()
    world.node_uid = ""
    world.api.away = True
    async with world.running_with_api():
        web = world.want("web")
        world.api.away = False
        await eventually(lambda: world.node_uid_reads >= 2)
        assert world.hashes() == {}
        world.node_uid = "node-uid"
        await eventually(lambda: world.hashes() == {"web-n1": web.uid})


async def test_other_pods_are_not_changed() -> None:
    world = Mirrors()
    plain = manifest("plain")
    await world.api.send(_create(plain))
    async with world.running_with_api():
        world.want("web")
        await eventually(lambda: len(world.api.pods) == 2)
        assert world.others == ["plain"]


def _create(document: dict[str, Any]) -> Any:
    from plimsoll.kube import request

    return request.create(request.PODS, document, "default")


async def test_a_mirror_without_a_static_pod_is_deleted() -> None:
    world = Mirrors()
    left = manifest("old-n1")
    left["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "0" * 32}
    await world.api.send(_create(left))
    async with world.running_with_api():
        await eventually(lambda: world.api.pods == {})
        assert world.mirrors.listed and not world.others


async def test_an_address_that_does_not_answer_is_said_once() -> None:
    flags = {"staticPodURL": ["http://127.0.0.1:1/pods"], "httpCheckFrequency": ["50s"]}
    wrong: list[str] = []
    pauses_s: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses_s.append(pause_s)
        await asyncio.sleep(0)

    parsed = reading(None, DEFAULT_PROFILE, flags).config
    static = StaticPods(parsed, "n1", lambda _: None, lambda: 0.0, wrong.append, sleep)
    task = asyncio.create_task(static.run())
    await eventually(lambda: len(pauses_s) >= 3)
    task.cancel()
    await asyncio.wait([task])
    assert len(wrong) == 1 and "Connection refused" in wrong[0]
    assert set(pauses_s) == {50.0}
    assert not static.all_read.is_set()
