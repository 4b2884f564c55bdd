"""containerd and runc on the machine itself (cgroup v1, cgroupfs): a private daemon per module."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import CgroupsUnusableError, check_required, open_cgroupfs, this_host
from plimsoll.linux.cgroup_files import CgroupGoneError
from plimsoll.linux.processes import oom_score_adj
from plimsoll.node.pods.image_gc import remove_unused_images
from plimsoll.rules.eviction.usage import NO_FS_USAGE, FsUsage
from plimsoll.runtime.cri.private_containerd.daemon import CRUN_ON_V1, UNIFIED
from plimsoll.runtime.cri.private_containerd.images import PAUSE
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import ContainerMount, CriResources, ImageError, RuntimeCallError
from tests.kernel import containerd_checks as checks
from tests.kernel.containerd import (
    IMAGE,
    PLUGINS,
    Containerd,
    cgroup_parent,
    containerd_release,
    crun_problem,
    private_containerd,
)
from tests.kernel.containerd_checks import MIB, WAITS_FOR_TERM, Bench, cgroup_directory, until
from tests.kernel.guest import GuestMissingError
from tests.unit.net.grpc.grpc_server import Server


def moments(*seconds: float, more: tuple[float, ...]) -> list[Any]:
    """In the middle of a start, which takes about a tenth of a second; `more` are left to `./dev prove guests`."""
    return [
        *(pytest.param(each, id=f"{each:g}s") for each in seconds),
        *(pytest.param(each, id=f"{each:g}s", marks=pytest.mark.long) for each in more),
    ]


@pytest.fixture(scope="module")
def daemon(exercised: Callable[[str, str], None]) -> Iterator[Containerd]:
    if os.geteuid() != 0:
        pytest.skip("containerd: not root")
    try:
        found = this_host()
        check_required(found)
    except CgroupsUnusableError as problem:
        pytest.skip(f"containerd: {problem}")
    if found.version != 1 or found.read_only:
        pytest.skip(
            f"containerd on cgroup v1: this host has v{found.version}{', read-only' if found.read_only else ''}"
        )
    try:
        with private_containerd() as started:
            yield started
    except GuestMissingError as problem:
        pytest.skip(f"containerd: {problem}")
    exercised("runtime", f"containerd and runc, Linux {os.uname().release}, host, cgroup v1, cgroupfs")


@pytest.fixture
async def bench(daemon: Containerd, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    handler = getattr(request, "param", "")
    if handler == "crun" and (reason := crun_problem()):
        pytest.skip(f"containerd with crun: {reason}")
    runtime = CriRuntime(f"unix://{daemon.socket}", handler=handler)
    await runtime.open()
    with cgroup_parent() as parent:
        yield Bench(runtime, parent, tmp_path)
        left = await runtime.seen()
        for container in left.containers:
            await runtime.stop_container(container.id, 0)
            await runtime.remove_container(container.id)
        for sandbox in left.sandboxes:
            await runtime.remove_sandbox(sandbox.id)
        await runtime.close()


# crun alone refuses a machine like this one, where a controller is on cgroup v2: private_containerd covers that mount.
both_runtimes = pytest.mark.parametrize("bench", ["runc", "crun"], indirect=True)


@both_runtimes
async def test_the_life_of_a_pod(bench: Bench) -> None:
    await checks.check_life_of_a_pod(bench)


@both_runtimes
async def test_commands_beside_a_container(bench: Bench) -> None:
    await checks.check_commands(bench)


@both_runtimes
async def test_an_oom_kill_is_reported_as_such(bench: Bench) -> None:
    await checks.check_oom(bench)


@both_runtimes
async def test_mounts_of_the_machine_reach_a_running_container(bench: Bench, daemon: Containerd) -> None:
    """The machine is the mount namespace of this containerd."""
    shared, spec = bench.logs / "shared", bench.sandbox()
    below = shared / "below"

    def there(script: str) -> None:
        subprocess.run(["nsenter", f"--mount=/proc/{daemon.pid}/ns/mnt", "sh", "-ec", script], check=True)

    shared.mkdir()
    there(f"mount -t tmpfs none {shared}; mount --make-shared {shared}; mkdir {below}")
    try:
        waits = ("sh", "-c", "echo waits; until [ -e /shared/below/file ]; do sleep 0.05; done; echo seen")
        mount = ContainerMount(str(shared), "/shared", propagation="HostToContainer")
        seen = await bench.run(spec, await bench.runtime.make_sandbox(spec), "sees", waits, mounts=(mount,))
        await bench.logged(seen, "waits")
        there(f"mount -t tmpfs none {below}; touch {below}/file")
        await bench.logged(seen, "seen")
        assert (await bench.ended(seen.id)).exit_code == 0
    finally:
        there(f"umount -R {shared}")


def test_crun_beside_cgroup_v2_has_the_mounts_of_the_machine(tmp_path: Path) -> None:
    """In place of crun: a program that shows the mounts that it sees."""
    if os.geteuid() != 0 or not UNIFIED.is_mount():
        pytest.skip("crun beside cgroup v2: not root, or no cgroup v2 mount beside cgroup v1")
    script = tmp_path / "crun"
    script.write_text(CRUN_ON_V1.format(crun="cat"))
    script.chmod(0o755)
    shared = f"mount -t tmpfs none {tmp_path}/shared && mount --make-shared {tmp_path}/shared"
    (tmp_path / "shared").mkdir()
    own = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f"{shared}; {script} /proc/self/mountinfo"]
    mounts = [line.split() for line in subprocess.check_output(own, text=True).splitlines()]
    found = {words[4]: (words[6], words[words.index("-") + 1]) for words in mounts}  # the last mount of a place
    assert found[str(UNIFIED)] == ("-", "tmpfs")
    assert found[f"{tmp_path}/shared"][0].startswith("shared:")


async def test_a_process_is_who_it_shall_be(bench: Bench) -> None:
    await checks.check_process_identity(bench)


async def test_what_the_runtime_is(bench: Bench) -> None:
    runtime = bench.runtime
    assert runtime.name == "containerd" and runtime.version[0].isdigit()
    assert runtime.configured_driver == "cgroupfs"
    health = await runtime.health()
    assert health.runtime_ready and not health.network_ready and "NetworkReady: NetworkPluginNotReady" in health.error
    assert IMAGE in {name for image in await runtime.images() for name in image.names}
    assert (await runtime.filesystems()).images.endswith("overlayfs")


async def test_images_that_are_not_there(bench: Bench) -> None:
    with pytest.raises(ImageError) as absent:
        await bench.runtime.image("localhost/none:1", has_command=True, pull=False)
    assert (absent.value.reason, absent.value.image) == ("ErrImageNeverPull", "localhost/none:1")
    with socket.socket() as refuses:  # bound, but not listening: a registry that refuses
        refuses.bind(("127.0.0.1", 0))
        name = f"localhost:{refuses.getsockname()[1]}/none:1"
        with pytest.raises(ImageError) as failed:
            await bench.runtime.image(name, has_command=True, pull=True)
    assert failed.value.reason == "ErrImagePull" and "rpc error: code = " in failed.value.message
    assert (await bench.runtime.image(IMAGE, has_command=False, pull=False)).runs == "/bin/sh"


async def test_new_numbers_for_a_running_container(bench: Bench) -> None:
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    first = CriResources(
        cpu_shares=512, cpu_quota_us=50000, cpu_period_us=100000, memory_limit_bytes=64 * MIB,
        memory_swap_limit_bytes=64 * MIB, oom_score_adj=968,
    )  # fmt: skip
    # Memory of tmpfs, which cannot be reclaimed: 24 MiB that a lower limit cannot have.
    script = "dd if=/dev/zero of=/dev/shm/taken bs=1M count=24 2>/dev/null; echo taken; sleep 1000"
    main = await bench.run(spec, sandbox_id, "main", ("sh", "-c", script), resources=first)
    await bench.logged(main, "taken")
    memory, cpu = cgroup_directory(main.pid, "memory"), cgroup_directory(main.pid, "cpu")

    def numbers() -> tuple[int, ...]:
        files = (memory / "memory.limit_in_bytes", cpu / "cpu.shares", cpu / "cpu.cfs_quota_us")
        return tuple(int(each.read_text()) for each in files)

    assert numbers() == (64 * MIB, 512, 50000)
    assert oom_score_adj(main.pid) == 968
    assert await runtime.container_resources(main.id) == first
    second = CriResources(
        cpu_shares=1024, cpu_quota_us=-1, cpu_period_us=100000, memory_limit_bytes=96 * MIB,
        memory_swap_limit_bytes=96 * MIB, oom_score_adj=968,
    )  # fmt: skip
    await runtime.update_container(main.id, second)
    assert numbers() == (96 * MIB, 1024, -1)
    assert await runtime.container_resources(main.id) == second
    low = CriResources(cpu_shares=1024, memory_limit_bytes=8 * MIB, memory_swap_limit_bytes=8 * MIB, oom_score_adj=968)
    with pytest.raises(RuntimeCallError, match="UpdateContainerResources"):
        await runtime.update_container(main.id, low)
    again = await bench.seen(main.id)
    assert (again.phase, again.pid) == ("running", main.pid)


async def test_an_unimplemented_sandbox_update_costs_one_call(bench: Bench, daemon: Containerd) -> None:
    """containerd has no UpdatePodSandboxResources up to 2.1; one that has it gets each of them."""
    async with Server(daemon.directory / "proxy.sock", forward_to=daemon.socket) as proxy:
        runtime = CriRuntime(proxy.socket_path)
        await runtime.open()
        sandbox_id = await runtime.make_sandbox(bench.sandbox())
        for shares in (256, 512, 1024):
            await runtime.update_sandbox(sandbox_id, CriResources(cpu_shares=shares, memory_limit_bytes=64 * MIB))
        await runtime.close()
    is_known = containerd_release() > (2, 1)
    assert proxy.calls.count("UpdatePodSandboxResources") == (3 if is_known else 1)


async def test_a_writable_layer_is_reported(bench: Bench) -> None:
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    script = "dd if=/dev/zero of=/written bs=1M count=20 2>/dev/null; echo written; sleep 1000"
    writer = await bench.run(spec, sandbox_id, "writer", ("sh", "-c", script))
    calm = await bench.run(spec, sandbox_id, "calm", ("sleep", "1000"))
    await bench.logged(writer, "written")

    async def counted() -> Mapping[str, FsUsage] | None:
        found = await runtime.writable_layers()
        used = {each: found.get(each, NO_FS_USAGE).used_bytes or 0 for each in (writer.id, calm.id)}
        return found if used[calm.id] and used[writer.id] >= 20 * MIB else None

    found = await until(counted)
    assert (found[writer.id].used_bytes or 0) < 24 * MIB and (found[calm.id].used_bytes or 0) < MIB
    assert (found[writer.id].inodes or 0) > (found[calm.id].inodes or 0) >= 1


def touch(path: str) -> None:
    Path(path).touch()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
async def test_containers_outlive_the_runtime(bench: Bench, daemon: Containerd, number: signal.Signals) -> None:
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    stays = await bench.run(spec, sandbox_id, "stays", WAITS_FOR_TERM)
    script = "while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 5"
    ends = await bench.run(spec, sandbox_id, "ends", ("sh", "-c", script))
    woken: list[str] = []

    async def listen() -> None:
        async for uid in runtime.changes():
            woken.append(uid)

    listening = asyncio.create_task(listen())

    async def first_snapshot() -> bool:
        return "" in woken  # containerd 2 sends events about the starts, too

    await until(first_snapshot)
    daemon.stop(number)
    before = len(woken)
    touch(f"/proc/{ends.pid}/root/tmp/go")  # one container ends while containerd is down
    asked = asyncio.create_task(runtime.seen())  # sent while no runtime listens: answered by the next one
    await asyncio.to_thread(daemon.start)
    seen = {each.name: each for each in (await asked).containers}
    assert (seen["stays"].phase, seen["stays"].pid) == ("running", stays.pid)
    ended = await bench.ended(ends.id)
    # Newer releases may clean up a task that ended while they were down before they read its exit code.
    assert ended.exit_code in ((5,) if containerd_release() < (1, 7) else (5, 255))

    async def reported() -> bool:
        return bool({spec.pod_uid, ""} & set(woken[before:]))

    await until(reported)
    assert (await runtime.run_in(stays.id, ("echo", "here"), 30)).output == b"here\n"
    await runtime.stop_container(stays.id, 10)
    assert (await bench.ended(stays.id)).exit_code == 3
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_process_that_ends_is_noticed_at_once(bench: Bench) -> None:
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    main = await bench.run(spec, sandbox_id, "main", ("sleep", "1000"))
    changes = runtime.changes()
    assert await anext(changes) == ""
    os.kill(main.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        async for uid in changes:  # containerd 2 sends events about starts and other pods, too
            if uid == spec.pod_uid and (await bench.seen(main.id)).exit_code == 137:
                break
    await changes.aclose()  # type: ignore[attr-defined]


async def test_a_pod_network_is_reached_from_where_the_runtime_is(daemon: Containerd, tmp_path: Path) -> None:
    if not (PLUGINS / "ptp").exists():
        pytest.skip("CNI: needs the Debian package containernetworking-plugins")
    with private_containerd(network=True) as networked, cgroup_parent() as parent:
        runtime = CriRuntime(networked.socket)
        await runtime.open()
        bench = Bench(runtime, parent, tmp_path)
        assert (await runtime.health()).network_ready
        spec = bench.sandbox(host_network=False)
        try:
            sandbox_id = await runtime.make_sandbox(spec)
        except RuntimeCallError as error:
            if "operation not supported" in str(error):
                pytest.skip(f"CNI: this kernel has no veth: {error}")
            raise
        await bench.run(spec, sandbox_id, "main", ("httpd", "-f", "-p", "8080", "-h", "/etc"))
        assert await runtime.pod_socket(sandbox_id) is None
        (sandbox,) = (await runtime.seen()).sandboxes

        async def answered() -> bytes | None:
            return await asyncio.to_thread(networked.reached_from_it, f"http://{sandbox.ip}:8080/hostname")

        assert await until(answered) == b"web\n"
        await runtime.remove_sandbox(sandbox_id)
        await runtime.close()


@pytest.mark.parametrize("after_s", moments(0.04, 0.08, more=(0.005, 0.02, 0.06)))
async def test_a_start_that_was_cut_off_can_be_made_again(bench: Bench, daemon: Containerd, after_s: float) -> None:
    """Wherever the runtime was with it: the container of that attempt runs in the end, and nothing else was seen."""
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    container = await bench.container("main", ("sleep", "1000"))
    made = await runtime.make_container(spec, sandbox_id, container)
    killed = CriRuntime(daemon.socket)  # of an agent that is killed in the middle
    starting = asyncio.create_task(killed.start_container(made))
    await asyncio.sleep(after_s)  # the moment of the end, not a wait for anything
    await killed.close()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)

    async def decided() -> bool:
        """The runtime may still be undoing it."""
        try:
            made = await runtime.make_container(spec, sandbox_id, container)
            await runtime.start_container(made)
        except RuntimeCallError as error:
            print(error)
            return False
        return (await bench.seen(made)).phase == "running"

    await until(decided)
    seen = [each for each in (await runtime.seen()).containers if each.pod_uid == spec.pod_uid]
    assert [(each.phase, each.attempt) for each in seen] == [("running", 0)]
    await runtime.remove_sandbox(sandbox_id)
    # containerd 2 may leave `runc init` of the start that was cut off. The agent ends it with the pod's cgroup.
    with contextlib.suppress(CgroupGoneError):
        await open_cgroupfs(this_host()).kill(spec.cgroup_parent)


async def test_a_container_whose_task_the_runtime_has_lost_is_removed(bench: Bench, daemon: Containerd) -> None:
    """A start that was cut off may leave one, once in many hundred; here a task is started without CRI."""
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    container = await bench.container("main", ("sleep", "1000"))
    made = await runtime.make_container(spec, sandbox_id, container)
    await asyncio.to_thread(daemon.begin_task, made)
    assert daemon.has_task(made)
    assert (await bench.seen(made)).phase == "created", "which the runtime does not know"
    await runtime.remove_container(made)
    assert not daemon.has_task(made)
    again = await runtime.make_container(spec, sandbox_id, container)
    await runtime.start_container(again)
    assert again != made and (await bench.seen(again)).phase == "running"


STARTS = """
import asyncio, sys
from plimsoll.runtime.cri.runtime import CriRuntime

