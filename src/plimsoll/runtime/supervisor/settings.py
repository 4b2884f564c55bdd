"""The supervisor's settings, and what the machine allows: namespaces, mounts, an overlay, tried in a child."""

from __future__ import annotations

import os
from typing import NamedTuple

from plimsoll.linux import mounts, namespaces
from plimsoll.runtime.supervisor import host_view

_YES, _NO_OVERLAY, _NO_NAMESPACES = 0, 3, 4


class Abilities(NamedTuple):
    isolation: bool
    overlay: bool
    limitations: tuple[str, ...] = ()


def detect_abilities(stage: str) -> Abilities:
    why = "containers are plain processes of this machine: they see its files, network and processes"
    if os.geteuid() != 0:
        return Abilities(False, False, (f"not root, so {why}; run as root for isolation",))
    if not mounts.can_clone_trees():
        return Abilities(False, False, (f"this kernel is older than 5.12, so {why}",))
    pid = os.fork()
    if pid == 0:
        code = _NO_NAMESPACES
        try:
            code = _tried(stage)
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == _YES:
        return Abilities(True, True)
    if code == _NO_OVERLAY:
        return Abilities(
            True, False, ("no overlayfs here: the root of containers is read-only, but for /tmp, /run and volumes",)
        )
    return Abilities(False, False, (f"the kernel refuses new namespaces or mounts here, so {why}",))


_KINDS = (namespaces.MOUNT, namespaces.NET, namespaces.IPC, namespaces.UTS, namespaces.PID)


def _tried(stage: str) -> int:
    # After each pod the supervisor returns to its own namespaces. In a user namespace that does not own them, as after
    # `unshare -r`, the kernel allows only the way out.
    own = {kind: namespaces.open_namespace(kind) for kind in _KINDS}
    namespaces.unshare(sum(_KINDS))
    for kind, fd in own.items():
        namespaces.setns(fd, kind)
    namespaces.unshare(sum(_KINDS))
    namespaces.loopback_up()
    mounts.make_private()
    mounts.mount("plimsoll", stage, "tmpfs", mounts.NODEV, "mode=755")
    os.chdir(stage)
    for name in ("upper", "work", "root"):
        os.mkdir(name)
    os.close(mounts.clone_tree("/dev/null", recursive=False))
    try:
        mounts.mount("overlay", "root", "overlay", mounts.NODEV, "lowerdir=/,upperdir=upper,workdir=work")
        os.mkdir("root/plimsoll-probe")
    except OSError:
        return _NO_OVERLAY
    return _YES


class Settings(NamedTuple):
    state: str
    isolation: bool = True
    overlay: bool = True
    limitations: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()  # paths no container may see: the state directories
    log_max_bytes: int = 10 << 20
    log_max_files: int = 5
    unified: bool = False  # /sys/fs/cgroup is cgroup v2
    files: tuple[int, int] = (1024, 1024)  # RLIMIT_NOFILE of containers: what the supervisor was started with

    def choices(self) -> dict[str, object]:
        """What an agent has chosen at the start, to compare with what it would choose now; as JSON has it."""
        return {
            "view of the host": host_view.VERSION,
            "hidden paths": sorted(self.secret),
            "log limits": [self.log_max_bytes, self.log_max_files],
        }

    @property
    def stage(self) -> str:
        """An empty directory: children mount on it in their own mount namespaces."""
        return os.path.join(self.state, "stage")
