"""The node's credentials: how it reaches the API server, its newest certificate, and the CA of its callers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from plimsoll.codec.kernel.x509 import CertificateFormatError, common_name
from plimsoll.errors import PlimsollError
from plimsoll.kube import kubeconfig
from plimsoll.node.reporting.certificate import NodeIdentity, stored_identity
from plimsoll.rules.config.kubelet import KubeletConfig

NODE_USER = "system:node:"


def node_credentials(
    file: Path, node_name: str, home: Path, config: KubeletConfig
) -> tuple[kubeconfig.Access, NodeIdentity, bytes]:
    """`file`: the node's kubeconfig. The CA is the one that client certificates of callers are checked with."""
    access = kubeconfig.load(file)
    if access.certificate is None or access.key is None or access.ca is None:
        raise PlimsollError(
            f"{file}: a node needs a client certificate and the CA certificate: "
            f"plimsoll api token create --node {node_name} prints such a file"
        )
    _check_name(file, access.certificate, node_name)
    identity = stored_identity(home, NodeIdentity(access.certificate, access.key))
    access = msgspec.structs.replace(access, certificate=identity.certificate, key=identity.key)
    return access, identity, _client_ca(config.client_ca_file) or access.ca or b""


def _check_name(file: Path, certificate: bytes, node_name: str) -> None:
    """The Node authorizer lets a node write only its own Node: with another's certificate nothing succeeds."""
    try:
        user = common_name(certificate)
    except CertificateFormatError as error:
        raise PlimsollError(f"{file}: the client certificate is {error}") from None
    owner = user.removeprefix(NODE_USER)
    if user.startswith(NODE_USER) and owner != node_name:
        raise PlimsollError(
            f"{file}: the client certificate is that of the node {owner!r}, and this node is {node_name!r}: start it "
            f"with --name {owner}, or create a file for it with plimsoll api token create --node {node_name}"
        )


def _client_ca(file: str) -> bytes:
    if not file:
        return b""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise PlimsollError(f"authentication.x509.clientCAFile: {error}") from error
