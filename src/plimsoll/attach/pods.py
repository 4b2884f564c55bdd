"""The pods of this node, for attach: from the API (a watch), from the kubelet's PodsAPI, or from manifests.

The runtime does not know requests, so a container can be adjusted only when its pod is known here. The API server sends
the pod to the kubelet and to this process at about the same time; a container that is created first waits for its pod,
within the time that an answer may take.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from plimsoll.audit.pods_socket import DEADLINE_S, LIST_PODS, ListPodsResponse
from plimsoll.codec.lean.audited_pod import audited_pod
from plimsoll.codec.protobuf.kube import object_from_protobuf
from plimsoll.codec.protobuf.structs import decode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.errors import InvalidObjectError, PlimsollError
from plimsoll.kube.client import Client
from plimsoll.kube.reflector import Reflector
from plimsoll.kube.request import PODS, ResourcePath
from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.status import GrpcError
from plimsoll.rules.audit.evidence import AuditedPod
from plimsoll.rules.model.json_object import JsonObject

POLL_S = 2.0
MOST_BYTES = 16 << 20
_PENDING = 0.02
_NAMESPACES = ResourcePath("/api/v1", "namespaces", "Namespace")

log = logging.getLogger(__name__)


class PodBook:
    """The pods that are known, by uid."""

    def __init__(self) -> None:
        self.pods: dict[str, AuditedPod] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}  # name → labels
        self.listed = asyncio.Event()
        self.problem = "the pods have not been listed yet"
        self.changed: Callable[[], None] = lambda: None
        self.refresh: Callable[[], Awaitable[None]] | None = None  # ask again now, if the source does not push
        self._arrived = asyncio.Event()

    @property
    def synced(self) -> bool:
        return self.listed.is_set()

    def put(self, pods: Iterable[AuditedPod], *, whole: bool = False) -> None:
        """`whole`: these are all pods, others have gone."""
        new = {each.pod.metadata.uid: each for each in pods}
        before = self.pods
        self.pods = new if whole else before | new
        self.listed.set()
        self.problem = ""
        self._arrived.set()
        self._arrived = asyncio.Event()
        if self.pods != before:
            self.changed()

    def drop(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self.changed()

    async def find(self, uid: str) -> AuditedPod:
        """Waits until it is known; the caller sets the time-out."""
        while uid not in self.pods:
            arrived = self._arrived
            if self.refresh is not None:
                await self.refresh()
                if uid in self.pods:
                    break
                await asyncio.sleep(_PENDING)
            else:
                await arrived.wait()
        return self.pods[uid]


async def follow_api(client: Client, node: str, book: PodBook, *, namespaces: bool) -> None:
    """Without end."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_follow_pods(client, node, book))
        if namespaces:
            group.create_task(_follow_namespaces(client, book))


async def _follow_pods(client: Client, node: str, book: PodBook) -> None:
    def failed(error: Exception) -> None:
        book.problem = str(error)
        log.warning("the pods of node %s cannot be watched, trying again: %s", node, error)

    uids: dict[tuple[str, str], str] = {}  # a static pod has another uid in its cgroup than in the API
    reflector = Reflector(PODS, fields=f"spec.nodeName={node}")
    async for changes in client.follow(reflector, failed):
        arrived = []
        for change in changes:
            if change.kind == "DELETED":
                book.drop(uids.pop(change.key, change.uid))
                continue
            pod = _readable(change.body)
            if pod is not None:
                uids[change.key] = pod.pod.metadata.uid
                arrived.append(pod)
        book.put(arrived)


async def _follow_namespaces(client: Client, book: PodBook) -> None:
    def failed(error: Exception) -> None:
        log.warning("the namespaces cannot be watched, trying again: %s", error)

    async for changes in client.follow(Reflector(_NAMESPACES), failed):
        for change in changes:
            if change.kind == "DELETED":
                book.namespaces.pop(change.key[1], None)
                continue
            metadata = msgspec.json.decode(change.body).get("metadata") or {}
            book.namespaces[change.key[1]] = dict(metadata.get("labels") or {})
        book.changed()


async def follow_socket(socket: str, book: PodBook) -> None:
    """The kubelet's PodsAPI, asked every `POLL_S` and when a container of an unknown pod is created."""

    async def refresh() -> None:
        client = GrpcClient(socket)
        try:
            answer = await client.unary(LIST_PODS, b"", DEADLINE_S)
            documents = [object_from_protobuf("v1", "Pod", each) for each in decode(ListPodsResponse, answer).pods]
            book.put(_all_readable(documents), whole=True)
        except (GrpcError, ProtobufError) as error:
            _report(book, f"{socket}: {error}")
        finally:
            client.close()

    await _poll(book, refresh)


async def follow_files(path: Path, book: PodBook) -> None:
    """Pods in YAML or JSON files of a directory, or in one file: as `kubectl get pods -o json` prints them."""
    seen: dict[Path, tuple[int, int]] = {}

    async def refresh() -> None:
        try:
            files = {each: _stamp(each) for each in _manifests(path)}
            if files != seen or not book.synced:
                documents = [document for each in files for document in pod_documents(each)]
                seen.clear()
                seen.update(files)
                book.put(_all_readable(documents), whole=True)
        except (OSError, PlimsollError) as error:
            _report(book, str(error))

    await _poll(book, refresh)


async def _poll(book: PodBook, refresh: Callable[[], Awaitable[None]]) -> None:
    book.refresh = refresh
    while True:
        await refresh()
        await asyncio.sleep(POLL_S)


def _report(book: PodBook, problem: str) -> None:
    if book.problem != problem:
        log.warning("the pods of this node cannot be read, trying again: %s", problem)
    book.problem = problem


def _manifests(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml", ".json") and each.is_file())


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def pod_documents(path: Path) -> list[JsonObject]:
    """The pods in one file, also those of a List. Raises PlimsollError."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise PlimsollError(f"{path}: larger than {MOST_BYTES >> 20} MiB")
    found: list[JsonObject] = []
    for document in read(data):
        if isinstance(document, YamlError):
            raise PlimsollError(f"{path}: {document}")
        value = document.value
        items = value.get("items", [value]) if isinstance(value, dict) else []
        found += [each for each in items if isinstance(each, dict) and each.get("kind", "Pod") == "Pod"]
    return found


def _all_readable(documents: Iterable[JsonObject]) -> list[AuditedPod]:
    read_pods = (_readable(msgspec.json.encode(document)) for document in documents)
    return [pod for pod in read_pods if pod is not None]


def _readable(body: bytes) -> AuditedPod | None:
    try:
        return audited_pod(body)
    except InvalidObjectError as error:
        log.warning("a pod that cannot be read is left as it is: %s", error)
        return None
