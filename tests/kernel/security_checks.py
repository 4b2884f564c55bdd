"""What a securityContext and the mounts of a container mean on a real kernel; `runtime_checks` has the list of all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.linux.mounts import detach, mount
from plimsoll.runtime.interface import ContainerMount, RuntimeCallError, Security, UserRange
from tests.kernel.embedded_runtime import Pod, a_pod, eventually, exists, folder, read

SHARED = 1 << 20  # MS_SHARED


async def privileges_are_gained_unless_that_is_forbidden(pod: Pod) -> None:
    """By a set-user-ID program, whether or not a seccomp filter is installed."""
    own = folder(Path(pod.spec.log_directory) / "programs")
    shutil.copy("/usr/bin/id", own / "id")
    os.chown(own / "id", 0, 0)
    (own / "id").chmod(0o4755)
    mounts = (ContainerMount(str(own), "/own"),)
    for security, user in (
        (Security(user=1000), "0"),
        (Security(user=1000, seccomp="Unconfined"), "0"),
        (Security(user=1000, no_new_privileges=True), "1000"),
    ):
        assert await pod.output("/own/id -u", mounts=mounts, security=security) == f"{user}\n", security


async def groups_of_the_image(pod: Pod) -> None:
    """Merged with the pod's, or not; a user without a group has that of /etc/passwd."""
    etc = folder(Path(pod.spec.log_directory) / "etc")
    (etc / "passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1001::/home/alice:/bin/sh\n")
    (etc / "group").write_text("root:x:0:\nown:x:1001:\nextra:x:50000:bob,alice\nother:x:50001:bob\n")
    mounts = tuple(ContainerMount(str(etc / name), f"/etc/{name}", True) for name in ("passwd", "group"))
    for security, first, others in (
        (Security(user=1000, groups=(60000,)), 1001, {50000, 60000}),
        (Security(user=1000, groups=(60000,), groups_policy="Strict"), 1001, {60000}),
        (Security(user=1000, group=7), 7, {50000}),
        (Security(user=2000, groups=(60000,)), 0, {60000}),
        (Security(), 0, set()),
    ):
        own, *listed = map(int, (await pod.output("id -g; id -G", mounts=mounts, security=security)).split())
        assert (own, set(listed) - {own}) == (first, others), security


