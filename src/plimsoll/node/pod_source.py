"""The agent's pods as the node's endpoint and its measurements see them: documents, containers, where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from plimsoll.codec.lean.runnable import status_document
from plimsoll.node.agent import Agent
from plimsoll.node.pods.worker import PodWorker
from plimsoll.node.resources.pleg import NOTHING
from plimsoll.node.stats.stats import ContainerPlace, PodPlace, VolumePlace
from plimsoll.node.volumes.pod_dirs import log_directory
from plimsoll.rules.eviction.usage import is_local
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.runtime.interface import ContainerStateSeen


class PodsShown:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    # --- for the endpoint ---

    def find(self, namespace: str, name: str) -> JsonObject | None:
        worker = self._agent.pods.named(namespace, name)
        return None if worker is None else _document(worker)

    def documents(self) -> Iterable[JsonObject]:
        return [_document(worker) for worker in self._agent.pods]

    def container(self, container_id: str) -> ContainerStateSeen | None:
        for parts in self._agent.view.last.values():
            for container in parts.containers:
                if container.id == container_id:
                    return container
        return None

    # --- for measurements ---

    def places(self) -> Iterator[PodPlace]:
        """Pods with something in the runtime; of their containers those that run."""
        for worker in self._agent.pods:
            parts = self._agent.view.last.get(worker.uid, NOTHING)
            if not parts.sandboxes:
                continue
            paths = self._agent.cgroups.paths(worker.uid) if self._agent.cgroups.enforced else {}
            metadata = worker.pod.metadata
            logs = log_directory(self._agent.tools.logs, metadata)
            yield PodPlace(
                uid=worker.uid,
                name=metadata.name,
                namespace=metadata.namespace,
                cgroup=paths.get("", ""),
                started_s=parts.sandboxes[0].created_s,
                containers=tuple(
                    ContainerPlace(
                        name=each.name,
                        id=each.id,
                        cgroup=paths.get(each.name, ""),
                        pid=each.pid,
                        started_s=each.started_s,
                        image=each.image,
                        log_directory=str(logs / each.name),
                    )
                    for each in parts.containers
                    if each.phase == "running"
                ),
                volumes=tuple(self._volumes(worker)),
            )

    def _volumes(self, worker: PodWorker) -> Iterator[VolumePlace]:
        """Those that a kubelet measures and we make. A hostPath has no statistics there either, so none counts."""
        for volume in worker.pod.spec.volumes:
            if volume.empty_dir is not None or volume.config_map is not None:
                directory = self._agent.tools.volumes.directory(worker.pod, volume)
                yield VolumePlace(volume.name, str(directory), on_disk=is_local(volume))


def _document(worker: PodWorker) -> JsonObject:
    """As the API sent it last, with the status that was found last."""
    found: JsonObject = msgspec.json.decode(worker.body)
    if worker.status is not None:
        found["status"] = status_document(worker.status)
    return found
