"""Pods leave a node with a NoExecute taint that they do not tolerate, also those that come later; others stay."""

from __future__ import annotations

from pathlib import Path

from plimsoll.rules.timestamps import rfc3339
from tests.unit.api.api_client import PODS, pod
from tests.unit.api.controllers.workloads import Workloads, workloads

TAINT = {"key": "broken", "effect": "NoExecute"}


async def ready_node(made: Workloads, name: str) -> None:
    now = rfc3339(made.ask.now_s)
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
    await made.create("nodes", {"metadata": {"name": name}, "status": {"conditions": [ready]}})
    await made.patch("nodes", name, {"spec": {"taints": None}})


async def bind(made: Workloads, name: str, node: str) -> None:
    target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    await made.ask.ok("POST", f"{PODS}/{name}/binding", target)


async def test_only_the_pods_of_the_node_that_do_not_tolerate_it(tmp_path: Path) -> None:
    async with workloads(tmp_path) as made:
        for name in ("a", "b"):
            await ready_node(made, name)
        tolerates = [{"key": "broken", "operator": "Exists"}]
        await made.create("pods", pod("early", nodeName="a"))
        await made.create("pods", pod("stays", nodeName="a", tolerations=tolerates))
        await made.create("pods", pod("elsewhere", nodeName="b"))
        await made.create("pods", pod("late"))
        await made.patch("nodes", "a", {"spec": {"taints": [TAINT]}})
        await made.until("pods", "early", lambda found: "deletionTimestamp" in found["metadata"])
        await bind(made, "late", "a")
        late = await made.until("pods", "late", lambda found: "deletionTimestamp" in found["metadata"])
        assert {"DisruptionTarget"} <= {each["type"] for each in late["status"]["conditions"]}
        for name in ("stays", "elsewhere"):
            assert "deletionTimestamp" not in (await made.get("pods", name))["metadata"]
        await made.ask.ok("DELETE", f"{PODS}/early?gracePeriodSeconds=0")
        await made.create("pods", pod("early", nodeName="b"))  # the same name, on another node
        await made.create("pods", pod("last", nodeName="a"))
        await made.until("pods", "last", lambda found: "deletionTimestamp" in found["metadata"])
        assert "deletionTimestamp" not in (await made.get("pods", "early"))["metadata"]
