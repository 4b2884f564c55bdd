"""Custom resources and Services with real kubectl: apply, get, explain, patch, server-side apply, delete."""

from __future__ import annotations

import json

from tests.e2e.kubectl import Kubectl
from tests.e2e.waiting import until

KUBECTL_PAIRS_TESTED = 1

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "description": "How big it is.", "minimum": 1},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                    },
                },
            },
        }
    },
}


def _definition(group: str) -> str:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    }
    names = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return json.dumps(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"widgets.{group}"},
            "spec": spec,
        }
    )


def _widget(group: str, **spec: object) -> str:
    return json.dumps(
        {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {"size": 3, **spec}}
    )


def test_a_kind_of_one_s_own(kubectl: Kubectl) -> None:
    group = f"{kubectl.namespace}.example.com"
    kind = f"widgets.{group}"
    kubectl("apply", "-f", "-", stdin=_definition(group))
    try:
        kubectl("wait", "crd", kind, "--for=condition=Established", "--timeout=30s")
        assert kubectl("get", "crd", kind).table[0][0] == kind
        kubectl("apply", "-f", "-", stdin=_widget(group))
        assert kubectl("get", kind).lines[0].split() == ["NAME", "SIZE"]
        assert kubectl("get", kind).table == [["one", "3"]]
        assert f"widget.{group}/one" in kubectl("get", "all", "-o", "name").out
        kubectl("apply", "-f", "-", stdin=_widget(group, size=4))
        assert kubectl("get", kind, "one", "-o", "jsonpath={.spec.size}").out == "4"
        said = kubectl.refused("apply", "-f", "-", stdin=_widget(group, size=0))
        assert "spec.size in body should be greater than or equal to 1" in said
        said = kubectl.refused("apply", "-f", "-", stdin=_widget(group, odd=1))
        assert 'unknown field "spec.odd"' in said
        assert "How big it is." in kubectl("explain", f"{kind}.spec").out
        parts = [{"name": "a", "count": 1}]
        words = ("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-")
        kubectl(*words, stdin=_widget(group, size=4, parts=parts))
        kubectl("patch", kind, "one", "--type=merge", "-p", '{"spec":{"size":5}}')
        kubectl("label", kind, "one", "a=b")
        assert kubectl("get", kind, "-l", "a=b", "-o", "jsonpath={.items[*].spec.parts[0].count}").out == "1"
        kubectl("delete", kind, "one")
        kubectl("apply", "-f", "-", stdin=_widget(group))
    finally:
        kubectl("delete", "crd", kind, "--timeout=30s")
    assert "the server doesn't have a resource type" in kubectl.refused("get", kind)


def test_services_in_kubectl(kubectl: Kubectl) -> None:
    kubectl("create", "service", "clusterip", "web", "--tcp=80:8080")
    name, kind, address, outside, ports, *_ = kubectl("get", "service", "web").table[0]
    assert (name, kind, outside, ports) == ("web", "ClusterIP", "<none>", "80/TCP")
    assert address.startswith("10.")
    done = kubectl("create", "service", "nodeport", "port", "--tcp=80")
    assert "NodePort: no effect on nodes" in done.err
    kubectl("create", "service", "externalname", "out", "--external-name", "example.org")
    kubectl("create", "service", "clusterip", "headless", "--clusterip=None", "--tcp=80")
    assert kubectl("get", "service", "headless").table[0][2] == "None"
    until(lambda: len(kubectl("get", "endpointslices").table) == 3)
    assert "Endpoints" in kubectl("describe", "service", "web").out
    listed = kubectl("get", "services", "-n", "default").table
    assert ["kubernetes", "ClusterIP", "10.96.0.1", "<none>", "443/TCP"] in [row[:5] for row in listed]
    kubectl("delete", "services", "--all")
    until(lambda: kubectl("get", "endpoints,endpointslices").out == "")
