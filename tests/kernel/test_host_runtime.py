"""The embedded runtime on this machine: real processes, namespaces and mounts, as root."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.runtime.embedded.runtime import ProcessRuntime
from plimsoll.runtime.interface import ContainerMount, ContainerSpec, RuntimeCallError, SandboxSpec
from tests.kernel.embedded_runtime import (
    DEADLINE_S,
    PYTHON,
    SLEEP,
    WITH_PYTHON,
    Cgroups,
    Pod,
    a_pod,
    a_runtime,
    alive,
    eventually,
    exists,
    gone,
    host_mounts,
    open_fds,
    proportional_kib,
    read,
    resident_kib,
)
from tests.kernel.runtime_checks import CHECKS, Check

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="embedded runtime: not root")


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    made = Cgroups()
    yield made
    made.remove()


@pytest.fixture
async def runtime(tmp_path: Path, cgroups: Cgroups) -> AsyncIterator[ProcessRuntime]:
    mounts = host_mounts(tmp_path)
    async with a_runtime(tmp_path / "state", cgroups) as opened:
        if not opened.isolation:
            pytest.skip(f"embedded runtime: {opened.limitations[0]}")
        yield opened
        pid = opened.supervisor_pid
    await gone(pid)
    assert host_mounts(tmp_path) == mounts
    assert (tmp_path / "state/supervisor.log").read_text() == ""


@pytest.fixture
async def pod(runtime: ProcessRuntime, cgroups: Cgroups, tmp_path: Path) -> AsyncIterator[Pod]:
    async with a_pod(runtime, cgroups, tmp_path / "logs") as made:
        yield made


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_check(check: Check, pod: Pod, exercised: Callable[[str, str], None]) -> None:
    await check(pod)
    exercised("runtime", f"embedded, Linux {os.uname().release}, host")


async def test_killed_supervisor(pod: Pod, tmp_path: Path) -> None:
    """Its containers end with it; the next one knows of them, and nothing of them is left."""
    ended = await pod.start("/bin/sh", "-c", "exit 6")
    await pod.ended(ended)
    stubborn = await pod.start("/bin/sh", "-c", "setsid sleep 1000 & echo ready; sleep 1000")
    await pod.says(stubborn, "ready")
    inside = set.union(*pod.cgroups.members((await pod.seen(stubborn)).name))
    supervisor, mounts = pod.runtime.supervisor_pid, host_mounts(tmp_path)
    waiting = asyncio.create_task(_until_changed(pod.runtime, ""))
    os.kill(supervisor, signal.SIGKILL)
    done = await pod.ended(stubborn)
    assert (done.exit_code, done.reason, done.pid) == (137, "ContainerStatusUnknown", 0)
    assert pod.runtime.supervisor_pid != supervisor
    assert (await pod.seen(ended)).exit_code == 6
    for pid in inside:
        await gone(pid)
    assert host_mounts(tmp_path) == mounts
    async with asyncio.timeout(DEADLINE_S):
        await waiting
    (sandbox,) = (await pod.runtime.seen()).sandboxes
    assert not sandbox.ready
    again = SandboxSpec(**{name: getattr(pod.spec, name) for name in pod.spec.__struct_fields__} | {"attempt": 1})
    pod.sandbox_id, pod.spec = await pod.runtime.make_sandbox(again), again
    assert await pod.output("echo again") == "again\n"


async def test_a_container_that_escapes_the_death_signal_is_killed_by_the_next_supervisor(pod: Pod) -> None:
    code = "import ctypes, time; ctypes.CDLL(None).prctl(1, 0); print('free', flush=True); time.sleep(1000)"
    container = await pod.start(PYTHON, "-I", "-c", code, image_ref=WITH_PYTHON)
    await pod.says(container, "free")
    pid = (await pod.seen(container)).pid
    os.kill(pod.runtime.supervisor_pid, signal.SIGKILL)
    await pod.ended(container)
    assert not alive(pid)


async def test_killed_while_it_starts_containers(runtime: ProcessRuntime, cgroups: Cgroups, tmp_path: Path) -> None:
    """At whatever moment of a start the supervisor is killed, no process of it is left."""

    async def begin(name: str) -> None:
        spec = SandboxSpec(name, "pod", "default", log_directory=str(tmp_path / "logs"))
        sandbox = await runtime.make_sandbox(spec)
        plan = ContainerSpec("c", 0, "i", "host", ("sleep", "1000"), log_path=f"{name}/0.log", cgroup=name)
        await runtime.start_container(await runtime.make_container(spec, sandbox, plan))

    for number_of_kill, delay_ms in enumerate((2, 4, 6, 8, 10, 12, 15, 20, 25, 30)):
        supervisor, names = runtime.supervisor_pid, [f"{number_of_kill}-{number}" for number in range(3)]
        for name in names:
            for fd in cgroups.open(name):
                os.close(fd)
        starting = [asyncio.create_task(begin(name)) for name in names]
        await asyncio.sleep(delay_ms / 1000)  # the moment is what is tried here
        os.kill(supervisor, signal.SIGKILL)
        ended = await asyncio.gather(*starting, return_exceptions=True)
        assert all(one is None or isinstance(one, RuntimeCallError) for one in ended), ended
        await eventually(lambda before=supervisor: runtime.supervisor_pid != before)  # type: ignore[misc]
        for sandbox in (await runtime.seen()).sandboxes:
            await runtime.remove_sandbox(sandbox.id)
        for name in names:
            await eventually(lambda which=name: not set.union(*cgroups.members(which)))  # type: ignore[misc]
    assert (await runtime.seen()).containers == ()


async def _until_changed(runtime: ProcessRuntime, uid: str) -> None:
    async for changed in runtime.changes():
        if changed == uid:
            return


def _children_of(pid: int) -> set[int]:
    return set(map(int, read(f"/proc/{pid}/task/{pid}/children").split()))


AGENT = """
import asyncio, os, sys
from pathlib import Path
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from plimsoll.runtime.interface import ContainerSpec, SandboxSpec

