"""Manifests as real clusters get them run unmodified: Ready, logs, exec, port-forward, rolling update, delete.

With containerd, pods on a bridge, and an API server at an address that they reach.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from tests.e2e.bridged_node import bridged_node
from tests.e2e.kubectl import Kubectl, any_binary
from tests.e2e.real_manifests import (
    CERT_MANAGER,
    CERTIFICATE,
    GREETING,
    IMAGES,
    NODE_EXPORTER,
    OPERATOR,
    RESTRICTED,
)
from tests.e2e.waiting import until

# One set-up for all. Beside the tests of the dashboard, the interfaces of its pods would end requests of Chromium, also
# those to loopback (net::ERR_NETWORK_CHANGED): they are in one group.
pytestmark = pytest.mark.xdist_group("dashboard")
TIMEOUT = "--timeout=150s"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with bridged_node(tmp_path_factory.mktemp("real") / "cluster", IMAGES) as node:
        made = Kubectl(any_binary(), node.kubeconfig, tmp_path_factory.mktemp("home"))
        made("apply", "-f", "-", stdin="\n---\n".join((RESTRICTED, NODE_EXPORTER, CERT_MANAGER, OPERATOR)))
        yield made
        for namespace in ("shop", "monitoring", "cert-manager", "greetings"):
            made("delete", "namespace", namespace, "--wait=false")
        until(lambda: not made("get", "pods", "-A", "-o", "name").out, lambda: made("get", "pods", "-A").out)
        made.api.close()


def forwarded(kube: Kubectl, namespace: str, target: str, port: int, data: bytes) -> bytes:
    with kube.background("port-forward", "-n", namespace, target, f":{port}") as forwarding:
        lines = forwarding.wait_for(lambda lines: any("127.0.0.1:" in line for line in lines))
        near = int(next(line for line in lines if "127.0.0.1:" in line).split("127.0.0.1:")[1].split()[0])
        with socket.create_connection(("127.0.0.1", near), timeout=60) as connection:
            connection.sendall(data)
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
            return answer


def test_restricted_web_server(kube: Kubectl) -> None:
    kube("rollout", "status", "-n", "shop", "deployment/web", TIMEOUT)
    assert "start worker processes" in kube("logs", "-n", "shop", "deployment/web").out
    assert kube("exec", "-n", "shop", "deployment/web", "--", "id", "-u").out == "101\n"
    refused = kube.run("exec", "-n", "shop", "deployment/web", "--", "touch", "/etc/x")
    assert "Read-only file system" in refused.err, refused
    page = forwarded(kube, "shop", "service/web", 80, b"GET /index.html HTTP/1.0\r\n\r\n")
    assert b" 200 OK" in page and b"web-" in page, page
    before = set(kube("get", "pods", "-n", "shop", "-l", "app.kubernetes.io/name=web", "-o", "name").lines)
    kube("set", "image", "-n", "shop", "deployment/web", "nginx=nginxinc/nginx-unprivileged:1.28")
    kube("rollout", "status", "-n", "shop", "deployment/web", TIMEOUT)
    images = "jsonpath={.items[*].spec.containers[0].image}"

    def replaced() -> bool:
        selected = ("-n", "shop", "-l", "app.kubernetes.io/name=web")
        after = kube("get", "pods", *selected, "-o", "name").lines
        shown = set(kube("get", "pods", *selected, "-o", images).out.split())
        return not before & set(after) and shown == {"nginxinc/nginx-unprivileged:1.28"}

    until(replaced, lambda: kube("get", "pods", "-n", "shop", "-o", "wide").out)
    kube("rollout", "undo", "-n", "shop", "deployment/web")
    kube("rollout", "status", "-n", "shop", "deployment/web", TIMEOUT)
    addresses = "jsonpath={.endpoints[*].addresses[0]}"
    slices = kube("get", "endpointslice", "-n", "shop", "-l", "kubernetes.io/service-name=web", "-o", "name").lines
    assert kube("get", slices[0], "-n", "shop", "-o", addresses).out.startswith("10.88.")


def test_redis_as_a_stateful_set_behind_a_headless_service(kube: Kubectl) -> None:
    kube("rollout", "status", "-n", "shop", "statefulset/redis", TIMEOUT)
    assert forwarded(kube, "shop", "pod/redis-1", 6379, b"PING\r\n") == b"+PONG\r\n"
    assert kube("exec", "-n", "shop", "redis-0", "--", "hostname", "-f").out.startswith("redis-0")
    hosts = kube("exec", "-n", "shop", "redis-0", "--", "cat", "/etc/hosts").out
    assert "redis-0.redis.shop.svc.cluster.local\tredis-0" in hosts
    name = json.loads(kube("get", "endpoints", "-n", "shop", "redis", "-o", "json").out)
    assert sorted(each["hostname"] for each in name["subsets"][0]["addresses"]) == ["redis-0", "redis-1"]
    uid = "jsonpath={.metadata.uid}"
    before = kube("get", "pod", "-n", "shop", "redis-0", "-o", uid).out
    kube("rollout", "restart", "-n", "shop", "statefulset/redis")
    kube("rollout", "status", "-n", "shop", "statefulset/redis", TIMEOUT)
    assert kube("get", "pod", "-n", "shop", "redis-0", "-o", uid).out != before


def test_node_exporter_sees_the_machine(kube: Kubectl) -> None:
    kube("rollout", "status", "-n", "monitoring", "daemonset/node-exporter", TIMEOUT)
    page = forwarded(kube, "monitoring", "daemonset/node-exporter", 9100, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert b"node_memory_MemTotal_kB " in page, page
    kube("set", "env", "-n", "monitoring", "daemonset/node-exporter", "MORE=1")
    kube("rollout", "status", "-n", "monitoring", "daemonset/node-exporter", TIMEOUT)


def test_cert_manager_with_its_definitions_and_roles(kube: Kubectl) -> None:
    kube("wait", "--for=condition=Established", "crd/certificates.cert-manager.io", TIMEOUT)
    kube("rollout", "status", "-n", "cert-manager", "deployment/cert-manager", TIMEOUT)
    kube("apply", "-f", "-", stdin=CERTIFICATE)
    assert kube("get", "cert", "-n", "cert-manager").table == [["web", "web-tls"]]
    issuer = "jsonpath={.spec.issuerRef.kind}"
    assert kube("get", "cert", "-n", "cert-manager", "web", "-o", issuer).out == "Issuer", "a default of the schema"
    assert "spec.secretName" in kube.refused("apply", "-f", "-", stdin=CERTIFICATE.replace("secretName: web-tls, ", ""))
    assert "started controller" in kube("logs", "-n", "cert-manager", "deployment/cert-manager").out


def test_an_operator_with_in_cluster_credentials(kube: Kubectl) -> None:
    kube("rollout", "status", "-n", "greetings", "deployment/operator", TIMEOUT)
    kube("apply", "-f", "-", stdin=GREETING)
    logs = ("logs", "-n", "greetings", "deployment/operator")
    made = until(
        lambda: kube.run("get", "cm", "-n", "greetings", "hello-world", "-o", "jsonpath={.data.greeting}").out,
        lambda: kube(*logs).out,
    )
    assert made.startswith("made by operator-")
    account = "--as=system:serviceaccount:greetings:operator"
    assert kube.run("auth", "can-i", "delete", "configmaps", "-n", "greetings", account).out == "no\n"
