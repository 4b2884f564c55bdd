"""The spread that pods of a Service or a controller have without asking (05 A3)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import LabelSelector
from plimsoll.rules.scheduling.default_spread import ZONE, default_constraints
from plimsoll.rules.scheduling.topology import HOSTNAME, Topology
from tests.unit.rules.scheduling.test_topology import load, pod, spread, webs

WEB = {"app": "web"}


def selector(**fields: Any) -> LabelSelector:
    return from_document(fields, LabelSelector)


@pytest.mark.parametrize(
    ("services", "owner", "labels", "terms"),
    [
        pytest.param([], None, None, 0, id="belongs to nothing"),
        pytest.param([WEB], None, WEB, 0, id="a Service"),
        pytest.param([{"app": "db"}, {}], None, None, 0, id="Services that do not select it"),
        pytest.param([WEB, {"tier": "front"}], None, {"app": "web", "tier": "front"}, 0, id="two Services"),
        pytest.param([], selector(matchLabels=WEB), WEB, 0, id="a ReplicaSet"),
        pytest.param(
            [{"tier": "front"}],
            selector(matchExpressions=[{"key": "app", "operator": "Exists"}]),
            {"tier": "front"},
            1,
            id="both",
        ),
    ],
)
def test_selector(
    services: list[dict[str, str]], owner: LabelSelector | None, labels: dict[str, str] | None, terms: int
) -> None:
    waiting = pod(labels={"app": "web", "tier": "front"})
    found = default_constraints(waiting, services, owner)
    if labels is None:
        assert found == ()
        return
    assert [(each.topology_key, each.max_skew, each.when_unsatisfiable) for each in found] == [
        (HOSTNAME, 3, "ScheduleAnyway"),
        (ZONE, 5, "ScheduleAnyway"),
    ]
    for each in found:
        assert each.label_selector is not None
        assert (each.label_selector.match_labels, len(each.label_selector.match_expressions)) == (labels, terms)


def test_a_pod_with_constraints_has_no_defaults() -> None:
    own = pod(labels=WEB, topologySpreadConstraints=[spread()])
    assert default_constraints(own, [WEB], None) == ()


def test_scores() -> None:
    """A node without a zone is scored by its own pods alone.

    places: 4 nodes, ln 6 = 1.79; 3 zones with "none", ln 5 = 1.61
    h1: 3·1.79 + 2 + 3·1.61 + 4 = 16.2   h2: 2 + 3·1.61 + 4 = 10.8   h3: 2 + 4 = 6   h4: 2
    100 · (16 + 2 − score) / 16
    """
    loads = [load("h1", "a", *webs(3, "a")), load("h2", "a"), load("h3", "b"), load("h4", None)]
    waiting = pod(labels=WEB)
    topology = Topology(waiting, loads, None, default_constraints(waiting, [WEB], None))
    assert topology.spread_scores(loads) == [12, 43, 75, 100]
    assert [topology.refusal(each) for each in loads] == [None] * 4
