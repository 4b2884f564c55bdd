"""One pod as it is now, in the rules' words: the runtime's containers with what only the agent can add.

Added are the reason OOMKilled (from the kernel's counters, while the cgroup of that run is still there; the verdict is
kept in the checkpoint), what a container left in its termination log, and what it was started from.
"""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.codec import cri_log
from plimsoll.node.checkpoint import PodRecord
from plimsoll.node.container_spec import CONTAINER_HASH, container_hash
from plimsoll.node.pod_files import (
    LOG_MESSAGE_BYTES,
    LOG_MESSAGE_LINES,
    termination_message,
    wants_log_as_message,
)
from plimsoll.node.runtime_view import PodParts
from plimsoll.node.tools import Tools
from plimsoll.rules.objects import Resources
from plimsoll.rules.pod_seen import PodSeen, SeenContainer, SeenSandbox
from plimsoll.rules.pod_work import definition_of
from plimsoll.rules.resize_status import status_resources
from plimsoll.rules.run_objects import RunContainer, RunPod, container_named
from plimsoll.runtime.runtime import ContainerSeen

KILLED = 137  # 128 + SIGKILL
OOM_KILLED = "OOMKilled"


class Observer:
    """Of one pod. Keeps what cannot change any more."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._messages: dict[str, str] = {}
        self._judged: set[str] = set()

    def seen(self, pod: RunPod, parts: PodParts, record: PodRecord) -> PodSeen:
        """`pod` has its allocated resources."""
        record = self._oom_verdicts(pod, parts, record)
        there = {each.id for each in parts.containers}
        self._messages = {key: text for key, text in self._messages.items() if key in there}
        self._judged &= there
        return PodSeen(
            tuple(SeenSandbox(each.id, each.attempt, each.ready, each.created_s, each.ip) for each in parts.sandboxes),
            tuple(self._container(pod, each, record) for each in parts.containers),
        )

    def _container(self, pod: RunPod, seen: ContainerSeen, record: PodRecord) -> SeenContainer:
        spec = container_named(pod, seen.name)
        reason, message = seen.reason, seen.message
        if seen.phase == "exited":
            message = self._message(pod, seen, spec)
            if seen.id in record.oom_killed:
                reason = OOM_KILLED
        return SeenContainer(
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
            resources=_resources(spec, seen, record),
        )

    def _message(self, pod: RunPod, seen: ContainerSeen, spec: RunContainer | None) -> str:
        if seen.id not in self._messages:
            left = termination_message(self._tools.state_dir, pod.metadata.uid, seen.name, seen.attempt)
            policy = spec.termination_message_policy if spec is not None else ""
            if wants_log_as_message(policy, seen.exit_code, left):
                left = log_end(self._tools.runtime.log_file(seen))
            self._messages[seen.id] = left
        left = self._messages[seen.id]
        return f"{seen.message}: {left}" if seen.message and left else seen.message or left

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
        return record

    def _was_hit(self, uid: str, container: ContainerSeen, record: PodRecord) -> bool:
        cgroups = self._tools.cgroups
        own = cgroups.oom_kills(uid, container.name, container.id)
        if own is not None:
            return own > 0
        # Under systemd the scope may have gone with its processes. What the pod's slice counted since then tells.
        base, now = record.oom_bases.get(container.id), cgroups.pod_oom_kills(uid)
        return base is not None and now is not None and now > base


def _resources(spec: RunContainer | None, seen: ContainerSeen, record: PodRecord) -> Resources | None:
    if spec is None:
        return None
    actuated = record.actuated.get(seen.name)
    return status_resources(spec.resources, running=seen.phase == "running", actuated=actuated)


def _definition(spec: RunContainer | None, seen: ContainerSeen) -> str:
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
