"""What the containers of a pod share: network, ipc and uts namespaces, /dev/shm, and pids if the pod asks for it.

The supervisor enters new namespaces, keeps an fd of each, and returns to its own. Nothing is mounted where the host
could see it: /dev/shm is in a mount namespace of its own, which has nothing else but an empty root.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from plimsoll.linux import namespaces
from plimsoll.linux.masked_paths import masked_paths
from plimsoll.runtime.supervisor import child, host_view, rootfs, spawn
from plimsoll.runtime.supervisor.plan import Identity, LaunchPlan
from plimsoll.runtime.supervisor.settings import Settings
from plimsoll.runtime.supervisor.spawn import ChildProcess, Failure
from plimsoll.runtime.supervisor.state import ContainerRecord, JournalRecord, Register, Sandbox
from plimsoll.runtime.supervisor.user_namespaces import made_with_users

_SHM_SIZE = "64m"
# A shell reaps orphans. It must not end, because the whole pod would end with it.
_POD_INIT = ("/bin/sh", "-c", "trap '' HUP INT TERM; while :; do sleep 86400 & wait; done")
_KINDS = (namespaces.MOUNT, namespaces.UTS, namespaces.IPC, namespaces.PID, namespaces.NET)


class Sandboxes:
    def __init__(
        self, settings: Settings, register: Register, start: spawn.Spawner, kill: Callable[[ContainerRecord], None]
    ) -> None:
        self._settings, self._register, self._spawn, self._kill = settings, register, start, kill
        self._own = {kind: namespaces.open_namespace(kind) for kind in _KINDS} if settings.isolation else {}
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._inits: dict[int, ChildProcess] = {}
        self._empty_root = self._make_empty_root() if settings.isolation else -1

    def make(self, spec: JournalRecord, done: Callable[[str], None]) -> None:
        """`done` gets an error message, or ""."""
        there = self._register.sandboxes.get(spec["id"])
        if there is not None and there.ready:
            done("")
            return
        sandbox = Sandbox(spec | {"created_s": time.time(), "ready": False})
        if self._settings.isolation:
            self._make_namespaces(sandbox)
        self._register.sandboxes[sandbox.id] = sandbox
        if self._settings.isolation and sandbox.share_pids and not sandbox.host_pid:
            self._start_init(sandbox, done)
        else:
            self._is_ready(sandbox, done)

    def stop(self, sandbox_id: str, done: Callable[[], None]) -> None:
        """Its containers are killed; `done` when all have ended."""
        sandbox = self._register.sandboxes.get(sandbox_id)
        if sandbox is None:
            done()
            return
        sandbox.ready = False
        left = [container for container in self._register.of_sandbox(sandbox_id) if container.alive]

        def check_ended() -> None:
            if any(container.alive for container in left):
                return
            left.clear()
            if sandbox.init is not None:
                spawn.kill(sandbox.init.pid)
                sandbox.init = None
            sandbox.close()
            self._register.changed(sandbox)
            done()

        for container in list(left):
            container.on_end.append(check_ended)
            self._kill(container)
        if not left:
            check_ended()

    def remove(self, sandbox_id: str, done: Callable[[], None]) -> None:
        def stopped() -> None:
            for container in self._register.of_sandbox(sandbox_id):
                self._register.forget(container)
            sandbox = self._register.sandboxes.get(sandbox_id)
            if sandbox is not None:
                self._register.forget(sandbox)
            done()

        self.stop(sandbox_id, stopped)

    def socket_in(self, sandbox: Sandbox, family: int) -> socket.socket | None:
        """None where the pod's network is the host's."""
        network = sandbox.namespaces.get(namespaces.NET)
        if network is None:
            return None
        namespaces.setns(network, namespaces.NET)
        try:
            return socket.socket(family, socket.SOCK_STREAM)
        finally:
            self._return([namespaces.NET])

    def place(self, sandbox: Sandbox, cgroups: tuple[int, ...], view: rootfs.RootView | None) -> child.ChildPlacement:
        return child.ChildPlacement(
            cgroups,
            tuple((fd, kind) for kind, fd in sandbox.namespaces.items()),
            view,
            rootfs.Host() if view is None else rootfs.read_host(view),
            sandbox.shm,
            self._own.get(namespaces.MOUNT, -1),
            files=self._settings.files,
            hostname=sandbox.hostname,
            users=sandbox.user_namespace,
            first_user=_first_user(sandbox),
        )

    def child_ended(self, pid: int) -> bool:
        """Whether it was a pod's init. Without it the pod's pids can't be shared any more."""
        child = self._inits.pop(pid, None)
        if child is None:
            return False
        child.listen()
        for sandbox in self._register.sandboxes.values():
            if sandbox.init is child:
                sandbox.init, sandbox.ready = None, False
                self._register.changed(sandbox)
        return True

    def _is_ready(self, sandbox: Sandbox, done: Callable[[str], None]) -> None:
        sandbox.ready = True
        self._register.changed(sandbox)
        done("")

    def _make_namespaces(self, sandbox: Sandbox) -> None:
        kinds = [namespaces.UTS]
        if not sandbox.host_network:
            kinds.append(namespaces.NET)
        if not sandbox.host_ipc:
            kinds.append(namespaces.IPC)
        entered = []

        def prepare() -> None:
            if sandbox.hostname:
                socket.sethostname(sandbox.hostname)
            if not sandbox.host_network:
                namespaces.loopback_up()
            for name, value in sandbox.sysctls.items():
                self._write_sysctl(name, value)

        try:
            if sandbox.users is not None:
                sandbox.namespaces = made_with_users(sandbox.users, kinds, prepare)
                sandbox.user_namespace = sandbox.namespaces.pop(namespaces.USER)
            else:
                for kind in kinds:
                    namespaces.unshare(kind)
                    entered.append(kind)
                    sandbox.namespaces[kind] = self._current(kind)
                prepare()
            if not sandbox.host_ipc:
                namespaces.setns(self._empty_root, namespaces.MOUNT)
                entered.append(namespaces.MOUNT)
                namespaces.unshare(namespaces.MOUNT)
                rootfs.shared_memory(_SHM_SIZE, _first_user(sandbox))
                sandbox.shm = self._current(namespaces.MOUNT)
        except OSError:
            sandbox.close()
            raise
        finally:
            self._return(entered)

    def _make_empty_root(self) -> int:
        """A mount namespace that each sandbox copies: leaving a copy of the host's, with the mounts of all pods, takes
        longer than everything else about /dev/shm."""
        namespaces.unshare(namespaces.MOUNT)
        try:
            rootfs.empty_root(self._settings.stage)
            return self._current(namespaces.MOUNT)
        finally:
            self._return([namespaces.MOUNT])

    def _write_sysctl(self, name: str, value: str) -> None:
        """Of the namespaces that this process is in: the agent has checked that the name belongs to one of them."""
        path = "sys/" + name.translate(str.maketrans("./", "/."))
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._proc)
            try:
                os.write(fd, value.encode())
            finally:
                os.close(fd)
        except OSError as error:
            raise OSError(error.errno, f"sysctl {name}={value}: {os.strerror(error.errno or 0)}") from None

    def _current(self, kind: int) -> int:
        """Through the host's /proc, whatever the current root is."""
        return os.open(f"self/ns/{namespaces.FILES[kind]}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)

    def _return(self, kinds: list[int]) -> None:
        try:
            for kind in kinds:
                namespaces.setns(self._own[kind], kind)
        except OSError:
            os.abort()  # some namespaces may still be the pod's: end here, the next supervisor starts clean

    def _start_init(self, sandbox: Sandbox, done: Callable[[str], None]) -> None:
        """PID 1 of a pod whose containers share their pids. The pod's processes end with it."""
        view = rootfs.RootView(
            self._settings.stage,
            base=host_view.directory(self._settings.state),
            secret=self._settings.secret,
            overlay=self._settings.overlay,
            read_only=True,
            outside=os.getpid(),
            masked=masked_paths(),
        )

        def ready(failure: Failure | None) -> None:
            child = sandbox.init
            if failure is not None or child is None:
                self._register.sandboxes.pop(sandbox.id, None)
                sandbox.close()
                done(f"the pod's init did not start: {failure.message if failure else 'the pod was stopped'}")
                return
            try:
                sandbox.pids = namespaces.open_namespace(namespaces.PID, child.pid)
            except OSError as problem:
                done(f"the pod's init has ended: {problem}")
                return
            self._is_ready(sandbox, done)

        plan = LaunchPlan(_POD_INIT, {}, identity=Identity())
        place = self.place(sandbox, (), view)._replace(users=-1, first_user=0)
        sandbox.init = self._spawn(plan, place, child.Streams(), ready, spawn.NEW_PIDS)
        self._inits[sandbox.init.pid] = sandbox.init


def _first_user(sandbox: Sandbox) -> int:
    return sandbox.users.first if sandbox.users is not None else 0
