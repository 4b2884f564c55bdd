"""What a pod's containers and volumes take from the API: ConfigMaps, Secrets, service account tokens, trust bundles.

`references` says what has to be read before a container starts, `PodObjects` is what was found. A missing object is not
in it; who refers to it decides whether that is an error.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping

import msgspec

from plimsoll.errors import ContainerConfigError, quoted
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.run_volumes import BundleProjection, Projection
from plimsoll.rules.model.runnable import ConfigMap, KeyOf, NamedObject, RunPod, Secret, containers_of

Keyed = ConfigMap | Secret

NOTHING_MATCHES = "!*"  # in place of a label selector
REFRESH_AT = 0.8  # of the life of a token
REFRESH_AFTER_S = 24 * 3600.0
_CONSTANT_FIELDS = frozenset({"metadata.name", "metadata.namespace", "metadata.uid"})


class TokenWanted(msgspec.Struct, frozen=True):
    """A token of the pod's service account."""

    audience: str
    expiration_s: int


class BundleWanted(msgspec.Struct, frozen=True):
    """One ClusterTrustBundle by name, or those of a signer, by label selector (as in a request)."""

    name: str = ""
    signer: str = ""
    labels: str = ""


class References(msgspec.Struct, frozen=True):
    config_maps: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    tokens: frozenset[TokenWanted] = frozenset()
    bundles: frozenset[BundleWanted] = frozenset()
    claims: frozenset[str] = frozenset()


NO_REFERENCES = References()


class ClaimedVolume(msgspec.Struct, frozen=True):
    """The path of the volume that a claim is bound to, or why it cannot be mounted yet."""

    path: str = ""
    type: str = ""  # as of a hostPath
    read_only: bool = False
    problem: str = ""


def claimed_volume(claim: JsonObject | None, volume: JsonObject | None, name: str) -> ClaimedVolume:
    """`claim` and `volume` as the API has them, None where they do not exist."""
    if claim is None:
        return ClaimedVolume(problem=f'persistentvolumeclaim "{name}" not found')
    if (claim.get("status") or {}).get("phase") != "Bound" or volume is None:
        return ClaimedVolume(problem="PVC is not bound")
    spec = volume.get("spec") or {}
    read_only = (spec.get("accessModes") or []) == ["ReadOnlyMany"]
    if (spec.get("volumeMode") or "Filesystem") != "Filesystem":
        return ClaimedVolume(problem="this node does not support volumes with volumeMode Block")
    if spec.get("hostPath"):
        return ClaimedVolume(spec["hostPath"].get("path") or "", spec["hostPath"].get("type") or "", read_only)
    if spec.get("local"):
        return ClaimedVolume(spec["local"].get("path") or "", "Directory", read_only)
    return ClaimedVolume(problem="this node mounts only PersistentVolumes with hostPath or local")


class PodObjects(msgspec.Struct, frozen=True):
    """Of the pod's namespace, by name. A bundle that does not exist is absent; certificates are PEM."""

    config_maps: Mapping[str, ConfigMap] = {}
    secrets: Mapping[str, Secret] = {}
    tokens: Mapping[TokenWanted, str] = {}
    token_failures: Mapping[TokenWanted, str] = {}  # why there is none
    bundles: Mapping[BundleWanted, str] = {}
    claims: Mapping[str, ClaimedVolume] = {}


def references(pod: RunPod) -> References:
    projections = tuple(_projections(pod))
    environments, volumes = tuple(_in_environments(pod)), pod.spec.volumes
    config_maps = {config_map.name for config_map, _ in environments if config_map is not None}
    config_maps |= {each.config_map.name for each in volumes if each.config_map is not None}
    config_maps |= {each.config_map.name for each in projections if each.config_map is not None}
    secrets = {secret.name for _, secret in environments if secret is not None}
    secrets |= {each.secret.secret_name for each in volumes if each.secret is not None}
    secrets |= {each.secret.name for each in projections if each.secret is not None}
    return References(
        frozenset(config_maps - {""}),
        frozenset(secrets - {""}),
        frozenset(token_wanted(each) for each in projections if each.service_account_token is not None),
        frozenset(bundle_wanted(each.cluster_trust_bundle) for each in projections if each.cluster_trust_bundle),
        frozenset(
            each.persistent_volume_claim.claim_name for each in volumes if each.persistent_volume_claim is not None
        ),
    )


