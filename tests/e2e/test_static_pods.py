"""Static pods on a real node: run from files and from an address, shown by mirror pods, with the API and without."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, Document, RealNode, pod_of, real_node, reasons, running, status_of
from tests.e2e.waiting import until

MIRROR, HASH, SOURCE = (f"kubernetes.io/config.{name}" for name in ("mirror", "hash", "source"))
HANDLES_TERM = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"

pytestmark = pytest.mark.xdist_group("static pods")  # one node for all


@pytest.fixture(scope="module")
def address() -> Iterator[Served]:
    with Served() as made:
        yield made


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, manifests: Path, address: Served, exercised: Callable[[str, str], None]
) -> Iterator[RealNode]:
    words = f"--pod-manifest-path {manifests} --manifest-url {address.url} --manifest-url-header X-Node:n1"
    options = (*words.split(), "--http-check-frequency", "1s")
    with real_node(tmp_path_factory.mktemp("static") / "cluster", options=options) as made:
        exercised("static pods", "this machine, cgroup v1, embedded runtime")
        yield made


@pytest.fixture
def kube(kube: Kubectl, manifests: Path) -> Iterator[Kubectl]:
    """The shared one; afterwards there are no manifests any more."""
    yield kube
    for file in manifests.iterdir():
        file.unlink()


class Served:
    """An address with static pods: what it answers, and what it was asked."""

    def __init__(self) -> None:
        self.body = b'{"kind": "PodList", "apiVersion": "v1", "items": []}'
        self.headers: list[str] = []

    def __enter__(self) -> Served:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/pods?node=n1"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, served: Served, *args: Any) -> None:
        self._served = served
        super().__init__(*args)

    def do_GET(self) -> None:
        self._served.headers.append(self.headers.get("X-Node", ""))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self._served.body)

    def log_message(self, *_: object) -> None:
        """pytest's output is for tests."""


