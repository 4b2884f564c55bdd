"""Links of proxied answers lead back through the proxy: redirects, and links in HTML pages, as kube-apiserver has it.

A link with an absolute path on the pod's own host gets the path of the proxy in front; others stay. What is no tag with
such a link is passed on as it is.
"""

from __future__ import annotations

import posixpath
import re
import zlib
from collections.abc import Mapping
from functools import partial
from html import escape, unescape
from urllib.parse import SplitResult, urlsplit

import msgspec

PAGE_BYTES = 1 << 20  # longer pages are passed on unchanged
# k8s.io/apimachinery/pkg/util/proxy/transport.go
_LINKS = {
    "a": {"href"},
    "applet": {"codebase"},
    "area": {"href"},
    "audio": {"src"},
    "base": {"href"},
    "blockquote": {"cite"},
    "body": {"background"},
    "button": {"formaction"},
    "command": {"icon"},
    "del": {"cite"},
    "embed": {"src"},
    "form": {"action"},
    "frame": {"longdesc", "src"},
    "head": {"profile"},
    "html": {"manifest"},
    "iframe": {"longdesc", "src"},
    "img": {"longdesc", "src", "usemap"},
    "input": {"src", "usemap", "formaction"},
    "ins": {"cite"},
    "link": {"href"},
    "object": {"classid", "codebase", "data", "usemap"},
    "q": {"cite"},
    "script": {"src"},
    "source": {"src"},
    "video": {"poster", "src"},
}
_TAG = re.compile(r"""<([a-zA-Z][^\s/>]*)(?:=\s*"[^"]*"?|=\s*'[^']*'?|[^>])*>?""")
_ATTRIBUTE = re.compile(
    r"""(?P<before>[\s/"'])(?P<name>[^\s"'<>/=]+)(?:\s*=\s*(?P<value>"[^"]*"|'[^']*'|[^\s"'=<>`]+))?"""
)
_RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "textarea", "title")}
_WBITS = {b"": 0, b"gzip": 16 + zlib.MAX_WBITS, b"deflate": -zlib.MAX_WBITS}


class Links(msgspec.Struct, frozen=True):
    """`prefix`: the path of the proxy, without a slash at the end. `asked_host`: the host that the client asked."""

    prefix: str
    asked_host: str
    pod_host: str

    def link(self, text: str) -> str:
        try:
            parts = urlsplit(text)
        except ValueError:  # no URL: a page may say anything
            return text
        if parts.netloc not in ("", self.pod_host, self.asked_host) or not parts.path.startswith("/"):
            return text
        path = parts.path
        if not path.startswith(self.prefix):
            path = posixpath.normpath(f"{self.prefix}/{path}") + ("/" if path.endswith("/") else "")
        origin = parts[:2] if parts.netloc == self.asked_host else ("", "")
        return SplitResult(*origin, path, parts.query, parts.fragment).geturl()

    def page(self, body: bytes, encoding: bytes) -> bytes:
        """As large as `PAGE_BYTES` at most, also unpacked; else, or in another encoding, unchanged."""
        bits = _WBITS.get(encoding)
        if bits is None:
            return body
        plain = _unpacked(body, bits) if bits else body
        if plain is None:
            return body
        done = _linked(self, plain.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if not bits:
            return done
        packer = zlib.compressobj(wbits=bits)
        return packer.compress(done) + packer.flush()


def is_page(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-type", b"").partition(b";")[0].strip() == b"text/html"


def _unpacked(body: bytes, bits: int) -> bytes | None:
    unpacker = zlib.decompressobj(bits)
    try:
        plain = unpacker.decompress(body, PAGE_BYTES)
    except zlib.error:
        return None
    return plain if unpacker.eof else None


def _linked(links: Links, text: str) -> str:
    """One pass: what does not end ends the search, and the rest stays."""
    pieces: list[str] = []
    done = at = 0
    while (at := text.find("<", at)) >= 0:
        if text.startswith("<!--", at):
            end = text.find("-->", at)
        elif (tag := _TAG.match(text, at)) is not None:
            if tag.end() == len(text) and not tag[0].endswith(">"):
                break
            name, end = tag[1].lower(), tag.end()
            if name in _LINKS:
                pieces += [text[done:at], _ATTRIBUTE.sub(partial(_attribute, links, _LINKS[name]), tag[0])]
                done = end
            if name in _RAW:
                closing = _RAW[name].search(text, end)
                end = -1 if closing is None else closing.start()
        else:
            end = at + 1
        if end < 0:
            break
        at = end
    return "".join([*pieces, text[done:]])


def _attribute(links: Links, names: set[str], found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    if value is None or name.lower() not in names:
        return found[0]
    plain = unescape(value.strip("\"'"))
    linked = links.link(plain)
    return found[0] if linked == plain else f'{found["before"]}{name}="{escape(linked)}"'
