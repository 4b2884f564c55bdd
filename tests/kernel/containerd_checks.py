"""What must hold with a real containerd, whatever the kernel and the driver; called by the tests that have one.

`Bench` is a node's worth of it: a runtime, a cgroup to stand in and a place for logs.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from plimsoll.linux.processes import cgroups_of
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import ContainerSpec, CriResources, ObservedContainer, RuntimeCallError, SandboxSpec
from tests.kernel.containerd import IMAGE

T = TypeVar("T")
MIB = 1 << 20
SOON_S = 60.0
WAITS_FOR_TERM = ("sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done")


class Bench:
    def __init__(self, runtime: CriRuntime, parent: str, logs: Path, *, systemd: bool = False) -> None:
        self.runtime, self.parent, self.logs, self.systemd = runtime, parent, logs, systemd

    def sandbox(self, **changed: object) -> SandboxSpec:
        uid = str(uuid.uuid4())
        spec = SandboxSpec(
            pod_uid=uid,
            name="web",
            namespace="default",
            hostname="web",
            host_network=True,
            log_directory=str(self.logs / uid),
            cgroup_parent=self.cgroup(uid),
        )
        return msgspec.structs.replace(spec, **changed)

    def cgroup(self, uid: str) -> str:
        if not self.systemd:
            return f"{self.parent}/pod{uid}"
        top = self.parent.strip("/").replace("-", "_")
        return f"/{top}.slice/{top}-pod{uid.replace('-', '_')}.slice"

    async def container(self, name: str, command: tuple[str, ...], **changed: object) -> ContainerSpec:
        image = await self.runtime.image(IMAGE, has_command=True, pull=False)
        spec = ContainerSpec(
            name=name,
            attempt=0,
            image=IMAGE,
            image_ref=image.ref,
            command=command,
            log_path=f"{name}/0.log",
            resources=CriResources(cpu_shares=512, memory_limit_bytes=64 * MIB, oom_score_adj=500),
        )
        return msgspec.structs.replace(spec, **changed)

    async def run(
        self, sandbox: SandboxSpec, sandbox_id: str, name: str, command: tuple[str, ...], **changed: object
    ) -> ObservedContainer:
        spec = await self.container(name, command, **changed)
        made = await self.runtime.make_container(sandbox, sandbox_id, spec)
        await self.runtime.start_container(made)
        return await self.seen(made)

    async def seen(self, container_id: str) -> ObservedContainer:
        for each in (await self.runtime.seen()).containers:
            if each.id == container_id:
                return each
        raise AssertionError(f"{container_id} is not there")

    async def ended(self, container_id: str) -> ObservedContainer:
        async def exited() -> ObservedContainer | None:
            found = await self.seen(container_id)
            return found if found.phase == "exited" else None

        return await until(exited)

    async def logged(self, container: ObservedContainer, line: str) -> None:
        async def there() -> bool:
            file = self.runtime.log_file(container)
            return file.exists() and f" F {line}\n" in file.read_text()

        await until(there)


async def until(found: Callable[[], Awaitable[T | None]], within_s: float = SOON_S) -> T:
    """The first answer that is one."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if answer := await found():
            return answer
        await asyncio.sleep(0.01)
    raise AssertionError(f"{found.__name__}: not within {within_s:g} s")


def cgroup_directory(pid: int, controller: str) -> Path:
    """Where a process stands in the hierarchy that has a controller."""
    for each in cgroups_of(pid) or ():
        if controller in each.controllers:
            return Path("/sys/fs/cgroup") / controller / each.path.lstrip("/")
        unified = each.path
    return Path("/sys/fs/cgroup") / unified.lstrip("/")


async def check_life_of_a_pod(bench: Bench) -> None:
    """Made once however often it is asked for, seen as it is, in its cgroup, logged, stopped in its own way, gone."""
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    assert await runtime.make_sandbox(spec) == sandbox_id
    container = await bench.container("main", WAITS_FOR_TERM, annotations={"of": "ours"})
    made = await runtime.make_container(spec, sandbox_id, container)
    assert await runtime.make_container(spec, sandbox_id, container) == made
    assert (await bench.seen(made)).phase == "created"
    await runtime.start_container(made)
    await runtime.start_container(made)
    seen = await bench.seen(made)
    assert (seen.phase, seen.name, seen.attempt, seen.pod_uid) == ("running", "main", 0, spec.pod_uid)
    assert (seen.sandbox_id, seen.image, seen.annotations["of"]) == (sandbox_id, IMAGE, "ours")
    assert 0 < seen.created_s <= seen.started_s <= time.time()
    (sandbox,) = [each for each in (await runtime.seen()).sandboxes if each.id == sandbox_id]
    assert (sandbox.ready, sandbox.pod_uid, sandbox.cgroup_parent) == (True, spec.pod_uid, spec.cgroup_parent)
    directory = cgroup_directory(seen.pid, "memory")
    assert spec.cgroup_parent in str(directory)
    await bench.logged(seen, "ready")
    before = runtime.log_file(seen)
    before.rename(before.with_suffix(".old"))
    await runtime.reopen_log(made)
    assert before.exists()
    await runtime.stop_container(made, 10)
    ended = await bench.seen(made)
    assert (ended.phase, ended.exit_code, ended.reason, ended.pid) == ("exited", 3, "", 0)
    await runtime.stop_container(made, 10)
    for _ in range(2):
        await runtime.remove_container(made)
        await runtime.stop_sandbox(sandbox_id)
        await runtime.remove_sandbox(sandbox_id)
    left = await runtime.seen()
    assert spec.pod_uid not in {each.pod_uid for each in left.sandboxes} | {each.pod_uid for each in left.containers}