def manifest(name: str, script: str = HANDLES_TERM, **spec: Any) -> Document:
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
    whole = {"terminationGracePeriodSeconds": 2, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": whole}


def put(directory: Path, name: str, document: Document) -> None:
    (directory / f"{name}.yaml").write_text(json.dumps(document))


def shown_now(kube: Kubectl, name: str) -> Document:
    """Empty where the API has none of that name."""
    found: Document = json.loads(kube("get", "pod", name, "--ignore-not-found", "-o", "json").out or "{}")
    return found


def is_gone(kube: Kubectl, name: str) -> bool:
    return not shown_now(kube, name)


def shown(kube: Kubectl, name: str) -> Document:
    """The mirror pod, when its containers are ready."""
    until(lambda: not is_gone(kube, name))
    running(kube, name)
    return pod_of(kube, name)


def test_a_file_is_a_pod_that_the_api_shows(node: RealNode, kube: Kubectl, manifests: Path) -> None:
    put(manifests, "web", manifest("web"))
    pod = shown(kube, f"web-{NODE}")
    meta, spec = pod["metadata"], pod["spec"]
    uid = meta["annotations"][MIRROR]
    assert (len(uid), meta["annotations"][HASH], meta["annotations"][SOURCE]) == (32, uid, "file")
    assert meta["uid"] != uid
    assert [(each["kind"], each["name"]) for each in meta["ownerReferences"]] == [("Node", NODE)]
    assert meta["labels"] == {"app": "web"}
    assert spec["nodeName"] == NODE
    assert {"operator": "Exists", "effect": "NoExecute"} in spec["tolerations"]
    # The cgroup bears the static pod's own uid, 32 digits and no dashes.
    assert any(each.endswith(f"pod{uid}") for each in node.memory_cgroups())
    assert "up" in until(lambda: kube("logs", f"web-{NODE}").out)
    assert kube("exec", f"web-{NODE}", "--", "sh", "-c", "echo $((6*7))").out.strip() == "42"
    until(lambda: {"Created", "Started"} <= set(reasons(kube, f"web-{NODE}")))
    assert "Started" in kube("describe", "pod", f"web-{NODE}").out, "kubectl finds events by the mirror annotation"


def test_a_deleted_mirror_pod_comes_back_and_nothing_restarts(node: RealNode, kube: Kubectl, manifests: Path) -> None:
    put(manifests, "keeps", manifest("keeps"))
    name = f"keeps-{NODE}"
    before = shown(kube, name)
    kube("delete", "pod", name, "--wait=false")
    until(lambda: shown_now(kube, name).get("metadata", before["metadata"])["uid"] != before["metadata"]["uid"])
    after = shown(kube, name)
    assert after["metadata"]["annotations"][MIRROR] == before["metadata"]["annotations"][MIRROR]
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"], "the very same container"


def test_a_changed_file_is_another_pod_after_the_first_has_ended(
    node: RealNode, kube: Kubectl, manifests: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    volume = {"volumes": [{"name": "v", "hostPath": {"path": str(notes)}}]}

    def writes(word: str) -> Document:
        script = f"trap 'sleep 0.3; echo end {word} >> /v/log; exit 0' TERM; echo start {word} >> /v/log; while :; do sleep 0.05; done"
        found = manifest("changes", script, **volume, terminationGracePeriodSeconds=10)
        found["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        return found

    put(manifests, "changes", writes("one"))
    name = f"changes-{NODE}"
    first = shown(kube, name)["metadata"]["annotations"][MIRROR]
    until(lambda: (notes / "log").exists() and (notes / "log").read_text() == "start one\n")
    put(manifests, "changes", writes("two"))
    until(lambda: (notes / "log").read_text() == "start one\nend one\nstart two\n")
    until(lambda: (now := shown_now(kube, name)) and now["metadata"]["annotations"][MIRROR] != first)
    shown(kube, name)
    (manifests / "changes.yaml").unlink()
    until(lambda: is_gone(kube, name))
    assert (notes / "log").read_text() == "start one\nend one\nstart two\nend two\n"


def test_a_broken_file_is_reported_and_the_others_run(node: RealNode, kube: Kubectl, manifests: Path) -> None:
    put(manifests, "good", manifest("good"))
    before = shown(kube, f"good-{NODE}")["status"]["containerStatuses"]
    (manifests / "bad.yaml").write_text("kind: Pod\nspec: [")
    (manifests / "map.yaml").write_text(
        json.dumps(manifest("map", volumes=[{"name": "v", "configMap": {"name": "x"}}]))
    )
    (manifests / ".hidden.yaml").write_text(json.dumps(manifest("hidden")))

    def events() -> str:
        found = json.loads(
            kube("get", "events", "-A", "--field-selector", "involvedObject.kind=Node", "-o", "json").out
        )
        return " ".join(each["message"] for each in found["items"] if each["reason"] == "InvalidStaticPod")

    until(lambda: "bad.yaml: " in events() and "static pods may not reference configmaps" in events())
    # What was good before it was broken goes on.
    (manifests / "good.yaml").write_text("kind: Pod\nmetadata: {")
    until(lambda: "good.yaml: " in events())
    assert status_of(kube, f"good-{NODE}")["containerStatuses"] == before
    assert is_gone(kube, f"hidden-{NODE}") and is_gone(kube, f"map-{NODE}")


def test_pods_from_an_address(node: RealNode, kube: Kubectl, address: Served) -> None:
    address.body = json.dumps(
        {"kind": "PodList", "apiVersion": "v1", "items": [manifest("far"), manifest("off")]}
    ).encode()
    try:
        assert shown(kube, f"far-{NODE}")["metadata"]["annotations"][SOURCE] == "http"
        shown(kube, f"off-{NODE}")
        assert set(address.headers) == {"n1"}
        address.body = json.dumps(manifest("far")).encode()
        until(lambda: is_gone(kube, f"off-{NODE}"))
        assert not is_gone(kube, f"far-{NODE}")
    finally:
        address.body = b'{"kind": "PodList", "apiVersion": "v1", "items": []}'
    until(lambda: is_gone(kube, f"far-{NODE}"))


def test_without_the_api(node: RealNode, kube: Kubectl, manifests: Path, tmp_path: Path) -> None:
    """A node that starts while there is no API runs its static pods; the API shows them when it is back."""
    notes = tmp_path / "alone"
    notes.mkdir()
    document = manifest(
        "alone", f"echo up > /v/log; {HANDLES_TERM}", volumes=[{"name": "v", "hostPath": {"path": str(notes)}}]
    )
    document["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    put(manifests, "stays", manifest("stays"))
    before = shown(kube, f"stays-{NODE}")["status"]["containerStatuses"]
    node.kill_api()
    node.kill_node()
    node.start_node(wait=False)
    put(manifests, "alone", document)
    until((notes / "log").exists)
    node.start_api()
    shown(kube, f"alone-{NODE}")
    assert shown(kube, f"stays-{NODE}")["status"]["containerStatuses"] == before, "it ran on all the time"


def test_a_static_pod_is_never_resized(node: RealNode, kube: Kubectl, manifests: Path) -> None:
    put(manifests, "fixed", manifest("fixed"))
    shown(kube, f"fixed-{NODE}")
    change = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}
    refusal = kube.refused("patch", "pod", f"fixed-{NODE}", "--subresource", "resize", "-p", json.dumps(change))
    assert "static pods cannot be resized" in refusal
