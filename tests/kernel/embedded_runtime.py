"""A pod on the embedded runtime, for tests: state, cgroups and logs of its own, and everything removed afterwards.

`Pod.start` runs a container, `Pod.ended` waits for its end, `Pod.said` is what it has written. Waiting is always for
something that the runtime reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from plimsoll.runtime.embedded.runtime import ProcessRuntime
from plimsoll.runtime.interface import ContainerSpec, CriResources, ObservedContainer, SandboxSpec, Security
from plimsoll.runtime.supervisor.images import BUNDLED

DEADLINE_S = 180.0
SLEEP = ("/bin/sh", "-c", 'trap "exit 0" TERM; sleep 1000 & echo ready; wait')
FIRST_LINE = re.compile(rb"^(\S+) (stdout|stderr) ([FP]) ", re.MULTILINE)
PYTHON = os.path.realpath(sys.executable)
WITH_PYTHON = BUNDLED + "nginx"  # an image whose view has the interpreter, wherever it is installed


class Cgroups:
    """One cgroup of ours in every hierarchy, and below it those of containers."""

    def __init__(self) -> None:
        self.name = f"plimsoll-test-{secrets.token_hex(6)}"
        self.roots: list[str] = []
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            place, _, what = line.partition(" - ")
            kind, _, options = what.split(" ")[:3]
            if not place.split(" ")[4].startswith("/sys/fs/cgroup"):  # of another test
                continue
            # A cpuset without CPUs takes no process, and one hierarchy more or less proves nothing.
            if kind == "cgroup2" or (kind == "cgroup" and not {"cpuset", "name=systemd"} & set(options.split(","))):
                self.roots.append(place.split(" ")[4])

    def open(self, path: str) -> list[int]:
        fds = []
        for root in self.roots:
            directory = Path(root, self.name, path)
            directory.mkdir(parents=True, exist_ok=True)
            fds.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY))
        return fds

    def enable(self, controller: str) -> None:
        """In the cgroups of containers; only cgroup v2 needs it."""
        for root in self.roots:
            if Path(root, "cgroup.controllers").exists():
                for above in (Path(root), Path(root, self.name)):
                    (above / "cgroup.subtree_control").write_text(f"+{controller}")

    def members(self, path: str) -> list[set[int]]:
        return [set(map(int, Path(root, self.name, path, "cgroup.procs").read_text().split())) for root in self.roots]

    def remove(self) -> None:
        for root in self.roots:
            top = Path(root, self.name)
            for directory, _, _ in list(os.walk(top, topdown=False)) if top.exists() else ():
                deadline = time.monotonic() + DEADLINE_S
                while True:  # a process that has just ended may still be counted
                    try:
                        os.rmdir(directory)
                        break
                    except OSError:
                        assert time.monotonic() < deadline, f"{directory} is not empty"
                        time.sleep(0.01)


class Pod:
    def __init__(self, runtime: ProcessRuntime, spec: SandboxSpec, sandbox_id: str, cgroups: Cgroups) -> None:
        self.runtime, self.spec, self.sandbox_id, self.cgroups = runtime, spec, sandbox_id, cgroups

    async def make(
        self,
        *command: str,
        name: str = "",
        image_ref: str = "host",
        environment: Mapping[str, str] | None = None,
        mounts: tuple[object, ...] = (),
        security: Security | None = None,
        oom_score_adj: int = 0,
        **others: object,
    ) -> str:
        unique = f"c{secrets.token_hex(3)}"
        name = name or unique
        spec = ContainerSpec(
            name=name,
            attempt=0,
            image="test",
            image_ref=image_ref,
            command=command,
            environment=environment or {},
            mounts=mounts,  # type: ignore[arg-type]
            security=security or Security(),
            log_path=f"{name}/0.log",
            resources=CriResources(oom_score_adj=oom_score_adj),
            cgroup=name if name.isascii() and name.isprintable() else unique,
            **others,  # type: ignore[arg-type]
        )
        return await self.runtime.make_container(self.spec, self.sandbox_id, spec)

    async def start(self, *command: str, **others: object) -> str:
        made = await self.make(*command, **others)  # type: ignore[arg-type]
        await self.runtime.start_container(made)
        return made

    async def seen(self, container_id: str) -> ObservedContainer:
        return next(one for one in (await self.runtime.seen()).containers if one.id == container_id)

    async def ended(self, container_id: str) -> ObservedContainer:
        return await self.until(container_id, lambda one: one.phase == "exited")

    async def until(self, container_id: str, true: Callable[[ObservedContainer], bool]) -> ObservedContainer:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                with contextlib.suppress(StopIteration):
                    one = await self.seen(container_id)
                    if true(one):
                        return one
                await asyncio.sleep(0.005)

    async def said(self, container_id: str) -> str:
        """Its whole output, without the stamps."""
        found = (await self.seen(container_id)).log_file
        return FIRST_LINE.sub(b"", read(found).encode()).decode()

    async def says(self, container_id: str, text: str) -> None:
        """Until it has printed that."""
        log_file = (await self.seen(container_id)).log_file
        await eventually(lambda: text in read(log_file))

    async def output(self, script: str, **others: object) -> str:
        """The output of a shell script in a container of this pod, which must succeed."""
        container = await self.start("/bin/sh", "-c", script, **others)
        done = await self.ended(container)
        said = await self.said(container)
        assert done.exit_code == 0, said
        return said

    async def python(self, code: str, **others: object) -> str:
        """The same in Python, of which every host of these tests has one."""
        container = await self.start(PYTHON, "-I", "-S", "-c", code, image_ref=WITH_PYTHON, **others)
        done = await self.ended(container)
        said = await self.said(container)
        assert done.exit_code == 0, said
        return said


@contextlib.asynccontextmanager
async def a_runtime(state: Path, cgroups: Cgroups, **others: object) -> AsyncIterator[ProcessRuntime]:
    runtime = ProcessRuntime(state, cgroups.open, {}, **others)  # type: ignore[arg-type]
    await runtime.open()
    try:
        yield runtime
    finally:
        await runtime.shutdown()


@contextlib.asynccontextmanager
async def a_pod(runtime: ProcessRuntime, cgroups: Cgroups, logs: Path, **others: object) -> AsyncIterator[Pod]:
    spec = SandboxSpec(
        pod_uid=secrets.token_hex(8),
        name="pod",
        namespace="default",
        hostname="a-pod",
        log_directory=str(logs),
        **others,  # type: ignore[arg-type]
    )
    sandbox = await runtime.make_sandbox(spec)
    try:
        yield Pod(runtime, spec, sandbox, cgroups)
    finally:
        await runtime.remove_sandbox(sandbox)


def host_mounts(ours: Path) -> list[str]:
    """The machine's mounts, but for those that other tests and agents may make meanwhile, each in its own directory."""
    others = ("/tmp/", "/var/", "/run/", "/sys/fs/cgroup/")
    points = [line.split(" ")[4] for line in read("/proc/self/mountinfo").splitlines()]
    return sorted(point for point in points if point.startswith(f"{ours}/") or not point.startswith(others))


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid: int) -> None:
    await eventually(lambda: not alive(pid))


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if true():
                return
            await asyncio.sleep(0.005)


def read(path: str | Path) -> str:
    return Path(path).read_text(encoding="utf-8", errors="surrogateescape")


def exists(path: str | Path) -> bool:
    return Path(path).exists()


def folder(path: str | Path) -> Path:
    """Made, with its parents."""
    Path(path).mkdir(parents=True)
    return Path(path)


def open_fds(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def proportional_kib(pid: int) -> int:
    """Its share of memory (PSS); what a page costs is divided among those who map it."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found
    return int(found[1])


def resident_kib(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])
