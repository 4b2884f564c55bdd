"""GET of one object and of lists: versions, chunks, selectors (05 B6 resourceVersion, List chunking)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from typing import Any

import msgspec

from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, key, prefix
from plimsoll.api.machinery.encoding import as_yaml, encoded
from plimsoll.api.machinery.negotiate import MediaType
from plimsoll.api.machinery.request_info import ListOptions, RequestInfo, list_options
from plimsoll.api.machinery.rounds import Pace
from plimsoll.api.machinery.selectors import Selection, selection
from plimsoll.api.machinery.status import bad_request, expired, not_found, too_large_version
from plimsoll.api.machinery.users import User
from plimsoll.api.tables.views import PIECE_BYTES, Viewer, item_list, yaml_list
from plimsoll.store.errors import ExpiredError
from plimsoll.store.records import Record

FUTURE_WAIT_S = 3.0
PIECE = 64  # objects of a list that is made at once
# By which field most lists and watches of a resource select: a node watches its own pods, and what these refer to.
DIVIDED_BY = {
    "pods": "spec.nodeName",
    "nodes": "metadata.name",
    "secrets": "metadata.name",
    "configmaps": "metadata.name",
}
_SELECTOR_AT_ONCE = 1024  # characters, about a millisecond
_POLL_S = 0.02
_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_STALE = "this answer may be stale: the store in etcd has no majority, or does not answer (see /readyz?verbose)"
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."
_TOO_OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


async def get(cluster: Cluster, call: ApiCall) -> Response:
    info = call.info
    version = info.option("resourceVersion")
    if version and version != "0":
        await wait_for_version(cluster, parse_version(version))
    elif not version:
        await make_consistent(cluster, call)
    record = cluster.store.get(key(info.resource, info.namespace, info.name))
    if record is None:
        raise not_found(info.resource, info.name)
    return Response(200, record.body)


async def make_consistent(cluster: Cluster, call: ApiCall) -> None:
    """A read without a version shows all that any server has acknowledged before it; if it cannot, it says so."""
    if cluster.store.is_shared and not await cluster.store.fresh():
        call.warnings.append(_STALE)


def parse_version(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return min(int(text[:25]), 2**63)


async def wait_for_version(cluster: Cluster, version: int) -> None:
    """Wait a little for a version that another server may have returned; then 504."""
    deadline = asyncio.get_running_loop().time() + FUTURE_WAIT_S
    while cluster.store.version < version:
        if asyncio.get_running_loop().time() >= deadline:
            raise too_large_version(version, cluster.store.version)
        await asyncio.sleep(_POLL_S)


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def continue_token(version: int, start: str) -> str:
    """`start` is the place of the next object, relative to what is listed."""
    text = encoded({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _parsed_token(text: str) -> _Token:
    try:
        padded = text + "=" * (-len(text) % 4)
        token = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise bad_request(f"invalid continue token: {error}") from None
    if token.v != "meta.k8s.io/v1":
        raise bad_request(f'invalid continue token: server does not recognize this encoded version "{token.v}"')
    if not token.start.startswith("/") or "/../" in token.start or token.rv < -1 or token.rv == 0:
        raise bad_request("invalid continue token: incorrect encoded start key or resource version")
    return token


class ListPage(msgspec.Struct, frozen=True):
    version: int
    records: list[Record]
    continue_token: str = ""
    remaining: int | None = None

    def metadata(self) -> bytes:
        meta: dict[str, Any] = {"resourceVersion": str(self.version)}
        if self.continue_token:
            meta["continue"] = self.continue_token
        if self.remaining is not None:
            meta["remainingItemCount"] = self.remaining
        return encoded(meta)


async def list_objects(cluster: Cluster, call: ApiCall, form: MediaType) -> Response:
    info = call.info
    options = list_options(info)
    return await listed(cluster, call, await _page(cluster, call, options, call.selection), form)


async def listed(cluster: Cluster, call: ApiCall, page: ListPage, form: MediaType) -> Response:
    """A small list whole; a large one is made while it is sent, so a client that does not read costs no memory."""
    resource, meta = call.info.resource, page.metadata()
    bodies = [record.body for record in page.records]
    if form.view:
        viewer = Viewer(resource, form, call.info.option("includeObject"), cluster.profile.name)
        pieces = viewer.many(bodies, meta, cluster.clock(), call.pace)
        if form.is_yaml:
            whole = b"".join([piece async for piece in pieces])
            shown = await cluster.worker.run(call.user.name, lambda: as_yaml(msgspec.json.decode(whole)))
            return Response(200, shown, is_ready=True)
    elif form.is_yaml:
        pieces = yaml_list(resource, bodies, meta, call.pace)
    else:
        pieces = item_list(resource, bodies, meta, call.pace)
    if len(bodies) > PIECE or sum(map(len, bodies)) > PIECE_BYTES:
        return Response(200, b"", is_ready=True, pieces=pieces)
    return Response(200, b"".join([piece async for piece in pieces]), is_ready=True)


async def selected_records(cluster: Cluster, call: ApiCall) -> tuple[int, list[Record]]:
    """The current objects that a collection delete selects."""
    version, records = candidates(cluster, call.info, call.selection)
    return version, await matching(records, call.selection, call.pace)


def candidates(cluster: Cluster, info: RequestInfo, chosen: Selection) -> tuple[int, list[Record]]:
    """The objects that may match: one that the selector names (`kubectl wait`), the pods of a node, or all."""
    resource, name = info.resource, chosen.required("metadata.name")
    namespace = info.namespace or chosen.required("metadata.namespace") or ""
    if name and bool(namespace) == resource.namespaced:
        record = cluster.store.get(key(resource, namespace, name))
        return cluster.store.version, [] if record is None else [record]
    part = chosen.required(DIVIDED_BY.get(resource.storage, ""))
    if part and resource.storage == "pods":
        return cluster.store.list_part(prefix(resource, info.namespace), part)
    return cluster.store.list(prefix(resource, info.namespace))


async def read_selection(cluster: Cluster, info: RequestInfo, user: User) -> Selection:
    """The selectors of a request; long ones are read in the worker."""
    labels, fields = info.option("labelSelector"), info.option("fieldSelector")
    if len(labels) + len(fields) <= _SELECTOR_AT_ONCE:
        return selection(info.resource, labels, fields)
    return await cluster.worker.run(user.name, lambda: selection(info.resource, labels, fields))


async def matching(records: list[Record], chosen: Selection, pace: Pace) -> list[Record]:
    """In pieces: checking thousands takes a while, and other tasks must run in between."""
    if not chosen:
        return records
    matches: list[Record] = []
    for record in records:
        if pace.is_due():
            await pace.pause()
        if chosen.matches(record.body):
            matches.append(record)
    return matches


async def _page(cluster: Cluster, call: ApiCall, options: ListOptions, chosen: Selection) -> ListPage:
    info, pace = call.info, call.pace
    base = prefix(info.resource, info.namespace)
    limit = options.limit if options.limit > 0 else None
    if options.continue_token:
        return await _continued(cluster, base, options, chosen, limit, pace)
    version = options.resource_version
    number = parse_version(version) if version else 0
    if version == "0":
        limit = None  # any version is allowed, and the list is returned whole
    if number:
        await wait_for_version(cluster, number)
    elif not version:
        await make_consistent(cluster, call)
    exact = bool(number) and (options.match == "Exact" or (limit is not None and not options.match))
    if not exact:
        if chosen:
            newest, records = candidates(cluster, info, chosen)
            return _first(base, newest, await matching(records, chosen, pace), limit)
        return await _cut(cluster, base, None, None, chosen, limit, pace)
    try:
        return await _cut(cluster, base, number, None, chosen, limit, pace)
    except ExpiredError:
        raise expired(_TOO_OLD_LIST) from None


async def _continued(
    cluster: Cluster, base: str, options: ListOptions, chosen: Selection, limit: int | None, pace: Pace
) -> ListPage:
    if options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    token = _parsed_token(options.continue_token)
    start_after = base + token.start[1:].rstrip("\0") if token.start.endswith("\0") else base + token.start[1:]
    if token.rv == -1:
        return await _cut(cluster, base, None, start_after, chosen, limit, pace)
    if cluster.store.is_shared:  # another server may have made the token
        await wait_for_version(cluster, min(token.rv, 2**63))
    try:
        return await _cut(cluster, base, min(token.rv, 2**63), start_after, chosen, limit, pace)
    except ExpiredError:
        raise expired(_TOO_OLD_CONTINUE, continue_token(-1, token.start)) from None
    except ValueError:
        raise too_large_version(token.rv, cluster.store.version) from None


async def _cut(
    cluster: Cluster,
    base: str,
    version: int | None,
    start_after: str | None,
    chosen: Selection,
    limit: int | None,
    pace: Pace,
) -> ListPage:
    """One page: current, or at `version`. With a selector the remaining count is unknown (05 B6)."""
    store, read_limit = cluster.store, None if chosen else limit
    if version is None:
        at, records = store.list(base, start_after=start_after, limit=read_limit)
    else:
        at, records = store.list_at(base, version, start_after=start_after, limit=read_limit)
    if chosen:
        return _first(base, at, await matching(records, chosen, pace), limit)
    if limit is None or len(records) < limit:
        return ListPage(at, records)
    last = records[-1].key
    left = store.count(base, start_after=last, version=version)
    return ListPage(at, records, _token_after(at, base, last), left) if left else ListPage(at, records)


def _first(base: str, version: int, records: list[Record], limit: int | None) -> ListPage:
    """The first `limit` matches."""
    if limit is None or len(records) <= limit:
        return ListPage(version, records)
    return ListPage(version, records[:limit], _token_after(version, base, records[limit - 1].key))


def _token_after(version: int, base: str, last: str) -> str:
    return continue_token(version, f"/{last.removeprefix(base)}\0")
