"""The dashboard and its enemies: hostile texts, used links, strangers, and the exported incident."""

from __future__ import annotations

import re
import ssl
import subprocess
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from plimsoll.kube import request
from tests.e2e.dashboard_browser import Cluster, Tab, missing
from tests.e2e.up_process import PLIMSOLL
from tests.e2e.waiting import until

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"dashboard: {missing()}"),
    pytest.mark.xdist_group("dashboard"),
]
HOSTILE = "<img src=x onerror=globalThis.hacked=1><script>globalThis.hacked=2</script>\u202egnp.exe\u001b[31m"
LONG = ".".join(["a" * 60] * 3)
LONGEST = ".".join(["b" * 60] * 3 + ["b" * 55] + ["c" * 14])  # 253 characters: the most that a pod may have


@pytest.fixture
def tab(dashboard: Any) -> Iterator[Tab]:
    made = Tab(dashboard[1], dashboard[0])
    yield made
    made.close()


def answer(
    cluster: Cluster, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    where = urlsplit(cluster.up.url)
    connection = HTTPSConnection(where.hostname or "", where.port, context=ssl._create_unverified_context(), timeout=60)
    try:
        connection.request(method, path, body, headers)
        found = connection.getresponse()
        return found.status, {name.lower(): value for name, value in found.getheaders()}, found.read()
    finally:
        connection.close()


def test_a_link_works_once_and_no_token_stands_in_an_address(tab: Tab, dashboard: Any) -> None:
    cluster: Cluster = dashboard[0]
    seen: list[str] = []
    tab.page.on("request", lambda each: seen.append(each.url))
    link = cluster.link()
    code = link.partition("#code=")[2]
    tab.open("node", link)
    tab.page.wait_for_selector("main .card")
    assert tab.page.evaluate("location.href").endswith("/dashboard/#/node")
    token = tab.page.evaluate("sessionStorage.getItem('plimsoll.session')")
    assert token.startswith("plmsess_")
    assert not [url for url in seen if code in url or token in url]
    logs = "".join(file.read_text() for file in cluster.up.state.glob("*.log"))
    assert code not in logs and token not in logs
    other = Tab(dashboard[1], cluster)
    other.page.goto(link)
    other.page.get_by_text("it works once, within a minute").wait_for()
    assert other.complaints and all("401" in text for text in other.complaints)
    other.complaints.clear()
    other.close()
    tab.page.get_by_role("button", name="Log out").click()
    tab.page.get_by_text("Or paste a bearer token").wait_for()
    assert answer(cluster, "GET", "/dashboard/api/whoami", Authorization=f"Bearer {token}")[0] == 401


def test_only_users_with_the_right_read_it(dashboard: Any, tmp_path: Path) -> None:
    cluster: Cluster = dashboard[0]
    assert answer(cluster, "GET", "/dashboard/api/stream")[0] == 401
    assert answer(cluster, "POST", "/dashboard/api/code")[0] == 401
    tokens = {}
    for role in ("viewer", "none"):
        command = [
            PLIMSOLL,
            "api",
            "--state-dir",
            str(cluster.up.state),
            "token",
            "create",
            "--user",
            role,
            "--role",
            role,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        tokens[role] = re.search(r"token: (\S+)", done.stdout)[1]  # type: ignore[index]
    allowed = answer(cluster, "GET", "/dashboard/api/views/node", Authorization=f"Bearer {tokens['viewer']}")
    assert allowed[0] == 200, allowed
    code, _, body = answer(cluster, "GET", "/dashboard/api/views/node", Authorization=f"Bearer {tokens['none']}")
    assert (code, b'User \\"none\\" cannot list resource \\"pods\\"' in body) == (403, True), body


def test_the_policy_allows_only_own_files(tab: Tab, dashboard: Any) -> None:
    code, headers, body = answer(dashboard[0], "GET", "/dashboard/")
    policy = headers["content-security-policy"]
    assert code == 200
    assert "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert b"<style" not in body and b"style=" not in body and not re.search(rb"<script(?![^>]* src=)", body)
    page = tab.open("hull")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { textContent: 'globalThis.hacked = 3' }))"
    )
    until(lambda: any("Content Security Policy" in text for text in tab.complaints))
    assert page.evaluate("globalThis.hacked") is None
    tab.complaints.clear()
    for path in ("/dashboard/../pki/ca.key", "/dashboard/%2e%2e/site.py", "/dashboard/vendor/"):
        assert answer(dashboard[0], "GET", path)[0] == 404, path


