"""Upgrade requests for exec: which one is a WebSocket handshake, and which subprotocols it offers."""

from __future__ import annotations

from plimsoll.node.server.http import HttpRequest


def offered_subprotocols(request: HttpRequest) -> list[str]:
    values = [value for name, value in request.headers if name == b"sec-websocket-protocol"]
    return [name.strip() for value in values for name in value.decode("latin-1").split(",") if name.strip()]


def handshake_problem(request: HttpRequest) -> str:
    """Why this is not a WebSocket request; empty where it is one."""
    upgrade = request.header(b"upgrade").lower()
    if not request.wants_upgrade or not upgrade:
        return "Upgrade request required"
    if b"spdy" in upgrade:
        return "SPDY is not supported: exec uses WebSockets (kubectl 1.30 or newer)"
    if request.method != "GET" or upgrade != b"websocket" or request.header(b"sec-websocket-version") != b"13":
        return "exec needs a GET request for a WebSocket of version 13"
    if not request.header(b"sec-websocket-key") or not request.header(b"host"):
        return "the WebSocket request lacks Sec-WebSocket-Key or Host"
    return ""