async def main():
    runtime = ProcessRuntime(Path(sys.argv[1]), lambda path: [], {})
    await runtime.open()
    spec = SandboxSpec("uid", "pod", "default", log_directory=sys.argv[2])
    sandbox = await runtime.make_sandbox(spec)
    script = "n=0; while :; do echo $n; n=$((n+1)); sleep 0.01; [ -e /stop/it ] && exit 42; done"
    from plimsoll.runtime.interface import ContainerMount
    mounts = (ContainerMount(sys.argv[2], "/stop"),)
    command = ("/bin/sh", "-c", script)
    container = await runtime.make_container(
        spec, sandbox, ContainerSpec("c", 0, "i", "host", command, log_path="c/0.log", mounts=mounts))
    await runtime.start_container(container)
    await runtime.exec(container, ("sleep", "777"), stdin=True, tty=False)
    print(container, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_killed_agent(runtime: ProcessRuntime, cgroups: Cgroups, tmp_path: Path) -> None:
    """Containers go on, logs and exit codes are there for the next agent; what it had run beside them ends."""
    logs = tmp_path / "logs"
    logs.mkdir()
    command = [sys.executable, "-c", AGENT, str(tmp_path / "state"), str(logs)]
    agent = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert agent.stdout
    container = (await agent.stdout.readline()).decode().strip()
    pod = Pod(runtime, SandboxSpec("uid", "pod", "default"), "", cgroups)
    running = await pod.until(container, lambda one: one.phase == "running")
    beside = _children_of(runtime.supervisor_pid) - {running.pid}
    assert len(beside) == 1
    agent.kill()
    await agent.wait()
    said = len(read(running.log_file))
    await eventually(lambda: len(read(running.log_file)) > said)
    await gone(beside.pop())
    assert (await pod.seen(container)).pid == running.pid
    await runtime.close()  # no client listens while it ends
    (logs / "it").touch()
    await gone(running.pid)
    await runtime.open()
    assert (await pod.ended(container)).exit_code == 42
    await runtime.remove_sandbox((await runtime.seen()).sandboxes[0].id)


async def test_agent_and_supervisor_killed_together(tmp_path: Path, cgroups: Cgroups) -> None:
    logs, mounts = tmp_path / "logs", host_mounts(tmp_path)
    logs.mkdir()
    command = [sys.executable, "-c", AGENT, str(tmp_path / "state"), str(logs)]
    agent = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert agent.stdout
    container = (await agent.stdout.readline()).decode().strip()
    watching = ProcessRuntime(tmp_path / "state", cgroups.open)
    await watching.open()
    supervisor, running = watching.supervisor_pid, (await watching.seen()).containers[0]
    await watching.close()
    children = _children_of(supervisor)
    assert running.pid in children and len(children) == 2
    agent.kill()
    os.kill(supervisor, signal.SIGKILL)
    await agent.wait()
    for pid in children:  # the kernel kills them
        await gone(pid)
    assert host_mounts(tmp_path) == mounts
    async with a_runtime(tmp_path / "state", cgroups) as runtime:
        (seen,) = (await runtime.seen()).containers
        assert (seen.id, seen.exit_code, seen.reason) == (container, 137, "ContainerStatusUnknown")


async def test_shared_pids(runtime: ProcessRuntime, cgroups: Cgroups, tmp_path: Path) -> None:
    async with a_pod(runtime, cgroups, tmp_path / "logs", share_process_namespace=True) as pod:
        first = await pod.start("/bin/sh", "-c", "exec sleep 4321")
        assert "sleep 4321" in await pod.output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        # What is left of a container ends with it, though its pid namespace goes on; orphans of others are reaped.
        leaving = await pod.start("/bin/sh", "-c", "setsid sleep 5432 & echo left; exit 0")
        await pod.ended(leaving)
        name = (await pod.seen(leaving)).name
        await eventually(lambda: not set.union(*cgroups.members(name)))
        await pod.output("(sh -c 'sleep 0.01; exit 3' &); exit 0")
        assert (await pod.seen(first)).phase == "running"
        assert await pod.output("kill -9 1; kill -TERM 1; sleep 0.05; kill -0 1 && echo alive") == "alive\n"


async def test_host_namespaces(runtime: ProcessRuntime, cgroups: Cgroups, tmp_path: Path) -> None:
    async with a_pod(runtime, cgroups, tmp_path / "logs", host_network=True, host_pid=True, host_ipc=True) as pod:
        container = await pod.start("/bin/sh", "-c", "setsid sleep 1000 & echo ready; sleep 1000")
        await pod.says(container, "ready")
        seen = await pod.seen(container)
        for kind in ("net", "pid", "ipc"):
            assert os.readlink(f"/proc/{seen.pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")
        assert await runtime.pod_socket(pod.sandbox_id) is None
        assert await pod.output("cat /proc/$PPID/comm") != ""
        inside = set.union(*cgroups.members(seen.name))
        assert len(inside) == 3
        await runtime.stop_container(container, 0)
        for pid in inside:  # no pid namespace ends here: they are found by their cgroup
            await gone(pid)


async def test_logs_are_rotated(tmp_path: Path, cgroups: Cgroups) -> None:
    async with (
        a_runtime(tmp_path / "state", cgroups, log_max_bytes=4096, log_max_files=3) as runtime,
        a_pod(runtime, cgroups, tmp_path / "logs") as pod,
    ):
        container = await pod.start(
            "/bin/sh", "-c", "n=0; while [ $n -lt 20000 ]; do echo line-$n; n=$((n+1)); done", name="c"
        )
        await pod.ended(container)
        files = sorted((tmp_path / "logs/c").iterdir(), key=lambda path: (path.name == "0.log", path.name))
        assert len(files) == 3 and files[-1].name == "0.log", files
        assert all(path.stat().st_size < 4096 + 100 for path in files)
        assert "line-19999" in "".join(path.read_text() for path in files)
        (tmp_path / "logs/c/0.log").rename(tmp_path / "logs/c/away")
        with contextlib.suppress(RuntimeCallError):
            await runtime.reopen_log(container)


async def test_a_flood_of_output_costs_the_container_that_writes_it(pod: Pod) -> None:
    """Three containers write without end; the supervisor has time for their neighbour's lines and commands."""
    floods = [await pod.start("/bin/sh", "-c", "exec yes") for _ in range(3)]
    neighbour = await pod.start("/bin/sh", "-c", "while :; do sleep 0.2; echo tick; done")
    logs = [(await pod.seen(each)).log_file for each in floods]
    await eventually(lambda: all(map(is_beyond_its_burst, logs)))
    supervisor = pod.runtime.supervisor_pid
    assert supervisor is not None
    used, began = cpu_s(supervisor), time.monotonic()
    log = (await pod.seen(neighbour)).log_file
    ticks = read(log).count("tick")
    await eventually(lambda: read(log).count("tick") >= ticks + 10)
    share = (cpu_s(supervisor) - used) / (time.monotonic() - began)
    assert share < 0.5, f"{share:.0%} of a CPU"
    for _ in range(10):
        done = await pod.runtime.run_in(neighbour, ("echo", "here"), DEADLINE_S)
        assert done.output == b"here\n"
    for each in floods:
        assert (await pod.seen(each)).phase == "running"


def is_beyond_its_burst(log: str) -> bool:
    """A log that was rotated has had more, and while it is, there is none."""
    try:
        return os.path.getsize(log) > 6 << 20 or len(os.listdir(os.path.dirname(log))) > 1
    except FileNotFoundError:
        return True


def cpu_s(pid: int) -> float:
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_long_lines_are_cut(pod: Pod) -> None:
    container = await pod.start("/bin/sh", "-c", "head -c 40000 /dev/zero | tr '\\0' x; echo; echo short")
    done = await pod.ended(container)
    lines = read(done.log_file).splitlines()
    assert [(line.split(" ", 3)[2], len(line.split(" ", 3)[3])) for line in lines] == [
        ("P", 16384), ("P", 16384), ("F", 40000 - 2 * 16384), ("F", 5),
    ]  # fmt: skip


async def test_hostile_names(pod: Pod, tmp_path: Path) -> None:
    for path in ("../escape.log", "/etc/escape.log", "a/../../escape.log", "a//b", "."):
        spec = ContainerSpec(f"c{len(path)}", 0, "i", "host", ("true",), log_path=path)
        with pytest.raises(RuntimeCallError, match="log path"):
            await pod.runtime.make_container(pod.spec, pod.sandbox_id, spec)
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "logs/linked").symlink_to("/etc")
    spec = ContainerSpec("linked", 0, "i", "host", ("true",), log_path="linked/x.log")
    made = await pod.runtime.make_container(pod.spec, pod.sandbox_id, spec)
    with pytest.raises(RuntimeCallError):
        await pod.runtime.start_container(made)
    assert not exists("/etc/x.log")
    container = await pod.start("printf", "%s|", "a b", 'q"', "é", "\n", name="ü\n-name")
    await pod.ended(container)
    assert (await pod.said(container)).startswith('a b|q"|é|')
    for mounts in ((ContainerMount("/no/such/place", "/x"),), (ContainerMount("/usr", "/etc/passwd/x"),)):
        with pytest.raises(RuntimeCallError):
            await pod.start("true", mounts=mounts)
    with pytest.raises(RuntimeCallError, match=r"working directory|Not a directory"):
        await pod.start("true", working_dir="/etc/passwd")
    assert await pod.output("echo still here") == "still here\n"


