"""`plimsoll explain oom-order`: what the kernel kills first when the machine is out of memory.

From manifests: the oom_score_adj and assumed usage of each container. Without files: the processes of this machine,
read from /proc, with the pod of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plimsoll.cli import console
from plimsoll.cli.explain.usage import assumed, usage_file_option
from plimsoll.cli.manifests import stored_inputs
from plimsoll.cli.node_options import NodeQuestion, node_options
from plimsoll.cli.parameters import names_state_option
from plimsoll.cli.terminal import Paint, colourful, echo_json, inert, table
from plimsoll.rules.cgroups.desired import Workload, workload
from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.model.objects import is_sidecar
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.oom.order import OomCandidate, OomRank, oom_order

SHOWN = 20


@console.command("oom-order")
@console.argument("files", nargs=-1, metavar="[FILE|DIR|-...]")
@node_options
@console.option(
    "--usage", "usage_text", default="", metavar="LIST", help="web=500Mi, or web/app=400Mi for one container."
)
@usage_file_option
@console.option(
    "--all", "everything", is_flag=True, help=f"Show all processes of this machine, not only the first {SHOWN}."
)
@names_state_option
@console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text")
def oom_order_command(
    files: tuple[str, ...],
    usage_text: str,
    usage_file: str | None,
    everything: bool,
    state_dir: Path | None,
    output: str,
    **options: Any,
) -> int:
    """Show what the kernel kills first: the memory share in thousandths plus oom_score_adj, highest first.

    \b
    Examples:
      plimsoll explain oom-order pods.yaml --usage web=900Mi,batch=200Mi --capacity cpu=8,memory=16Gi
      plimsoll explain oom-order            # the processes of this machine
    """
    setting, _ = NodeQuestion(options).setting()
    memory = setting.machine.memory_bytes + setting.machine.swap_bytes
    notes: list[str] = []
    if files:
        candidates = _from_files(files, usage_text, usage_file, setting, notes)
    else:
        if usage_text or usage_file:
            raise console.UsageError("--usage needs files; for the processes of this machine it is measured")
        candidates = _of_this_machine(state_dir)
    order = oom_order(candidates, memory)
    if files:
        console.echo(f"profile {setting.profile.name}: {inert(setting.profile_reason)}", err=output == "json")
    if output == "json":
        echo_json(order)
        return 0
    shown = order if files or everything else order[:SHOWN]
    for line in _lines(shown, len(order), memory, Paint(colourful()), live=not files):
        console.echo(line)
    for note in notes:
        console.echo(f"note: {inert(note)}", err=True)
    return 0


def _from_files(
    files: Sequence[str], usage_text: str, usage_file: str | None, setting: NodeConfig, notes: list[str]
) -> list[OomCandidate]:
    inputs = stored_inputs(files, setting.policy.gates, fragments=True)
    if not inputs.pods:
        raise console.CommandError("the input contains no pods")
    notes += inputs.passed
    works = [workload(given.pod, setting, title=given.found.title) for given in inputs.pods]
    amounts, reported = assumed(usage_text, usage_file)
    left = dict(amounts)
    found = []
    for work in works:
        metadata = work.pod.metadata
        key = metadata.namespace, metadata.name
        report = reported.get((metadata.namespace or "default", metadata.name)) or reported.get(key)
        sets = {} if report is None else {each.name: each.memory_bytes for each in report.containers}
        for container, score in zip(work.containers, work.scores, strict=True):
            if container in work.pod.spec.init_containers and not is_sidecar(container):
                continue  # it has ended when memory runs out
            used = _said(left, amounts, work, container.name)
            found.append(
                OomCandidate(
                    container.name,
                    used if used is not None else sets.get(container.name),
                    score,
                    metadata.namespace,
                    work.title,
                    container.name,
                )
            )
    if left:
        names = ", ".join(f"{each.pod}/{each.container}" for each in found)
        raise console.BadParameterError(
            f"no container {', '.join(left)}; the containers are: {names}", param_hint="--usage"
        )
    silent = sum(each.used_bytes is None for each in found)
    if silent:
        notes.append(f"{silent} of {len(found)} containers have no known usage; 0 is assumed")
    return found


def _said(left: dict[str, int], amounts: dict[str, int], work: Workload, container: str) -> int | None:
    """The amount of one container, or of its pod if that has only one."""
    metadata = work.pod.metadata
    titles = {metadata.name, work.title, f"{metadata.namespace or 'default'}/{metadata.name}"}
    for name, amount in amounts.items():
        if name in {f"{title}/{container}" for title in titles}:
            left.pop(name, None)
            return amount
        if name in titles:
            if len(work.containers) > 1:
                listed = ", ".join(f"{work.title}/{each.name}" for each in work.containers)
                raise console.BadParameterError(
                    f"{name!r} has several containers, name one: {listed}", param_hint="--usage"
                )
            left.pop(name, None)
            return amount
    return None


def _of_this_machine(state_dir: Path | None) -> list[OomCandidate]:
    from plimsoll.cli.pod_names import every_pod_name
    from plimsoll.linux.process_memory import every_process
    from plimsoll.linux.processes import cgroups_of
    from plimsoll.rules.cgroups.cgroup_owner import placed

    names = every_pod_name((), state_dir)
    found = []
    for process in every_process():
        cgroups = cgroups_of(process.pid) or []
        owner = placed((each.controllers, each.path) for each in cgroups).owner if cgroups else None
        uid, container = (owner.pod_uid, owner.container_id) if owner is not None else ("", "")
        namespace, _, pod = names.pods.get(uid, "").rpartition("/")
        found.append(
            OomCandidate(
                process.name,
                process.used_bytes,
                process.oom_score_adj,
                namespace,
                pod or uid,
                names.containers.get(container, container[:12]),
                process.pid,
                process.oom_score,
            )
        )
    return found


def _lines(order: Sequence[OomRank], total: int, memory: int, paint: Paint, *, live: bool) -> Iterator[str]:
    what = "processes of this machine" if live else "containers"
    yield f"{paint(what, 'bold')} in the order in which the kernel kills ({human_bytes(memory)} of memory and swap)"
    head = ("#", *(("PID",) if live else ()), "NAME", "POD", "USES", "SHARE ‰", "ADJ", "POINTS")
    rows = []
    for place, rank in enumerate(order, 1):
        each = rank.candidate
        pod = "/".join(filter(None, (each.namespace, each.pod, each.container if live else "")))
        rows.append(
            [
                "-" if rank.exempt else str(place),
                *([str(each.pid)] if live else []),
                inert(each.name),
                inert(pod) or "-",
                "not said" if each.used_bytes is None else human_bytes(each.used_bytes),
                str(rank.share),
                str(each.oom_score_adj),
                "exempt" if rank.exempt else str(rank.points),
            ]
        )
    lines = list(table(rows, head))
    yield paint(lines[0], "dim")
    yield from lines[1:]
    if total > len(order):
        yield paint(f"and {total - len(order)} more (--all)", "dim")
