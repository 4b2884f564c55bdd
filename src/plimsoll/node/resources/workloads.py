"""What the rules compute for the node's pods: values, scores and names of containers, computed once per pod."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.cgroups.engine.desired import WorkloadCache
from plimsoll.rules.model.objects import Container, Metadata, Pod, PodSpec
from plimsoll.rules.model.observed import CriResources
from plimsoll.rules.resources.cri import cri_resources
from plimsoll.rules.resources.values import Values


class Workloads(WorkloadCache):
    def values(self, pod: Pod) -> dict[str, Values]:
        """By container name."""
        work = self.of(pod)
        return {each.name: values for each, values in zip(work.containers, work.container_values, strict=True)}

    def scores(self, pod: Pod) -> dict[str, int]:
        """oom_score_adj by container name."""
        work = self.of(pod)
        return {each.name: score for each, score in zip(work.containers, work.scores, strict=True)}

    def cri_resources(
        self,
        pod: Pod,
        cpus_of: Callable[[str], str] = lambda _name: "",
        mems_of: Callable[[str], str] = lambda _name: "",
    ) -> dict[str, CriResources]:
        """By container name. `cpus_of`, `mems_of`: the CPUs and NUMA nodes of a container."""
        scores = self.scores(pod)
        return {
            name: cri_resources(values, scores[name], cpuset_cpus=cpus_of(name), cpuset_mems=mems_of(name))
            for name, values in self.values(pod).items()
        }

    def cri_resources_once(self, pod: Pod, name: str) -> CriResources:
        """Of one container in a pod that is only assumed; not cached."""
        return Workloads(self.config).cri_resources(pod)[name]


def lean_pod_of(pod: Pod) -> Pod:
    """The part of a pod that decides about its cgroups; it is kept for as long as the pod has some."""
    meta, spec = pod.metadata, pod.spec
    return Pod(
        metadata=Metadata(name=meta.name, namespace=meta.namespace, uid=meta.uid, annotations=meta.annotations),
        spec=PodSpec(
            containers=tuple(_lean(container) for container in spec.containers),
            init_containers=tuple(_lean(container) for container in spec.init_containers),
            ephemeral_containers=tuple(_lean(container) for container in spec.ephemeral_containers),
            resources=spec.resources,
            overhead=spec.overhead,
            priority=spec.priority,
            priority_class_name=spec.priority_class_name,
            restart_policy=spec.restart_policy,
        ),
    )


def _lean(container: Container) -> Container:
    return Container(name=container.name, resources=container.resources, restart_policy=container.restart_policy)