@pytest.fixture
def hostile(dashboard: Any) -> Iterator[Cluster]:
    """A pod with a long name whose probe fails with hostile output, which becomes an event and a mark."""
    cluster: Cluster = dashboard[0]
    octal = "".join(f"\\{byte:03o}" for byte in HOSTILE.encode())
    probe = {"exec": {"command": ["sh", "-c", f"printf '{octal}'; exit 1"]}, "periodSeconds": 1}
    cluster.run(LONG, "exec sleep 10000", container={"readinessProbe": probe})
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "hostile", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": LONG},
        "reason": "<b>bold</b>",
        "message": HOSTILE,
        "type": "Warning",
    }
    cluster.ask(request.create(request.EVENTS, event, "default"))
    pending = {"nodeSelector": {"no": "such"}, "containers": [{"name": "app", "image": "busybox"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": LONGEST, "namespace": "default"}, "spec": pending}
    cluster.ask(request.create(request.PODS, pod, "default"))
    yield cluster
    cluster.delete(LONGEST)
    cluster.ask(request.Request("DELETE", "/api/v1/namespaces/default/events/hostile"))
    cluster.delete(LONG)


def test_hostile_texts_are_inert_in_the_page_and_in_an_incident(
    tab: Tab, dashboard: Any, hostile: Cluster, tmp_path: Path
) -> None:
    page = tab.open(f"pod/default/{LONG}")
    page.get_by_text("<b>bold</b>").first.wait_for()
    page.wait_for_selector('[data-mark-kind="event"]')  # Unhealthy
    text = page.inner_text("main")
    assert "<img src=x onerror=" in text and "\\u202e" in text and "\u202e" not in text and "\\u001b" in text
    for view in ("node", "hull", "next", "fleet", "replay", f"pod/default/{LONGEST}"):
        tab.go(view)
        page.wait_for_selector("main .card")
    assert page.evaluate("[globalThis.hacked, document.querySelectorAll('main img').length]") == [None, 0]
    page.set_viewport_size({"width": 320, "height": 700})
    for view in ("node", "hull", "pod", "fleet", f"pod/default/{LONG}", f"pod/default/{LONGEST}"):
        tab.go(view)
        page.wait_for_selector("main .card")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, view
    page.set_viewport_size({"width": 1280, "height": 900})
    tab.go("replay")
    page.wait_for_selector("[data-player]")

    def recorded() -> bool:
        page.get_by_role("button", name="Load again").click()
        return "onerror" in page.inner_text("main")

    until(recorded, pause_s=1.0)  # a frame every five seconds
    with page.expect_download() as download:
        page.get_by_role("button", name="Save incident").click()
    file = tmp_path / "incident.html"
    download.value.save_as(file)
    data = file.read_text()
    assert "<img src=x" not in data and "\\u003cimg src=x" in data
    context = dashboard[1].new_context(offline=True)
    saved = context.new_page()
    complaints: list[str] = []
    saved.on("console", lambda message: complaints.append(message.text))
    saved.on("pageerror", lambda error: complaints.append(str(error)))
    saved.goto(file.as_uri())
    saved.wait_for_selector("[data-player]")
    saved.locator(".marks").get_by_text("<img src=x onerror=").first.wait_for()
    saved.get_by_role("button", name="Back one frame").click()
    saved.get_by_role("button", name="Show as table").click()
    saved.wait_for_selector("table[data-twin]")
    assert saved.evaluate("globalThis.hacked") is None
    context.close()
    assert complaints == []
