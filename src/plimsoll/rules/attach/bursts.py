"""The CPU bursts of attach beside a kubelet that lowers a CPU limit.

The kernel refuses a quota below the burst (EINVAL), so the burst has to be lowered first. A kubelet asks the runtime to
lower the quota of a container, then it lowers the quota of the pod's own cgroup. attach may see the new spec of the pod
only after that, so what the runtime was asked for counts as well.

Kernel: https://docs.kernel.org/scheduler/sched-bwc.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from plimsoll.rules.attach.values import BURSTS, Target


def bounded(targets: Sequence[Target], quotas_us: Mapping[str, int]) -> list[Target]:
    """The targets with bursts that the quotas allow, now and after the kubelet has lowered that of the pod.
    `quotas_us`: by container id, what the runtime was asked for last.

    The pod's spec says 50000 for the container and 80000 for the pod, with bursts of 100 %. The runtime is asked for
    20000: the burst is 20000 in the container, and 80000 − 30000 = 50000 in the pod.
    """
    less_us: dict[str, int] = {}  # by path
    for target in targets:
        quota_us = quotas_us.get(target.container_id, target.quota_us)
        if target.level == "container" and quota_us < target.quota_us:
            pod_path = target.path.rpartition("/")[0]
            for path in (target.path, pod_path):
                less_us[path] = less_us.get(path, 0) + target.quota_us - quota_us
    return [
        _at_most(target, target.quota_us - less_us[target.path]) if target.path in less_us else target
        for target in targets
    ]


def _at_most(target: Target, most_us: int) -> Target:
    files = {
        file: str(min(int(value), max(most_us, 0))) if file in BURSTS else value for file, value in target.files.items()
    }
    return msgspec.structs.replace(target, files=files)


def has_burst(target: Target) -> bool:
    return any(file in BURSTS for file in target.files)


def without_bursts(target: Target) -> Target:
    return msgspec.structs.replace(
        target, files={file: value for file, value in target.files.items() if file not in BURSTS}
    )
