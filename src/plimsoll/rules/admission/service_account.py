"""ServiceAccount admission: a pod gets its account, the account's token as a volume, and its image pull secrets.

The volume is `kube-api-access-…` at /var/run/secrets/kubernetes.io/serviceaccount: the token, the CA's certificate and
the namespace. A container that mounts something there, or a pod or account with `automountServiceAccountToken: false`,
gets none. Mirror pods are not changed, and may not refer to accounts and secrets.
"""

from __future__ import annotations

from typing import Any

from plimsoll.rules.access.token_claims import EXTENDED_FROM_S
from plimsoll.rules.model.json_object import JsonObject

DEFAULT_ACCOUNT = "default"
VOLUME_PREFIX = "kube-api-access-"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
ROOT_CA = "kube-root-ca.crt"
ENFORCE_SECRETS = "kubernetes.io/enforce-mountable-secrets"
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_CONTAINERS = ("initContainers", "containers")
# Of the volume with a token, in all pods the same: it is compared with this one in place of being validated.
TOKEN_SOURCE: JsonObject = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": EXTENDED_FROM_S, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
            }
        },
    ],
    "defaultMode": 0o644,
}


def account_name(spec: JsonObject) -> str:
    return str(spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_ACCOUNT)


def with_account(spec: JsonObject, account: JsonObject, volume_name: str) -> JsonObject:
    """The spec of a new pod with what its account adds. `volume_name`: for the token; empty: no pod gets one."""
    name = account["metadata"]["name"]
    changed: JsonObject = {**spec, "serviceAccountName": name, "serviceAccount": name}
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        changed["imagePullSecrets"] = [{"name": each.get("name") or ""} for each in account["imagePullSecrets"]]
    return _mounted(changed, volume_name) if volume_name and _automounts(spec, account) else changed


def _automounts(spec: JsonObject, account: JsonObject) -> bool:
    for chosen in (spec.get("automountServiceAccountToken"), account.get("automountServiceAccountToken")):
        if chosen is not None:
            return bool(chosen)
    return True


def _mounted(spec: JsonObject, volume_name: str) -> JsonObject:
    volumes = list(spec.get("volumes") or ())
    existing = next((volume["name"] for volume in volumes if volume.get("name", "").startswith(VOLUME_PREFIX)), "")
    mount = {"name": existing or volume_name, "readOnly": True, "mountPath": MOUNT_PATH}
    changed: JsonObject = {}
    is_needed = False
    for kind in _CONTAINERS:
        if containers := spec.get(kind):
            changed[kind] = [_with_mount(container, mount) for container in containers]
            is_needed |= any(new is not old for new, old in zip(changed[kind], containers, strict=True))
    if is_needed and not existing:
        changed["volumes"] = [*volumes, {"name": volume_name, "projected": TOKEN_SOURCE}]
    return {**spec, **changed}


def _with_mount(container: JsonObject, mount: JsonObject) -> JsonObject:
    mounts = container.get("volumeMounts") or []
    if any(each.get("mountPath") == MOUNT_PATH for each in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, mount]}


def secret_refusal(spec: JsonObject, account: JsonObject) -> str:
    """Why the pod may not use a secret; only for an account that limits its pods to its own secrets."""
    if ((account["metadata"].get("annotations") or {}).get(ENFORCE_SECRETS) or "") not in _TRUE:
        return ""
    own, name = {each.get("name") for each in account.get("secrets") or ()}, account["metadata"]["name"]
    rest = f"is not allowed because service account {name} does not reference that secret"
    for volume in spec.get("volumes") or ():
        secret = (volume.get("secret") or {}).get("secretName")
        if secret and secret not in own:
            return f'volume with secret.secretName="{secret}" {rest}'
    for kind, words in (("initContainers", "init container"), ("containers", "container")):
        for container in spec.get(kind) or ():
            for what, secret in _secrets_of(container):
                if secret not in own:
                    return f'{words} {container["name"]} with {what} referencing secret.secretName="{secret}" {rest}'
    pulls = {each.get("name") for each in account.get("imagePullSecrets") or ()}
    for index, each in enumerate(spec.get("imagePullSecrets") or ()):
        if each.get("name") not in pulls:
            return (
                f'imagePullSecrets[{index}].name="{each.get("name")}" is not allowed because service account {name} '
                "does not reference that imagePullSecret"
            )
    return ""


def _secrets_of(container: JsonObject) -> list[tuple[str, Any]]:
    named = [
        (f"envVar {each['name']}", ((each.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name"))
        for each in container.get("env") or ()
    ]
    named += [("envFrom", (each.get("secretRef") or {}).get("name")) for each in container.get("envFrom") or ()]
    return [(what, secret) for what, secret in named if secret]


def mirror_refusal(pod: JsonObject) -> str:
    """What a mirror pod may not refer to."""
    spec = pod.get("spec") or {}
    if spec.get("serviceAccountName"):
        return "a mirror pod may not reference service accounts"
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                return "a mirror pod may not use ServiceAccountToken volume projections"
    return ""
