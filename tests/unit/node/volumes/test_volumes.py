"""Volumes as real files. What needs a mount is in tests/kernel/test_host_volumes.py."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.errors import ContainerConfigError, InvalidNameError
from plimsoll.node.volumes.pod_dirs import pods_on_disk, remove_pod_files
from plimsoll.node.volumes.volumes import Ready, Volumes, memory_volume_bytes, open_sub_path
from plimsoll.rules.lifecycle.api_objects import PodObjects
from plimsoll.rules.lifecycle.environment import Surroundings
from plimsoll.rules.lifecycle.volumes import VolumeError
from plimsoll.rules.model.objects import EmptyDir
from plimsoll.rules.model.runnable import ConfigMap, RunPod
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.runtime.interface import ContainerMount, RuntimeFeatures

AROUND = Surroundings(allocatable={"memory": QUANTITIES["1Gi"]})
UID = "0c0ffee0-1111-2222-3333-444455556666"
MI = 1024**2


def pod(*volumes: dict[str, Any], mounts: Any = None, uid: str = UID, **spec: Any) -> RunPod:
    if mounts is None:
        mounts = [{"name": volume["name"], "mountPath": f"/mnt/{volume['name']}"} for volume in volumes]
    metadata = {"name": "p", "namespace": "ns", "uid": uid, "labels": spec.pop("labels", {})}
    container = {"name": "c", "volumeMounts": mounts, **spec.pop("container", {})}
    return run_pod({"metadata": metadata, "spec": {"containers": [container], "volumes": list(volumes), **spec}})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state"


@pytest.fixture
def volumes(state: Path) -> Volumes:
    return Volumes(state)


def made(volumes: Volumes, it: RunPod, name: str = "v", **maps: ConfigMap) -> Path:
    return Path(volumes.set_up(it, PodObjects(maps), AROUND).by_name[name].path)


# --- emptyDir ---


def test_an_empty_directory_keeps_what_its_containers_made_of_it(volumes: Volumes, state: Path) -> None:
    it = pod({"name": "v", "emptyDir": {}})
    path = made(volumes, it)
    assert path == state / "pods" / UID / "volumes" / "kubernetes.io~empty-dir" / "v"
    assert stat.S_IMODE(path.stat().st_mode) == 0o777
    (path / "file").write_text("x")
    path.chmod(0o700)
    assert made(volumes, it) == path
    assert (stat.S_IMODE(path.stat().st_mode), (path / "file").read_text()) == (0o700, "x")
    assert stat.S_IMODE((state / "pods").stat().st_mode) == 0o700


def test_a_kill_before_it_had_its_name(volumes: Volumes, state: Path) -> None:
    half = state / "pods" / UID / "volumes" / "kubernetes.io~empty-dir" / "v.new"
    half.mkdir(parents=True)
    path = made(volumes, pod({"name": "v", "emptyDir": {}}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o777
    assert os.listdir(path.parent) == ["v"]


def test_the_group_of_volumes(volumes: Volumes) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving directories to another group: not root")
    sources = [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}}]
    it = pod(*sources, securityContext={"fsGroup": 4711})
    ready = volumes.set_up(it, PodObjects({"m": ConfigMap(data={"k": "x"})}), AROUND).by_name
    for name, mode in (("v", 0o2777), ("w", 0o2775)):
        found = os.stat(ready[name].path)
        assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (4711, mode)
    assert os.stat(ready["w"].path + "/k").st_gid == 4711


@pytest.mark.parametrize(
    ("limit", "size_limit", "allocatable", "expected"),
    [
        (None, None, 1000, 1000),
        ("100Mi", None, 1024 * MI, 100 * MI),
        ("100Mi", "10Mi", 1024 * MI, 10 * MI),
        ("100Mi", "500Mi", 1024 * MI, 100 * MI),
        ("2Gi", None, 1024 * MI, 1024 * MI),
        (None, "10Mi", 1024 * MI, 10 * MI),
        (None, "0", 1024 * MI, 1024 * MI),
        (None, "10Mi", 0, 10 * MI),
        (None, None, 0, 0),
    ],
)
def test_size_in_memory(limit: str | None, size_limit: str | None, allocatable: int, expected: int) -> None:
    resources = {} if limit is None else {"limits": {"memory": limit}}
    source = EmptyDir("Memory", None if size_limit is None else QUANTITIES[size_limit])
    assert memory_volume_bytes(pod(container={"resources": resources}), source, allocatable) == expected


def test_one_container_without_a_limit_leaves_the_pod_without() -> None:
    limited = {"name": "d", "resources": {"limits": {"memory": "1Mi"}}}
    it = run_pod({"spec": {"containers": [{"name": "c"}, limited]}})
    assert memory_volume_bytes(it, EmptyDir("Memory"), 7 * MI) == 7 * MI


# --- from the API ---


def test_a_config_map_is_published_and_refreshed(volumes: Volumes) -> None:
    it = pod({"name": "v", "configMap": {"name": "m"}})
    first = volumes.set_up(it, PodObjects({"m": ConfigMap(data={"k": "1"})}), AROUND)
    path = Path(first.by_name["v"].path)
    assert (first.changed, (path / "k").read_text()) == (("v",), "1")
    assert first.by_name["v"].read_only
    assert volumes.set_up(it, PodObjects({"m": ConfigMap(data={"k": "1"})}), AROUND).changed == ()
    assert volumes.set_up(it, PodObjects({"m": ConfigMap(data={"k": "2"})}), AROUND).changed == ("v",)
    assert (path / "k").read_text() == "2"
    with pytest.raises(VolumeError, match='configmap "m" not found'):
        volumes.set_up(it, PodObjects(), AROUND)
    assert (path / "k").read_text() == "2", "what is gone from the API stays for those who run"


def test_labels_follow_the_pod(volumes: Volumes) -> None:
    source = {"name": "v", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}
    path = made(volumes, pod(source, labels={"a": "1"}))
    assert (path / "l").read_text() == 'a="1"'
    made(volumes, pod(source, labels={"a": "2"}))
    assert (path / "l").read_text() == 'a="2"'


# --- hostPath ---


@pytest.mark.parametrize(
    ("kind", "there", "refusal"),
    [
        ("", "directory", ""),
        ("", "file", ""),
        ("", "nothing", ""),
        ("Directory", "directory", ""),
        ("Directory", "file", "is not a directory"),
        ("Directory", "nothing", "is not a directory"),
        ("DirectoryOrCreate", "nothing", ""),
        ("DirectoryOrCreate", "file", "is not a directory"),
        ("File", "file", ""),
        ("File", "directory", "is not a file"),
        ("FileOrCreate", "nothing", ""),
        ("FileOrCreate", "file", ""),
        ("Socket", "socket", ""),
        ("Socket", "file", "is not a socket file"),
        ("", "socket", ""),
        ("CharDevice", "file", "is not a character device"),
        ("BlockDevice", "file", "is not a block device"),
        ("Pipe", "file", "Pipe is an invalid volume type"),
    ],
)
def test_host_paths(
    volumes: Volumes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, there: str, refusal: str
) -> None:
    path = tmp_path / "of-the-host"
    with socket.socket(socket.AF_UNIX) as bound:
        match there:
            case "directory":
                path.mkdir()
            case "file":
                path.write_text("x")
            case "socket":
                monkeypatch.chdir(tmp_path)  # an address may have 107 bytes at most
                bound.bind("of-the-host")
        it = pod({"name": "v", "hostPath": {"path": str(path), "type": kind}})
        if refusal:
            with pytest.raises(VolumeError, match=refusal):
                volumes.set_up(it, PodObjects(), AROUND)
            return
        assert made(volumes, it) == path
        assert path.is_dir() == (there == "directory" or (there == "nothing" and kind != "FileOrCreate"))


def test_links_of_the_host_are_resolved(volumes: Volumes, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert made(volumes, pod({"name": "v", "hostPath": {"path": str(tmp_path / "link")}})) == tmp_path / "real"


@pytest.mark.parametrize("way", ["itself", "inside", "above", "root", "by a link", "to be made"])
def test_host_paths_and_what_the_embedded_runtime_covers(state: Path, tmp_path: Path, way: str) -> None:
    """A larger directory is shown, without the covered files; one that would be empty is refused. A runtime that covers
    nothing gets every path, as from a kubelet."""
    (tmp_path / "link").symlink_to(state)
    paths = {"itself": state, "inside": state / "pods", "above": tmp_path, "by a link": tmp_path / "link" / "x"}
    path = Path("/") if way == "root" else paths.get(way, state / "new")
    it = pod({"name": "v", "hostPath": {"path": str(path), "type": "DirectoryOrCreate" if way == "to be made" else ""}})
    if way in ("above", "root"):
        assert made(Volumes(state, (state,)), it) == path
    else:
        with pytest.raises(VolumeError, match="which the embedded runtime hides from pods: use another path"):
            Volumes(state, (state,)).set_up(it, PodObjects(), AROUND)
        assert os.listdir(state) == []
    assert made(Volumes(state), it) == Path(os.path.realpath(path))


@pytest.mark.parametrize("path", ["relative", "/a/../b", "", "/a\0b"])
def test_paths_that_are_none(volumes: Volumes, path: str) -> None:
    with pytest.raises(VolumeError, match="must be an absolute path"):
        volumes.set_up(pod({"name": "v", "hostPath": {"path": path}}), PodObjects(), AROUND)


# --- names and kinds ---


@pytest.mark.parametrize("uid", ["", ".", "..", "../x", "a/b", "a..b", "a\n", "x" * 200, ".hidden"])
def test_a_uid_that_is_no_name(volumes: Volumes, state: Path, uid: str) -> None:
    with pytest.raises(InvalidNameError):
        volumes.set_up(pod({"name": "v", "emptyDir": {}}, uid=uid), PodObjects(), AROUND)
    with pytest.raises(InvalidNameError):
        remove_pod_files(state, uid)


@pytest.mark.parametrize("name", ["..", "a/b", "A", "v.new", ""])
def test_a_volume_name_that_is_none(volumes: Volumes, name: str) -> None:
    with pytest.raises(InvalidNameError):
        volumes.set_up(pod({"name": name, "emptyDir": {}}), PodObjects(), AROUND)


@pytest.mark.parametrize(
    "volume", [{"image": {"reference": "x"}}, {"nfs": {"server": "x"}}, {"emptyDir": {"medium": "HugePages"}}, {}]
)
def test_other_kinds_are_refused(volumes: Volumes, volume: dict[str, Any]) -> None:
    with pytest.raises(VolumeError):
        volumes.set_up(pod({"name": "v", **volume}), PodObjects(), AROUND)


# --- mounts ---

READY = {"v": Ready("/host/v"), "m": Ready("/host/m", read_only=True, may_grow=False)}


def mounts(volumes: Volumes, *wanted: dict[str, Any], **container: Any) -> tuple[ContainerMount, ...]:
    it = pod(mounts=list(wanted), container=container)
    return volumes.mounts(it, it.spec.containers[0], READY, {"NAME": "x"})


def test_what_a_container_sees(volumes: Volumes) -> None:
    assert mounts(
        volumes,
        {"name": "v", "mountPath": "/a/b/c"},
        {"name": "v", "mountPath": "/a//../d/", "readOnly": True},
        {"name": "m", "mountPath": "e"},
        {"name": "v", "mountPath": "/../../f"},
    ) == (
        ContainerMount("/host/v", "/d", read_only=True),
        ContainerMount("/host/m", "/e", read_only=True),
        ContainerMount("/host/v", "/f"),
        ContainerMount("/host/v", "/a/b/c"),
    )


def test_mounts_by_what_the_runtime_can_do(state: Path) -> None:
    able = Volumes(
        state, features=lambda: RuntimeFeatures(recursive_read_only=frozenset({"", "kata"}), image_volumes=True)
    )
    read_only = {"name": "v", "mountPath": "/a", "readOnly": True}
    for mode, expected in (("Enabled", True), ("IfPossible", True), ("Disabled", False), (None, False)):
        (found,) = mounts(able, {**read_only, "recursiveReadOnly": mode})
        assert found.recursive_read_only is expected
    (found,) = mounts(Volumes(state), {**read_only, "recursiveReadOnly": "IfPossible"})
    assert not found.recursive_read_only
    for mode in ("None", "HostToContainer", "Bidirectional"):
        (found,) = mounts(able, {"name": "v", "mountPath": "/a", "mountPropagation": mode})
        assert found.propagation == mode
    it = pod(
        {"name": "i", "image": {"reference": "files:1"}}, mounts=[{"name": "i", "mountPath": "/i", "subPath": "d"}]
    )
    ready = able.set_up(it, PodObjects(), AROUND).by_name
    assert able.mounts(it, it.spec.containers[0], ready, {}) == (
        ContainerMount("", "/i", read_only=True, image="files:1", image_sub_path="d"),
    )


@pytest.mark.parametrize(
    ("wanted", "container", "message"),
    [
        ({"name": "none", "mountPath": "/a"}, {}, 'cannot find volume "none" to mount into container "c"'),
        ({"name": "v", "mountPath": "/"}, {}, r'volumeMounts\[0\].mountPath "/": cannot be a mount point'),
        ({"name": "v", "mountPath": "/a", "mountPropagation": "Both"}, {}, "invalid MountPropagation mode"),
        ({"name": "v", "mountPath": "/a", "recursiveReadOnly": "Enabled"}, {}, "recursive read-only mode"),
        ({"name": "v", "mountPath": "/a", "subPathExpr": "$(NONE)"}, {}, 'missing value for "NONE"'),
        ({"name": "v", "mountPath": "/a"}, {"volumeDevices": [{"name": "v"}]}, "volumeDevices"),
    ],
)
def test_mounts_that_cannot_be(volumes: Volumes, wanted: Any, container: Any, message: str) -> None:
    with pytest.raises(ContainerConfigError, match=message):
        mounts(volumes, wanted, **container)


# --- subPath ---


def opened(volume: Path, sub_path: str, *, make: bool = True) -> str:
    fd = open_sub_path(str(volume), sub_path, make=make)
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def test_a_sub_path_is_made_with_the_volumes_mode(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    volume.mkdir()
    volume.chmod(0o2770)
    assert opened(volume, "a//b/./c") == str(volume / "a/b/c")
    assert {stat.S_IMODE((volume / path).stat().st_mode) for path in ("a", "a/b", "a/b/c")} == {0o2770}
    with pytest.raises(FileNotFoundError):
        opened(volume, "none", make=False)


@pytest.mark.parametrize("sub_path", ["link", "link/x", "link/x/y", "inner/up/outside", "dangling", "absolute/x"])
@pytest.mark.parametrize("make", [True, False])
def test_no_link_leads_out_of_a_volume(tmp_path: Path, sub_path: str, make: bool) -> None:
    volume, outside = tmp_path / "v", tmp_path / "outside"
    (volume / "inner").mkdir(parents=True)
    outside.mkdir()
    (volume / "link").symlink_to("../outside")
    (volume / "inner" / "up").symlink_to("../..")
    (volume / "dangling").symlink_to("../outside/made")
    (volume / "absolute").symlink_to(outside)
    with pytest.raises(OSError):
        opened(volume, sub_path, make=make)
    assert os.listdir(outside) == []


def test_links_inside_are_followed(tmp_path: Path) -> None:
    (tmp_path / "v" / "real").mkdir(parents=True)
    (tmp_path / "v" / "link").symlink_to("real")
    assert opened(tmp_path / "v", "link/new") == str(tmp_path / "v" / "real" / "new")


@pytest.mark.parametrize("sub_path", ["/etc", "../x", "a/../../x", "a\0"])
def test_sub_paths_that_are_none(tmp_path: Path, sub_path: str) -> None:
    with pytest.raises(OSError, match="must be relative"):
        opened(tmp_path, sub_path)


# --- the end ---


def test_removal(volumes: Volumes, state: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("x")
    it = pod({"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}})
    path = made(volumes, it, m=ConfigMap(data={"k": "x"}))
    (path / "out").symlink_to(tmp_path / "outside")
    (path / "deep" / "er").mkdir(parents=True)
    (path / "deep").chmod(0)
    assert pods_on_disk(state) == [UID]
    remove_pod_files(state, UID)
    remove_pod_files(state, UID)
    assert pods_on_disk(state) == []
    assert (tmp_path / "outside" / "kept").exists()