def publishes_itself(pod: RunPod) -> bool:
    """Whether a volume shows fields of the pod that may change: labels, annotations, resources.

    The namespace, which the volume of every service account token shows, never does.
    """
    volumes = (volume.downward_api for volume in pod.spec.volumes)
    projections = (projection.downward_api for projection in _projections(pod))
    items = (item for shown in (*volumes, *projections) if shown is not None for item in shown.items)
    return any(item.field_ref is None or item.field_ref.field_path not in _CONSTANT_FIELDS for item in items)


def _projections(pod: RunPod) -> Iterator[Projection]:
    for volume in pod.spec.volumes:
        if volume.projected is not None:
            yield from volume.projected.sources


def _in_environments(pod: RunPod) -> Iterator[tuple[NamedObject | KeyOf | None, NamedObject | KeyOf | None]]:
    """The ConfigMap and the Secret of every source of environment variables."""
    for container in containers_of(pod):
        for source in container.env_from:
            yield source.config_map_ref, source.secret_ref
        for variable in container.env:
            if variable.value_from is not None:
                yield variable.value_from.config_map_key_ref, variable.value_from.secret_key_ref


def token_wanted(projection: Projection) -> TokenWanted:
    assert projection.service_account_token is not None
    return TokenWanted(projection.service_account_token.audience, projection.service_account_token.expiration_seconds)


def bundle_wanted(projection: BundleProjection) -> BundleWanted:
    if projection.name:
        return BundleWanted(name=projection.name)
    return BundleWanted(signer=projection.signer_name or "", labels=_selector_text(projection.label_selector))


def _selector_text(selector: Mapping[str, object] | None) -> str:
    """As in a request's `labelSelector`. Without a selector nothing matches, with an empty one everything."""
    if selector is None:
        return NOTHING_MATCHES
    parts = []
    labels, expressions = selector.get("matchLabels"), selector.get("matchExpressions")
    if isinstance(labels, dict):
        parts += [f"{key}={value}" for key, value in sorted(labels.items())]
    for each in expressions if isinstance(expressions, list) else ():
        key, operator = each.get("key"), each.get("operator")
        values = ",".join(each.get("values") or ())
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append(words.get(operator) or f"!{key}")
    return ",".join(parts)


def data_of(found: Keyed, what: str) -> dict[str, bytes]:
    """Its keys with their values; raises ContainerConfigError where one is not base64. `what`: for the message."""
    texts: Mapping[str, str] = {}
    encoded: Mapping[str, str] = found.data or {}
    if isinstance(found, ConfigMap):
        texts, encoded = found.data or {}, found.binary_data or {}
    data = {key: text.encode("utf-8", "surrogatepass") for key, text in texts.items()}
    for key, text in encoded.items():
        try:
            data.setdefault(key, base64.b64decode(text, validate=True))
        except binascii.Error:
            field = "binaryData" if isinstance(found, ConfigMap) else "data"
            raise ContainerConfigError(f"{field}[{key}] of the {what} is not base64") from None
    return data


def not_found(kind: str, name: str) -> str:
    """The API server's message."""
    return f"{kind} {quoted(name)} not found"


def certificates(bundles: list[str]) -> str:
    """The PEM blocks of several bundles: each once, in a fixed order."""
    blocks: set[str] = set()
    for text in bundles:
        for part in text.split("-----END CERTIFICATE-----")[:-1]:
            body = part.partition("-----BEGIN CERTIFICATE-----")[2].strip()
            blocks.add(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    return "".join(sorted(blocks))


def is_token_due(expires_s: float, lifetime_s: float, now_s: float) -> bool:
    """At 80 % of its life, and after a day: of 3600 s, 720 s before it expires."""
    return now_s > expires_s - (1 - REFRESH_AT) * lifetime_s or now_s > expires_s - lifetime_s + REFRESH_AFTER_S
