"""One pod as it is now, in the rules' words: the runtime's containers with what only the agent can add.

Added are the reason OOMKilled (from the kernel's counters, while the cgroup of that run is still there; the verdict is
kept in the checkpoint), what a container left in its termination log, and what it was started from.
"""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.codec.kernel import cri_log
from plimsoll.node.checkpoint import PodRecord
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.pods.container_spec import CONTAINER_HASH, container_hash
from plimsoll.node.resources.pleg import PodParts
from plimsoll.node.volumes.pod_dirs import (
    LOG_MESSAGE_BYTES,
    LOG_MESSAGE_LINES,
    termination_message,
    wants_log_as_message,
)
from plimsoll.rules.lifecycle.pod_actions import definition_of
from plimsoll.rules.model.objects import Pod, Resources
from plimsoll.rules.model.observed import ObservedContainer, ObservedPod, ObservedSandbox
from plimsoll.rules.model.runnable import RunContainer, RunPod, container_named
from plimsoll.rules.resize.status import status_resources
from plimsoll.rules.resources.cri import unified
from plimsoll.runtime.interface import ContainerStateSeen

KILLED = 137  # 128 + SIGKILL
OOM_KILLED = "OOMKilled"


class Observer:
    """Of one pod. Keeps what cannot change any more."""

    def __init__(self, tools: Dependencies) -> None:
        self._tools = tools
        self._messages: dict[str, str] = {}
        self._judged: set[str] = set()

    def seen(self, pod: RunPod, parts: PodParts, record: PodRecord, given: Pod) -> ObservedPod:
        """`pod` has its allocated resources; `given` is how its cgroups were sized."""
        self._place(pod, parts, given)
        record = self._oom_verdicts(pod, parts, record)
        there = {each.id for each in parts.containers}
        self._messages = {key: text for key, text in self._messages.items() if key in there}
        self._judged &= there
        return ObservedPod(
            tuple(
                ObservedSandbox(each.id, each.attempt, each.ready, each.created_s, each.ip) for each in parts.sandboxes
            ),
            tuple(self._container(pod, each, record, given) for each in parts.containers),
        )

    def _container(self, pod: RunPod, seen: ContainerStateSeen, record: PodRecord, given: Pod) -> ObservedContainer:
        spec = container_named(pod, seen.name)
        reason, message = seen.reason, seen.message
        if seen.phase == "exited":
            message = self._message(pod, seen, spec)
            if seen.id in record.oom_killed:
                reason = OOM_KILLED
        return ObservedContainer(
            id=seen.id,
            name=seen.name,
            phase=seen.phase,
            attempt=seen.attempt,
            sandbox_id=seen.sandbox_id,
            image=seen.image,
            image_id=seen.image_id,
            created_s=seen.created_s,
            started_s=seen.started_s,
            finished_s=seen.finished_s,
            exit_code=seen.exit_code,
            reason=reason,
            message=message,
            definition=_definition(spec, seen),
            resources=self._resources(spec, seen, record, given),
        )

    def _resources(
        self, spec: RunContainer | None, seen: ContainerStateSeen, record: PodRecord, given: Pod
    ) -> Resources | None:
        """As the kernel has them (03 §9); only of what runs."""
        if spec is None or seen.phase != "running":
            return None if spec is None else spec.resources
        reported = self._tools.cgroups.kernel_values(given, seen.name, seen.id)
        return status_resources(
            spec.resources, running=True, reported=reported, actuated=record.actuated.get(seen.name)
        )

    def _message(self, pod: RunPod, seen: ContainerStateSeen, spec: RunContainer | None) -> str:
        if seen.id not in self._messages:
            left = termination_message(self._tools.state_dir, pod.metadata.uid, seen.name, seen.attempt)
            policy = spec.termination_message_policy if spec is not None else ""
            if wants_log_as_message(policy, seen.exit_code, left):
                left = log_end(self._tools.runtime.log_file(seen))
            self._messages[seen.id] = left
        left = self._messages[seen.id]
        return f"{seen.message}: {left}" if seen.message and left else seen.message or left

    # --- cgroups that the runtime makes ---

    def _place(self, pod: RunPod, parts: PodParts, given: Pod) -> None:
        cgroups, uid = self._tools.cgroups, pod.metadata.uid
        if cgroups.stands is None or not cgroups.enforced or not (own := cgroups.paths(uid).get("", "")):
            return
        work = cgroups.work(given)
        wanted = {each.name: unified(v) for each, v in zip(work.containers, work.container_values, strict=True)}
        for finding in cgroups.stands.see(uid, own, parts.containers, wanted):
            field = f"spec.containers{{{finding.container}}}"
            self._tools.tell(pod, "Warning", finding.reason, finding.message, field)

    # --- out of memory ---

    def _oom_verdicts(self, pod: RunPod, parts: PodParts, record: PodRecord) -> PodRecord:
        uid, found = pod.metadata.uid, list(record.oom_killed)
        for each in parts.containers:
            if each.phase != "exited" or each.id in self._judged or each.id in found:
                continue
            self._judged.add(each.id)
            if each.exit_code == KILLED and self._was_hit(uid, each, record):
                found.append(each.id)
        kept = tuple(each for each in found if any(each == there.id for there in parts.containers))
        if kept != record.oom_killed:
            record = self._tools.checkpoint.put(uid, oom_killed=kept)
            self._tools.checkpoint.save_if_possible()  # the next start takes the evidence away
        return record

    def _was_hit(self, uid: str, container: ContainerStateSeen, record: PodRecord) -> bool:
        cgroups = self._tools.cgroups
        own = cgroups.oom_kills(uid, container.name, container.id)
        if own is not None:
            return own > 0
        # Under systemd the scope may have gone with its processes. What the pod's slice counted since then tells.
        keys = (container.id, oom_base_key(container.name, container.attempt))
        base = next((record.oom_bases[key] for key in keys if key in record.oom_bases), None)
        now = cgroups.pod_oom_kills(uid)
        return base is not None and now is not None and now > base


def oom_base_key(name: str, attempt: int) -> str:
    """Of a container whose id is the runtime's to choose, and not known before it is made."""
    return f"{name}/{attempt}"


def _definition(spec: RunContainer | None, seen: ContainerStateSeen) -> str:
    """`definition_of` what it was started from, told by the hash it carries."""
    carried = seen.annotations.get(CONTAINER_HASH, "")
    if not carried or spec is None:
        return ""
    return definition_of(spec) if carried == container_hash(spec) else f"another: {carried}"


def log_end(file: Path) -> str:
    """What stands for a message that was never left: the last 80 lines of the log, at most 2048 bytes."""
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
