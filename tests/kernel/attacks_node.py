"""What a program in a container tries against its node, on a real kernel: each attack says how often it got further.

`attacked` makes an embedded runtime of its own and returns counts, for tests and for `./dev prove attack`; it runs on
this machine and in a guest with cgroup v2. `undefended` runs one attack without the protection that holds it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from plimsoll.runtime.interface import ContainerMount, Security
from tests.kernel.embedded_runtime import SLEEP, Cgroups, Pod, a_pod, a_runtime, folder

PIDS_MAX = 64
LOG_MAX_BYTES, LOG_MAX_FILES = 1 << 20, 3
SECRET = "a secret of this node"
NEIGHBOUR = "the neighbour"  # a word of its command line

# Helpers of the programs that run in containers, on the standard library alone.
PRELUDE = """
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def broke(*words): print("BROKE", *words, flush=True)
def can_write(path):
    try: os.close(os.open(path, os.O_WRONLY)); return True
    except OSError: return False
def can_read(path):
    try:
        with open(path, "rb") as file: return file.read(1) != b""
    except OSError: return False
def wait_for(child):
    if os.waitpid(child, 0)[1] != 0: sys.exit("a child of the attack has failed")
"""
# What each prints at its end: a program that ends before it, or whose output is lost, has not tried everything.
DONE = "all tried"

LIMITS = """
NEWNS, NEWCGROUP, NEWUSER = 0x20000, 0x02000000, 0x10000000
os.makedirs("/tmp/m", exist_ok=True)
for flags in (0, NEWNS, NEWCGROUP, NEWUSER, NEWUSER | NEWNS | NEWCGROUP):
    child = os.fork()
    if child == 0:
        if flags and libc.unshare(flags) == 0 and not flags & NEWUSER: broke("unshared", hex(flags))
        for kind, options in ((b"cgroup2", None), (b"cgroup", b"memory"), (b"cgroup", b"pids"), (b"tmpfs", None)):
            if libc.mount(b"x", b"/tmp/m", kind, 0, options) == 0 and kind != b"tmpfs": broke("mounted", kind, hex(flags))
        for top, folders, files in os.walk("/sys/fs/cgroup"):
            for name in files:
                if can_write(os.path.join(top, name)): broke("cgroup file", top, name, hex(flags))
        os._exit(0)
    wait_for(child)
"""

KEYS = """
for path in given["files"]:
    for way in (path, "/proc/1/root" + path, "/proc/self/cwd/../../../.." + path):
        if can_read(way): broke("read", way)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and can_read(f"/proc/{entry}/root{path}"): broke("read through", entry)
for entry in os.listdir("/proc/self/fd"):
    try: target = os.readlink("/proc/self/fd/" + entry)
    except OSError: continue
    if target.startswith("/") and not target.startswith(("/dev/", "/proc/")): broke("inherited", target)
"""

KEYRINGS = """
KEYCTL_DESCRIBE, KEYCTL_READ, KEYCTL_GET_KEYRING_ID, SESSION, USER = 6, 11, 0, -3, -4
for number in (248, 249, 250):  # add_key, request_key, keyctl on x86-64
    ctypes.set_errno(0)
    if number == 250:
        for ring in (SESSION, USER):
            if libc.syscall(number, KEYCTL_GET_KEYRING_ID, ring, 1) >= 0: broke("keyring", ring)
    elif libc.syscall(number, b"user", b"plimsoll", b"x", 1, SESSION) >= 0: broke("key", number)
if os.path.exists("/proc/keys") and can_read("/proc/keys"): broke("read", "/proc/keys")
"""

SOCKETS = """
for path in given["sockets"]:
    with socket.socket(socket.AF_UNIX) as tried:
        try: tried.connect(path); broke("connected", repr(path))
        except OSError: pass
with open("/proc/net/unix") as file:
    for line in file.read().splitlines()[1:]: broke("sees", line)
"""

WRITES = """
for path in (
    "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches",
    "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger", "/proc/1/oom_score_adj_", "/proc/bus/pci", "/dev/kmsg",
    "/dev/mem", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/kernel/uevent_helper",
):
    if can_write(path): broke("opened", path)
for number, name in ((169, "reboot"), (170, "sethostname"), (175, "init_module"), (321, "bpf"), (101, "ptrace of 1")):
    ctypes.set_errno(0)
    arguments = (16, 1, 0, 0) if number == 101 else (0, 0, 0, 0)
    if libc.syscall(number, *arguments) == 0 and (number != 101 or os.getpid() != 1): broke("call", name)
