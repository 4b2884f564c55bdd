"""What pods and their containers ask for, as plain whole numbers: between the walk and the stages of `batch`.

Tuples, not structs: one is made per container, and the stages take them apart into columns.
"""

from __future__ import annotations

from plimsoll.rules.objects import CPU, MEMORY, QoSClass, ResourceList
from plimsoll.rules.quantity import MAX_INT64

Amounts = dict[str, int]

# A container: name, cpu that its shares are made of, memory request, cpu limit, own memory limit, and memory limit
# (its own or pod level's). Milli-cores and bytes, 0 for none.
Ask = tuple[str, int, int, int, int, int]

# What sets the OOM scores of a pod's containers apart from their own requests: the share in what pod level requests
# beyond them (O-3 step 3), and which init containers are sidecars (step 5).
Apart = tuple[int, list[bool]]

# A pod: class, effective requests, effective limits, cpu and memory limit of its cgroup (None: none), what sets its
# scores apart (None: nothing), and whether it names nothing but cpu and memory.
Figures = tuple[QoSClass, Amounts, Amounts, int | None, int | None, Apart | None, bool]

COMPUTE = frozenset({CPU, MEMORY})


def thousandths(resources: ResourceList | None) -> Amounts:
    return {name: each.tally for name, each in resources.items()} if resources else {}


def in_bounds(amounts: Amounts) -> bool:
    """Nothing is negative (`Quantity.tally`) or more than any node has."""
    return not amounts or max(amounts.values()) <= MAX_INT64


def whole(amounts: Amounts) -> Amounts:
    """Thousandths → what is shown: cpu stays in milli-cores, everything else becomes bytes or pieces (Q-13)."""
    return {name: each if name == CPU else -(-each // 1000) for name, each in amounts.items()}
