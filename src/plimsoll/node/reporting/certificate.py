"""The node's certificates: requested from the cluster, renewed at 80 % of their lifetime, stored for the next start.

Like the kubelet, the agent creates a key and a CertificateSigningRequest for its own identity. Once it is signed, both
are stored and used for new connections, to the API server and at the node's server. A pending or denied request is
retried with growing delays, since a fifth of the lifetime is left.

With serverTLSBootstrap the serving certificate is a second one, for the node's names and addresses. Most clusters leave
its approval to an administrator.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.aio import ExponentialBackoff
from plimsoll.codec.kernel.x509 import CertificateFormatError, common_name, validity
from plimsoll.errors import PlimsollError
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, ResourcePath, UnreachableError
from plimsoll.kube.signing_request import KeyGenerationError, signing_request
from plimsoll.linux.files.state_dir import write_private

REQUESTS = ResourcePath("/apis/certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest")
RENEW_AT = 0.8
MAX_SLEEP_S = 3600.0  # the wall clock may be changed meanwhile
SIGNED_S, SIGNED_POLL_S = 900.0, 5.0  # how long the kubelet waits for its certificate
RETRY_FIRST_S, RETRY_MOST_S = 10.0, 3600.0
FILE = "node-identity.pem"
NAMES = b"Names: "

_log = logging.getLogger(__name__)


class NodeIdentity(msgspec.Struct, frozen=True):
    certificate: bytes
    key: bytes


class Purpose(msgspec.Struct, frozen=True):
    """What a certificate is for; its `file` is in the state directory."""

    title: str
    signer: str
    usage: str
    file: str


CLIENT = Purpose("certificate", "kubernetes.io/kube-apiserver-client-kubelet", "client auth", FILE)
SERVING = Purpose("serving certificate", "kubernetes.io/kubelet-serving", "server auth", "node-serving.pem")


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
    """The identity stored by a renewal if it is valid longer than the one of the kubeconfig and has the same name,
    else that one."""
    try:
        data = (state / FILE).read_bytes()
        certificate, begin, key = data.partition(b"-----BEGIN PRIVATE KEY-----")
        if begin and validity(certificate)[1] > validity(configured.certificate)[1]:
            if common_name(certificate) == common_name(configured.certificate):
                return NodeIdentity(certificate, begin + key)
            _log.warning(
                "%s is the certificate of %s; using that of the kubeconfig", state / FILE, common_name(certificate)
            )
    except FileNotFoundError:
        pass
    except CertificateFormatError as error:
        _log.warning("%s: %s; using the certificate of the kubeconfig", state / FILE, error)
    return configured


def stored_serving(state: Path, names: Sequence[str], now_s: float) -> NodeIdentity | None:
    """The stored serving certificate if it is valid and was signed for these names."""
    try:
        first, _, data = (state / SERVING.file).read_bytes().partition(b"\n")
        certificate, begin, key = data.partition(b"-----BEGIN PRIVATE KEY-----")
        if begin and first == _names_line(names) and now_s < validity(certificate)[1]:
            return NodeIdentity(certificate, begin + key)
    except FileNotFoundError:
        pass
    except CertificateFormatError as error:
        _log.warning("%s: %s; requesting another one", state / SERVING.file, error)
    return None


def _names_line(names: Sequence[str]) -> bytes:
    """Text before the PEM blocks, which readers of PEM skip."""
    return NAMES + ",".join(names).encode()


class Renewal:
    def __init__(
        self,
        client: Client,
        node_name: str,
        identity: NodeIdentity | None,
        state: Path,
        use: Callable[[NodeIdentity], None],
        *,
        purpose: Purpose = CLIENT,
        names: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`use` is called with each new identity after it was stored. Without an identity the first one is requested
        at once. `names`: what a serving certificate is for."""
        self._client, self._name, self.identity, self._state = client, node_name, identity, state
        self._use, self._purpose, self._names, self._clock = use, purpose, names, clock

    def due_s(self) -> float:
        """Seconds until the renewal; not positive when it is due."""
        if self.identity is None:
            return 0.0
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
                title = self._purpose.title
                _log.warning("cannot renew the node's %s: %s; retrying in %g s", title, error, pause_s)
                await asyncio.sleep(pause_s)

    async def renew(self) -> None:
        purpose = self._purpose
        identity = await requested_identity(self._client, self._name, self._clock, purpose, self._names)
        head = _names_line(self._names) + b"\n" if self._names else b""
        write_private(self._state / purpose.file, head + identity.certificate + b"\n" + identity.key)
        self.identity = identity
        self._use(identity)
        _log.info("the node's %s was renewed", purpose.title)


async def requested_identity(
    client: Client,
    node_name: str,
    clock: Callable[[], float] = time.time,
    purpose: Purpose = CLIENT,
    names: Sequence[str] = (),
) -> NodeIdentity:
    """A new key, and the certificate that the cluster signs for it. Raises what `FAILURES` lists."""
    csr = await signing_request(f"system:node:{node_name}", "system:nodes", names)
    name = f"csr-{secrets.token_hex(4)}"
    document = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(csr.request).decode(),
            "signerName": purpose.signer,
            "usages": ["digital signature", purpose.usage],
        },
    }
    answer = await client.ask(request.create(REQUESTS, document))
    certificate = await _signed(client, name, answer, clock)
    validity(certificate)
    return NodeIdentity(certificate, csr.key)


async def _signed(client: Client, name: str, answer: dict[str, Any], clock: Callable[[], float]) -> bytes:
    until_s, is_logged = clock() + SIGNED_S, False
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
        if not is_logged:
            is_logged = True
            _log.info("waiting until %s is approved: kubectl certificate approve %s", name, name)
        await asyncio.sleep(SIGNED_POLL_S)
        answer = await client.ask(request.get(REQUESTS, name))
