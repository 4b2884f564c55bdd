"""The node's HTTPS server: what the API server and scrapers request of a kubelet, at the kubelet's paths.

    /containerLogs/NAMESPACE/POD/CONTAINER   /pods   /runningpods   /allocatedPods[/NAMESPACE/POD[/UID]]
    /exec/NAMESPACE/POD/CONTAINER   /attach/NAMESPACE/POD/CONTAINER   /portForward/NAMESPACE/POD (`streams`)
    /stats/summary   /metrics   /metrics/resource   /metrics/cadvisor   /metrics/probes   /metrics/slis
    /logs/   /configz   /healthz
    and four that only Plimsoll has: /oom   /pressure   /live   /history

Names in a path are looked up among the agent's pods and never become file names. The server knows the agent only by the
protocols below, so it runs and is tested without one.
"""

from __future__ import annotations

import functools
import logging
import ssl
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.metrics.exposition import CONTENT_TYPE
from plimsoll.metrics.health import HealthMeters
from plimsoll.net.tls import server_context
from plimsoll.node.reporting.certificate import NodeIdentity
from plimsoll.node.server.auth import EndpointAccess
from plimsoll.node.server.host_logs import host_logs
from plimsoll.node.server.http import (
    JSON,
    PIECE_BYTES,
    HttpError,
    HttpRequest,
    HttpResponse,
    HttpServer,
    HttpStream,
    Reply,
    text,
)
from plimsoll.node.server.idle import IDLE_S
from plimsoll.node.server.logs import (
    Query,
    bare_id,
    log_chunks,
    log_options,
    logged_container_id,
    running_container_id,
)
from plimsoll.node.server.streams import STREAMS, StreamAccess, StreamPods, StreamRequests
from plimsoll.node.sources.directory_watch import DirectoryWatch
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.runtime.interface import ObservedContainer

PORT = 10250
NOT_FOUND = text(404, "404 page not found")

log = logging.getLogger(__name__)


class PodSource(StreamPods, Protocol):
    """The agent's pods."""

    def documents(self) -> Iterable[JsonObject]: ...
    def container(self, container_id: str) -> ObservedContainer | None:
        """As last read from the runtime; the id without its scheme."""


class ContainerAccess(StreamAccess, Protocol):
    """The part of a runtime that the server needs."""

    def log_file(self, container: ObservedContainer) -> Path: ...


class NodePages(msgspec.Struct, frozen=True):
    """Pages, built per request; one that is None does not exist."""

    summary: Callable[[], Awaitable[bytes]] | None = None  # JSON
    metrics: Callable[[], str] | None = None
    resource: Callable[[], str] | None = None
    cadvisor: Callable[[], Iterator[str]] | None = None  # in parts: it is long
    probes: Callable[[], str] | None = None
    configuration: Callable[[], Mapping[str, Any]] | None = None  # a KubeletConfiguration
    allocated: Callable[[], Iterable[JsonObject]] | None = None  # pods with what is allocated, without their status
    logs: str = ""  # the machine's log directory; empty: it is not served
    own: Mapping[str, Callable[[], Awaitable[bytes]]] = {}  # pages that the kubelet does not have, JSON
    asked: Mapping[str, Callable[[Query], Awaitable[bytes]]] = {}  # the same, with parameters


def server_tls(identity: NodeIdentity, ca: bytes) -> ssl.SSLContext:
    """A client may present a certificate of the cluster's CA; any other certificate fails the handshake."""
    context = server_context()
    context.load_verify_locations(cadata=ca.decode())
    use_certificate(context, identity)
    return context


