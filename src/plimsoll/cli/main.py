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
from plimsoll.errors import PlimsollError

# verb → (module, its click command, the line in --help)
VERBS = {
    "explain": (
        "plimsoll.cli.explain.command",
        "explain",
        "What a node will do with a manifest, each value with its formula.",
    ),
    "plan": (
        "plimsoll.cli.explain.plan",
        "plan",
        "The same for fleets: pods as JSON lines in, one result per line out.",
    ),
    "tree": ("plimsoll.cli.node.tree", "tree", "Live cgroups of this machine: used, protected, limited, throttled."),
    "whose": ("plimsoll.cli.node.owner", "whose", "Which pod and container a process belongs to."),
    "get": ("plimsoll.cli.objects.get", "get", "Objects of a cluster as tables, JSON, YAML or names; -w follows them."),
    "describe": ("plimsoll.cli.objects.describe", "describe", "Everything about an object in words, with its events."),
    "apply": ("plimsoll.cli.objects.apply", "apply", "Make objects as the files say (server-side apply)."),
    "delete": ("plimsoll.cli.objects.delete", "delete", "Delete objects, and wait until they are gone."),
    "logs": ("plimsoll.cli.objects.logs", "logs", "What a container has written."),
    "exec": ("plimsoll.cli.objects.exec", "exec_", "Run a command in a container, with a terminal if wanted."),
    "events": ("plimsoll.cli.objects.events", "events", "What has happened, the newest last."),
    "resize": (
        "plimsoll.cli.resize.command",
        "resize",
        "Change a running pod's CPU or memory, after saying what comes of it.",
    ),
    "pressure": (
        "plimsoll.cli.node.pressure",
        "pressure",
        "A node's signals, how far they are from evicting, who is next.",
    ),
    "oom": ("plimsoll.cli.node.oom", "oom", "Which processes the kernel killed for memory, and at which limit."),
    "node": (
        "plimsoll.cli.node.command",
        "node",
        "This machine as a node: runs pods; its cgroups alone: setup, status, teardown.",
    ),
    "cgroup": (
        "plimsoll.cli.node.cgroup",
        "cgroup",
        "Pods' cgroups on this machine, without Kubernetes: apply, run, rm.",
    ),
    "api": ("plimsoll.cli.server.api", "api", "The control plane: a Kubernetes API that kubectl works with."),
    "scheduler": ("plimsoll.cli.server.scheduler", "scheduler", "The scheduler by itself, beside any control plane."),
    "run": ("plimsoll.cli.node.run", "run", "One pod in the foreground, without an API server, and how it ended."),
    "up": (
        "plimsoll.cli.server.up",
        "up",
        "A whole cluster on this machine, until Ctrl-C: API, scheduler, node, three pods.",
    ),
}


class LazyGroup(click.Group):
    """Knows names and help lines without importing anything."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, attribute, _ = VERBS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}; there are: {', '.join(VERBS)}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="plimsoll")
def root() -> None:
    """How deep may this node be loaded?

    Plimsoll says what Kubernetes will make of your pods on a node: QoS class, oom_score_adj, and the value of every
    cgroup file, each with its formula.

    \b
    Try:
      plimsoll explain pod.yaml
      plimsoll explain pod.yaml --diff 1.27,1.36
      kubectl get pods -A -o json | plimsoll explain -
      plimsoll explain memory-high --request 1Gi --limit 2Gi
    """


def main(args: list[str] | None = None) -> int:
    """Run one command. What the user can mend is one line on stderr and exit code 2."""
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
        if error.ctx is not None:
            click.echo(error.ctx.get_usage(), err=True)
        return _refused(error.format_message())
    except click.ClickException as error:
        return _refused(error.format_message())
    except PlimsollError as error:
        return _refused(str(error))
    except (BrokenPipeError, SystemExit):  # the reader (head, less) has seen enough; click turns it into an exit
        _abandon_output()
        return 0
    except OSError as error:
        _abandon_output()
        return _refused(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    return result if isinstance(result, int) else 0


def _fill_closed_streams() -> None:
    """A caller may have closed them (`<&-`); Python has None in their place then."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _refused(message: str) -> int:
    from plimsoll.cli.terminal import inert

    click.echo("plimsoll: " + "\n".join(map(inert, message.splitlines())), err=True)
    return 2


def _abandon_output() -> None:
    """Nothing more can be written; keep the interpreter from trying again, and complaining, at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
