"""Services with a real node: variables in containers, and requests to pods through the API server."""

from __future__ import annotations

import json
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from plimsoll.kube.kubeconfig import load
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import RealNode, real_node
from tests.e2e.waiting import until

# Answers every request with its first line, its body and its headers in lower case, on 8443 over TLS; /page is HTML.
SERVER = """
import http.server, ssl, tempfile, threading
class Echo(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        said = "\\n".join([self.requestline, body, *(f"{k.lower()}: {v}" for k, v in self.headers.items())]).encode()
        if self.path == "/page":
            said = b'<a href="/rewriteme">test</a>'
        self.send_response({"/teapot": 418, "/moved": 302}.get(self.path, 200))
        self.send_header("content-type", "text/html" if self.path == "/page" else "text/plain")
        if self.path == "/moved":
            self.send_header("location", "/some/path")
        self.send_header("content-length", str(len(said)))
        self.send_header("x-pod", "web")
        self.end_headers()
        self.wfile.write(said)
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
with tempfile.NamedTemporaryFile("w") as file:
    file.write(CERTIFICATE)
    file.flush()
    context.load_cert_chain(file.name)
secure = http.server.HTTPServer(("127.0.0.1", 8443), Echo)
secure.socket = context.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=secure.serve_forever, daemon=True).start()
http.server.HTTPServer(("127.0.0.1", 8080), Echo).serve_forever()
"""

BY_HAND = """
apiVersion: v1
kind: Service
metadata: {name: by-hand}
spec: {ports: [{name: w, port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: by-hand}
subsets:
- addresses: [{ip: 10.9.9.9, targetRef: {kind: Pod, namespace: default, name: web}}]
  ports: [{name: w, port: 8080}]
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("services") / "cluster", "1.36") as made:
        exercised("node agent", "this machine, cgroup v1, embedded runtime")
        yield made


def _self_signed() -> str:
    """A certificate that no authority has signed, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pod")]), datetime.now(UTC)
    certificate = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - timedelta(days=1), now + timedelta(days=1)
    ).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return (certificate.public_bytes(pem) + private).decode()


def _pod(name: str, command: list[str], **spec: object) -> str:
    container = {
        "name": "c",
        "image": "busybox",
        "command": command,
        "ports": [{"name": "http", "containerPort": 8080}],
    }
    made = {"terminationGracePeriodSeconds": 1, **spec, "containers": [container]}
    metadata = {"name": name, "labels": {"app": name}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})


def _first_line(node: RealNode, method: str, path: str) -> str:
    access = load(node.kubeconfig)
    context = ssl.create_default_context(cadata=(access.ca or b"").decode())
    with tempfile.NamedTemporaryFile() as pair:
        pair.write((access.certificate or b"") + b"\n" + (access.key or b""))
        pair.flush()
        context.load_cert_chain(pair.name)
    with closing(HTTPSConnection(urlsplit(access.server).netloc, context=context, timeout=30)) as connection:
        connection.request(method, path)
        return connection.getresponse().read().decode().partition("\n")[0]


def test_services_reach_containers_and_pods_are_reached(kube: Kubectl, node: RealNode) -> None:
    script = f"CERTIFICATE = {_self_signed()!r}\n{SERVER}"
    kube("apply", "-f", "-", stdin=_pod("web", ["python3", "-c", script]))
    kube("wait", "pods", "web", "--for=condition=Ready", "--timeout=120s")
    pods = "/api/v1/namespaces/default/pods"
    until(lambda: kube.run("get", "--raw", f"{pods}/web:8080/proxy/").code == 0)
    said = kube("get", "--raw", f"{pods}/web/proxy/some/path?a=b").lines
    assert said[0] == "GET /some/path?a=b HTTP/1.1"
    assert not any(line.startswith("authorization:") for line in said)
    assert "status code 418" in kube.run("get", "--raw", f"{pods}/web:8080/proxy/teapot").err
    assert "error trying to reach service" in kube.run("get", "--raw", f"{pods}/web:8081/proxy/").err
    posted = kube("create", "--raw", f"{pods}/web:8080/proxy/post", "-f", "-", stdin="the body")
    assert posted.lines[:2] == ["POST /post HTTP/1.1", "the body"]
    over_tls = kube("create", "--raw", f"{pods}/https:web:8443/proxy/post", "-f", "-", stdin="the body" * 9999)
    assert over_tls.lines[:2] == ["POST /post HTTP/1.1", "the body" * 9999]
    assert "error trying to reach service" in kube.run("get", "--raw", f"{pods}/https:web:8080/proxy/").err
    assert (
        kube("get", "--raw", f"{pods}/web:8080/proxy/page").out == f'<a href="{pods}/web:8080/proxy/rewriteme">test</a>'
    )
    assert kube("get", "--raw", f"{pods}/web:8080/proxy/moved").lines[0] == "GET /some/path HTTP/1.1"
    assert f"x-forwarded-uri: {pods}/web:8080/proxy/a/" in kube("get", "--raw", f"{pods}/web:8080/proxy/a/").lines
    for method in ("OPTIONS", "PATCH", "DELETE"):
        assert _first_line(node, method, f"{pods}/web:8080/proxy/x") == f"{method} /x HTTP/1.1"

    kube("expose", "pod", "web", "--port=80", "--target-port=http", "--name=my-web")
    services = "/api/v1/namespaces/default/services"
    assert "no endpoints available" in kube.run("get", "--raw", f"{services}/my-web:80/proxy/").err
    # Pods of the embedded runtime have only loopback and so no endpoints: these are written here.
    kube("apply", "-f", "-", stdin=BY_HAND)
    for port in ("80", "w"):
        assert kube("get", "--raw", f"{services}/by-hand:{port}/proxy/x").lines[0] == "GET /x HTTP/1.1"
    assert 'no service port "81" found' in kube.run("get", "--raw", f"{services}/by-hand:81/proxy/x").err

    kube("apply", "-f", "-", stdin=_pod("late", ["sleep", "1000"]))
    kube("apply", "-f", "-", stdin=_pod("unlinked", ["sleep", "1000"], enableServiceLinks=False))
    kube("wait", "pods", "--all", "--for=condition=Ready", "--timeout=120s")
    address = kube("get", "service", "my-web", "-o", "jsonpath={.spec.clusterIP}").out
    script = "echo $MY_WEB_SERVICE_HOST:$MY_WEB_SERVICE_PORT $MY_WEB_PORT_80_TCP $KUBERNETES_SERVICE_PORT"
    server = kube("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}").out
    port = server.rpartition(":")[2]  # no proxy serves the cluster IP of default/kubernetes: the server's own
    assert kube("exec", "late", "--", "sh", "-c", script).out == f"{address}:80 tcp://{address}:80 {port}\n"
    assert kube("exec", "unlinked", "--", "sh", "-c", script).out == f": {port}\n"
    kube("delete", "service", "my-web", "by-hand")
