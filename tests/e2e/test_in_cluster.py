"""From inside a pod: the token of its service account, the CA and the address of the API server are where clients look."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import RealNode, real_node
from tests.e2e.waiting import until

# What client libraries do, in words that every machine has.
CLIENT = """
import json, os, ssl, urllib.error, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount"
token, namespace = (open(f"{place}/{name}").read() for name in ("token", "namespace"))
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
url = f"https://{host}:{port}/api/v1/namespaces/{namespace}/pods"
request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
try:
    answer = urllib.request.urlopen(request, context=ssl.create_default_context(cafile=f"{place}/ca.crt"))
    print(answer.status, len(json.load(answer)["items"]))
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)["message"])
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("cluster") / "here") as made:
        yield made


def client_pod(name: str) -> str:
    spec = {
        "hostNetwork": True,
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "host", "command": ["python3", "-c", CLIENT]}],
    }
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def said_by(kube: Kubectl, name: str) -> str:
    kube("apply", "-f", "-", stdin=client_pod(name))

    def ended() -> bool:
        return kube("get", "pod", name, "-o", "jsonpath={.status.phase}").out in ("Succeeded", "Failed")

    until(ended, lambda: kube("describe", "pod", name).out)
    return kube("logs", name).out.strip()


def test_an_in_cluster_client_has_the_rights_of_its_account(node: RealNode, kube: Kubectl) -> None:
    user = "system:serviceaccount:default:default"
    assert said_by(kube, "before") == (
        f'403 pods is forbidden: User "{user}" cannot list resource "pods" in API group "" in the namespace "default"'
    )
    kube("create", "role", "reader", "--verb=list", "--resource=pods")
    kube("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:default")
    code, count = said_by(kube, "after").split()
    assert code == "200" and int(count) >= 1
