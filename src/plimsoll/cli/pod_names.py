"""Names of pods and containers for the uids and ids in cgroup names: from our own state, or from a dump.

`kubectl get pods -A -o json` has all of them. A manifest with a uid has at least the name of the pod. The cgroup of a
static pod has the hash of its file, which its mirror pod has as an annotation.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.cgroups.engine.ownership import decode_state
from plimsoll.cli.manifests import ManifestProblem, read_inputs
from plimsoll.errors import PlimsollError, StructuredError
from plimsoll.linux.files.append_log import AppendLog
from plimsoll.linux.files.state_dir import UnsafeStateError, state_home

CONFIG_HASH = "kubernetes.io/config.hash"
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


class PodListError(StructuredError):
    """A file for --pods that cannot be read as pods."""

    problems: list[ManifestProblem]

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class PodNames(msgspec.Struct, frozen=True):
    pods: dict[str, str] = {}  # uid → namespace/name
    containers: dict[str, str] = {}  # id → name


def our_pod_names(state: Path) -> PodNames:
    """Names of the pods whose cgroups this state directory owns; empty if the file is missing or not readable."""
    try:
        found = decode_state(AppendLog(state).read()).pods.values()
    except (OSError, msgspec.DecodeError, PlimsollError):
        return PodNames()
    return PodNames(
        {each.uid: f"{each.pod.metadata.namespace}/{each.pod.metadata.name}" for each in found},
        {container_id: name for each in found for name, container_id in each.containers.items()},
    )


def every_pod_name(files: tuple[str, ...], state_dir: Path | None) -> PodNames:
    """Names from the state directory and from the files, which take precedence."""
    try:
        home = state_dir or state_home(dict(os.environ), os.geteuid())
        ours = our_pod_names(home / "node" / "node.jsonl")
    except UnsafeStateError:
        ours = PodNames()
    given = read_pod_names(files)
    return PodNames({**ours.pods, **given.pods}, {**ours.containers, **given.containers})


def read_pod_names(files: tuple[str, ...]) -> PodNames:
    if not files:
        return PodNames()
    inputs = read_inputs(files)
    if inputs.problems:
        raise PodListError(inputs.problems)
    pods: dict[str, str] = {}
    containers: dict[str, str] = {}
    for given in inputs.pods:
        metadata = given.pod.metadata
        name = f"{metadata.namespace or 'default'}/{metadata.name}"
        for uid in (metadata.uid, (metadata.annotations or {}).get(CONFIG_HASH)):
            if uid:
                pods[uid] = name
        containers.update(_container_names(given.found.document.get("status")))
    return PodNames(pods, containers)


def _container_names(status: Any) -> dict[str, str]:
    """Container id, without `containerd://`, → name, for all containers in the status."""
    found: dict[str, str] = {}
    for key in _STATUSES if isinstance(status, dict) else ():
        listed = status.get(key)
        for each in listed if isinstance(listed, list) else ():
            if (
                isinstance(each, dict)
                and isinstance(each.get("containerID"), str)
                and isinstance(each.get("name"), str)
            ):
                container_id = each["containerID"].rpartition("://")[2]
                if container_id:
                    found[container_id] = each["name"]
    return found
