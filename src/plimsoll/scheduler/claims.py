"""The claims of waiting pods: which nodes can use their volumes, and why none can (the filter VolumeBinding)."""

from __future__ import annotations

from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.fit import Filter, FitVerdict, NodeLoad
from plimsoll.rules.storage.binding import WAITS, fitting_volume, node_can_use
from plimsoll.rules.storage.objects import class_of_claim

UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"


class ClaimCache:
    """Claims, volumes and classes of the cluster, and the names of the claims that waiting pods use."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], JsonObject] = {}  # kind, namespace, name
        self._of_pods: dict[str, tuple[str, ...]] = {}  # by uid

    def put(self, kind: str, namespace: str, name: str, document: JsonObject | None) -> None:
        if document is None:
            self._objects.pop((kind, namespace, name), None)
        else:
            self._objects[kind, namespace, name] = document

    def set_claims(self, uid: str, names: tuple[str, ...]) -> None:
        if names:
            self._of_pods[uid] = names

    def forget(self, uid: str) -> None:
        self._of_pods.pop(uid, None)

    def filter_for(self, pod: Pod, profile: Profile) -> tuple[Filter | None, str]:
        """Which nodes the pod's claims refuse; or why no node will do. (None, "") for a pod without claims."""
        names = self._of_pods.get(pod.metadata.uid, ())
        if not names:
            return None, ""
        bound: list[JsonObject] = []
        waiting: list[JsonObject] = []
        for name in names:
            claim = self._objects.get(("PersistentVolumeClaim", pod.metadata.namespace, name))
            if claim is None:
                return None, f'persistentvolumeclaim "{name}" not found'
            if claim["metadata"].get("deletionTimestamp"):
                return None, f'persistentvolumeclaim "{name}" is being deleted'
            volume_name = (claim.get("spec") or {}).get("volumeName") or ""
            volume = self._objects.get(("PersistentVolume", "", volume_name))
            if (claim.get("status") or {}).get("phase") == "Bound" and volume is not None:
                bound.append(volume)
                continue
            storage_class = self._objects.get(("StorageClass", "", class_of_claim(claim))) or {}
            if storage_class.get("volumeBindingMode") != WAITS:
                return None, UNBOUND
            waiting.append(claim)
        return self._filter(bound, waiting, profile), ""

    def _filter(self, bound: list[JsonObject], waiting: list[JsonObject], profile: Profile) -> Filter:
        def refusal(load: NodeLoad) -> FitVerdict | None:
            labels = load.node.metadata.labels or {}
            if any(not node_can_use(volume, load.name, labels) for volume in bound):
                return FitVerdict((profile.volume_conflict_text,), unresolvable=True)
            usable = [
                each
                for (kind, _, _), each in self._objects.items()
                if kind == "PersistentVolume" and node_can_use(each, load.name, labels)
            ]
            if any(fitting_volume(claim, usable) is None for claim in waiting):
                return FitVerdict((NO_VOLUME,), unresolvable=True)
            return None

        return refusal
