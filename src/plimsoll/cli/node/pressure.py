"""`plimsoll pressure`: the eviction signals of a node, their thresholds, the next pods, and recent evictions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.node_info import node_page
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.parameters import interval_option
from plimsoll.cli.printers import order_lines
from plimsoll.cli.terminal import Paint, colourful, echo_json, hanging, inert, table
from plimsoll.codec.node_pages import PressurePage, SignalShown, ThresholdShown
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.config.thresholds import MEMORY_AVAILABLE
from plimsoll.rules.eviction.assessment import RESOURCE_OF
from plimsoll.rules.eviction.decision import EvictionCandidate
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, MEMORY
from plimsoll.rules.quantity import QUANTITIES, Quantity

NEXT_VICTIMS, LAST_DECISIONS = 5, 5
HEADER = ("SIGNAL", "AVAILABLE", "OF", "THRESHOLD", "GRACE", "DISTANCE")


@console.command("pressure")
@console.argument("node", default="", required=False, type=ObjectWords("nodes"), metavar="[NODE]")
@cluster_options
@console.option(
    "--victims",
    type=console.IntRange(0),
    default=NEXT_VICTIMS,
    show_default=True,
    help="How many pods of each order to show.",
)
@console.option(
    "--all", "everything", is_flag=True, help="Show the order for all signals, not only for memory and met thresholds."
)
@console.option("--here", is_flag=True, help="Read this machine and the kubelet's configuration; needs no cluster.")
@console.option("-o", "--output", type=console.Choice(["text", "json"]), default="text")
@console.option("-w", "--watch", is_flag=True, help="Show it live; press q to quit.")
@interval_option
def pressure(
    node: str, victims: int, everything: bool, here: bool, output: str, watch: bool, interval: float, **options: Any
) -> int:
    """Show how close a node is to evicting pods, and which pods it would evict.

    \b
    Examples:
      plimsoll pressure
      plimsoll pressure n1 --victims 20
      plimsoll pressure --watch
      plimsoll pressure -o json
      plimsoll pressure --here
    """
    if watch:
        if output != "text" or here:
            raise console.UsageError("--watch shows the text of a node agent: it cannot be combined with -o or --here")
        from plimsoll.cli.live.session import live

        return live(PressureView(node, victims, everything, options), interval)
    if here:
        return _here(output)
    found = answered(options, lambda cluster: _asked(cluster, node), has_here=True)
    if output == "json":
        echo_json(found)
    else:
        for line in lines(found, victims, time.time(), Paint(colourful()), everything=everything):
            console.echo(line)
    return 0


class PressureView:
    """`plimsoll pressure --watch`: asks the node again at every interval."""

    def __init__(self, node: str, victims: int, everything: bool, options: dict[str, Any]) -> None:
        self._node, self._victims, self._everything, self._options = node, victims, everything, options
        self._paint = Paint(colourful())
        self._shown: PressurePage | None = None

    def refresh(self) -> None:
        self._shown = answered(self._options, lambda cluster: _asked(cluster, self._node))

    def head(self, width: int) -> Sequence[str]:
        return []

    def body(self, width: int) -> Sequence[str]:
        if self._shown is None:
            return []
        return list(lines(self._shown, self._victims, time.time(), self._paint, everything=self._everything))

    def foot(self, width: int) -> Sequence[str]:
        return [self._paint("q leave  ↑ ↓ scroll", "dim")]

    def key(self, name: str) -> bool:
        return name in ("q", "escape")


def _here(output: str) -> int:
    from plimsoll.cli.node.pressure_here import page_here, stall_lines

    found, notes = page_here()
    if output == "json":
        echo_json(found)
    else:
        for line in lines(found, 0, time.time(), Paint(colourful())):
            console.echo(line)
        console.echo("\n".join(["", *stall_lines()]))
    for note in notes:
        console.echo(f"note: {inert(note)}", err=True)
    return 0


async def _asked(cluster: ClusterClient, node: str) -> PressurePage:
    from plimsoll.cli.node_info import chosen_node

    name = str((await chosen_node(cluster, node))["metadata"]["name"])
    return await node_page(cluster, name, "pressure", PressurePage)


def lines(found: PressurePage, victims: int, now_s: float, paint: Paint, *, everything: bool = False) -> Iterator[str]:
    if found.conditions:
        yield f"conditions: {paint(', '.join(map(inert, found.conditions)), 'bold', 'red')}"
    else:
        yield f"conditions: {paint('no pressure', 'green')}"
    rows = [
        [
            inert(signal.signal) if index == 0 else "",
            _shown(signal.signal, signal.available) if index == 0 else "",
            _shown(signal.signal, signal.capacity) if index == 0 else "",
            _shown(signal.signal, threshold.value) if threshold is not None else "-",
            "-" if threshold is None else "hard" if not threshold.grace_s else f"{threshold.grace_s:g} s",
            "-" if threshold is None else _distance(signal, threshold),
        ]
        for signal in found.signals
        for index, threshold in enumerate(signal.thresholds or (None,))
    ]
    for index, line in enumerate(table(rows, HEADER) if rows else ()):
        yield paint(line, "dim") if index == 0 else paint(line, "red") if line.endswith("met") else line
    for order, signals in _orders(found, everything=everything).items():
        if order and victims:
            yield ""
            yield f"next to be evicted for {paint(', '.join(map(inert, signals)), 'bold')}"
            yield from order_lines(order, RESOURCE_OF.get(signals[0], ""), paint, victims)
    if found.decisions:
        yield ""
        yield "evicted"
        for each in list(found.decisions)[: -LAST_DECISIONS - 1 : -1]:
            who = "no pod" if each.victim is None else f"{each.victim.namespace}/{each.victim.name}"
            yield f"  {_ago(now_s - each.time_s):>8}  {paint(inert(who), 'bold')}  {inert(each.signal)}"
            yield f"            {hanging(inert(each.message.strip()), 12)}"
            if each.why:
                yield f"            {hanging(inert(each.why), 12)}"


def _orders(found: PressurePage, *, everything: bool) -> dict[tuple[EvictionCandidate, ...], list[str]]:
    """The orders to show; signals of one file system share an order."""
    met = {each.signal for each in found.signals if any(threshold.met for threshold in each.thresholds)}
    orders: dict[tuple[EvictionCandidate, ...], list[str]] = {}
    for signal, order in found.order.items():
        if everything or signal == MEMORY_AVAILABLE or signal in met:
            orders.setdefault(order, []).append(signal)
    return orders


def _distance(signal: SignalShown, threshold: ThresholdShown) -> str:
    """The amount that can still be used before the threshold is met."""
    available, value = _amount(signal.available), _amount(threshold.value)
    if threshold.met or available is None or value is None:
        return "met" if threshold.met else "unknown"
    return _text(signal.signal, (available - value).value)


def _shown(signal: str, text: str) -> str:
    amount = _amount(text)
    return inert(text) if amount is None else _text(signal, amount.value)


def _text(signal: str, amount: int) -> str:
    return (
        human_bytes(amount) if RESOURCE_OF.get(signal) in (MEMORY, EPHEMERAL_STORAGE) and amount >= 0 else str(amount)
    )


def _amount(text: str) -> Quantity | None:
    try:
        return QUANTITIES[text]
    except InvalidQuantityError:
        return None


def _ago(seconds: float) -> str:
    from plimsoll.rules.timestamps import human_duration

    return human_duration(seconds)
