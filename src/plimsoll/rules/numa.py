"""NUMA masks and topology hints: what the resource managers tell the topology manager, and get from it (07 §4).

A mask is a number whose bit i stands for NUMA node i. A hint says that a resource can come from the nodes of a mask,
and whether that is preferred. A list of hints has two special forms: None means no preference, an empty list means
that the resource cannot be had at all.

Kubernetes: pkg/kubelet/cm/topologymanager/bitmask, topology_manager.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import msgspec

MAX_NODES = 64  # a mask of the kubelet has 64 bits


class Hint(msgspec.Struct, frozen=True):
    """`mask` None: no particular nodes."""

    mask: int | None
    preferred: bool

    def __str__(self) -> str:
        nodes = "nil" if self.mask is None else f"[{' '.join(map(str, nodes_of(self.mask)))}]"
        return f"{{{nodes} {'T' if self.preferred else 'F'}}}"


Hints = tuple[Hint, ...]
HintLists = Mapping[str, Hints | None]  # resource → its hints
NO_HINT = Hint(None, preferred=False)


def mask_of(nodes: Iterable[int]) -> int:
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def nodes_of(mask: int) -> tuple[int, ...]:
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


def masks(nodes: Iterable[int]) -> Iterator[int]:
    """All masks of these nodes: fewer nodes first, then in lexicographic order ({0} {1} {2} {0 1} {0 2} {1 2} …)."""
    ordered = sorted(nodes)
    for size in range(1, len(ordered) + 1):
        for chosen in combinations(ordered, size):
            yield mask_of(chosen)


def narrowness(mask: int) -> tuple[int, int]:
    """The narrower of two masks has the smaller key: fewer nodes, then the smaller number (TM-3)."""
    return mask.bit_count(), mask
