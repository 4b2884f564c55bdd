"""Objects that pods refer to, read from the API when a container is created: ConfigMaps, Secrets, tokens, bundles.

ConfigMaps and Secrets are cached for a minute, as by a kubelet with the `Cache` strategy; a missing one is not in the
result. A token of a service account (TokenRequest, bound to the pod) is cached until it is due for renewal; if the
renewal fails, the old one is used while it is valid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, ResourcePath, UnreachableError, UnusableAnswerError
from plimsoll.rules.lifecycle.api_objects import (
    NO_REFERENCES,
    NOTHING_MATCHES,
    BundleWanted,
    ClaimedVolume,
    PodObjects,
    TokenWanted,
    certificates,
    claimed_volume,
    is_token_due,
    references,
)
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.runnable import ConfigMap, RunPod, Secret
from plimsoll.rules.timestamps import epoch_seconds

log = logging.getLogger(__name__)

CONFIG_MAPS = ResourcePath("/api/v1", "configmaps", "ConfigMap")
SECRETS = ResourcePath("/api/v1", "secrets", "Secret")
CLAIMS = ResourcePath("/api/v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PERSISTENT_VOLUMES = ResourcePath("/api/v1", "persistentvolumes", "PersistentVolume")
SERVICE_ACCOUNTS = ResourcePath("/api/v1", "serviceaccounts", "ServiceAccount")
BUNDLES = tuple(
    ResourcePath(f"/apis/certificates.k8s.io/{version}", "clustertrustbundles", "ClusterTrustBundle")
    for version in ("v1", "v1beta1", "v1alpha1")
)
TTL_S = 60.0
MAX_ENTRIES = 256

_Keyed = TypeVar("_Keyed", ConfigMap, Secret)


class Token(msgspec.Struct, frozen=True):
    text: str
    expires_s: float
    lifetime_s: float


class ObjectCache:
    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._entries: dict[tuple[str, str, str], tuple[float, ConfigMap | Secret | None]] = {}
        self._tokens: dict[str, dict[TokenWanted, Token]] = {}  # by the pod's uid

    async def objects(self, pod: RunPod, *, fresh: bool = False) -> PodObjects:
        """What the pod refers to. Raises ApiError or UnreachableError where the API server does not answer."""
        wanted = references(pod)
        if wanted == NO_REFERENCES:
            return PodObjects()
        namespace = pod.metadata.namespace
        tokens, failures = await self._tokens_of(pod, wanted.tokens)
        return PodObjects(
            await self._named(CONFIG_MAPS, ConfigMap, namespace, sorted(wanted.config_maps), fresh=fresh),
            await self._named(SECRETS, Secret, namespace, sorted(wanted.secrets), fresh=fresh),
            tokens,
            failures,
            await self._bundles_of(wanted.bundles),
            {name: await self._claim(namespace, name) for name in sorted(wanted.claims)},
        )

    async def _claim(self, namespace: str, name: str) -> ClaimedVolume:
        claim = await self._document(CLAIMS, name, namespace)
        volume_name = ((claim or {}).get("spec") or {}).get("volumeName") or ""
        volume = await self._document(PERSISTENT_VOLUMES, volume_name, "") if volume_name else None
        return claimed_volume(claim, volume, name)

    async def _document(self, resource: ResourcePath, name: str, namespace: str) -> JsonObject | None:
        try:
            found: JsonObject = await self._client.ask(request.get(resource, name, namespace))
        except ApiError as error:
            if not error.is_gone:
                raise
            return None
        return found

    async def pull_secrets(self, pod: RunPod) -> list[Secret]:
        """Those in imagePullSecrets that exist."""
        names = [each.name for each in pod.spec.image_pull_secrets if each.name]
        found = await self._named(SECRETS, Secret, pod.metadata.namespace, names, fresh=False)
        return [found[name] for name in names if name in found]

    def forget(self, uid: str) -> None:
        """The tokens of a pod that is gone."""
        self._tokens.pop(uid, None)

    # --- ConfigMaps and Secrets ---

    async def _named(
        self, resource: ResourcePath, kind: type[_Keyed], namespace: str, names: Iterable[str], *, fresh: bool
    ) -> dict[str, _Keyed]:
        found: dict[str, _Keyed] = {}
        for name in names:
            each = await self._one(resource, kind, namespace, name, fresh=fresh)
            if each is not None:
                found[name] = each
        return found

    async def _one(
        self, resource: ResourcePath, kind: type[_Keyed], namespace: str, name: str, *, fresh: bool
    ) -> _Keyed | None:
        key, now_s = (resource.kind, namespace, name), self._clock()
        cached = self._entries.get(key)
        # A missing one is read again each time: it is often created right after the pod.
        if cached is not None and isinstance(cached[1], kind) and not fresh and now_s - cached[0] < TTL_S:
            return cached[1]
        try:
            document = await self._client.ask(request.get(resource, name, namespace))
            found: _Keyed | None = msgspec.convert(document, kind)
        except ApiError as error:
            if not error.is_gone:
                raise
            found = None
        except msgspec.ValidationError as error:
            raise UnusableAnswerError(f"{resource.kind.lower()} {namespace}/{name}: {error}") from None
        self._entries[key] = (now_s, found)
        while len(self._entries) > MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        return found

    # --- tokens ---

    async def _tokens_of(
        self, pod: RunPod, wanted: Iterable[TokenWanted]
    ) -> tuple[dict[TokenWanted, str], dict[TokenWanted, str]]:
        """The tokens, and for those that could not be had the reason."""
        texts, failures = {}, {}
        for each in wanted:
            cached = self._tokens.get(pod.metadata.uid, {}).get(each)
            now_s = self._clock()
            if cached is None or is_token_due(cached.expires_s, cached.lifetime_s, now_s):
                try:
                    cached = await self._requested(pod, each)
                except (ApiError, UnreachableError) as error:
                    if cached is None or cached.expires_s < now_s:
                        failures[each] = f"failed to fetch token: {error}"
                        continue
                    log.warning("token of pod %s is not renewed: %s", pod.metadata.uid, error)
                self._tokens.setdefault(pod.metadata.uid, {})[each] = cached
            texts[each] = cached.text
        return texts, failures

    async def _requested(self, pod: RunPod, wanted: TokenWanted) -> Token:
        metadata = pod.metadata
        bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata.name, "uid": metadata.uid}
        spec = {
            "audiences": [wanted.audience] if wanted.audience else [],
            "expirationSeconds": wanted.expiration_s,
            "boundObjectRef": bound,
        }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        account = pod.spec.service_account_name or "default"
        answer = await self._client.ask(request.create(SERVICE_ACCOUNTS, body, metadata.namespace, account, "token"))
        status = answer.get("status") or {}
        expires_s = epoch_seconds(status.get("expirationTimestamp"))
        if not isinstance(status.get("token"), str) or expires_s is None:
            raise UnusableAnswerError(f"the token of service account {metadata.namespace}/{account}: no token in it")
        lifetime_s = (answer.get("spec") or {}).get("expirationSeconds") or wanted.expiration_s
        return Token(status["token"], expires_s, float(lifetime_s))

    # --- trust bundles ---

    async def _bundles_of(self, wanted: Iterable[BundleWanted]) -> dict[BundleWanted, str]:
        found = {}
        for each in wanted:
            documents = [] if each.labels == NOTHING_MATCHES else await self._bundle_documents(each)
            texts = [str((document.get("spec") or {}).get("trustBundle") or "") for document in documents]
            if documents:
                found[each] = certificates(texts)
        return found

    async def _bundle_documents(self, wanted: BundleWanted) -> list[JsonObject]:
        """In the newest version of the API that the server has; none where it has no such API."""
        for resource in BUNDLES:
            try:
                if wanted.name:
                    return [await self._client.ask(request.get(resource, wanted.name))]
                fields = f"spec.signerName={wanted.signer}"
                listed = await self._client.ask(request.listing(resource, fields=fields, labels=wanted.labels))
                return list(listed.get("items") or ())
            except ApiError as error:
                if not error.is_gone:
                    raise
        return []
