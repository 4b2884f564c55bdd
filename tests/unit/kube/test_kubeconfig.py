"""Kubeconfigs as people have them, and what is wrong with those that don't work."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from plimsoll.kube.kubeconfig import Access, ExecPlugin, KubeconfigError, access, in_cluster, load

PEM = base64.b64encode(b"PEM").decode()
CONFIG = """
apiVersion: v1
kind: Config
current-context: a
clusters:
- name: c
  cluster: {server: "https://10.0.0.1:6443/", certificate-authority-data: PEM-DATA}
- name: files
  cluster: {server: "https://h", certificate-authority: ca.pem, tls-server-name: other}
- name: bad
  cluster: {server: "ftp://h"}
users:
- name: cert
  user: {client-certificate-data: PEM-DATA, client-key-data: PEM-DATA}
- name: token
  user: {token: t0k}
- name: plugin
  user: {exec: {command: get-token, args: [--x], env: [{name: A, value: b}], apiVersion: client.authentication.k8s.io/v1beta1}}
contexts:
- {name: a, context: {cluster: c, user: cert, namespace: ns}}
- {name: b, context: {cluster: files, user: token}}
- {name: p, context: {cluster: c, user: plugin}}
- {name: bad, context: {cluster: bad, user: token}}
- {name: nowhere, context: {cluster: gone, user: token}}
""".replace("PEM-DATA", PEM)


def test_data_inside(tmp_path: Path) -> None:
    assert access(CONFIG.encode(), tmp_path, "f") == Access(
        "https://10.0.0.1:6443", ca=b"PEM", certificate=b"PEM", key=b"PEM", namespace="ns", user="cert"
    )


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"CA")
    (tmp_path / "config").write_text(CONFIG)
    found = load(tmp_path / "config", "b")
    assert (found.ca, found.token, found.server_name, found.namespace) == (b"CA", "t0k", "other", "default")


def test_exec_plugin(tmp_path: Path) -> None:
    assert access(CONFIG.encode(), tmp_path, "f", "p").plugin == ExecPlugin(
        "get-token", ("--x",), (("A", "b"),), "client.authentication.k8s.io/v1beta1", "", "IfAvailable"
    )


@pytest.mark.parametrize(
    ("text", "context", "complaint"),
    [
        (CONFIG, "zzz", "f: contexts: there is no 'zzz'"),
        (CONFIG, "nowhere", "f: clusters: there is no 'gone'"),
        (CONFIG, "bad", "must be an http or https URL"),
        (CONFIG, "b", "ca.pem: No such file"),
        ("kind: Config", "", "current-context is not set"),
        ("[]", "", "cannot unmarshal array"),
        ("a: [", "", "f: "),
        ("", "", "not a kubeconfig"),
        (CONFIG.replace(PEM, "a*"), "a", "invalid base64"),
    ],
)
def test_errors_name_what_is_wrong(text: str, context: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError) as refused:
        access(text.encode(), tmp_path, "f", context)
    assert complaint in str(refused.value)


def test_in_cluster(tmp_path: Path) -> None:
    for name, text in (("ca.crt", "CA"), ("token", "t"), ("namespace", "ns\n")):
        (tmp_path / name).write_text(text)
    found = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (found.server, found.namespace, found.token_file) == (
        "https://[fd00::1]:6443",
        "ns",
        str(tmp_path / "token"),
    )
    with pytest.raises(KubeconfigError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster({}, tmp_path)