async def test_nothing_leaks(pod: Pod) -> None:
    async def one_life() -> None:
        container = await pod.start(*SLEEP, mounts=(ContainerMount("/usr", "/v", True),))
        await pod.runtime.run_in(container, ("true",), DEADLINE_S)
        session = await pod.runtime.exec(container, ("cat",), stdin=True, tty=True)
        await session.close()
        with contextlib.suppress(RuntimeCallError):
            await pod.runtime.run_in(container, ("no-such-program",), DEADLINE_S)
        await pod.runtime.remove_container(container)
        other = SandboxSpec(f"uid-{container}", "p", "n")
        sandbox = await pod.runtime.make_sandbox(other)
        made = await pod.runtime.pod_socket(sandbox)
        assert made is not None
        made.close()
        await pod.runtime.remove_sandbox(sandbox)

    await one_life()
    theirs, ours = open_fds(pod.runtime.supervisor_pid), open_fds(os.getpid())
    for _ in range(10):
        await one_life()
    assert (open_fds(pod.runtime.supervisor_pid), open_fds(os.getpid())) == (theirs, ours)


async def test_memory_of_fifty_containers(pod: Pod) -> None:
    await pod.start(*SLEEP)
    supervisor = pod.runtime.supervisor_pid
    before = proportional_kib(supervisor)
    for _ in range(50):
        await pod.start("sleep", "1000")
    assert (proportional_kib(supervisor) - before) / 50 < 60
    assert resident_kib(supervisor) < 20 << 10
