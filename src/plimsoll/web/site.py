"""The static files of the dashboard, with the headers that keep it to itself.

The policy allows scripts, styles and connections of this server only; nothing is inline, nothing is framed, and
other sites do not see the address.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

Headers = list[tuple[bytes, bytes]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY: Headers = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".json": b"application/json",
}
INDEX = "index.html"


class StaticFile(msgspec.Struct, frozen=True):
    body: bytes
    content_type: bytes
    etag: bytes


@cache
def static_files() -> dict[str, StaticFile]:
    """By path below /dashboard/. Read once: names in a request are looked up here and never become file names."""
    found: dict[str, StaticFile] = {}

    def read(directory: Traversable, prefix: str) -> None:
        for entry in directory.iterdir():
            if entry.is_dir():
                read(entry, f"{prefix}{entry.name}/")
                continue
            suffix = f".{entry.name.rpartition('.')[2]}"
            if suffix in _TYPES:
                body = entry.read_bytes()
                etag = b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
                found[prefix + entry.name] = StaticFile(body, _TYPES[suffix], etag)

    read(files("plimsoll.web") / "static", "")
    return found


def static_file(path: str) -> StaticFile | None:
    return static_files().get(path or INDEX)


def headers_of(file: StaticFile) -> Headers:
    return [(b"content-type", file.content_type), (b"etag", file.etag), (b"cache-control", b"no-cache"), *SECURITY]
