"""The handler of a pod's RuntimeClass, read from the API when its sandbox is created.

While the API server does not answer, the last known handler is used, as a kubelet uses its cache. It is immutable.
"""

from __future__ import annotations

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, ResourcePath, UnreachableError
from plimsoll.runtime.interface import RuntimeCallError

RUNTIME_CLASSES = ResourcePath("/apis/node.k8s.io/v1", "runtimeclasses")


class RuntimeClasses:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._handlers: dict[str, str] = {}

    async def handler(self, name: str | None) -> str:
        """ "" is the runtime's default. Raises RuntimeCallError for a class that does not exist or cannot be read."""
        if not name:
            return ""
        try:
            document = await self._client.ask(request.get(RUNTIME_CLASSES, name))
        except ApiError as error:
            self._handlers.pop(name, None)
            reason = f'runtimeclass.node.k8s.io "{name}" not found' if error.is_gone else _unreadable(name, error)
            raise RuntimeCallError("RuntimeClass", reason) from None
        except UnreachableError as error:
            if name not in self._handlers:
                raise RuntimeCallError("RuntimeClass", _unreadable(name, error)) from None
        else:
            self._handlers[name] = str(document.get("handler") or "")
        return self._handlers[name]


def _unreadable(name: str, error: Exception) -> str:
    return f"failed to lookup RuntimeClass {name}: {error}"
