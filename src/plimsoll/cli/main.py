"""`plimsoll`: the verbs and their one-line descriptions. A verb's module is imported when the verb is used."""

from __future__ import annotations

import gc

# Before the imports: they are most of a short command's time, and leave nothing to collect.
gc.set_threshold(100_000, 20, 100)

# ruff: noqa: E402
import importlib
import os
import sys
from contextlib import suppress
from typing import Any

import click

from plimsoll import __version__

# verb → (module, its click command, the line in --help)
VERBS = {
    "explain": (
        "plimsoll.cli.explain.command",
        "explain",
        "Explain what a node will do with a manifest: every value with its formula.",
    ),
    "plan": (
        "plimsoll.cli.explain.plan",
        "plan",
        "Compute the same for many pods: JSON lines in, one JSON result per line out.",
    ),
    "upgrade-check": (
        "plimsoll.cli.explain.upgrade_check",
        "upgrade_check",
        "Show what an upgrade changes for pods and nodes, and why.",
    ),
    "tree": ("plimsoll.cli.node.tree", "tree", "Show the live cgroups of this machine: usage, limits, throttling."),
    "whose": ("plimsoll.cli.node.owner", "whose", "Show which pod and container a process belongs to."),
    "get": (
        "plimsoll.cli.objects.get",
        "get",
        "Display objects as a table, JSON, YAML, names or columns; -w watches them.",
    ),
    "describe": ("plimsoll.cli.objects.describe", "describe", "Show details of an object and its events."),
    "apply": ("plimsoll.cli.objects.apply", "apply", "Create or update objects from files (server-side apply)."),
    "delete": ("plimsoll.cli.objects.delete", "delete", "Delete objects and wait until they are gone."),
    "create": ("plimsoll.cli.objects.apply", "create", "Create objects from files, or a namespace."),
    "label": ("plimsoll.cli.objects.metadata", "label", "Set, replace or remove labels."),
    "annotate": ("plimsoll.cli.objects.metadata", "annotate", "Set, replace or remove annotations."),
    "scale": ("plimsoll.cli.objects.scale", "scale", "Set the number of replicas."),
    "wait": ("plimsoll.cli.objects.wait", "wait", "Wait for a condition or a value of objects."),
    "logs": ("plimsoll.cli.objects.logs", "logs", "Print the logs of containers."),
    "exec": ("plimsoll.cli.objects.exec", "exec_", "Execute a command in a container."),
    "attach": ("plimsoll.cli.objects.exec", "attach", "Attach to the process of a running container."),
    "port-forward": ("plimsoll.cli.objects.port_forward", "port_forward", "Forward local ports to ports of a pod."),
    "events": ("plimsoll.cli.objects.events", "events", "List events, newest last."),
    "top": ("plimsoll.cli.objects.top", "top", "Show the CPU and memory that pods or nodes use."),
    "cordon": ("plimsoll.cli.objects.drain", "cordon", "Mark nodes as unschedulable."),
    "uncordon": ("plimsoll.cli.objects.drain", "uncordon", "Mark nodes as schedulable."),
    "drain": ("plimsoll.cli.objects.drain", "drain", "Evict the pods of a node, as before maintenance."),
    "resize": (
        "plimsoll.cli.resize.command",
        "resize",
        "Change the CPU or memory of a running pod; shows a forecast first.",
    ),
    "pressure": (
        "plimsoll.cli.node.pressure",
        "pressure",
        "Show the eviction signals and thresholds of a node, and which pods are next.",
    ),
    "oom": ("plimsoll.cli.node.oom", "oom", "Show which processes the kernel killed for memory."),
    "node": (
        "plimsoll.cli.node.command",
        "node",
        "Run the node agent; or set up, check and remove only its cgroups.",
    ),
    "cgroup": (
        "plimsoll.cli.node.cgroup",
        "cgroup",
        "Create, use and remove cgroups of pods on this machine, without Kubernetes.",
    ),
    "api": ("plimsoll.cli.server.api", "api", "Run the API server, for kubectl and other clients."),
    "scheduler": ("plimsoll.cli.server.scheduler", "scheduler", "Run only the scheduler, for any control plane."),
    "run": ("plimsoll.cli.node.run", "run", "Run one pod in the foreground, without an API server."),
    "up": (
        "plimsoll.cli.server.up",
        "up",
        "Start a cluster on this machine: API server, scheduler, node, three pods.",
    ),
    "reset": ("plimsoll.cli.server.reset", "reset", "End that cluster and remove everything that plimsoll has made."),
    "version": ("plimsoll.cli.objects.version", "version", "Print the versions of this program and of the server."),
    "completion": ("plimsoll.cli.objects.completion", "completion", "Print the completion script of a shell."),
}


