"""`plimsoll top`: live, what is closest to its lines on this machine; `top pods|nodes` asks the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plimsoll.cli import console
from plimsoll.cli.client import cluster_options
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.objects.top import KINDS, show_top
from plimsoll.cli.parameters import interval_option, names_state_option, pods_option
from plimsoll.cli.verb import Verb
from plimsoll.rules.cgroups.busiest import LEVELS, SORT_KEYS

OF_CLUSTER = ("cpu", "memory")
ONLY_CLUSTER = (
    *("selector", "no_headers", "output", "all_namespaces", "containers", "field_selector", "with_sum"),
    "show_capacity",
)


@console.command("top", cls=Verb)
@console.argument("kind", required=False, type=console.Choice([*KINDS]), metavar="[pods|nodes]")
@console.argument("name", required=False, default="", type=ObjectWords("pods"), metavar="[NAME]")
@cluster_options
@console.option("--by", type=console.Choice(LEVELS), help="Live: one line for each of these. [default: pods]")
@console.option("--filter", "text", default="", metavar="TEXT", help="Live: only names that contain the text.")
@console.option("--cgroup-root", default="/", metavar="PATH", help="Live: the parent cgroup of kubepods. [default: /]")
@interval_option
@pods_option
@names_state_option
@console.option("-l", "--selector", default="", metavar="LABELS", help="app=web,tier!=cache")
@console.option("--sort-by", type=console.Choice(SORT_KEYS), help="Largest first. [default: name; live: line]")
@console.option("--no-headers", is_flag=True, help="No column names.")
@console.option("-o", "--output", type=console.Choice(["json", "yaml"]), help="The metrics as the server has them.")
@console.option("-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces.")
@console.option("--containers", is_flag=True, help="One line for each container.")
@console.option("--field-selector", default="", metavar="FIELDS", help="Of pods: spec.nodeName=n1")
@console.option("--sum", "with_sum", is_flag=True, help="Print the sum of all listed pods.")
@console.option(
    "--show-capacity", is_flag=True, help="Show shares of the capacity of nodes, not of what is allocatable."
)
def top(
    kind: str | None,
    name: str,
    by: str | None,
    text: str,
    cgroup_root: str,
    interval: float,
    files: tuple[str, ...],
    state_dir: Path | None,
    **options: Any,
) -> int:
    """Show what is closest to its limits on this machine, or the CPU and memory that pods or nodes of a cluster use.

    `plimsoll top` shows the pods of this machine live, those closest to a memory line first: memory with its lines as a
    bar, CPU, throttling and stalls of the interval, OOM kills. In a pipe it prints one table. It needs no cluster.
    Keys: q quit, p pods, c containers, k classes, n node, s next order, / filter, space pause, arrows scroll.

    `plimsoll top pods` and `plimsoll top nodes` print the metrics of the cluster, as `kubectl top` does.

    \b
    Examples:
      plimsoll top
      plimsoll top --by containers --sort-by throttled --filter shop/
      plimsoll top pods -A --sort-by memory --sum
      plimsoll top pod web --containers
      plimsoll top nodes
    """
    if kind is None:
        given = [option for option in ONLY_CLUSTER if options[option]]
        if given:
            shown = given[0].removeprefix("with_").replace("_", "-")
            raise console.UsageError(f"--{shown} needs a kind: plimsoll top pods --{shown}")
        from plimsoll.cli.node.top_live import show_live

        return show_live(by or "pods", options["sort_by"] or "line", text, cgroup_root, interval, (files, state_dir))
    if by is not None or text:
        raise console.UsageError(f"--by and --filter belong to the live view: plimsoll top, without {kind}")
    if options["sort_by"] not in (None, *OF_CLUSTER):
        raise console.BadParameterError("the cluster's metrics have only cpu and memory", param_hint="--sort-by")
    return show_top(kind, name, options)
