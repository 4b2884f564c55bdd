"""`plimsoll node`: the node agent in the foreground; `node setup|status|teardown`: a node's cgroups alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from plimsoll.cli.node.machine import finished, live_options, node_name, opened
from plimsoll.node.machine import LiveNode

_OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print.")


_AGENT = (
    click.option("--kubeconfig", metavar="FILE", type=click.Path(path_type=Path), help="The node's way to the API."),
    click.option("--name", metavar="NAME", help="The node's name. [default: this machine's]"),
    click.option(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:10250",
        show_default=True,
        help="Where the API server reaches the node; where it is taken, another port.",
    ),
    click.option("--node-labels", metavar="LIST", default="", help="name=value,… for the Node."),
    click.option(
        "--keep-images",
        is_flag=True,
        help="Never pull an image that is there, whatever imagePullPolicy says: for machines without a registry.",
    ),
    click.option(
        "--allow-move-system-processes",
        "allow_move",
        is_flag=True,
        help="Let systemCgroups move every process of the top cgroup into the one that it names.",
    ),
    click.option("--end-pods", is_flag=True, hidden=True, help="At the end, take away everything that was made."),
    click.option("--while-stdin", is_flag=True, hidden=True, help="End when standard input does, as after a signal."),
)


def _agent_options(command: Any) -> Any:
    for option in reversed(_AGENT):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@_agent_options
@live_options
@click.pass_context
def node(context: click.Context, /, **options: Any) -> None:
    """Be a node: run the pods that the API binds to this machine, with the limits they shall have.

    \b
    plimsoll api token create --node n1 > n1.kubeconfig
    plimsoll node --kubeconfig n1.kubeconfig --name n1 --capacity cpu=8,memory=4Gi

    It ends on SIGTERM; containers run on, and the next start finds them. The sub-commands deal with the node's cgroups
    alone (kubepods, the QoS classes, node allocatable), without any API:

    \b
    plimsoll node setup --cgroup-root /demo --capacity cpu=8,memory=4Gi
    plimsoll node status --cgroup-root /demo --capacity cpu=8,memory=4Gi
    plimsoll node teardown --cgroup-root /demo

    What a node has is computed from the options each time: give the same ones, or keep them in files
    (--node, --config).
    """
    if context.invoked_subcommand is not None:
        return
    if options["kubeconfig"] is None:
        if all(context.get_parameter_source(name) is ParameterSource.DEFAULT for name in options):
            raise click.exceptions.NoArgsIsHelpError(context)
        raise click.UsageError("give --kubeconfig FILE: plimsoll api token create --node NAME prints one")
    import asyncio

    asyncio.run(_run(opened(options), options))


async def _run(live: LiveNode, options: dict[str, Any]) -> None:
    from plimsoll.cli.daemon import allow_many_files, host_and_port, stop_event
    from plimsoll.linux.state_dir import default_state
    from plimsoll.logs import log_to_stderr
    from plimsoll.node.assembly import AgentOptions, run_node

    stop = stop_event(while_stdin=options["while_stdin"])
    log_to_stderr()
    allow_many_files()
    host, port = host_and_port(options["listen"])
    agent_options = AgentOptions(
        name=node_name(options["name"]),
        host=host,
        port=port,
        kubeconfig=options["kubeconfig"],
        # On a simulated kernel only the cgroups are temporary: pods, logs and keys are kept as usual.
        state_dir=default_state(options["state_dir"]) if live.driver.simulated else live.home,
        labels=_labels(options["node_labels"]),
        keep_images=options["keep_images"],
        allow_move_system_processes=options["allow_move"],
        end_pods=options["end_pods"],
    )
    await run_node(live, agent_options, stop, click.echo)


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for label in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = label.partition("=")
        if not equals:
            raise click.UsageError(f"--node-labels: {label!r} is not name=value")
        labels[name] = value
    return labels


@node.command(short_help="Make kubepods, the QoS classes, node allocatable.")
@live_options
@_OUTPUT
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def setup(output: str, dry_run: bool, **options: Any) -> None:
    """Make kubepods and its classes with their values, and set what is enforced on reserved cgroups.

    All or nothing: what is refused half way is taken back. What is already so is not written again.
    """
    from plimsoll.cgroups.engine.transaction import Applied
    from plimsoll.cli.printers import print_applied

    live = opened(options)
    if dry_run:
        plan = live.tree.plan()
        applied = Applied("node set-up", plan.steps, plan.unmet)
    else:
        applied = finished(live, live.tree.setup())
    print_applied(applied, output, dry_run=dry_run, notes=live.notes)


@node.command(short_help="What is set up, what differs, what is unfinished.")
@live_options
@_OUTPUT
def status(output: str, **options: Any) -> int:
    """What is set up, what differs from what it should be, what this machine cannot give. Looks only.

    Exit code 1 where something differs or was left unfinished.
    """
    live = opened(options)
    found = live.tree.status()
    if output == "json":
        document = {**msgspec.to_builtins(found), "driver": live.driver.name, "version": live.driver.version}
        document["declared_capacity"] = live.declared_capacity
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        _print_status(live, found)
    if found.in_progress:
        return 0
    return 1 if found.unfinished or (found.is_set_up and found.drift) else 0


@node.command(short_help="Remove and restore all that we changed.")
@live_options
@_OUTPUT
@click.option("--kill", is_flag=True, help="Kill what still runs in pods' cgroups.")
def teardown(output: str, kill: bool, **options: Any) -> None:
    """Remove every cgroup that we made and restore every value that we changed. Nothing of anybody else's."""
    from plimsoll.cli.printers import print_applied

    live = opened(options)
    print_applied(finished(live, live.tree.teardown(kill=kill)), output, notes=live.notes)
    if (live.home / "runtime" / "socket").exists():  # of an agent that has run here; nothing of its pods is left
        import asyncio

        from plimsoll.node.assembly import embedded_runtime, end_supervisor

        asyncio.run(end_supervisor(embedded_runtime(live, live.home)))


