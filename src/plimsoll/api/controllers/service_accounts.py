"""The service account `default` and the ConfigMap `kube-root-ca.crt`: every namespace has them, with the right data."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.controllers.controller import Controller, ControllerContext, own_key, resource_path
from plimsoll.api.machinery.cluster import key
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.namespace_contents import namespace_contents
from plimsoll.kube import request
from plimsoll.rules.admission.service_account import DEFAULT_ACCOUNT, ROOT_CA

_NAMESPACES = "/namespaces//"


def controller(context: ControllerContext, root_ca: str) -> Controller:
    def namespace_of(changed: str, _: bytes) -> Iterable[str]:
        namespace, name = changed.split("/")[2:4]
        return (f"{_NAMESPACES}{namespace}",) if name in (DEFAULT_ACCOUNT, ROOT_CA) else ()

    async def reconcile(changed: str) -> float | None:
        namespace = context.document(changed)
        if namespace is None or namespace["metadata"].get("deletionTimestamp"):
            return None
        place = namespace["metadata"]["name"]
        for storage, document in namespace_contents(root_ca):
            resource = stored_resource(storage)
            name = document["metadata"]["name"]
            found = context.document(key(resource, place, name))
            typed = {"kind": resource.kind, "apiVersion": resource.group_version, **document}
            if found is None:
                await context.attempt(request.create(resource_path(resource), typed, place), (403, 404, 409))
            elif found.get("data") != document.get("data"):
                data = {**dict.fromkeys(found.get("data") or ()), **document["data"]}
                change = {"data": data, "metadata": document["metadata"]}
                await context.attempt(
                    request.patch(resource_path(resource), name, change, place, content_type=request.MERGE)
                )
        return None

    sources = {"/namespaces/": own_key, "/serviceaccounts/": namespace_of, "/configmaps/": namespace_of}
    return Controller("service accounts", context.store, sources, reconcile)
