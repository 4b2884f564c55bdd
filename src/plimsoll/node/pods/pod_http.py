"""HTTP GET requests and TCP connections to a pod, as probes and hooks make them.

Without a host, a connection goes to the pod's address; a pod without an address is reached on its loopback, through
sockets that the runtime opens inside it. A host in the manifest is dialled from the node. TLS is not verified. A
redirect is followed while it stays on the same host, ten times at most.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urljoin, urlsplit

import msgspec

from plimsoll.errors import StructuredError, quoted
from plimsoll.net.http import HttpClientConnection, MalformedResponseError, TruncatedResponseError
from plimsoll.rules.lifecycle.probes import MAX_OUTPUT_BYTES, port_number
from plimsoll.rules.model.runnable import GrpcAction, HttpGet, RunContainer, TcpSocket
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.runtime.interface import ExecService, RuntimeCallError

REDIRECTS_MAX = 10
LOOPBACK = "127.0.0.1"
PLAIN_HTTP = "http: server gave HTTP response to HTTPS client"


class ProbeTarget(msgspec.Struct, frozen=True):
    """The container that is probed, and its pod's network."""

    runtime: ExecService
    sandbox_id: str
    container_id: str
    container: RunContainer
    ip: str = ""  # of the pod; "" for its loopback
    profile: Profile = DEFAULT_PROFILE

    def host(self, action: HttpGet | TcpSocket | GrpcAction) -> str:
        return getattr(action, "host", "") or self.ip or LOOPBACK

    def port(self, action: HttpGet | TcpSocket | GrpcAction) -> int:
        port = port_number(action, self.container)
        if port is None:
            raise RuntimeCallError("probe", f'container "{self.container.name}" has no port "{action.port}"')
        return port

    def address(self, action: HttpGet | TcpSocket | GrpcAction) -> str:
        return _joined(self.host(action), self.port(action))

    def url(self, action: HttpGet) -> str:
        return f"{action.scheme.lower()}://{self.address(action)}/{action.path.removeprefix('/')}"


class HttpResponse(msgspec.Struct, frozen=True):
    status: int
    text: str
    is_foreign_redirect: bool = False  # to another host, and not followed


class HttpRequestError(StructuredError):
    """No response; the text is Go's."""

    url: str
    reason: str
    template = 'Get "{url}": {reason}'

    @property
    def is_plain_http(self) -> bool:
        """The server does not use TLS."""
        return self.reason == PLAIN_HTTP


async def connect(target: ProbeTarget, action: HttpGet | TcpSocket | GrpcAction) -> socket.socket:
    """Raises OSError."""
    is_foreign = bool(getattr(action, "host", ""))
    return await _dial(target, target.host(action), target.port(action), from_node=is_foreign)


async def fetch(target: ProbeTarget, action: HttpGet, agent: str) -> HttpResponse:
    """`agent`: `kube-probe` or `kube-lifecycle`. Raises HttpRequestError."""
    url = target.url(action)
    first = urlsplit(url).hostname
    for _ in range(REDIRECTS_MAX):
        try:
            status, text, location = await _get(target, url, action, f"{agent}/{target.profile.release}")
        except MalformedResponseError as error:
            raise HttpRequestError(url, str(error)) from error
        except ssl.SSLError as error:
            raise HttpRequestError(url, _tls_text(error)) from error
        except OSError as error:
            parts = urlsplit(url)
            raise HttpRequestError(url, dial_text(_joined(parts.hostname or "", _port_of(url)), error)) from error
        if status not in (301, 302, 303, 307, 308) or not location:
            return HttpResponse(status, text)
        try:
            url = urljoin(url, location)
            place = urlsplit(url)
            _ = place.port  # read to be checked
        except ValueError as error:  # whatever the container has written
            raise HttpRequestError(url, f"failed to parse Location header {quoted(location)}: {error}") from error
        if place.hostname != first:
            return HttpResponse(status, text, is_foreign_redirect=True)
    raise HttpRequestError(url, f"stopped after {REDIRECTS_MAX} redirects")


def dial_text(address: str, error: OSError) -> str:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return f"dial tcp {address}: connect: {reason}"


async def _dial(target: ProbeTarget, host: str, port: int, *, from_node: bool) -> socket.socket:
    inside = None if from_node else await target.runtime.pod_socket(target.sandbox_id)
    loop = asyncio.get_running_loop()
    if inside is None:
        # From the node; a name has to be resolved there.
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, proto, _, address = found[0]
        inside = socket.socket(family, kind, proto)
    else:
        address = (host, port)
    inside.setblocking(False)
    try:
        await loop.sock_connect(inside, address)
    except BaseException:
        inside.close()
        raise
    return inside


async def _get(target: ProbeTarget, url: str, action: HttpGet, agent: str) -> tuple[int, str, str]:
    """Status, text, and the location of a redirect."""
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    host = parts.hostname or LOOPBACK
    connected = await _dial(target, host, _port_of(url), from_node=bool(action.host))
    connection = HttpClientConnection(
        *await asyncio.open_connection(
            sock=connected, ssl=_unverified() if is_secure else None, server_hostname=host if is_secure else None
        )
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {header.name: header.value for header in action.http_headers}
    body = b""
    try:
        status = await connection.begin(_request(path, parts.netloc, agent, headers))
        with suppress(TruncatedResponseError):
            async for part in connection.parts():
                body += part
                if len(body) >= MAX_OUTPUT_BYTES:
                    break
    except EOFError:
        raise ConnectionError(errno.ECONNRESET, "EOF") from None
    finally:
        connection.close()
    location = connection.headers.get(b"location", b"").decode("latin-1")
    return status, body[:MAX_OUTPUT_BYTES].decode(errors="replace"), location


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _request(path: str, netloc: str, agent: str, headers: Mapping[str, str]) -> bytes:
    named = {name.lower() for name in headers}
    host = next((value for name, value in headers.items() if name.lower() == "host"), netloc)
    lines = [f"GET {path} HTTP/1.1", f"Host: {_line(host)}", "Connection: close"]
    defaults = (("User-Agent", agent), ("Accept", "*/*"))
    lines += [f"{name}: {value}" for name, value in defaults if name.lower() not in named]
    lines += [f"{_line(name)}: {_line(value)}" for name, value in headers.items() if name.lower() != "host" and value]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def _line(text: str) -> str:
    """Without line breaks: a header must not contain a second one."""
    return "".join(character for character in text if character not in "\r\n\0")


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _tls_text(error: ssl.SSLError) -> str:
    """A server without TLS answers with text, which is no TLS record."""
    return PLAIN_HTTP if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST") else f"tls: {error.reason or error}"
