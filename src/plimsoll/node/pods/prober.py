"""Runs one probe: a command in the container, an HTTP request, a TCP connection or a gRPC health check.

Results and messages are the kubelet's: 200 to 399 is success; a command succeeds with exit code 0; a gRPC server must
answer that it serves.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.node.pods.pod_http import HttpRequestError, ProbeTarget, connect, dial_text, fetch
from plimsoll.rules.lifecycle.probes import (
    MAX_OUTPUT_BYTES,
    ProbeResult,
    exec_answer,
    exec_timeout,
    grpc_failure,
    grpc_health,
    grpc_timeout,
    http_answer,
)
from plimsoll.rules.model.runnable import ExecAction, GrpcAction, HttpGet, Probe, TcpSocket

AGENT = "kube-probe"
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
GRPC_RETRY_S = 1.0  # the first pause of Go's client between two attempts to connect


async def run_probe(target: ProbeTarget, probe: Probe, timeout_s: float) -> ProbeResult:
    if probe.exec is not None:
        return await run_command(target, probe.exec, timeout_s)
    if probe.grpc is not None:
        return await _grpc(target, probe.grpc, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            if probe.http_get is not None:
                return await _http(target, probe.http_get)
            if probe.tcp_socket is not None:
                return await _tcp(target, probe.tcp_socket)
    except TimeoutError:
        return ProbeResult(False, _timeout_text(target, probe))
    return ProbeResult(False, error="missing probe handler")


async def run_command(target: ProbeTarget, action: ExecAction, timeout_s: float) -> ProbeResult:
    command = action.command
    result = await target.runtime.run_in(target.container_id, command, timeout_s, max_output_bytes=MAX_OUTPUT_BYTES)
    if result.timed_out:
        return exec_timeout(command, int(timeout_s), target.profile)
    return exec_answer(result.exit_code, result.output.decode(errors="replace"))


async def _tcp(target: ProbeTarget, action: TcpSocket) -> ProbeResult:
    try:
        connection = await connect(target, action)
    except OSError as error:
        return ProbeResult(False, dial_text(target.address(action), error))
    connection.close()
    return ProbeResult(True)


async def _http(target: ProbeTarget, action: HttpGet) -> ProbeResult:
    try:
        response = await fetch(target, action, AGENT)
    except HttpRequestError as error:
        return ProbeResult(False, str(error))
    return http_answer(response.status, response.text, is_foreign_redirect=response.is_foreign_redirect)


# gRPC


class _HealthCheckRequest(msgspec.Struct, frozen=True):
    service: Annotated[str, 1] = ""


class _HealthCheckResponse(msgspec.Struct, frozen=True):
    status: Annotated[int, 1] = 0


async def _grpc(target: ProbeTarget, action: GrpcAction, timeout_s: float) -> ProbeResult:
    from plimsoll.net.grpc.client import unary_over
    from plimsoll.net.grpc.status import GrpcError  # most agents never need it

    address = target.address(action)
    agent = (("user-agent", f"{AGENT}/{target.profile.release}"),)
    is_connected = False
    try:
        async with asyncio.timeout(timeout_s):
            connection = None
            while connection is None:
                try:
                    connection = await connect(target, action)
                except OSError:
                    await asyncio.sleep(GRPC_RETRY_S)
            is_connected = True
            request = encode(_HealthCheckRequest(action.service))
            answer = await unary_over(connection, address, HEALTH_CHECK, request, timeout_s, agent)
    except TimeoutError:
        return grpc_timeout(address, timeout_s, is_connected=is_connected)
    except GrpcError as error:
        return grpc_failure(error.code, error.message, str(error), timeout_s)
    return grpc_health(decode(_HealthCheckResponse, answer).status)


def _timeout_text(target: ProbeTarget, probe: Probe) -> str:
    if probe.http_get is not None:
        url = target.url(probe.http_get)
        return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    assert probe.tcp_socket is not None
    return f"dial tcp {target.address(probe.tcp_socket)}: i/o timeout"
