"""The real node of `real_node` over a containerd of its own, with images that are made here.

containerd is in a mount namespace of its own, and the node in the same one: what the agent mounts for a pod (a tmpfs,
a subPath) must be seen by whoever starts its containers, as on a machine where both are in one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plimsoll.runtime.cri.own_containerd import OwnContainerd, missing_packages
from tests.e2e.real_node import RealNode, real_node

NAMESPACES = ("unshare", "--mount", "--propagation", "private")


@contextmanager
def own_containerd() -> Iterator[OwnContainerd]:
    if packages := missing_packages():
        pytest.skip(f"containerd: needs the Debian packages {', '.join(packages)}")
    # Not pytest's tmp_path: a unix socket's path must be short.
    daemon = OwnContainerd(Path(tempfile.mkdtemp(prefix="plimsoll-ctd-")))
    daemon.prepare()
    try:
        daemon.start(*NAMESPACES)
        daemon.load_images()
        yield daemon
    finally:
        assert daemon.end() == []


def node_options(daemon: OwnContainerd, endpoint: str = "") -> tuple[str, ...]:
    return ("--container-runtime-endpoint", endpoint or daemon.endpoint, "--keep-images")


def inside(daemon: OwnContainerd) -> tuple[str, ...]:
    return ("nsenter", f"--mount=/proc/{daemon.pid}/ns/mnt", f"--wd={Path.cwd()}")


@contextmanager
def containerd_node(
    directory: Path, profile: str = "1.27", *, endpoint: str = "", options: tuple[str, ...] = ()
) -> Iterator[tuple[RealNode, OwnContainerd]]:
    """`endpoint`: another way to the same runtime, such as a proxy."""
    with own_containerd() as daemon:
        words = (*node_options(daemon, endpoint), *options)
        with real_node(directory, profile, options=words, before=inside(daemon)) as node:
            yield node, daemon
