"""`plimsoll`: the verbs and their one-line descriptions. A verb's module is imported when the verb is used.

This module imports little, because most of the time of a short command is imports.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from plimsoll.cli.console import Command

# verb → (module, its command, the line in --help)
VERBS = {
    "explain": (
        "plimsoll.cli.explain.command",
        "explain",
        "Explain what a node will do with a manifest: every value with its formula.",
    ),
    "plan": (
        "plimsoll.cli.explain.plan",
        "plan",
        "Compute the values of many pods: JSON lines in, one JSON result per line out.",
    ),
    "upgrade-check": (
        "plimsoll.cli.explain.upgrade_check",
        "upgrade_check",
        "Show what an upgrade changes for pods and nodes, and why.",
    ),
    "audit": (
        "plimsoll.cli.audit.command",
        "audit_group",
        "Show where the kernel of a node differs from what its pods declare.",
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
    "attach": (
        "plimsoll.cli.attach.command",
        "attach",
        "Attach to a container's process; or attach Memory QoS to this node (--mode).",
    ),
    "detach": ("plimsoll.cli.attach.command", "detach", "Restore what `attach --mode` has changed on this node."),
    "port-forward": ("plimsoll.cli.objects.port_forward", "port_forward", "Forward local ports to ports of a pod."),
    "events": ("plimsoll.cli.objects.events", "events", "List events, newest last."),
    "top": ("plimsoll.cli.node.top", "top", "Show live what is closest to its limits; or what pods or nodes use."),
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
    "dashboard": (
        "plimsoll.cli.objects.dashboard",
        "dashboard",
        "Open the dashboard of the cluster in a browser.",
    ),
    "reset": (
        "plimsoll.cli.server.reset",
        "reset",
        "End the cluster of this machine and remove everything that Plimsoll has made.",
    ),
    "version": ("plimsoll.cli.objects.version", "version", "Print the versions of this program and of the server."),
    "man": ("plimsoll.cli.objects.man", "man", "Print manual pages."),
    "completion": ("plimsoll.cli.objects.completion", "completion", "Print the completion script of a shell."),
}

CLUSTER_OPTIONS = ("-n", "--namespace", "--context", "--kubeconfig")
ABOUT = """Kubernetes' node-level resource management, explained and enforced.

Plimsoll computes what a node does with your pods: QoS class, oom_score_adj and the value of every cgroup file, each
with its formula. It also runs pods, with its own API server, scheduler and node agent.

