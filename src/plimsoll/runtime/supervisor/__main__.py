"""`python -m plimsoll.runtime.supervisor --state DIR --socket PATH`: become the supervisor of one state directory.

It leaves whoever started it (a session of its own, a child of init) and says nothing more; one per state directory,
which a lock keeps true. SIGTERM ends all containers and then the supervisor.
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
_CLOSE_RANGE, _CLOSE_RANGE_CLOEXEC = 436, 4


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
    keep_nothing_open(directory, lock)
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
    found = detect_abilities(os.path.join(state, "stage"))
    if found.isolation:
        namespaces.set_dumpable(False)  # a child is our copy until it execs; nobody in a pod may look into it
    settings = Settings(
        state,
        found.isolation,
        found.overlay,
        found.limitations,
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
    gc.freeze()  # what is here by now lives as long as we do, and a child need not copy its pages to look at it
    lock_memory()
    raise_priority()
    supervisor.loop.run()
    os.unlink(socket_path)
    return 0


def parsed(arguments: list[str]) -> dict[str, list[str]]:
    """`--name value` and `--name=value`, each as often as it comes; `--foreground` has none. (argparse costs 1 MiB.)"""
    found: dict[str, list[str]] = {}
    words = iter(arguments)
    for word in words:
        name, given, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            sys.exit(f"runtime-host: {word!r} is no option")
        if not given and name != "foreground":
            value = next(words, "")
        found.setdefault(name, []).append(value)
    for needed in ("state", "socket"):
        if not found.get(needed, [""])[-1]:
            sys.exit(f"runtime-host: --{needed} is missing")
    return found


def listen(path: str) -> socket.socket:
    """Through its directory's fd, as a path in an address is at most 107 bytes; the lock says any old one is dead."""
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = os.path.basename(path)
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listening.bind(f"/proc/self/fd/{folder}/{name}")  # umask 077: born 0700, for nobody else at any time
        os.chmod(name, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    listening.listen(16)
    return listening


def raise_file_limit() -> tuple[int, int]:
    """As many files as we may have, for pipes and namespaces; containers get back what we were given."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def enter_cgroup(directory: int) -> None:
    fd = os.open("cgroup.procs", os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def keep_nothing_open(*ours: int) -> None:
    """Descriptors that somebody has left to us are closed, so that no container can inherit one."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in ours:
            try:
                os.close(fd)
            except OSError:
                pass  # the listing's own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
