"""`plimsoll explain`: manifests → tree, table, picture, JSON, YAML or a script; calculators and questions."""

from __future__ import annotations

from typing import Any

from plimsoll.cli import console
from plimsoll.cli.node_options import NodeQuestion, node_options

CALCULATORS = ("qos", "oom", "memory-high", "allocatable", "weight")
QUESTIONS = {
    "resize": ("plimsoll.cli.explain.resize", "explain_resize"),
    "eviction-order": ("plimsoll.cli.explain.eviction_order", "eviction_order"),
    "oom-order": ("plimsoll.cli.explain.oom_order", "oom_order_command"),
}
MANIFESTS = "manifests"


class ExplainGroup(console.Group):
    """The first argument may name a subcommand; otherwise it is a file, a directory or an option of the main form."""

    def parse_args(self, ctx: console.Context, args: list[str]) -> None:
        if not args or args[0] not in (*CALCULATORS, *QUESTIONS, "-h", "--help"):
            args = [MANIFESTS, *args]
        elif args[0] in ("-h", "--help"):
            args = [MANIFESTS, "--help"]
        super().parse_args(ctx, args)

    def get_command(self, name: str) -> console.Command | None:
        if name in CALCULATORS:
            from plimsoll.cli.explain import calculators

            return calculators.COMMANDS[name]
        if name in QUESTIONS:
            import importlib

            module, attribute = QUESTIONS[name]
            command: console.Command = getattr(importlib.import_module(module), attribute)
            return command
        return super().get_command(name)


@console.group(cls=ExplainGroup)
def explain() -> None:
    """Explain what a node will do with a manifest."""


class MainForm(console.Command):
    """Leave the internal name of the main form out of the usage line."""

    def make_context(
        self, name: str, args: list[str], parent: console.Context | None = None, *, resilient: bool = False
    ) -> console.Context:
        return super().make_context("", args, parent, resilient=resilient)


@explain.command(MANIFESTS, cls=MainForm)
@console.argument("files", nargs=-1, metavar="FILE|DIR|-...")
@node_options
@console.option(
    "-o", "--output", type=console.Choice(["tree", "table", "json", "yaml", "sh", "svg", "html"]), default="tree"
)
@console.option(
    "--diff", metavar="A,B", help="Show only the differences: documents,1.36 or cgroupfs,systemd or v1,v2 …"
)
@console.option("--advise", is_flag=True, help="Suggest the smallest change that makes each pod Guaranteed.")
@console.option("--brief", is_flag=True, help="Omit formulas.")
@console.option(
    "--app", metavar="NAME[=VERSION]", help="What jvm, go, node or dotnet makes of the limits: heap, CPUs, threads."
)
@console.option("--kernel", metavar="VERSION", help="The node's kernel, for --app. [default: one before 7.0]")
@console.option(
    "--topology",
    metavar="FILE",
    help="Show the CPUs, NUMA nodes and devices that each pod gets on the machine in FILE (lscpu -J -e, a Node).",
)
def manifests(files: tuple[str, ...], output: str, diff: str | None, advise: bool, brief: bool, **options: Any) -> None:
    """Explain what a node will do with each pod: QoS class, oom_score_adj, and every cgroup file with its formula.

    Reads Pods, Lists, the output of `kubectl get … -o json` and objects with a pod template (Deployment, StatefulSet,
    DaemonSet, ReplicaSet, Job, CronJob) from files, directories or standard input (-). Parts of a pod are completed:
    `spec:`, `containers:`, one container, or its `resources:`; a note says what is assumed.

    `-o svg` draws the cgroups of the node as vessels with their memory lines, formulas and CPU; `-o html` writes one
    page with the picture and a table of all values. With --diff, it has two pictures side by side.

    All kubelet flags are accepted (docs/kubelet-config.md lists them); a flag overrides the configuration file.

    \b
    Calculators for one number:
      plimsoll explain qos --request cpu=1,memory=1Gi --limit cpu=1,memory=1Gi
      plimsoll explain oom --request 1Gi --capacity 8Gi
      plimsoll explain memory-high --request 1Gi --limit 2Gi
      plimsoll explain allocatable --capacity cpu=48,memory=263192560Ki --system-reserved cpu=2,memory=4Gi
      plimsoll explain weight 250m

    \b
    What language runtimes choose under these limits:
      plimsoll explain pod.yaml --app jvm=17.0.8
      plimsoll explain pod.yaml --app go=1.24 --cgroup v2

    \b
    Questions about what happens later:
      plimsoll explain resize old.yaml new.yaml --capacity cpu=8,memory=16Gi
      plimsoll explain eviction-order pods.yaml --usage web=900Mi,batch=2Gi
      plimsoll explain oom-order pods.yaml --usage web=900Mi,batch=2Gi
    """
    from plimsoll.cli.explain import run

    if diff is not None and (output == "sh" or advise or brief):
        raise console.UsageError("--diff cannot be combined with --advise, --brief or -o sh")
    if not files:
        raise console.UsageError("specify a file, a directory, or - for standard input (see --help)")
    app, kernel, topology = options.pop("app"), options.pop("kernel"), options.pop("topology")
    if app is not None and (diff is not None or advise or brief or output not in ("tree", "json")):
        raise console.UsageError("--app can be combined with -o json only, not with --diff, --advise or --brief")
    if topology is not None and (app is not None or diff is not None or output not in ("tree", "table", "json")):
        raise console.UsageError("--topology prints a table or JSON, and cannot be combined with --diff or --app")
    question = NodeQuestion(options)
    if app is not None:
        raise SystemExit(run.run_app(files, question, app, kernel, output))
    if topology is not None:
        raise SystemExit(run.run_topology(files, question, topology, output))
    raise SystemExit(run.run(files, question, output=output, diff=diff, advise=advise, brief=brief))
