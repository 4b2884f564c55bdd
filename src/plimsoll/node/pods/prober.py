"""Runs one probe or hook: a command in the container, an HTTP request or a TCP connection from inside the pod.

Results and messages are the kubelet's: 200 to 399 is success; a redirect is followed while it stays on the same host,
ten times at most; TLS is not verified; a command succeeds with exit code 0. A pod with a network of its own is reached
on its loopback, through sockets that the runtime opens inside it.
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
from plimsoll.runtime.interface import ExecService, RuntimeCallError

REDIRECTS_MAX = 10
LOOPBACK = "127.0.0.1"


class ProbeTarget(msgspec.Struct, frozen=True):
    """The container that is probed, and its pod's network."""

    runtime: ExecService
    sandbox_id: str
    container_id: str
    container: RunContainer
    ip: str = ""  # at which the pod is reached from outside; "" for its loopback
    profile: Profile = DEFAULT_PROFILE


async def run_probe(target: ProbeTarget, action: Probe | Hook, timeout_s: float) -> ProbeResult:
    if action.exec is not None:
        return await _exec(target, action.exec, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            if action.http_get is not None:
                return await _http(target, action.http_get)
            if action.tcp_socket is not None:
                return await _tcp(target, action.tcp_socket)
    except TimeoutError:
        return ProbeResult(False, _timeout_text(target, action))
    return ProbeResult(False, "grpc probes are not supported on this node: use exec, httpGet or tcpSocket")


async def _exec(target: ProbeTarget, action: ExecAction, timeout_s: float) -> ProbeResult:
    command = action.command
    result = await target.runtime.run_in(target.container_id, command, timeout_s, max_output_bytes=MAX_OUTPUT_BYTES)
    if result.timed_out:
        return exec_timeout(command, int(timeout_s), target.profile)
    return exec_answer(result.exit_code, result.output.decode(errors="replace"))


async def _tcp(target: ProbeTarget, action: TcpSocket) -> ProbeResult:
    port = _port(target, action)
    host = action.host or target.ip or LOOPBACK
    try:
        connection = await _connect(target, host, port)
    except OSError as error:
        return ProbeResult(False, _dial_text(host, port, error))
    connection.close()
    return ProbeResult(True)


async def _http(target: ProbeTarget, action: HttpGet) -> ProbeResult:
    url, port = _url(target, action), _port(target, action)
    first = urlsplit(url).hostname
    for _ in range(REDIRECTS_MAX):
        try:
            response = await _get(target, url, action)
        except MalformedResponseError as error:
            return ProbeResult(False, f'Get "{url}": {error}')
        except OSError as error:
            parts = urlsplit(url)
            reason = _dial_text(parts.hostname or "", parts.port or port, error)
            return ProbeResult(False, f'Get "{url}": {reason}')
        if response.status not in (301, 302, 303, 307, 308) or not response.location:
            break
        url = urljoin(url, response.location)
        if urlsplit(url).hostname != first:
            return http_answer(response.status, response.text, is_foreign_redirect=True)
    else:
        return ProbeResult(False, f'Get "{url}": stopped after {REDIRECTS_MAX} redirects')
    return http_answer(response.status, response.text)


def _url(target: ProbeTarget, action: HttpGet) -> str:
    host, path = action.host or target.ip or LOOPBACK, action.path.removeprefix("/")
    return f"{action.scheme.lower()}://{host}:{_port(target, action)}/{path}"


def _port(target: ProbeTarget, action: HttpGet | TcpSocket) -> int:
    port = port_number(action, target.container)
    if port is None:
        raise RuntimeCallError("probe", f'container "{target.container.name}" has no port "{action.port}"')
    return port


async def _connect(target: ProbeTarget, host: str, port: int) -> socket.socket:
    inside = await target.runtime.pod_socket(target.sandbox_id)
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


async def _get(target: ProbeTarget, url: str, action: HttpGet) -> _Response:
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    inside = await _connect(target, parts.hostname or LOOPBACK, port)
    tls = _unverified() if is_secure else None
    connection = HttpClientConnection(
        *await asyncio.open_connection(
            sock=inside, ssl=tls, server_hostname=(parts.hostname or "") if is_secure else None
        )
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {header.name: header.value for header in action.http_headers}
    body = b""
    try:
        status = await connection.begin(_request(path, parts.netloc, f"kube-probe/{target.profile.release}", headers))
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


def _dial_text(host: str, port: int, error: OSError) -> str:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return f"dial tcp {host}:{port}: connect: {reason}"


def _timeout_text(target: ProbeTarget, action: Probe | Hook) -> str:
    if action.http_get is not None:
        url = _url(target, action.http_get)
        return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    tcp = action.tcp_socket
    assert tcp is not None
    return f"dial tcp {tcp.host or target.ip or LOOPBACK}:{_port(target, tcp)}: i/o timeout"
