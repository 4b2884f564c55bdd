"""Volumes that are mounts, on this machine's own kernel: memory-backed ones, pinned subPaths, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import CgroupsUnusableError, check_required, open_cgroupfs, this_host
from plimsoll.cgroups.stats.usage import usage
from plimsoll.codec.lean.runnable import run_pod
from plimsoll.errors import ContainerConfigError
from plimsoll.linux.files.safe_tree import remove_tree as remove_files
from plimsoll.linux.mounts import BIND, detach, mount
from plimsoll.node.volumes.pod_dirs import mounts_below, pod_directory, remove_pod_files
from plimsoll.node.volumes.volumes import Volumes
from plimsoll.rules.lifecycle.api_objects import PodObjects
from plimsoll.rules.lifecycle.environment import Surroundings
from plimsoll.rules.model.runnable import ConfigMap, RunPod, Secret
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.runtime.interface import ContainerMount
from tests.kernel.driver_checks import MI, Cgroupfs, eventually, remove_tree, run_make, run_remove, started

UID = "0c0ffee0-1111-2222-3333-444455556666"
AROUND = Surroundings(allocatable={"memory": QUANTITIES["64Mi"]})
CONFIG = PodObjects({"m": ConfigMap(data={"k": "value"})})


def pod(volume: dict[str, Any], *mounts: dict[str, Any], **spec: Any) -> RunPod:
    container = {"name": "c", "volumeMounts": list(mounts) or [{"name": "v", "mountPath": "/v"}]}
    metadata = {"name": "p", "namespace": "ns", "uid": UID}
    return run_pod(
        {"metadata": metadata, "spec": {"containers": [container], "volumes": [{"name": "v", **volume}], **spec}}
    )


@pytest.fixture
def volumes(tmp_path: Path, exercised: Callable[[str, str], None]) -> Iterator[Volumes]:
    """Whatever a test left mounted is unmounted, whether or not it failed."""
    (tmp_path / "probe").mkdir()
    try:
        mount("tmpfs", str(tmp_path / "probe"), "tmpfs")
        detach(str(tmp_path / "probe"))
    except OSError as error:
        pytest.skip(f"volumes that are mounts: {error.strerror}")
    (tmp_path / "state").mkdir(mode=0o700)
    yield Volumes(tmp_path / "state")
    left = mounts_below(tmp_path)
    for path in left:
        detach(path)
    assert left == [], "every mount is gone with its pod"
    exercised("kernel", f"Linux {os.uname().release}, host, volumes")


def made(volumes: Volumes, it: RunPod) -> Path:
    return Path(volumes.set_up(it, CONFIG, AROUND).by_name["v"].path)


def mounted(volumes: Volumes, it: RunPod) -> list[ContainerMount]:
    ready = volumes.set_up(it, CONFIG, AROUND)
    return list(volumes.mounts(it, it.spec.containers[0], ready.by_name, {"NAME": "x"}))


# --- in memory ---

MEMORY = {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}


def test_in_memory_and_bounded(volumes: Volumes) -> None:
    path = made(volumes, pod(MEMORY))
    assert len(mounts_below(path)) == 1
    assert os.stat(path).st_mode & 0o7777 == 0o1777
    (path / "fits").write_bytes(b"x" * (MI // 2))
    with pytest.raises(OSError) as full:
        (path / "not").write_bytes(b"x" * MI)
    assert full.value.errno == errno.ENOSPC
    assert made(volumes, pod(MEMORY)) == path
    assert len(mounts_below(path)) == 1, "mounted once, however often it is asked for"
    assert (path / "fits").exists()
    remove_pod_files(volumes.state, UID)
    assert not pod_directory(volumes.state, UID).exists()


ABOUT = {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}
PROJECTED = {"projected": {"sources": [ABOUT]}}


@pytest.mark.parametrize(
    ("volume", "is_in_memory"),
    [
        pytest.param(ABOUT, True, id="downwardAPI"),
        pytest.param(PROJECTED, True, id="projected"),
        pytest.param({"secret": {"secretName": "s"}}, True, id="secret"),
        pytest.param({"configMap": {"name": "m"}}, False, id="configMap"),
        pytest.param({"emptyDir": {}}, False, id="emptyDir"),
    ],
)
def test_what_may_be_secret_is_in_memory(volumes: Volumes, volume: dict[str, Any], is_in_memory: bool) -> None:
    """As with a kubelet, with the mode and the group that the directory would have."""
    volumes = Volumes(volumes.state, in_memory=True)
    objects = PodObjects({"m": ConfigMap(data={"k": "value"})}, {"s": Secret(data={"k": "dmFsdWU="})})
    it = pod(volume, securityContext={"fsGroup": 4711})
    path = Path(volumes.set_up(it, objects, AROUND).by_name["v"].path)
    assert bool(mounts_below(path)) is is_in_memory
    found = os.stat(path)
    assert (found.st_gid, found.st_mode & 0o2770) == (4711, 0o2770)
    assert not volumes.set_up(it, objects, AROUND).changed
    assert len(mounts_below(path)) == is_in_memory, "mounted once"
    remove_pod_files(volumes.state, UID)


def test_what_an_earlier_agent_has_on_disk_stays_there(volumes: Volumes) -> None:
    path = made(volumes, pod(PROJECTED))
    assert made(Volumes(volumes.state, in_memory=True), pod(PROJECTED)) == path
    assert mounts_below(path) == []
    assert (path / "name").read_text() == "p"
    remove_pod_files(volumes.state, UID)


def test_the_nodes_own_bound(volumes: Volumes) -> None:
    path = made(volumes, pod({"emptyDir": {"medium": "Memory"}}))
    found = os.statvfs(path)
    assert found.f_blocks * found.f_frsize == 64 * MI
    remove_pod_files(volumes.state, UID)


def test_the_group_of_a_volume_in_memory(volumes: Volumes) -> None:
    found = os.stat(made(volumes, pod(MEMORY, securityContext={"fsGroup": 4711})))
    assert (found.st_gid, found.st_mode & 0o7777) == (4711, 0o3777)
    remove_pod_files(volumes.state, UID)


@pytest.fixture
def cgroup() -> Iterator[tuple[Cgroupfs, str]]:
    try:
        found = this_host()
        check_required(found)
    except CgroupsUnusableError as problem:
        pytest.skip(f"host cgroups: {problem}")
    driver = open_cgroupfs(found)
    path = f"/plimsoll-test-{secrets.token_hex(6)}"
    asyncio.run(driver.make(path))
    yield driver, path
    remove_tree(driver, path)
    driver.close()


def test_memory_is_counted_where_it_was_written(volumes: Volumes, cgroup: tuple[Cgroupfs, str]) -> None:
    """The container that writes pays, and its pod goes on paying when the container is gone, until the volume is."""
    driver, root = cgroup
    container = f"{root}/c1"
    run_make(driver, container)
    file = made(volumes, pod({"emptyDir": {"medium": "Memory"}})) / "data"

    def used(path: str) -> int:
        found = usage(driver, path)
        assert found is not None
        assert found.memory is not None
        return found.memory.usage_bytes

    with started(driver, container, 'dd if=/dev/zero of="$1" bs=1M count=16; exec sleep 60', str(file)):
        eventually(lambda: file.exists() and file.stat().st_size == 16 * MI, "the container has written")
        assert used(container) >= 16 * MI
    run_remove(driver, container)
    assert used(root) >= 16 * MI
    remove_pod_files(volumes.state, UID)
    eventually(lambda: used(root) < 16 * MI, "the memory is given back")


# --- subPath ---


def test_a_sub_path_is_that_directory_whatever_takes_its_name(volumes: Volumes, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    it = pod({"emptyDir": {}}, {"name": "v", "mountPath": "/sub", "subPathExpr": "dir/$(NAME)", "readOnly": True})
    (found,) = mounted(volumes, it)
    assert (found.container_path, found.read_only) == ("/sub", True)
    assert found.host_path == f"{pod_directory(volumes.state, UID)}/volume-subpaths/v/c/0"
    volume = made(volumes, it)
    (volume / "dir" / "x" / "file").write_text("inside")
    (volume / "dir" / "x").rename(volume / "dir" / "moved")
    (volume / "dir" / "x").symlink_to(tmp_path / "outside")
    assert os.listdir(found.host_path) == ["file"]
    with pytest.raises(ContainerConfigError, match="it leads outside the volume"):
        mounted(volumes, it)
    (volume / "dir" / "x").unlink()
    (again,) = mounted(volumes, it)
    assert os.listdir(again.host_path) == [], "the next start sees what has the name now"
    assert len(mounts_below(Path(again.host_path))) == 1, "the pin of the start before is gone"
    remove_pod_files(volumes.state, UID)
    assert (tmp_path / "outside").exists()


def test_one_file_of_a_config_map(volumes: Volumes) -> None:
    it = pod({"configMap": {"name": "m"}}, {"name": "v", "mountPath": "/etc/k", "subPath": "k"})
    (found,) = mounted(volumes, it)
    assert (Path(found.host_path).read_text(), found.read_only) == ("value", True)
    missing = pod({"configMap": {"name": "m"}}, {"name": "v", "mountPath": "/etc/k", "subPath": "none"})
    with pytest.raises(
        ContainerConfigError, match='failed to prepare subPath for volumeMount "v" of container "c": none: No such file'
    ):
        mounted(volumes, missing)
    remove_pod_files(volumes.state, UID)


def test_a_directory_that_became_a_file(volumes: Volumes) -> None:
    it = pod({"emptyDir": {}}, {"name": "v", "mountPath": "/s", "subPath": "s"})
    mounted(volumes, it)
    volume = made(volumes, it)
    (volume / "s").rmdir()
    (volume / "s").write_text("file")
    assert Path(mounted(volumes, it)[0].host_path).read_text() == "file"
    (volume / "s").unlink()
    (volume / "s").mkdir()
    assert Path(mounted(volumes, it)[0].host_path).is_dir()
    (volume / "s").rmdir()
    os.mkfifo(volume / "s")
    assert Path(mounted(volumes, it)[0].host_path).is_fifo()
    remove_pod_files(volumes.state, UID)


# --- the end ---


def test_nothing_behind_a_mount_is_removed(volumes: Volumes, tmp_path: Path) -> None:
    """A directory of the host bound into a volume, by whatever accident: it is let go, and stays as it was."""
    kept = tmp_path / "kept"
    (kept / "deep").mkdir(parents=True)
    (kept / "deep" / "file").write_text("x")
    path = made(volumes, pod({"emptyDir": {}}))
    (path / "a" / "b").mkdir(parents=True)
    mount(str(kept), str(path / "a" / "b"), "", BIND)
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError) as refused:
            remove_files(parent, "v")
        assert refused.value.errno in (errno.EXDEV, errno.EBUSY)
        assert (kept / "deep" / "file").read_text() == "x"
        mount(str(kept), str(path), "", BIND)
        with pytest.raises(OSError):
            remove_files(parent, "v")
    finally:
        os.close(parent)
    remove_pod_files(volumes.state, UID)
    assert (kept / "deep" / "file").read_text() == "x"
    assert not pod_directory(volumes.state, UID).exists()


def test_a_pod_that_still_uses_it_does_not_stop_the_end(volumes: Volumes) -> None:
    path = made(volumes, pod(MEMORY))
    with subprocess.Popen(["sleep", "60"], cwd=path) as process:
        remove_pod_files(volumes.state, UID)
        assert not path.exists()
        process.kill()


def test_a_killed_removal_is_finished_by_the_next(volumes: Volumes) -> None:
    """Killed at any moment, in another process: the next call ends with nothing left."""
    it = pod({"emptyDir": {}}, {"name": "v", "mountPath": "/s", "subPath": "s"})
    code = (
        "import sys; from pathlib import Path; from plimsoll.node.volumes.pod_dirs import remove_pod_files;"
        f"print(flush=True); remove_pod_files(Path(sys.argv[1]), '{UID}')"
    )
    for delay_s in (0.0, 0.001, 0.004, 0.01):
        mounted(volumes, it)
        volume = made(volumes, it)
        for number in range(200):
            (volume / f"d{number}" / "x" / "y").mkdir(parents=True)
        with subprocess.Popen([sys.executable, "-c", code, str(volumes.state)], stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay_s)
            process.kill()
        remove_pod_files(volumes.state, UID)
        assert not pod_directory(volumes.state, UID).exists()
