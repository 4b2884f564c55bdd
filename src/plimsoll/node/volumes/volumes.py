"""The volumes of pods: made before the first container starts, refreshed while it runs, removed with the pod.

`set_up` may be called as often as one likes: what is there stays as its containers made it, what changed in the API is
published anew. So a refresh is the same call, and so is the first one after a restart.

emptyDir is a directory, or with `medium: Memory` a tmpfs. Its pages are charged to the cgroup of whoever touches them
first, which is the container that writes, so they count against that container's limit and, because memory cgroups sum
upwards, against the pod's also after the container is gone. Its size is at most the pod's memory limit, else what the
node has to give. The tmpfs is mounted on the host, below the state directory: the runtime's supervisor shares this
mount namespace and binds it into containers.

A subPath is opened inside its volume with links resolved only as long as they stay inside, and pinned by a bind mount
of that very file or directory: whatever a container swaps in later is never looked at. A hostPath is resolved here, and
what would show the state directory (keys, sockets, other pods' volumes) is refused.

All calls block for as long as a few files take; removal of a large volume may take seconds, so it belongs in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from plimsoll.errors import ContainerConfigError
from plimsoll.linux.mounts import BIND, NODEV, NOSUID, mount
from plimsoll.linux.safe_tree import open_within, real_path
from plimsoll.node.volumes.atomic_writer import publish
from plimsoll.node.volumes.pod_dirs import checked_label, make_directory, pod_directory, unmount
from plimsoll.rules.gotext import quoted
from plimsoll.rules.lifecycle.environment import ConfigMaps, EnvironmentNote, Surroundings, strictly_expanded
from plimsoll.rules.lifecycle.security_context import container_path, fs_group
from plimsoll.rules.lifecycle.volumes import VolumeError, check_kind, mounted_volumes, volume_files
from plimsoll.rules.model.objects import MEMORY, EmptyDir, Pod
from plimsoll.rules.model.runnable import HostPath, RunContainer, RunPod, RunVolume, VolumeMount, volume_kind
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resources.effective import pod_limits
from plimsoll.rules.resources.values import declared_limits
from plimsoll.runtime.interface import ContainerMount

_PLUGIN = {
    "emptyDir": "kubernetes.io~empty-dir",
    "configMap": "kubernetes.io~configmap",
    "downwardAPI": "kubernetes.io~downward-api",
    "projected": "kubernetes.io~projected",
}
_SUBPATHS = "volume-subpaths"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Ready(msgspec.Struct, frozen=True):
    """A volume that can be mounted."""

    path: str
    read_only: bool = False  # whatever the mount says: made from the API
    may_grow: bool = True  # a subPath that is missing is made


class ReadyVolumes(msgspec.Struct, frozen=True):
    by_name: dict[str, Ready] = {}
    notes: tuple[EnvironmentNote, ...] = ()
    changed: tuple[str, ...] = ()  # whose files were published anew


class Volumes:
    """`state` is the node's state directory; `hidden` are further paths no hostPath may show.

    `covered`: the runtime covers them where they would be seen inside a larger hostPath, so that one is let pass.
    """

    def __init__(self, state: Path, hidden: Sequence[Path] = (), *, covered: bool = False) -> None:
        self.state = state
        self._covered = covered
        self._hidden = tuple(os.path.realpath(path) for path in (state, *hidden))

    def set_up(self, pod: RunPod, config_maps: ConfigMaps, surroundings: Surroundings) -> ReadyVolumes:
        """All that containers of the pod (with its allocated resources) mount. Raises VolumeRefused at the first
        that cannot be made."""
        ready: dict[str, Ready] = {}
        notes: list[EnvironmentNote] = []
        changed: list[str] = []
        for volume in mounted_volumes(pod):
            kind = check_kind(volume)
            try:
                if volume.empty_dir is not None:
                    ready[volume.name] = self._empty_dir(pod, volume, volume.empty_dir, surroundings)
                elif volume.host_path is not None:
                    ready[volume.name] = self._host_path(volume, volume.host_path)
                else:
                    files = volume_files(volume, pod, config_maps, surroundings)
                    path = self._made(pod, volume, kind)
                    directory = os.open(path, _DIRECTORY)
                    try:
                        if publish(directory, files.files, fs_group(pod)):
                            changed.append(volume.name)
                    finally:
                        os.close(directory)
                    notes.extend(files.notes)
                    ready[volume.name] = Ready(str(path), read_only=True, may_grow=False)
            except OSError as error:
                raise VolumeError(volume.name, _said(error)) from error
        return ReadyVolumes(ready, tuple(notes), tuple(changed))

    def mounts(
        self, pod: RunPod, container: RunContainer, ready: Mapping[str, Ready], variables: Mapping[str, str]
    ) -> tuple[ContainerMount, ...]:
        """What the container sees where, outer paths first. Raises ContainerConfigError."""
        if container.volume_devices:
            raise ContainerConfigError(
                f"{container_path(pod, container)}.volumeDevices: no block devices are given here"
            )
        found = [
            self._mount(pod, container, index, each, ready, variables)
            for index, each in enumerate(container.volume_mounts)
        ]
        return tuple(sorted(found, key=lambda each: each.container_path.count("/")))

    def directory(self, pod: RunPod, volume: RunVolume) -> Path | None:
        """Where it lies, made or not; None for what is not kept in the state directory."""
        kind = volume_kind(volume)
        return self._path(pod, volume, kind) if kind in _PLUGIN else None

    # --- kinds ---

    def _path(self, pod: RunPod, volume: RunVolume, kind: str) -> Path:
        name = checked_label(volume.name, "volume")
        return pod_directory(self.state, pod.metadata.uid) / "volumes" / _PLUGIN[kind] / name

    def _made(self, pod: RunPod, volume: RunVolume, kind: str, mode: int = 0o755) -> Path:
        """The volume's directory. It gets its name last, so one that has it also has its mode and group."""
        path = self._path(pod, volume, kind)
        if path.is_dir():
            return path
        fresh = path.with_name(f"{path.name}.new")  # a label has no dot: this is no other volume's name
        make_directory(fresh)
        group = fs_group(pod)
        if group is not None:
            os.chown(fresh, -1, group)
        os.chmod(fresh, mode if group is None else mode | 0o2070)
        os.rename(fresh, path)
        return path

    def _empty_dir(self, pod: RunPod, volume: RunVolume, source: EmptyDir, surroundings: Surroundings) -> Ready:
        if source.medium not in ("", "Memory"):
            raise VolumeError(volume.name, f'emptyDir.medium {quoted(source.medium)}: only "" and "Memory" are known')
        path = self._made(pod, volume, "emptyDir", 0o777)
        if source.medium == "Memory" and not _is_mount_point(path):
            allocatable = surroundings.allocatable.get(MEMORY, ZERO).value
            size = memory_volume_bytes(pod, source, allocatable)
            group = fs_group(pod)
            owner = "mode=0777" if group is None else f"mode=2777,gid={group}"
            mount("tmpfs", str(path), "tmpfs", NOSUID | NODEV, f"{owner},size={size}" if size else owner)
        return Ready(str(path))

    def _host_path(self, volume: RunVolume, source: HostPath) -> Ready:
        if not source.path.startswith("/") or "\0" in source.path or ".." in source.path.split("/"):
            raise VolumeError(volume.name, f"hostPath.path {quoted(source.path)}: absolute, without '..', is needed")
        self._check_shown(volume.name, source.path)
        if source.type in ("", "DirectoryOrCreate") and not os.path.lexists(source.path):
            os.makedirs(source.path, 0o755, exist_ok=True)
        elif source.type == "FileOrCreate":
            os.close(os.open(source.path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o644))
        try:
            fd = os.open(source.path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise VolumeError(volume.name, _wrong_type(source)) from None
        try:
            _check_type(volume.name, source, os.fstat(fd).st_mode)
            path = real_path(fd)
        finally:
            os.close(fd)
        self._check_shown(volume.name, path)
        return Ready(path)

    def _check_shown(self, volume: str, path: str) -> None:
        resolved = os.path.realpath(path)
        for hidden in self._hidden:
            shared = os.path.commonpath((resolved, hidden))
            if shared == hidden or (shared == resolved and not self._covered):
                detail = f"hostPath {path} would show {hidden}, which no pod may see: name another path"
                raise VolumeError(volume, detail)

    # --- mounts of a container ---

    def _mount(
        self,
        pod: RunPod,
        container: RunContainer,
        index: int,
        wanted: VolumeMount,
        ready: Mapping[str, Ready],
        variables: Mapping[str, str],
    ) -> ContainerMount:
        at = f"{container_path(pod, container)}.volumeMounts[{index}]"
        if wanted.mount_propagation not in (None, "", "None"):
            raise ContainerConfigError(f"{at}.mountPropagation: mounts do not propagate here, remove it")
        if wanted.recursive_read_only == "Enabled":
            raise ContainerConfigError(f"{at}.recursiveReadOnly: not supported by this node, remove it")
        volume = ready.get(wanted.name)
        if volume is None:
            raise ContainerConfigError(f'cannot find volume "{wanted.name}" to mount into container "{container.name}"')
        target = _inside(wanted.mount_path, at)
        source = volume.path
        sub_path = wanted.sub_path
        if wanted.sub_path_expr:
            sub_path = strictly_expanded(wanted.sub_path_expr, variables)
        if sub_path:
            source = self._pinned(pod, container, index, wanted.name, volume, sub_path)
        return ContainerMount(source, target, wanted.read_only or volume.read_only)

    def _pinned(self, pod: RunPod, container: RunContainer, index: int, name: str, volume: Ready, sub_path: str) -> str:
        directory = pod_directory(self.state, pod.metadata.uid) / _SUBPATHS / checked_label(name, "volume")
        target = directory / checked_label(container.name, "container") / str(index)
        failure = f"failed to prepare subPath for volumeMount {quoted(name)} of container {quoted(container.name)}"
        try:
            fd = open_sub_path(volume.path, sub_path, make=volume.may_grow)
        except OSError as error:
            reason = "it leads out of the volume" if error.errno == errno.EXDEV else _said(error)
            raise ContainerConfigError(f"{failure}: {sub_path}: {reason}") from error
        try:
            # A socket or device of the host must not come in by the back door either.
            if not stat.S_ISDIR(mode := os.fstat(fd).st_mode) and not stat.S_ISREG(mode):
                raise ContainerConfigError(f"{failure}: {sub_path}: neither a directory nor a file")
            unmount(target)
            _make_mount_point(target, is_directory=stat.S_ISDIR(mode))
            mount(f"/proc/self/fd/{fd}", str(target), "", BIND)
        except OSError as error:
            raise ContainerConfigError(f"{failure}: {_said(error)}") from error
        finally:
            os.close(fd)
        return str(target)


def memory_volume_bytes(pod: Pod, source: EmptyDir, allocatable_bytes: int) -> int:
    """The least of what the node gives to pods, the pod's memory limit and the volume's own; 0: nothing bounds it."""
    bounds = [allocatable_bytes]
    if declared_limits(pod)[1]:
        bounds.append(pod_limits(pod).get(MEMORY, ZERO).value)
    if source.size_limit is not None:
        bounds.append(source.size_limit.value)
    return min((bound for bound in bounds if bound > 0), default=0)


def open_sub_path(volume: str, sub_path: str, *, make: bool) -> int:
    """An O_PATH fd of something in a volume; EXDEV where it would be outside. Missing directories are made where
    `make`, with the volume's own mode."""
    if sub_path.startswith("/") or ".." in sub_path.split("/") or "\0" in sub_path:
        raise OSError(errno.EINVAL, "must be relative and without '..'")
    top = os.open(volume, os.O_PATH | os.O_CLOEXEC)
    try:
        names = [name for name in sub_path.split("/") if name not in ("", ".")]
        try:
            return open_within(top, "/".join(names) or ".", os.O_PATH)
        except FileNotFoundError:
            if not make:
                raise
        for depth in range(len(names)):
            _make_one(top, names[:depth], names[depth])
        return open_within(top, "/".join(names), os.O_PATH)
    finally:
        os.close(top)


def _make_one(top: int, above: list[str], name: str) -> None:
    parent = open_within(top, "/".join(above) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            os.mkdir(name, dir_fd=parent)
        except FileExistsError:
            return  # a link that leads nowhere is found out by whoever opens it
        made = open_within(parent, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(made, stat.S_IMODE(os.fstat(top).st_mode))
        finally:
            os.close(made)
    finally:
        os.close(parent)


def _make_mount_point(target: Path, *, is_directory: bool) -> None:
    make_directory(target.parent)
    if is_directory:
        if os.path.lexists(target) and not target.is_dir():
            target.unlink()
        make_directory(target)
        return
    if target.is_dir():
        target.rmdir()
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def _is_mount_point(path: Path) -> bool:
    return os.lstat(path).st_dev != os.lstat(path.parent).st_dev


def _inside(mount_path: str, at: str) -> str:
    """An absolute path of the container, without `..`: it can only mean something below its root."""
    path = "/" + os.path.normpath("/" + mount_path).lstrip("/")
    if path == "/" or "\0" in path:
        raise ContainerConfigError(f"{at}.mountPath {quoted(mount_path)}: nothing can be mounted there")
    return path


_TYPES = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
}


def _check_type(volume: str, source: HostPath, mode: int) -> None:
    if source.type and source.type not in _TYPES:
        raise VolumeError(volume, f"hostPath.type {source.type}: sockets and devices of the host are not given to pods")
    if source.type and not _TYPES[source.type][0](mode):
        raise VolumeError(volume, _wrong_type(source))
    if stat.S_ISSOCK(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise VolumeError(volume, f"hostPath {source.path}: sockets and devices of the host are not given to pods")


def _wrong_type(source: HostPath) -> str:
    wanted = _TYPES[source.type][1] if source.type in _TYPES else "there"
    return f"hostPath type check failed: {source.path} is not {wanted}"


def _said(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"{error.strerror}: this needs root"
    return error.strerror or str(error)
