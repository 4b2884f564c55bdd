"""What the agent asks for, in the words of the supervisor: ids that can be known beforehand, and a container's plan."""

from __future__ import annotations

import hashlib

from plimsoll.linux import capabilities
from plimsoll.runtime.host import images as bundled
from plimsoll.runtime.runtime import ContainerSpec, RuntimeTrouble, SandboxSpec


def sandbox_id(spec: SandboxSpec) -> str:
    return _digest("sandbox", spec.pod_uid, str(spec.attempt))


def container_id(sandbox: SandboxSpec, name: str, attempt: int) -> str:
    return _digest("container", sandbox.pod_uid, str(sandbox.attempt), name, str(attempt))


def plan_document(spec: ContainerSpec) -> dict[str, object]:
    """The container as the supervisor's `plan.Plan` has it; RuntimeTrouble for what can't be honoured."""
    program = bundled.program(spec.image_ref)
    argv = program.argv(spec.command, spec.args)
    if not argv:
        raise RuntimeTrouble("make_container", f"container {spec.name}: neither it nor its image has a command")
    security = spec.security
    try:
        granted = capabilities.granted(
            security.add_capabilities, security.drop_capabilities, privileged=security.privileged
        )
    except capabilities.UnknownCapability as problem:
        raise RuntimeTrouble("make_container", f"container {spec.name}: {problem}") from None
    return {
        "argv": argv,
        "environment": dict(spec.environment),
        "working_dir": spec.working_dir,
        "root": program.root,
        "expose": program.expose,
        "binds": [(mount.host_path, mount.container_path, mount.read_only) for mount in spec.mounts],
        "identity": (
            security.user or 0,
            security.group or 0,
            security.groups,
            capabilities.mask(granted),
            security.no_new_privileges and not security.privileged,
        ),
        "privileged": security.privileged,
        "read_only_root": security.read_only_root,
        "stdin": spec.stdin,
        "stdin_once": spec.stdin_once,
        "tty": spec.tty,
        "oom_score_adj": spec.resources.oom_score_adj,
        "stop_signal": spec.stop_signal,
    }


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()