def _print_status(live: LiveNode, found: Any) -> None:
    from plimsoll.cgroups.engine.executor import step_text
    from plimsoll.cli.printers import counted, lines, print_unmet
    from plimsoll.cli.terminal import Paint, colourful, inert
    from plimsoll.linux.capabilities import has_capability

    paint = Paint(colourful())
    kernel = "a kernel in memory" if live.driver.simulated else f"cgroup v{live.driver.version}"
    state = paint("set up", "green") if found.is_set_up else paint("not set up", "yellow")
    click.echo(f"{found.path or '(no cgroups per QoS class)'}: {state} ({kernel}, {live.driver.name} driver)")
    if live.declared_capacity:
        click.echo(f"the node counts as {inert(live.declared_capacity)}, as declared, whatever the machine has")
    if live.setting.config.kubelet_oom_score_adj < 0 and not has_capability("SYS_RESOURCE"):
        wanted = live.setting.config.kubelet_oom_score_adj
        click.echo(
            paint(f"an agent started here cannot have oom_score_adj {wanted}: CAP_SYS_RESOURCE is missing", "yellow")
        )
    if found.refusal:
        click.echo(paint(f"nothing can be done: {inert(found.refusal)}", "red"))
    if found.in_progress:
        doing = inert(found.unfinished.subject) if found.unfinished is not None else "about to begin or to end"
        click.echo(paint(f"another plimsoll is changing it: {doing}", "yellow"))
    elif found.unfinished is not None:
        click.echo(paint(f"unfinished: {inert(found.unfinished.subject)}", "red"))
        for step in found.unfinished.steps:
            click.echo(f"  {inert(step_text(step))}")
        click.echo("  the next run undoes it: plimsoll node setup, with the same options")
    click.echo(f"pods: {len(found.pods)}")
    for title in found.pods:
        click.echo(f"  {inert(title)}")
    if found.is_set_up and found.drift and not found.in_progress:
        click.echo(paint(f"differs from what it should be in {counted(found.drift)}:", "red"))
        for line in lines(found.drift, paint):
            click.echo(f"  {line}")
    print_unmet(found.unmet, paint)
    for note in live.notes:
        click.echo(paint(f"note: {inert(note)}", "dim"), err=True)
