"""A kubeconfig → the address of the API server and the credentials for it. Opens no connection.

Supported: tokens, token files, client certificates (files or data), an exec plugin (its command; `exec_plugin` runs
it), a CA (file or data) or none, and the service account in a pod's file system.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.codec.yaml import reader
from plimsoll.errors import PlimsollError

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeconfigError(PlimsollError):
    """What is missing or wrong in the file, with its path."""


class ExecPlugin(msgspec.Struct, frozen=True):
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"


class Access(msgspec.Struct, frozen=True):
    """One server and one identity. It contains the PEM data, so no file is read later."""

    server: str
    ca: bytes | None = None
    verify: bool = True
    server_name: str = ""
    token: str = ""
    token_file: str = ""
    certificate: bytes | None = None
    key: bytes | None = None
    plugin: ExecPlugin | None = None
    namespace: str = "default"
    user: str = ""


def load(path: Path, context: str = "") -> Access:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{path}: {error.strerror}") from None
    return access(data, path.parent, str(path), context)


def access(data: bytes, base: Path, where: str, context: str = "") -> Access:
    """`base`: the directory of relative file names."""
    config = _document(data, where)
    chosen = context or config.get("current-context") or ""
    if not chosen:
        raise KubeconfigError(f"{where}: current-context is not set: use --context")
    entry = _named(config, "contexts", "context", chosen, where)
    cluster = _named(config, "clusters", "cluster", str(entry.get("cluster", "")), where)
    user_name = str(entry.get("user", ""))
    user = _named(config, "users", "user", user_name, where) if user_name else {}
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise KubeconfigError(f"{where}: clusters[{entry.get('cluster')}].cluster.server: must be an http or https URL")
    return Access(
        server=server.rstrip("/"),
        ca=_data(cluster, "certificate-authority", base, where),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=str(cluster.get("tls-server-name", "")),
        token=str(user.get("token", "")),
        token_file=str(base / user["tokenFile"]) if user.get("tokenFile") else "",
        certificate=_data(user, "client-certificate", base, where),
        key=_data(user, "client-key", base, where),
        plugin=_plugin(user.get("exec")),
        namespace=str(entry.get("namespace") or "default"),
        user=user_name,
    )


def files_of(path: Path) -> tuple[Path, ...]:
    """The file itself, and every file that it names: with any of them another process could be this user. Absolute."""
    path = Path(os.path.abspath(path))
    try:
        config = _document(path.read_bytes(), str(path))
    except OSError as error:
        raise KubeconfigError(f"{path}: {error.strerror}") from None
    named = [
        path.parent / str(entry[member][field])
        for listed, member, fields in (
            ("clusters", "cluster", ("certificate-authority",)),
            ("users", "user", ("client-certificate", "client-key", "tokenFile")),
        )
        for entry in config.get(listed) or ()
        if isinstance(entry, dict) and isinstance(entry.get(member), dict)
        for field in fields
        if entry[member].get(field)
    ]
    return (path, *(Path(os.path.abspath(each)) for each in named))


def in_cluster(environment: Mapping[str, str], directory: Path = IN_CLUSTER) -> Access:
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubeconfigError("no kubeconfig was given, and this is not a pod: KUBERNETES_SERVICE_HOST is not set")
    try:
        return Access(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            ca=(directory / "ca.crt").read_bytes(),
            token_file=str(directory / "token"),
            namespace=(directory / "namespace").read_text().strip(),
            user="service account",
        )
    except OSError as error:
        raise KubeconfigError(f"{error.filename}: {error.strerror}") from None


def _document(data: bytes, where: str) -> dict[str, Any]:
    documents = list(reader.read(data))
    for document in documents:
        if isinstance(document, reader.YamlError):
            raise KubeconfigError(f"{where}: {document}")
        if len(documents) == 1 and isinstance(document.value, dict):
            return document.value
    raise KubeconfigError(f"{where}: not a kubeconfig")


def _named(config: dict[str, Any], listed: str, member: str, name: str, where: str) -> dict[str, Any]:
    for item in config.get(listed) or ():
        if isinstance(item, dict) and item.get("name") == name and isinstance(item.get(member), dict):
            entry: dict[str, Any] = item[member]
            return entry
    raise KubeconfigError(f"{where}: {listed}: there is no {name!r}")


def _data(entry: dict[str, Any], name: str, base: Path, where: str) -> bytes | None:
    """`<name>-data` (base64) takes precedence over `<name>` (a file), as in kubectl."""
    if inline := entry.get(f"{name}-data"):
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error:
            raise KubeconfigError(f"{where}: {name}-data: invalid base64") from None
    if file := entry.get(name):
        try:
            return (base / str(file)).read_bytes()
        except OSError as error:
            raise KubeconfigError(f"{where}: {name}: {error.filename}: {error.strerror}") from None
    return None


def _plugin(entry: Any) -> ExecPlugin | None:
    if not isinstance(entry, dict) or not entry.get("command"):
        return None
    return ExecPlugin(
        str(entry["command"]),
        tuple(map(str, entry.get("args") or ())),
        tuple((str(variable["name"]), str(variable["value"])) for variable in entry.get("env") or ()),
        str(entry.get("apiVersion", ExecPlugin("x").api_version)),
    )