async def main():
    runtime = CriRuntime(sys.argv[1], outlives_us=True)
    await runtime.open()
    print("asks", flush=True)
    await runtime.start_container(sys.argv[2])

asyncio.run(main())
"""


@pytest.mark.parametrize("after_s", moments(0.06, 0.1, more=(0.01, 0.04, 0.08, 0.12)))
async def test_a_container_starts_once_whenever_the_agent_is_killed(
    bench: Bench, daemon: Containerd, tmp_path: Path, after_s: float
) -> None:
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    script = "echo start >>/book/starts; sleep 1000"
    mounts = (ContainerMount(host_path=str(tmp_path), container_path="/book"),)
    made = await runtime.make_container(
        spec, sandbox_id, await bench.container("main", ("sh", "-c", script), mounts=mounts)
    )
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTS, str(daemon.socket), made, stdout=asyncio.subprocess.PIPE
    )
    assert agent.stdout is not None
    assert await agent.stdout.readline() == b"asks\n"
    await asyncio.sleep(after_s)  # the moment of the kill, not a wait for anything
    if agent.returncode is None:
        agent.kill()
    await agent.wait()
    await runtime.start_container(made)  # as the next agent does
    assert (await bench.seen(made)).phase == "running"

    async def noted() -> bool:
        return (tmp_path / "starts").exists()

    await until(noted)
    assert (tmp_path / "starts").read_text() == "start\n"


async def test_unused_images_are_removed_and_those_of_containers_and_sandboxes_stay(tmp_path: Path) -> None:
    """In a containerd of its own: the other tests need theirs."""
    with private_containerd() as own, cgroup_parent() as parent:
        runtime = CriRuntime(own.socket)
        await runtime.open()
        bench = Bench(runtime, parent, tmp_path)
        spec = bench.sandbox()
        sandbox_id = await runtime.make_sandbox(spec)
        container = await bench.run(spec, sandbox_id, "main", ("sleep", "1000"))
        before = {name for each in await runtime.images() for name in each.names}
        await remove_unused_images(runtime)
        kept = {name for each in await runtime.images() for name in each.names}
        # containerd 2 does not say which image sandboxes have, but that it is pinned.
        assert {IMAGE, PAUSE} <= kept, "one that runs, and one that sandboxes run"
        await runtime.stop_container(container.id, 0)
        await remove_unused_images(runtime)
        assert {name for each in await runtime.images() for name in each.names} == kept, "it has ended and is there"
        await runtime.remove_container(container.id)
        await remove_unused_images(runtime)
        left = {name for each in await runtime.images() for name in each.names}
        assert (IMAGE in left, PAUSE in left) == (False, True), (before, left)
        await runtime.remove_sandbox(sandbox_id)
        await runtime.close()


async def test_what_was_made_and_not_started_is_gone_when_it_is_stopped(bench: Bench) -> None:
    runtime, spec = bench.runtime, bench.sandbox()
    sandbox_id = await runtime.make_sandbox(spec)
    made = await runtime.make_container(spec, sandbox_id, await bench.container("main", ("sleep", "1000")))
    await runtime.stop_container(made, 10)
    assert made not in {each.id for each in (await runtime.seen()).containers}
    await runtime.stop_container(made, 10)
