"""The node's client certificate: read from the kubeconfig, renewed at 80 % of its lifetime, stored for the next start.

Like the kubelet, the agent creates a key and a CertificateSigningRequest for its own identity. Once it is signed, both
are stored and used for new connections, to the API server and at the node's server. A pending or denied request is
retried with growing delays, since a fifth of the lifetime is left.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.aio import ExponentialBackoff
from plimsoll.codec.kernel.x509 import CertificateFormatError, validity
from plimsoll.errors import PlimsollError
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, ResourcePath, UnreachableError
from plimsoll.kube.signing_request import KeyGenerationError, signing_request
from plimsoll.linux.files.state_dir import write_private

REQUESTS = ResourcePath("/apis/certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest")
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
RENEW_AT = 0.8
MAX_SLEEP_S = 3600.0  # the wall clock may be changed meanwhile
SIGNED_S, SIGNED_POLL_S = 900.0, 5.0  # how long the kubelet waits for its certificate
RETRY_FIRST_S, RETRY_MOST_S = 10.0, 3600.0
FILE = "node-identity.pem"

_log = logging.getLogger(__name__)


class NodeIdentity(msgspec.Struct, frozen=True):
    certificate: bytes
    key: bytes


class CertificatePendingError(TimeoutError):
    pass


class CertificateRefusedError(PlimsollError):
    pass


FAILURES = (
    ApiError,
    UnreachableError,
    TimeoutError,
    KeyGenerationError,
    CertificateFormatError,
    CertificateRefusedError,
)


def stored_identity(state: Path, configured: NodeIdentity) -> NodeIdentity:
    """The identity stored by a renewal if it is valid longer than the one of the kubeconfig, else that one."""
    try:
        data = (state / FILE).read_bytes()
        certificate, begin, key = data.partition(b"-----BEGIN PRIVATE KEY-----")
        if begin and validity(certificate)[1] > validity(configured.certificate)[1]:
            return NodeIdentity(certificate, begin + key)
    except FileNotFoundError:
        pass
    except CertificateFormatError as error:
        _log.warning("%s: %s; using the certificate of the kubeconfig", state / FILE, error)
    return configured


class Renewal:
    def __init__(
        self,
        client: Client,
        node_name: str,
        identity: NodeIdentity,
        state: Path,
        use: Callable[[NodeIdentity], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`use` is called with each new identity after it was stored."""
        self._client, self._name, self.identity, self._state = client, node_name, identity, state
        self._use, self._clock = use, clock

    def due_s(self) -> float:
        """Seconds until the renewal; negative when it is overdue."""
        begin_s, end_s = validity(self.identity.certificate)
        return begin_s + (end_s - begin_s) * RENEW_AT - self._clock()

    async def run(self) -> None:
        backoff = ExponentialBackoff(RETRY_FIRST_S, RETRY_MOST_S)
        while True:
            if (due_s := self.due_s()) > 0:
                await asyncio.sleep(min(due_s, MAX_SLEEP_S))
                continue
            try:
                await self.renew()
                backoff.reset()
            except FAILURES as error:
                pause_s = backoff.next_s()
                _log.warning("cannot renew the node's certificate: %s; retrying in %g s", error, pause_s)
                await asyncio.sleep(pause_s)

    async def renew(self) -> None:
        identity = await requested_identity(self._client, self._name, self._clock)
        write_private(self._state / FILE, identity.certificate + b"\n" + identity.key)
        self.identity = identity
        self._use(identity)
        _log.info("the node's certificate was renewed")


async def requested_identity(client: Client, node_name: str, clock: Callable[[], float] = time.time) -> NodeIdentity:
    """A new key, and the certificate that the cluster signs for it. Raises what `FAILURES` lists."""
    csr = await signing_request(f"system:node:{node_name}", "system:nodes")
    name = f"csr-{secrets.token_hex(4)}"
    document = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(csr.request).decode(),
            "signerName": SIGNER,
            "usages": ["digital signature", "client auth"],
        },
    }
    answer = await client.ask(request.create(REQUESTS, document))
    certificate = await _signed(client, name, answer, clock)
    validity(certificate)
    return NodeIdentity(certificate, csr.key)


async def _signed(client: Client, name: str, answer: dict[str, Any], clock: Callable[[], float]) -> bytes:
    until_s = clock() + SIGNED_S
    while True:
        status = answer.get("status") or {}
        if status.get("certificate"):
            try:
                return base64.b64decode(str(status["certificate"]), validate=True)
            except ValueError as error:
                raise CertificateFormatError(f"{name}: status.certificate: {error}") from None
        for condition in status.get("conditions") or ():
            if condition.get("type") in ("Denied", "Failed"):
                raise CertificateRefusedError(f"{name}: {condition['type']}: {condition.get('message') or 'no reason'}")
        if clock() > until_s:
            raise CertificatePendingError(f"{name} was not signed within {SIGNED_S:g} s")
        await asyncio.sleep(SIGNED_POLL_S)
        answer = await client.ask(request.get(REQUESTS, name))
