"""What the embedded runtime must do on every kernel, as functions that get a pod.

test_host_runtime.py runs them on this machine, in_guest/test_runtime.py in a guest with cgroup v2.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from plimsoll.linux.capabilities import CONTAINERD_DEFAULT, NUMBERS, has_capability, mask
from plimsoll.linux.nice import NICE, autogroup_nice
from plimsoll.runtime.interface import ContainerMount, RuntimeCallError, Security
from plimsoll.runtime.supervisor.containers import OOM_HAVE, OOM_WANTED
from tests.kernel.embedded_runtime import (
    DEADLINE_S,
    PYTHON,
    WITH_PYTHON,
    Pod,
    alive,
    eventually,
    exists,
    folder,
    gone,
    host_mounts,
    read,
)

SLEEP = ("/bin/sh", "-c", 'trap "exit 0" TERM; sleep 1000 & echo ready; wait')


async def exit_codes_and_both_streams(pod: Pod) -> None:
    container = await pod.start("/bin/sh", "-c", "echo out; echo err >&2; printf unfinished; exit 7")
    done = await pod.ended(container)
    assert (done.exit_code, done.reason, done.pid) == (7, "", 0)
    assert 0 < done.created_s <= done.started_s <= done.finished_s
    lines = read(done.log_file).splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"
    assert len(lines) == 3
    for text in ("stdout F out", "stderr F err", "stdout P unfinished"):
        assert any(re.fullmatch(f"{stamp} {text}", line) for line in lines), lines


async def killed_by_a_signal(pod: Pod) -> None:
    """PID 1 can't be killed from inside its own namespace, so the shell lets a child die and tells."""
    container = await pod.start("/bin/sh", "-c", "sh -c 'kill -SEGV $$'; exit $?")
    assert (await pod.ended(container)).exit_code == 139


async def term_is_heard_by_who_listens(pod: Pod) -> None:
    container = await pod.start("/bin/sh", "-c", 'trap "echo bye; exit 3" TERM; echo ready; sleep 1000 & wait')
    await pod.says(container, "ready")
    await pod.runtime.stop_container(container, DEADLINE_S)
    assert (await pod.seen(container)).exit_code == 3
    assert "bye" in await pod.said(container)


async def pid_1_without_a_handler_is_killed_after_its_grace(pod: Pod) -> None:
    container = await pod.start("sleep", "1000")
    began = asyncio.get_running_loop().time()
    await pod.runtime.stop_container(container, 0.3)
    assert asyncio.get_running_loop().time() - began >= 0.3
    assert (await pod.seen(container)).exit_code == 137


async def a_shorter_grace_wins(pod: Pod) -> None:
    container = await pod.start("sleep", "1000")
    async with asyncio.TaskGroup() as both:
        both.create_task(pod.runtime.stop_container(container, DEADLINE_S * 2))
        both.create_task(pod.runtime.stop_container(container, 0.1))
    assert (await pod.seen(container)).exit_code == 137


async def everything_in_it_dies_with_pid_1(pod: Pod) -> None:
    container = await pod.start("/bin/sh", "-c", "setsid sleep 1000 & echo started; exec sleep 1000")
    await pod.says(container, "started")
    inside = set.union(*pod.cgroups.members((await pod.seen(container)).name))
    assert len(inside) == 2
    await pod.runtime.stop_container(container, 0)
    for pid in inside:
        assert not alive(pid)


async def it_never_runs_outside_its_cgroups(pod: Pod) -> None:
    container = await pod.start(*SLEEP)
    seen = await pod.seen(container)
    for members in pod.cgroups.members(seen.name):
        assert seen.pid in members
    own = read(f"/proc/{seen.pid}/cgroup")
    assert own.count(f"/{pod.cgroups.name}/{seen.name}\n") == len(pod.cgroups.roots)


async def exec_joins_cgroups_and_namespaces(pod: Pod) -> None:
    container = await pod.start(*SLEEP)
    seen = await pod.seen(container)
    session = await pod.runtime.attach(container, ("cat", "-"), stdin=True, tty=False)
    try:
        await session.write(b"there?")
        async for _ in session.stdout():
            break
        beside = pod.cgroups.members(seen.name)
        (cat,) = [pid for pid in set.union(*beside) if _command(pid) == b"cat\0-\0"]
        assert cat in set.intersection(*beside)
        for kind in ("pid", "mnt", "net", "ipc", "uts", "cgroup"):
            assert os.readlink(f"/proc/{cat}/ns/{kind}") == os.readlink(f"/proc/{seen.pid}/ns/{kind}"), kind
    finally:
        await session.close()
    await gone(cat)


async def streams_of_exec(pod: Pod) -> None:
    container = await pod.start(*SLEEP)
    session = await pod.runtime.attach(container, ("/bin/sh", "-c", "cat; echo end >&2; exit 9"), stdin=True, tty=False)
    sent = b"x" * 300_000

    async def read() -> bytes:
        return b"".join([data async for data in session.stdout()])

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as both:
        reading = both.create_task(read())
        await session.write(sent)
        await session.close_stdin()
    assert reading.result() == sent
    assert b"".join([data async for data in session.stderr()]) == b"end\n"
    assert await session.wait() == 9
    await session.close()
    await session.close()


