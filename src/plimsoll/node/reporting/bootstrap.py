"""TLS bootstrap: a node without an identity requests one with the credentials of a bootstrap kubeconfig.

As the kubelet does: a kubeconfig whose client certificate is valid is used as it is, so the bootstrap file, whose token
expires, is needed only once. The new kubeconfig has the same server and CA, and the node's certificate and key.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from plimsoll.codec.kernel.x509 import CertificateFormatError, validity
from plimsoll.errors import PlimsollError
from plimsoll.kube import kubeconfig
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.linux.files.state_dir import write_private
from plimsoll.node.reporting.certificate import FAILURES, NodeIdentity, requested_identity

_log = logging.getLogger(__name__)


class BootstrapError(PlimsollError):
    """The node did not get an identity; says why."""


def is_needed(file: Path, clock: Callable[[], float] = time.time) -> bool:
    """Whether the node's kubeconfig is missing, or its certificate is not valid now."""
    if not file.exists():
        return True
    certificate = kubeconfig.load(file).certificate
    if certificate is None:
        return False  # another kind of credentials
    try:
        begin_s, end_s = validity(certificate)
    except CertificateFormatError:
        return True
    return not begin_s <= clock() < end_s


async def bootstrap(source: Path, file: Path, node_name: str) -> None:
    """Write the node's kubeconfig to `file` (0600). Raises BootstrapError."""
    access = kubeconfig.load(source)
    if access.ca is None:
        raise BootstrapError(f"{source}: a node needs the certificate of the CA (certificate-authority)")
    transport = HttpTransport(access, agent="kubelet")
    try:
        identity = await requested_identity(Client(transport), node_name)
    except FAILURES as error:
        raise BootstrapError(f"no certificate for node {node_name} from {access.server}: {error}") from error
    finally:
        await transport.close()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(file, _written(access, access.ca, node_name, identity))
    _log.info("joined %s as %s; credentials are in %s", access.server, node_name, file)


def _written(access: kubeconfig.Access, ca: bytes, node_name: str, identity: NodeIdentity) -> bytes:
    name, user = "default-cluster", f"system:node:{node_name}"
    cluster = {"server": access.server, "certificate-authority-data": _encoded(ca)}
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    keys = {"client-certificate-data": _encoded(identity.certificate), "client-key-data": _encoded(identity.key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": keys}],
        "contexts": [{"name": "default-context", "context": {"cluster": name, "user": user}}],
        "current-context": "default-context",
    }
    return msgspec.yaml.encode(document)


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
