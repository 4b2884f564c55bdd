"""`plimsoll whose PID`: the pod and the container that a process belongs to, from /proc/PID/cgroup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from plimsoll.cgroups.stats.live_tree import is_sandbox
from plimsoll.cli import console
from plimsoll.cli.parameters import names_state_option, pods_option
from plimsoll.cli.pod_names import PodNames, every_pod_name
from plimsoll.cli.terminal import CLASS_COLOURS, Paint, colourful, echo_paragraphs, inert
from plimsoll.codec.kernel.files import OwnCgroup
from plimsoll.errors import StructuredError
from plimsoll.linux.processes import cgroups_of, oom_score_adj, stat
from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner, Placed, placed

NOT_IN_A_POD = 1  # exit code; 2 means that the question could not be answered


class NoSuchProcessError(StructuredError):
    pid: int
    template = (
        "process {pid} not found: it has ended, or the pid is from inside a container; "
        "`grep NSpid /proc/*/status` shows both pids of each process"
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


@console.command("whose")
@console.argument("pids", nargs=-1, required=True, type=console.IntRange(1), metavar="PID...")
@pods_option
@names_state_option
@console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text")
def whose(pids: tuple[int, ...], files: tuple[str, ...], state_dir: Path | None, output: str) -> int:
    """Show which pod and container a process belongs to.

    Exit code 1 if a process does not belong to a pod.
    """
    names = every_pod_name(files, state_dir)
    answers = [answer(pid, names) for pid in pids]
    if output == "json":
        shown = msgspec.json.encode(answers if len(answers) > 1 else answers[0])
        console.echo(msgspec.json.format(shown, indent=2).decode())
    else:
        paint = Paint(colourful())
        echo_paragraphs(lines(each, paint) for each in answers)
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
        yield f"process    {paint(process, 'bold')} does not belong to a pod"
        yield f"cgroup     {inert(owner.path)}"
        if owner.path.startswith("/.."):
            yield paint("           read in another cgroup namespace: run this command outside the container", "dim")
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
        yield f"{paint('misplaced', 'red')}  outside the cgroup of its pod: limits of pod, class and node do not apply"
        yield "           (the kubelet uses the systemd driver, the runtime uses cgroupfs)"
    for controllers, path in found.elsewhere.items():
        yield f"{paint('but', 'yellow')}        {controllers}: {inert(path)}"


def _makers(owner: CgroupOwner) -> str:
    runtime = {"process": "plimsoll", "crio": "CRI-O", "containerd": "containerd"}.get(owner.runtime or "")
    if not owner.container_id:
        return f"{owner.driver} driver"
    return f"{runtime or 'containerd or plimsoll (both use the plain id)'}, {owner.driver} driver"
