"""`plimsoll exec`: a command in a container. `exec_session` talks; here is what may be asked."""

from __future__ import annotations

import sys
from typing import Any

import click

from plimsoll.cli.cluster import PodName, answered, cluster_options


@click.command("exec", context_settings={"allow_interspersed_args": False})
@cluster_options
@click.option("-c", "--container", default="", help="Which one. [default: the only one]")
@click.option("-i", "--stdin", "with_input", is_flag=True, help="Pass standard input on.")
@click.option("-t", "--tty", is_flag=True, help="The command gets a terminal. Needs one here, and -i.")
@click.argument("pod", type=PodName(), metavar="POD")
@click.argument("command", nargs=-1, required=True, metavar="[--] COMMAND...", type=click.UNPROCESSED)
def exec_(pod: str, command: tuple[str, ...], container: str, with_input: bool, tty: bool, **options: Any) -> int:
    """Run a command in a container; its exit code is ours. Options go before POD.

    \b
    Examples:
      plimsoll exec web -- cat /sys/fs/cgroup/memory.max
      plimsoll exec -it web -- sh
      echo hi | plimsoll exec -i -c app web -- cat
    """
    if command[0] == "--":
        command = command[1:]
    if not command:
        raise click.UsageError("which command? plimsoll exec POD -- COMMAND")
    if tty and not (sys.stdin.isatty() and with_input):
        click.echo("plimsoll: -t without a terminal, or without -i: going on without", err=True)
        tty = False
    from plimsoll.cli.exec_session import Asked, executed

    asked = Asked(pod, container, command, with_input, tty)
    return answered(options, lambda cluster: executed(cluster, asked))
