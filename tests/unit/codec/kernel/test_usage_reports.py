"""Usage as nodes and metrics servers report it; what is missing stays unknown."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.kernel.usage_reports import metrics_usage, summary_usage
from plimsoll.rules.eviction.usage import ContainerUsage, FsUsage, PodUsage

REF = {"name": "web", "namespace": "shop"}
SUMMARIES: list[tuple[str, Any, dict[tuple[str, str], PodUsage]]] = [
    ("nothing", {}, {}),
    ("not a list", {"pods": "x"}, {}),
    ("a pod without figures", {"pods": [{"podRef": REF}]}, {("shop", "web"): PodUsage()}),
    (
        "everything",
        {
            "pods": [
                {
                    "podRef": REF,
                    "memory": {"workingSetBytes": 7},
                    "process_stats": {"process_count": 3},
                    "containers": [{"name": "c", "memory": {"workingSetBytes": 5}, "rootfs": {"usedBytes": 1, "inodesUsed": 2}}],
                    "volume": [{"name": "v", "usedBytes": 4}],
                    "ephemeral-storage": {"usedBytes": 6},
                }
            ]
        },
        {("shop", "web"): PodUsage(7, 3, (ContainerUsage("c", 5, FsUsage(1, 2)),), {"v": FsUsage(4, None)}, 6)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("document", "usage"), [row[1:] for row in SUMMARIES], ids=[row[0] for row in SUMMARIES])
def test_summary(document: Any, usage: dict[tuple[str, str], PodUsage]) -> None:
    assert summary_usage(document) == usage


METRICS: list[tuple[str, Any, PodUsage]] = [
    ("the sum", [{"name": "a", "usage": {"memory": "1Ki"}}, {"name": "b", "usage": {"memory": "2Ki"}}], PodUsage(3072, containers=(ContainerUsage("a", 1024), ContainerUsage("b", 2048)))),
    ("no figure", [{"name": "a", "usage": {}}], PodUsage(None, containers=(ContainerUsage("a"),))),
    ("no quantity", [{"name": "a", "usage": {"memory": "lots"}}], PodUsage(None, containers=(ContainerUsage("a"),))),
]  # fmt: skip


@pytest.mark.parametrize(("containers", "usage"), [row[1:] for row in METRICS], ids=[row[0] for row in METRICS])
def test_metrics(containers: Any, usage: PodUsage) -> None:
    assert metrics_usage({"items": [{"metadata": REF, "containers": containers}]}) == {("shop", "web"): usage}
