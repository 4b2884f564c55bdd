"""`plimsoll up`: a whole cluster of one machine, in the foreground: API server, scheduler, node agent, three pods.

The API server and the node agent are two processes (a fan-out to many watchers must not delay an eviction), and both
end with `up` (`cli.daemon`). What is made on the way (cgroups, processes, mounts, namespaces) is taken away at the end;
the API's objects and keys stay in the state directory, so that the next `up` goes on with them.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from plimsoll.cli.terminal import Paint, colourful
from plimsoll.errors import PlimsollError

EXAMPLES = Path(__file__).parents[4] / "examples"

# What `--tour` shows, in order: a sentence, and the words after `plimsoll`; {} is the examples directory.
TOUR = (
    (
        "Three pods, three QoS classes: what a node of 4 CPUs and 8 GiB makes of them.",
        "explain {}/three-classes.yaml --capacity cpu=4,memory=8Gi --brief",
    ),
    (
        "One pod in full: every file with its formula. Memory QoS is on, the node has 48 CPUs.",
        "explain {}/documents/002-qos-demo.yaml --node {}/documents/004-node.yaml "
        "--config {}/documents/004-kubelet-config.yaml --feature-gates MemoryQoS=true --driver systemd",
    ),
    (
        "What changes for it when the node goes from 1.27 to 1.36?",
        "explain {}/documents/002-qos-demo.yaml --capacity cpu=48,memory=263192560Ki "
        "--feature-gates MemoryQoS=true --diff 1.27,1.36",
    ),
    ("One number at a time.", "explain memory-high --request 1Gi --limit 2Gi"),
)


@click.command("up")
@click.option("--tour", is_flag=True, help="Only what can be explained, in full; changes nothing on this machine.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="Where objects, keys and logs are kept.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Where the API listens. [default: 127.0.0.1:6443, or any where that is taken]"
)
@click.option("--profile", default="1.27", show_default=True, help="Behave as Kubernetes 1.27 or 1.36.")
@click.option("--feature-gates", metavar="LIST", default="", help="For the API server and the node.")
@click.option("--capacity", metavar="LIST", help="A node of another size: cpu=8,memory=4Gi. [default: this machine]")
@click.option("--config", "config_file", metavar="FILE", help="A KubeletConfiguration for the node.")
@click.option("--cgroup-root", metavar="PATH", help="Below which cgroup kubepods is made. [default: the root]")
@click.option("--name", metavar="NAME", help="The node's name. [default: this machine's]")
@click.option("--simulate", is_flag=True, help="Limits on a kernel in memory; processes are real.")
@click.option(
    "--with-containerd",
    is_flag=True,
    help="Containers by a private containerd below the state directory; installed where it is missing (Debian, root).",
)
@click.option("--demo/--no-demo", default=True, help="Whether to run the three pods of examples/three-classes.yaml.")
def up(tour: bool, **options: Any) -> int:
    """A Kubernetes cluster on this machine, until Ctrl-C: API, scheduler, a node with real limits, three pods.

    Cgroups, processes, mounts and namespaces are gone afterwards; nothing of anybody else's is touched.
    """
    if not EXAMPLES.is_dir():
        raise PlimsollError(f"the examples are not beside the program ({EXAMPLES}); run from a checkout")
    paint = Paint(colourful())
    if tour:
        for number, (sentence, words) in enumerate(TOUR, 1):
            _shown(f"{number}. {sentence}", words, paint)
        _your_turn(paint)
        return 0
    import asyncio

    from plimsoll.cli.server.up_cluster import UpOptions, run

    if options["with_containerd"]:
        if options["simulate"]:
            raise click.UsageError("--with-containerd makes real cgroups; leave --simulate out")
        import os

        from plimsoll.cli.server.up_containerd import own_mounts

        if os.geteuid() != 0:
            raise PlimsollError("--with-containerd: containerd needs root")
        own_mounts()
    demo = EXAMPLES / "three-classes.yaml" if options.pop("demo") else None
    return asyncio.run(run(UpOptions(demo=demo, **options), paint))


def _shown(sentence: str, words: str, paint: Paint) -> None:
    from plimsoll.cli.main import main

    arguments = [word.format(*[EXAMPLES] * word.count("{}")) for word in shlex.split(words)]
    shown = shlex.join(short_path(word) for word in arguments)
    head = f"{paint(sentence, 'bold')}\n" if sentence else ""
    click.echo(f"{head}{paint(f'$ plimsoll {shown}', 'cyan')}\n")
    code = main(arguments)
    if code:
        raise PlimsollError(f"plimsoll {shown} ended with {code}")
    click.echo()


def _your_turn(paint: Paint) -> None:
    click.echo(paint("Your turn:", "bold"))
    for line in (
        "plimsoll explain YOUR-MANIFEST.yaml            (./dev run explain …, or .venv/bin/plimsoll)",
        "kubectl get pods -A -o json | plimsoll explain -",
        "plimsoll explain YOUR-MANIFEST.yaml --advise --diff 1.27,1.36",
    ):
        click.echo(f"  {line}")


def short_path(word: str) -> str:
    """Paths below the current directory, as one would type them."""
    path = Path(word)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return word
