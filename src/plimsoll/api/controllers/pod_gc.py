"""Pods that nobody will end any more (`rules.controllers.pod_gc`)."""

from __future__ import annotations

from plimsoll.api.controllers.controller import Controller, ControllerContext
from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.kube import request
from plimsoll.kube.request import ApiError
from plimsoll.rules.controllers.pod_gc import TERMINATED_THRESHOLD, collected

LOOK_EVERY_S = 20.0
_ALL = "all"


def loop(shelf: ControllerContext, *, kept: int = TERMINATED_THRESHOLD, every_s: float = LOOK_EVERY_S) -> Controller:
    async def look(_: str) -> float | None:
        pods = [pod_from_json(record.body) for record in shelf.store.list("/pods/")[1]]
        nodes = {record.key.rpartition("/")[2] for record in shelf.store.list("/nodes/")[1]}
        for each in collected(pods, nodes, threshold=kept):
            metadata = each.pod.metadata
            try:
                if each.fail_first:
                    change = {"metadata": {"uid": metadata.uid}, "status": {"phase": "Failed"}}
                    await shelf.client.ask(
                        request.patch(request.PODS, metadata.name, change, metadata.namespace, "status")
                    )
                await shelf.client.ask(
                    request.delete(request.PODS, metadata.name, metadata.namespace, grace_s=0, uid=metadata.uid)
                )
            except ApiError as error:
                if not error.is_gone and error.code not in (409, 422):  # another pod of that name by now
                    raise
        return None

    return Controller("left-over-pods", shelf.store, {}, look, periodic=lambda: (_ALL,), every_s=every_s)
