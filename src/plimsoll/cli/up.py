"""`plimsoll up`: for now a tour of what there is, on the bundled examples; later the whole node."""

from __future__ import annotations

import shlex
from pathlib import Path

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


@click.command("up")
def up() -> None:
    """Show what Plimsoll can do, on the bundled examples. Changes nothing on this machine."""
    from plimsoll.cli.main import main

    if not EXAMPLES.is_dir():
        raise PlimsollError(f"the examples are not beside the program ({EXAMPLES}); run from a checkout")
    paint = Paint(colourful())
    for number, (sentence, words) in enumerate(TOUR, 1):
        arguments = [word.format(*[EXAMPLES] * word.count("{}")) for word in shlex.split(words)]
        shown = shlex.join(_short(word) for word in arguments)
        click.echo(f"{paint(f'{number}. {sentence}', 'bold')}\n{paint(f'$ plimsoll {shown}', 'cyan')}\n")
        code = main(arguments)
        if code:
            raise PlimsollError(f"step {number} ended with {code}")
        click.echo()
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
