"""Resizes on a whole simulated node, step by step: a lost checkpoint, other changes of the spec, refusals."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.rules.model.objects import Pod
from tests.unit.node.played_life import QUIET_S, Life, setting_of

MIB = 1 << 20
Document = dict[str, Any]


def size(cpu: str, memory: str = "64Mi", limits: Document | None = None) -> Document:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": limits or {"cpu": cpu, "memory": memory}}


def container(name: str, resources: Document, policy: str = "NotRequired") -> Document:
    policies = [{"resourceName": each, "restartPolicy": policy} for each in ("cpu", "memory")]
    return {"name": name, "image": "i", "command": ["run"], "resources": resources, "resizePolicy": policies}


def file_of(life: Life, pod: str, file: str) -> str:
    seen = life.kernel.read(life.container(pod, "c"), (file,))
    assert seen is not None
    return seen.files[file]


# --- without the checkpoint ---


@pytest.mark.parametrize("policy", ["NotRequired", "RestartContainer"])
@pytest.mark.parametrize(
    ("profile", "cpu", "reason"),
    [("documents", "100", "Infeasible"), ("documents", "5", "Deferred"), ("1.36", "5", "Deferred")],
)
async def test_a_lost_checkpoint_does_not_allocate_a_pending_resize(
    tmp_path: Path, profile: str, cpu: str, reason: str, policy: str
) -> None:
    """The allocation is taken from the status: a pending resize evicts neither the pod itself nor another one."""
    async with Life(tmp_path, profile) as life:
        await life.create("pending", [container("c", size("1"), policy)])
        await life.create("other", [container("c", size("5"), policy)])
        await life.until_running("pending", "other")
        assert (await life.resize("pending", {"c": size(cpu)})).code == 200
        await life.until("pending", lambda status: reason in str(status["conditions"]))
        before = dict(life.runtime.containers)
        await life.lose_the_checkpoint()
        # The next resize is judged with the recovered allocations.
        assert (await life.resize("other", {"c": size("4")})).code == 200
        await life.until("other", lambda status: status["containerStatuses"][0]["resources"] == size("4"))
        for name in ("pending", "other"):
            assert (await life.status(name))["phase"] == "Running"
        (status,) = (await life.status("pending"))["containerStatuses"]
        assert (status["resources"], status["allocatedResources"]) == (size("1"), size("1")["requests"])
        worker = life.agent.pods.named("default", "pending")
        assert worker is not None
        (running,) = [each for each in life.runtime.containers.values() if each.pod_uid == worker.uid]
        assert running == before[running.id]  # never touched
        assert file_of(life, "pending", "cpu.max") == "100000 100000"
        conditions = await life.resizing("pending")
        assert conditions["PodResizePending"]["reason"] == reason
        assert not life.runtime.killed


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_resize_that_was_not_actuated_is_actuated_after_a_restart(
    tmp_path: Path, is_lost: bool, version: int
) -> None:
    """An agent starts although a limit of an earlier one cannot be lowered; with its checkpoint and without."""
    async with Life(tmp_path, "1.36", version) as life:
        await life.create("full", [container("c", size("1", "256Mi"))])
        await life.until_running("full")
        life.kernel.use(life.container("full", "c"), anon_bytes=200 * MIB)
        await life.resize("full", {"c": size("1", "128Mi")})
        await life.until("full", lambda status: "cannot decrease" in str(status["conditions"]))
        if is_lost:
            await life.lose_the_checkpoint()
        else:
            await life.kill()
            await life.start()
        life.kernel.use(life.container("full", "c"), anon_bytes=20 * MIB)
        await life.until("full", lambda status: status["containerStatuses"][0]["resources"] == size("1", "128Mi"))
        assert file_of(life, "full", "memory.max" if version == 2 else "memory.limit_in_bytes") == str(128 * MIB)
        assert (await life.status("full"))["containerStatuses"][0]["restartCount"] == 0


# --- what else changes ---


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"activeDeadlineSeconds": 100_000}, id="a deadline"),
        pytest.param({"tolerations": [{"key": "a", "operator": "Exists"}]}, id="a toleration"),
    ],
)
async def test_status_resize_stays_when_something_else_changes(tmp_path: Path, change: Document) -> None:
    async with Life(tmp_path) as life:
        await life.create("huge", [container("c", size("1"))])
        await life.until_running("huge")
        await life.resize("huge", {"c": size("100")})
        await life.until("huge", lambda status: status.get("resize") == "Infeasible")
        assert (await life.patch("huge", change)).json["metadata"]["generation"] == 3
        (running,) = life.runtime.containers
        life.runtime.end(running, 1)  # so that its status is reported once more
        status = await life.until("huge", lambda status: status["containerStatuses"][0]["restartCount"] == 1)
        worker = life.agent.pods.named("default", "huge")
        assert worker is not None
        assert worker.pod.metadata.generation == 3
        assert status["resize"] == "Infeasible"


# --- refused in part ---

BEFORE = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1500Mi"}}
SMALLER = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1000Mi"}}
TOO_SMALL = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "300Mi"}}


async def test_containers_resized_before_a_refusal_get_their_new_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decreases go in reverse order: b has its size when a is refused, and its processes the score of it."""
    rescored: list[dict[str, tuple[int, int]]] = []

    def rescore(self: PodCgroups, before: Pod, after: Pod) -> None:
        old, new = self.workloads.scores(before), self.workloads.scores(after)
        rescored.append({name: (old[name], new[name]) for name in old if old[name] != new[name]})

    monkeypatch.setattr(PodCgroups, "rescore", rescore)  # a simulated kernel has no scores
    async with Life(tmp_path) as life:
        await life.create("p", [container("a", BEFORE), container("b", BEFORE)])
        await life.until_running("p")
        life.kernel.use(life.container("p", "a"), anon_bytes=1400 * MIB)
        await life.resize("p", {"a": TOO_SMALL, "b": SMALLER})
        await life.until("p", lambda status: "cannot decrease" in str(status["conditions"]))
        large, small = 1000 - 1000 * 1024 // 4096, 1000 - 1000 * 256 // 4096
        assert rescored[0] == {"b": (large, small)}
        message = (await life.resizing("p"))["PodResizeInProgress"]["message"]
        assert message.startswith(
            'cannot decrease memory limits: attempting to set container "a" memory limit (314572800) '
            "below current usage (1468006400): "
        )
        assert re.fullmatch(
            r".*: 1.3 GiB are still in use after [0-9.]+ s, not less than 300.0 MiB; the limit is 1.4 GiB until then",
            message,
        ), message
        life.kernel.use(life.container("p", "a"), anon_bytes=MIB)
        await life.until("p", lambda status: "PodResizeInProgress" not in str(status["conditions"]))
        assert [each for each in rescored[1:] if each] == [{"a": (large, small)}]
        assert not life.runtime.killed


