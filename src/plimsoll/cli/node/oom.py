"""`plimsoll oom [POD]`: shows processes that the kernel killed for memory, at which limit, and the other candidates."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, PodName, answered, cluster_options
from plimsoll.cli.node_info import node_page
from plimsoll.cli.parameters import names_state_option, pods_option
from plimsoll.cli.terminal import Paint, colourful, echo_json, hanging, inert, table
from plimsoll.codec.node_pages import KillShown, OomPage
from plimsoll.rules.cgroups.reasons import human_bytes

CANDIDATES = 5
FACT = 13  # where the text of a fact begins
STAT_SHOWN = ("anon", "file", "kernel", "kernel_stack", "slab", "shmem", "rss", "cache")


@console.command("oom")
@console.argument("pod", type=PodName(), required=False, metavar="[POD]")
@cluster_options
@console.option("--on", "node_name", default="", metavar="NODE", help="Only kills on this node. [default: all nodes]")
@console.option("--here", is_flag=True, help="Read the log and the cgroups of this machine; needs no cluster.")
@console.option("--journal", type=console.Path(), help="With --here: a file with kills that were seen before.")
@console.option("--watch", is_flag=True, help="With --here and --journal: add kills to it as they happen.")
@pods_option
@names_state_option
@console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text")
def oom(pod: str | None, node_name: str, output: str, **options: Any) -> int:
    """Show which processes the kernel killed for memory, newest last, in all namespaces unless -n is used.

    Exit code 1 if there is no such pod, and no kill of a former pod with this name.

    Asks Plimsoll's nodes. On a node that a kubelet runs, use --here there: the kernel's log has kills until it is
    overwritten; a journal keeps them after containers have ended (--watch writes it, as a service).

    \b
    Examples:
      plimsoll oom
      plimsoll oom web
      plimsoll oom --on n1 -o json
      kubectl get pods -A -o json > pods.json; plimsoll oom --here --pods pods.json
      plimsoll oom --here --watch --journal /var/lib/plimsoll/oom.jsonl
    """
    if not options["here"] and (options["journal"] or options["watch"] or options["files"]):
        raise console.UsageError("--journal, --watch and --pods need --here")
    if options["watch"] and not options["journal"]:
        raise console.UsageError("--watch needs --journal FILE")
    if options["here"]:
        return _here(pod or "", output, options)
    kills, notes = answered(
        options, lambda cluster: _asked(cluster, pod or "", node_name, options["namespace"]), has_here=True
    )
    _print(kills, notes, output)
    return 0


def _print(kills: Sequence[KillShown], notes: Sequence[str], output: str) -> None:
    if output == "json":
        echo_json({"kills": kills})
    else:
        for line in lines(kills, time.time(), Paint(colourful())):
            console.echo(line)
    for note in notes:
        console.echo(f"note: {inert(note)}", err=True)


def _here(pod: str, output: str, options: dict[str, Any]) -> int:
    from plimsoll.cli.node import oom_here
    from plimsoll.cli.pod_names import every_pod_name

    names, journal = every_pod_name(options["files"], options["state_dir"]), options["journal"]
    kept = oom_here.read_journal(journal) if journal else []
    notes, kills = [], []
    reader = None
    try:
        reader = oom_here.KillReader(names)
        kills = reader.read()
    except OSError as error:
        notes.append(f"the kernel's log cannot be read ({error.strerror}): only counters and the journal are shown")
    found = oom_here.merged(kept, kills)
    if journal:
        oom_here.append(journal, [each for each in found if each not in kept])
    found += oom_here.counted_kills(found, names, time.time())
    wanted = [oom_here.shown(each) for each in found if not pod or each.pod == pod]
    _print(wanted, notes, output)
    if options["watch"]:
        if reader is None:
            return 2
        while reader.wait(None):
            fresh = reader.read()
            oom_here.append(journal, fresh)
            for line in (
                lines([oom_here.shown(each) for each in fresh], time.time(), Paint(colourful())) if fresh else ()
            ):
                console.echo(line)
    return 0


async def _asked(cluster: ClusterClient, pod: str, node_name: str, namespace: str) -> tuple[list[KillShown], list[str]]:
    """The kills that the nodes report, and errors of nodes that cannot be read. Raises if no such pod is known."""
    from plimsoll.cli.node_info import chosen_node
    from plimsoll.errors import PlimsollError
    from plimsoll.kube.request import NODES, listing

    if node_name:
        described = [await chosen_node(cluster, node_name)]
    else:
        described = (await cluster.ask(listing(NODES))).get("items") or []
    nodes = [str(node["metadata"]["name"]) for node in described]
    kills: list[KillShown] = []
    failures: list[PlimsollError] = []
    for node in nodes:
        try:
            kills += (await node_page(cluster, node, "oom", OomPage)).kills
        except PlimsollError as error:
            failures.append(error)
    if failures and len(failures) == len(nodes):
        raise failures[0]
    wanted = [each for each in kills if (not pod or each.pod == pod) and namespace in ("", each.namespace)]
    if pod and not wanted:
        await _existing(cluster, pod, namespace)
    return sorted(wanted, key=lambda each: each.time_s), list(map(str, failures))


async def _existing(cluster: ClusterClient, pod: str, namespace: str) -> None:
    """A pod without kills must exist; one with kills may be gone already."""
    from plimsoll.cli.failure import FailedError
    from plimsoll.kube.request import PODS, get, listing

    if namespace:
        await cluster.ask(get(PODS, pod, namespace))
    elif not (await cluster.ask(listing(PODS, fields=f"metadata.name={pod}"))).get("items"):
        raise FailedError(f'Error from server (NotFound): pods "{pod}" not found in any namespace')


def lines(kills: Sequence[KillShown], now_s: float, paint: Paint) -> Iterator[str]:
    if not kills:
        yield "No OOM kills found."
        return
    for index, kill in enumerate(kills):
        if index:
            yield ""
        yield from _kill(kill, now_s, paint)


def _kill(kill: KillShown, now_s: float, paint: Paint) -> Iterator[str]:
    from plimsoll.rules.timestamps import human_duration, rfc3339

    where = "/".join(filter(None, (kill.namespace, kill.pod or kill.pod_uid))) or "no pod"
    yield (
        f"{paint(rfc3339(kill.time_s), 'dim')}  {human_duration(now_s - kill.time_s)} ago  "
        f"{paint(inert(where), 'bold')}{f' {inert(kill.container)}' if kill.container else ''}"
    )
    yield f"  {hanging(inert(kill.sentence), 2)}"
    facts = []
    if kill.process:
        adj = "" if kill.oom_score_adj is None else f", oom_score_adj {kill.oom_score_adj}"
        facts.append(("process", f"{kill.process} (pid {kill.pid}){adj}"))
    if kill.limit_path:
        facts.append(("limit of", kill.limit_path))
    if kill.limit_bytes is not None:
        facts.append(("limit", human_bytes(kill.limit_bytes)))
    if kill.usage_bytes is not None:
        age = "" if kill.sample_age_s is None else f", {kill.sample_age_s:.1f} s before"
        facts.append(("used", f"{human_bytes(kill.usage_bytes)}{age}"))
    stat = [f"{name} {human_bytes(kill.stat[name])}" for name in STAT_SHOWN if kill.stat.get(name)]
    if stat:
        facts.append(("memory", ", ".join(stat)))
    facts.append(("source", kill.source))
    for title, text in facts:
        yield f"  {paint(f'{title:<10}', 'dim')} {hanging(inert(text), FACT)}"
    if kill.candidates:
        ordered = sorted(kill.candidates, key=lambda each: -each.resident_bytes)
        rows = [
            [f"    {each.pid}", inert(each.name), human_bytes(each.resident_bytes), str(each.oom_score_adj)]
            for each in ordered[:CANDIDATES]
        ]
        yield from table(rows, ("    PID", "CANDIDATE", "RESIDENT", "ADJ"))
        if len(ordered) > CANDIDATES:
            yield paint(f"    and {len(ordered) - CANDIDATES} more", "dim")
