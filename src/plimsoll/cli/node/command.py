"""`plimsoll node`: the node agent in the foreground; `node setup|status|teardown`: only the cgroups of a node."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.node.machine import described, finished, live_options, node_name, opened
from plimsoll.cli.parameters import log_level, log_options
from plimsoll.cli.terminal import Paint, colourful, echo_json
from plimsoll.linux.files.state_dir import state_home
from plimsoll.node.machine import LiveNode

_OUTPUT = console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text", help="Output format.")


_AGENT = (
    console.option("--kubeconfig", metavar="FILE", type=console.Path(), help="The kubeconfig of the node."),
    console.option(
        "--bootstrap-kubeconfig",
        metavar="FILE",
        type=console.Path(exists=True),
        help="Credentials to request the node's certificate with; --kubeconfig is then written.",
    ),
    console.option("--name", metavar="NAME", help="The name of the node. [default: the host name]"),
    console.option(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:10250",
        show_default=True,
        help="Address of the node endpoint; if the port is in use, another one is chosen.",
    ),
    console.option("--node-labels", metavar="LIST", default="", help="Labels of the Node: name=value,…"),
    console.option(
        "--keep-images",
        is_flag=True,
        help="Never pull an image that is present, for machines without a registry; overrides imagePullPolicy.",
    ),
    console.option(
        "--allow-move-system-processes",
        "allow_move",
        is_flag=True,
        help="Allow systemCgroups to move all processes of the root cgroup into the cgroup that it names.",
    ),
    console.option(
        "--end-pods",
        is_flag=True,
        hidden=True,
        help="At the end, terminate all pods and remove everything that was created.",
    ),
    console.option("--while-stdin", is_flag=True, hidden=True, help="End when standard input is closed."),
)


def _agent_options(command: Any) -> Any:
    for option in reversed(_AGENT):
        command = option(command)
    return command


@console.group(invoke_without_command=True)
@_agent_options
@live_options
@log_options
@console.pass_context
def node(context: console.Context, /, **options: Any) -> None:
    """Run the node agent: runs the pods that are bound to this node and enforces their limits.

    \b
    plimsoll api token create --node n1 > n1.kubeconfig
    plimsoll node --kubeconfig n1.kubeconfig --name n1 --capacity cpu=8,memory=4Gi

    \b
    plimsoll node --bootstrap-kubeconfig bootstrap.kubeconfig --kubeconfig /var/lib/plimsoll/node.kubeconfig

    The agent ends on SIGTERM; containers continue to run, and the next start finds them. The subcommands manage only
    the cgroups of the node (kubepods, QoS classes, node allocatable), without an API server:

    \b
    plimsoll node setup --cgroup-root /demo --capacity cpu=8,memory=4Gi
    plimsoll node status --cgroup-root /demo --capacity cpu=8,memory=4Gi
    plimsoll node teardown --cgroup-root /demo

    The options describe the node. Use the same ones for each command, or put them into files (--node, --config).
    """
    if context.invoked_subcommand is not None:
        return
    if options["kubeconfig"] is None:
        if not context.given:
            raise console.NoArgumentsError(context)
        raise console.UsageError("--kubeconfig is required; create one with: plimsoll api token create --node NAME")
    import asyncio

    level = log_level(options)
    asyncio.run(_run(opened(options), options, described(options, context.given), level))


async def _run(live: LiveNode, options: dict[str, Any], description: dict[str, Any], level: int) -> None:
    from plimsoll.cli.daemon import allow_many_files, host_and_port, stop_event
    from plimsoll.linux.files.state_dir import default_state
    from plimsoll.logs import log_to_stderr
    from plimsoll.node.assembly import AgentOptions, run_node
    from plimsoll.node.reporting.bootstrap import bootstrap, is_needed

    stop = stop_event(while_stdin=options["while_stdin"])
    log_to_stderr(level)
    allow_many_files()
    host, port = host_and_port(options["listen"])
    name = node_name(options["name"])
    if options["bootstrap_kubeconfig"] is not None and is_needed(options["kubeconfig"]):
        await bootstrap(options["bootstrap_kubeconfig"], options["kubeconfig"], name)
    agent_options = AgentOptions(
        name=name,
        host=host,
        port=port,
        kubeconfig=options["kubeconfig"],
        # On a simulated kernel only the cgroups are temporary: pods, logs and keys are kept as usual.
        state_dir=default_state(options["state_dir"]) if live.driver.simulated else live.home,
        labels=_labels(options["node_labels"]),
        keep_images=options["keep_images"],
        allow_move_system_processes=options["allow_move"],
        end_pods=options["end_pods"],
        described=description,
    )
    await run_node(live, agent_options, stop, console.echo)


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for label in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = label.partition("=")
        if not equals:
            raise console.UsageError(f"--node-labels: {label!r} is not name=value")
        labels[name] = value
    return labels


@node.command(short_help="Create kubepods and the QoS cgroups.")
@live_options
@_OUTPUT
@console.option("--dry-run", is_flag=True, help="Only print the planned changes.")
def setup(output: str, dry_run: bool, **options: Any) -> None:
    """Create kubepods and the QoS cgroups, and set the limits of reserved cgroups.

    Writes only what differs. If a step fails, all changes are rolled back.
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


