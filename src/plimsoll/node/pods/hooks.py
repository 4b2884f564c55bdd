"""Runs one postStart or preStop hook: a command in the container, an HTTP request, or a pause.

An HTTP hook succeeds with any response. If a server that should use TLS does not, the request is repeated without it,
and the result says so. A `tcpSocket` hook always fails, as on every kubelet.
"""

from __future__ import annotations

import asyncio

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.node.pods.pod_http import HttpRequestError, ProbeTarget, fetch
from plimsoll.node.pods.prober import run_command
from plimsoll.rules.model.runnable import Hook, HttpGet

AGENT = "kube-lifecycle"


class HookResult(msgspec.Struct, frozen=True):
    is_success: bool
    why: str = ""
    fell_back: str = ""  # the address that answered without TLS


async def run_hook(target: ProbeTarget, hook: Hook, timeout_s: float) -> HookResult:
    """Never longer than `timeout_s`."""
    if hook.sleep is not None:
        await asyncio.sleep(min(hook.sleep.seconds, timeout_s))
        return HookResult(True)
    try:
        if hook.exec is not None:
            result = await run_command(target, hook.exec, timeout_s)
            return HookResult(result.is_success, result.output)
        if hook.http_get is not None:
            async with asyncio.timeout(timeout_s):
                return await _http(target, hook.http_get)
    except TimeoutError:
        return HookResult(False, f"context deadline exceeded after {timeout_s:g} s")
    except (PlimsollError, OSError) as error:
        return HookResult(False, str(error) or type(error).__name__)
    return HookResult(False, "Cannot run handler: a hook needs exec, httpGet or sleep")


async def _http(target: ProbeTarget, action: HttpGet) -> HookResult:
    try:
        await fetch(target, action, AGENT)
    except HttpRequestError as error:
        if not error.is_plain_http:
            raise
        headers = tuple(each for each in action.http_headers if each.name.lower() != "authorization")
        await fetch(target, msgspec.structs.replace(action, scheme="HTTP", http_headers=headers), AGENT)
        return HookResult(True, fell_back=target.address(action))
    return HookResult(True)
