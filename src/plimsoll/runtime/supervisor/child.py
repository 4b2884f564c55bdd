"""What a child does between fork and exec. It runs in the child only and never returns.

Order matters. First the cgroups and the OOM score, so that everything that follows is counted and limited; then the
namespaces and the root; then the streams; last, every privilege that is not declared is dropped. The child is not
dumpable (`prctl`), so no process of the pod can read this copy of the supervisor.

It reports to the supervisor over a close-on-exec socket: notes (its OOM score, its terminal), then either an error or,
when exec has succeeded, the end of the stream.
"""

from __future__ import annotations

import array
import binascii
import errno
import fcntl
import functools
import json
import os
import resource
import signal
import socket
import stat
import struct
import termios
from typing import Any, NamedTuple, NoReturn

from plimsoll.linux import capabilities, mounts, namespaces, seccomp
from plimsoll.linux.nice import reset_priority
from plimsoll.runtime.supervisor import host_mounts, rootfs, user_namespaces
from plimsoll.runtime.supervisor.plan import DEFAULT_PATH, Identity, LaunchPlan

CANNOT_RUN, START_ERROR = "ContainerCannotRun", "StartError"
NOT_FOUND, NOT_EXECUTABLE, NOT_STARTED = 127, 126, 128

_TIOCGPTN, _TIOCSPTLCK = 0x80045430, 0x40045431


class ChildPlacement(NamedTuple):
    """What the process enters. For a container: a new mount namespace and `view`; for exec: everything by `join`."""

    cgroups: tuple[int, ...] = ()  # directory fds, one per hierarchy
    join: tuple[tuple[int, int], ...] = ()  # (namespace fd, kind)
    view: rootfs.RootView | None = None
    host: rootfs.Host = rootfs.Host()
    shm_namespace: int = -1  # a mount namespace that has the pod's /dev/shm
    host_mounts: int = -1  # the one to return to
    umask: int = 0o022
    files: tuple[int, int] = (1024, 1024)
    hostname: str = ""
    supervisor: int = 0  # the parent's pid in the host's pid namespace
    ignored: tuple[int, ...] = ()  # the signals that the supervisor ignores
    users: int = -1  # the pod's user namespace, entered last
    first_user: int = 0  # of the host: who is root in it


class Streams(NamedTuple):
    """The child's ends; with a terminal they are made in the child."""

    stdin: int = -1
    stdout: int = -1
    stderr: int = -1