async def sysctls_of_the_pod(pod: Pod) -> None:
    before = read("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    sysctls = {"net.ipv4.ip_unprivileged_port_start": "81", "kernel.shm_rmid_forced": "1"}
    async with _another(pod, sysctls=sysctls) as other:
        shown = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced"
        assert await other.output(shown) == "81\n1\n"
    assert read("/proc/sys/net/ipv4/ip_unprivileged_port_start") == before
    with pytest.raises(RuntimeCallError, match=r"sysctl net.ipv4.nothing=1: No such file"):
        async with _another(pod, sysctls={"net.ipv4.nothing": "1"}):
            pass


async def its_own_cgroup_is_all_it_sees(pod: Pod) -> None:
    """At /sys/fs/cgroup, read-only, as programs read their limits from it."""
    is_v2 = exists("/sys/fs/cgroup/cgroup.controllers")
    name, limit = "limited", 64 << 20
    for fd in pod.cgroups.open(name):
        os.close(fd)
    file = "memory.max" if is_v2 else "memory/memory.limit_in_bytes"
    root = next((each for each in pod.cgroups.roots if is_v2 or each.endswith("/memory")), "")
    if not root:
        pytest.skip("no memory controller")
    if is_v2:
        pod.cgroups.enable("memory")
    (Path(root, pod.cgroups.name, name) / Path(file).name).write_text(str(limit))
    script = (
        f"cat /sys/fs/cgroup/{file}; echo 1 > /sys/fs/cgroup/{file} || echo refused; "
        "mkdir /sys/fs/cgroup/x || echo refused; grep -v ':/$' /proc/self/cgroup | grep -c memory"
    )
    container = await pod.start("/bin/sh", "-c", script, name=name)
    await pod.ended(container)
    lines = [line for line in (await pod.said(container)).splitlines() if "cannot" not in line and "can't" not in line]
    assert [line for line in lines if ":" not in line] == [str(limit), "refused", "refused", "0"]


async def its_root_is_an_ordinary_user_of_the_host(pod: Pod) -> None:
    """With `hostUsers: false`: root inside, with volumes and the root's files as its own; an ordinary user outside."""
    if "" not in pod.runtime.features.user_namespaces:
        pytest.skip("this kernel cannot show the users of a user namespace in every file system")
    volume = folder(Path(pod.spec.log_directory) / "volume")
    (volume / "of-root").write_text("x")
    (volume / "of-1000").write_text("x")
    os.chown(volume / "of-1000", 1000, 2000)
    mounts = (ContainerMount(str(volume), "/own"),)
    async with _another(
        pod, users=UserRange(1 << 20, 65536), sysctls={"net.ipv4.ip_unprivileged_port_start": "79"}
    ) as own:
        script = (
            "id -u; cat /proc/self/uid_map; stat -c '%u:%g' /own/of-root /own/of-1000 /usr/bin/env /dev/shm; "
            "touch /own/new /root/new && stat -c '%u' /root/new; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; "
            "hostname other && hostname; echo out >/dev/stdout"
        )
        added = Security(add_capabilities=("SYS_ADMIN",))
        said = (await own.output(script, mounts=mounts, security=added)).split()
        mapped = ["0", str(1 << 20), "65536"]
        shown = ["0:0", "1000:2000", "0:0", "0:0", "0", "79", "other", "out"]
        assert said == ["0", *mapped, *shown]
        assert (volume / "new").stat().st_uid == 0  # through the mapping; a process of the host owns it as root's
        container = await own.start("/bin/sh", "-c", "trap 'exit 0' TERM; echo ready; sleep 1000 & wait", mounts=mounts)
        await own.says(container, "ready")
        pid = (await own.seen(container)).pid
        assert os.stat(f"/proc/{pid}").st_uid == 1 << 20
        done = await own.runtime.run_in(container, ("/bin/sh", "-c", "id -u; touch /own/by-exec && echo made"), 20.0)
        assert (done.exit_code, done.output) == (0, b"0\nmade\n")
        user = await own.output(
            "id -u; id -G; ls -ln /own/of-1000 | cut -d' ' -f3", mounts=mounts, security=Security(user=1000, group=0)
        )
        assert user.split() == ["1000", "0", "1000"], user


async def proc_is_masked_unless_that_is_lifted(pod: Pod) -> None:
    show = "awk '$5 ~ \"^/proc/\" {print $5}' /proc/self/mountinfo"
    masked = (await pod.output(show)).split()
    assert "/proc/sys" in masked, masked
    assert await pod.output(show, security=Security(unmasked_proc=True)) == ""


async def mounts_reach_the_container_and_the_host(pod: Pod) -> None:
    shared = folder(Path(pod.spec.log_directory) / "shared")
    mount("tmpfs", str(shared), "tmpfs")
    try:
        mount("", str(shared), "", SHARED)
        for sub in ("from-host", "from-container"):
            (shared / sub).mkdir()
        slave = ContainerMount(str(shared), "/shared", propagation="HostToContainer")
        peer = ContainerMount(str(shared), "/shared", propagation="Bidirectional")
        alone = ContainerMount(str(shared), "/shared")
        wait = "until [ -e /shared/from-host/file ] || [ -e /stop ]; do sleep 0.05; done; echo seen"
        sees = await pod.start("/bin/sh", "-c", wait, mounts=(slave,))
        blind = await pod.start("/bin/sh", "-c", wait, mounts=(alone,))
        mount("tmpfs", str(shared / "from-host"), "tmpfs")
        (shared / "from-host" / "file").touch()
        await pod.says(sees, "seen")
        assert "seen" not in await pod.said(blind)
        await pod.runtime.stop_container(blind, 0)
        script = "mount -t tmpfs none /shared/from-container && touch /shared/from-container/file"
        privileged = Security(privileged=True)
        await pod.output(script, mounts=(peer,), security=privileged)
        await eventually((shared / "from-container" / "file").exists)
        mounted = ContainerMount(pod.spec.log_directory, "/own", propagation="Bidirectional")
        if not _is_shared(pod.spec.log_directory):
            failed = await pod.make("true", mounts=(mounted,), security=privileged)
            with pytest.raises(RuntimeCallError, match="is not in a shared mount"):
                await pod.runtime.start_container(failed)
    finally:
        for point in (shared / "from-host", shared / "from-container", shared):
            with contextlib.suppress(OSError):
                detach(str(point))


def _is_shared(path: str) -> bool:
    done = subprocess.run(["findmnt", "-no", "PROPAGATION", "-T", path], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "shared"


@contextlib.asynccontextmanager
async def _another(pod: Pod, **others: object) -> AsyncIterator[Pod]:
    async with a_pod(pod.runtime, pod.cgroups, Path(pod.spec.log_directory) / "other", **others) as made:
        yield made


CHECKS = [
    value
    for name, value in list(globals().items())
    if asyncio.iscoroutinefunction(value) and value.__module__ == __name__ and not name.startswith("_")
]
