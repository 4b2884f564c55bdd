"""A11, A12: two cgroup drivers on one node, and cgroups and containers that do not belong together."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.rules.audit.differences import ComparedNode
from plimsoll.rules.audit.finding import Finding, Rule, Unknown

_ENDED = ("Succeeded", "Failed")


def _drivers(view: ComparedNode) -> Iterator[Finding | Unknown]:
    node = view.evidence.name
    roots = sorted({owner.pods_root for owner in view.owners.values() if owner.kind == "pods"})
    configured = view.parsed.config.cgroup_driver
    if len(roots) > 1:
        yield Finding(
            "A11",
            "warning",
            "node",
            node,
            "cgroupDriver",
            declared=configured,
            expected="one tree of pods",
            observed=", ".join(roots),
            advice="drain the node, stop the kubelet and the runtime, and reboot or remove the tree that is left over",
            note="the driver was changed while pods were running: limits of the other tree are no longer maintained",
            node=node,
        )
    own = view.observed_driver
    from_runtime = view.chosen.profile.driver_from_cri
    if own is not None and own != configured and not from_runtime:
        yield Finding(
            "A11",
            "error",
            "node",
            node,
            "cgroupDriver",
            declared=configured,
            expected=configured,
            observed=own,
            path=roots[0] if roots else "",
            advice="restart the kubelet with the configuration that is meant; both kubelet and runtime must use one "
            "driver",
            node=node,
        )
    for path, owner in view.owners.items():
        if owner.misplaced:
            pod = view.by_uid.get(owner.pod_uid)
            yield Finding(
                "A11",
                "error",
                "container",
                f"{pod.title if pod is not None else owner.pod_uid} / {owner.container_id[:12]}",
                "cgroup",
                declared="below the cgroup of its pod",
                expected="the same driver in kubelet and runtime",
                observed=path,
                path=path,
                owner="container runtime",
                next_overwrite="when the container restarts",
                advice="set SystemdCgroup = true in the runtime (or cgroupDriver: cgroupfs in the kubelet), then "
                "recreate the pods",
                note="limits of pod, class and node do not apply to it",
                node=node,
            )
    if not roots:
        yield Unknown(node, "no tree of pods was observed (neither kubepods nor kubepods.slice)")


def _strays(view: ComparedNode) -> Iterator[Finding | Unknown]:
    yield from _missing(view)
    known = {each.pod.metadata.uid: each for each in view.evidence.pods or ()}
    spare: dict[str, int] = {}
    for path, owner in view.owners.items():
        if owner.kind == "pod" and owner.pod_uid not in known:
            yield _stray(
                view,
                path,
                "pod",
                owner.pod_uid,
                "a pod of the API",
                "remove the directory if it is empty, else find out whose processes they are",
                "the API has no such pod on this node",
            )
        if owner.kind != "container" or owner.misplaced or path in view.sandboxes:
            continue
        pod = known.get(owner.pod_uid)
        if pod is None or pod.pod.status.phase in _ENDED:
            continue
        if any(facts.id == owner.container_id for facts in pod.containers.values()):
            continue
        if view.record.processes is None or not view.processes_in.get(path):
            spare[owner.pod_uid] = spare.get(owner.pod_uid, 0) + 1
            if spare[owner.pod_uid] == 1:  # the sandbox; without processes it looks like a container
                continue
        yield _stray(
            view,
            path,
            "container",
            f"{pod.title} / {owner.container_id[:12]}",
            "a container of the pod's status",
            "look with `plimsoll whose` which process it is; a former container should have no cgroup",
            "the pod's status has no such container",
        )


def _missing(view: ComparedNode) -> Iterator[Finding]:
    elsewhere = {owner.container_id: path for path, owner in view.owners.items() if owner.container_id}
    for place in view.places:
        if place.observed is not None or place.pod is None or place.pod.pod.status.phase != "Running":
            continue
        if place.level == "pod":
            if not any(facts.state == "running" for facts in place.pod.containers.values()):
                continue
            where, note = "", "none of the pod's limits apply"
        else:
            facts = place.facts
            where = elsewhere.get(facts.id, "") if facts is not None else ""
            note = "limits of pod, class and node do not apply to it" if where else ""
            if where and view.owners[where].misplaced:
                continue  # A11
        yield Finding(
            "A12",
            "error",
            place.level,
            place.subject,
            "cgroup",
            declared="running",
            expected=place.path,
            observed=where or "none",
            path=place.path,
            owner="kubelet" if place.level == "pod" else "container runtime",
            next_overwrite="when the container restarts"
            if place.level == "container"
            else "when the pod is created again",
            advice="recreate the pod; if it returns, compare the cgroup drivers of kubelet and runtime (A11)",
            note=note,
            node=view.evidence.name,
        )


def _stray(view: ComparedNode, path: str, level: str, subject: str, expected: str, advice: str, note: str) -> Finding:
    return Finding(
        "A12",
        "warning",
        "pod" if level == "pod" else "container",
        subject,
        "cgroup",
        expected=expected,
        observed=path,
        path=path,
        owner="kubelet" if level == "pod" else "container runtime",
        next_overwrite="when the kubelet removes orphans (every few seconds)" if level == "pod" else "",
        advice=advice,
        note=note + _hierarchies(view, path),
        node=view.evidence.name,
    )


def _hierarchies(view: ComparedNode, path: str) -> str:
    """On v1, where a stray is that not every hierarchy has."""
    known = {
        _controller(file) for top, owner in view.owners.items() if owner.kind == "pods" for file in view.observed[top]
    }
    found = {_controller(file) for file in view.observed[path]}
    if view.version == 2 or found >= known:
        return ""
    return (
        f"; of the hierarchies with limits it is only in {', '.join(sorted(found))}" if found else "; it has no limits"
    )


def _controller(file: str) -> str:
    return file.partition(".")[0]


RULES = (
    Rule(
        "A11",
        "error",
        ("node", "container"),
        "kubelet and runtime use different cgroup drivers",
        "With two drivers there are two trees. The runtime puts containers beside the tree of the kubelet, so limits "
        "of "
        "pod, class and node do not apply to them, and the node's reserved resources are not protected.",
        "Use the systemd driver in both, on machines with systemd.",
        ("kubernetes#138431", "02 §2.2"),
        ("configuration", "cgroups"),
        _drivers,
    ),
    Rule(
        "A12",
        "error",
        ("pod", "container"),
        "cgroups and pods do not belong together",
        "A container outside its pod's cgroup, a cgroup without a pod, or a running pod without a cgroup: what the API "
        "shows is not what the kernel enforces and counts.",
        "Recreate the pod. A cgroup without a pod that stays holds processes or a mount of a former container.",
        ("02 §1", "02 §2"),
        ("pods", "configuration", "cgroups"),
        _strays,
    ),
)