CLUSTER_OPTIONS = ("-n", "--namespace", "--context", "--kubeconfig")


class LazyGroup(click.Group):
    """Lists the verbs without importing their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, attribute, _ = VERBS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=line) for name, (_, _, line) in VERBS.items() if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in VERBS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options of a cluster may precede the verb, as in `kubectl -n shop get pods`."""
        leading, rest = [], list(args)
        while rest and rest[0].partition("=")[0] in CLUSTER_OPTIONS:
            taken = 1 if "=" in rest[0] else 2
            leading += rest[:taken]
            rest = rest[taken:]
        if leading and (not rest or rest[0] not in VERBS):
            ctx.fail(f"specify a command after {leading[0]}")
        return super().parse_args(ctx, [*rest[:1], *leading, *rest[1:]])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"unknown command {args[0]!r}; {_near(args[0]) or 'the commands are: ' + ', '.join(VERBS)}")
        return super().resolve_command(ctx, args)


def _near(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, VERBS, n=2, cutoff=0.7)
    return f"did you mean {' or '.join(near)}?" if near else ""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="plimsoll")
def root() -> None:
    """Kubernetes' node-level resource management, explained and enforced.

    Plimsoll computes what a node does with your pods: QoS class, oom_score_adj and the value of every cgroup file, each
    with its formula. It also runs pods, with its own API server, scheduler and node agent.

    \b
    Examples:
      plimsoll explain pod.yaml
      plimsoll explain pod.yaml --diff documents,1.36
      kubectl get pods -A -o json | plimsoll explain -
      plimsoll explain memory-high --request 1Gi --limit 2Gi
    """


def main(args: list[str] | None = None) -> int:
    """Run one command. Exit code 1 if a cluster reports an error, 2 if the user can correct it; both on stderr."""
    _fill_closed_streams()
    try:
        result: Any = root.main(args=args, prog_name="plimsoll", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        return 130
    except click.exceptions.NoArgsIsHelpError as error:  # its message is the whole help
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        hint = "" if error.ctx is None else f"\nSee `{' '.join(error.ctx.command_path.split())} --help`."
        return _refused(error.format_message() + hint)
    except click.ClickException as error:
        return _refused(error.format_message())
    except _deliberate_error() as error:
        return _failed(error)
    except BrokenPipeError:  # the reader (head, less) has closed the pipe
        _abandon_output()
        return 0
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # click makes an exit of it
            _abandon_output()
            return 0
        return error.code if isinstance(error.code, int) else 1
    except OSError as error:
        _abandon_output()
        return _refused(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    return result if isinstance(result, int) else 0


def _deliberate_error() -> type[Exception]:
    """Imported only when an exception arrives: `--help` needs no structs."""
    from plimsoll.errors import PlimsollError

    return PlimsollError


def _fill_closed_streams() -> None:
    """A caller may have closed them (`<&-`); Python sets them to None then."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _failed(error: Exception) -> int:
    from plimsoll.cli.failure import FailedError

    if not isinstance(error, FailedError):
        return _refused(str(error))
    _print_error(str(error))
    return 1


def _refused(message: str) -> int:
    _print_error(f"plimsoll: {message}")
    return 2


def _print_error(message: str) -> None:
    from plimsoll.cli.terminal import inert

    click.echo("\n".join(map(inert, message.splitlines())), err=True)


def _abandon_output() -> None:
    """Nothing more can be written: keep the interpreter from flushing the output, and failing, at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
