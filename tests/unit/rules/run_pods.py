"""Pods that run, short to write, and a node of plain values that carries out what `compute_pod_actions` asks."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.rules.lifecycle.pod_actions import after_sync, compute_pod_actions, started
from plimsoll.rules.model.objects import is_sidecar
from plimsoll.rules.model.observed import (
    NO_MEMORY,
    ContainerPhase,
    ObservedContainer,
    ObservedPod,
    ObservedSandbox,
    PodActions,
    ProbeResults,
    SyncState,
)
from plimsoll.rules.model.runnable import RunPod, container_named

Json = dict[str, Any]
UID = "7e5a"
START_S = 1_000_000.0


def a_pod(*containers: str | Json, init: tuple[str | Json, ...] = (), restart: str = "Always", **fields: Any) -> RunPod:
    """Containers by name or as documents; `metadata` and `status` among the fields, the rest is spec."""
    metadata = {"name": "p", "namespace": "ns", "uid": UID, "generation": 3, **fields.pop("metadata", {})}
    spec = {
        "containers": [_container(each) for each in containers or ("a",)],
        "initContainers": [_container(each) for each in init],
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 30,
        **{key: value for key, value in fields.items() if key != "status"},
    }
    return run_pod({"kind": "Pod", "metadata": metadata, "spec": spec, "status": fields.get("status", {})})


def _container(each: str | Json) -> Json:
    return {"image": "img:1", **({"name": each} if isinstance(each, str) else each)}


def sidecar(name: str, **fields: Any) -> Json:
    return {"name": name, "restartPolicy": "Always", **fields}


def run(
    name: str,
    phase: ContainerPhase = "running",
    *,
    attempt: int = 0,
    exit_code: int = 0,
    finished_s: float = 0.0,
    **fields: Any,
) -> ObservedContainer:
    return ObservedContainer(
        id=f"{name}-{attempt}",
        name=name,
        phase=phase,
        attempt=attempt,
        created_s=START_S + attempt,
        started_s=START_S + attempt if phase != "created" else 0.0,
        finished_s=finished_s or START_S + attempt + 1 if phase == "exited" else 0.0,
        exit_code=exit_code,
        **{"sandbox_id": "s-0", "image": "img:1", "image_id": "sha256:1", **fields},
    )


SANDBOX = ObservedSandbox("s-0", ip="10.0.0.7")


def seen(*containers: ObservedContainer, sandbox: ObservedSandbox | None = SANDBOX) -> ObservedPod:
    return ObservedPod((sandbox,) if sandbox is not None else (), containers)


def memory(**fields: Any) -> SyncState:
    return SyncState(**fields)


class ModelNode:
    """Carries out work at once; containers end only where a test says so."""

    def __init__(self, pod: RunPod, now_s: float = START_S) -> None:
        self.pod, self.now_s = pod, now_s
        self.sandboxes: list[ObservedSandbox] = []
        self.containers: list[ObservedContainer] = []
        self.memory = NO_MEMORY
        self.starts: list[tuple[str, float]] = []

    @property
    def seen(self) -> ObservedPod:
        return ObservedPod(tuple(self.sandboxes), tuple(self.containers))

    def sync(self) -> PodActions:
        work = compute_pod_actions(self.pod, self.seen, self.memory, self.now_s)
        self.memory = after_sync(self.memory, work)
        if work.kill_pod:
            for each in self.containers:
                self._end(each, 137)
            self.sandboxes = [msgspec.structs.replace(each, ready=False) for each in self.sandboxes]
        for kill in work.kills:
            self._end(self._by_id(kill.id), 137)
        self.containers = [each for each in self.containers if each.id not in work.forget]
        if work.sandbox_attempt is not None:
            self.sandboxes.append(ObservedSandbox(f"s-{work.sandbox_attempt}", work.sandbox_attempt))
        for start in work.starts:
            assert all(each.phase == "exited" for each in self.seen.of(start.name) if each.id != start.resume_id)
            self._start(start.name, start.attempt, start.resume_id)
        return work

    def settle(self, syncs: int = 40) -> PodActions:
        """Turns until there is nothing to do."""
        for _ in range(syncs):
            work = self.sync()
            if work.is_idle:
                return work
        raise AssertionError(f"still busy after {syncs} syncs: {work}")

    def exit(self, name: str, exit_code: int = 0) -> None:
        for each in self.seen.of(name):
            self._end(each, exit_code)

    def probe(self, name: str, **results: bool) -> None:
        newest = self.seen.newest(name)
        if newest is not None:
            before = self.memory.probes.get(newest.id, ProbeResults())
            probes = {**self.memory.probes, newest.id: msgspec.structs.replace(before, **results)}
            self.memory = msgspec.structs.replace(self.memory, probes=probes)

    def lose_sandbox(self) -> None:
        for each in self.containers:
            self._end(each, 255)
        self.sandboxes = [msgspec.structs.replace(each, ready=False) for each in self.sandboxes]

    def names(self, phase: ContainerPhase = "running") -> list[str]:
        order = [each.name for each in (*self.pod.spec.init_containers, *self.pod.spec.containers)]
        return sorted((each.name for each in self.containers if each.phase == phase), key=order.index)

    def _by_id(self, container_id: str) -> ObservedContainer:
        return next(each for each in self.containers if each.id == container_id)

    def _replace(self, old: ObservedContainer, new: ObservedContainer) -> None:
        self.containers[self.containers.index(old)] = new

    def _end(self, container: ObservedContainer, exit_code: int) -> None:
        if container.phase != "exited":
            ended = msgspec.structs.replace(container, phase="exited", exit_code=exit_code, finished_s=self.now_s)
            self._replace(container, ended)

    def _start(self, name: str, attempt: int, resume_id: str) -> None:
        self.starts.append((name, self.now_s - START_S))
        self.memory = started(self.memory, name)
        if resume_id:
            old = self._by_id(resume_id)
            self._replace(old, msgspec.structs.replace(old, phase="running", started_s=self.now_s))
            return
        container = container_named(self.pod, name)
        assert container is not None
        assert all(each.attempt < attempt for each in self.containers if each.name == name)
        sandbox = self.seen.sandbox()
        assert sandbox is not None and sandbox.ready
        self.containers.append(
            ObservedContainer(
                f"{name}-{attempt}-{sandbox.id}",
                name,
                "running",
                attempt,
                sandbox.id,
                container.image,
                created_s=self.now_s,
                started_s=self.now_s,
            )
        )


def is_ordinary_init(pod: RunPod, name: str) -> bool:
    return any(each.name == name and not is_sidecar(each) for each in pod.spec.init_containers)
