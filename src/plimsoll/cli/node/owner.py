"""`plimsoll whose PID`: the pod and the container that a process belongs to, from /proc/PID/cgroup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from plimsoll.cgroups.stats.live_tree import is_sandbox
from plimsoll.cli.pod_names import PodNames, every_pod_name
from plimsoll.cli.terminal import CLASS_COLOURS, Paint, colourful, inert
from plimsoll.codec.kernel.files import OwnCgroup
from plimsoll.errors import StructuredError
from plimsoll.linux.processes import cgroups_of, oom_score_adj, stat
from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner, Placed, placed

NOT_IN_A_POD = 1  # the exit code; 2 is for what could not be answered


class NoSuchProcessError(StructuredError):
    pid: int
    template = (
        "no process {pid} here: it has ended, or the number is from inside a container; "
        "`grep NSpid /proc/*/status` shows both numbers of each process"
    )


class OwnerAnswer(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    pid: int
    command: str
    owner: CgroupOwner
    pod: str = ""
    container: str = ""
    sandbox: bool = False
    cgroups: dict[str, str] = {}
    elsewhere: dict[str, str] = {}


@click.command("whose")
@click.argument("pids", nargs=-1, required=True, type=click.IntRange(1), metavar="PID...")
@click.option("--pods", "files", multiple=True, metavar="FILE", help="Names from `kubectl get pods -A -o json`.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="Of `plimsoll node`: the names of our own pods.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def whose(pids: tuple[int, ...], files: tuple[str, ...], state_dir: Path | None, output: str) -> int:
    """Say which pod and container a process belongs to.

    Exit code 1 where a process is in no pod.
    """
    names = every_pod_name(files, state_dir)
    answers = [answer(pid, names) for pid in pids]
    if output == "json":
        shown = msgspec.json.encode(answers if len(answers) > 1 else answers[0])
        click.echo(msgspec.json.format(shown, indent=2))
    else:
        paint = Paint(colourful())
        for index, each in enumerate(answers):
            if index:
                click.echo()
            for line in lines(each, paint):
                click.echo(line)
    return 0 if all(each.owner.pod_uid for each in answers) else NOT_IN_A_POD


def answer(pid: int, names: PodNames) -> OwnerAnswer:
    found, process = cgroups_of(pid), stat(pid)
    if found is None or process is None:
        raise NoSuchProcessError(pid)
    at: Placed = placed((each.controllers, each.path) for each in found)
    sandbox = bool(at.owner.container_id) and is_sandbox(process.name, oom_score_adj(pid))
    return OwnerAnswer(
        pid,
        process.name,
        at.owner,
        names.pods.get(at.owner.pod_uid, ""),
        names.containers.get(at.owner.container_id, ""),
        sandbox,
        {_hierarchy(each): each.path for each in found},
        at.elsewhere,
    )


def _hierarchy(each: OwnCgroup) -> str:
    return ",".join(each.controllers) or "unified"


def lines(found: OwnerAnswer, paint: Paint) -> Iterator[str]:
    owner = found.owner
    process = f"{found.pid} ({inert(found.command)})"
    if not owner.pod_uid:
        yield f"process    {paint(process, 'bold')} is in no pod"
        yield f"cgroup     {inert(owner.path)}"
        if owner.path.startswith("/.."):
            yield paint("           seen from another cgroup namespace; ask outside the container", "dim")
        return
    yield f"process    {paint(process, 'bold')}"
    qos = owner.qos_class or "Guaranteed"
    pod = " ".join(filter(None, (inert(found.pod), inert(owner.pod_uid))))
    yield f"pod        {paint(pod, 'bold')}  {paint(qos, CLASS_COLOURS[qos])}"
    if owner.container_id:
        what = "sandbox" if found.sandbox else "monitor" if owner.kind == "monitor" else "container"
        name = " ".join(filter(None, (inert(found.container), inert(owner.container_id))))
        yield f"{what:<9}  {paint(name, 'bold', 'cyan')}"
    yield f"made by    {_makers(owner)}"
    yield f"cgroup     {inert(owner.path)}"
    if owner.misplaced:
        yield f"{paint('misplaced', 'red')}  outside its pod's cgroup: no limit of pod, class or node applies to it"
        yield "           (the kubelet names cgroups for systemd, the runtime runs with its cgroupfs manager)"
    for controllers, path in found.elsewhere.items():
        yield f"{paint('but', 'yellow')}        {controllers}: {inert(path)}"


def _makers(owner: CgroupOwner) -> str:
    runtime = {"process": "plimsoll", "crio": "CRI-O", "containerd": "containerd"}.get(owner.runtime or "")
    if not owner.container_id:
        return f"{owner.driver} driver"
    return f"{runtime or 'containerd or plimsoll, which both name it by its plain id'}, {owner.driver} driver"
