"""One pod as it is now: the containers that the runtime reports, with what only the agent can add.

Added are the reason OOMKilled (from the kernel's counters, while the cgroup of that attempt still exists; the verdict
is kept in the checkpoint), the termination message, the definition a container was started from, and its resources.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from plimsoll.codec.kernel import cri_log
from plimsoll.node.checkpoint import Checkpoint, PodRecord
from plimsoll.node.pods.container_spec import CONTAINER_HASH, container_hash
from plimsoll.node.reporting.event_recorder import PodEvents
from plimsoll.node.resources.cgroup_readings import CgroupReadings
from plimsoll.node.resources.container_cgroups import ContainerCgroups
from plimsoll.node.volumes.pod_dirs import (
    LOG_MESSAGE_BYTES,
    LOG_MESSAGE_LINES,
    termination_message,
    wants_log_as_message,
)
from plimsoll.rules.lifecycle.pod_actions import definition_of
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.model.observed import ObservedContainer, ObservedPod
from plimsoll.rules.model.runnable import RunContainer, RunPod, container_named
from plimsoll.rules.resize.status import status_resources

KILLED = 137  # 128 + SIGKILL
OOM_KILLED = "OOMKilled"


class Observer:
    """Of one pod. Caches what cannot change any more."""

    def __init__(
        self,
        readings: CgroupReadings,
        containers: ContainerCgroups,
        checkpoint: Checkpoint,
        events: PodEvents,
        state_dir: Path,
        log_file: Callable[[ObservedContainer], Path],
    ) -> None:
        self._readings, self._containers, self._checkpoint, self._events = readings, containers, checkpoint, events
        self._state_dir, self._log_file = state_dir, log_file
        self._messages: dict[str, str] = {}  # container id → its termination message
        self._judged: set[str] = set()  # ids of ended containers whose OOM verdict is known

    def observe(self, allocated: RunPod, reported: ObservedPod, cgroup_pod: Pod) -> ObservedPod:
        """`reported`: as the runtime has it; `cgroup_pod`: as its cgroups are sized."""
        for finding in self._containers.observe(cgroup_pod, reported.containers):
            field = f"spec.containers{{{finding.container}}}"
            self._events.emit(allocated, "Warning", finding.reason, finding.message, field)
        record = self._oom_verdicts(allocated.metadata.uid, reported)
        ids = {container.id for container in reported.containers}
        self._messages = {key: text for key, text in self._messages.items() if key in ids}
        self._judged &= ids
        return ObservedPod(
            reported.sandboxes,
            tuple(self._container(allocated, each, record, cgroup_pod) for each in reported.containers),
        )

    def _container(
        self, pod: RunPod, container: ObservedContainer, record: PodRecord, cgroup_pod: Pod
    ) -> ObservedContainer:
        spec = container_named(pod, container.name)
        reason, message = container.reason, container.message
        if container.phase == "exited":
            message = self._message(pod, container, spec)
            if container.id in record.oom_killed:
                reason = OOM_KILLED
        return msgspec.structs.replace(
            container,
            reason=reason,
            message=message,
            definition=_definition(spec, container),
            resources=self._resources(spec, container, record, cgroup_pod),
        )

    def _resources(
        self, spec: RunContainer | None, container: ObservedContainer, record: PodRecord, cgroup_pod: Pod
    ) -> Resources | None:
        """As the kernel has them (03 §9); only of running containers."""
        if spec is None or container.phase != "running":
            return None if spec is None else spec.resources
        reported = self._readings.kernel_values(cgroup_pod, container.name, container.id)
        actuated = record.actuated.get(container.name)
        return status_resources(spec.resources, running=True, reported=reported, actuated=actuated)

    def _message(self, pod: RunPod, container: ObservedContainer, spec: RunContainer | None) -> str:
        if container.id not in self._messages:
            text = termination_message(self._state_dir, pod.metadata.uid, container.name, container.attempt)
            policy = spec.termination_message_policy if spec is not None else ""
            if wants_log_as_message(policy, container.exit_code, text):
                text = log_end(self._log_file(container))
            self._messages[container.id] = text
        text = self._messages[container.id]
        return f"{container.message}: {text}" if container.message and text else container.message or text

    # --- out of memory ---

    def _oom_verdicts(self, uid: str, reported: ObservedPod) -> PodRecord:
        record = self._checkpoint.get(uid)
        killed = list(record.oom_killed)
        for container in reported.containers:
            if container.phase != "exited" or container.id in self._judged or container.id in killed:
                continue
            self._judged.add(container.id)
            if container.exit_code == KILLED and self._was_oom_killed(uid, container, record):
                killed.append(container.id)
        ids = {container.id for container in reported.containers}
        oom_killed = tuple(container_id for container_id in killed if container_id in ids)
        if oom_killed != record.oom_killed:
            record = self._checkpoint.put(uid, oom_killed=oom_killed)
            self._checkpoint.save_if_possible()  # the next start removes the evidence
        return record

    def _was_oom_killed(self, uid: str, container: ObservedContainer, record: PodRecord) -> bool:
        own = self._readings.oom_kills(uid, container.name, container.id)
        if own is not None:
            return own > 0
        # Under systemd the scope may be gone with its processes; the pod's slice has counted since then.
        keys = (container.id, oom_base_key(container.name, container.attempt))
        base = next((record.oom_bases[key] for key in keys if key in record.oom_bases), None)
        now = self._readings.pod_oom_kills(uid)
        return base is not None and now is not None and now > base


def oom_base_key(name: str, attempt: int) -> str:
    """Of a container whose id the runtime chooses, and which is not known before it is created."""
    return f"{name}/{attempt}"


def _definition(spec: RunContainer | None, container: ObservedContainer) -> str:
    """`definition_of` the spec it was started from, found by the hash in its annotations."""
    carried = container.annotations.get(CONTAINER_HASH, "")
    if not carried or spec is None:
        return ""
    return definition_of(spec) if carried == container_hash(spec) else f"another: {carried}"


def log_end(file: Path) -> str:
    """The fallback for a missing termination message: the last 80 lines of the log, at most 2048 bytes."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - 8 * LOG_MESSAGE_BYTES))
            lines = opened.read().splitlines()[-LOG_MESSAGE_LINES:]
    except OSError:
        return ""
    parsed = (cri_log.parse(line) for line in lines)
    text = b"".join(each.content + (b"" if each.partial else b"\n") for each in parsed if each is not None)
    return text[-LOG_MESSAGE_BYTES:].decode("utf-8", "replace")
