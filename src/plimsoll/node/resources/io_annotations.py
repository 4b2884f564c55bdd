"""Annotations about block I/O of pods that run.

A new pod with annotations that cannot be enforced is refused (`IoAnnotations.refusal`). A pod that runs keeps what it
had: its annotations about I/O are replaced with those that were last valid, and an event says why. So a wrong value is
never carried out in part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.blockio.policy import ANNOTATIONS, io_errors
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.admission import AdmissionRefusal
from plimsoll.rules.node.node_config import NodeConfig

INVALID = "InvalidIOAnnotation"


class IoAnnotations:
    def __init__(
        self,
        setting: NodeConfig,
        sized: Callable[[str], Pod | None],
        warn: Callable[[RunPod, str, str], None],
    ) -> None:
        """`sized`: the pod with this uid as its cgroups were last sized. `warn`: of a pod, with reason and message."""
        self._policy, self._version = setting.policy.io, setting.policy.cgroup_version
        self._sized, self._warn = sized, warn
        self._reported: dict[str, tuple[str | None, ...]] = {}  # uid → the invalid values that were reported

    def errors(self, pod: Pod) -> list[FieldError]:
        return io_errors(pod, self._policy, self._version)

    def refusal(self, pod: Pod) -> AdmissionRefusal | None:
        errors = self.errors(pod)
        return AdmissionRefusal(INVALID, "; ".join(map(str, errors))) if errors else None

    def in_force(self, pod: RunPod, before: Pod | None = None) -> RunPod:
        """A pod that runs, with annotations about I/O that can be enforced; `before`: with those in force."""
        uid = pod.metadata.uid
        errors = self.errors(pod) if self._policy is not None else []
        if not errors:
            self._reported.pop(uid, None)
            return pod
        own, before = pod.metadata.annotations or {}, before or self._sized(uid)
        earlier = (before.metadata.annotations if before is not None else None) or {}
        values = tuple(own.get(name) for name in ANNOTATIONS)
        kept = {name: earlier[name] for name in ANNOTATIONS if name in earlier}
        if self._reported.get(uid) != values:
            self._reported[uid] = values
            self._warn(pod, INVALID, f"{'; '.join(map(str, errors))}; {_stays(kept)}")
        others = {name: text for name, text in own.items() if name not in ANNOTATIONS}
        metadata = msgspec.structs.replace(pod.metadata, annotations={**others, **kept})
        return msgspec.structs.replace(pod, metadata=metadata)

    def forget(self, uid: str) -> None:
        self._reported.pop(uid, None)


def _stays(kept: Mapping[str, str]) -> str:
    if not kept:
        return "the pod's I/O stays as it is"
    return f"the pod keeps {', '.join(f'{name}: {text}' for name, text in kept.items())}"
