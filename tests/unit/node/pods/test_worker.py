"""A pod's worker: what wakes and interrupts it, how it retries, and how a pod ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from plimsoll.codec.lean.runnable import run_pod_from_json
from plimsoll.kube.reflector import ObjectChange
from plimsoll.node.pods import worker as worker_module
from plimsoll.rules.lifecycle.termination import TerminationVerdict
from tests.unit.node.pods.one_pod_node import UID, PodNode, container
from tests.unit.node.test_agent import eventually

FIRST, SECOND = f"{UID}.a.0", f"{UID}.a.1"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "RETRY_FIRST_S", 0.02)


async def test_a_sync_ends_when_nothing_is_left_to_do(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"))
    async with node.running():
        await node.until_running()
        calls = list(node.runtime.calls)
        observed, worker = node.worker.observed, node.worker
        worker.wake()
        await eventually(lambda: worker.observed is not observed)
        assert node.runtime.calls == calls


async def test_a_container_that_ends_is_restarted_with_the_next_attempt(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"))
    async with node.running():
        await node.until_running()
        node.runtime.end(FIRST, 1)
        await eventually(lambda: f"start {SECOND}" in node.runtime.calls)
        await eventually(lambda: node.status["containerStatuses"][0]["restartCount"] == 1)
        assert node.worker.observed.newest("a") is not None


async def test_a_failed_sync_is_reported_and_retried(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"))
    node.runtime.failing = {"make sandbox"}
    async with node.running():
        await eventually(lambda: node.runtime.calls.count("make sandbox") >= 3)
        assert node.status.get("phase", "Pending") == "Pending"
        node.runtime.failing.clear()
        await node.until_running()


async def test_only_changes_by_others_wake_it(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"))
    async with node.running():
        await node.until_running()
        worker = node.worker
        await eventually(lambda: not worker._wake.is_set())
        assert node.api.pod is not None
        document = node.api.pod
        metadata = {**document["metadata"], "resourceVersion": "1000"}
        own = {**document, "metadata": metadata, "status": {**document["status"], "phase": "Pending"}}
        body = msgspec.json.encode(own)
        worker.update(run_pod_from_json(body), own["status"], body)
        assert not worker._wake.is_set()
        labelled = {**own, "metadata": {**metadata, "labels": {"a": "b"}}}
        body = msgspec.json.encode(labelled)
        worker.update(run_pod_from_json(body), labelled["status"], body)
        assert worker._wake.is_set()


async def test_labels_are_published_at_once(tmp_path: Path) -> None:
    """In a pod whose volumes need nothing from the API server, too, such as a token."""
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    mount = {"name": "about", "mountPath": "/about"}
    volume = {"name": "about", "downwardAPI": {"items": items}}
    node = PodNode(tmp_path, container("a", volumeMounts=[mount]), volumes=[volume])
    async with node.running():
        await node.until_running()
        assert node.api.pod is not None
        document = node.api.pod
        metadata = {**document["metadata"], "resourceVersion": "1000", "labels": {"a": "b"}}
        body = msgspec.json.encode({**document, "metadata": metadata})
        node.worker.update(run_pod_from_json(body), document["status"], body)
        await eventually(lambda: any(path.read_text() == 'a="b"' for path in tmp_path.glob("pods/*/volumes/**/labels")))


async def test_a_deletion_interrupts_a_start(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"), terminationGracePeriodSeconds=1)
    node.runtime.blocked = {"make a": asyncio.Event()}
    async with node.running():
        await eventually(lambda: "make a" in node.runtime.calls)
        node.api.delete(1, time.time())
        await asyncio.wait_for(node.api.gone.wait(), 30)
        await eventually(lambda: not node.agent.pods.workers)
    assert f"start {FIRST}" not in node.runtime.calls


async def test_a_shorter_grace_period_interrupts_a_stop(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"), terminationGracePeriodSeconds=30)
    node.runtime.blocked = {f"stop {FIRST} 30": asyncio.Event()}
    async with node.running():
        await node.until_running()
        node.api.delete(30, time.time())
        await eventually(lambda: any(call.startswith("stop") for call in node.runtime.calls))
        node.api.delete(0, time.time())
        await asyncio.wait_for(node.api.gone.wait(), 30)
    stops = [call for call in node.runtime.calls if call.startswith("stop")]
    assert len(stops) == 2 and float(stops[1].rpartition(" ")[2]) < 30


async def test_a_deleted_pod_is_stopped_removed_and_its_resources_released(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"))
    async with node.running():
        await node.until_running()
        worker = node.worker
        node.api.delete(5, time.time())
        await asyncio.wait_for(node.api.gone.wait(), 30)
        assert worker.released.is_set()
        assert node.agent.cgroups.known() == {}
        await eventually(lambda: not node.agent.pods.workers)
        assert (node.runtime.containers, node.runtime.sandboxes) == ({}, {})
        assert UID not in node.agent.checkpoint.all()


async def test_records_are_removed_once(tmp_path: Path) -> None:
    """The API server deletes a pod that has ended with a grace period of 0, while its records are removed."""
    node = PodNode(tmp_path, container("a"))
    node.runtime.makes_cgroups = True  # as a runtime behind CRI, which removes containers slowly
    removed = asyncio.Event()
    async with node.running():
        await node.until_running()
        node.runtime.blocked = {f"remove {FIRST}": removed}
        node.api.delete(5, time.time())
        document = node.api.pod
        assert document is not None
        await eventually(lambda: f"remove {FIRST}" in node.runtime.calls)
        sooner = {**document["metadata"], "deletionGracePeriodSeconds": 0, "resourceVersion": "1000"}
        body = msgspec.json.encode({**document, "metadata": sooner})
        node.agent.pods.take([ObjectChange("DELETED", ("default", "web"), UID, body)])
        removed.set()
        await eventually(lambda: not node.agent.pods.workers)
    assert node.runtime.calls.count(f"remove {FIRST}") == 1


async def test_a_forced_deletion_frees_the_place_at_once_and_stops_soon(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"), terminationGracePeriodSeconds=600)
    stopped = asyncio.Event()
    async with node.running():
        await node.until_running()
        pods = node.agent.pods
        assert UID in pods.load().residents
        node.runtime.blocked = {f"stop {FIRST} 2": stopped}
        assert node.api.pod is not None
        deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
        body = msgspec.json.encode({**node.api.pod, "metadata": {**node.api.pod["metadata"], **deleted}})
        pods.take([ObjectChange("DELETED", ("default", "web"), UID, body)])
        assert UID not in pods.load().residents, "another pod may have its place"
        await eventually(lambda: f"stop {FIRST} 2" in node.runtime.calls)
        assert UID in pods.workers and UID not in pods.load().residents
        stopped.set()
        await eventually(lambda: not pods.workers)


async def test_a_pod_that_the_node_terminates_fails_and_keeps_its_records(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"))
    async with node.running():
        await node.until_running()
        verdict = TerminationVerdict("Evicted", "The node was low on resource: memory.", grace_s=0)
        assert node.agent.pods.terminate(UID, verdict) is node.worker
        await eventually(lambda: node.status["phase"] == "Failed")
        await asyncio.wait_for(node.worker.released.wait(), 30)
        assert node.status["reason"] == "Evicted"
        assert FIRST in node.runtime.containers
        assert node.agent.pods.terminate(UID, verdict) is None, "it is being terminated already"


class AwaitedEvent(asyncio.Event):
    """`awaited` is set when a task waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.awaited.set()
        return await super().wait()


async def test_it_starts_after_the_pods_that_make_room_for_it(tmp_path: Path) -> None:
    node = PodNode(tmp_path, container("a"))
    node.runtime.blocked = {"make sandbox": asyncio.Event()}
    async with node.running():
        await eventually(lambda: "make sandbox" in node.runtime.calls)
        worker = node.worker
        other = node.agent._make_worker(worker.pod, {}, b"{}")
        released = other.released = AwaitedEvent()
        worker.after = (other,)
        worker.interrupt()
        node.runtime.blocked.clear()
        node.runtime.calls.clear()
        await asyncio.wait_for(released.awaited.wait(), 30)
        assert "make sandbox" not in node.runtime.calls
        released.set()
        await node.until_running()
