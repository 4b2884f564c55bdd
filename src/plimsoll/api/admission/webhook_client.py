"""Calls to admission webhooks: HTTPS to an address, or to a ready endpoint of a service.

There is no proxying of services here, so a service is called at the address of one of its pods, under the name that its
certificate has (`NAME.NAMESPACE.svc`).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from contextlib import aclosing
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec

from plimsoll.api.machinery.cluster import Cluster
from plimsoll.net.http import HttpClientConnection
from plimsoll.rules.model.json_object import JsonObject

MAX_ANSWER_BYTES = 3 * 1024 * 1024


class WebhookError(Exception):
    """The webhook could not be asked; `str()` is what follows `failed calling webhook "…": `."""


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    path: str
    server_name: str
    shown: str


def webhook_address(cluster: Cluster, client: JsonObject, timeout_s: int) -> Address:
    if client.get("url"):
        found = urlsplit(client["url"])
        host, port = found.hostname or "", found.port or 443
        path = f"{found.path or '/'}?timeout={timeout_s}s"
        return Address(host, port, path, host, f"{client['url']}?timeout={timeout_s}s")
    service = client.get("service") or {}
    namespace, name, port = service.get("namespace") or "", service.get("name") or "", service.get("port") or 443
    path = f"{service.get('path') or '/'}?timeout={timeout_s}s"
    server_name = f"{name}.{namespace}.svc"
    shown = f"https://{server_name}:{port}{path}"
    document = cluster.document("services", namespace, name)
    if document is None:
        raise WebhookError(f'failed to call webhook: Post "{shown}": service "{name}" not found')
    spec = document.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return Address(spec.get("externalName") or "", port, path, server_name, shown)
    of_port = next((each for each in spec.get("ports") or [] if each.get("port") == port), None)
    if of_port is None:
        raise WebhookError(f'failed to call webhook: Post "{shown}": no service port {port} found for service "{name}"')
    endpoint = _endpoint(cluster, namespace, name, of_port.get("name") or "")
    if endpoint is None:
        raise WebhookError(f'failed to call webhook: Post "{shown}": no endpoints available for service "{name}"')
    return Address(endpoint[0], endpoint[1], path, server_name, shown)


def _endpoint(cluster: Cluster, namespace: str, service: str, port_name: str) -> tuple[str, int] | None:
    for piece in cluster.documents("endpointslices", namespace):
        if (piece["metadata"].get("labels") or {}).get("kubernetes.io/service-name") != service:
            continue
        port = next((each["port"] for each in piece.get("ports") or [] if (each.get("name") or "") == port_name), None)
        for endpoint in piece.get("endpoints") or []:
            if port and (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("addresses"):
                return str(endpoint["addresses"][0]), int(port)
    return None


@lru_cache(64)
def _context(bundle: str) -> ssl.SSLContext:
    try:
        pem = base64.b64decode(bundle).decode() if bundle else None
        return ssl.create_default_context(cadata=pem)
    except (binascii.Error, ValueError, ssl.SSLError) as error:
        raise WebhookError(f"unable to load root certificates: {error}") from None


async def ask(address: Address, bundle: str, review: bytes, timeout_s: float) -> Any:
    """The answer of a webhook, as JSON; raises WebhookError."""
    context = _context(bundle)
    head = (
        f"POST {address.path} HTTP/1.1\r\nHost: {address.server_name}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, */*\r\nUser-Agent: kube-apiserver-admission\r\nConnection: close\r\n"
        f"Content-Length: {len(review)}\r\n\r\n"
    ).encode()
    connection: HttpClientConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=address.server_name
            )
            connection = HttpClientConnection(reader, writer)
            code = await connection.begin(head + review)
            body = bytearray()
            async with aclosing(connection.parts()) as parts:  # type: ignore[type-var]
                async for part in parts:
                    body += part
                    if len(body) > MAX_ANSWER_BYTES:
                        raise WebhookError("failed to call webhook: the response is too large")
    except TimeoutError:
        raise WebhookError(f'failed to call webhook: Post "{address.shown}": context deadline exceeded') from None
    except ssl.SSLCertVerificationError as error:
        why = f"tls: failed to verify certificate: x509: {error.verify_message or error}"
        raise WebhookError(f'failed to call webhook: Post "{address.shown}": {why}') from None
    except (OSError, EOFError) as error:
        why = str(error) or "EOF"
        raise WebhookError(f'failed to call webhook: Post "{address.shown}": {why}') from None
    finally:
        if connection is not None:
            connection.close()
    if not 200 <= code < 300:
        raise WebhookError(
            f"failed to call webhook: the server responded with the status code {code} but did not return more "
            "information"
        )
    try:
        return msgspec.json.decode(bytes(body))
    except msgspec.DecodeError as error:
        raise WebhookError(f"failed to call webhook: could not decode the response: {error}") from None
