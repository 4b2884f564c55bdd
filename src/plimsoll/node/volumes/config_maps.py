"""Config maps that pods refer to, asked of the API when a container is made and kept for a minute.

A kubelet that may not watch them does the same. One that is not there is simply not in the answer: whether that
matters, the container's rules say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, ResourcePath
from plimsoll.rules.model.runnable import ConfigMap

CONFIG_MAPS = ResourcePath("/api/v1", "configmaps")
KEPT_S = 60.0
KEPT_MOST = 256


class ConfigMapCache:
    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._kept: dict[tuple[str, str], tuple[float, ConfigMap | None]] = {}

    async def named(self, namespace: str, names: Iterable[str], *, fresh: bool = False) -> dict[str, ConfigMap]:
        """Those that exist. ApiError or Unreachable where the API does not say."""
        found: dict[str, ConfigMap] = {}
        for name in names:
            got = await self._one(namespace, name, fresh=fresh)
            if got is not None:
                found[name] = got
        return found

    async def _one(self, namespace: str, name: str, *, fresh: bool) -> ConfigMap | None:
        key, now_s = (namespace, name), self._clock()
        kept = self._kept.get(key)
        # One that is missing is asked for again each time: whoever made the pod first makes it next.
        if kept is not None and kept[1] is not None and not fresh and now_s - kept[0] < KEPT_S:
            return kept[1]
        try:
            document = await self._client.ask(request.get(CONFIG_MAPS, name, namespace))
            got: ConfigMap | None = msgspec.convert(document, ConfigMap)
        except ApiError as error:
            if not error.is_gone:
                raise
            got = None
        self._kept[key] = (now_s, got)
        while len(self._kept) > KEPT_MOST:
            del self._kept[next(iter(self._kept))]
        return got
