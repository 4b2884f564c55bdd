"""`plimsoll cgroup apply|run|rm`: cgroups of pods on this machine, without Kubernetes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.node.machine import finished, live_options, opened
from plimsoll.cli.terminal import inert
from plimsoll.errors import PlimsollError
from plimsoll.node.machine import LiveNode
from plimsoll.rules.blockio.policy import io_errors
from plimsoll.rules.model.objects import Pod

if TYPE_CHECKING:
    from plimsoll.cgroups.engine.transaction import Applied

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # the exit codes of shells
PATIENCE_S = 10.0  # how long to wait for another plimsoll process
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # ignored signals stay ignored after exec

_OUTPUT = console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text", help="Output format.")


@console.group()
def cgroup() -> None:
    """Create cgroups of pods on this machine, run a command in them, and remove them.

    \b
    plimsoll cgroup apply pod.yaml --cgroup-root /demo --capacity cpu=8,memory=4Gi
    plimsoll cgroup run pod.yaml --cgroup-root /demo --capacity cpu=8,memory=4Gi -- stress --vm 1
    plimsoll cgroup rm --all --cgroup-root /demo --capacity cpu=8,memory=4Gi

    The options describe the node. Use the same ones for each command, or put them into files (--node, --config).
    """


@cgroup.command(short_help="Create the cgroups of pods.")
@console.argument("files", nargs=-1, required=True, metavar="FILE...")
@live_options
@_OUTPUT
@console.option("--dry-run", is_flag=True, help="Only print the planned changes.")
def apply(files: Sequence[str], output: str, dry_run: bool, **options: Any) -> None:
    """Create the cgroups of pods, in addition to existing ones, and set all values.

    Writes only what differs. If a step fails, all changes are rolled back.
    """
    from plimsoll.cgroups.engine.manager import titles
    from plimsoll.cgroups.engine.transaction import Applied
    from plimsoll.cli.printers import print_applied

    live = opened(options)
    pods = _pods(files, live)
    if dry_run:
        plan = live.tree.plan(pods)
        applied = Applied(titles(pods), plan.steps, plan.unmet)
    else:
        applied = finished(live, live.tree.add(pods))
    print_applied(applied, output, dry_run=dry_run, notes=live.notes)


@cgroup.command(short_help="Run a command as a container of a pod.", ignore_unknown_options=True)
@console.argument("file", metavar="FILE")
@console.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@console.option("-c", "--container", metavar="NAME", help="The container of the pod. [default: the first]")
@console.option("--keep", is_flag=True, help="Keep the cgroups of the pod when the command has ended.")
@live_options
def run(file: str, command: Sequence[str], container: str | None, keep: bool, **options: Any) -> int:
    """Run a command as a container of a pod: in its cgroup and with its oom_score_adj.

    The exit code is that of the command; 128 + n after signal n, 127 if the command is not found. When it ends, its
    remaining processes are killed, and the cgroups of the pod are removed unless another container of it runs.
    """
    live = opened(options)
    if live.driver.simulated:
        raise console.UsageError("a simulated kernel cannot run commands: remove --simulate")
    pods = _pods([file], live)
    if len(pods) != 1:
        raise console.UsageError(f"{file} contains {len(pods)} pods, expected one")
    name = _container(pods[0], container)
    program = shutil.which(command[0])
    if program is None:
        exists = os.path.exists(command[0])
        problem = "not executable" if exists else "command not found"
        console.echo(f"plimsoll: {inert(command[0])}: {problem}", err=True)
        return NOT_EXECUTABLE if exists else NOT_FOUND
    path = live.tree.planned_paths(pods[0])[name]
    if running := live.tree.processes(path, deep=True):
        raise console.CommandError(
            f"container {name!r} of the pod is already running: process {running[0]} is in {path}"
        )
    was_known = pods[0].metadata.uid in live.tree.known()
    child, go = _waiting_child(program, command)
    try:
        finished(live, _entered(live, pods[0], name, child))
        os.write(go, b"go")
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if not was_known:
            _left(live, pods[0], name)
        raise
    finally:
        os.close(go)
    code = _waited(child)
    if not keep:
        _left(live, pods[0], name)
    return code


@cgroup.command(short_help="Kill the processes of pods and remove their cgroups.")
@console.argument("names", nargs=-1, metavar="[POD...]")
@console.option("--all", "everything", is_flag=True, help="All pods that have cgroups below --cgroup-root.")
@live_options
@_OUTPUT
def rm(names: Sequence[str], everything: bool, output: str, **options: Any) -> None:
    """Kill the processes of pods and remove their cgroups. A pod is NAME, NAMESPACE/NAME or its uid."""
    from plimsoll.cgroups.engine.transaction import Applied
    from plimsoll.cli.printers import print_applied

    if bool(names) == everything:
        raise console.UsageError("specify pods or --all")
    live = opened(options)
    known = live.tree.known()
    chosen = [uid for uid, title in known.items() if everything or _is_named(names, uid, title)]
    for name in names:
        if not any(_is_named([name], uid, title) for uid, title in known.items()):
            listed = ", ".join(inert(title) for title in known.values()) or "none"
            raise console.CommandError(f"pod {name!r} has no cgroups; the pods with cgroups are: {listed}")
        _refuse_several(name, known)
    if chosen:
        print_applied(finished(live, live.tree.remove(*chosen)), output)
    elif output == "json":
        print_applied(Applied("no pods have cgroups"), output)
    else:
        console.echo("no pods have cgroups")


def _refuse_several(name: str, known: Mapping[str, str]) -> None:
    """Refuse an ambiguous name: pods in several namespaces may have it."""
    named = [title for uid, title in known.items() if _is_named([name], uid, title)]
    if len(named) > 1:
        raise console.CommandError(f"{name!r} is ambiguous: {', '.join(map(inert, named))}; use NAMESPACE/NAME")


def _is_named(names: Sequence[str], uid: str, title: str) -> bool:
    return any(name in (uid, title, title.partition("/")[2]) for name in names)


def _pods(files: Sequence[str], live: LiveNode) -> list[Pod]:
    """The pods of the files as an API server would store them: with defaults, valid, each with a uid."""
    from plimsoll.cli.manifests import stored_inputs

    policy = live.setting.policy
    inputs = stored_inputs(files, policy.gates, also=lambda pod: io_errors(pod, policy.io, policy.cgroup_version))
    if not inputs.pods:
        raise console.CommandError("no pods found in " + ", ".join(files))
    pods = [_with_uid(given.pod, given.found.title) for given in inputs.pods]
    uids = [pod.metadata.uid for pod in pods]
    for pod in pods:
        if uids.count(pod.metadata.uid) > 1:
            raise console.CommandError(
                f"pod {pod.metadata.namespace or 'default'}/{pod.metadata.name} is defined twice"
            )
    return pods


def _with_uid(pod: Pod, title: str) -> Pod:
    """The pod with a uid; one without gets a uid derived from its name, so that it keeps its cgroups."""
    metadata = pod.metadata
    namespace, name = metadata.namespace or "default", metadata.name or title
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()
    made = f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    changed = msgspec.structs.replace(metadata, namespace=namespace, name=name, uid=metadata.uid or made)
    return msgspec.structs.replace(pod, metadata=changed)


def _container(pod: Pod, name: str | None) -> str:
    names = [container.name for container in (*pod.spec.containers, *pod.spec.init_containers)]
    if name is None:
        return names[0]
    if name not in names:
        raise console.UsageError(f"the pod has no container {name!r}; its containers are: {', '.join(names)}")
    return name


def _waiting_child(program: str, command: Sequence[str]) -> tuple[int, int]:
    """Fork a child that executes the command once `go` is written to the pipe, so that it starts in its cgroup."""
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(read)
        return pid, write
    try:
        os.close(write)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        if os.read(read, 2) == b"go":
            os.close(read)
            os.execv(program, list(command))
    except OSError as error:
        os.write(2, f"plimsoll: {program}: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_EXECUTABLE)


async def _entered(live: LiveNode, pod: Pod, container: str, pid: int) -> None:
    from plimsoll.linux.processes import set_oom_score_adj
    from plimsoll.rules.cgroups.desired import workload

    path = live.tree.planned_paths(pod)[container]
    pids = {path: pid} if live.driver.name == "systemd" else None
    applied = await _retried(lambda: live.tree.add([pod], pids=pids))
    if pid not in live.driver.members(path):
        await live.driver.move(path, pid)
    work = workload(pod, live.setting)
    score = dict(zip((container.name for container in work.containers), work.scores, strict=True))[container]
    done = set_oom_score_adj(pid, score)
    if not done.done:
        console.echo(f"oom_score_adj: want {done.want}, have {done.have} ({done.reason})", err=True)
    for unmet in applied.unmet:
        console.echo(str(unmet), err=True)


async def _retried(transaction: Callable[[], Awaitable[Applied]]) -> Applied:
    """Wait while another plimsoll process has the lock: several commands may start and end at the same time."""
    from plimsoll.cgroups.engine.journal import StateBusyError

    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await transaction()
        except StateBusyError:
            if time.monotonic() > end_s:
                raise
        await asyncio.sleep(0.05)


def _left(live: LiveNode, pod: Pod, container: str) -> None:
    """Clean up after the command: kill its processes; remove the pod if no other container of it runs."""
    paths = live.tree.planned_paths(pod)
    others = [name for name, path in paths.items() if name not in ("", container)]
    running = [name for name in others if live.tree.processes(paths[name], deep=True)]
    try:
        if running:
            if live.tree.processes(paths[container], deep=True):
                asyncio.run(live.driver.kill(paths[container]))
            console.echo(
                f"plimsoll: the cgroups of the pod are kept: {', '.join(map(inert, running))} is running", err=True
            )
        else:
            asyncio.run(_retried(lambda: live.tree.remove(pod.metadata.uid)))
    except PlimsollError as error:  # the exit code is that of the command
        console.echo(f"plimsoll: the cgroups of the pod are kept: {inert(str(error))}", err=True)


def _waited(pid: int) -> int:
    """The exit code of the process; signals are forwarded to it."""

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(pid, number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        return _ended(pid)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(pid: int) -> int:
    while True:
        try:
            _, status = os.waitpid(pid, 0)
        except KeyboardInterrupt:  # the command has received the signal as well
            continue
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code
