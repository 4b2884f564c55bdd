"""Open a WebSocket to a Kubernetes server, for exec, with the errors of `kube.request`."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from plimsoll.kube.request import ApiResponse, UnreachableError, api_error
from plimsoll.net.websocket import RejectedError, WebSocket


async def connect(
    host: str,
    port: int,
    target: str,
    *,
    tls: ssl.SSLContext | None,
    server_name: str | None,
    subprotocols: Sequence[str],
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> WebSocket:
    """ApiError where the server rejects the upgrade; UnreachableError where it does not answer."""
    try:
        return await WebSocket.connect(
            host, port, target, subprotocols=subprotocols, headers=headers, tls=tls, server_name=server_name
        )
    except RejectedError as error:
        raise api_error(ApiResponse(error.status, error.body)) from None
    except OSError as error:
        raise UnreachableError(f"{host}:{port}: {error}") from error