\b
Examples:
  plimsoll explain pod.yaml
  plimsoll explain pod.yaml --diff documents,1.36
  kubectl get pods -A -o json | plimsoll explain -
  plimsoll explain memory-high --request 1Gi --limit 2Gi"""
OPTIONS = (("--version", "Show the version and exit."), ("-h, --help", "Show this message and exit."))


def main(args: list[str] | None = None) -> int:
    """Run one command. Exit code 1 if a cluster reports an error, 2 if the user can correct it; both on stderr."""
    _fill_closed_streams()
    words = sys.argv[1:] if args is None else list(args)
    try:
        result = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        from plimsoll.cli.console.errors import INTERRUPTED

        sys.stderr.write("\n")
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has closed the pipe
        _abandon_output()
        return 0
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except OSError as error:
        _abandon_output()
        return _refused(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except Exception as error:  # the classes of our own errors are not imported yet; other errors are raised
        code = _reported(error)
        if code is None:
            raise
        return code
    return result if isinstance(result, int) else 0


def _run(words: list[str]) -> object:
    """The result of the command."""
    if "_PLIMSOLL_COMPLETE" in os.environ:
        return _complete()
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        print(_help(), file=sys.stderr)
        return 2
    words = _verb_first(words)
    verb = words[0]
    if verb in ("-h", "--help"):
        print(_help())
        return 0
    if verb == "--version":
        from plimsoll import __version__

        print(f"plimsoll, version {__version__}")
        return 0
    if verb not in VERBS:
        raise _unknown(verb)
    command = _command(verb)
    if not gc.isenabled():
        gc.freeze()  # the modules stay
        gc.set_threshold(100_000, 20, 100)  # most commands end before
        gc.enable()
    return command.main(f"plimsoll {verb}", words[1:])


def _help() -> str:
    from plimsoll.cli.help import page

    commands = [(name, line) for name, (_, _, line) in VERBS.items()]
    pieces = ["[OPTIONS]", "COMMAND", "[ARGS]..."]
    return page("plimsoll", pieces, ABOUT, [("Options", OPTIONS), ("Commands", commands)])


def _command(verb: str) -> Command:
    from plimsoll.cli.quick_msgspec import import_msgspec

    module, attribute, _ = VERBS[verb]
    import_msgspec()
    __import__(module)
    command: Command = getattr(sys.modules[module], attribute)
    return command


def _verb_first(words: list[str]) -> list[str]:
    """Options of a cluster may precede the verb, as in `kubectl -n shop get pods`."""
    leading: list[str] = []
    rest = words
    while rest and rest[0].partition("=")[0] in CLUSTER_OPTIONS:
        taken = 1 if "=" in rest[0] else 2
        leading += rest[:taken]
        rest = rest[taken:]
    if leading and (not rest or rest[0] not in VERBS):
        raise _misused(f"specify a command after {leading[0]}")
    return [*rest[:1], *leading, *rest[1:]]


def _unknown(word: str) -> Exception:
    if word.startswith("-"):
        from plimsoll.cli.console.errors import no_such_option

        return _misused(no_such_option(word.partition("=")[0], ("--version", "--help")).message)
    from difflib import get_close_matches

    near = get_close_matches(word, VERBS, n=2, cutoff=0.7)
    advice = f"did you mean {' or '.join(near)}?" if near else f"the commands are: {', '.join(VERBS)}"
    return _misused(f"unknown command {word!r}; {advice}")


def _misused(message: str) -> Exception:
    from plimsoll.cli.console import CommandError

    return CommandError(f"{message}\nSee `plimsoll --help`.")


def _complete() -> int:
    """Print what may follow the words that a shell has passed in the environment."""
    from plimsoll.cli.console.completion import asked, completed, printed
    from plimsoll.cli.console.parameters import Completion

    shell, words, incomplete = asked(os.environ)
    if words:
        words = _verb_first(words)
    if not words:
        lines = {name: line for name, (_, _, line) in VERBS.items()}
        options = {name.rpartition(" ")[2]: line for name, line in OPTIONS}
        offered = options if incomplete.startswith("-") else lines
        found = [Completion(name, line) for name, line in offered.items() if name.startswith(incomplete)]
    elif words[0] in VERBS:
        found = completed(_command(words[0]), words[0], words[1:], incomplete)
    else:
        found = []
    for each in found:
        print(printed(each, shell))
    return 0


def _reported(error: Exception) -> int | None:
    """Print an error that was raised on purpose; None for any other. Imports only now what --help does not need."""
    from plimsoll.cli.console import CommandError, NoArgumentsError, UsageError
    from plimsoll.cli.failure import FailedError
    from plimsoll.errors import PlimsollError

    if isinstance(error, NoArgumentsError):
        sys.stderr.write(f"{error.message}\n")
        return 2
    if isinstance(error, CommandError):
        ctx = error.ctx if isinstance(error, UsageError) else None
        return _refused(error.text() + ("" if ctx is None else f"\nSee `{ctx.command_path} --help`."))
    if isinstance(error, FailedError):
        _print_error(str(error))
        return 1
    return _refused(str(error)) if isinstance(error, PlimsollError) else None


def _fill_closed_streams() -> None:
    """A caller may have closed them (`<&-`); Python sets them to None then."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _refused(message: str) -> int:
    _print_error(f"plimsoll: {message}")
    return 2


def _print_error(message: str) -> None:
    from plimsoll.cli.terminal import inert

    sys.stderr.write("".join(f"{inert(line)}\n" for line in message.splitlines()))


def _abandon_output() -> None:
    """Nothing more can be written: keep the interpreter from flushing the output, and failing, at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


def run() -> NoReturn:
    """The program `plimsoll`. Ends without tearing the interpreter down, a tenth of the time of a short command,
    unless there may be threads or functions that wait for the end."""
    gc.disable()  # the imports leave nothing to collect
    code = main()
    if {"threading", "atexit"} & sys.modules.keys():
        sys.exit(code)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # the reader has gone
        code = code or 1
    os._exit(code)


if __name__ == "__main__":
    run()
