"""The live page of a node without pods: how often it has something new, and what it says about that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from plimsoll.codec.live_page import Frame
from plimsoll.node.live.source import LIVE_LEAST_S, LIVE_SHARE, LiveSource
from plimsoll.rules.config.parse import reading
from plimsoll.rules.config.thresholds import FsLayout, Threshold
from plimsoll.rules.eviction.assessment import NodeCondition, Observation
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from tests.unit.node.played_node import PlayedNode


class NoPods:
    def pods(self) -> list[Pod]:
        return []

    def containers(self) -> Mapping[str, Mapping[str, str]]:
        return {}

    def paths(self, uid: str) -> Mapping[str, str]:
        raise AssertionError(uid)

    def started_s(self, container_id: str) -> float:
        raise AssertionError(container_id)


class NoPressure:
    thresholds: Sequence[Threshold] = ()
    layout: FsLayout = "single"

    def conditions(self) -> tuple[NodeCondition, ...]:
        return ()

    def observations(self) -> Mapping[str, Observation]:
        return {}


@pytest.mark.parametrize(
    ("cost_s", "pace_s"),
    [pytest.param(0.0, LIVE_LEAST_S, id="cheap"), pytest.param(0.02, 0.02 / LIVE_SHARE, id="20 ms a sample")],
)
async def test_a_page_says_when_the_next_has_something_new(tmp_path: Path, cost_s: float, pace_s: float) -> None:
    node, profile = PlayedNode(tmp_path), profile_named("documents")
    machine = machine_from_capacity({"cpu": parse("4"), "memory": parse("8Gi")})
    setting = resolved(machine, reading(None, profile, {}).config, profile)
    source = LiveSource(
        setting, node.cgroups, NoPods(), NoPressure(), lambda: None, node.stats.sample, clock=lambda: node.now_s
    )

    async def page(since: int = 0) -> Frame:
        query = {"since": [str(since)], "run": [source.state.run]}
        return msgspec.json.decode(await source.live_page(query), type=Frame)

    await page()
    source._cost_s = cost_s
    first = await page()
    assert (first.seq, first.next_s) == (1, pytest.approx(pace_s))
    node.now_s += pace_s / 2
    between = await page(first.seq)
    assert (between.seq, between.next_s) == (1, pytest.approx(pace_s / 2))
    node.now_s += between.next_s
    assert (await page(first.seq)).seq == 2
    source._readers.close()
