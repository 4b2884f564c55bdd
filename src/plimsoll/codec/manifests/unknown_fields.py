"""Fields of a pod that no API server knows: `limit` for `limits`, `resource` for `resources`.

kubectl asks the server to refuse them, and a typing error in these places silently changes the QoS class of a pod. The
resource blocks are closed, so an unknown name there is an error; pods and containers gain fields with every release, so
there it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

RESOURCES = frozenset({"requests", "limits", "claims"})
RESIZE_POLICY = frozenset({"resourceName", "restartPolicy"})
# fmt: off
CONTAINER = frozenset({
    "name", "image", "command", "args", "workingDir", "ports", "envFrom", "env", "resources", "resizePolicy",
    "restartPolicy", "restartPolicyRules", "volumeMounts", "volumeDevices", "livenessProbe", "readinessProbe",
    "startupProbe", "lifecycle", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy",
    "securityContext", "stdin", "stdinOnce", "tty", "targetContainerName",
})
POD_SPEC = frozenset({
    "volumes", "initContainers", "containers", "ephemeralContainers", "restartPolicy", "terminationGracePeriodSeconds",
    "activeDeadlineSeconds", "dnsPolicy", "nodeSelector", "serviceAccountName", "serviceAccount",
    "automountServiceAccountToken", "nodeName", "hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace",
    "securityContext", "imagePullSecrets", "hostname", "subdomain", "affinity", "schedulerName", "tolerations",
    "hostAliases", "priorityClassName", "priority", "dnsConfig", "readinessGates", "runtimeClassName",
    "enableServiceLinks", "preemptionPolicy", "overhead", "topologySpreadConstraints", "setHostnameAsFQDN", "os",
    "hostUsers", "schedulingGates", "resourceClaims", "resources", "hostnameOverride", "workloadRef", "schedulingGroup",
})
# fmt: on


class UnknownField(msgspec.Struct, frozen=True):
    field: str
    nearest: str
    is_error: bool

    def message(self) -> str:
        return f"unknown field; did you mean {self.nearest}?" if self.nearest else "unknown field"


def unknown_fields(pod: dict[str, Any]) -> Iterator[UnknownField]:
    """Every unknown name in the pod's spec, its containers and their resources."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    yield from _unknown(spec, POD_SPEC, "spec", is_error=False)
    yield from _unknown(spec.get("resources"), RESOURCES, "spec.resources", is_error=True)
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(_items(spec.get(kind))):
            path = f"spec.{kind}[{index}]"
            yield from _unknown(container, CONTAINER, path, is_error=False)
            if isinstance(container, dict):
                yield from _unknown(container.get("resources"), RESOURCES, f"{path}.resources", is_error=True)
                for entry, policy in enumerate(_items(container.get("resizePolicy"))):
                    yield from _unknown(policy, RESIZE_POLICY, f"{path}.resizePolicy[{entry}]", is_error=True)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _unknown(value: Any, known: frozenset[str], path: str, *, is_error: bool) -> Iterator[UnknownField]:
    for name in value if isinstance(value, dict) else ():
        if name not in known:
            import difflib  # needed only for errors

            nearest = difflib.get_close_matches(name, known, 1)
            yield UnknownField(f"{path}.{name}", nearest[0] if nearest else "", is_error)
