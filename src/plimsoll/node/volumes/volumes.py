"""The volumes of pods: created before the first container starts, refreshed while it runs, removed with the pod.

`set_up` is idempotent: it keeps what containers have written, and publishes what has changed in the API. A refresh is
the same call, and so is the first one after a restart.

A volume with a Secret, with tokens or with fields of the pod is a tmpfs, as with a kubelet: it never reaches the disk.

emptyDir is a directory, or with `medium: Memory` a tmpfs. The kernel charges its pages to the cgroup that touches them
first, which is the container that writes. So they count against that container's limit and, since memory cgroups are
hierarchical, against the pod's limit even after the container has ended. Its size is at most the pod's memory limit, or
else the node's allocatable memory. The tmpfs is mounted on the host, below the state directory: the runtime's
supervisor shares this mount namespace and binds it into containers.

A subPath is opened inside its volume, where links must not lead outside, and pinned by a bind mount of that file or
directory: a later replacement by a container has no effect. A hostPath is any path of the machine, as with a kubelet:
the namespace's Pod Security level decides who may use it. The embedded runtime covers the agent's own files in it.

All calls block for a few file operations; removing a large volume may take seconds, so run it in a thread.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from plimsoll.errors import ContainerConfigError, quoted
from plimsoll.linux.files.safe_tree import closing_fd, open_within, real_path
from plimsoll.linux.mounts import BIND, NODEV, NOSUID, mount
from plimsoll.node.volumes.atomic_writer import publish
from plimsoll.node.volumes.pod_dirs import checked_label, make_directory, pod_directory, unmount
from plimsoll.rules.lifecycle.api_objects import PodObjects
from plimsoll.rules.lifecycle.environment import Surroundings, strictly_expanded
from plimsoll.rules.lifecycle.security_context import container_path, fs_group
from plimsoll.rules.lifecycle.volumes import VolumeError, check_kind, mounted_volumes, volume_files
from plimsoll.rules.model.objects import MEMORY, EmptyDir, Pod
from plimsoll.rules.model.run_volumes import ClaimVolume, HostPath, RunVolume, VolumeMount, volume_kind
from plimsoll.rules.model.runnable import RunContainer, RunPod
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resources.effective import pod_limits
from plimsoll.rules.resources.values import declared_limits
from plimsoll.runtime.interface import ContainerMount, Propagation, RuntimeFeatures

log = logging.getLogger(__name__)

_PLUGIN = {
    "emptyDir": "kubernetes.io~empty-dir",
    "configMap": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "downwardAPI": "kubernetes.io~downward-api",
    "projected": "kubernetes.io~projected",
}
_IN_MEMORY = frozenset({"secret", "downwardAPI", "projected"})
_SUBPATHS = "volume-subpaths"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Ready(msgspec.Struct, frozen=True):
    """A volume that can be mounted."""

    path: str
    read_only: bool = False  # its content comes from the API, or from an image
    may_grow: bool = True  # a missing subPath is created
    image: str = ""  # the reference of an image volume, which the runtime mounts


class ReadyVolumes(msgspec.Struct, frozen=True):
    by_name: dict[str, Ready] = {}
    changed: tuple[str, ...] = ()  # names of volumes with new content


class Volumes:
    """`state`: the node's state directory. `hidden`: paths that the runtime covers in every container, so that a
    hostPath in them would be empty. `features`: of the runtime."""

    def __init__(
        self,
        state: Path,
        hidden: Sequence[Path] = (),
        *,
        features: Callable[[], RuntimeFeatures] = RuntimeFeatures,
        in_memory: bool = False,
    ) -> None:
        """`in_memory`: Secrets and the like, where this process may mount a tmpfs."""
        self.state = state
        self._features, self._in_memory = features, in_memory
        self._hidden = tuple(os.path.realpath(path) for path in hidden)

    def set_up(self, pod: RunPod, objects: PodObjects, surroundings: Surroundings) -> ReadyVolumes:
        """Set up all volumes that containers of the pod (with its allocated resources) mount. Raises VolumeError at the
        first that cannot be created."""
        ready: dict[str, Ready] = {}
        changed: list[str] = []
        for volume in mounted_volumes(pod):
            kind = check_kind(volume)
            try:
                if volume.empty_dir is not None:
                    ready[volume.name] = self._empty_dir(pod, volume, volume.empty_dir, surroundings)
                elif volume.host_path is not None:
                    ready[volume.name] = self._host_path(volume, volume.host_path)
                elif volume.persistent_volume_claim is not None:
                    ready[volume.name] = self._claimed(volume, volume.persistent_volume_claim, objects)
                elif volume.image is not None:
                    if not self._features().image_volumes:
                        raise VolumeError(volume.name, "this container runtime does not mount images")
                    ready[volume.name] = Ready("", read_only=True, may_grow=False, image=volume.image.reference)
                else:
                    files = volume_files(volume, pod, objects, surroundings)
                    path = self._make_directory(pod, volume, kind)
                    if self._in_memory and kind in _IN_MEMORY:
                        _keep_in_memory(path)
                    with closing_fd(os.open(path, _DIRECTORY)) as directory:
                        if publish(directory, files, fs_group(pod)):
                            changed.append(volume.name)
                    ready[volume.name] = Ready(str(path), read_only=True, may_grow=False)
            except OSError as error:
                raise VolumeError(volume.name, _reason(error)) from error
        return ReadyVolumes(ready, tuple(changed))

    def mounts(
        self,
        pod: RunPod,
        container: RunContainer,
        ready: Mapping[str, Ready],
        variables: Mapping[str, str],
        handler: str = "",
    ) -> tuple[ContainerMount, ...]:
        """The mounts of a container, outer paths first. `handler`: of its RuntimeClass. Raises ContainerConfigError."""
        if container.volume_devices:
            raise ContainerConfigError(
                f"{container_path(pod, container)}.volumeDevices: block devices are not supported by this node"
            )
        mounts = [
            self._mount(pod, container, index, volume_mount, ready, variables, handler)
            for index, volume_mount in enumerate(container.volume_mounts)
        ]
        return tuple(sorted(mounts, key=lambda mounted: mounted.container_path.count("/")))

    def directory(self, pod: RunPod, volume: RunVolume) -> Path | None:
        """The path of a volume, created or not; None for one outside the state directory."""
        kind = volume_kind(volume)
        return self._path(pod, volume, kind) if kind in _PLUGIN else None

    # --- kinds ---

    def _path(self, pod: RunPod, volume: RunVolume, kind: str) -> Path:
        name = checked_label(volume.name, "volume")
        return pod_directory(self.state, pod.metadata.uid) / "volumes" / _PLUGIN[kind] / name

    def _make_directory(self, pod: RunPod, volume: RunVolume, kind: str, mode: int = 0o755) -> Path:
        """Create the directory of a volume. It gets its name last, so that one with the name has its mode and group."""
        path = self._path(pod, volume, kind)
        if path.is_dir():
            return path
        fresh = path.with_name(f"{path.name}.new")  # a label has no dot: this cannot be another volume
        make_directory(fresh)
        group = fs_group(pod)
        if group is not None:
            os.chown(fresh, -1, group)
        os.chmod(fresh, mode if group is None else mode | 0o2070)
        os.rename(fresh, path)
        return path

    def _empty_dir(self, pod: RunPod, volume: RunVolume, source: EmptyDir, surroundings: Surroundings) -> Ready:
        if source.medium not in ("", "Memory"):
            raise VolumeError(volume.name, f'emptyDir.medium {quoted(source.medium)}: must be "" or "Memory"')
        path = self._make_directory(pod, volume, "emptyDir", 0o777)
        if source.medium == "Memory" and not _is_mount_point(path):
            allocatable = surroundings.allocatable.get(MEMORY, ZERO).value
            size = memory_volume_bytes(pod, source, allocatable)
            group = fs_group(pod)
            # A tmpfs has the sticky bit, as with a kubelet, and its subPaths have its mode.
            owner = "mode=1777" if group is None else f"mode=3777,gid={group}"
            mount("tmpfs", str(path), "tmpfs", NOSUID | NODEV, f"{owner},size={size}" if size else owner)
        return Ready(str(path))

    def _host_path(self, volume: RunVolume, source: HostPath) -> Ready:
        if not source.path.startswith("/") or "\0" in source.path or ".." in source.path.split("/"):
            raise VolumeError(
                volume.name, f"hostPath.path {quoted(source.path)}: must be an absolute path without '..'"
            )
        self._check_exposed(volume.name, source.path)
        if source.type in ("", "DirectoryOrCreate") and not os.path.lexists(source.path):
            os.makedirs(source.path, 0o755, exist_ok=True)
        elif source.type == "FileOrCreate":
            os.close(os.open(source.path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o644))
        try:
            fd = os.open(source.path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise VolumeError(volume.name, _wrong_type(source)) from None
        with closing_fd(fd):
            _check_type(volume.name, source, os.fstat(fd).st_mode)
            path = real_path(fd)
        self._check_exposed(volume.name, path)
        return Ready(path)

    def _claimed(self, volume: RunVolume, source: ClaimVolume, objects: PodObjects) -> Ready:
        """The path of the bound PersistentVolume, as a hostPath."""
        found = objects.claims.get(source.claim_name)
        if found is None or found.problem:
            problem = found.problem if found is not None else "PVC is not bound"
            raise VolumeError(volume.name, f'claim "{source.claim_name}": {problem}')
        ready = self._host_path(volume, HostPath(path=found.path, type=found.type))
        return msgspec.structs.replace(ready, read_only=source.read_only or found.read_only)

    def _check_exposed(self, volume: str, path: str) -> None:
        resolved = os.path.realpath(path)
        for hidden in self._hidden:
            if os.path.commonpath((resolved, hidden)) == hidden:
                detail = f"hostPath {path} is in {hidden}, which the embedded runtime hides from pods: use another path"
                raise VolumeError(volume, detail)

    # --- mounts of a container ---

    def _mount(
        self,
        pod: RunPod,
        container: RunContainer,
        index: int,
        volume_mount: VolumeMount,
        ready: Mapping[str, Ready],
        variables: Mapping[str, str],
        handler: str,
    ) -> ContainerMount:
        at = f"{container_path(pod, container)}.volumeMounts[{index}]"
        volume = ready.get(volume_mount.name)
        if volume is None:
            name = volume_mount.name
            raise ContainerConfigError(f'cannot find volume "{name}" to mount into container "{container.name}"')
        target = _inside(volume_mount.mount_path, at)
        source = volume.path
        sub_path = volume_mount.sub_path
        if volume_mount.sub_path_expr:
            sub_path = strictly_expanded(volume_mount.sub_path_expr, variables)
        if volume.image:
            return ContainerMount("", target, True, image=volume.image, image_sub_path=sub_path)
        if sub_path:
            source = self._pinned(pod, container, index, volume_mount.name, volume, sub_path)
        return ContainerMount(
            source,
            target,
            volume_mount.read_only or volume.read_only,
            _propagation(volume_mount, at),
            self._is_recursive(volume_mount, handler),
        )

    def _is_recursive(self, volume_mount: VolumeMount, handler: str) -> bool:
        """Whether mounts below a read-only one are read-only as well."""
        mode = volume_mount.recursive_read_only
        is_supported = handler in self._features().recursive_read_only
        if mode == "Enabled" and not is_supported:
            reason = f"volume {quoted(volume_mount.name)}: not supported by the container runtime"
            raise ContainerConfigError(f"failed to resolve recursive read-only mode: {reason}")
        return mode == "Enabled" or (mode == "IfPossible" and is_supported and volume_mount.read_only)

    def _pinned(self, pod: RunPod, container: RunContainer, index: int, name: str, volume: Ready, sub_path: str) -> str:
        directory = pod_directory(self.state, pod.metadata.uid) / _SUBPATHS / checked_label(name, "volume")
        target = directory / checked_label(container.name, "container") / str(index)
        failure = f"failed to prepare subPath for volumeMount {quoted(name)} of container {quoted(container.name)}"
        try:
            fd = open_sub_path(volume.path, sub_path, make=volume.may_grow)
        except OSError as error:
            reason = "it leads outside the volume" if error.errno == errno.EXDEV else _reason(error)
            raise ContainerConfigError(f"{failure}: {sub_path}: {reason}") from error
        try:
            unmount(target)
            _make_mount_point(target, is_directory=stat.S_ISDIR(os.fstat(fd).st_mode))
            mount(f"/proc/self/fd/{fd}", str(target), "", BIND)
        except OSError as error:
            raise ContainerConfigError(f"{failure}: {_reason(error)}") from error
        finally:
            os.close(fd)
        return str(target)


def memory_volume_bytes(pod: Pod, source: EmptyDir, allocatable_bytes: int) -> int:
    """The smallest of allocatable memory, the pod's memory limit and the volume's sizeLimit; 0: unlimited."""
    bounds = [allocatable_bytes]
    if declared_limits(pod)[1]:
        bounds.append(pod_limits(pod).get(MEMORY, ZERO).value)
    if source.size_limit is not None:
        bounds.append(source.size_limit.value)
    return min((bound for bound in bounds if bound > 0), default=0)


def open_sub_path(volume: str, sub_path: str, *, make: bool) -> int:
    """An O_PATH fd of a path in a volume; EXDEV where it is outside. With `make` missing directories are created with
    the mode of the volume."""
    if sub_path.startswith("/") or ".." in sub_path.split("/") or "\0" in sub_path:
        raise OSError(errno.EINVAL, "must be relative and without '..'")
    with closing_fd(os.open(volume, os.O_PATH | os.O_CLOEXEC)) as top:
        names = [name for name in sub_path.split("/") if name not in ("", ".")]
        try:
            return open_within(top, "/".join(names) or ".", os.O_PATH)
        except FileNotFoundError:
            if not make:
                raise
        for depth in range(len(names)):
            _make_one(top, names[:depth], names[depth])
        return open_within(top, "/".join(names), os.O_PATH)


def _make_one(top: int, above: list[str], name: str) -> None:
    with closing_fd(open_within(top, "/".join(above) or ".", os.O_RDONLY | os.O_DIRECTORY)) as parent:
        try:
            os.mkdir(name, dir_fd=parent)
        except FileExistsError:
            return  # a dangling link fails when it is opened
        with closing_fd(open_within(parent, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)) as created:
            os.fchmod(created, stat.S_IMODE(os.fstat(top).st_mode))


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


def _keep_in_memory(path: Path) -> None:
    """Cover an empty directory with a tmpfs of its mode and owners. What an earlier agent has written to the disk stays
    there: containers have that directory."""
    if _is_mount_point(path) or os.listdir(path):
        return
    seen = os.stat(path)
    options = f"mode={stat.S_IMODE(seen.st_mode):o},uid={seen.st_uid},gid={seen.st_gid}"
    try:
        mount("tmpfs", str(path), "tmpfs", NOSUID | NODEV, options)
    except PermissionError as error:  # not root: its pods are plain processes of this user
        log.debug("%s is on disk: %s", path, error)


def _is_mount_point(path: Path) -> bool:
    return os.lstat(path).st_dev != os.lstat(path.parent).st_dev


def _inside(mount_path: str, at: str) -> str:
    """An absolute path in the container, without `..`: it cannot leave the root directory."""
    path = "/" + os.path.normpath("/" + mount_path).lstrip("/")
    if path == "/" or "\0" in path:
        raise ContainerConfigError(f"{at}.mountPath {quoted(mount_path)}: cannot be a mount point")
    return path


_PROPAGATION: dict[str | None, Propagation] = {
    None: "None",
    "": "None",
    "None": "None",
    "HostToContainer": "HostToContainer",
    "Bidirectional": "Bidirectional",
}


def _propagation(volume_mount: VolumeMount, at: str) -> Propagation:
    found = _PROPAGATION.get(volume_mount.mount_propagation)
    if found is None:
        raise ContainerConfigError(
            f"invalid MountPropagation mode: {quoted(volume_mount.mount_propagation or '')}: {at}"
        )
    return found


_TYPES = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def _check_type(volume: str, source: HostPath, mode: int) -> None:
    if source.type and source.type not in _TYPES:
        raise VolumeError(volume, f"{source.type} is an invalid volume type")
    if source.type and not _TYPES[source.type][0](mode):
        raise VolumeError(volume, _wrong_type(source))


def _wrong_type(source: HostPath) -> str:
    expected = _TYPES[source.type][1] if source.type in _TYPES else "there"
    return f"hostPath type check failed: {source.path} is not {expected}"


def _reason(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"{error.strerror}: this needs root"
    return error.strerror or str(error)
