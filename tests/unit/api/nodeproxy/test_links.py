"""Links in what pods answer lead back through the proxy, and nothing else of a page changes."""

from __future__ import annotations

import gzip
import zlib

import pytest

from plimsoll.api.nodeproxy.links import PAGE_BYTES, Links, is_page

PROXY = "/api/v1/namespaces/default/pods/http:web:80/proxy"
LINKS = Links(PROXY, "127.0.0.1:6443", "localhost:80")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param("/rewriteme", f"{PROXY}/rewriteme", id="absolute path"),
        pytest.param("/", f"{PROXY}/", id="root"),
        pytest.param("/a/b/?x=/y#z", f"{PROXY}/a/b/?x=/y#z", id="directory, query and fragment"),
        pytest.param("/a/../b", f"{PROXY}/b", id="dots"),
        pytest.param(f"{PROXY}/a", f"{PROXY}/a", id="through the proxy already"),
        pytest.param("a/b", "a/b", id="relative"),
        pytest.param("#top", "#top", id="fragment"),
        pytest.param("", "", id="nothing"),
        pytest.param("http://localhost:80/a", f"{PROXY}/a", id="own host"),
        pytest.param("https://127.0.0.1:6443/a", f"https://127.0.0.1:6443{PROXY}/a", id="host of the proxy"),
        pytest.param("https://example.com/a", "https://example.com/a", id="another host"),
        pytest.param("//example.com/a", "//example.com/a", id="another host without a scheme"),
        pytest.param("mailto:a@example.com", "mailto:a@example.com", id="no path"),
        pytest.param("http://[::1/a", "http://[::1/a", id="no URL"),
    ],
)
def test_links(given: str, expected: str) -> None:
    assert LINKS.link(given) == expected


PAGE = """<!DOCTYPE html>
<HTML><head><base href='/b/'><script>if (1 < 2) document.write("<a href='/js'>");</script></head>
<!-- <a href="/comment"> --> &amp; text\r
<a class=x href="/one?a=1&amp;b=2">one</a><a href="two" >two</a ><img src=/three alt="a &lt; b"/>
<p title="/not-a-link" data-x=don't><a href>none</a> 1 < 2 <b
"""


def test_a_page() -> None:
    expected = (
        PAGE.replace("<base href='/b/'>", f'<base href="{PROXY}/b/">')
        .replace('<a class=x href="/one?a=1&amp;b=2">', f'<a class=x href="{PROXY}/one?a=1&amp;b=2">')
        .replace('<img src=/three alt="a &lt; b"/>', f'<img src="{PROXY}/three" alt="a &lt; b"/>')
    )
    assert LINKS.page(PAGE.encode(), b"").decode() == expected


@pytest.mark.parametrize("text", ["<", "<a ", '<a "', "<a href='", "<!--", "<script>", "</", "<a href=/x>", "<a a a a"])
def test_pages_that_do_not_end_take_linear_time(text: str) -> None:
    """A pattern that is tried again at each place would take minutes."""
    page = (text * PAGE_BYTES)[:PAGE_BYTES].encode()
    assert len(LINKS.page(page, b"")) >= len(page)


def test_packed_pages() -> None:
    page, expected = b'<a href="/x">\xff</a>', f'<a href="{PROXY}/x">'.encode() + b"\xff</a>"
    assert gzip.decompress(LINKS.page(gzip.compress(page), b"gzip")) == expected
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    deflated = packer.compress(page) + packer.flush()
    assert zlib.decompress(LINKS.page(deflated, b"deflate"), -zlib.MAX_WBITS) == expected


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        pytest.param(b'<a href="/x">', b"br", id="another encoding"),
        pytest.param(b'<a href="/x">', b"gzip", id="not what it says"),
        pytest.param(gzip.compress(b'<a href="/x">' * PAGE_BYTES), b"gzip", id="too large when unpacked"),
    ],
)
def test_unchanged(body: bytes, encoding: bytes) -> None:
    assert LINKS.page(body, encoding) == body


def test_which_answers_are_pages() -> None:
    assert is_page({b"content-type": b"text/html; charset=utf-8"})
    assert not is_page({b"content-type": b"text/plain"})
    assert not is_page({})
