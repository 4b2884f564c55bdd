"""What real kubectl does with secrets, service accounts, tokens, roles and bindings."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from tests.e2e.kubectl import Kubectl

KUBECTL_PAIRS_TESTED = 1


def with_token(kubectl: Kubectl, token: str, file: Path) -> Kubectl:
    """The same kubectl with a bearer token instead of the administrator's certificate."""
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json").out)
    config["users"] = [{"name": "robot", "user": {"token": token}}]
    config["contexts"][0]["context"] |= {"user": "robot", "namespace": kubectl.namespace}
    file.write_text(json.dumps(config))
    return Kubectl(kubectl.binary, file, file.parent, kubectl.namespace)


def test_secrets(kubectl: Kubectl) -> None:
    said = kubectl("create", "secret", "generic", "db", "--from-literal=user=root", "--from-literal=password=geheim")
    assert said.out == "secret/db created\n"
    kubectl("create", "secret", "docker-registry", "reg", "--docker-server=r.example", "--docker-username=u",
            "--docker-password=p")  # fmt: skip
    lines = [line.split()[:3] for line in kubectl("get", "secrets").out.splitlines()]
    assert ["db", "Opaque", "2"] in lines and ["reg", "kubernetes.io/dockerconfigjson", "1"] in lines
    shown = kubectl("describe", "secret", "db").out
    assert "password:  6 bytes" in shown and "geheim" not in shown
    stored = kubectl("get", "secret", "db", "-o", "jsonpath={.data.password}").out
    assert base64.b64decode(stored) == b"geheim"
    assert 'secret "nope" not found' in kubectl.refused("get", "secret", "nope").replace('secrets "', 'secret "')
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "type": "kubernetes.io/tls"}
    assert "data[tls.crt]: Required value" in kubectl.refused("replace", "-f", "-", stdin=json.dumps(body))


def test_an_account_with_a_role(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "serviceaccount", "builder")
    token = kubectl("create", "token", "builder", "--duration=20m").out.strip()
    robot = with_token(kubectl, token, tmp_path / "robot.kubeconfig")
    name = f"system:serviceaccount:{kubectl.namespace}:builder"
    assert name in robot("auth", "whoami").out
    assert (
        f'User "{name}" cannot list resource "pods" in API group "" in the namespace "{kubectl.namespace}"'
        in robot.refused("get", "pods")
    )
    assert robot.run("auth", "can-i", "list", "pods").out.startswith("no")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,pods/log")
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={kubectl.namespace}:builder")
    assert robot("auth", "can-i", "list", "pods").out == "yes\n"
    assert "No resources found" in robot("get", "pods").err
    assert robot.run("auth", "can-i", "delete", "pods").out.startswith("no")
    listed = robot("auth", "can-i", "--list").out
    assert any(line.split()[0] == "pods/log" for line in listed.splitlines()[1:] if line.strip()), listed
    assert kubectl("auth", "can-i", "list", "pods", f"--as={name}").out == "yes\n"
    assert kubectl.run("auth", "can-i", "create", "pods", f"--as={name}").out.startswith("no")
    rows = kubectl("get", "rolebindings", "-o", "wide").out.splitlines()
    assert rows[0].split() == ["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"]
    assert f"{kubectl.namespace}/builder" in rows[1] and "Role/reader" in rows[1]
    described = kubectl("describe", "role", "reader").out
    assert "pods/log" in described and "[get list]" in described
    kubectl("delete", "serviceaccount", "builder")
    said = robot.run("get", "pods")
    assert (said.code == 1 and "Unauthorized" in said.err + said.out) or "must be logged in" in said.err


def test_default_roles_and_reconcile(kubectl: Kubectl) -> None:
    names = kubectl("get", "clusterroles", "-o", "name").out.split()
    prefix = "clusterrole.rbac.authorization.k8s.io/"
    wanted = {"cluster-admin", "admin", "edit", "view", "system:node", "system:discovery", "system:kubelet-api-admin"}
    assert {f"{prefix}{name}" for name in wanted} <= set(names)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r", "namespace": kubectl.namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    kubectl("auth", "reconcile", "-f", "-", stdin=json.dumps(role))
    role["rules"] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    kubectl("auth", "reconcile", "-f", "-", stdin=json.dumps(role))
    verbs = kubectl("get", "role", "r", "-o", "jsonpath={.rules[*].verbs[*]}").out.split()
    assert sorted(verbs) == ["get", "list"]


def test_every_namespace_has_an_account_and_the_ca(kubectl: Kubectl) -> None:
    assert "default" in kubectl("get", "serviceaccounts").out
    bundle = kubectl("get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}").out
    assert bundle.startswith("-----BEGIN CERTIFICATE-----")
    keys = json.loads(kubectl("get", "--raw", "/openid/v1/jwks").out)["keys"]
    assert keys[0]["alg"] == "ES256"
