"""`plimsoll up`: runs a cluster on this machine in the foreground: API server, scheduler, node agent, three pods.

The API server and the node agent are two processes, because sending events to many watchers must not delay an eviction.
Both end with `up` (`cli.daemon`). Cgroups, processes, mounts and namespaces are removed at the end; objects and keys
stay in the state directory, and the next `up` continues with them.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import plimsoll
from plimsoll.cli import console
from plimsoll.cli.parameters import log_level, log_options, profile_option
from plimsoll.cli.terminal import Paint, colourful
from plimsoll.errors import PlimsollError

EXAMPLES = Path(plimsoll.__file__).with_name("examples")  # in the package: a link in a checkout, files in a wheel

# What `--tour` shows, in order: a sentence and the arguments of `plimsoll`; {} is the examples directory.
TOUR = (
    (
        "Three pods with three QoS classes on a node with 4 CPUs and 8 GiB.",
        "explain {}/three-classes.yaml --capacity cpu=4,memory=8Gi --brief",
    ),
    (
        "One pod in full: every file with its formula, with Memory QoS, on a node with 48 CPUs.",
        "explain {}/documents/002-qos-demo.yaml --node {}/documents/004-node.yaml "
        "--config {}/documents/004-kubelet-config.yaml --feature-gates MemoryQoS=true --driver systemd",
    ),
    (
        "What changes for the pod between the documents and 1.36.",
        "explain {}/documents/002-qos-demo.yaml --capacity cpu=48,memory=263192560Ki "
        "--feature-gates MemoryQoS=true --diff documents,1.36",
    ),
    ("A calculator for one number.", "explain memory-high --request 1Gi --limit 2Gi"),
)


@console.command("up")
@console.option(
    "--tour", is_flag=True, help="Only show examples of `plimsoll explain`; changes nothing on this machine."
)
@console.option("--state-dir", type=console.Path(), help="Directory for objects, keys and logs.")
@console.option(
    "--listen", metavar="HOST:PORT", help="Address of the API server. [default: 127.0.0.1:6443, or any free port]"
)
@profile_option()
@console.option("--feature-gates", metavar="LIST", default="", help="Feature gates of the API server and the node.")
@console.option("--capacity", metavar="LIST", help="Capacity of the node: cpu=8,memory=4Gi. [default: this machine]")
@console.option("--config", "config_file", metavar="FILE", help="A KubeletConfiguration for the node.")
@console.option("--cgroup-root", metavar="PATH", help="The parent cgroup of kubepods. [default: the root]")
@console.option("--name", metavar="NAME", help="The name of the node. [default: the host name]")
@console.option("--simulate", is_flag=True, help="Simulate limits; processes are real.")
@console.option("--fresh", is_flag=True, help="Begin with an empty store: the objects of earlier runs are removed.")
@console.option(
    "--with-containerd",
    is_flag=True,
    help="Run containers with a private containerd in the state directory; installs it if missing (Debian, root).",
)
@console.option("--demo/--no-demo", default=True, help="Whether to run the three pods of examples/three-classes.yaml.")
@log_options
def up(tour: bool, **options: Any) -> int:
    """Start a Kubernetes cluster on this machine: API server, scheduler, a node with real limits, three pods.

    Ctrl-C ends it and removes its cgroups, processes, mounts and namespaces. Others are not changed.
    """
    paint = Paint(colourful())
    if tour:
        for number, (sentence, words) in enumerate(TOUR, 1):
            _shown(f"{number}. {sentence}", words, paint)
        _next_steps(paint)
        return 0
    import asyncio

    from plimsoll.cli.server.up_cluster import UpOptions, run

    if options["with_containerd"]:
        if options["simulate"]:
            raise console.UsageError("--with-containerd creates real cgroups and cannot be combined with --simulate")
        import os

        from plimsoll.cli.server.up_containerd import own_mounts

        if os.geteuid() != 0:
            raise PlimsollError("--with-containerd: containerd needs root")
        own_mounts()
    log_level(dict(options))  # both options together are refused before anything starts
    demo = EXAMPLES / "three-classes.yaml" if options.pop("demo") else None
    return asyncio.run(run(UpOptions(demo=demo, **options), paint))


def _shown(sentence: str, words: str, paint: Paint) -> None:
    from plimsoll.cli.main import main

    arguments = [word.format(*[EXAMPLES] * word.count("{}")) for word in shlex.split(words)]
    shown = shlex.join(short_path(word) for word in arguments)
    head = f"{paint(sentence, 'bold')}\n" if sentence else ""
    console.echo(f"{head}{paint(f'$ plimsoll {shown}', 'cyan')}\n")
    code = main(arguments)
    if code:
        raise PlimsollError(f"plimsoll {shown} exited with {code}")
    console.echo()


def _next_steps(paint: Paint) -> None:
    console.echo(paint("Try:", "bold"))
    for line in (
        "plimsoll explain YOUR-MANIFEST.yaml",
        "kubectl get pods -A -o json | plimsoll explain -",
        "plimsoll explain YOUR-MANIFEST.yaml --diff documents,1.36",
    ):
        console.echo(f"  {line}")


def short_path(word: str) -> str:
    """An argument; a path relative to the current directory."""
    path = Path(word)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return word
