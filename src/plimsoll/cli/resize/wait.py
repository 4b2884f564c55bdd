"""`plimsoll resize --wait`: watches the pod and prints one line per stage of the resize."""

from __future__ import annotations

import asyncio
import time

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient
from plimsoll.cli.resize.answer import DONE, NOT_NOW
from plimsoll.cli.terminal import Paint, inert
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.resize.progress import PendingVerdict, ResizeProgress, pending_verdict, progress

_COLOURS = {"deferred": "yellow", "infeasible": "red", "reported": "green", "ended": "yellow"}
_MEANS = {
    "proposed": "accepted by the API server, waiting for the node",
    "deferred": "the node does not have enough free resources and will try again",
    "infeasible": "the resize does not fit on this node",
    "allocated": "accepted by the node",
    "kernel": "the cgroups have the new values",
    "reported": "done",
    "ended": "the pod has no active node",
}
_UNENFORCED = {"kernel": "the node has taken the new values", "reported": "done"}
_OVER = {"reported": DONE, "infeasible": NOT_NOW, "ended": NOT_NOW}


async def followed(
    cluster: ClusterClient, pod: JsonObject, timeout_s: float, paint: Paint, *, generation_before: int | None = None
) -> int:
    """Print the progress to stderr until the resize is reported, infeasible, obsolete or timed out; the exit code."""
    is_new = pod["metadata"].get("generation") != generation_before
    # A verdict in the response to our request is about the request before it.
    printer = _ProgressPrinter(paint, _restarts(pod), pending_verdict(pod) if is_new else ())
    code = printer.update(pod)
    if code is not None:
        return code
    try:
        async with asyncio.timeout(timeout_s):
            return await _until_done(cluster, pod, printer)
    except TimeoutError:
        name = inert(str(pod["metadata"]["name"]))
        stage = printer.last.stage if printer.last is not None else "proposed"
        console.echo(
            f"plimsoll: still {stage} after {timeout_s:g} s; the resize continues, see `plimsoll describe pod {name}`",
            err=True,
        )
        return NOT_NOW


class _ProgressPrinter:
    def __init__(self, paint: Paint, restarts: int, earlier: PendingVerdict) -> None:
        self._earlier = earlier
        self._paint, self._restarts, self._began_s = paint, restarts, time.monotonic()
        self.last: ResizeProgress | None = None

    def update(self, pod: JsonObject) -> int | None:
        """Print what is new; the exit code when the resize is over."""
        found = progress(pod, self._earlier)
        if found.restarts > self._restarts:
            self._line("restart", f"restart count {found.restarts}", "yellow")
            self._restarts = found.restarts
        if self.last is not None and found.stage == "proposed" and self.last.stage in ("allocated", "kernel"):
            found = self.last  # a status may be older than the acceptance
        if self.last is None or (found.stage, found.message) != (self.last.stage, self.last.message):
            means = _MEANS[found.stage]
            if found.unenforced and found.stage in _UNENFORCED:
                means = f"{_UNENFORCED[found.stage]}, but not enforced ({found.unenforced})"
            self._line(found.stage, f"{means}: {found.message}" if found.message else means, _COLOURS.get(found.stage))
        self.last = found
        return _OVER.get(found.stage)

    def _line(self, word: str, text: str, colour: str | None) -> None:
        passed = f"{time.monotonic() - self._began_s:7.3f} s"
        styled = self._paint(f"{word:<10}", *((colour,) if colour else ()))
        console.echo(f"{self._paint(passed, 'dim')}  {styled}  {inert(text)}", err=True)


async def _until_done(cluster: ClusterClient, pod: JsonObject, printer: _ProgressPrinter) -> int:
    """Watch the pod, again from its current version when a watch ends; the exit code."""
    from plimsoll.kube.request import PODS, ApiError, get, watch_event, watching

    metadata = pod["metadata"]
    name, namespace, uid = str(metadata["name"]), str(metadata["namespace"]), metadata.get("uid")
    version = str(metadata.get("resourceVersion") or "")
    while True:
        request = watching(PODS, version, namespace=namespace, fields=f"metadata.name={name}")
        async for line in cluster.lines(request):
            event = watch_event(line)
            if event.type == "BOOKMARK":
                continue
            if event.type == "ERROR":
                break
            if event.type == "DELETED" or event.object["metadata"].get("uid") != uid:
                raise ApiError(404, "NotFound", f"pod {name} was deleted before the resize was done")
            code = printer.update(event.object)
            if code is not None:
                return code
        found = await cluster.ask(get(PODS, name, namespace))
        version = str(found["metadata"].get("resourceVersion") or "")
        code = printer.update(found)
        if code is not None:
            return code


def _restarts(pod: JsonObject) -> int:
    return progress(pod).restarts
