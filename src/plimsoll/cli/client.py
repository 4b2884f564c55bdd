"""The client of the verbs that talk to a cluster: which kubeconfig, one connection, which kinds the server has.

`answered` connects the synchronous verbs with the asynchronous client: it runs one coroutine with an open
`ClusterClient`. The kubeconfig comes from where kubectl reads it, else from where `plimsoll up` and `plimsoll api`
write theirs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from plimsoll.cli import console
from plimsoll.cli.failure import FailedError
from plimsoll.errors import PlimsollError
from plimsoll.rules.model.json_object import JsonObject

if TYPE_CHECKING:
    from plimsoll.kube.discovery import DiscoveredKind
    from plimsoll.kube.http import HttpTransport
    from plimsoll.kube.kubeconfig import Access
    from plimsoll.kube.request import ApiError, ApiResponse, Request
    from plimsoll.rules.profile import ChosenProfile

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")
COMPLETION_S = 3.0  # a shell waits for it

_OPTIONS = (
    console.option(
        "--kubeconfig",
        type=console.Path(),
        help="[default: $KUBECONFIG, ~/.kube/config, the one of `plimsoll up`, the pod's service account]",
    ),
    console.option("--context", default="", metavar="NAME", help="The kubeconfig context. [default: the current one]"),
    console.option(
        "-n", "--namespace", default="", metavar="NAME", help="The namespace. [default: that of the context]"
    ),
)


def cluster_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class PodName(console.ParamType[str]):
    name = "pod"

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> str:
        name = str(value).removeprefix("pod/").removeprefix("pods/").removeprefix("po/")
        if not name or "/" in name:
            self.fail(f"{value!r} is not the name of a pod: write it as web or pod/web", param, ctx)
        return name

    def shell_complete(
        self, ctx: console.Context, param: console.Parameter, incomplete: str
    ) -> list[console.Completion]:
        return completed(ctx, "pods", (), incomplete)


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
        from plimsoll.kube.request import JSON, document

        is_object = request.accept == JSON  # a table has another kind
        return document(await self.transport.send(request), request.kind if is_object else "")

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
        from plimsoll.kube.request import UnusableAnswerError

        if self._kinds is None:
            kinds: list[DiscoveredKind] = []
            for root in ROOTS:
                document = await self.ask(root)
                kinds += kinds_in(document)
                for request in further(document):
                    kinds += kinds_in(await self.ask(request))
            if not kinds:
                raise UnusableAnswerError("/api and /apis list no kinds of objects")
            self._kinds = kinds
        return self._kinds

    async def kind(self, word: str) -> DiscoveredKind:
        from plimsoll.kube.discovery import kind_named

        return kind_named(await self.kinds(), word)

    async def chosen_profile(self) -> ChosenProfile:
        """The profile of the server's version."""
        from plimsoll.kube.request import Request
        from plimsoll.rules.profile import profile_of

        answer = await self.ask(Request("GET", "/version"))
        return profile_of(str(answer.get("gitVersion") or ""), "version of the API server")


def answered(
    options: Mapping[str, Any], work: Callable[[ClusterClient], Coroutine[Any, Any, Result]], *, has_here: bool = False
) -> Result:
    """The result of `work`, run with an open client; `options` are those of `cluster_options`.

    `has_here`: the command has --here, which needs no cluster.
    """
    import asyncio

    from plimsoll.kube.kubeconfig import NoKubeconfigError

    try:
        access = found_access(options["kubeconfig"], options["context"], dict(os.environ), os.geteuid())
    except NoKubeconfigError as error:
        if not has_here:
            raise
        raise NoKubeconfigError(f"{error} Use --here to read this machine without a cluster.") from None
    return asyncio.run(_with_cluster(access, options["namespace"] or access.namespace, work))


async def _with_cluster(
    access: Access, namespace: str, work: Callable[[ClusterClient], Coroutine[Any, Any, Result]]
) -> Result:
    from plimsoll.kube.discovery import UnknownKindError
    from plimsoll.kube.exec_plugin import CredentialsError
    from plimsoll.kube.http import HttpTransport
    from plimsoll.kube.request import ApiError, UnreachableError, UnusableAnswerError

    transport = HttpTransport(access, agent="plimsoll")
    try:
        return await work(ClusterClient(transport, namespace))
    except CredentialsError:
        raise
    except UnusableAnswerError as error:
        raise NoClusterError(
            f"{access.server}: {error}\n"
            "Is this the address of a Kubernetes API server? Check --kubeconfig and --context."
        ) from error
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


def completed(ctx: console.Context, kind: str, typed: Sequence[str], incomplete: str) -> list[console.Completion]:
    """Names of `kind`, or of the kind that was typed, or kinds, for a shell. Nothing if the cluster does not answer."""
    options = {name: ctx.params.get(name) or "" for name in ("context", "namespace")}
    options["kubeconfig"] = ctx.params.get("kubeconfig")
    try:
        words = answered(options, lambda cluster: _completions(cluster, kind, typed, incomplete))
    except (PlimsollError, OSError):
        return []
    return [console.Completion(word) for word in words if word.startswith(incomplete)]


async def _completions(cluster: ClusterClient, kind: str, typed: Sequence[str], incomplete: str) -> list[str]:
    import asyncio

    from plimsoll.kube.request import listing

    async with asyncio.timeout(COMPLETION_S):
        prefix, slash, _ = incomplete.rpartition("/")
        if not kind and not typed and not slash:
            return sorted({each.plural for each in await cluster.kinds() if "list" in each.verbs})
        found = await cluster.kind(kind or prefix or typed[0])
        namespace = cluster.namespace if found.namespaced else ""
        listed = (await cluster.ask(listing(found.resource, namespace=namespace))).get("items") or ()
        return sorted(f"{prefix}{slash}{each['metadata']['name']}" for each in listed)


def server_text(error: ApiError) -> str:
    """An error of the server as kubectl prints it."""
    if error.reason == "Invalid":
        return f"The {error.message}"
    return f"Error from server{f' ({error.reason})' if error.reason else ''}: {error.message}"


def found_access(path: Path | None, context: str, environment: dict[str, str], uid: int) -> Access:
    from plimsoll.kube.kubeconfig import chosen

    return chosen(path, context, environment, default_kubeconfigs(environment, uid))


def default_kubeconfigs(environment: dict[str, str], uid: int) -> list[Path]:
    """The files to try where neither --kubeconfig nor $KUBECONFIG names one: the user's, then that of `plimsoll up`."""
    from plimsoll.linux.files.state_dir import UnsafeStateError, state_home

    listed = [Path(environment["HOME"], ".kube", "config")] if environment.get("HOME") else []
    try:
        listed.append(state_home(environment, uid) / "admin.kubeconfig")
    except UnsafeStateError:
        pass
    return listed
