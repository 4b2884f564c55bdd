"""A real agent and a real scheduler whose API server answers with anything: they go on, and recover by themselves."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.blocked_api import BlockedApi, BlockedRequest, blocked_api
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import PODS, _plimsoll, kubectl_for, pod_of, real_node, running
from tests.e2e.waiting import until
from tests.unit.console import run

OBJECT: dict[str, Any] = {"metadata": {"name": "n1", "resourceVersion": "1"}}


def _http(body: bytes, *, length: int = -1, type_: str = "application/json", code: str = "200 OK") -> bytes:
    size = len(body) if length < 0 else length
    head = f"HTTP/1.1 {code}\r\nContent-Type: {type_}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def _json(**document: Any) -> bytes:
    return _http(json.dumps(document).encode())


GARBAGE: dict[str, bytes] = {
    "an HTML page": _http(b"<html><body>Sign in to the hotel's network</body></html>", type_="text/html"),
    "nothing": _http(b""),
    "half a response": _http(b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[', length=4096),
    "half a document": _http(b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[{"metadata":'),
    "another kind": _json(kind="ServiceList", apiVersion="v1", metadata={"resourceVersion": "9"}, items=[]),
    "a list without version": _json(kind="PodList", apiVersion="v1", metadata={}, items=[]),
    "an object without name": _json(kind="PodList", metadata={"resourceVersion": "9"}, items=[{"metadata": {}}]),
    "no object": _http(b"[1, 2, 3]"),
    "a number": _http(b"5"),
    "wrong types": _json(kind="Node", metadata={"name": "n1", "labels": 7, "annotations": []}, spec=[], status="x"),
    "wrong conditions": _json(kind="Node", **OBJECT, status={"conditions": [5, {"type": None}], "addresses": "none"}),
    "no UTF-8": _http(b'{"kind":"Pod\xff\xfe","metadata":{}}'),
    "deep nesting": _http(b"[" * 100_000),
    "garbage lines": _http(b"}{\nnot json\n\x00\x01\n"),
    "a watch with a wrong object": _http(b'{"type":"MODIFIED","object":{"metadata":{"name":5}}}\n'),
    "a watch with a wrong error": _http(b'{"type":"ERROR","object":"gone"}\n'),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a redirect": _http(b"<a href=/login>", type_="text/html", code="302 Found"),
    "an error without a Status": _http(b"<h1>bad gateway</h1>", type_="text/html", code="502 Bad Gateway"),
}


class Hostile:
    """Half of the answers are garbage, until there were enough of each kind."""

    def __init__(self, api: BlockedApi, seed: int, answers: int) -> None:
        self.sent: Counter[str] = Counter()
        self._answers = answers  # of each kind
        self._random = random.Random(seed)
        api.garbage = self._answer

    def _answer(self, request: BlockedRequest) -> bytes:
        due = [name for name in GARBAGE if self.sent[name] < self._answers]
        if not due or self._random.random() < 0.5:
            return b""
        name = self._random.choice(due)
        self.sent[name] += 1
        return GARBAGE[name]

    @property
    def is_over(self) -> bool:
        return all(self.sent[name] >= self._answers for name in GARBAGE)


@contextmanager
def _scheduler(kubeconfig: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as errors:
        words = [*_plimsoll(), "scheduler", "--kubeconfig", str(kubeconfig)]
        process = subprocess.Popen(words, stdout=errors, stderr=errors)
    try:
        yield process
        assert process.poll() is None, log.read_text()[-3000:]
    finally:
        process.terminate()
        process.wait(30)


def _sleeper(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "command": ["sleep", "3600"]}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


def _container_id(kube: Kubectl, name: str) -> str:
    statuses = pod_of(kube, name)["status"]["containerStatuses"]
    found: str = statuses[0]["containerID"]
    return found


@pytest.mark.parametrize("answers", [1, pytest.param(4, marks=pytest.mark.long)])
def test_agent_and_scheduler_survive_any_answer(answers: int, tmp_path: Path) -> None:
    with real_node(tmp_path / "n") as node, kubectl_for(node, tmp_path) as kube:
        node.kill_api()
        node.start_api("--no-scheduler")
        node.kill_node()
        pki, direct = node.api_state / "pki", node.node_kubeconfig
        to_node, to_scheduler = node.directory / "node-through.kubeconfig", node.directory / "through.kubeconfig"
        with (
            blocked_api(direct, pki, to_node) as before_node,
            blocked_api(node.kubeconfig, pki, to_scheduler) as before_scheduler,
            _scheduler(to_scheduler, node.directory / "scheduler.log") as scheduler,
        ):
            node.node_kubeconfig = to_node
            node.start_node()
            agent = node.node
            assert agent is not None
            kube.api("POST", PODS, _sleeper("first"))
            running(kube, "first")
            container = _container_id(kube, "first")
            sides = (Hostile(before_node, 1, answers), Hostile(before_scheduler, 2, answers))
            number = 0

            def is_over() -> bool:
                """Pods that come and go keep both of them busy."""
                nonlocal number
                assert agent.poll() is None, (node.directory / "node.log").read_text()[-3000:]
                assert scheduler.poll() is None, (node.directory / "scheduler.log").read_text()[-3000:]
                number += 1
                kube.api("POST", PODS, _sleeper(f"p{number}"))
                if number > 5:
                    kube.api("DELETE", f"{PODS}/p{number - 5}?gracePeriodSeconds=0")
                return all(side.is_over for side in sides)

            _long_until(is_over, lambda: str([side.sent for side in sides]))
            kube.api("POST", PODS, _sleeper("last"))
            running(kube, "last")
            assert _container_id(kube, "first") == container, "no wrong list has ended a pod"
            node.kill_node()
        node.node_kubeconfig = direct
        node.start_node()


def _long_until(read: Callable[[], bool], context: Callable[[], str]) -> None:
    """Back-offs of up to ten seconds add up to more than one deadline."""
    for _ in range(3):
        try:
            until(read, context, pause_s=1.0)
            return
        except AssertionError as error:
            if not str(error).startswith("not within"):
                raise
    until(read, context, pause_s=1.0)


VERBS = (
    ["get", "pods"],
    ["get", "pods", "-o", "json"],
    ["describe", "pod", "p"],
    ["apply", "-f", "pod.json"],
    ["delete", "pod", "p"],
    ["events"],
    ["resize", "p", "--cpu", "1"],
    ["logs", "p"],
)


@contextmanager
def _server(answer: bytes) -> Iterator[str]:
    """The URL of an HTTP server with one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.close_connection = True
            self.wfile.write(answer)

        do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Not on the test's output."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.mark.parametrize("name", GARBAGE)
def test_verbs_print_one_clear_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: an exception that is no error of Plimsoll's own fails the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.json").write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **_sleeper("p")}))
    with _server(GARBAGE[name]) as url:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "current-context": "c",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        for words in VERBS:
            ran = run(*words, "--kubeconfig", "config")
            if words[0] != "logs" or ran.code:  # a log may contain anything
                assert ran.code in (1, 2), (words, ran)
                assert ran.err.startswith(("plimsoll: ", "Error")) and ran.err.count("\n") <= 3, (words, ran)
