"""Pages that are not resources: discovery, OpenAPI, /version and the health endpoints (05 B1, B3, B4)."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from functools import cache, partial

import msgspec

from plimsoll.api.discovery.discovery import discovery
from plimsoll.api.machinery.catalog import Catalog
from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.exchange import Exchange
from plimsoll.api.machinery.negotiate import DISCOVERY, JSON, wants_discovery
from plimsoll.api.machinery.request_info import Query, check_timeout_text
from plimsoll.api.machinery.rounds import Worker
from plimsoll.api.machinery.status import method_not_allowed, not_acceptable
from plimsoll.codec.openapi import v2 as openapi_v2
from plimsoll.codec.openapi.custom import custom_documents
from plimsoll.codec.openapi.v2_json import openapi_v2_json
from plimsoll.codec.openapi.v3 import document_hash, openapi_document, openapi_index
from plimsoll.codec.schema.releases import release_of
from plimsoll.metrics.health import HealthMeters
from plimsoll.rules.profile import Profile
from plimsoll.version import git_version

HEALTH_PATHS = ("/healthz", "/livez", "/readyz")


def version_body(profile: Profile) -> bytes:
    major, minor = profile.release.split(".")
    emulated = {}
    if profile.version_emulated:
        oldest = str(int(minor) - 1)
        emulated = {"emulationMajor": major, "emulationMinor": minor}
        emulated |= {"minCompatibilityMajor": major, "minCompatibilityMinor": oldest}
    document = {
        "major": major,
        "minor": minor,
        **emulated,
        "gitVersion": git_version(profile),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"linux/{_ARCHITECTURES.get(platform.machine(), platform.machine())}",
    }
    return line(document)


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def health(path: str, faults: Mapping[str, str], *, verbose: bool) -> tuple[int, bytes]:
    """`faults` has every check by name, empty where it passed."""
    failed = [name for name, fault in faults.items() if fault]
    if not failed and not verbose:
        return 200, b"ok"
    lines = [f"[-]{name} failed: {fault}" if fault else f"[+]{name} ok" for name, fault in faults.items()]
    end = path.lstrip("/")
    lines.append(f"{end} check failed" if failed else f"{end} check passed")
    return (500 if failed else 200), ("\n".join(lines) + "\n").encode()


TEXT = "text/plain; charset=utf-8"
OPENAPI, OPENAPI_V2 = "/openapi/v3", "/openapi/v2"
_MADE_LATE = "/openapi/"  # what is below takes up to 0.1 s when it is first requested


class StaticPage(msgspec.Struct, frozen=True):
    code: int
    body: bytes
    content_type: str = JSON
    etag: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class StaticPages:
    """`added` maps a path to the function that renders its page: /metrics and others."""

    def __init__(self, profile: Profile) -> None:
        self._version, self._absent = version_body(profile), frozenset[str]()
        self._release = release_of(profile)
        self.address = "127.0.0.1:6443"
        self._catalog = Catalog(self._release)
        self._custom: dict[str, bytes] = {}  # OpenAPI documents of custom kinds
        self._older = _OlderOpenApi(self._custom, self._release)
        stable, beta = profile.discovery_stable, profile.discovery_beta
        self._offered = (*(["v2"] if stable else []), *(["v2beta1"] if beta else []))
        self._discovery = discovery(self.address, catalog=self._catalog, offered=self._offered)
        self.added: dict[str, Callable[[], StaticPage]] = {}
        self.health = HealthMeters(time.time())

    def set_address(self, address: str) -> None:
        """The server's address, known when its socket is bound."""
        self.address = address
        self._discovery = discovery(address, self._absent, self._catalog, self._offered)

    def set_catalog(self, catalog: Catalog) -> None:
        """The custom kinds have changed."""
        self._catalog = catalog
        self._custom = custom_documents([each.custom.kind for each in catalog.custom if each.custom is not None])
        self._older = _OlderOpenApi(self._custom, self._release)
        self._discovery = discovery(self.address, self._absent, catalog, self._offered)

    def leave_out(self, *subresources: str) -> None:
        """Omit subresources that a feature gate disables, such as `pods/resize`."""
        self._absent = frozenset(subresources)
        self._discovery = discovery(self.address, self._absent, self._catalog, self._offered)

    async def found(
        self, request: Exchange, path: str, query: Query, faults: Callable[[], Mapping[str, str]], worker: Worker
    ) -> StaticPage | None:
        """As `find`, in the worker where it takes long."""
        find = partial(self.find, request.scope["method"], path, query, request.header(b"accept"), faults)
        return await worker.run(request.user.name, find) if path.startswith(_MADE_LATE) else find()

    def find(
        self, method: str, path: str, query: Query, accept: str, faults: Callable[[], Mapping[str, str]]
    ) -> StaticPage | None:
        """None where the path is not one of these pages. Raises 405, 406."""
        plain = path.removesuffix("/") if path != "/" else path
        page = self._found(plain, query, accept, faults)
        if page is not None and method not in ("GET", "HEAD"):
            raise method_not_allowed()
        if page is not None:
            check_timeout_text(query.get("timeout", [""])[0])
        return page

    def _found(
        self, path: str, query: Query, accept: str, faults: Callable[[], Mapping[str, str]]
    ) -> StaticPage | None:
        if path in self._discovery.legacy:
            return self._discovered(path, accept)
        if path == "/version":
            return StaticPage(200, self._version)
        if path in HEALTH_PATHS:
            left_out = query.get("exclude", [])
            checks = {name: fault for name, fault in faults().items() if name not in left_out}
            self.health.observe(path.lstrip("/"), checks)
            code, body = health(path, checks, verbose="verbose" in query)
            return StaticPage(code, body, TEXT)
        if path.startswith(HEALTH_PATHS):
            return self._single_check(path, faults())
        if path == OPENAPI_V2:
            return _older_openapi(accept, self._older)
        if path == OPENAPI:
            return StaticPage(200, openapi_index(self._custom, self._release), headers=((b"vary", b"Accept"),))
        if path.startswith(f"{OPENAPI}/"):
            return _openapi(path.removeprefix(f"{OPENAPI}/"), self._custom, self._release)
        if path in self.added:
            return self.added[path]()
        return None

    def _discovered(self, path: str, accept: str) -> StaticPage:
        version = wants_discovery(accept, self._offered) if path in ("/api", "/apis") else ""
        page = self._discovery.aggregated[version][path] if version else self._discovery.legacy[path]
        headers = ((b"vary", b"Accept"), (b"cache-control", b"public"))
        return StaticPage(200, page.body, DISCOVERY.format(version) if version else JSON, page.etag, headers)

    def _single_check(self, path: str, faults: Mapping[str, str]) -> StaticPage | None:
        name = path.lstrip("/").partition("/")[2]
        if name not in faults:
            return None
        fault = faults[name]
        return StaticPage(500 if fault else 200, f"internal server error: {fault}".encode() if fault else b"ok", TEXT)


