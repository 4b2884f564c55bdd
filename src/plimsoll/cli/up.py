"""`plimsoll up`: what there is, in the order one would try it: explain, real cgroups, an API server for kubectl.

The first two are shown and taken away again; the server stays in the foreground until Ctrl-C.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

import click

from plimsoll.cli.output import Paint, colourful
from plimsoll.errors import PlimsollError

EXAMPLES = Path(__file__).parents[3] / "examples"

# What to show, in order: a sentence, and the words after `plimsoll`; {} is the examples directory.
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
NODE = "--capacity cpu=4,memory=4Gi"


@click.command("up")
@click.option("--tour", is_flag=True, help="Only what can be explained, in full; changes nothing on this machine.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="Where the API server keeps its objects and keys.")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:6443", show_default=True)
@click.option("--profile", default="1.27", show_default=True, help="Behave as Kubernetes 1.27 or 1.36.")
@click.option("--feature-gates", metavar="LIST", default="", help="For the API server.")
def up(tour: bool, **options: Any) -> None:
    """Show what Plimsoll can do on this machine, then serve the Kubernetes API until Ctrl-C.

    The cgroups that are made on the way are removed again; nothing of anybody else's is touched.
    """
    if not EXAMPLES.is_dir():
        raise PlimsollError(f"the examples are not beside the program ({EXAMPLES}); run from a checkout")
    paint = Paint(colourful())
    if tour:
        for number, (sentence, words) in enumerate(TOUR, 1):
            _shown(f"{number}. {sentence}", words, paint)
        _your_turn(paint)
        return
    _shown(f"1. {TOUR[0][0]}", TOUR[0][1], paint)
    _cgroups(paint)
    _api(paint, **options)


def _cgroups(paint: Paint) -> None:
    """On this machine's kernel where that may be, else in memory, and that is said."""
    reason = _unusable()
    if reason:
        click.echo(paint("2. The same three pods as cgroups, on a kernel in memory.", "bold"))
        click.echo(paint(f"   This machine's cgroups are left alone: {reason}", "red"))
        _shown("", f"cgroup apply {{}}/three-classes.yaml {NODE} --simulate", paint)
        return
    root = f"/plimsoll-up-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="plimsoll-up-") as state:
        node = f"--cgroup-root {root} --state-dir {state} {NODE}"
        try:
            _shown(
                "2. The same three pods as cgroups of this machine's kernel.",
                f"cgroup apply {{}}/three-classes.yaml {node}",
                paint,
            )
            _shown("What the kernel has now.", f"tree {root} --state-dir {state}", paint)
        finally:
            _shown("And away again.", f"node teardown {node}", paint)


def _unusable() -> str:
    from plimsoll.cgroups.detect import CgroupsUnusable, check_required, default_root, this_host, writable

    try:
        found = this_host()
        check_required(found)
        if default_root(found, writable(found)) != "/":
            return "only a part of them is ours; try plimsoll cgroup apply --cgroup-root"
    except CgroupsUnusable as error:
        return str(error)
    return ""


def _api(paint: Paint, state_dir: Path | None, listen: str, profile: str, feature_gates: str) -> None:
    import asyncio

    from plimsoll.cli.api import default_state, run

    click.echo(paint("3. The Kubernetes API, with a scheduler. There is no node yet, so pods wait.", "bold"))

    def announced(url: str, kubeconfig: Path) -> None:
        click.echo(f"   {url}  (Ctrl-C ends it; what it knows is kept in {kubeconfig.parent})\n")
        for line in (
            f"export KUBECONFIG={kubeconfig}",
            f"kubectl apply -f {_short(str(EXAMPLES / 'three-classes.yaml'))}",
            "kubectl get pods -o wide",
            "kubectl describe pod gold",
        ):
            click.echo(f"   {paint(line, 'cyan')}")

    asyncio.run(
        run(
            default_state(state_dir),
            listen=listen,
            profile_name=profile,
            feature_gates=feature_gates,
            audit_log=None,
            scheduler=True,
            announced=announced,
        )
    )


def _shown(sentence: str, words: str, paint: Paint) -> None:
    from plimsoll.cli.main import main

    arguments = [word.format(*[EXAMPLES] * word.count("{}")) for word in shlex.split(words)]
    shown = shlex.join(_short(word) for word in arguments)
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


def _short(word: str) -> str:
    """Paths below the current directory, as one would type them."""
    path = Path(word)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return word