def use_certificate(context: ssl.SSLContext, identity: NodeIdentity) -> None:
    """Present this certificate from the next handshake on."""
    # OpenSSL reads keys from files only; this one has mode 0600 and is removed at once.
    with tempfile.NamedTemporaryFile(prefix="plimsoll-") as file:
        file.write(identity.certificate + b"\n" + identity.key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as error:
            raise PlimsollError(f"the serving certificate and its key cannot be used: {error}") from error


class NodeServer:
    def __init__(
        self,
        pods: PodSource,
        containers: ContainerAccess,
        pages: NodePages,
        access: EndpointAccess,
        tls: ssl.SSLContext,
        clock: Callable[[], float],
        idle_s: float = IDLE_S,
    ) -> None:
        """`clock`: the wall clock, in seconds; sinceSeconds is relative to it. `idle_s`: of exec and the like."""
        self._pods, self._containers, self._pages, self._access, self._clock = pods, containers, pages, access, clock
        self._tls, self._streams = tls, StreamRequests(pods, containers, idle_s)
        self._watch = DirectoryWatch()
        self._server = HttpServer(self, tls)
        self._health = HealthMeters(clock())

    async def start(self, host: str = "127.0.0.1", port: int = PORT, *, or_another: bool = True) -> int:
        """Returns the port it listens on: another one where the given one is in use."""
        await self._server.start(host, port, or_another=or_another)
        return self._server.port

    async def close(self) -> None:
        await self._server.close()
        self._watch.close()

    def renew(self, identity: NodeIdentity) -> None:
        use_certificate(self._tls, identity)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            component, streams = request.path[0], request.path[0] in STREAMS
            await self._access.check(
                request.peer, request.header(b"authorization"), request.method, component, streams=streams
            )
            if not streams and request.method != "GET":
                return Reply(405, b"Method Not Allowed\n", headers=(("Allow", "GET"),))
            return await self._answer(request)
        except HttpError as error:
            return text(error.status, error.message)
        except (PlimsollError, OSError) as error:
            log.warning("%s: %s", request.target, error)
            return text(500, str(error))

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        pages = self._pages
        match request.path:
            case ("healthz", *_):
                self._health.observe("healthz", {"ping": ""})
                return Reply(200, b"ok")
            case ("containerLogs", namespace, name, container):
                return self._log(request, namespace, name, container)
            case ("exec", namespace, name, container) | ("exec", namespace, name, _, container):
                return self._streams.exec(request, namespace, name, container)
            case ("attach", namespace, name, container) | ("attach", namespace, name, _, container):
                return self._streams.attach(request, namespace, name, container)
            case ("portForward", namespace, name) | ("portForward", namespace, name, _):
                return self._streams.port_forward(request, namespace, name)
            case ("pods",):
                return _pod_list(self._pods.documents())
            case ("runningpods",):
                return _pod_list(filter(None, map(running_part, self._pods.documents())))
            case ("allocatedPods",) if pages.allocated is not None:
                return _pod_list(pages.allocated())
            case ("allocatedPods", namespace, name, *uid) if pages.allocated is not None and len(uid) < 2:
                return _named_pod(pages.allocated(), namespace, name, *uid)
            case ("stats", "summary") if pages.summary is not None:
                return Reply(200, await pages.summary(), JSON)
            case ("logs", *_) if not pages.logs:
                return text(405, "logs endpoint is disabled.")
            case ("logs", *names):
                return host_logs(pages.logs, names, is_directory=request.target.partition("?")[0].endswith("/"))
            case ("configz",) if pages.configuration is not None:
                return Reply(200, msgspec.json.encode({"kubeletconfig": pages.configuration()}), JSON)
            case (name,) if name in pages.asked:
                return Reply(200, await pages.asked[name](request.query), JSON)
            case (name,) if name in pages.own:
                return Reply(200, await pages.own[name](), JSON)
            case ("metrics",):
                return _page(pages.metrics)
            case ("metrics", "slis"):
                return _page(self._health.registry.text)
            case ("metrics", "resource" | "probes" as name):
                return _page(getattr(pages, name))
            case ("metrics", "cadvisor") if pages.cadvisor is not None:
                return HttpStream(_encoded(pages.cadvisor()), CONTENT_TYPE)
            case _:
                return NOT_FOUND

    # --- logs ---

    def _log(self, request: HttpRequest, namespace: str, name: str, container: str) -> HttpResponse:
        pod = self._pods.find(namespace, name)
        if pod is None:
            raise HttpError(404, f'pod "{name}" not found')
        options = log_options(request.query, self._clock())
        full_id = logged_container_id(pod, container, previous=options.previous)
        state = self._pods.container(bare_id(full_id))
        if state is None:
            raise HttpError(400, f"unable to retrieve container logs for {full_id}")
        is_running = functools.partial(self._is_running, state.id)
        return HttpStream(log_chunks(self._containers.log_file(state), options, is_running, self._watch))

    def _is_running(self, container_id: str) -> bool:
        state = self._pods.container(container_id)
        return state is not None and state.phase == "running"


def _page(build: Callable[[], str] | None) -> Reply:
    return NOT_FOUND if build is None else Reply(200, build().encode(), CONTENT_TYPE)


async def _encoded(parts: Iterator[str]) -> AsyncGenerator[bytes]:
    """Each is built when the one before is on its way."""
    for part in parts:
        data = part.encode()
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]


def _pod_list(documents: Iterable[JsonObject]) -> Reply:
    pods = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(documents)}
    return Reply(200, msgspec.json.encode(pods), JSON)


def _named_pod(documents: Iterable[JsonObject], namespace: str, name: str, uid: str = "") -> Reply:
    for pod in documents:
        metadata = pod["metadata"]
        if (metadata.get("namespace"), metadata["name"]) == (namespace, name) and uid in ("", metadata.get("uid")):
            return Reply(200, msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", **pod}), JSON)
    return text(404, "pod not found")


def running_part(pod: JsonObject) -> JsonObject | None:
    """The running containers of a pod, as /runningpods shows them; None where there are none."""
    spec = pod.get("spec") or {}
    images = {container["name"]: container.get("image", "") for container in spec.get("containers") or ()}
    running = [
        {"name": name, "image": image, "resources": {}}
        for name, image in images.items()
        if running_container_id(pod, name)
    ]
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "uid") if key in pod["metadata"]}
    return {"metadata": metadata, "spec": {"containers": running}, "status": {}} if running else None
