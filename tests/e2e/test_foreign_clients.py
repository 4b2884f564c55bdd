"""Clients that others have written: lightkube and kr8s list, watch, patch and wait as against any Kubernetes."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from importlib.metadata import version
from typing import Any

import kr8s
import lightkube
import pytest
from kr8s.asyncio.objects import Pod as Kr8sPod
from lightkube.models.core_v1 import Container, PodSpec, ResourceRequirements
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Node, Pod
from lightkube.types import PatchType

from tests.e2e.conftest import PROFILES
from tests.e2e.fake_cluster import NODE, FakeCluster

AMOUNT = {"cpu": "100m", "memory": "32Mi"}


@pytest.fixture(
    scope="session",
    params=[pytest.param(each, marks=pytest.mark.xdist_group(f"kubectl {each} package")) for each in PROFILES],
)
def served(request: pytest.FixtureRequest, _clusters: Callable[[str], FakeCluster]) -> FakeCluster:
    return _clusters(request.param)


@pytest.fixture
def namespace(served: FakeCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.originalname.removeprefix("test_").replace("_", "-")
    client: Any = lightkube.Client(config=lightkube.KubeConfig.from_file(served.kubeconfig))
    client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    client.delete(Namespace, name)


def test_lightkube(served: FakeCluster, namespace: str, exercised: Callable[[str, str], None]) -> None:
    config = lightkube.KubeConfig.from_file(served.kubeconfig)
    client: Any = lightkube.Client(config=config, namespace=namespace, field_manager="foreign")
    assert [node.metadata.name for node in client.list(Node)] == [NODE]
    assert list(client.list(Pod)) == []
    seen: list[tuple[str, str]] = []
    is_running, is_gone = threading.Event(), threading.Event()
    begin = client.get(Namespace, namespace).metadata.resourceVersion

    def watch() -> None:
        for change, pod in client.watch(Pod, resource_version=begin):
            seen.append((change, pod.status.phase))
            if pod.status.phase == "Running":
                is_running.set()
            if change == "DELETED":
                is_gone.set()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    container = Container(name="c", image="nginx:1.25", resources=ResourceRequirements(requests=AMOUNT, limits=AMOUNT))
    made = client.create(Pod(metadata=ObjectMeta(name="web"), spec=PodSpec(containers=[container])))
    assert (made.status.phase, made.status.qosClass) == ("Pending", "Guaranteed")
    ready = client.wait(Pod, "web", for_conditions=["Ready"])
    assert ready.spec.nodeName == NODE
    labelled = client.patch(Pod, "web", {"metadata": {"labels": {"tier": "front"}}})
    assert labelled.metadata.labels == {"tier": "front"}
    moved = client.patch(Pod, "web", {"metadata": {"labels": {"tier": "back"}}}, patch_type=PatchType.MERGE)
    assert moved.metadata.labels == {"tier": "back"}
    removal = [{"op": "remove", "path": "/metadata/labels/tier"}]
    assert not client.patch(Pod, "web", removal, patch_type=PatchType.JSON).metadata.labels
    assert [pod.metadata.name for pod in client.list(Pod, fields={"spec.nodeName": NODE})] == ["web"]
    with pytest.raises(lightkube.ApiError) as refused:
        client.get(Pod, "zz")
    assert (refused.value.status.code, refused.value.status.message) == (404, 'pods "zz" not found')
    assert is_running.wait(60)
    client.delete(Pod, "web", grace_period=1)
    assert is_gone.wait(60), seen
    watcher.join(60)
    assert seen[0] == ("ADDED", "Pending") and seen[-1][0] == "DELETED", seen
    assert {change for change, _ in seen[1:-1]} == {"MODIFIED"}
    exercised("foreign client", f"lightkube {version('lightkube')}")


@pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning")
async def test_kr8s(served: FakeCluster, namespace: str, exercised: Callable[[str, str], None]) -> None:
    api: Any = await kr8s.asyncio.api(kubeconfig=str(served.kubeconfig), namespace=namespace)
    assert (await api.version())["gitVersion"].startswith(f"v{served.release}.0+plimsoll.")
    assert [node.name async for node in api.get("nodes")] == [NODE]
    spec = {"containers": [{"name": "c", "image": "nginx:1.25", "resources": {"requests": AMOUNT}}]}
    pod = await Kr8sPod({"metadata": {"name": "web", "namespace": namespace}, "spec": spec}, api=api)
    seen: list[str] = []

    async def watch() -> None:
        async with aclosing(api.watch("pods", namespace=namespace)) as changes:
            async for change, found in changes:
                if found.name == "web":
                    seen.append(change)
                    if change == "DELETED":
                        return

    async with asyncio.timeout(120):
        watching = asyncio.create_task(watch())
        await pod.create()
        await pod.wait("condition=Ready")
        assert await pod.ready()
        await pod.patch({"metadata": {"labels": {"tier": "front"}}})
        assert pod.labels["tier"] == "front"
        assert [each.name async for each in api.get("pods", label_selector="tier=front")] == ["web"]
        assert [line async for line in pod.logs()] == ["c started, attempt 0"]
        await pod.delete(grace_period=1)
        await pod.wait("delete")
        await watching
        await _streams_closed()
    assert seen[0] == "ADDED" and seen[-1] == "DELETED" and "MODIFIED" in seen, seen
    exercised("foreign client", f"kr8s {version('kr8s')}")


async def _streams_closed() -> None:
    """kr8s leaves the watches of its `wait` to the garbage collector; they must end while their loop still runs."""
    gc.collect()
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
    await asyncio.get_running_loop().shutdown_asyncgens()