# --- cgroups ---


@pytest.mark.parametrize(("version", "file"), [(1, "memory.limit_in_bytes"), (2, "memory.max")])
async def test_a_resize_is_not_completed_before_the_pods_own_limit_is_lowered(
    tmp_path: Path, version: int, file: str
) -> None:
    """Memory charged to the pod itself, such as a tmpfs volume, keeps its cgroup from shrinking."""
    async with Life(tmp_path, "1.36", version) as life:
        await life.create("full", [container("c", size("1", "256Mi"))])
        await life.until_running("full")
        own = life.container("full", "c").rpartition("/")[0]
        life.kernel.use(own, anon_bytes=200 * MIB)
        assert (await life.resize("full", {"c": size("1", "128Mi")})).code == 200
        await life.until("full", lambda status: "cannot decrease memory limits" in str(status["conditions"]))
        assert file_of(life, "full", file) == str(128 * MIB)
        await life.kill()
        await life.start()  # the next agent tries again
        life.kernel.use(own, anon_bytes=0)
        await life.until("full", lambda status: "PodResizeInProgress" not in str(status["conditions"]))
        seen = life.kernel.read(own, (file,))
        assert seen is not None and seen.files[file] == str(128 * MIB)


async def test_running_pods_get_the_settings_of_the_next_agent(tmp_path: Path) -> None:
    files = ("memory.high", "memory.min", "cpu.max", "pids.max")

    def seen(name: str) -> list[dict[str, str]]:
        path = life.container(name, "c")
        found = [life.kernel.read(each, files) for each in (path, path.rpartition("/")[0])]
        return [dict(each.files) for each in found if each is not None]

    async with Life(tmp_path, "1.36") as life:
        containers = [container("c", size("1", "64Mi", {"cpu": "2", "memory": "256Mi"}))]
        await life.create("before", containers)
        await life.until_running("before")
        await life.kill()
        life.setting = setting_of("1.36", 2, featureGates={"MemoryQoS": True}, cpuCFSQuota=False, podPidsLimit=100)
        await life.start()
        await life.create("after", containers)
        await life.until_running("after")
        deadline_s = time.monotonic() + QUIET_S
        while seen("before") != seen("after"):
            assert time.monotonic() < deadline_s, (seen("before"), seen("after"))
            await asyncio.sleep(0.01)
        assert seen("before")[0]["memory.high"] != "max"
        (status,) = (await life.status("before"))["containerStatuses"]
        assert status["restartCount"] == 0