def _openapi(path: str, custom: Mapping[str, bytes], release: int) -> StaticPage | None:
    body = custom.get(path) or openapi_document(path, release)
    if body is None:
        return None
    return StaticPage(
        200, body, etag=document_hash(body), headers=((b"vary", b"Accept"), (b"cache-control", b"public"))
    )


class _OlderOpenApi:
    """The documents of version 2, made when they are first requested."""

    def __init__(self, custom: Mapping[str, bytes], release: int) -> None:
        self.protobuf = cache(partial(openapi_v2.openapi_v2, custom, release))
        self.json = cache(partial(openapi_v2_json, custom, release))


def _older_openapi(accept: str, documents: _OlderOpenApi) -> StaticPage:
    """As protobuf, which kubectl requests, or as JSON; the first kind that the client names and this server has."""
    kinds = [clause.partition(";")[0].strip() for clause in (accept or JSON).split(",")]
    for kind in kinds:
        if kind == openapi_v2.MEDIA_TYPE:
            body = documents.protobuf()
            return StaticPage(200, body, openapi_v2.CONTENT_TYPE, document_hash(body), ((b"vary", b"Accept"),))
        if kind in (JSON, "application/*", "*/*"):
            body = documents.json()
            return StaticPage(200, body, JSON, document_hash(body), ((b"vary", b"Accept"),))
    raise not_acceptable(f"only the following media types are accepted: {JSON}, {openapi_v2.MEDIA_TYPE}")


async def send_page(request: Exchange, page: StaticPage) -> None:
    if page.etag and request.header(b"if-none-match").strip('"') == page.etag:
        await request.respond(304, b"", [(b"etag", f'"{page.etag}"'.encode())])
        return
    headers = [(b"content-type", page.content_type.encode()), *page.headers]
    if page.etag:
        headers.append((b"etag", f'"{page.etag}"'.encode()))
    await request.respond(page.code, page.body, headers)
