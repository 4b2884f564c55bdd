"""`plimsoll resize --wait`: the pod's watch as progress, one line per stage, and how it ended."""

from __future__ import annotations

import asyncio
import time

import click
import msgspec

from plimsoll.cli.client import ClusterClient
from plimsoll.cli.resize.answer import DONE, NOT_NOW
from plimsoll.cli.terminal import Paint, inert
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.resize.progress import PendingVerdict, ResizeProgress, pending_verdict, progress

_COLOURS = {"deferred": "yellow", "infeasible": "red", "reported": "green", "ended": "yellow"}
_MEANS = {
    "proposed": "the API server has taken it, the node has not answered",
    "deferred": "the node has no room now and will try again",
    "infeasible": "the node can never do it",
    "allocated": "the node has accepted",
    "kernel": "the cgroups have the new values",
    "reported": "done",
    "ended": "no node judges this pod any more",
}
_OVER = {"reported": DONE, "infeasible": NOT_NOW, "ended": NOT_NOW}


async def followed(
    cluster: ClusterClient, pod: JsonObject, timeout_s: float, paint: Paint, *, generation_before: int | None = None
) -> int:
    """Until it is reported, infeasible, pointless or too late. Progress goes to stderr: it is for whoever looks."""
    is_new = pod["metadata"].get("generation") != generation_before
    # What the answer to our own request says of a verdict was said of the wish before it.
    telling = _Telling(paint, _restarts(pod), pending_verdict(pod) if is_new else ())
    code = telling.told(pod)
    if code is not None:
        return code
    try:
        async with asyncio.timeout(timeout_s):
            return await _until_done(cluster, pod, telling)
    except TimeoutError:
        name = inert(str(pod["metadata"]["name"]))
        stage = telling.last.stage if telling.last is not None else "proposed"
        click.echo(
            f"plimsoll: still {stage} after {timeout_s:g} s; it goes on without us: `plimsoll describe pod {name}`",
            err=True,
        )
        return NOT_NOW


class _Telling:
    def __init__(self, paint: Paint, restarts: int, earlier: PendingVerdict) -> None:
        self._earlier = earlier
        self._paint, self._restarts, self._began_s = paint, restarts, time.monotonic()
        self.last: ResizeProgress | None = None

    def told(self, pod: JsonObject) -> int | None:
        """Says what is new; the exit code once it is over."""
        found = progress(pod, self._earlier)
        if found.restarts > self._restarts:
            self._line("restart", f"restart count {found.restarts}", "yellow")
            self._restarts = found.restarts
        if self.last is not None and found.stage == "proposed" and self.last.stage in ("allocated", "kernel"):
            found = self.last  # accepted is accepted, though a status of that moment need not show it
        if self.last is None or (found.stage, found.message) != (self.last.stage, self.last.message):
            means = _MEANS[found.stage]
            self._line(found.stage, f"{means}: {found.message}" if found.message else means, _COLOURS.get(found.stage))
        self.last = found
        return _OVER.get(found.stage)

    def _line(self, word: str, text: str, colour: str | None) -> None:
        passed = f"{time.monotonic() - self._began_s:7.3f} s"
        styled = self._paint(f"{word:<10}", *((colour,) if colour else ()))
        click.echo(f"{self._paint(passed, 'dim')}  {styled}  {inert(text)}", err=True)


async def _until_done(cluster: ClusterClient, pod: JsonObject, telling: _Telling) -> int:
    """A watch that ends is begun anew from what is there then."""
    from plimsoll.kube.request import PODS, ApiError, get, watching

    metadata = pod["metadata"]
    name, namespace, uid = str(metadata["name"]), str(metadata["namespace"]), metadata.get("uid")
    version = str(metadata.get("resourceVersion") or "")
    while True:
        request = watching(PODS, version, namespace=namespace, fields=f"metadata.name={name}")
        async for line in cluster.lines(request):
            event = msgspec.json.decode(line)
            if event["type"] == "BOOKMARK":
                continue
            if event["type"] == "ERROR":
                break
            if event["type"] == "DELETED" or event["object"]["metadata"].get("uid") != uid:
                raise ApiError(404, "NotFound", f"pod {name} was deleted before the resize was done")
            code = telling.told(event["object"])
            if code is not None:
                return code
        found = await cluster.ask(get(PODS, name, namespace))
        version = str(found["metadata"].get("resourceVersion") or "")
        code = telling.told(found)
        if code is not None:
            return code


def _restarts(pod: JsonObject) -> int:
    return progress(pod).restarts
