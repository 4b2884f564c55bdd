"""Where pods and the policy come from: the kubelet's socket, files, and a policy file that changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from plimsoll.attach.pods import PodBook, follow_files, follow_socket
from plimsoll.attach.policy_file import PolicyFile
from plimsoll.codec.protobuf.wire import bytes_field
from plimsoll.errors import PlimsollError
from tests.unit.attach.attach_node import document
from tests.unit.audit.test_pods_socket import Kubelet
from tests.unit.audit.test_pods_socket import pod as protobuf_pod
from tests.unit.net.grpc.grpc_server import Server


async def first(book: PodBook, following: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(following)
    async with asyncio.timeout(30):
        await book.listed.wait()
    return task


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pods_of_the_kubelets_socket(tmp_path: Path) -> None:
    book = PodBook()
    async with Kubelet(tmp_path / "s"):
        task = await first(book, follow_socket(str(tmp_path / "s"), book))
        assert [(pod.pod.metadata.name, pod.pod.metadata.namespace) for pod in book.pods.values()] == [("web", "shop")]
        assert (await book.find("0000aaaa")).title == "shop/web"
        await ended(task)


async def test_a_container_of_an_unknown_pod_makes_it_ask_again(tmp_path: Path) -> None:
    class Later(Server):
        asked = 0

        async def answer(self, path: str, request: bytes) -> bytes:
            self.asked += 1
            return bytes_field(1, protobuf_pod()) if self.asked > 3 else b""

    book = PodBook()
    async with Later(tmp_path / "s"):
        task = await first(book, follow_socket(str(tmp_path / "s"), book))
        assert not book.pods
        async with asyncio.timeout(30):
            assert (await book.find("0000aaaa")).title == "shop/web"
        await ended(task)


async def test_a_socket_without_a_kubelet(tmp_path: Path) -> None:
    book = PodBook()
    task = asyncio.create_task(follow_socket(str(tmp_path / "none"), book))
    async with asyncio.timeout(30):
        while "none" not in book.problem:  # noqa: ASYNC110 - the text is all there is to see
            await asyncio.sleep(0.01)
    assert not book.synced
    await ended(task)


async def test_pods_in_files(tmp_path: Path) -> None:
    listed = {"kind": "List", "items": [json.loads(document("a")), {"kind": "Service"}]}
    write(tmp_path / "1.json", json.dumps(listed))
    write(tmp_path / "2.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: b, uid: uid-b}\nspec: {containers: []}\n")
    write(tmp_path / "3.json", '{"kind": "Pod", "metadata": {"name": "c", "uid": 5}}')
    write(tmp_path / "4.txt", "not a manifest")
    book = PodBook()
    task = await first(book, follow_files(tmp_path, book))
    assert set(book.pods) == {"uid-a", "uid-b"}  # the third is not a pod; it is left as it is
    write(tmp_path / "5.json", document("d").decode())
    async with asyncio.timeout(30):
        await book.find("uid-d")
    await ended(task)


async def test_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    book = PodBook()
    write(tmp_path / "pods.json", document("a").decode())
    task = await first(book, follow_files(tmp_path, book))
    write(tmp_path / "pods.json", "{")
    assert book.refresh is not None
    await book.refresh()
    assert set(book.pods) == {"uid-a"} and "pods.json" in book.problem
    await ended(task)


def write(path: Path, text: str) -> None:
    path.write_text(text)


def test_the_policy_is_read_again_and_an_invalid_one_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("memoryQoS: tiered\n")
    policy = PolicyFile(file)
    policy.load()
    assert policy.current().default.memory_qos == "tiered"
    assert policy.current() is policy.current()
    file.write_text("memoryQoS: hardest\n")
    assert policy.current().default.memory_qos == "tiered"
    file.write_text("memoryQoS: hard  # longer\n")
    assert policy.current().default.memory_qos == "hard"
    file.unlink()
    assert policy.current().default.memory_qos == "hard"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a\n", "expected one map of switches"),
        ("a: 1\n---\nb: 2\n", "expected one map"),
        ("a: [", "line"),
        ("x" * (2 << 20), "MiB"),
    ],
)
def test_a_policy_that_is_no_policy(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "p").write_text(text)
    with pytest.raises(PlimsollError, match=says):
        PolicyFile(tmp_path / "p").load()
