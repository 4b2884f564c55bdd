"""ConfigMaps that pods refer to: read from the API when a container is created, and cached for a minute.

A kubelet with the `Cache` strategy does the same. A missing ConfigMap is not in the result; the rules of the container
decide whether that is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, ResourcePath, UnusableAnswerError
from plimsoll.rules.model.runnable import ConfigMap

CONFIG_MAPS = ResourcePath("/api/v1", "configmaps", "ConfigMap")
TTL_S = 60.0
MAX_ENTRIES = 256


class ConfigMapCache:
    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._entries: dict[tuple[str, str], tuple[float, ConfigMap | None]] = {}

    async def named(self, namespace: str, names: Iterable[str], *, fresh: bool = False) -> dict[str, ConfigMap]:
        """Those that exist. Raises ApiError or UnreachableError where the API server does not answer."""
        config_maps: dict[str, ConfigMap] = {}
        for name in names:
            config_map = await self._one(namespace, name, fresh=fresh)
            if config_map is not None:
                config_maps[name] = config_map
        return config_maps

    async def _one(self, namespace: str, name: str, *, fresh: bool) -> ConfigMap | None:
        key, now_s = (namespace, name), self._clock()
        cached = self._entries.get(key)
        # A missing ConfigMap is read again each time: it is often created right after the pod.
        if cached is not None and cached[1] is not None and not fresh and now_s - cached[0] < TTL_S:
            return cached[1]
        try:
            document = await self._client.ask(request.get(CONFIG_MAPS, name, namespace))
            config_map: ConfigMap | None = msgspec.convert(document, ConfigMap)
        except ApiError as error:
            if not error.is_gone:
                raise
            config_map = None
        except msgspec.ValidationError as error:
            raise UnusableAnswerError(f"configmap {namespace}/{name}: {error}") from None
        self._entries[key] = (now_s, config_map)
        while len(self._entries) > MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        return config_map
