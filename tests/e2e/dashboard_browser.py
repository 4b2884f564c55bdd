"""A real Chromium in front of a running `plimsoll up`: one browser and one cluster for all tests of the dashboard."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError
from tests.e2e.up_process import PLIMSOLL, Up, problem
from tests.e2e.waiting import DEADLINE_S, until

CHROMIUM = shutil.which("chromium") or ""
ARGUMENTS = (
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-default-apps", "--disable-sync", "--no-first-run", "--mute-audio"),
)
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"  # another test has made an interface: Chromium drops what it has sent
ERROR_PAGE = "chrome-error://"  # on the way to which it may still be
MIB = 1 << 20
# Evicts as soon as the pods use more than 180 MiB, which no machine notices.
CAPACITY, EVICTION = "cpu=4,memory=480Mi", {"memory.available": "300Mi"}
SCREENSHOTS = os.environ.get("PLIMSOLL_SCREENSHOTS", "")


def missing() -> str:
    """Why these tests cannot run here; empty where they can."""
    return problem() or ("" if CHROMIUM else "chromium is not installed")


class Cluster:
    """A running `up`, used through its API."""

    def __init__(self, up: Up) -> None:
        self.up = up
        self.driver = open_cgroupfs(this_host())

    def ask(self, asked: request.Request) -> dict[str, Any]:
        async def send() -> dict[str, Any]:
            transport = self.up.transport()
            try:
                return await Client(transport).ask(asked)
            finally:
                await transport.close()

        with ThreadPoolExecutor(1) as thread:  # Playwright occupies the event loop of this one
            return thread.submit(lambda: asyncio.run(send())).result()

    def run(self, name: str, script: str, resources: dict[str, Any] | None = None, **more: Any) -> str:
        """Start a pod with a container `app`; its uid once it has a status."""
        container = {"name": "app", "image": "busybox", "command": ["sh", "-c", script], "resources": resources or {}}
        containers = [{**container, **more.pop("container", {})}, *more.pop("beside", ())]
        spec = {"terminationGracePeriodSeconds": 0, "containers": containers, **more}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
        made = self.ask(request.create(request.PODS, pod, "default"))
        uid: str = made["metadata"]["uid"]
        until(lambda: (self.pod(name).get("status") or {}).get("containerStatuses"), lambda: str(self.pod(name)))
        return uid

    def pod(self, name: str) -> dict[str, Any]:
        return self.ask(request.get(request.PODS, name, "default"))

    def delete(self, name: str) -> None:
        try:
            self.ask(request.Request("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0"))
        except ApiError as error:
            if error.code != 404:
                raise

    def files(self, path: str, *names: str) -> dict[str, str]:
        found = self.driver.read(path, names)
        assert found is not None, path
        return dict(found.files)

    def link(self, *options: str) -> str:
        command = [PLIMSOLL, "dashboard", "--no-open", "-o", "json", *options]
        if "--kubeconfig" not in options:
            command += ["--kubeconfig", str(self.up.state / "admin.kubeconfig")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        link: str = json.loads(done.stdout)["link"]
        return link


@contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    config = directory / "kubelet.json"
    kind = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    config.write_text(json.dumps({**kind, "evictionHard": EVICTION, "evictionPressureTransitionPeriod": "1s"}))
    root = f"/plimsoll-test-{secrets.token_hex(4)}"
    up = Up(directory, "--no-demo", "--capacity", CAPACITY, "--config", str(config), root=root)
    try:
        yield Cluster(up.ready())
    finally:
        up.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page of the dashboard. What the console and the policy complain about is collected and fails the test."""

    def __init__(self, browser: Browser, cluster: Cluster, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(
            ignore_https_errors=True, **{"viewport": {"width": 1280, "height": 900}, **options}
        )
        self.cluster = cluster
        self.complaints: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(DEADLINE_S * 1000)
        self.page.on("console", lambda message: message.type in ("error", "warning") and self._complain(message.text))
        self.page.on("pageerror", lambda error: self._complain(str(error)))

    def _complain(self, text: str) -> None:
        if NETWORK_CHANGED not in text:
            self.complaints.append(text)

    def open(self, view: str = "", link: str = "") -> Page:
        address = link or self.cluster.link()
        until(lambda: self._is_at(address))
        self.page.wait_for_selector('[data-connection="open"]')
        # Set once: a page that is loaded again does not have it.
        self.page.evaluate("globalThis.sameDocument = true")
        if view:
            self.go(view)
        return self.page

    def _is_at(self, address: str) -> bool:
        try:
            self.page.goto(address)
        except Error as error:
            if NETWORK_CHANGED not in error.message and ERROR_PAGE not in error.message:
                raise
            return False
        return True

    def go(self, view: str) -> None:
        self.page.evaluate("view => { location.hash = `#/${view}`; }", view)
        self.page.wait_for_function("view => location.hash === `#/${view}`", arg=view)

    def is_same_document(self) -> bool:
        return bool(self.page.evaluate("globalThis.sameDocument === true"))

    def picture(self, name: str) -> None:
        """Save a screenshot, if asked to."""
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"), animations="disabled")

    def close(self) -> None:
        self.context.close()
        assert self.complaints == []