class StartError(Exception):
    """Why nothing runs: the exit code, the reason and the message to report."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(code, reason, message)
        self.code, self.reason, self.message = code, reason, message


def run(plan: LaunchPlan, place: ChildPlacement, streams: Streams, notes: socket.socket) -> NoReturn:
    """Run in the child; never returns."""
    try:
        try:
            _become(plan, place, streams, notes)
        except StartError as problem:
            _note(notes, {"error": problem.message, "code": problem.code, "reason": problem.reason})
        except (OSError, ValueError, KeyError, TypeError) as problem:
            _note(notes, {"error": str(problem), "code": NOT_STARTED, "reason": START_ERROR})
    finally:
        os._exit(NOT_STARTED)


def _become(plan: LaunchPlan, place: ChildPlacement, streams: Streams, notes: socket.socket) -> None:
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # the host's, even if ours is another one
    os.setsid()
    namespaces.new_session_keyring()
    for directory in place.cgroups:
        _enter_cgroup(directory)
    reset_priority()
    if plan.oom_score_adj is not None:
        have = set_oom_score(plan.oom_score_adj)
        if have != plan.oom_score_adj:
            _note(notes, {"oom_score_adj": have})
    os.umask(place.umask)
    resource.setrlimit(resource.RLIMIT_NOFILE, place.files)
    for fd, kind in place.join:
        namespaces.setns(fd, kind)
    if place.view is not None:
        namespaces.unshare(namespaces.CGROUP)  # after the cgroups were entered: they become its root
        view = place.view._replace(users=place.users, first_user=place.first_user)
        rootfs.enter(_with_shm(place, view), place.host)
    environment = completed_environment(plan, place.hostname)
    user = place.first_user + plan.identity.user
    if plan.tty:
        streams = _terminal(notes, user)
    _streams(streams, user)
    if place.users >= 0:
        user_namespaces.enter(place.users)
    # Without this capability a filter needs no_new_privs; there are hardly any privileges to gain, either.
    stays_as_is = plan.identity.no_new_privileges or not capabilities.has_capability("SYS_ADMIN")
    if plan.seccomp and not stays_as_is:
        install_seccomp(plan)  # it takes the privileges that are given up next
    _give_up_privileges(plan, isolated=place.view is not None or bool(place.join))
    if stays_as_is:
        namespaces.no_new_privileges()
    # After setuid, which would clear it. The kernel reparents the children of a dead process before it sends this
    # signal, so a child that still has its old parent now will get it. (In a new pid namespace getppid() is 0.)
    namespaces.die_with_parent(signal.SIGKILL)
    if parent_of_self(proc) != place.supervisor:
        os._exit(NOT_STARTED)
    where = plan.working_dir or "/"
    try:
        os.chdir(where)
    except OSError as error:
        raise StartError(NOT_STARTED, START_ERROR, f"working directory {where}: {error.strerror}") from None
    _reset_signals(place.ignored)
    program = found_program(plan.argv[0], environment.get("PATH", DEFAULT_PATH))
    if plan.seccomp and stays_as_is:
        install_seccomp(plan)
    try:
        os.execve(program, plan.argv, environment)
    except OSError as error:
        raise cannot_run(plan.argv[0], error) from None


def found_program(name: str, path: str) -> str:
    """As execvp searches; a directory or a file that may not be executed is skipped, but reported."""
    if "/" in name:
        return name
    denied = False
    for directory in path.split(":"):
        candidate = os.path.join(directory or ".", name)
        try:
            status = os.stat(candidate)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            if os.access(candidate, os.X_OK):
                return candidate
            denied = True
    if denied:
        raise StartError(NOT_EXECUTABLE, CANNOT_RUN, f'exec: "{name}": permission denied')
    raise StartError(NOT_FOUND, CANNOT_RUN, f'exec: "{name}": executable file not found in $PATH')


def cannot_run(name: str, error: OSError) -> StartError:
    code = NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE
    return StartError(code, CANNOT_RUN, f'exec: "{name}": {(error.strerror or str(error)).lower()}')


def completed_environment(plan: LaunchPlan, hostname: str) -> dict[str, str]:
    environment = dict(plan.environment)
    environment.setdefault("PATH", DEFAULT_PATH)
    if hostname:
        environment.setdefault("HOSTNAME", hostname)
    if plan.tty:
        environment.setdefault("TERM", "xterm")
    if "HOME" not in environment:
        environment["HOME"] = home_of(plan.identity.user)
    return environment


def home_of(user: int) -> str:
    """From the container's own /etc/passwd, as runc does."""
    entry = _account(user)
    if len(entry) >= 6:
        return entry[5] or "/"
    return "/root" if user == 0 else "/"


def container_groups(who: Identity) -> tuple[int, tuple[int, ...]]:
    """The first group and the others, as containerd merges the pod's with those of the image: a user without a group
    has that of /etc/passwd, and those that /etc/group lists it in."""
    account = _account(who.user)
    own = int(account[3]) if len(account) > 3 and account[3].isdecimal() else 0
    group = own if who.group is None else who.group
    groups = list(who.groups)
    if who.merges_groups and account:
        for fields in _lines("/etc/group"):
            if len(fields) >= 4 and fields[2].isdecimal() and account[0] in fields[3].split(","):
                groups.append(int(fields[2]))
    return group, tuple(dict.fromkeys(groups))


@functools.cache  # of one child, which has one root
def _account(user: int) -> list[str]:
    """The line of /etc/passwd; empty where there is none."""
    return next((fields for fields in _lines("/etc/passwd") if len(fields) >= 3 and fields[2] == str(user)), [])


def _lines(path: str) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return [line.rstrip("\n").split(":") for line in file]
    except OSError:
        return []


def set_oom_score(want: int) -> int:
    """The resulting value; lowering it needs CAP_SYS_RESOURCE."""
    fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            os.write(fd, str(want).encode())
        except PermissionError:
            pass
        return int(os.pread(fd, 16, 0))
    finally:
        os.close(fd)


def parent_of_self(proc: int) -> int:
    fd = os.open("self/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return int(os.read(fd, 4096).rpartition(b")")[2].split()[1])
    finally:
        os.close(fd)