async def a_terminal_of_exec(pod: Pod) -> None:
    container = await pod.start(*SLEEP)
    session = await pod.runtime.attach(container, ("/bin/sh",), stdin=True, tty=True)
    await session.resize(101, 37)
    await session.write(b"stty size; tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all-three; exit 5\n")
    async with asyncio.timeout(DEADLINE_S):
        said = b"".join([data async for data in session.stdout()])
        assert await session.wait() == 5
    assert b"37 101" in said and b"/dev/pts/" in said and b"\nall-three" in said, said
    assert [data async for data in session.stderr()] == []
    await session.close()


async def end_of_file_on_a_terminal(pod: Pod) -> None:
    container = await pod.start(*SLEEP)
    session = await pod.runtime.attach(container, ("cat",), stdin=True, tty=True)
    await session.write(b"line\n")
    await session.close_stdin()
    async with asyncio.timeout(DEADLINE_S):
        assert b"line" in b"".join([data async for data in session.stdout()])
        assert await session.wait() == 0
    await session.close()


async def probes(pod: Pod) -> None:
    container = await pod.start(*SLEEP)
    done = await pod.runtime.run_in(container, ("/bin/sh", "-c", "echo out; echo err >&2; exit 4"), DEADLINE_S)
    assert (done.exit_code, done.timed_out) == (4, False)
    assert sorted(done.output.splitlines()) == [b"err", b"out"]
    much = await pod.runtime.run_in(
        container, ("/bin/sh", "-c", "head -c 500000 /dev/zero"), DEADLINE_S, max_output_bytes=1000
    )
    assert (much.exit_code, much.output) == (0, bytes(1000))


async def a_probe_is_killed_with_its_session(pod: Pod) -> None:
    container = await pod.start(*SLEEP)
    await pod.says(container, "ready")
    name = (await pod.seen(container)).name
    before = set.union(*pod.cgroups.members(name))
    done = await pod.runtime.run_in(container, ("/bin/sh", "-c", "sleep 999 & sleep 998"), 0.3)
    assert (done.exit_code, done.timed_out) == (137, True)
    await eventually(lambda: set.union(*pod.cgroups.members(name)) == before)


async def a_program_that_is_not_there(pod: Pod) -> None:
    for command, code, words in (
        (("no-such-program",), 127, "executable file not found in $PATH"),
        (("/no/such/program",), 127, "no such file or directory"),
        (("/etc/passwd",), 126, "permission denied"),
        (("/usr",), 126, "permission denied"),
    ):
        container = await pod.make(*command)
        with pytest.raises(RuntimeCallError, match=re.escape(words)):
            await pod.runtime.start_container(container)
        done = await pod.seen(container)
        assert (done.phase, done.exit_code, done.reason) == ("exited", code, "ContainerCannotRun")
        assert words in done.message
    running = await pod.start(*SLEEP)
    with pytest.raises(RuntimeCallError, match="executable file not found"):
        await pod.runtime.run_in(running, ("no-such-program",), DEADLINE_S)
    with pytest.raises(RuntimeCallError, match="no such file or directory"):
        await pod.runtime.attach(running, ("/no/such/program",), stdin=True, tty=True)


async def two_containers_share_localhost(pod: Pod) -> None:
    server = await pod.make(name="server", image_ref=WITH_PYTHON)
    await pod.runtime.start_container(server)
    await pod.says(server, "listening on port 80")
    ask = "import socket; s = socket.create_connection(('127.0.0.1', 80)); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); "
    assert "200 OK" in await pod.python(ask + "print(s.recv(99999).decode())")
    connecting = await pod.runtime.pod_socket(pod.sandbox_id)
    assert connecting is not None
    with connecting:
        await asyncio.get_running_loop().sock_connect(connecting, ("127.0.0.1", 80))
    await pod.runtime.stop_container(server, DEADLINE_S)
    assert (await pod.seen(server)).exit_code == 0


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
        assert (int(said["CapInh"], 16), int(said["CapAmb"], 16), said["NoNewPrivs"]) == (0, 0, "1"), security
    assert (await pod.output("id -u; id -g; id -G", security=security)).split() == ["1000", "1001", "1001", "7", "9"]
    with pytest.raises(RuntimeCallError, match="FLY"):
        await pod.start("true", security=Security(add_capabilities=("FLY",)))
    assert NUMBERS["NET_BIND_SERVICE"] == 10


async def the_oom_score_is_set_before_it_runs(pod: Pod) -> None:
    assert await pod.output("cat /proc/self/oom_score_adj", oom_score_adj=731) == "731\n"
    container = await pod.start(*SLEEP, oom_score_adj=-500)
    seen = await pod.seen(container)
    have = int(read(f"/proc/{seen.pid}/oom_score_adj"))
    if have != -500:  # without CAP_SYS_RESOURCE: told, not failed
        assert (seen.annotations[OOM_WANTED], seen.annotations[OOM_HAVE]) == ("-500", str(have))


