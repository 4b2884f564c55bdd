"""Where a store in etcd is: `etcd://h1:2379,h2:2379?prefix=/plimsoll&ca=FILE&cert=FILE&key=FILE&user=NAME`.

Secrets are in files, never in the address: `password-file`, and `key` for the client certificate. With one of `ca`,
`cert` or `tls=true` the connection uses TLS, and the server's certificate has to name its host.
"""

from __future__ import annotations

import errno
import os
import ssl
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.gotext import duration_seconds

SCHEME = "etcd"
DEFAULT_PORT = 2379
DEFAULT_PREFIX = "/plimsoll"
COMPACT_S = 300.0  # as kube-apiserver: what is older than five minutes is compacted
_FILES = ("ca", "cert", "key", "password-file")
_KNOWN = (*_FILES, "prefix", "user", "tls", "compact")


class Location(msgspec.Struct, frozen=True):
    endpoints: tuple[tuple[str, int], ...]
    prefix: str = DEFAULT_PREFIX
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password_file: Path | None = None
    tls: bool = False
    compact_s: float = COMPACT_S  # 0: never

    def __str__(self) -> str:
        """Without anything secret."""
        return f"{SCHEME}://{','.join(f'{host}:{port}' for host, port in self.endpoints)}?prefix={self.prefix}"

    def password(self) -> str:
        """Read each time it is needed, so that it can be changed while the server runs."""
        if self.password_file is None:
            return ""
        try:
            return self.password_file.read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfigError("--store", f"password-file={self.password_file}: {error}") from None

    def context(self) -> ssl.SSLContext | None:
        """For connections; None without TLS."""
        if not (self.tls or self.ca or self.cert):
            return None
        try:
            context = ssl.create_default_context(cafile=str(self.ca) if self.ca else None)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(f"{name}={path}" for name, path in (("ca", self.ca), ("cert", self.cert)) if path)
            raise InvalidConfigError("--store", f"{files}: {error.strerror or error}") from None
        context.set_alpn_protocols(["h2"])
        return context

    def tls_advice(self, reason: str) -> str:
        """What to do about a connection that failed for this reason, where it may be due to TLS; else empty."""
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            return "etcd's certificate is not trusted: ca=FILE has to be its CA, and each endpoint a name in it"
        is_cut_off = any(
            each in reason for each in ("connection was", "connection broke", os.strerror(errno.ECONNRESET))
        )
        if not (self.tls or self.ca or self.cert):
            return "if etcd serves TLS, add ca=FILE to --store" if is_cut_off else ""
        if "ALERT" in reason and "CERTIFICATE" in reason:
            return "etcd requires a client certificate that its --trusted-ca-file has signed: cert=FILE and key=FILE"
        if is_cut_off:
            return (
                "etcd may not accept the client certificate (cert=FILE, key=FILE; its --trusted-ca-file has to have "
                "signed it), or may serve without TLS (then remove ca, cert and tls from --store)"
            )
        return ""


def location(text: str) -> Location:
    """Raises InvalidConfigError with what is wrong."""
    parts = urlsplit(text)
    if parts.scheme != SCHEME or not parts.netloc or parts.path.strip("/") or parts.fragment:
        raise _invalid(text, "expected etcd://HOST:PORT,HOST:PORT?prefix=/plimsoll")
    if "@" in parts.netloc:
        raise _invalid("etcd://…@…", "no user or password here: use user=NAME and password-file=FILE")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _KNOWN:
            raise _invalid(text, f"unknown option {name!r}, known are {', '.join(_KNOWN)}")
    files = {name: Path(options[name]) if options.get(name) else None for name in _FILES}
    if files["key"] is not None and files["cert"] is None:
        raise _invalid(text, "key=FILE needs cert=FILE")
    if bool(options.get("user")) != bool(files["password-file"]):
        raise _invalid(text, "user=NAME and password-file=FILE belong together")
    prefix = options.get("prefix", DEFAULT_PREFIX).rstrip("/")
    if not prefix.startswith("/") or "//" in prefix or not prefix.isprintable():
        raise _invalid(text, "prefix has to be a path such as /plimsoll")
    return Location(
        tuple(_endpoint(text, each) for each in parts.netloc.split(",")),
        prefix,
        files["ca"],
        files["cert"],
        files["key"],
        options.get("user", ""),
        files["password-file"],
        options.get("tls", "") == "true",
        _compaction(text, options.get("compact", "")),
    )


def _endpoint(text: str, endpoint: str) -> tuple[str, int]:
    host, colon, port = endpoint.rpartition(":")
    if not colon or endpoint.endswith("]"):
        host, port = endpoint, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise _invalid(text, f"{endpoint!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _compaction(text: str, value: str) -> float:
    if value in ("", "off"):
        return COMPACT_S if not value else 0.0
    seconds = duration_seconds(value, "--store: compact")
    if seconds < 1:
        raise _invalid(text, "compact has to be a second or more, or off")
    return seconds


def _invalid(text: str, reason: str) -> InvalidConfigError:
    return InvalidConfigError("--store", f"{text}: {reason}")