"""

SETUID = """
try: os.setuid(0); broke("setuid")
except OSError: pass
child = os.fork()
if child == 0: os.execv("/volume/setuid", ["/volume/setuid", "-u"])
wait_for(child)
"""

NEIGHBOURS = """
for entry in os.listdir("/proc"):
    if entry.isdigit() and int(entry) not in (1, os.getpid()):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file: words = file.read()
        except OSError: continue  # it has ended
        if given["mark"].encode() in words: broke("sees", words)
for pid in range(2, 3000):
    if pid != os.getpid() and libc.ptrace(16, pid, 0, 0) == 0: broke("traced", pid)
    if pid != os.getpid():
        try: os.kill(pid, 0); broke("may signal", pid)
        except OSError: pass
"""

BOMB = """
import signal, time
children = []
try:
    for number in range(1000):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        children.append(child)
except OSError: pass
print("processes", len(children) + 1, flush=True)
for child in children: os.kill(child, signal.SIGKILL)
"""

Attack = Callable[[Pod, Path, "Allowed"], Awaitable[list[str]]]


class Allowed(msgspec.Struct, frozen=True):
    """What the container may do; as any container, unless a test says otherwise."""

    security: Security = Security()
    mounts: tuple[ContainerMount, ...] = ()
    pids_max: int = PIDS_MAX


FLOOD = 'i=0; while [ $i -lt 160 ]; do head -c 65536 /dev/zero | tr "\\\\0" x; i=$((i+1)); done; echo; echo end'
FLOOD_END = b" stdout F end\n"


async def attacked(directory: Path) -> dict[str, int]:
    """Attacks, and those that got further than they may: none."""
    cgroups = Cgroups()
    counts: dict[str, int] = {"attacks": 0, "broken": 0}
    limits = {"log_max_bytes": LOG_MAX_BYTES, "log_max_files": LOG_MAX_FILES}
    try:
        async with (
            a_runtime(directory / "state", cgroups, **limits) as runtime,
            a_pod(runtime, cgroups, directory / "logs") as pod,
        ):
            assert runtime.isolation, runtime.limitations
            for attack in ATTACKS:
                # Kubernetes lets a process gain privileges unless `allowPrivilegeEscalation: false` is set.
                forbidden = Security(no_new_privileges=attack is setuid_programs)
                found = await attack(pod, directory, Allowed(forbidden))
                counts["attacks"] += 1
                counts["broken"] += len(found)
                print(f"{attack.__name__:24}{found or 'held'}", flush=True)
    finally:
        cgroups.remove()
    return counts


async def undefended(attack: Attack, directory: Path) -> list[str]:
    """What the attack gets where the container is allowed what would stop it. Nothing else is changed by it."""
    cgroups, pod_options, log_max_bytes, allowed = Cgroups(), {}, LOG_MAX_BYTES, Allowed()
    if attack in (escape_of_limits, keyrings, writes_to_the_kernel):
        allowed = Allowed(Security(privileged=True, seccomp="Unconfined", no_new_privileges=False))
    elif attack is setuid_programs:
        allowed = Allowed(Security(seccomp="Unconfined", no_new_privileges=False))
    elif attack is keys_of_the_host:
        # The runtime's own state stays hidden even so.
        allowed = Allowed(mounts=(ContainerMount("/etc/shadow", "/etc/shadow", read_only=True),))
    elif attack is sockets_of_the_host:
        pod_options = {"host_network": True}
    elif attack is neighbours:
        pod_options = {"share_process_namespace": True}
    elif attack is a_fork_bomb:
        allowed = Allowed(pids_max=3 * PIDS_MAX)
    elif attack is a_full_log:
        log_max_bytes = 16 * LOG_MAX_BYTES
    limits = {"log_max_bytes": log_max_bytes, "log_max_files": LOG_MAX_FILES}
    try:
        async with (
            a_runtime(directory / "state", cgroups, **limits) as runtime,
            a_pod(runtime, cgroups, directory / "logs", **pod_options) as pod,
        ):
            return await attack(pod, directory, allowed)
    finally:
        cgroups.remove()


def main(seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-attack-") as directory:
        return asyncio.run(attacked(Path(directory)))


async def said_by(pod: Pod, code: str, given: object = None, **others: object) -> list[str]:
    """The lines of a program that has run to its end."""
    program = f"{PRELUDE}given = json.loads({json.dumps(json.dumps(given))})\n{code}\nprint({DONE!r}, flush=True)"
    lines = (await pod.python(program, **others)).splitlines()
    assert DONE in lines, f"the attack has not run to its end: {lines}"
    return lines


async def _tried(pod: Pod, allowed: Allowed, code: str, given: object = None) -> list[str]:
    lines = await said_by(pod, code, given, security=allowed.security, mounts=allowed.mounts)
    return [line for line in lines if line.startswith("BROKE")]


async def escape_of_limits(pod: Pod, directory: Path, allowed: Allowed) -> list[str]:
    return await _tried(pod, allowed, LIMITS)


async def keys_of_the_host(pod: Pod, directory: Path, allowed: Allowed) -> list[str]:
    (directory / "state" / "node.key").write_text(SECRET)
    files = [str(path) for path in (directory / "state").rglob("*") if path.is_file() and "view-" not in str(path)]
    return await _tried(pod, allowed, KEYS, {"files": [*files, "/etc/shadow", "/root/.bashrc"]})


async def keyrings(pod: Pod, directory: Path, allowed: Allowed) -> list[str]:
    return await _tried(pod, allowed, KEYRINGS) if os.uname().machine == "x86_64" else []


async def sockets_of_the_host(pod: Pod, directory: Path, allowed: Allowed) -> list[str]:
    with socket.socket(socket.AF_UNIX) as abstract:
        name = f"\0plimsoll-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        return await _tried(pod, allowed, SOCKETS, {"sockets": [name, str(directory / "state" / "socket")]})


async def writes_to_the_kernel(pod: Pod, directory: Path, allowed: Allowed) -> list[str]:
    return await _tried(pod, allowed, WRITES)


async def setuid_programs(pod: Pod, directory: Path, allowed: Allowed) -> list[str]:
    program = shutil.which("id")
    assert program is not None
    volume = folder(directory / "volume")
    shutil.copy(program, volume / "setuid")
    os.chmod(volume / "setuid", 0o4755)
    mounts = (ContainerMount(str(volume), "/volume"),)
    security = msgspec.structs.replace(allowed.security, user=1000, group=1000)
    lines = await said_by(pod, SETUID, mounts=mounts, security=security)
    return [line for line in lines if line.startswith("BROKE") or line.strip() == "0"]


async def neighbours(pod: Pod, directory: Path, allowed: Allowed) -> list[str]:
    neighbour = await pod.start(*SLEEP, NEIGHBOUR)
    await pod.says(neighbour, "ready")
    found = await _tried(pod, allowed, NEIGHBOURS, {"mark": NEIGHBOUR})
    assert (await pod.seen(neighbour)).phase == "running"  # else there was no neighbour to be seen
    return found


async def a_fork_bomb(pod: Pod, directory: Path, allowed: Allowed) -> list[str]:
    """Held by pids.max, which the agent sets from podPidsLimit."""
    if not _limit_pids(pod.cgroups, "bomb", allowed.pids_max):
        return []  # no pids controller here
    lines = await said_by(pod, BOMB, name="bomb")
    (count,) = (int(line.split()[1]) for line in lines if line.startswith("processes "))
    return [] if count <= PIDS_MAX else [f"{count} processes"]


def _limit_pids(cgroups: Cgroups, name: str, most: int) -> bool:
    limited = False
    for root in cgroups.roots:
        place = Path(root, cgroups.name, name)
        place.mkdir(parents=True, exist_ok=True)
        for above in (Path(root), place.parent):
            control = above / "cgroup.subtree_control"
            if control.exists() and "pids" in (above / "cgroup.controllers").read_text().split():
                control.write_text("+pids")
        if (place / "pids.max").exists():
            (place / "pids.max").write_text(str(most))
            limited = int((place / "pids.max").read_text()) == most
    return limited


async def a_full_log(pod: Pod, directory: Path, allowed: Allowed) -> list[str]:
    """Ten times the limit of a file: the logs stay within their limits, and other containers are not kept waiting."""
    container = await pod.start("/bin/sh", "-c", FLOOD, name="flood")
    assert await pod.output("echo fine") == "fine\n"
    done = await pod.ended(container)
    logs = [path.read_bytes() for path in (directory / "logs" / "flood").iterdir()]
    assert done.exit_code == 0 and any(log.endswith(FLOOD_END) for log in logs), "the flood has not run to its end"
    size = sum(map(len, logs))
    most = LOG_MAX_BYTES * (LOG_MAX_FILES + 1)
    return [] if size <= most else [f"{size} bytes of logs"]


ATTACKS: tuple[Attack, ...] = (
    escape_of_limits,
    keys_of_the_host,
    keyrings,
    sockets_of_the_host,
    writes_to_the_kernel,
    setuid_programs,
    neighbours,
    a_fork_bomb,
    a_full_log,
)
