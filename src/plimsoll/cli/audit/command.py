"""`plimsoll audit`: gathers the evidence, asks the rules, prints the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plimsoll.cli import console
from plimsoll.cli.audit.output import PRINTERS, prometheus_text, rule_lines, table_lines
from plimsoll.cli.audit.sources import Gathered, by_socket, live
from plimsoll.cli.client import cluster_options
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.terminal import Paint, colourful, inert
from plimsoll.rules.audit.finding import NodeReport, exit_code
from plimsoll.rules.audit.table import RULES, audit
from plimsoll.rules.profile import RELEASES

MAIN, EXPLAIN = "node", "explain"


class AuditGroup(console.Group):
    """The first argument may be `explain`; otherwise it is a node or an option of the main form."""

    def parse_args(self, ctx: console.Context, args: list[str]) -> None:
        if args[:1] != [EXPLAIN]:
            args = [MAIN, *args]
        super().parse_args(ctx, args)


class MainForm(console.Command):
    """Leave the internal name of the main form out of the usage line."""

    def make_context(
        self, name: str, args: list[str], parent: console.Context | None = None, *, resilient: bool = False
    ) -> console.Context:
        return super().make_context("", args, parent, resilient=resilient)


@console.group("audit", cls=AuditGroup)
def audit_group() -> None:
    """Show where the kernel of a node differs from what its pods declare."""


@audit_group.command(MAIN, cls=MainForm)
@console.argument("nodes", nargs=-1, type=ObjectWords("nodes"), metavar="[NODE...]")
@console.option(
    "--all-nodes", is_flag=True, help="Audit every node of the cluster, as far as it can be seen from here."
)
@console.option(
    "--from-dump", metavar="DIR", help="Audit a dump, or a directory with outputs of kubectl get … -o json."
)
@console.option("--dump", "dump_to", metavar="DIR", help="Write everything that is read to a new directory.")
@console.option("--pods-socket", metavar="PATH", help="Ask the kubelet's PodsAPI (1.37) for pods, not the API server.")
@console.option("--rule", "only", multiple=True, metavar="ID", help="Only this rule; repeat it, or use commas.")
@console.option("--ignore", multiple=True, metavar="ID", help="Not this rule; repeat it, or use commas.")
@console.option(
    "--since", metavar="DIR", help="Compare with an earlier dump, to see values that were overwritten (A22)."
)
@console.option(
    "--watch", "interval_s", type=console.FloatRange(1), metavar="SECONDS", help="Repeat, and report changes."
)
@console.option("--serve", metavar="HOST:PORT", help="With --watch: serve the metrics of the last audit at /metrics.")
@console.option(
    "--config", "config_file", metavar="FILE", help="The kubelet's configuration. [default: as it runs here]"
)
@console.option("--profile", type=console.Choice(RELEASES), help="The kubelet's release. [default: that of the Node]")
@console.option("--oci-runtime", default="", metavar="TEXT", help="The OCI runtime of the node, such as 'runc 1.3.2'.")
@console.option("--no-processes", is_flag=True, help="Do not read the processes of containers.")
@console.option("--all", "everything", is_flag=True, help="Show every finding of every rule.")
@console.option("-o", "--output", type=console.Choice(["table", "json", "sarif", "prom"]), default="table")
@cluster_options
def audit_nodes(nodes: tuple[str, ...], output: str, **options: Any) -> int:
    """Show where the kernel of a node differs from what its pods declare, why, who wrote it, and what to do.

    Reads the pods of the node from the API (or from a dump, or from the kubelet's socket), and on this machine the
    cgroups, the processes of containers, the kernel and the kubelet's configuration. Writes nothing to the node.

    Exit code 0: clean, 1: something differs, 2: nothing differs, but a rule cannot tell.

    \b
    Examples:
      plimsoll audit
      plimsoll audit explain A02
      plimsoll audit --rule A02,A05 --all
      plimsoll audit --all-nodes -o json
      plimsoll audit --dump /tmp/node1 && plimsoll audit --from-dump /tmp/node1
      kubectl get pods -A -o json > d/pods.json; kubectl get nodes -o json > d/nodes.json; plimsoll audit --from-dump d
      plimsoll audit --watch 60 --serve 127.0.0.1:9755
    """
    rules = chosen_rules(options["only"], options["ignore"])
    sources = [name for name in ("from_dump", "pods_socket") if options[name]]
    if len(sources) > 1 or (options["from_dump"] and (options["all_nodes"] or options["dump_to"])):
        raise console.UsageError("--from-dump cannot be combined with --pods-socket, --all-nodes or --dump")
    if options["from_dump"] and (options["config_file"] or options["profile"]):
        raise console.UsageError("--config and --profile are about this machine: a dump has its own")
    if options["serve"] and not options["interval_s"]:
        raise console.UsageError("--serve needs --watch SECONDS")
    if options["interval_s"]:
        if options["from_dump"] or options["dump_to"]:
            raise console.UsageError("--watch needs a live node: it cannot be combined with dumps")
        from plimsoll.cli.audit.watch import watched

        return watched(lambda: gathered(nodes, options), rules, options, output)
    found = gathered(nodes, options)
    if options["dump_to"]:
        _write(Path(options["dump_to"]), found)
    reports = _with_history(found, options["since"], rules) if options["since"] else _audited(found, rules)
    show(reports, output, everything=options["everything"])
    for note in found.notes:
        console.echo(f"note: {inert(note)}", err=True)
    return exit_code(reports)


@audit_group.command(EXPLAIN)
@console.argument("rules", nargs=-1, metavar="[RULE...]")
def explain_rules(rules: tuple[str, ...]) -> None:
    """Show what a rule checks, why it matters and what to do; without RULE, list all rules."""
    paint = Paint(colourful())
    if not rules:
        for rule in RULES.values():
            console.echo(f"{paint(rule.id, 'bold')}  {rule.severity:<8}  {rule.title}")
        return
    for index, id in enumerate(rules):
        if index:
            console.echo()
        for line in rule_lines(RULES[_known(id)], paint):
            console.echo(line)


def chosen_rules(only: Sequence[str], ignored: Sequence[str]) -> list[str]:
    wanted = [_known(id) for text in only for id in text.split(",")] or list(RULES)
    dropped = {_known(id) for text in ignored for id in text.split(",")}
    chosen = [id for id in RULES if id in wanted and id not in dropped]
    if not chosen:
        raise console.UsageError("--ignore leaves no rule of those that --rule names")
    return chosen


def _known(text: str) -> str:
    id = text.strip().upper()
    if id not in RULES:
        raise console.UsageError(f"unknown rule {text!r}; `plimsoll audit explain` lists them")
    return id


def gathered(nodes: tuple[str, ...], options: dict[str, Any]) -> Gathered:
    if options["from_dump"]:
        return _from_dump(Path(options["from_dump"]), nodes)
    if options["pods_socket"]:
        return by_socket(options["pods_socket"], options)
    return live(nodes, options, all_nodes=options["all_nodes"])


def _from_dump(directory: Path, nodes: tuple[str, ...]) -> Gathered:
    from plimsoll.audit.dump import read_dump

    dump = read_dump(directory)
    found = [each for each in dump.evidence() if not nodes or each.name in nodes]
    if not found:
        raise console.CommandError(
            f"{directory} has no node {', '.join(nodes)}; it has {', '.join(dump.nodes) or 'none'}"
        )
    return Gathered(found, notes=dump.problems)


def _write(directory: Path, found: Gathered) -> None:
    from plimsoll.audit.dump import write_dump

    write_dump(directory, found.node_documents, found.pod_documents, {each.name: each.record for each in found.nodes})
    console.echo(f"note: written to {directory}; it has no secrets and no environments", err=True)


def _audited(found: Gathered, rules: Sequence[str]) -> list[NodeReport]:
    return [audit(each, rules) for each in found.nodes]


def _with_history(found: Gathered, since: str, rules: Sequence[str]) -> list[NodeReport]:
    from plimsoll.audit.dump import read_dump
    from plimsoll.rules.audit.overwrites import with_overwrites

    before = {each.name: each for each in read_dump(Path(since)).evidence()}
    return [
        audit(with_overwrites(before[each.name], each) if each.name in before else each, rules) for each in found.nodes
    ]


def show(reports: Sequence[NodeReport], output: str, *, everything: bool) -> None:
    if output == "prom":
        console.echo(prometheus_text(reports, time.time()).rstrip("\n"))
        return
    printer: Callable[[Sequence[NodeReport]], Any] = (
        PRINTERS[output] if output in PRINTERS else lambda given: table_lines(given, everything=everything)
    )
    for line in printer(reports):
        console.echo(line)
