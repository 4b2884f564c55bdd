"""The certificate that the node's server presents: the configured files, one from the cluster, or the node's own.

As in a kubelet, serverTLSBootstrap comes before tlsCertFile. While the cluster has not signed the certificate, the one
of the node's identity serves: an API server that verifies nodes rejects it, any other can already connect. Files are
read again when they change, so that the program that writes them can renew them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from plimsoll.errors import PlimsollError
from plimsoll.kube.client import Client
from plimsoll.node.reporting.certificate import SERVING, NodeIdentity, Renewal, stored_serving
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.node.node_object import NodeFacts

FILES_S = 60.0  # how often configured files are compared

_log = logging.getLogger(__name__)


class ServingFilesError(PlimsollError):
    pass


class ServingCertificate:
    def __init__(
        self, config: KubeletConfig, client: Client, facts: NodeFacts, home: Path, identity: NodeIdentity
    ) -> None:
        """`identity`: the node's client certificate. Raises ServingFilesError."""
        self._config = config
        self._follows_identity = not config.server_tls_bootstrap and not config.tls_cert_file
        self.current = identity
        self._use: Callable[[NodeIdentity], None] = _ignore
        self._renewal: Renewal | None = None
        if config.server_tls_bootstrap:
            names = tuple(dict.fromkeys((facts.hostname, facts.internal_ip)))
            stored = stored_serving(home, names, time.time())
            self.current = stored or identity
            self._renewal = Renewal(client, facts.name, stored, home, self._present, purpose=SERVING, names=names)
            self._follows_identity = stored is None
        elif config.tls_cert_file:
            self.current = self._files()

    def start(self, use: Callable[[NodeIdentity], None]) -> None:
        """`use` is called with each certificate that comes after `current`."""
        self._use = use

    def identity_renewed(self, identity: NodeIdentity) -> None:
        """The node's client certificate has changed."""
        if self._follows_identity:
            self.current = identity
            self._use(identity)

    async def run(self, registered: asyncio.Event) -> None:
        """Until cancelled. A signer may compare the names with those of the registered Node."""
        await registered.wait()
        if self._renewal is not None:
            await self._renewal.run()
        while not self._follows_identity:
            await asyncio.sleep(FILES_S)
            self.compare_files()

    def compare_files(self) -> None:
        try:
            files = self._files()
            if files == self.current:
                return
            self._present(files)
        except PlimsollError as error:  # unreadable, or only one of both was written yet
            _log.warning("%s; the certificate in use stays", error)
        else:
            _log.info("%s has changed and is used now", self._config.tls_cert_file)

    def _files(self) -> NodeIdentity:
        certificate, key = self._config.tls_cert_file, self._config.tls_private_key_file
        if not key:
            raise ServingFilesError("tlsCertFile: set tlsPrivateKeyFile too")
        try:
            return NodeIdentity(Path(certificate).read_bytes(), Path(key).read_bytes())
        except OSError as error:
            raise ServingFilesError(f"tlsCertFile: {error}") from error

    def _present(self, identity: NodeIdentity) -> None:
        self._use(identity)
        self._follows_identity = False
        self.current = identity


def _ignore(identity: NodeIdentity) -> None:
    """Before the server exists."""
