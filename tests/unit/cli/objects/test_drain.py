"""Which pods a drain evicts, and kubectl's words for those that forbid it."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.cli.objects.drain import DrainRules, drain_plan, listed_reasons


def pod(name: str, owner: str = "", phase: str = "Running", volumes: tuple[str, ...] = (), **annotations: str) -> Any:
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "annotations": {key.replace("_", "/"): value for key, value in annotations.items()},
            "ownerReferences": [{"kind": owner, "controller": True}] if owner else [],
        },
        "spec": {"volumes": [{"name": "v", kind: {}} for kind in volumes]},
        "status": {"phase": phase},
    }


MIRROR = {"metadata": {"name": "m", "namespace": "shop", "annotations": {"kubernetes.io/config.mirror": "x"}}}
NO_CONTROLLER = "Pods that declare no controller (use --force to override): shop/p"
ROWS: list[tuple[str, Any, DrainRules, bool, list[str], list[str]]] = [
    ("a ReplicaSet", pod("p", "ReplicaSet"), DrainRules(), True, [], []),
    ("a mirror pod", MIRROR, DrainRules(force=True), False, [], []),
    ("no controller", pod("p"), DrainRules(), False, [NO_CONTROLLER], []),
    ("force", pod("p"), DrainRules(force=True), True, [], ["deleting Pods that declare no controller: shop/p"]),
    ("ended", pod("p", phase="Succeeded", volumes=("emptyDir",)), DrainRules(), True, [], []),
    ("a DaemonSet", pod("p", "DaemonSet"), DrainRules(), False, ["DaemonSet-managed Pods (use --ignore-daemonsets to ignore): shop/p"], []),
    ("ignored", pod("p", "DaemonSet"), DrainRules(ignore_daemonsets=True), False, [], ["ignoring DaemonSet-managed Pods: shop/p"]),
    ("emptyDir", pod("p", "Job", volumes=("emptyDir",)), DrainRules(), False, ["Pods with local storage (use --delete-emptydir-data to override): shop/p"], []),
    ("its data", pod("p", "Job", volumes=("emptyDir",)), DrainRules(delete_emptydir_data=True), True, [], ["deleting Pods with local storage: shop/p"]),
    ("other volumes", pod("p", "Job", volumes=("configMap",)), DrainRules(), True, [], []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "rules", "evicted", "errors", "warnings"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_pods_of_a_drain(
    document: Any, rules: DrainRules, evicted: bool, errors: list[str], warnings: list[str]
) -> None:
    plan = drain_plan([document], rules)
    assert bool(plan.pods) is evicted
    assert (listed_reasons(plan.errors), listed_reasons(plan.warnings)) == (errors, warnings)


def test_pods_with_one_reason_share_a_line() -> None:
    plan = drain_plan([pod("a"), pod("b")], DrainRules())
    reason = "Pods that declare no controller (use --force to override): shop/a, shop/b"
    assert listed_reasons(plan.errors) == [reason]
