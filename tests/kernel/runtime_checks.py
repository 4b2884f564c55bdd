"""What the embedded runtime must do on every kernel, as functions that get a pod.

test_host_runtime.py runs them on this machine, in_guest/test_runtime.py in a guest with cgroup v2.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from plimsoll.runtime.interface import ExecSession, RuntimeCallError
from tests.kernel import isolation_checks, security_checks
from tests.kernel.embedded_runtime import (
    DEADLINE_S,
    SLEEP,
    WITH_PYTHON,
    Pod,
    alive,
    eventually,
    gone,
    read,
)


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
    """PID 1 can't be killed from inside its own namespace, so the shell lets a child die and prints it."""
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
    session = await pod.runtime.exec(container, ("cat", "-"), stdin=True, tty=False)
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
    session = await pod.runtime.exec(container, ("/bin/sh", "-c", "cat; echo end >&2; exit 9"), stdin=True, tty=False)
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


async def clients_that_attach(pod: Pod) -> None:
    """Both get the output, one gives the input; the container's stdin ends with the first client."""
    container = await pod.start("/bin/sh", "-c", "cat; echo end >&2", stdin=True, stdin_once=True)
    reader = await pod.runtime.attach(container, stdin=False, tty=False)
    writer = await pod.runtime.attach(container, stdin=True, tty=False)
    sent = b"x" * 300_000

    async def read(session: ExecSession) -> tuple[bytes, bytes]:
        return (
            b"".join([data async for data in session.stdout()]),
            b"".join([data async for data in session.stderr()]),
        )

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as both:
        reading = [both.create_task(read(session)) for session in (reader, writer)]
        await writer.write(sent)
        await writer.close_stdin()
    assert [task.result() for task in reading] == [(sent, b"end\n")] * 2
    assert (await pod.ended(container)).exit_code == 0
    for session in (reader, writer):
        await session.close()
        await session.close()


async def a_client_that_leaves_a_terminal(pod: Pod) -> None:
    """The container goes on, and the next client finds it."""
    container = await pod.start("/bin/sh", stdin=True, tty=True)
    for word in (b"one", b"two"):
        session = await pod.runtime.attach(container, stdin=True, tty=True)
        await session.resize(101, 37)
        await session.write(b"echo $((6*7))-%b; stty size\n" % word)
        said = b""
        async with asyncio.timeout(DEADLINE_S):
            async for data in session.stdout():
                said += data
                if b"42-%b" % word in said and b"37 101" in said:
                    break
        await session.close()
    assert (await pod.seen(container)).phase == "running"


async def a_container_in_the_pids_of_another(pod: Pod) -> None:
    """As an ephemeral container with a target."""
    target = await pod.start("sleep", "1234")
    beside = await pod.start("/bin/sh", "-c", "tr '\\0' ' ' </proc/1/cmdline; echo; exec sleep 1000", target_id=target)
    await pod.says(beside, "sleep 1234")
    pids = [(await pod.seen(each)).pid for each in (target, beside)]
    assert len({os.readlink(f"/proc/{pid}/ns/pid") for pid in pids}) == 1
    await pod.runtime.stop_container(beside, 0)
    assert (await pod.seen(target)).phase == "running"


async def a_terminal_of_exec(pod: Pod) -> None:
    container = await pod.start(*SLEEP)
    session = await pod.runtime.exec(container, ("/bin/sh",), stdin=True, tty=True)
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
    session = await pod.runtime.exec(container, ("cat",), stdin=True, tty=True)
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
        await pod.runtime.exec(running, ("/no/such/program",), stdin=True, tty=True)


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
    *isolation_checks.CHECKS,
    *security_checks.CHECKS,
    *(
        value
        for name, value in list(globals().items())
        if asyncio.iscoroutinefunction(value) and value.__module__ == __name__ and not name.startswith("_")
    ),
]
