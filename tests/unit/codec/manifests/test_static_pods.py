"""Manifests → static pods: names, uids, annotations; what they may not be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.codec.manifests.static_pods import StaticPod, StaticPodError, mirror_document, static_pods
from plimsoll.rules.model.objects import is_critical, is_static

SEEN = "2026-01-01T00:00:00Z"
Document = dict[str, Any]


def manifest(name: str = "web", **spec: Any) -> Document:
    container = {"name": "c", "image": "nginx", "resources": {"limits": {"cpu": "1", "memory": "64Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"a": "b"}, "annotations": {"mine": "x"}},
        "spec": {"containers": [container], **spec},
    }


def one(document: Document, where: str = "/etc/m/web.yaml", node: str = "n1") -> StaticPod:
    (found,) = static_pods(json.dumps(document).encode(), where, "file", node, SEEN)
    return found


def test_as_in_the_kubelet() -> None:
    pod = one(manifest())
    meta, spec = pod.document["metadata"], pod.document["spec"]
    assert (pod.key, meta["name"], meta["namespace"]) == (("default", "web-n1"), "web-n1", "default")
    assert len(pod.uid) == 32 and set(pod.uid) <= set("0123456789abcdef")
    assert meta["annotations"] == {
        "mine": "x",
        "kubernetes.io/config.hash": pod.uid,
        "kubernetes.io/config.seen": SEEN,
        "kubernetes.io/config.source": "file",
    }
    assert (meta["uid"], meta["labels"], spec["nodeName"]) == (pod.uid, {"a": "b"}, "n1")
    assert spec["tolerations"] == [{"operator": "Exists", "effect": "NoExecute"}]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "64Mi"}, "defaults"
    from plimsoll.codec.lean.runnable import run_pod_from_json

    run = run_pod_from_json(pod.body)
    assert is_static(run) and is_critical(run)


def test_the_mirror() -> None:
    pod = one(manifest())
    mirror = mirror_document(pod, "node-uid")
    assert mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] == pod.uid
    assert "uid" not in mirror["metadata"]
    assert mirror["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid", "controller": True}
    ]
    assert mirror["spec"] == pod.document["spec"]


OTHERS = [
    pytest.param({"document": manifest("api")}, id="name"),
    pytest.param({"document": manifest(hostNetwork=True)}, id="spec"),
    pytest.param({"where": "/etc/m/other.yaml"}, id="file"),
    pytest.param({"node": "n2"}, id="node"),
]


@pytest.mark.parametrize("change", OTHERS)
def test_the_uid_depends_on_everything(change: dict[str, Any]) -> None:
    base: dict[str, Any] = {"document": manifest()}
    assert one(**base).uid == one(**base).uid
    assert one(**{**base, **change}).uid != one(**base).uid


def test_the_order_of_keys_is_no_difference() -> None:
    reordered = dict(reversed(manifest().items()))
    assert one(reordered).uid == one(manifest()).uid


def test_a_priority_class_of_the_system_has_its_number() -> None:
    assert one(manifest(priorityClassName="system-node-critical")).document["spec"]["priority"] == 2000001000


def test_a_list_is_accepted_from_a_url_only() -> None:
    data = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [manifest("a"), manifest("b")]}).encode()
    found = static_pods(data, "http://x", "http", "n1", SEEN)
    assert [each.name for each in found] == ["a-n1", "b-n1"]
    assert found[0].document["metadata"]["annotations"]["kubernetes.io/config.source"] == "http"
    assert static_pods(b'{"kind": "PodList", "apiVersion": "v1", "items": []}', "http://x", "http", "n1", SEEN) == ()
    with pytest.raises(StaticPodError, match="a file must contain one Pod, this one contains 2"):
        static_pods(data, "/f", "file", "n1", SEEN)


def volume(**kind: Any) -> Document:
    return manifest(volumes=[{"name": "v", **kind}])


REFUSED = [
    pytest.param("kind: [", "static pod /f: line 1", id="no YAML"),
    pytest.param("", "a file must contain one Pod, this one contains 0", id="empty"),
    pytest.param("kind: Deployment", "kind 'Deployment' is not a Pod", id="another kind"),
    pytest.param({"apiVersion": "v1", "kind": "Pod", "spec": {}}, "metadata.name: Required value", id="no name"),
    pytest.param({**manifest(), "spec": {"containers": []}}, "spec.containers: Required value", id="no containers"),
    pytest.param(manifest("No_Name"), "metadata.name: Invalid value", id="a bad name"),
    pytest.param({**manifest(), "spec": "x"}, "spec.containers: Required value", id="a spec that is none"),
    pytest.param(volume(configMap={"name": "x"}), "static pods may not reference configmaps", id="config map"),
    pytest.param(volume(secret={"secretName": "x"}), "static pods may not reference secrets", id="secret"),
    pytest.param(volume(persistentVolumeClaim={"claimName": "x"}), "may not reference persistentvolumeclaims", id="claim"),
    pytest.param(manifest(serviceAccountName="x"), "static pods may not reference serviceaccounts", id="service account"),
]  # fmt: skip


@pytest.mark.parametrize(("manifest", "words"), REFUSED)
def test_refused(manifest: str | Document, words: str) -> None:
    data = (manifest if isinstance(manifest, str) else json.dumps(manifest)).encode()
    with pytest.raises(StaticPodError) as caught:
        static_pods(data, "/f", "file", "n1", SEEN)
    assert words in str(caught.value)
