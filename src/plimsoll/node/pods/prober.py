"""One probe or hook, carried out: a command in the container, an HTTP request or a TCP connection from inside the pod.

Answers and words are the kubelet's: 200 to 399 is success; a redirect is followed while it stays on the same host, ten
times at most; TLS is not verified; a command succeeds with exit code 0. A pod has a network of its own, in which it is
reached on its loopback: the runtime hands out sockets that live there.
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

from plimsoll.net.http import HttpClientConnection, MalformedResponseError, TruncatedResponseError
from plimsoll.rules.lifecycle.probes import (
    MAX_OUTPUT_BYTES,
    ProbeResult,
    exec_answer,
    exec_timeout,
    http_answer,
    port_number,
)
from plimsoll.rules.model.runnable import ExecAction, Hook, HttpGet, Probe, RunContainer, TcpSocket
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.runtime.interface import ContainerRuntime, RuntimeCallError

REDIRECTS_MOST = 10
LOOPBACK = "127.0.0.1"


class ProbeTarget(msgspec.Struct, frozen=True):
    """Where a probe is made: the container, and its pod's network."""

    runtime: ContainerRuntime
    sandbox_id: str
    container_id: str
    container: RunContainer
    ip: str = ""  # where the pod can be reached from outside; "" for its loopback
    profile: Profile = DEFAULT_PROFILE


async def carried_out(place: ProbeTarget, action: Probe | Hook, timeout_s: float) -> ProbeResult:
    if action.exec is not None:
        return await _exec(place, action.exec, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            if action.http_get is not None:
                return await _http(place, action.http_get)
            if action.tcp_socket is not None:
                return await _tcp(place, action.tcp_socket)
    except TimeoutError:
        return ProbeResult(False, _too_late(place, action))
    return ProbeResult(False, "grpc probes are not supported on this node: use exec, httpGet or tcpSocket")


async def _exec(place: ProbeTarget, action: ExecAction, timeout_s: float) -> ProbeResult:
    command = action.command
    result = await place.runtime.run_in(place.container_id, command, timeout_s, max_output_bytes=MAX_OUTPUT_BYTES)
    if result.timed_out:
        return exec_timeout(command, int(timeout_s), place.profile)
    return exec_answer(result.exit_code, result.output.decode(errors="replace"))


async def _tcp(place: ProbeTarget, action: TcpSocket) -> ProbeResult:
    port = _port(place, action)
    host = action.host or place.ip or LOOPBACK
    try:
        connection = await _connected(place, host, port)
    except OSError as error:
        return ProbeResult(False, _dial_text(host, port, error))
    connection.close()
    return ProbeResult(True)


async def _http(place: ProbeTarget, action: HttpGet) -> ProbeResult:
    port = _port(place, action)
    host = action.host or place.ip or LOOPBACK
    path = action.path if action.path.startswith("/") else f"/{action.path}"
    url = f"{action.scheme.lower()}://{host}:{port}{path}"
    first = urlsplit(url).hostname
    for _ in range(REDIRECTS_MOST):
        try:
            answer = await _got(place, url, action)
        except MalformedResponseError as error:
            return ProbeResult(False, f'Get "{url}": {error}')
        except OSError as error:
            parts = urlsplit(url)
            reason = _dial_text(parts.hostname or "", parts.port or port, error)
            return ProbeResult(False, f'Get "{url}": {reason}')
        if answer.status not in (301, 302, 303, 307, 308) or not answer.location:
            break
        url = urljoin(url, answer.location)
        if urlsplit(url).hostname != first:
            return http_answer(answer.status, answer.text, is_foreign_redirect=True)
    else:
        return ProbeResult(False, f'Get "{url}": stopped after {REDIRECTS_MOST} redirects')
    return http_answer(answer.status, answer.text)


def _port(place: ProbeTarget, action: HttpGet | TcpSocket) -> int:
    found = port_number(action, place.container)
    if found is None:
        raise RuntimeCallError("probe", f'container "{place.container.name}" has no port "{action.port}"')
    return found


async def _connected(place: ProbeTarget, host: str, port: int) -> socket.socket:
    inside = await place.runtime.pod_socket(place.sandbox_id)
    if inside is None:
        inside = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    inside.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(inside, (host, port))
    except BaseException:
        inside.close()
        raise
    return inside


class _Response(msgspec.Struct, frozen=True):
    status: int
    text: str
    location: str = ""


async def _got(place: ProbeTarget, url: str, action: HttpGet) -> _Response:
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    inside = await _connected(place, parts.hostname or LOOPBACK, port)
    tls = _unverified() if is_secure else None
    connection = HttpClientConnection(
        *await asyncio.open_connection(
            sock=inside, ssl=tls, server_hostname=(parts.hostname or "") if is_secure else None
        )
    )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {header.name: header.value for header in action.http_headers}
    body = b""
    try:
        status = await connection.begin(_request(target, parts.netloc, f"kube-probe/{place.profile.name}", headers))
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
    return _Response(status, body[:MAX_OUTPUT_BYTES].decode(errors="replace"), location)


def _request(target: str, netloc: str, agent: str, headers: Mapping[str, str]) -> bytes:
    given = {name.lower() for name in headers}
    host = next((value for name, value in headers.items() if name.lower() == "host"), netloc)
    lines = [f"GET {target} HTTP/1.1", f"Host: {_line(host)}", "Connection: close"]
    defaults = (("User-Agent", agent), ("Accept", "*/*"))
    lines += [f"{name}: {value}" for name, value in defaults if name.lower() not in given]
    lines += [f"{_line(name)}: {_line(value)}" for name, value in headers.items() if name.lower() != "host" and value]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def _line(text: str) -> str:
    """A header cannot hold a second one."""
    return "".join(each for each in text if each not in "\r\n\0")


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _dial_text(host: str, port: int, error: OSError) -> str:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return f"dial tcp {host}:{port}: connect: {reason}"


def _too_late(place: ProbeTarget, action: Probe | Hook) -> str:
    if action.http_get is not None:
        get = action.http_get
        host, path = get.host or place.ip or LOOPBACK, get.path if get.path.startswith("/") else f"/{get.path}"
        url = f"{get.scheme.lower()}://{host}:{_port(place, get)}{path}"
        return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    tcp = action.tcp_socket
    port = _port(place, tcp) if tcp is not None else 0
    return f"dial tcp {(tcp.host if tcp is not None else '') or place.ip or LOOPBACK}:{port}: i/o timeout"
