"""`plimsoll up --with-containerd`: real images, limits as explained, and nothing left however it ends."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.runtime.cri.private_containerd.daemon import missing_packages
from tests.e2e.kubectl import Kubectl, any_binary
from tests.e2e.up_process import Up, problem
from tests.e2e.waiting import until


@pytest.fixture
def up(exercised: Callable[[str, str], None]) -> Iterator[Up]:
    if why := problem() or ", ".join(missing_packages()):
        pytest.skip(f"up with containerd: {why}")
    # Not pytest's tmp_path: a unix socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="plimsoll-up-") as directory:
        made = Up(Path(directory), "--with-containerd")
        try:
            yield made
        finally:
            made.close()
    exercised("up", "with containerd and runc")


def nothing_left(up: Up) -> None:
    until(lambda: not (up.processes() or up.members() or up.mounts()))
    assert not (up.state / "containerd").exists() or not any((up.state / "containerd").iterdir())


def test_real_images_limits_as_explained_and_nothing_left(up: Up, tmp_path: Path) -> None:
    up.ready()
    assert "private containerd" in up.output and "the kernel has the values of plimsoll explain" in up.output
    kube = Kubectl(any_binary(), up.state / "admin.kubeconfig", tmp_path)
    assert "containerd://" in kube("get", "nodes", "-o", "wide").out
    kube("run", "web", "--image=nginx")
    until(
        lambda: (
            "True" in kube("get", "pod", "web", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}").out
        )
    )
    assert "Welcome to nginx!" in until(
        lambda: kube.run("exec", "web", "--", "wget", "-q", "-O", "-", "http://127.0.0.1").out
    )
    up.interrupt()
    assert up.ended() == 0, up.output
    nothing_left(up)
    assert not up.cgroups()


def test_it_is_killed_itself(up: Up) -> None:
    """The agent ends its pods, then the guard ends containerd."""
    up.ready()
    up.process.send_signal(signal.SIGKILL)
    until(lambda: not (up.processes() or up.members() or up.mounts()))
