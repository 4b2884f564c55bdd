"""Which devices of a resource a container gets (DM-6 to DM-12).

The set is chosen in steps, because the plugin may be asked which devices it prefers: `DeviceAllocation` decides for a
pod, and takes the plugin's preference as a function. Where a kubelet takes any device, Plimsoll takes the lowest names.

Kubernetes: pkg/kubelet/cm/devicemanager/manager.go, topology_hints.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from plimsoll.errors import StructuredError
from plimsoll.rules.model.objects import Container, Pod, is_sidecar
from plimsoll.rules.numa import NO_HINT, Hint, HintLists, Hints, mask_of, masks

HEALTHY = "Healthy"
Ids = frozenset[str]
NO_IDS: Ids = frozenset()
Records = Mapping[str, Mapping[str, Mapping[str, Ids]]]  # pod uid → container → resource → device ids


class Device(msgspec.Struct, frozen=True):
    """`nodes`: its NUMA nodes; None: the plugin tells no topology."""

    id: str
    healthy: bool = True
    nodes: tuple[int, ...] | None = None

    @property
    def mask(self) -> int:
        return mask_of(node for node in self.nodes or () if 0 <= node < 64)


class Pool(msgspec.Struct, frozen=True):
    """The devices of one resource, as its plugin listed them last. `asks`: the plugin has GetPreferredAllocation."""

    devices: Mapping[str, Device]
    stopped: bool = False
    asks: bool = False

    @property
    def healthy(self) -> Ids:
        return NO_IDS if self.stopped else frozenset(each.id for each in self.devices.values() if each.healthy)

    @property
    def capacity(self) -> int:
        return len(self.devices)

    @property
    def has_topology(self) -> bool:
        return any(each.nodes for each in self.devices.values())


Pools = Mapping[str, Pool]
# resource, available ids, ids that must be among them, size → the ids that the plugin prefers
Preferred = Callable[[str, Ids, Ids, int], Iterable[str]]


class DeviceError(StructuredError):
    """`resource`: of which devices cannot be assigned."""

    reason = "UnexpectedAdmissionError"

    resource: str
    why: str
    template = "Allocate failed due to {why}, which is unexpected"


def device_limits(container: Container, resources: Iterable[str]) -> dict[str, int]:
    """Limits of a container on device resources that are not zero."""
    return {name: count for name, count in _limits(container, set(resources)).items() if count}


def _limits(container: Container, resources: Collection[str]) -> dict[str, int]:
    """[quirk] DM-6: a limit of zero takes part in hints, and is refused while no device is healthy."""
    limits = container.resources.limits or {}
    return {name: quantity.value for name, quantity in limits.items() if name in resources}


def pod_device_limits(pod: Pod, resources: Iterable[str]) -> dict[str, int]:
    """Of the whole pod: apps and sidecars together, or the largest init container with the sidecars before it."""
    names = set(resources)
    inits: dict[str, int] = {}
    running: dict[str, int] = {}
    for container in pod.spec.init_containers:
        for name, count in _limits(container, names).items():
            if is_sidecar(container):
                running[name] = running.get(name, 0) + count
            else:
                inits[name] = max(inits.get(name, 0), running.get(name, 0) + count)
    for container in pod.spec.containers:
        for name, count in _limits(container, names).items():
            running[name] = running.get(name, 0) + count
    return {name: max(running.get(name, 0), inits.get(name, 0)) for name in dict.fromkeys([*running, *inits])}


def device_hints(
    devices: Mapping[str, Device],
    available: Ids,
    reusable: Ids,
    count: int,
    nodes: Iterable[int],
    *,
    narrow: bool = True,
) -> Hints:
    """NUMA masks from which so many devices can come. `nodes`: of the machine; `narrow`: only those with devices of
    this resource count (since 1.36). Devices without a topology count never (DM-7)."""
    known = mask_of(nodes)
    carrying = 0
    for device in devices.values():
        carrying |= device.mask
    used = known & carrying if narrow and known & carrying else known
    smallest, found = used.bit_count(), []
    reused = [devices[each].mask for each in reusable if each in devices and devices[each].nodes is not None]
    offered = [devices[each].mask for each in available if each in devices]
    every = [device.mask for device in devices.values()]
    for mask in masks(node for node in range(used.bit_length()) if used >> node & 1):
        size = mask.bit_count()
        if size < smallest and sum(1 for each in every if each & mask) >= count:
            smallest = size
        if not all(each & mask for each in reused):
            continue
        if len(reused) + sum(1 for each in offered if each & mask) >= count:
            found.append(mask)
    return tuple(Hint(mask, mask.bit_count() == smallest) for mask in found)


class DeviceAllocation:
    """The devices of one pod, container by container: a hint provider of the topology manager (AD-4)."""

    def __init__(
        self,
        pod: Pod,
        pools: Pools,
        records: Records,
        nodes: Iterable[int],
        preferred: Preferred = lambda _resource, _available, _must, _size: (),
        *,
        narrow: bool = True,
        trusts: bool = False,
    ) -> None:
        """`preferred` is called where the plugin is asked. `trusts`: the pod was admitted before, so the devices that
        it has are kept even if their plugin is not there now."""
        self._trusts = trusts
        self._pod, self._pools, self._nodes, self._narrow = pod, pools, tuple(nodes), narrow
        self._preferred = preferred
        self._before = records.get(pod.metadata.uid, {})
        taken: dict[str, set[str]] = {}
        for containers in records.values():
            for resources in containers.values():
                for resource, ids in resources.items():
                    taken.setdefault(resource, set()).update(ids)
        self._allocated = taken
        self._reusable: dict[str, Ids] = {}
        self._inits = {each.name for each in pod.spec.init_containers if not is_sidecar(each)}
        self.resources = frozenset(pools) | frozenset(taken)
        self.result: dict[str, dict[str, Ids]] = {}  # container → resource → ids, old ones included
        self.new: dict[str, dict[str, Ids]] = {}  # … only what was assigned now

    def _available(self, resource: str) -> Ids:
        pool = self._pools.get(resource)
        return NO_IDS if pool is None else pool.healthy - self._allocated.get(resource, set())

    # --- hints ---

    def hints(self, container: Container) -> HintLists:
        found: dict[str, Hints | None] = {}
        for resource, count in _limits(container, self.resources).items():
            own = self._before.get(container.name, {}).get(resource, NO_IDS)
            reusable = self._reusable.get(resource, NO_IDS)
            found[resource] = self._hints(resource, count, own, reusable)
        return found

    def pod_hints(self) -> HintLists:
        found: dict[str, Hints | None] = {}
        for resource, count in pod_device_limits(self._pod, self.resources).items():
            own = NO_IDS.union(*(each.get(resource, NO_IDS) for each in self._before.values()))
            found[resource] = self._hints(resource, count, own, NO_IDS)
        return found

    def _hints(self, resource: str, count: int, own: Ids, reusable: Ids) -> Hints | None:
        pool = self._pools.get(resource)
        if pool is None or not pool.has_topology:
            return None
        if own:
            if len(own) != count:
                return ()
            return device_hints(pool.devices, own, NO_IDS, count, self._nodes, narrow=self._narrow)
        available = self._available(resource)
        if len(available | reusable) < count:
            return ()
        return device_hints(pool.devices, available, reusable, count, self._nodes, narrow=self._narrow)

    # --- devices ---

    def allocate(self, container: Container, hint: Hint = NO_HINT) -> None:
        """Raises DeviceError."""
        for resource, count in _limits(container, self.resources).items():
            own = self._before.get(container.name, {}).get(resource, NO_IDS)
            ids = self._chosen(container, resource, count, own, hint)
            if not ids:
                continue
            self.result.setdefault(container.name, {})[resource] = ids
            if not own:
                self.new.setdefault(container.name, {})[resource] = ids
                self._allocated.setdefault(resource, set()).update(ids)
            reusable = self._reusable.get(resource, NO_IDS)
            self._reusable[resource] = reusable | ids if container.name in self._inits else reusable - ids

    def _chosen(self, container: Container, resource: str, count: int, own: Ids, hint: Hint) -> Ids:
        if own and len(own) != count:
            raise DeviceError(
                resource,
                f'pod "{self._pod.metadata.uid}" container "{container.name}" changed request for resource '
                f'"{resource}" from {len(own)} to {count}',
            )
        if self._trusts and (own or not count):
            return own
        pool = self._pools.get(resource)
        if pool is None:
            raise DeviceError(resource, f"cannot allocate unregistered device {resource}")
        if not pool.healthy:
            raise DeviceError(resource, f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if own:
            if not own <= pool.healthy:
                raise DeviceError(
                    resource,
                    "previously allocated devices are no longer healthy; cannot allocate unhealthy devices " + resource,
                )
            return own
        chosen = frozenset(sorted(self._reusable.get(resource, NO_IDS))[:count])
        needed, available = count - len(chosen), self._available(resource)
        if not needed:
            return chosen
        if len(available) < needed:
            raise DeviceError(
                resource,
                f"requested number of devices unavailable for {resource}. Requested: {needed}, "
                f"Available: {len(available)}",
            )
        return self._by_affinity(resource, pool, chosen, available, count, hint)

    def _by_affinity(self, resource: str, pool: Pool, chosen: Ids, available: Ids, count: int, hint: Hint) -> Ids:
        """Devices that touch the mask first (DM-12)."""
        needed = count - len(chosen)
        mask = hint.mask if hint.mask is not None and pool.has_topology else None
        aligned = frozenset(each for each in available if mask is not None and pool.devices[each].mask & mask)
        without = frozenset(each for each in available if mask is None or not pool.devices[each].nodes)
        unaligned = available - aligned - without
        if needed < len(aligned):
            picks = self._wanted(resource, pool, aligned | chosen, chosen, count) & aligned
            return _filled(chosen, needed, picks, aligned)
        chosen |= aligned
        needed = count - len(chosen)
        if not needed:
            return chosen
        picks = self._wanted(resource, pool, available | chosen, chosen, count) & available
        return _filled(chosen, needed, picks, unaligned, without)

    def _wanted(self, resource: str, pool: Pool, available: Ids, must: Ids, count: int) -> Ids:
        return frozenset(self._preferred(resource, available, must, count)) if pool.asks else NO_IDS


def _filled(chosen: Ids, needed: int, *choices: Ids) -> Ids:
    for ids in choices:
        more = sorted(ids - chosen)[:needed]
        chosen |= frozenset(more)
        needed -= len(more)
    return chosen
