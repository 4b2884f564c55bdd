"""`python -m plimsoll.runtime.supervisor --state DIR --socket PATH`: become the supervisor of one state directory.

It detaches from its caller (a session of its own, a child of init) and prints nothing more. A lock ensures that
there is one per state directory. SIGTERM ends all containers and then the supervisor.
"""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import socket
import sys

from plimsoll.linux import namespaces
from plimsoll.linux.mlock import lock_memory
from plimsoll.linux.nice import raise_priority
from plimsoll.runtime.supervisor.child import set_oom_score
from plimsoll.runtime.supervisor.journal import SupervisorJournal
from plimsoll.runtime.supervisor.settings import Settings, detect_abilities
from plimsoll.runtime.supervisor.supervisor import Supervisor

ALREADY_THERE = 3


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    state = os.path.realpath(options["state"][-1])
    socket_path = options["socket"][-1]
    directory = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ALREADY_THERE
    if "foreground" not in options and os.fork():
        return 0
    os.setsid() if "foreground" not in options else None
    for number in options.get("cgroup-fd", []):
        enter_cgroup(int(number))
    close_inherited_fds(directory, lock)
    files = raise_file_limit()
    set_oom_score(-999)
    namespaces.become_subreaper()
    namespaces.name_process("plimsoll-host")
    os.umask(0o077)
    os.chdir("/")
    try:
        os.mkdir("stage", 0o700, dir_fd=directory)
    except FileExistsError:
        pass
    abilities = detect_abilities(os.path.join(state, "stage"))
    if abilities.isolation:
        namespaces.set_dumpable(False)  # until exec a child is a copy of us, which no process of a pod may read
    settings = Settings(
        state,
        abilities.isolation,
        abilities.overlay,
        abilities.limitations,
        tuple(dict.fromkeys([state, *options.get("hide", [])])),
        int(options.get("log-max-bytes", ["10485760"])[-1]),
        int(options.get("log-max-files", ["5"])[-1]),
        os.path.exists("/sys/fs/cgroup/cgroup.controllers"),
        files,
    )
    supervisor = Supervisor(settings, SupervisorJournal(directory))
    listening = listen(socket_path)
    supervisor.begin(listening)
    gc.collect()
    gc.freeze()  # these objects live until the end; a child does not copy their pages
    lock_memory()
    raise_priority()
    supervisor.loop.run()
    os.unlink(socket_path)
    return 0


def parsed(arguments: list[str]) -> dict[str, list[str]]:
    """`--name value` and `--name=value`, repeatable; `--foreground` has no value. (argparse costs 1 MiB.)"""
    options: dict[str, list[str]] = {}
    words = iter(arguments)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            sys.exit(f"runtime-host: {word!r} is no option")
        if not equals and name != "foreground":
            value = next(words, "")
        options.setdefault(name, []).append(value)
    for needed in ("state", "socket"):
        if not options.get(needed, [""])[-1]:
            sys.exit(f"runtime-host: --{needed} is missing")
    return options


def listen(path: str) -> socket.socket:
    """Through the directory's fd, as an address holds at most 107 bytes. We have the lock: an old socket is stale."""
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = os.path.basename(path)
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listening.bind(f"/proc/self/fd/{folder}/{name}")  # umask 077: created 0700, closed to others from the start
        os.chmod(name, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    listening.listen(16)
    return listening


def raise_file_limit() -> tuple[int, int]:
    """The hard limit, for pipes and namespaces; containers get the limits that we were started with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def enter_cgroup(directory: int) -> None:
    fd = os.open("cgroup.procs", os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def close_inherited_fds(*ours: int) -> None:
    """Close inherited descriptors, so that no container can inherit one."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in ours:
            try:
                os.close(fd)
            except OSError:
                pass  # the listing's own descriptor


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