async def it_goes_like_others(pod: Pod) -> None:
    """Whatever turn the supervisor has itself."""
    assert await pod.output("nice") == "0\n"
    container = await pod.start(*SLEEP)
    session = await pod.runtime.attach(container, ("nice",), stdin=False, tty=False)
    assert b"".join([data async for data in session.stdout()]) == b"0\n"
    await session.close()
    supervisor = int(read(f"/proc/{(await pod.seen(container)).pid}/stat").rpartition(")")[2].split()[1])
    may = has_capability("SYS_NICE")
    assert os.getpriority(os.PRIO_PROCESS, supervisor) == (NICE if may else 0)
    if exists("/proc/self/autogroup"):  # by sessions, where this kernel groups them
        groups = [autogroup_nice(pid) for pid in (supervisor, (await pod.seen(container)).pid)]
        assert groups == [NICE if may else 0, 0]


async def secrets_are_hidden(pod: Pod) -> None:
    for path in ("/root", "/home", "/run", "/tmp", "/var/lib", "/boot", "/etc/ssh", "/var/log"):
        if exists(path):
            assert await pod.output(f"ls -A {path}") == "", path
    assert await pod.output("cat /etc/shadow /etc/shadow- 2>/dev/null | wc -c") == "0\n"
    state = pod.runtime._state
    assert exists(state / "journal")
    script = f"test ! -e {state}/journal && test ! -e {state}/socket && echo hidden"
    assert await pod.output(script) == "hidden\n"
    through = ContainerMount(str(state.parent), "/outside")
    assert await pod.output("ls -A /outside/$0 || true".replace("$0", state.name), mounts=(through,)) == ""


async def host_sockets_can_not_be_reached(pod: Pod) -> None:
    """Where nothing else is hidden, also one that is made after the container."""
    place = folder(f"/opt/{pod.cgroups.name}")
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
        session = await pod.runtime.attach(container, (PYTHON, "-I", "-S", "-c", code), stdin=True, tty=False)
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


async def environment_and_working_directory(pod: Pod) -> None:
    said = await pod.output(
        "pwd; echo $A:$HOSTNAME:$HOME; echo $PATH; env | wc -l",
        environment={"A": "a b\nc"},
        working_dir="/new/directory",
    )
    assert said.startswith("/new/directory\na b c:a-pod:/root\n/usr/local/sbin:/usr/local/bin:"), said


async def a_container_with_a_terminal(pod: Pod) -> None:
    container = await pod.start("/bin/sh", "-c", "tty; [ -t 0 ] && echo yes; exit 2", tty=True)
    assert (await pod.ended(container)).exit_code == 2
    assert (await pod.said(container)).split() == ["/dev/pts/0", "yes"]


async def stdin_of_a_container(pod: Pod) -> None:
    assert await pod.output("cat; echo at once") == "at once\n"  # /dev/null
    container = await pod.start("/bin/sh", "-c", "echo waiting; cat", stdin=True)
    await pod.says(container, "waiting")
    assert (await pod.seen(container)).phase == "running"


async def no_descriptor_is_inherited(pod: Pod) -> None:
    assert (await pod.output("ls /proc/self/fd")).split() == ["0", "1", "2", "3"]  # 3: the listing itself
    container = await pod.start(*SLEEP)
    done = await pod.runtime.run_in(container, ("ls", "/proc/self/fd"), DEADLINE_S)
    assert done.output.split() == [b"0", b"1", b"2", b"3"]


async def calls_can_be_repeated(pod: Pod) -> None:
    runtime = pod.runtime
    assert await runtime.make_sandbox(pod.spec) == pod.sandbox_id
    container = await pod.make(*SLEEP, name="same")
    assert await pod.make(*SLEEP, name="same") == container == runtime.container_id(pod.spec, "same", 0)
    async with asyncio.TaskGroup() as both:
        both.create_task(runtime.start_container(container))
        both.create_task(runtime.start_container(container))
    await runtime.start_container(container)
    pid = (await pod.seen(container)).pid
    await runtime.stop_container(container, 0)
    await runtime.stop_container(container, 5)
    with pytest.raises(RuntimeCallError, match="ended"):
        await runtime.start_container(container)
    await runtime.remove_container(container)
    await runtime.remove_container(container)
    await runtime.stop_container(container, 5)
    assert not alive(pid)
    await runtime.stop_sandbox(pod.sandbox_id)
    await runtime.stop_sandbox(pod.sandbox_id)
    with pytest.raises(RuntimeCallError, match="stopped"):
        await pod.start(*SLEEP)


async def removing_a_container_keeps_its_log(pod: Pod) -> None:
    container = await pod.start("/bin/sh", "-c", "echo kept; sleep 1000")
    await pod.says(container, "kept")
    seen = await pod.seen(container)
    await pod.runtime.remove_container(container)
    assert not alive(seen.pid)
    assert "kept" in read(seen.log_file)
    assert container not in [one.id for one in (await pod.runtime.seen()).containers]


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


Check = Callable[[Pod], Awaitable[None]]
CHECKS: list[Check] = [
    value
    for name, value in list(globals().items())
    if asyncio.iscoroutinefunction(value) and value.__module__ == __name__ and not name.startswith("_")
]
