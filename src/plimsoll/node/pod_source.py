"""The agent's pods for the node's server and its statistics: documents, containers, and their cgroups and volumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from plimsoll.codec.lean.runnable import status_document
from plimsoll.node.agent import Agent
from plimsoll.node.pods.worker import PodWorker
from plimsoll.node.resources.pleg import NOTHING
from plimsoll.node.stats.stats import ContainerPlace, PodPlace, VolumePlace
from plimsoll.node.volumes.pod_dirs import files_directory, log_directory
from plimsoll.rules.eviction.usage import is_local
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.resize.allocation import allocated_document
from plimsoll.runtime.interface import ObservedContainer, ObservedSandbox


class PodsShown:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    # --- for the server ---

    def find(self, namespace: str, name: str) -> JsonObject | None:
        worker = self._agent.pods.named(namespace, name)
        return None if worker is None else shown_document(worker)

    def documents(self) -> Iterable[JsonObject]:
        return [shown_document(worker) for worker in self._agent.pods]

    def allocated(self) -> Iterable[JsonObject]:
        """Pods that have an allocation, with it: what admission counts."""
        known = ((worker, self._agent.checkpoint.get(worker.uid).allocation) for worker in self._agent.pods)
        return [
            allocated_document(shown_document(worker), allocation)
            for worker, allocation in known
            if allocation is not None
        ]

    def container(self, container_id: str) -> ObservedContainer | None:
        for observed in self._agent.view.last.values():
            for container in observed.containers:
                if container.id == container_id:
                    return container
        return None

    def sandbox(self, uid: str) -> ObservedSandbox | None:
        return self._agent.view.last.get(uid, NOTHING).sandbox()

    # --- for statistics ---

    def places(self) -> Iterator[PodPlace]:
        """Pods with a sandbox in the runtime, and their running containers."""
        on_disk = not self._agent.paths.bounds_files
        for worker in self._agent.pods:
            observed = self._agent.view.last.get(worker.uid, NOTHING)
            if not observed.sandboxes:
                continue
            paths = self._agent.cgroups.paths(worker.uid) if self._agent.cgroups.enforced else {}
            metadata = worker.pod.metadata
            logs = str(log_directory(self._agent.paths.logs, metadata))
            yield PodPlace(
                uid=worker.uid,
                name=metadata.name,
                namespace=metadata.namespace,
                cgroup=paths.get("", ""),
                started_s=observed.sandboxes[0].created_s,
                containers=tuple(
                    ContainerPlace(
                        name=each.name,
                        id=each.id,
                        cgroup=paths.get(each.name, ""),
                        pid=each.pid,
                        started_s=each.started_s,
                        image=each.image,
                        log_directory=f"{logs}/{each.name}",
                    )
                    for each in observed.containers
                    if each.phase == "running"
                ),
                volumes=tuple(self._volumes(worker)),
                files=str(files_directory(self._agent.paths.state, worker.uid)) if on_disk else "",
            )

    def _volumes(self, worker: PodWorker) -> Iterator[VolumePlace]:
        """Those that a kubelet measures. A hostPath has no statistics there either."""
        for volume in worker.pod.spec.volumes:
            if volume.empty_dir is not None or volume.config_map is not None:
                directory = self._agent.volumes.directory(worker.pod, volume)
                yield VolumePlace(volume.name, str(directory), on_disk=is_local(volume))


def shown_document(worker: PodWorker) -> JsonObject:
    """As the API server last sent it, with the status that was last computed."""
    document: JsonObject = msgspec.json.decode(worker.body)
    if worker.status is not None:
        document["status"] = status_document(worker.status)
    return document
