"""Merging hints: worked examples 30 to 37 of 07 §9, and the literal product of all hints as a second implementation."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.config.manager_options import TopologyOptions
from plimsoll.rules.numa import Hint, Hints, mask_of, masks, narrowness
from plimsoll.rules.topologymanager.merge import NumaLayout, TopologyPolicy, hint_lists, merged
from tests.examples import examples

POLICIES: tuple[TopologyPolicy, ...] = ("best-effort", "restricted", "single-numa-node")
TWO = NumaLayout((0, 1))
FOUR = NumaLayout((0, 1, 2, 3))


def t(*nodes: int) -> Hint:
    return Hint(mask_of(nodes), preferred=True)


def f(*nodes: int) -> Hint:
    return Hint(mask_of(nodes), preferred=False)


BOTH = (t(0), t(1), f(0, 1))
PAIRS = tuple(t(a, b) for a in range(4) for b in range(a + 1, 4))
# hints of gpu and cpu or memory → the merged hint and whether it is admitted, for each policy
MERGES = [
    pytest.param(TWO, [{"gpu": (t(1), f(0, 1))}, {"cpu": BOTH}], ["{[1] T} +"] * 3, id="30"),
    pytest.param(
        TWO, [{"gpu": (t(1), f(0, 1))}, {"cpu": (t(0), f(0, 1))}], ["{[0] F} +", "{[0] F} -", "{nil F} -"], id="31"
    ),
    pytest.param(TWO, [{"cpu": BOTH}, {"memory": (t(0, 1),)}], ["{[0 1] F} +", "{[0 1] F} -", "{nil F} -"], id="32"),
    pytest.param(
        TWO, [{"cpu": (t(0, 1),)}, {"memory": (t(0, 1),)}], ["{[0 1] T} +", "{[0 1] T} +", "{nil F} -"], id="32-both"
    ),
    pytest.param(TWO, [{}, {"gpu": None}], ["{[0 1] T} +", "{[0 1] T} +", "{nil T} +"], id="33"),
    pytest.param(TWO, [{"gpu": ()}, {"cpu": BOTH}], ["{[0] F} +", "{[0] F} -", "{nil F} -"], id="34"),
    pytest.param(TWO, [{"gpu": ()}], ["{[0 1] F} +", "{[0 1] F} -", "{nil F} -"], id="34-alone"),
    pytest.param(NumaLayout((0,)), [{"cpu": (t(0),)}], ["{[0] T} +", "{[0] T} +", "{nil T} +"], id="35"),
    pytest.param(FOUR, [{"cpu": PAIRS}], ["{[0 1] T} +", "{[0 1] T} +", "{nil F} -"], id="36"),
    pytest.param(
        FOUR,
        [{"gpu": (t(2), t(3), f(0, 2))}, {"cpu": PAIRS}],
        ["{[0 2] F} +", "{[0 2] F} -", "{nil F} -"],
        id="37",
    ),
]


@pytest.mark.parametrize(("layout", "providers", "expected"), MERGES)
def test_merges(layout: NumaLayout, providers: list[dict[str, Hints | None]], expected: list[str]) -> None:
    found = [merged(policy, layout, providers) for policy in POLICIES]
    assert [f"{each.hint} {'+' if each.admitted else '-'}" for each in found] == expected
    nothing = merged("none", layout, providers)
    assert (str(nothing.hint), nothing.admitted) == ("{nil F}", True)


def distances(near: dict[tuple[int, int], int]) -> dict[int, list[int]]:
    return {
        one: [10 if one == other else near.get((min(one, other), max(one, other)), 21) for other in range(4)]
        for one in range(4)
    }


def test_36_closest() -> None:
    layout = NumaLayout((0, 1, 2, 3), distances({(0, 2): 12, (1, 3): 11}))
    found = merged("best-effort", layout, [{"cpu": PAIRS}], TopologyOptions(prefer_closest=True))
    assert str(found.hint) == "{[1 3] T}"


# --- the literal rule ---


def literal(layout: NumaLayout, lists: list[Hints], *, closest: bool) -> Hint:
    """TM-5 to TM-7 word by word: every element of the product, folded."""
    sizes = [[each.mask.bit_count() for each in hints if each.mask is not None] for hints in lists]
    bound = max((min(each) for each in sizes if each), default=0)

    def compare(best: int, other: int) -> bool:
        """Whether the other one is taken."""
        if best == other:
            return False
        if closest and best.bit_count() == other.bit_count():
            ours, theirs = layout.mean_distance(best), layout.mean_distance(other)
            return theirs < ours or (theirs == ours and other < best)
        return narrowness(other) < narrowness(best)

    best: Hint | None = None
    for hints in product(*lists):
        given_masks = [each.mask for each in hints if each.mask is not None]
        mask = layout.all_nodes
        for each in given_masks:
            mask &= each
        if not mask:
            continue
        candidate = Hint(mask, all(each.preferred for each in hints) and len(set(given_masks)) <= 1)
        if best is None or best.mask is None:
            best = candidate
            continue
        size, own = mask.bit_count(), best.mask.bit_count()
        if best.preferred != candidate.preferred:
            is_taken = candidate.preferred
        elif best.preferred or own > bound:
            is_taken = compare(best.mask, mask)
        elif own == bound:
            is_taken = size == bound and compare(best.mask, mask)
        elif size > bound:
            is_taken = False
        elif size == bound or size > own:
            is_taken = True
        else:
            is_taken = size == own and compare(best.mask, mask)
        best = candidate if is_taken else best
    return best or Hint(layout.all_nodes, preferred=False)


@st.composite
def answers(draw: st.DrawFn) -> tuple[NumaLayout, list[dict[str, Hints | None]]]:
    nodes = tuple(range(draw(st.integers(1, 4))))
    every = list(masks(nodes))
    numbers = draw(st.lists(st.integers(11, 13), min_size=16, max_size=16))
    layout = NumaLayout(
        nodes, {one: [10 if one == other else numbers[4 * one + other] for other in range(4)] for one in range(4)}
    )
    hint = st.builds(Hint, st.sampled_from(every), st.booleans())
    lists = st.none() | st.lists(hint, max_size=4).map(tuple)
    return layout, draw(st.lists(st.dictionaries(st.sampled_from(["a", "b"]), lists, max_size=2), max_size=3))


@settings(max_examples=examples(400))
@given(answers(), st.booleans())
def test_the_set_of_results_is_the_product(
    asked: tuple[NumaLayout, list[dict[str, Hints | None]]], closest: bool
) -> None:
    layout, providers = asked
    found = merged("best-effort", layout, providers, TopologyOptions(prefer_closest=closest))
    assert found.hint == literal(layout, hint_lists(providers), closest=closest)
    assert found.admitted
    strict = merged("restricted", layout, providers, TopologyOptions(prefer_closest=closest))
    assert (strict.hint, strict.admitted) == (found.hint, found.hint.preferred)
    single = merged("single-numa-node", layout, providers, TopologyOptions(prefer_closest=closest))
    assert not single.admitted or single.hint.mask is None or single.hint.mask.bit_count() == 1
