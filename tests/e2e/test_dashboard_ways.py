"""The dashboard through kubectl: `kubectl proxy`, which brings the user along, and `kubectl port-forward` with a link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Route

from tests.e2e.dashboard_browser import Cluster, Tab, missing
from tests.e2e.kubectl import Kubectl, NoKubectlError, any_binary
from tests.e2e.waiting import until

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"dashboard: {missing()}"),
    pytest.mark.xdist_group("dashboard"),
]


@pytest.fixture
def kube(dashboard: Any, tmp_path: Path) -> Kubectl:
    try:
        return Kubectl(any_binary(), dashboard[0].up.state / "admin.kubeconfig", tmp_path)
    except NoKubectlError as error:
        pytest.skip(str(error))


@pytest.fixture
def tab(dashboard: Any) -> Iterator[Tab]:
    made = Tab(dashboard[1], dashboard[0])
    yield made
    made.close()


def found_port(lines: list[str], pattern: str) -> int:
    found = re.search(pattern, "\n".join(lines))
    assert found is not None, lines
    return int(found[1])


def updated(tab: Tab) -> None:
    """It receives changes, not only a page."""
    tab.page.wait_for_selector('[data-connection="open"]')
    before = tab.page.evaluate("globalThis.plimsollDashboard.stream.seq")
    until(lambda: tab.page.evaluate("globalThis.plimsollDashboard.stream.seq") > before)
    tab.go("node")
    tab.page.get_by_text("allocatable", exact=True).first.wait_for()
    tab.page.goto("about:blank")  # before kubectl ends


def test_kubectl_proxy_needs_no_link(tab: Tab, kube: Kubectl) -> None:
    with kube.background("proxy", "--port=0") as proxy:
        serving = r"Starting to serve on 127\.0\.0\.1:(\d+)"
        port = found_port(proxy.wait_for(lambda lines: any(re.search(serving, line) for line in lines)), serving)
        tab.page.goto(f"http://127.0.0.1:{port}/dashboard/")
        updated(tab)


def test_port_forward_to_the_api_server(tab: Tab, kube: Kubectl, dashboard: Any) -> None:
    """A pod in the network of the node stands for the API server's own."""
    cluster: Cluster = dashboard[0]
    cluster.run("gate", "exec sleep 10000", hostNetwork=True)
    until(lambda: cluster.pod("gate")["status"]["phase"] == "Running")
    link = urlsplit(cluster.link())
    forwarding = r"Forwarding from 127\.0\.0\.1:(\d+) -> "
    with kube.background("port-forward", "pod/gate", f":{link.port}") as forward:
        port = found_port(
            forward.wait_for(lambda lines: any(re.search(forwarding, line) for line in lines)), forwarding
        )
        tab.page.goto(link._replace(netloc=f"127.0.0.1:{port}").geturl())
        updated(tab)
    cluster.delete("gate")


@pytest.mark.parametrize(
    "lost", ["style.css", "vendor/htm-preact.umd.js", "app.js", "hull.js", "api/session", "api/whoami", "api/stream"]
)
def test_a_page_begins_although_a_request_is_lost(tab: Tab, lost: str) -> None:
    """As all requests are that are on their way when the network of the browser's machine changes."""
    times: list[str] = []

    def lose_the_first(route: Route) -> None:
        times.append(route.request.url)
        if len(times) == 1:
            route.abort("connectionreset")
        else:
            route.continue_()

    tab.page.route(re.compile(rf"/dashboard/{re.escape(lost)}(\?|$)"), lose_the_first)
    tab.open()
    updated(tab)
    assert len(times) > 1
    expected = re.compile("net::ERR_CONNECTION_RESET|'globalThis.htmPreact' as it is undefined")
    tab.complaints[:] = [each for each in tab.complaints if not expected.search(each)]
