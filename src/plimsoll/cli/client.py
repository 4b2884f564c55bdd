"""The cluster that a verb talks to: which kubeconfig, one client, what kinds the server has.

`answered` is the one place where a verb, which is plain code, meets the client, which is not: it runs one coroutine
with an open `ClusterClient` and closes it again. A kubeconfig is looked for where kubectl looks, and then where
`plimsoll up` and `plimsoll api` leave theirs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from plimsoll.errors import PlimsollError
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.kube.discovery import DiscoveredKind
    from plimsoll.kube.http import HttpTransport
    from plimsoll.kube.kubeconfig import Access
    from plimsoll.kube.request import ApiResponse, Request

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")

_OPTIONS = (
    click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="[default: $KUBECONFIG, ~/.kube/config, what `plimsoll up` wrote, this pod's own account]",
    ),
    click.option("--context", default="", metavar="NAME", help="Which of its contexts. [default: the current one]"),
    click.option("-n", "--namespace", default="", metavar="NAME", help="[default: the context's]"),
)


def cluster_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class PodName(click.ParamType[str]):
    name = "pod"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = str(value).removeprefix("pod/").removeprefix("pods/").removeprefix("po/")
        if not name or "/" in name:
            self.fail(f"{value!r} is no pod: write it as web or pod/web", param, ctx)
        return name


class NoClusterError(PlimsollError):
    """Where a kubeconfig was looked for, and what to do."""


class ClusterClient:
    """One server, as one user, in one namespace."""

    def __init__(self, transport: HttpTransport, namespace: str) -> None:
        self.transport = transport
        self.namespace = namespace
        self._kinds: list[DiscoveredKind] | None = None

    async def answer(self, request: Request) -> ApiResponse:
        return await self.transport.send(request)

    async def ask(self, request: Request) -> JsonObject:
        """The object answered; ApiError otherwise."""
        from plimsoll.kube.request import document

        return document(await self.transport.send(request))

    async def lines(self, request: Request) -> AsyncIterator[bytes]:
        """Each line of a watch; ApiError where the server refuses it."""
        from contextlib import aclosing

        from plimsoll.kube.request import ApiResponse, api_error

        async with aclosing(self.transport.lines(request)) as stream:
            async for each in stream:
                if not isinstance(each, ApiResponse):
                    yield each
                elif each.status >= 400:
                    raise api_error(each)

    async def kinds(self) -> list[DiscoveredKind]:
        """What the server has, asked for once."""
        from plimsoll.kube.discovery import ROOTS, further, kinds_in

        if self._kinds is None:
            found: list[DiscoveredKind] = []
            for root in ROOTS:
                document = await self.ask(root)
                found += kinds_in(document)
                for request in further(document):
                    found += kinds_in(await self.ask(request))
            self._kinds = found
        return self._kinds

    async def kind(self, word: str) -> DiscoveredKind:
        from plimsoll.kube.discovery import kind_named

        return kind_named(await self.kinds(), word)

    async def profile_name(self) -> str:
        """The profile nearest to the server's version."""
        from plimsoll.cli.node_options import FIRST_MODERN_MINOR
        from plimsoll.kube.request import Request

        minor = str((await self.ask(Request("GET", "/version"))).get("minor") or "").rstrip("+")
        return "1.36" if not minor.isdecimal() or int(minor) >= FIRST_MODERN_MINOR else "1.27"


def answered(options: Mapping[str, Any], work: Callable[[ClusterClient], Coroutine[Any, Any, Result]]) -> Result:
    """Runs the work with an open cluster; `options` are those of `cluster_options`."""
    import asyncio

    access = found_access(options["kubeconfig"], options["context"], dict(os.environ), os.geteuid())
    return asyncio.run(_with_cluster(access, options["namespace"] or access.namespace, work))


async def _with_cluster(
    access: Access, namespace: str, work: Callable[[ClusterClient], Coroutine[Any, Any, Result]]
) -> Result:
    from plimsoll.kube.http import HttpTransport
    from plimsoll.kube.request import UnreachableError

    transport = HttpTransport(access, agent="plimsoll")
    try:
        return await work(ClusterClient(transport, namespace))
    except UnreachableError as error:
        raise NoClusterError(f"{error}\nis the server running? `plimsoll up` starts one on this machine") from error
    except TimeoutError:
        raise NoClusterError(f"{access.server}: no answer in time; try again, or another --context") from None
    finally:
        await transport.close()


def found_access(given: Path | None, context: str, environment: dict[str, str], uid: int) -> Access:
    from plimsoll.kube.kubeconfig import in_cluster, load

    if given is not None:
        return load(given, context)
    places = kubeconfig_places(environment, uid)
    for place in places:
        if place.is_file():
            return load(place, context)
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment)
    looked = ", ".join(map(str, places))
    raise NoClusterError(
        f"no kubeconfig: looked at {looked}\n`plimsoll up` starts a cluster here, or give --kubeconfig FILE"
    )


def kubeconfig_places(environment: dict[str, str], uid: int) -> list[Path]:
    """In the order in which they are looked at. $KUBECONFIG may be a list, and rules out ~/.kube/config."""
    from plimsoll.linux.state_dir import UnsafeStateError, state_home

    listed = [Path(each) for each in environment.get("KUBECONFIG", "").split(":") if each]
    if not listed and environment.get("HOME"):
        listed = [Path(environment["HOME"], ".kube", "config")]
    try:
        listed.append(state_home(environment, uid) / "admin.kubeconfig")
    except UnsafeStateError:
        pass
    return listed