async def check_commands(bench: Bench) -> None:
    """Beside the container: with an exit code, with a timeout, with live streams, with a terminal."""
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    main = (await bench.run(spec, sandbox_id, "main", ("sleep", "1000"))).id
    done = await runtime.run_in(main, ("sh", "-c", "echo out; echo err >&2; exit 4"), 30)
    assert (done.exit_code, sorted(done.output.split()), done.timed_out) == (4, [b"err", b"out"], False)
    assert (await runtime.run_in(main, ("yes",), 1, max_output_bytes=100)).timed_out
    cut = await runtime.run_in(main, ("sh", "-c", "yes | head -1000"), 30, max_output_bytes=100)
    assert (cut.exit_code, len(cut.output)) == (0, 100)
    try:
        await runtime.run_in(main, ("/no/such/command",), 30)
    except RuntimeCallError as error:
        assert "/no/such/command" in str(error)
    else:
        raise AssertionError("a command that is not there cannot be run")

    script = "echo out; echo err >&2; read line; echo got $line; exit 7"
    session = await runtime.exec(main, ("sh", "-c", script), stdin=True, tty=False)
    await session.write(b"a line\n")
    output = b"".join([chunk async for chunk in session.stdout()])
    errors = b"".join([chunk async for chunk in session.stderr()])
    assert (output, errors, await session.wait()) == (b"out\ngot a line\n", b"err\n", 7)
    await session.close()
    await session.close()

    script = 'until [ "$(stty size)" = "31 97" ]; do sleep 0.05; done; read line; echo got $line'
    session = await runtime.exec(main, ("sh", "-c", script), stdin=True, tty=True)
    await session.resize(97, 31)
    await session.write(b"a line\n")
    async with asyncio.timeout(SOON_S):
        assert b"got a line\r\n" in b"".join([chunk async for chunk in session.stdout()])
        assert await session.wait() == 0
    await session.close()

    session = await runtime.exec(main, ("cat",), stdin=True, tty=False)
    await session.close()  # in the middle
    await runtime.remove_sandbox(sandbox_id)


async def check_oom(bench: Bench, *, sees_reason: bool = True) -> None:
    """One container of two has too little memory: it alone is killed, its pod is named, and the runtime says why.

    The shim of containerd reads the reason from the cgroup, which may be gone by then: always with systemd
    (`sees_reason`), now and then elsewhere, so of a few kills one must have it.
    """
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    fellow = await bench.run(spec, sandbox_id, "fellow", ("sleep", "1000"))
    woken: asyncio.Queue[str] = asyncio.Queue()

    async def listen() -> None:
        async for uid in runtime.changes():
            await woken.put(uid)

    async def killed(attempt: int) -> ObservedContainer:
        # It waits for a file, so that the kill comes after every watcher has started.
        limits = CriResources(cpu_shares=512, memory_limit_bytes=24 * MIB, memory_swap_limit_bytes=0, oom_score_adj=500)
        hungry = ("sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; exec tail /dev/zero")
        hog = await bench.run(spec, sandbox_id, "hog", hungry, resources=limits, attempt=attempt)
        while not woken.empty():
            woken.get_nowait()
        await runtime.run_in(hog.id, ("touch", "/tmp/go"), 30)
        ended = await bench.ended(hog.id)
        assert ended.exit_code == 137
        assert await asyncio.wait_for(woken.get(), SOON_S) == spec.pod_uid
        return ended

    async def explained(container_id: str) -> bool:
        async def found() -> bool:
            return (await bench.seen(container_id)).reason == "OOMKilled"

        try:
            return await until(found, 10)
        except AssertionError:
            return False

    listening = asyncio.create_task(listen())
    try:
        assert await asyncio.wait_for(woken.get(), SOON_S) == ""
        for attempt in range(5):
            ended = await killed(attempt)
            if not sees_reason or await explained(ended.id):
                break
        else:
            raise AssertionError("none of the killed containers is OOMKilled")
        assert (await bench.seen(fellow.id)).phase == "running"
        assert (await bench.seen(fellow.id)).pid == fellow.pid
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await runtime.remove_sandbox(sandbox_id)


async def check_process_identity(bench: Bench) -> None:
    """What the spec says of user, capabilities, mounts, environment and paths is what the process finds."""
    from plimsoll.runtime.interface import ContainerMount, Security

    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    shared = bench.logs / "shared"
    shared.mkdir(parents=True, exist_ok=True)
    (shared / "file").write_text("from the host\n")
    seen = await bench.run(
        spec,
        sandbox_id,
        "main",
        ("sleep",),
        args=("1000",),
        working_dir="/etc",
        environment={"GREETING": "hello $(name) ü"},
        mounts=(ContainerMount(str(shared), "/shared", read_only=True),),
        security=Security(
            user=1234, group=2345, groups=(77,), drop_capabilities=("ALL",), read_only_root=True, no_new_privileges=True
        ),
    )

    async def output(*command: str) -> str:
        return (await runtime.run_in(seen.id, command, 30)).output.decode()

    assert await output("id", "-u") == "1234\n"
    assert await output("id", "-g") == "2345\n"
    assert "77" in await output("id", "-G")
    assert await output("pwd") == "/etc\n"
    assert "GREETING=hello $(name) ü\n" in await output("env")
    assert await output("cat", "/shared/file") == "from the host\n"
    assert "Read-only" in await output("touch", "/shared/new") and "Read-only" in await output("touch", "/new")
    status = await output("cat", "/proc/1/status")
    assert "CapEff:\t0000000000000000\n" in status and "NoNewPrivs:\t1\n" in status
    assert await output("cat", "/proc/timer_list") == ""
    assert os.stat(f"/proc/{seen.pid}").st_uid == 1234
    await runtime.remove_sandbox(sandbox_id)