@node.command(short_help="Show the state of the cgroups, and what differs.")
@live_options
@_OUTPUT
@console.pass_context
def status(context: console.Context, /, output: str, **options: Any) -> int:
    """Show whether the cgroups are set up, what differs from the desired state, and what this machine does not support.

    Options that you do not set are those of the node agent that uses the state directory. Changes nothing. Exit code 1
    if something differs or a change is incomplete.
    """
    from plimsoll.cgroups.drivers.detect import CgroupsUnusableError
    from plimsoll.node.agent_lock import options_of_agent, why_unenforced

    home = options["state_dir"] or state_home(dict(os.environ), os.geteuid())
    if not options["simulate"]:
        of_agent = options_of_agent(home) or {}
        options |= {name: value for name, value in of_agent.items() if name not in context.given}
    unenforced = why_unenforced(home)
    try:
        live = opened(options)
    except CgroupsUnusableError as error:
        if not unenforced:
            raise
        console.echo(f"the node agent that runs here enforces no limits: {error}")
        return 1
    found = live.tree.status()
    if output == "json":
        document = {**msgspec.to_builtins(found), "driver": live.driver.name, "version": live.driver.version}
        document["declared_capacity"] = live.declared_capacity
        document["unenforced"] = unenforced
        echo_json(document)
    else:
        if unenforced:
            console.echo(
                Paint(colourful())(f"the node agent that runs here enforces no limits: {unenforced}", "yellow")
            )
        _print_status(live, found)
    if found.in_progress:
        return 0
    return 1 if found.unfinished or (found.is_set_up and found.drift) else 0


@node.command(short_help="Remove the cgroups and restore changed values.")
@live_options
@_OUTPUT
@console.option("--kill", is_flag=True, help="Kill processes that still run in the cgroups of pods.")
def teardown(output: str, kill: bool, **options: Any) -> None:
    """Remove all cgroups that Plimsoll created and restore all values that it changed. Others are not touched."""
    from plimsoll.cli.printers import print_applied

    live = opened(options)
    print_applied(finished(live, live.tree.teardown(kill=kill)), output, notes=live.notes)
    if (live.home / "runtime" / "socket").exists():  # an agent has run here; its pods are removed now
        import asyncio

        from plimsoll.node.embedded_runtime import embedded_runtime, end_supervisor

        asyncio.run(end_supervisor(embedded_runtime(live, live.home)))


def _supervisor_notes(live: LiveNode) -> list[str]:
    """Of the embedded runtime's supervisor, if one runs. Which paths it hides is the agent's to compare."""
    if not (live.home / "runtime" / "socket").exists():
        return []
    import asyncio

    from plimsoll.node.embedded_runtime import embedded_runtime, runtime_warnings
    from plimsoll.runtime.embedded.connection import reached
    from plimsoll.runtime.interface import RuntimeCallError

    listening = reached(live.home / "runtime")
    if listening is None:
        return []  # it was killed; the next agent starts another
    listening.close()

    async def read() -> list[str]:
        runtime = embedded_runtime(live, live.home)
        await runtime.open(as_found=True)
        try:
            runtime.differences = tuple(name for name in runtime.differences if name != "hidden paths")
            return [sentence for _, sentence in runtime_warnings(runtime)]
        finally:
            await runtime.close()

    try:
        return asyncio.run(read())
    except RuntimeCallError as error:
        return [f"the supervisor of the containers does not answer: {error}"]


def _print_status(live: LiveNode, found: Any) -> None:
    from plimsoll.cgroups.engine.executor import step_text
    from plimsoll.cli.printers import counted, lines, print_unmet
    from plimsoll.cli.terminal import inert
    from plimsoll.linux.capabilities import has_capability

    paint = Paint(colourful())
    kernel = "simulated kernel" if live.driver.simulated else f"cgroup v{live.driver.version}"
    state = paint("set up", "green") if found.is_set_up else paint("not set up", "yellow")
    console.echo(f"{found.path or '(no cgroups per QoS class)'}: {state} ({kernel}, {live.driver.name} driver)")
    if live.declared_capacity:
        console.echo(f"declared capacity: {inert(live.declared_capacity)} (not that of the machine)")
    if live.setting.config.kubelet_oom_score_adj < 0 and not has_capability("SYS_RESOURCE"):
        wanted = live.setting.config.kubelet_oom_score_adj
        console.echo(
            paint(f"the agent cannot set its oom_score_adj to {wanted}: CAP_SYS_RESOURCE is missing", "yellow")
        )
    for sentence in _supervisor_notes(live):
        console.echo(paint(inert(sentence), "yellow"))
    if found.refusal:
        console.echo(paint(f"changes are refused: {inert(found.refusal)}", "red"))
    if found.in_progress:
        doing = inert(found.unfinished.subject) if found.unfinished is not None else "starting or ending"
        console.echo(paint(f"another plimsoll process is changing it: {doing}", "yellow"))
    elif found.unfinished is not None:
        console.echo(paint(f"incomplete: {inert(found.unfinished.subject)}", "red"))
        for step in found.unfinished.steps:
            console.echo(f"  {inert(step_text(step))}")
        console.echo("  the next change rolls it back: run plimsoll node setup with the same options")
    console.echo(f"pods: {len(found.pods)}")
    for title in found.pods:
        console.echo(f"  {inert(title)}")
    if found.is_set_up and found.drift and not found.in_progress:
        console.echo(paint(f"differs from the desired state, {counted(found.drift)} needed:", "red"))
        for line in lines(found.drift, paint):
            console.echo(f"  {line}")
    print_unmet(found.unmet, paint)
    for note in live.notes:
        console.echo(paint(f"note: {inert(note)}", "dim"), err=True)
