"""What the kernel reports about the cgroups of pods and containers: memory in use, limits in force, OOM kills.

A container's cgroup is named after its id, so its counters start at zero with the container: an `oom_kill` in them is a
kill of this attempt. Under systemd the scope may be removed with its last process; then the pod's slice, which counts
for everything below it, shows by how much the counter has risen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.cgroups.engine.shrink import usage_bytes
from plimsoll.codec.kernel.files import flat_keyed
from plimsoll.node.resources.workloads import Workloads
from plimsoll.rules.model.kernel import Weight
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resize.status import STATUS_FILES, kernel_values
from plimsoll.rules.resources.values import Values

_OOM_FILES = ("memory.events.local", "memory.events", "memory.oom_control")


class CgroupReadings:
    """None means that the value cannot be read: the cgroup is gone, or the kernel does not have it."""

    def __init__(
        self,
        driver: CgroupDriver,
        config: NodeConfig,
        workloads: Workloads,
        paths: Callable[[str], Mapping[str, str]],
    ) -> None:
        """`paths`: pod uid → container name → path of its cgroup; "" → the pod's own."""
        self._driver, self._config, self._workloads, self._paths = driver, config, workloads, paths

    def oom_kills(self, uid: str, container: str, container_id: str) -> int | None:
        """Processes in this container's cgroup that the kernel killed."""
        path = self._paths(uid).get(container, "")
        return self._oom_kills(path, _OOM_FILES) if container_id in path.rpartition("/")[2] else None

    def pod_oom_kills(self, uid: str) -> int | None:
        """The same for the pod's cgroup and everything below it; v1 does not count that."""
        path = self._paths(uid).get("", "")
        return self._oom_kills(path, _OOM_FILES[1:]) if self._driver.version == 2 else None

    def _oom_kills(self, path: str, files: tuple[str, ...]) -> int | None:
        texts = None if not path or self._driver.simulated else self._read(path, files)
        if texts is None:
            return None
        file = next((file for file in _OOM_FILES if file in texts), None)
        return None if file is None else flat_keyed(texts[file].encode()).get("oom_kill")

    def kernel_values(self, pod: Pod, container: str, container_id: str) -> Values | None:
        """The values in force in a container's cgroup, which was sized for this pod."""
        path = self._paths(pod.metadata.uid).get(container, "")
        if not path or container_id not in path.rpartition("/")[2]:
            return None
        return self._values(path, self._workloads.values(pod)[container], self._config.policy.weight)

    def pod_kernel_values(self, pod: Pod) -> Values | None:
        path = self._paths(pod.metadata.uid).get("", "")
        return self._values(path, self._workloads.of(pod).values, "linear") if path else None

    def _values(self, path: str, desired: Values, weight: Weight) -> Values | None:
        version = self._driver.version
        texts = self._read(path, STATUS_FILES[version])
        return None if texts is None else kernel_values(texts, desired, version, weight, self._config.machine.page_size)

    def _read(self, path: str, files: tuple[str, ...]) -> Mapping[str, str] | None:
        try:
            return self._driver.texts(path, files)
        except CgroupError:
            return None

    def memory_used(self, uid: str, container: str = "") -> int | None:
        """By one container, or by the whole pod."""
        path = self._paths(uid).get(container, "")
        return usage_bytes(self._driver, path) if path else None