def _enter_cgroup(directory: int) -> None:
    """This process has one thread, so on v1 `tasks` means the same as `cgroup.procs`. Moving a whole process waits for
    an RCU grace period (10 ms); a thread that moves itself does not."""
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open("tasks", flags, dir_fd=directory)
    except FileNotFoundError:  # v2
        fd = os.open("cgroup.procs", flags, dir_fd=directory)
    try:
        os.write(fd, b"0")
    except OSError as error:
        where = os.readlink(f"/proc/self/fd/{directory}")
        raise StartError(NOT_STARTED, START_ERROR, f"can't enter the cgroup {where}: {error.strerror}") from None
    finally:
        os.close(fd)


def _with_shm(place: ChildPlacement, view: rootfs.RootView) -> rootfs.RootView:
    """Enter a new mount namespace with the pod's /dev/shm, cloned from the namespace that keeps it."""
    tree = -1
    if place.shm_namespace >= 0:
        namespaces.setns(place.shm_namespace, namespaces.MOUNT)
        tree = mounts.clone_tree(rootfs.SHM, recursive=False)
        namespaces.setns(place.host_mounts, namespaces.MOUNT)
    shared = host_mounts.shared_trees(view.binds, 0 if view.privileged else mounts.NODEV)
    namespaces.unshare(namespaces.MOUNT)
    return view._replace(shm_tree=tree, shared_trees=shared)


def _terminal(notes: socket.socket, user: int) -> Streams:
    """Open a terminal in the container's own devpts; the supervisor gets its other side."""
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    (number,) = struct.unpack("i", fcntl.ioctl(master, _TIOCGPTN, struct.pack("i", 0)))
    slave = os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    if user:
        os.fchown(slave, user, -1)
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [master]))]
    notes.sendmsg([b'{"terminal":true}'], rights, socket.MSG_NOSIGNAL)
    return Streams(slave, slave, slave)


def _streams(streams: Streams, user: int) -> None:
    # Not through 0…2 directly: if the supervisor was started with them closed, a stream may have one of these numbers.
    ends = [os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC) if fd < 0 else fd for fd in streams]
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in ends]
    for number, fd in enumerate(high):
        if user and stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.fchown(fd, user, -1)  # else /dev/stdout could not be opened
        os.dup2(fd, number, inheritable=True)


def _give_up_privileges(plan: LaunchPlan, *, isolated: bool) -> None:
    who = plan.identity
    if os.geteuid() == 0:
        group, groups = container_groups(who) if isolated else (who.group or 0, who.groups)
        if isolated:
            capabilities.limit_bounding_set(who.capabilities)
        _set_groups(groups, group)
        os.setresgid(group, group, group)
        os.setresuid(who.user, who.user, who.user)
        if isolated:
            # A user other than root has no effective ones, whatever was added: Kubernetes has no ambient capabilities.
            mask = who.capabilities if who.user == 0 else 0
            capabilities.set_own(mask, mask)


def _set_groups(groups: tuple[int, ...], own: int) -> None:
    """A user namespace may forbid setgroups (user_namespaces(7)): the groups of who made it stay, no others are had."""
    try:
        os.setgroups(groups)
    except PermissionError:
        if set(groups) - {own, *os.getgroups()}:
            reason = "this user namespace forbids setgroups: remove supplementalGroups and fsGroup, or run as real root"
            raise StartError(NOT_STARTED, START_ERROR, reason) from None


def install_seccomp(plan: LaunchPlan) -> None:
    seccomp.install(binascii.a2b_base64(plan.seccomp))


@functools.cache
def ignored_signals() -> tuple[int, ...]:
    """Of this process: Python ignores SIGPIPE, and the program that started it perhaps more. Later, none is."""
    every = set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP}
    return tuple(number for number in sorted(every) if signal.getsignal(number) == signal.SIG_IGN)


def _reset_signals(ignored: tuple[int, ...]) -> None:
    """Nothing ignored or blocked may be inherited."""
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _note(notes: socket.socket, content: dict[str, Any]) -> None:
    try:
        notes.send(json.dumps(content).encode()[:60_000], socket.MSG_NOSIGNAL)
    except OSError:
        pass  # the supervisor is gone
