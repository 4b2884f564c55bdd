"""Mirror pods: static pods as the API shows them. The node creates them; changing them changes nothing on the node.

Each static pod has one pod in the API with its name and its hash as annotation. One with another hash, or that is being
deleted, is deleted and created again; one without a static pod is deleted once nothing of that pod runs any more. Both
sides are compared whenever one of them changes, and errors are retried: the static pods themselves never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.aio import ExponentialBackoff, Wakeup
from plimsoll.codec.manifests.static_pods import StaticPod, mirror_document
from plimsoll.errors import PlimsollError
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.reflector import ObjectChange
from plimsoll.kube.request import ApiError
from plimsoll.node.reporting.status_manager import StoredVersion
from plimsoll.rules.model.objects import MIRROR_ANNOTATION

log = logging.getLogger(__name__)

RETRY_FIRST_S, RETRY_MOST_S = 0.5, 30.0
Key = tuple[str, str]


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _MirrorDocument(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: dict[str, Any] = {}


_DECODER = msgspec.json.Decoder(_MirrorDocument)


class Mirror(msgspec.Struct, frozen=True):
    """A mirror pod as the API has it."""

    uid: str
    hash: str  # of its static pod
    is_ending: bool
    status: dict[str, Any]
    version: StoredVersion


class MirrorPods:
    def __init__(
        self,
        client: Client,
        static_pods: Callable[[], Mapping[Key, StaticPod]],
        is_running: Callable[[Key], bool],
        node_uid: Callable[[], str],
    ) -> None:
        """`is_running`: whether something of a pod of that name is still on the node. `node_uid`: of the Node in the
        API, empty before it is registered."""
        self._client, self._static_pods, self._is_running, self._node_uid = client, static_pods, is_running, node_uid
        self._mirrors: dict[Key, Mirror] = {}
        self._wake = Wakeup()
        self.listed = False  # the first list was received

    def wake(self) -> None:
        self._wake.set()

    def split(self, changes: Iterable[ObjectChange]) -> tuple[list[ObjectChange], dict[Key, bool]]:
        """The changes of other pods, and the names of the changed mirror pods with whether each is new."""
        self.listed = True
        others: list[ObjectChange] = []
        touched: dict[Key, bool] = {}
        for change in changes:
            known = self._mirrors.get(change.key)
            try:
                document = _DECODER.decode(change.body) if change.body else _MirrorDocument()
            except msgspec.ValidationError:
                others.append(change)  # reported there
                continue
            own_hash = (document.metadata.annotations or {}).get(MIRROR_ANNOTATION)
            if own_hash is None and (known is None or known.uid != change.uid):
                others.append(change)
                continue
            touched[change.key] = known is None or known.uid != change.uid
            if change.kind == "DELETED":
                if known is not None and known.uid == change.uid:
                    del self._mirrors[change.key]
            else:
                meta = document.metadata
                self._mirrors[change.key] = Mirror(
                    meta.uid,
                    own_hash or "",
                    meta.deletion_timestamp is not None,
                    document.status,
                    StoredVersion(meta.resource_version, meta.generation),
                )
        self._wake.set()
        return others, touched

    def mirror_of(self, pod: StaticPod) -> Mirror | None:
        mirror = self._mirrors.get(pod.key)
        return mirror if mirror is not None and mirror.hash == pod.uid and not mirror.is_ending else None

    async def run(self) -> None:
        backoff = ExponentialBackoff(RETRY_FIRST_S, RETRY_MOST_S)
        while True:
            await self._wake.wait()
            if not self.listed:
                continue
            if await self._sync():
                backoff.reset()
                continue
            asyncio.get_running_loop().call_later(backoff.next_s(), self._wake.set)

    async def _sync(self) -> bool:
        """Compare all of them. False where something must be retried."""
        done, desired = True, self._static_pods()
        for key, mirror in list(self._mirrors.items()):
            pod = desired.get(key)
            if mirror.is_ending or (mirror.hash != pod.uid if pod is not None else not self._is_running(key)):
                done &= await self._delete(key, mirror)
        for key, pod in desired.items():
            if key not in self._mirrors:
                done &= await self._create(pod)
        return done

    async def _delete(self, key: Key, mirror: Mirror) -> bool:
        namespace, name = key
        delete = request.delete(request.PODS, name, namespace, grace_s=0, uid=mirror.uid)
        is_gone = await self._ask(delete, key, lambda error: error.is_gone or error.is_conflict)
        if is_gone and self._mirrors.get(key) == mirror:
            del self._mirrors[key]
        return is_gone

    async def _create(self, pod: StaticPod) -> bool:
        node_uid = self._node_uid()
        if not node_uid:
            return False  # not registered yet
        create = request.create(request.PODS, mirror_document(pod, node_uid), pod.namespace)
        # A conflict with the node's own mirror, received meanwhile, is no error.
        return await self._ask(create, pod.key, lambda error: error.code == 409 and pod.key in self._mirrors)

    async def _ask(self, call: request.Request, key: Key, is_accepted: Callable[[ApiError], bool]) -> bool:
        try:
            await self._client.ask(call)
        except ApiError as error:
            if not is_accepted(error):
                log.warning("mirror pod %s/%s: %s", *key, error)
                return False
        except (PlimsollError, TimeoutError) as error:
            log.info("mirror pod %s/%s: %s", *key, error)
            return False
        return True
