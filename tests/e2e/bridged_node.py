"""The real node over a containerd whose pods are on a bridge, and an API server that they reach at its address.

The bridge has a name and a network of its own and is removed at the end; nothing is forwarded beyond it.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from plimsoll.runtime.cri.messages import CONTAINERD_NAMESPACE
from plimsoll.runtime.cri.private_containerd.daemon import missing_packages
from plimsoll.runtime.cri.private_containerd.images import LocalImage, write_images
from tests.e2e.containerd_node import Containerd, inside, node_options
from tests.e2e.real_manifests import programs
from tests.e2e.real_node import RealNode, real_node
from tests.kernel.containerd import PLUGINS, running

PLUGIN = "bridge"


class BridgedContainerd(Containerd):
    propagation = "shared"  # as on machines with systemd: a hostPath with mountPropagation needs it

    def __init__(self, directory: Path, bridge: str, network: str, images: Sequence[LocalImage]) -> None:
        super().__init__(directory, loopback=False)
        self._bridge, self._network, self._images = bridge, network, images
        self._programs = programs()

    def prepare(self, plugins: Path | None = None) -> None:
        super().prepare(PLUGINS)
        ipam = {"type": "host-local", "dataDir": str(self.directory / "ipam"), "ranges": [[{"subnet": self._network}]]}
        bridge = {"type": PLUGIN, "bridge": self._bridge, "isGateway": True, "ipMasq": False, "ipam": ipam}
        network = {"cniVersion": "0.4.0", "name": self._bridge, "plugins": [bridge]}
        (self.directory / "cni" / "10-bridge.conflist").write_text(json.dumps(network))

    def load_images(self) -> None:
        super().load_images()
        archive = self.directory / "more.tar"
        write_images(archive, self._images, programs=self._programs)
        done = self.ctr("-n", CONTAINERD_NAMESPACE, "images", "import", str(archive))
        archive.unlink()
        assert done.returncode == 0, done.stderr


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def bridged_node(directory: Path, images: Sequence[LocalImage], profile: str = "1.36") -> Iterator[RealNode]:
    if packages := missing_packages():
        pytest.skip(f"containerd: needs the Debian packages {', '.join(packages)}")
    if not (PLUGINS / PLUGIN).exists() or None in map(shutil.which, ("ip", "openssl")):
        pytest.skip("needs the Debian packages containernetworking-plugins, iproute2 and openssl")
    number = secrets.randbelow(200) + 20
    bridge, network, address = f"plm{secrets.token_hex(4)}", f"10.88.{number}.0/24", f"10.88.{number}.1"
    below = Path(tempfile.mkdtemp(prefix="plimsoll-ctd-"))
    below.chmod(0o711)
    _ip("link", "add", bridge, "type", "bridge")
    try:
        _ip("address", "add", f"{address}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        daemon = BridgedContainerd(below, bridge, network, images)
        listen = ("--listen", f"{address}:0")
        with (
            running(daemon),
            real_node(
                directory, profile, options=node_options(daemon), api_options=listen, before=inside(daemon)
            ) as node,
        ):
            yield node
    finally:
        _ip("link", "delete", bridge)
