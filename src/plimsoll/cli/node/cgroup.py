"""`plimsoll cgroup apply|run|rm`: the cgroups of pods on this machine, without any Kubernetes."""

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

import click
import msgspec

from plimsoll.cli.node.machine import finished, live_options, opened
from plimsoll.cli.terminal import inert
from plimsoll.errors import PlimsollError
from plimsoll.node.machine import LiveNode
from plimsoll.rules.model.objects import Pod

if TYPE_CHECKING:
    from plimsoll.cgroups.engine.transaction import Applied

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # exit codes, as shells have them
PATIENCE_S = 10.0  # for another plimsoll that has the node
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # and what is ignored stays so after exec

_OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print.")


@click.group()
def cgroup() -> None:
    """The cgroups of pods on this machine: make them, run a command in them, remove them.

    \b
    plimsoll cgroup apply pod.yaml --cgroup-root /demo --capacity cpu=8,memory=4Gi
    plimsoll cgroup run pod.yaml --cgroup-root /demo --capacity cpu=8,memory=4Gi -- stress --vm 1
    plimsoll cgroup rm --all --cgroup-root /demo --capacity cpu=8,memory=4Gi

    What a node has is computed from the options each time: give the same ones, or keep them in files
    (--node, --config).
    """


@cgroup.command(short_help="Make the cgroups of these pods.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@live_options
@_OUTPUT
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def apply(files: Sequence[str], output: str, dry_run: bool, **options: Any) -> None:
    """Make the cgroups of these pods, beside those that are there, with every value they shall have.

    Only what differs is written; a second run writes nothing. All or nothing.
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


@cgroup.command(short_help="Run a command as a pod's container.", context_settings={"ignore_unknown_options": True})
@click.argument("file", metavar="FILE")
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@click.option("-c", "--container", metavar="NAME", help="Which of the pod's containers. [default: the first]")
@click.option("--keep", is_flag=True, help="Leave the pod's cgroups when the command has ended.")
@live_options
def run(file: str, command: Sequence[str], container: str | None, keep: bool, **options: Any) -> int:
    """Run a command as if it were a pod's container: in its cgroup, with its oom_score_adj.

    Ends with the command's exit code, 128 + n for signal n, 127 where there is no such command. What the command leaves
    running is killed, and the pod's cgroups are removed unless another of its containers runs.
    """
    live = opened(options)
    if live.driver.simulated:
        raise click.UsageError("a kernel in memory runs nothing: leave --simulate out")
    pods = _pods([file], live)
    if len(pods) != 1:
        raise click.UsageError(f"{file} holds {len(pods)} pods; give one")
    name = _container(pods[0], container)
    program = shutil.which(command[0])
    if program is None:
        is_there = os.path.exists(command[0])
        problem = "not a program that can be executed" if is_there else "no such command"
        click.echo(f"plimsoll: {inert(command[0])}: {problem}", err=True)
        return NOT_EXECUTABLE if is_there else NOT_FOUND
    path = live.tree.planned_paths(pods[0])[name]
    if running := live.tree.processes(path, deep=True):
        raise click.ClickException(f"the pod's container {name!r} runs already: process {running[0]} is in {path}")
    was_known = pods[0].metadata.uid in live.tree.known()
    child, go = _held_child(program, command)
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


@cgroup.command(short_help="Kill and remove pods.")
@click.argument("names", nargs=-1, metavar="[POD...]")
@click.option("--all", "everything", is_flag=True, help="Every pod that has cgroups here.")
@live_options
@_OUTPUT
def rm(names: Sequence[str], everything: bool, output: str, **options: Any) -> None:
    """Kill what runs in these pods' cgroups and remove them. A pod is NAME, NAMESPACE/NAME or its uid."""
    from plimsoll.cgroups.engine.transaction import Applied
    from plimsoll.cli.printers import print_applied

    if bool(names) == everything:
        raise click.UsageError("give pods, or --all")
    live = opened(options)
    known = live.tree.known()
    chosen = [uid for uid, title in known.items() if everything or _is_named(names, uid, title)]
    for name in names:
        if not any(_is_named([name], uid, title) for uid, title in known.items()):
            listed = ", ".join(inert(title) for title in known.values()) or "none"
            raise click.ClickException(f"no pod {name!r} has cgroups here; there are: {listed}")
        _refuse_several(name, known)
    if chosen:
        print_applied(finished(live, live.tree.remove(*chosen)), output)
    elif output == "json":
        print_applied(Applied("no pod has cgroups here"), output)
    else:
        click.echo("no pod has cgroups here")


def _refuse_several(name: str, known: Mapping[str, str]) -> None:
    """What is killed must be meant: a name alone may be that of pods in several namespaces."""
    meant = [title for uid, title in known.items() if _is_named([name], uid, title)]
    if len(meant) > 1:
        raise click.ClickException(f"{name!r} stands for {', '.join(map(inert, meant))}: give NAMESPACE/NAME")


def _is_named(names: Sequence[str], uid: str, title: str) -> bool:
    return any(name in (uid, title, title.partition("/")[2]) for name in names)


def _pods(files: Sequence[str], live: LiveNode) -> list[Pod]:
    """What the files hold, as an API server would have stored it: defaulted, valid, each with a uid."""
    from plimsoll.cli.manifests import read_inputs, refused
    from plimsoll.rules.resources.defaulting import defaulted

    inputs = read_inputs(files)
    problems = [*inputs.problems, *(each for given in inputs.pods for each in refused(given, live.setting))]
    if problems:
        raise PlimsollError("\n".join(map(str, problems)))
    if not inputs.pods:
        raise click.ClickException("there is no pod in " + ", ".join(files))
    pods = [
        _with_uid(defaulted(given.pod, gates=live.setting.policy.gates), given.found.title) for given in inputs.pods
    ]
    uids = [pod.metadata.uid for pod in pods]
    for pod in pods:
        if uids.count(pod.metadata.uid) > 1:
            raise click.ClickException(f"two pods are {pod.metadata.namespace or 'default'}/{pod.metadata.name}")
    return pods


def _with_uid(pod: Pod, title: str) -> Pod:
    """A pod that no API server has seen gets a uid that follows from its name, so that it keeps its cgroups."""
    metadata = pod.metadata
    namespace, name = metadata.namespace or "default", metadata.name or title
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()
    made = f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    changed = msgspec.structs.replace(metadata, namespace=namespace, name=name, uid=metadata.uid or made)
    return msgspec.structs.replace(pod, metadata=changed)


def _container(pod: Pod, name: str | None) -> str:
    names = [each.name for each in (*pod.spec.containers, *pod.spec.init_containers)]
    if name is None:
        return names[0]
    if name not in names:
        raise click.UsageError(f"the pod has no container {name!r}; it has {', '.join(names)}")
    return name


def _held_child(program: str, command: Sequence[str]) -> tuple[int, int]:
    """A child that waits for a word before it becomes the command, so that it starts in its cgroup."""
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
    applied = await _patient(lambda: live.tree.add([pod], pids=pids))
    if pid not in live.driver.members(path):
        await live.driver.move(path, pid)
    work = workload(pod, live.setting)
    score = dict(zip((each.name for each in work.containers), work.scores, strict=True))[container]
    done = set_oom_score_adj(pid, score)
    if not done.done:
        click.echo(f"oom_score_adj: want {done.want}, have {done.have} ({done.reason})", err=True)
    for each in applied.unmet:
        click.echo(str(each), err=True)


async def _patient(turn: Callable[[], Awaitable[Applied]]) -> Applied:
    """Several commands may be started and end at the same time: each waits for its turn."""
    from plimsoll.cgroups.engine.journal import StateBusyError

    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await turn()
        except StateBusyError:
            if time.monotonic() > end_s:
                raise
        await asyncio.sleep(0.05)


def _left(live: LiveNode, pod: Pod, container: str) -> None:
    """After the command: what it has left is ended, and the last one out removes the pod."""
    paths = live.tree.planned_paths(pod)
    others = [name for name, path in paths.items() if name not in ("", container)]
    running = [name for name in others if live.tree.processes(paths[name], deep=True)]
    try:
        if running:
            if live.tree.processes(paths[container], deep=True):
                asyncio.run(live.driver.kill(paths[container]))
            click.echo(f"plimsoll: the pod's cgroups stay: {', '.join(map(inert, running))} runs in it", err=True)
        else:
            asyncio.run(_patient(lambda: live.tree.remove(pod.metadata.uid)))
    except PlimsollError as error:  # the command's own exit code counts
        click.echo(f"plimsoll: the pod's cgroups stay: {inert(str(error))}", err=True)


def _waited(pid: int) -> int:
    """Its exit code. What we are told to do by signal, the command is told."""

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
        except KeyboardInterrupt:  # the command has the signal too, and decides
            continue
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code
