"""Why a pod needs a new sandbox, as the kubelet's PodSandboxChanged decides."""

from __future__ import annotations

from plimsoll.rules.model.observed import ObservedPod
from plimsoll.rules.model.runnable import RunPod


def sandbox_changed(pod: RunPod, seen: ObservedPod) -> str:
    """The reason for a new sandbox, as 1.37 reports it; empty if the newest one serves the pod."""
    newest = seen.sandbox()
    if newest is None:
        return "no pod sandbox exists"
    if sum(sandbox.ready for sandbox in seen.sandboxes) > 1:
        return "multiple pod sandboxes are ready and need to be reconciled"
    if not newest.ready:
        return "pod sandbox is not ready"
    if newest.host_network is not None and newest.host_network != pod.spec.host_network:
        return "network namespace mode changed and sandbox needs to be recreated"
    if newest.lacks_ip and not pod.spec.host_network:
        return "pod sandbox has no IP address"
    return ""
