"""Mirror pods: how the API shows static pods. They are made by the node, and what is asked of them changes nothing.

For each static pod there shall be one pod in the API with its name and with its hash as annotation. One with another
hash, or that somebody deletes, is taken away and made anew; one without a static pod goes, when nothing of that pod
runs any more. All of it is compared again whenever either side changes, and tried again while the API is away: the
static pods themselves never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

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


class _Seen(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: dict[str, Any] = {}


_DECODER = msgspec.json.Decoder(_Seen)


class Mirror(msgspec.Struct, frozen=True):
    """A mirror pod as the API has it."""

    uid: str
    hash: str  # of the static pod that it stands for
    is_ending: bool
    status: dict[str, Any]
    version: StoredVersion


class MirrorPods:
    def __init__(
        self,
        client: Client,
        wanted: Callable[[], Mapping[Key, StaticPod]],
        is_running: Callable[[Key], bool],
        node_uid: Callable[[], str],
    ) -> None:
        """`wanted`: the static pods. `is_running`: whether something of a pod of that name is still here.
        `node_uid`: of the Node in the API, empty while there is none."""
        self._client, self._wanted, self._is_running, self._node_uid = client, wanted, is_running, node_uid
        self._there: dict[Key, Mirror] = {}
        self._wake = asyncio.Event()
        self.listed = False  # the API has told which there are

    def wake(self) -> None:
        self._wake.set()

    def sorted_out(self, changes: Iterable[ObjectChange]) -> tuple[list[ObjectChange], dict[Key, bool]]:
        """The changes that are not about mirror pods, and the names of those that are: whether that one is new."""
        self.listed = True
        others: list[ObjectChange] = []
        touched: dict[Key, bool] = {}
        for change in changes:
            known = self._there.get(change.key)
            seen = _DECODER.decode(change.body) if change.body else _Seen()
            mark = (seen.metadata.annotations or {}).get(MIRROR_ANNOTATION)
            if mark is None and (known is None or known.uid != change.uid):
                others.append(change)
                continue
            touched[change.key] = known is None or known.uid != change.uid
            if change.kind == "DELETED":
                if known is not None and known.uid == change.uid:
                    del self._there[change.key]
            else:
                meta = seen.metadata
                self._there[change.key] = Mirror(
                    meta.uid,
                    mark or "",
                    meta.deletion_timestamp is not None,
                    seen.status,
                    StoredVersion(meta.resource_version, meta.generation),
                )
        self._wake.set()
        return others, touched

    def standing_for(self, pod: StaticPod) -> Mirror | None:
        found = self._there.get(pod.key)
        return found if found is not None and found.hash == pod.uid and not found.is_ending else None

    async def run(self) -> None:
        pause_s = RETRY_FIRST_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self.listed:
                continue
            if await self._compared():
                pause_s = RETRY_FIRST_S
                continue
            asyncio.get_running_loop().call_later(pause_s, self._wake.set)
            pause_s = min(pause_s * 2, RETRY_MOST_S)

    async def _compared(self) -> bool:
        """Once through all of them. False where something is to be tried again."""
        done, wanted = True, self._wanted()
        for key, mirror in list(self._there.items()):
            pod = wanted.get(key)
            if mirror.is_ending or (mirror.hash != pod.uid if pod is not None else not self._is_running(key)):
                done &= await self._deleted(key, mirror)
        for key, pod in wanted.items():
            if key not in self._there:
                done &= await self._made(pod)
        return done

    async def _deleted(self, key: Key, mirror: Mirror) -> bool:
        namespace, name = key
        asked = request.delete(request.PODS, name, namespace, grace_s=0, uid=mirror.uid)
        try:
            await self._client.ask(asked)
        except ApiError as error:
            if not error.is_gone and not error.is_conflict:
                log.warning("mirror pod %s/%s: %s", namespace, name, error)
                return False
        except (PlimsollError, TimeoutError) as error:
            log.info("mirror pod %s/%s: %s", namespace, name, error)
            return False
        if self._there.get(key) == mirror:
            del self._there[key]
        return True

    async def _made(self, pod: StaticPod) -> bool:
        node_uid = self._node_uid()
        if not node_uid:
            return False  # not registered yet
        try:
            await self._client.ask(request.create(request.PODS, mirror_document(pod, node_uid), pod.namespace))
        except ApiError as error:
            if error.code == 409 and pod.key in self._there:
                return True  # ours, and its change has come meanwhile
            log.warning("mirror pod %s/%s: %s", pod.namespace, pod.name, error)
            return False
        except (PlimsollError, TimeoutError) as error:
            log.info("mirror pod %s/%s: %s", pod.namespace, pod.name, error)
            return False
        return True
