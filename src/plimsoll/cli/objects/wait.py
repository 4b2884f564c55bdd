"""`plimsoll wait`: waits until objects have a condition or a value, exist, or are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.failure import FailedError
from plimsoll.cli.objects.completion import ObjectWords
from plimsoll.cli.objects.files import file_options
from plimsoll.cli.objects.selection import ObjectName, selected, selector_options
from plimsoll.cli.parameters import DurationParam
from plimsoll.cli.terminal import inert
from plimsoll.cli.verb import Verb
from plimsoll.rules.model.json_object import JsonObject

WEEK_S = 7 * 86400.0
Test = Callable[[JsonObject | None], bool]  # None: the object does not exist


class Wanted(msgspec.Struct, frozen=True):
    met: Test
    may_be_absent: bool  # at the start


@console.command("wait", cls=Verb)
@console.argument("words", nargs=-1, type=ObjectWords(), metavar="KIND NAME... | KIND/NAME...")
@file_options(required=False)
@console.option(
    "--for",
    "wanted",
    required=True,
    metavar="WHAT",
    help="condition=NAME[=VALUE], jsonpath={PATH}[=VALUE], create or delete.",
)
@console.option(
    "--timeout",
    "timeout_s",
    type=DurationParam(),
    default="30s",
    show_default=True,
    help="0: check once; negative: one week.",
)
@cluster_options
@selector_options()
def wait(words: tuple[str, ...], wanted: str, timeout_s: float, **options: Any) -> int:
    """Wait until objects have a condition or a value, exist, or are gone. Exit code 1 after the timeout.

    \b
    Examples:
      plimsoll wait --for=condition=Ready pod/web
      plimsoll wait --for=condition=Ready=false pods -l app=web --timeout=2m
      plimsoll wait --for=jsonpath='{.status.phase}'=Running pod/web
      plimsoll wait --for=delete pod/web
    """
    condition = read_condition(wanted)
    deadline_s = timeout_s if timeout_s >= 0 else WEEK_S
    return answered(options, lambda cluster: _wait(cluster, words, condition, deadline_s, options))


async def _wait(
    cluster: ClusterClient, words: tuple[str, ...], wanted: Wanted, timeout_s: float, options: dict[str, Any]
) -> int:
    names = await selected(cluster, words, options)
    if not names:
        raise FailedError("error: no matching resources found")
    return await _each_met(cluster, [(name, wanted) for name in names], timeout_s)


async def _each_met(cluster: ClusterClient, objects: list[tuple[ObjectName, Wanted]], timeout_s: float) -> int:
    code, deadline_s = 0, asyncio.get_running_loop().time() + timeout_s
    for name, wanted in objects:
        try:
            existed = await _until_met(cluster, name, wanted, deadline_s)
        except TimeoutError:
            console.echo(f"error: timed out waiting for the condition on {inert(name.plural)}", err=True)
            code = 1
            continue
        if existed:
            console.echo(f"{inert(str(name))} condition met")
    return code


async def _until_met(cluster: ClusterClient, name: ObjectName, wanted: Wanted, deadline_s: float) -> bool:
    """Whether the object existed at all. Raises TimeoutError."""
    from plimsoll.kube.request import api_error, document, get

    existed, first = False, True
    while True:
        answer = await cluster.answer(get(name.kind.resource, name.name, name.namespace))
        if answer.status == 404:
            if first and not wanted.may_be_absent:
                raise api_error(answer)
            now, version = None, ""
        else:
            now = document(answer)
            existed, version = True, str(now["metadata"].get("resourceVersion") or "")
        if wanted.met(now):
            return existed
        if not first and asyncio.get_running_loop().time() >= deadline_s:
            raise TimeoutError
        first = False
        async with asyncio.timeout_at(deadline_s):
            if await _changed(cluster, name, version, wanted):
                return True


async def _changed(cluster: ClusterClient, name: ObjectName, version: str, wanted: Wanted) -> bool:
    """Whether a change met the condition; false if the watch ended first."""
    from plimsoll.kube.request import watch_event, watching

    request = watching(name.kind.resource, version, namespace=name.namespace, fields=f"metadata.name={name.name}")
    async for line in cluster.lines(request):
        event = watch_event(line)
        if event.type == "ERROR":
            return False
        if event.type != "BOOKMARK" and wanted.met(None if event.type == "DELETED" else event.object):
            return True
    return False


def read_condition(text: str) -> Wanted:
    """The value of --for. Raises FailedError."""
    if text.lower() == "delete":
        return Wanted(lambda document: document is None, True)
    if text.lower() == "create":
        return Wanted(lambda document: document is not None, True)
    if text.startswith("condition="):
        name, _, value = text.removeprefix("condition=").partition("=")
        return Wanted(lambda document: _has_condition(document, name, value or "true"), False)
    if text.startswith("jsonpath="):
        return Wanted(_value_test(text.removeprefix("jsonpath=")), False)
    raise FailedError(f'error: unrecognized condition: "{text}"')


def _has_condition(document: JsonObject | None, name: str, value: str) -> bool:
    for each in ((document or {}).get("status") or {}).get("conditions") or ():
        if str(each.get("type")).lower() == name.lower():
            generation = ((document or {}).get("metadata") or {}).get("generation") or 0
            stale = 0 < int(each.get("observedGeneration") or 0) < generation
            return not stale and str(each.get("status")).lower() == value.lower()
    return False


def _value_test(text: str) -> Test:
    """`{.status.phase}=Running`; without `=VALUE` the path must exist."""
    from plimsoll.codec.golang.fmt import go_printed
    from plimsoll.codec.jsonpath.parser import TemplateError, relaxed
    from plimsoll.codec.jsonpath.template import JsonPath

    braces = text.startswith("{")
    path, _, rest = text.rpartition("}") if braces else ("", "", text)
    if braces:
        path, equals, value = f"{path}}}", rest[:1], rest[1:]
    else:
        path, equals, value = text.partition("=")
    value = value.strip("'\"")
    if equals not in ("", "=") or (equals and not value):
        raise FailedError("error: jsonpath wait has to have a value after equal sign")
    try:
        template = JsonPath(relaxed(path))
    except TemplateError as error:
        raise FailedError(f"error: {error}") from None

    def met(document: JsonObject | None) -> bool:
        if document is None:
            return False
        try:
            found = [each for values in template.results(document) for each in values]
        except TemplateError as error:
            raise FailedError(f"error: {error}") from None
        if not equals:
            return bool(found)
        if len(found) > 1:
            raise FailedError("error: given jsonpath expression matches more than one value")
        if found and isinstance(found[0], dict | list):
            raise FailedError("error: jsonpath leads to a nested object or list: it must select one value")
        return bool(found) and go_printed(found[0]) == value

    return met


READY_CONDITIONS = {"Pod": "Ready", "Node": "Ready", "Deployment": "Available", "Job": "Complete"}


async def until_ready(cluster: ClusterClient, names: list[ObjectName], timeout_s: float) -> int:
    """The exit code; kinds without such a condition are ready when they exist."""
    conditions = [(name, READY_CONDITIONS.get(name.kind.kind, "")) for name in names]
    return await _each_met(
        cluster, [(name, read_condition(f"condition={word}")) for name, word in conditions if word], timeout_s
    )
