"""The resizes of document 003 by the panel of the dashboard: each verdict, the kernel's files, and the steps T0 to T12."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator

from plimsoll.rules.resources.cpu import weight_linear
from tests.e2e.dashboard_browser import MIB, Cluster, Tab, missing
from tests.e2e.waiting import until

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"dashboard: {missing()}"),
    pytest.mark.xdist_group("dashboard"),
]
POD, FILLER = "timeline", "filler"
STEPS = [  # 03 §5, without the conflict of T6, which needs two requests at once: number, requested, allocated, actual, state
    ("T0", "1", "–", "–", "–"),
    ("T1", "1", "1", "–", "–"),
    ("T2", "1", "1", "1", "–"),
    ("T3", "1500m", "1", "1", "Proposed"),
    ("T4", "1500m", "1500m", "1", "InProgress"),
    ("T5", "1500m", "1500m", "1500m", "–"),
    ("T6", "2", "1500m", "1500m", "Proposed"),
    ("T7", "2", "1500m", "1500m", "Deferred"),
    ("T8", "1600m", "1500m", "1500m", "Proposed"),
    ("T9", "1600m", "1600m", "1500m", "InProgress"),
    ("T10", "1600m", "1600m", "1600m", "–"),
    ("T11", "100", "1600m", "1600m", "Proposed"),
    ("T12", "100", "1600m", "1600m", "Infeasible"),
]


@pytest.fixture
def tab(dashboard: Any) -> Iterator[Tab]:
    """The node has 4 CPUs: 1.5 and 1.6 fit beside the filler, 2 does not, 100 never will."""
    cluster: Cluster = dashboard[0]
    cluster.run(FILLER, "exec sleep 10000", {"requests": {"cpu": "2100m"}})
    resources = {"requests": {"cpu": "1", "memory": "16Mi"}, "limits": {"memory": "32Mi"}}
    cluster.run(POD, "exec sleep 10000", resources)
    until(lambda: cluster.pod(POD)["status"]["containerStatuses"][0].get("resources"))
    made = Tab(dashboard[1], cluster)
    made.open(f"pod/default/{POD}")
    yield made
    made.close()
    for name in (POD, FILLER):
        cluster.delete(name)


class Panel:
    def __init__(self, tab: Tab) -> None:
        self.page = tab.page

    def ask(self, amount: str, text: str, outcome: str) -> Locator:
        self.page.get_by_label(f"{amount} as a quantity", exact=True).fill(text)
        self.page.wait_for_selector(f'[data-resize-panel] [data-outcome="{outcome}"]')
        return self.page.locator("[data-resize-panel] .verdict")

    def commit(self, *reached: str) -> None:
        """Send it, and wait until the timeline ends with this row."""
        self.page.get_by_role("button", name="Commit resize").click()
        until(lambda: (self.steps() or [()])[-1][1:] == reached, lambda: str(self.steps()))

    def steps(self) -> list[tuple[str, ...]]:
        return [
            tuple(row)
            for row in self.page.evaluate(
                """() => [...document.querySelectorAll('[data-resize-steps] [data-twin] tbody tr')].map((row) => [row.dataset.id,
                  ...['spec', 'allocated', 'actual', 'state'].map((name) => row.querySelector(`[data-column="${name}"]`).innerText)])"""
            )
        ]


def test_verdicts_while_you_type_and_the_timeline_of_the_document(tab: Tab, dashboard: Any) -> None:
    cluster: Cluster = dashboard[0]
    panel = Panel(tab)
    panel.ask("cpu request", "1500m", "accepted")
    panel.commit("1500m", "1500m", "1500m", "–")

    verdict = panel.ask("cpu request", "2", "deferred")
    assert verdict.locator("[data-go]").inner_text() == f"default/{FILLER}"
    tab.picture("resize-deferred")
    panel.commit("2", "1500m", "1500m", "Deferred")

    panel.ask("cpu request", "1600m", "accepted")
    panel.commit("1600m", "1600m", "1600m", "–")
    (container,) = (
        each
        for each in tab.page.evaluate("[...globalThis.plimsollDashboard.node.vessels.values()]")
        if each["level"] == "container" and each["pod"] == POD
    )
    shares = 1600 * 1024 // 1000
    file, value = ("cpu.shares", shares) if cluster.driver.version == 1 else ("cpu.weight", weight_linear(shares))
    assert int(cluster.files(container["path"], file)[file]) == value

    assert "it does not fit on this node" in panel.ask("cpu request", "100", "infeasible").inner_text()
    panel.commit("100", "1600m", "1600m", "Infeasible")
    assert panel.steps() == STEPS
    # On the time axis: one sign for each step since the first resize, or for several that are close to each other.
    signs = tab.page.locator("[data-resize-steps] .chart-mark").evaluate_all(
        "all => all.map((each) => each.dataset.steps)"
    )
    drawn = [int(number) for steps in signs for number in steps.split(",") if number]
    assert [number for number in drawn if number >= 3] == list(range(3, 13))

    # The same with the pod's other amounts: a limit below its request is refused, with the nearest request that is not.
    verdict = panel.ask("memory limit", "8Mi", "refused")
    assert tab.page.get_by_role("button", name="Commit resize").is_disabled()
    # It keeps what was typed, and lowers the request with it.
    assert verdict.locator("[data-nearest]").inner_text() == "memory request 8Mi, memory limit 8Mi"
    tab.picture("resize-refused")
    verdict.get_by_role("button", name="Use it").click()
    tab.page.wait_for_selector('[data-resize-panel] [data-outcome="infeasible"], [data-outcome="accepted"]')
    limit = "memory.max" if cluster.driver.version == 2 else "memory.limit_in_bytes"
    assert int(cluster.files(container["path"], limit)[limit]) == 32 * MIB, "nothing is sent before the commit"
    tab.picture("resize-timeline")
