"""What a container of the embedded runtime may see and do, on every kernel; `runtime_checks` has the list of all."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import pytest

from plimsoll.linux.capabilities import CONTAINERD_DEFAULT, NUMBERS, has_capability, mask
from plimsoll.linux.nice import NICE, autogroup_nice
from plimsoll.runtime.interface import ContainerMount, RuntimeCallError, Security
from plimsoll.runtime.supervisor.containers import OOM_HAVE, OOM_WANTED
from tests.kernel.embedded_runtime import (
    PYTHON,
    SLEEP,
    WITH_PYTHON,
    Pod,
    exists,
    folder,
    host_mounts,
    read,
)


async def namespaces_are_its_own(pod: Pod) -> None:
    one, other = [await pod.seen(await pod.start(*SLEEP)) for _ in range(2)]
    for kind, shared in (("net", True), ("ipc", True), ("uts", True), ("pid", False), ("mnt", False)):
        links = [os.readlink(f"/proc/{pid}/ns/{kind}") for pid in (one.pid, other.pid)]
        assert (links[0] == links[1]) is shared, kind
        assert os.readlink(f"/proc/self/ns/{kind}") not in links, kind
    said = await pod.output(
        "hostname; ls /proc | grep -c '^[0-9]*$'; cat /sys/class/net/lo/operstate; ls /sys/class/net"
    )
    name, processes, state, *links = said.split()
    assert (name, state, links) == ("a-pod", "unknown", ["lo"])  # loopback's state is never "up"
    assert 1 <= int(processes) <= 4  # the shell, ls, grep and one that is just beginning: none of the host's


async def shared_memory_is_the_pods(pod: Pod) -> None:
    await pod.output("echo from one > /dev/shm/note")
    assert await pod.output("cat /dev/shm/note") == "from one\n"
    assert not exists("/dev/shm/note")


async def session_keyring_is_its_own(pod: Pod) -> None:
    """Keys of the supervisor's session, or of a neighbour's, are not reachable, also without a seccomp filter."""
    code = (
        "import ctypes, platform; "
        "number = {'x86_64': 250, 'aarch64': 219}[platform.machine()]; "
        "print(ctypes.CDLL(None).syscall(number, 0, -3, 0))"  # KEYCTL_GET_KEYRING_ID of the session's
    )
    unconfined = Security(seccomp="Unconfined")
    ids = [int(await pod.python(code, security=unconfined)) for _ in range(2)]
    ours = int(subprocess.run([PYTHON, "-c", code], check=True, capture_output=True).stdout)  # noqa: ASYNC221
    if ours < 0:
        pytest.skip("this kernel has no keyrings")
    assert len({ours, *ids}) == 3 and min(ids) > 0


async def nothing_is_mounted_on_the_host(pod: Pod) -> None:
    before = host_mounts(pod.runtime._state.parent)
    container = await pod.start(*SLEEP, mounts=(ContainerMount("/usr", "/data/usr", True),))
    assert host_mounts(pod.runtime._state.parent) == before
    await pod.runtime.remove_container(container)
    assert host_mounts(pod.runtime._state.parent) == before


async def capabilities_are_as_declared(pod: Pod) -> None:
    default = mask(CONTAINERD_DEFAULT)
    show = "grep -E '^(CapEff|CapBnd|CapInh|CapAmb|NoNewPrivs)' /proc/self/status"
    for security, effective, bounding in (
        (Security(), default, default),
        (Security(drop_capabilities=("ALL",)), 0, 0),
        (Security(drop_capabilities=("ALL",), add_capabilities=("NET_BIND_SERVICE",)), 1 << 10, 1 << 10),
        (Security(add_capabilities=("NET_ADMIN",)), default | 1 << 12, default | 1 << 12),
        (Security(drop_capabilities=("CAP_CHOWN",)), default & ~1, default & ~1),
        (Security(user=1000, group=1001, groups=(7, 9)), 0, default),
    ):
        said = dict(line.split(":\t") for line in (await pod.output(show, security=security)).splitlines())
        assert int(said["CapEff"], 16) == effective, security
        assert int(said["CapBnd"], 16) == bounding, security
        assert (int(said["CapInh"], 16), int(said["CapAmb"], 16), said["NoNewPrivs"]) == (0, 0, "0"), security
    assert (await pod.output("id -u; id -g; id -G", security=security)).split() == ["1000", "1001", "1001", "7", "9"]
    with pytest.raises(RuntimeCallError, match="FLY"):
        await pod.start("true", security=Security(add_capabilities=("FLY",)))
    assert NUMBERS["NET_BIND_SERVICE"] == 10


async def the_oom_score_is_set_before_it_runs(pod: Pod) -> None:
    assert await pod.output("cat /proc/self/oom_score_adj", oom_score_adj=731) == "731\n"
    container = await pod.start(*SLEEP, oom_score_adj=-500)
    seen = await pod.seen(container)
    have = int(read(f"/proc/{seen.pid}/oom_score_adj"))
    if have != -500:  # without CAP_SYS_RESOURCE: reported, not failed
        assert (seen.annotations[OOM_WANTED], seen.annotations[OOM_HAVE]) == ("-500", str(have))


async def it_goes_like_others(pod: Pod) -> None:
    """Whatever priority the supervisor itself has."""
    assert await pod.output("nice") == "0\n"
    container = await pod.start(*SLEEP)
    session = await pod.runtime.exec(container, ("nice",), stdin=False, tty=False)
    assert b"".join([data async for data in session.stdout()]) == b"0\n"
    await session.close()
    supervisor = int(read(f"/proc/{(await pod.seen(container)).pid}/stat").rpartition(")")[2].split()[1])
    may = has_capability("SYS_NICE")
    assert os.getpriority(os.PRIO_PROCESS, supervisor) == (NICE if may else 0)
    if exists("/proc/self/autogroup"):  # by sessions, where this kernel groups them
        groups = [autogroup_nice(pid) for pid in (supervisor, (await pod.seen(container)).pid)]
        assert groups == [NICE if may else 0, 0]


async def secrets_are_hidden(pod: Pod) -> None:
    for path in ("/root", "/home", "/run", "/tmp", "/var/lib", "/boot", "/etc/ssh", "/var/log", "/opt", "/srv", "/mnt"):
        assert await pod.output(f"ls -A {path} 2>/dev/null || true") == "", path
    assert await pod.output("cat /etc/shadow /etc/shadow- 2>/dev/null | wc -c") == "0\n"
    state = pod.runtime._state
    assert exists(state / "journal")
    script = f"test ! -e {state}/journal && test ! -e {state}/socket && echo hidden"
    assert await pod.output(script) == "hidden\n"
    through = ContainerMount(str(state.parent), "/outside")
    assert await pod.output("ls -A /outside/$0 || true".replace("$0", state.name), mounts=(through,)) == ""


# Of the host's root and /etc; what else there is on the machine, or is added later, must not appear.
ALLOWED_TOP = {
    "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt", "proc", "root", "run",
    "sbin", "srv", "sys", "tmp", "usr", "var",
}  # fmt: skip
PRIVATE_ETC = {
    "apt", "containerd", "cron.d", "environment", "fstab", "gitconfig", "gshadow", "hosts.allow", "kubernetes",
    "machine-id", "npmrc", "pam.d", "pip.conf", "rancher", "shadow", "ssh", "subuid", "sudoers", "systemd", "wireguard",
}  # fmt: skip


async def only_an_allow_list_is_seen(pod: Pod) -> None:
    """Programs, libraries and chosen files of /etc; nothing that is made on the host meanwhile."""
    assert set((await pod.output("ls -A /")).split()) <= ALLOWED_TOP
    seen = set((await pod.output("ls -A /etc")).split())
    assert not seen & PRIVATE_ETC and {"passwd", "group", "nsswitch.conf"} <= seen
    places = [writable(f"{top}/{pod.cgroups.name}") for top in ("/etc", "/opt", "/srv", "/var")]
    container = await pod.start(*SLEEP)
    try:
        for place in places:
            (folder(place) / "key").write_text("secret")
        session = await pod.runtime.exec(container, ("ls", *map(str, places)), stdin=False, tty=False)
        assert b"".join([data async for data in session.stdout()]) == b""
        await session.close()
        assert await pod.output(f"cat {' '.join(f'{place}/key' for place in places)} 2>/dev/null || true") == ""
    finally:
        for place in places:
            (place / "key").unlink(missing_ok=True)
            place.rmdir()


def writable(path: str) -> Path:
    """The path, or below /opt one of that name where its directory cannot be written in this guest."""
    return Path(path) if os.access(os.path.dirname(path), os.W_OK) else Path("/opt", path.strip("/").replace("/", "-"))


async def host_sockets_can_not_be_reached(pod: Pod) -> None:
    """Where programs are seen, also one that is made after the container."""
    place = folder(writable(f"/usr/local/{pod.cgroups.name}"))
    code = (
        "import socket, sys\n"
        f"path = '{place}/socket'\n"
        "for n in range(2):\n"
        "    sys.stdin.readline()\n"
        "    try:\n"
        "        socket.socket(socket.AF_UNIX).connect(path); print('reached')\n"
        "    except OSError as error: print(error.strerror)\n"
        "    sys.stdout.flush()\n"
    )
    try:
        container = await pod.start(*SLEEP, image_ref=WITH_PYTHON)
        session = await pod.runtime.exec(container, (PYTHON, "-I", "-S", "-c", code), stdin=True, tty=False)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{place}/socket")
            listening.listen()
            with socket.socket(socket.AF_UNIX) as reaching:
                reaching.connect(f"{place}/socket")
            await session.write(b"go\ngo\n")
            said = b"".join([data async for data in session.stdout()])
        assert b"reached" not in said and said.count(b"refused") + said.count(b"No such") == 2, said
        await session.close()
    finally:
        os.unlink(f"{place}/socket")
        os.rmdir(place)


async def no_device_can_be_made_and_used(pod: Pod) -> None:
    code = (
        "import os, stat\n"
        "for place in ('/', '/tmp', '/dev', '/run', '/root', '/dev/shm', '/volume'):\n"
        "    path = place + '/device'\n"
        "    try:\n"
        "        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))\n"
        "        os.read(os.open(path, os.O_RDONLY), 1); print('read', path)\n"
        "    except OSError as error: pass\n"
        "print(len(os.read(os.open('/dev/zero', os.O_RDONLY), 8)), *os.listdir('/dev'))\n"
    )
    volume = folder(pod.runtime._state.parent / "volume")
    said = await pod.python(code, mounts=(ContainerMount(str(volume), "/volume"),))
    names = {"fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"}
    assert "read" not in said
    assert said.startswith("8 ") and set(said[2:].split()) - {"device"} == names | {"urandom", "zero"}, said


async def nothing_of_the_machine_can_be_written(pod: Pod) -> None:
    script = """
    for file in /proc/sys/kernel/hostname /proc/sysrq-trigger /proc/sys/vm/overcommit_memory /sys/power/state \
            /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
        if (echo 1 > $file) 2>/dev/null; then echo wrote $file; fi
    done
    mount -t tmpfs x /mnt 2>/dev/null && echo mounted
    umount /proc/sys 2>/dev/null && echo unmounted
    mkdir /sys/fs/cgroup/x 2>/dev/null && echo made
    echo done
    """
    assert await pod.output(script) == "done\n"


async def the_root_is_private_and_writable(pod: Pod) -> None:
    assert await pod.output("echo x > /usr/plimsoll-test; cat /usr/plimsoll-test; rm -r /etc/passwd") == "x\n"
    assert not exists("/usr/plimsoll-test") and exists("/etc/passwd")
    assert await pod.output("test -e /etc/passwd && test ! -e /usr/plimsoll-test && echo fresh") == "fresh\n"


async def a_read_only_root(pod: Pod) -> None:
    volume = folder(pod.runtime._state.parent / "scratch")
    script = "for d in / /tmp /usr /root /run; do (echo x > $d/x) 2>/dev/null && echo wrote $d; done; echo y > /v/y; echo done"
    mounts = (ContainerMount(str(volume), "/v"), ContainerMount("/usr", "/new/place", True))
    security = Security(read_only_root=True)
    assert await pod.output(script, mounts=mounts, security=security) == "done\n"
    assert (volume / "y").read_text() == "y\n"
    assert (await pod.output("(echo x > /new/place/x) 2>&1 | tail -c 22", mounts=mounts)).endswith("only file system\n")


async def a_directory_is_a_root(pod: Pod) -> None:
    """A hostile one: its links must not lead out of it."""
    root = pod.runtime._state.parent / "an,image:root"
    for name in ("bin", "lib", "lib64", "usr", "etc"):
        (root / name).mkdir(parents=True)
    (root / "data").symlink_to("/etc")
    (root / "up").symlink_to("../../../../../../etc")
    (root / "proc").symlink_to("/etc")
    volume = folder(pod.runtime._state.parent / "of-pod")
    (volume / "file").write_text("mine\n")
    before = sorted(os.listdir("/etc"))
    mounts = (
        *(ContainerMount(path, path, True) for path in ("/usr", "/lib", "/lib64", "/bin") if exists(path)),
        ContainerMount(str(volume), "/data/volume"),
        ContainerMount(str(volume), "/up/volume"),
    )
    with pytest.raises(RuntimeCallError):  # /proc is a link in it: nothing of ours is mounted where it leads
        await pod.start("/bin/true", image_ref=f"dir:'{root}'", mounts=mounts)
    (root / "proc").unlink()
    script = "ls /etc; cat /data/volume/file; echo new > /made; ls /"
    said = await pod.output(script, image_ref=f"dir:'{root}'", mounts=mounts)
    assert said.startswith("volume\nmine\n") and "made" in said, said
    assert sorted(os.listdir("/etc")) == before
    assert sorted(path.name for path in root.iterdir()) == ["bin", "data", "etc", "lib", "lib64", "up", "usr"]


CHECKS = [
    value
    for name, value in list(globals().items())
    if asyncio.iscoroutinefunction(value) and value.__module__ == __name__ and not name.startswith("_")
]
