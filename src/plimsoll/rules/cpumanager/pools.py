"""Who owns which CPUs, and the shared pool of all others (CM-9, CM-18).

The pool is kept, not computed from the owners: where a kubelet assigns one CPU to two containers (CM-2), the CPU is
back in the pool as soon as one of them is gone.

Kubernetes: pkg/kubelet/cm/cpumanager/state, policy_static.go RemoveContainer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.rules.cpumanager.topology import NO_CPUS, Cpus
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.objects import Pod, is_sidecar

Owned = Mapping[str, Mapping[str, Cpus]]  # pod uid → container name → its CPUs


def taken_by(owned: Owned) -> Cpus:
    return frozenset(cpu for containers in owned.values() for cpus in containers.values() for cpu in cpus)


class CpuPools(msgspec.Struct, frozen=True):
    owned: Owned
    shared: Cpus

    def assigned(self, uid: str, container: str, cpus: Cpus) -> CpuPools:
        containers = {**self.owned.get(uid, {}), container: cpus}
        return CpuPools({**self.owned, uid: containers}, self.shared - cpus)

    def narrowed(self, uid: str, kept: Mapping[str, Cpus]) -> CpuPools:
        """The pod has these CPUs only; what its containers give up joins the pool."""
        before = NO_CPUS.union(*self.owned.get(uid, {}).values())
        others = {other: containers for other, containers in self.owned.items() if other != uid}
        given_up = before - NO_CPUS.union(*kept.values())
        return CpuPools({**others, uid: kept} if kept else others, self.shared | given_up)

    def released(self, uids: Iterable[str]) -> CpuPools:
        found = self
        for uid in uids:
            found = found.narrowed(uid, {})
        return found


class Conflict(msgspec.Struct, frozen=True):
    """CPUs that a container is assigned although another one, or the system, has them."""

    cpus: Cpus
    container: str
    other: tuple[str, str] | None  # pod uid and container; None: the CPUs are reserved

    def text(self, release: str, names: Mapping[str, str]) -> str:
        """`names`: of pods, by uid."""
        number = f"CPU{'s' if len(self.cpus) > 1 else ''} {cpu_text(self.cpus)}"
        if self.other is None:
            return f"kubelet {release} assigns {number} to container {self.container}, though reserved"
        uid, name = self.other
        owner = f"{name} of pod {names.get(uid, uid)}"
        return f"kubelet {release} assigns {number} to two containers: {self.container} and {owner}"


def conflicts(owned: Owned, pod: Pod, reserved: Cpus) -> list[Conflict]:
    """Of this pod. Its containers may reuse the CPUs of its ordinary init containers; that is none."""
    uid, found = pod.metadata.uid, []
    own = owned.get(uid, {})
    inits = {each.name for each in pod.spec.init_containers if not is_sidecar(each)}
    lasting = [name for name in own if name not in inits]
    for number, name in enumerate(lasting):
        found += [Conflict(own[name] & own[other], name, (uid, other)) for other in lasting[:number]]
    for name, cpus in own.items():
        found.append(Conflict(cpus & reserved, name, None))
        for other, containers in owned.items():
            if other != uid:
                found += [Conflict(cpus & theirs, name, (other, each)) for each, theirs in containers.items()]
    return [each for each in found if each.cpus]
