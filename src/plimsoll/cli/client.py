"""The client of the verbs that talk to a cluster: which kubeconfig, one connection, which kinds the server has.

`answered` connects the synchronous verbs with the asynchronous client: it runs one coroutine with an open
`ClusterClient`. The kubeconfig comes from where kubectl reads it, else from where `plimsoll up` and `plimsoll api`
write theirs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from plimsoll.cli.failure import FailedError
from plimsoll.errors import PlimsollError
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.kube.discovery import DiscoveredKind
    from plimsoll.kube.http import HttpTransport
    from plimsoll.kube.kubeconfig import Access
    from plimsoll.kube.request import ApiError, ApiResponse, Request

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")

_OPTIONS = (
    click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="[default: $KUBECONFIG, ~/.kube/config, the one of `plimsoll up`, the pod's service account]",
    ),
    click.option("--context", default="", metavar="NAME", help="The kubeconfig context. [default: the current one]"),
    click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace. [default: that of the context]"),
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
            self.fail(f"{value!r} is not the name of a pod: write it as web or pod/web", param, ctx)
        return name


class NoClusterError(PlimsollError):
    """No cluster can be reached; the message says where a kubeconfig was searched, and what to do."""


class ClusterClient:
    """A connection to one server as one user, with a default namespace."""

    def __init__(self, transport: HttpTransport, namespace: str) -> None:
        self.transport = transport
        self.namespace = namespace
        self._kinds: list[DiscoveredKind] | None = None

    async def answer(self, request: Request) -> ApiResponse:
        return await self.transport.send(request)

    async def ask(self, request: Request) -> JsonObject:
        """The object in the response. Raises ApiError."""
        from plimsoll.kube.request import document

        return document(await self.transport.send(request))

    async def lines(self, request: Request) -> AsyncIterator[bytes]:
        """The lines of a watch. Raises ApiError if the server refuses it."""
        from contextlib import aclosing

        from plimsoll.kube.request import ApiResponse, api_error

        async with aclosing(self.transport.lines(request)) as stream:
            async for item in stream:
                if not isinstance(item, ApiResponse):
                    yield item
                elif item.status >= 400:
                    raise api_error(item)

    async def kinds(self) -> list[DiscoveredKind]:
        """The kinds that the server has; cached."""
        from plimsoll.kube.discovery import ROOTS, further, kinds_in

        if self._kinds is None:
            kinds: list[DiscoveredKind] = []
            for root in ROOTS:
                document = await self.ask(root)
                kinds += kinds_in(document)
                for request in further(document):
                    kinds += kinds_in(await self.ask(request))
            self._kinds = kinds
        return self._kinds

    async def kind(self, word: str) -> DiscoveredKind:
        from plimsoll.kube.discovery import kind_named

        return kind_named(await self.kinds(), word)

    async def profile_name(self) -> str:
        """The profile nearest to the server's version."""
        from plimsoll.cli.node_options import FIRST_MODERN_MINOR
        from plimsoll.kube.request import Request

        minor = str((await self.ask(Request("GET", "/version"))).get("minor") or "").rstrip("+")
        return "1.36" if not minor.isdecimal() or int(minor) >= FIRST_MODERN_MINOR else "documents"


def answered(options: Mapping[str, Any], work: Callable[[ClusterClient], Coroutine[Any, Any, Result]]) -> Result:
    """The result of `work`, run with an open client; `options` are those of `cluster_options`."""
    import asyncio

    access = found_access(options["kubeconfig"], options["context"], dict(os.environ), os.geteuid())
    return asyncio.run(_with_cluster(access, options["namespace"] or access.namespace, work))


async def _with_cluster(
    access: Access, namespace: str, work: Callable[[ClusterClient], Coroutine[Any, Any, Result]]
) -> Result:
    from plimsoll.kube.discovery import UnknownKindError
    from plimsoll.kube.http import HttpTransport
    from plimsoll.kube.request import ApiError, UnreachableError

    transport = HttpTransport(access, agent="plimsoll")
    try:
        return await work(ClusterClient(transport, namespace))
    except ApiError as error:
        raise FailedError(server_text(error)) from error
    except UnknownKindError as error:
        raise FailedError(f"error: {error}") from error
    except UnreachableError as error:
        raise NoClusterError(f"{error}\nIs the server running? `plimsoll up` starts one on this machine.") from error
    except TimeoutError:
        raise NoClusterError(
            f"{access.server}: timed out waiting for a response; try again, or use another --context"
        ) from None
    finally:
        await transport.close()


def server_text(error: ApiError) -> str:
    """An error of the server as kubectl prints it."""
    if error.reason == "Invalid":
        return f"The {error.message}"
    return f"Error from server{f' ({error.reason})' if error.reason else ''}: {error.message}"


def found_access(path: Path | None, context: str, environment: dict[str, str], uid: int) -> Access:
    from plimsoll.kube.kubeconfig import in_cluster, load

    if path is not None:
        return load(path, context)
    places = kubeconfig_places(environment, uid)
    for place in places:
        if place.is_file():
            return load(place, context)
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment)
    raise NoClusterError(
        f"no kubeconfig found: tried {', '.join(map(str, places))}\n"
        "Start a cluster with `plimsoll up`, or use --kubeconfig FILE."
    )


def kubeconfig_places(environment: dict[str, str], uid: int) -> list[Path]:
    """The files to try, in order. $KUBECONFIG may be a list, and replaces ~/.kube/config."""
    from plimsoll.linux.state_dir import UnsafeStateError, state_home

    listed = [Path(name) for name in environment.get("KUBECONFIG", "").split(":") if name]
    if not listed and environment.get("HOME"):
        listed = [Path(environment["HOME"], ".kube", "config")]
    try:
        listed.append(state_home(environment, uid) / "admin.kubeconfig")
    except UnsafeStateError:
        pass
    return listed
