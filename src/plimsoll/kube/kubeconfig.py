"""A kubeconfig → the address of the API server and the credentials for it. Opens no connection.

Supported: tokens, token files, client certificates (files or data), an exec plugin (its command; `exec_plugin` runs
it), a CA (file or data) or none, and the service account in a pod's file system. `chosen` decides which file is meant,
for every verb and daemon. Several files in $KUBECONFIG are merged as kubectl merges them: the first that has an entry
decides, and missing files are skipped. If all are missing, that is an error: a command that was meant for one cluster
must not reach another.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from plimsoll.codec.yaml import reader
from plimsoll.errors import PlimsollError

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
InteractiveMode = Literal["Never", "IfAvailable", "Always"]
INTERACTIVE_MODES = get_args(InteractiveMode)
_EXTENSION = "client.authentication.k8s.io/exec"  # of a cluster: settings for the plugin


class KubeconfigError(PlimsollError):
    """What is missing or wrong in the file, with its path."""


class NoKubeconfigError(KubeconfigError):
    """None is named, and there is none at the usual places."""


class ExecPlugin(msgspec.Struct, frozen=True):
    """`command`: a path that is resolved, or a name that is searched in $PATH."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = PLUGIN_VERSIONS[0]
    install_hint: str = ""
    interactive: InteractiveMode = "IfAvailable"
    cluster: dict[str, Any] | None = None  # what the plugin gets about it, with provideClusterInfo


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


class _File(msgspec.Struct, frozen=True):
    """One kubeconfig. `base`: the directory of relative file names."""

    document: dict[str, Any]
    base: Path
    where: str


def chosen(path: Path | None, context: str, environment: Mapping[str, str], others: Sequence[Path] = ()) -> Access:
    """The access that a command means: `path`, else $KUBECONFIG, else the first of `others` that exists, else the
    service account of this pod. A file that is named and missing is an error, never a reason to use another."""
    if path is not None:
        return load(path, context)
    listed = [Path(name) for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    if listed:
        return load_merged(listed, context)
    for other in others:
        if other.is_file():
            return load(other, context)
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment)
    tried = f"tried {', '.join(map(str, others))}" if others else "KUBECONFIG is not set, and this is not a pod"
    raise NoKubeconfigError(
        f"no kubeconfig found: {tried}\nStart a cluster with `plimsoll up`, or use --kubeconfig FILE."
    )


def load(path: Path, context: str = "") -> Access:
    return _access([_read(path)], context)


def load_merged(paths: Sequence[Path], context: str = "") -> Access:
    """The files of $KUBECONFIG."""
    there = [path for path in paths if path.exists()]
    if not there:
        named = ", ".join(map(str, paths))
        raise KubeconfigError(
            f"$KUBECONFIG: {named}: no such file: correct or unset KUBECONFIG, or use --kubeconfig FILE"
        )
    return _access([_read(path) for path in there], context)


def access(data: bytes, base: Path, where: str, context: str = "") -> Access:
    """`base`: the directory of relative file names."""
    return _access([_File(_document(data, where), base, where)], context)


def _read(path: Path) -> _File:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{path}: {error.strerror}: use --kubeconfig FILE to name another") from None
    return _File(_document(data, str(path)), Path(os.path.abspath(path)).parent, str(path))


def _access(files: Sequence[_File], context: str) -> Access:
    where = ", ".join(file.where for file in files)
    current = (str(file.document.get("current-context") or "") for file in files)
    name = context or next(filter(None, current), "")
    if not name:
        raise KubeconfigError(f"{where}: current-context is not set: use --context")
    entry, _ = _named(files, "contexts", "context", name)
    cluster, of_cluster = _named(files, "clusters", "cluster", str(entry.get("cluster", "")))
    user_name = str(entry.get("user", ""))
    user, of_user = _named(files, "users", "user", user_name) if user_name else ({}, of_cluster)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise KubeconfigError(
            f"{of_cluster.where}: clusters[{entry.get('cluster')}].cluster.server: must be an http or https URL"
        )
    made = Access(
        server=server.rstrip("/"),
        ca=_data(cluster, "certificate-authority", of_cluster),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=str(cluster.get("tls-server-name", "")),
        token=str(user.get("token", "")),
        token_file=str(of_user.base / user["tokenFile"]) if user.get("tokenFile") else "",
        certificate=_data(user, "client-certificate", of_user),
        key=_data(user, "client-key", of_user),
        namespace=str(entry.get("namespace") or "default"),
        user=user_name,
    )
    plugin = _plugin(user.get("exec"), of_user, f"users[{user_name}].user.exec")
    if plugin is not None and user["exec"].get("provideClusterInfo"):
        plugin = msgspec.structs.replace(plugin, cluster=_cluster_info(made, cluster))
    return msgspec.structs.replace(made, plugin=plugin)


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


def _named(files: Sequence[_File], listed: str, member: str, name: str) -> tuple[dict[str, Any], _File]:
    """The first entry of that name, and the file that has it."""
    for file in files:
        for item in file.document.get(listed) or ():
            if isinstance(item, dict) and item.get("name") == name and isinstance(item.get(member), dict):
                return item[member], file
    raise KubeconfigError(f"{', '.join(file.where for file in files)}: {listed}: there is no {name!r}")


def _data(entry: dict[str, Any], name: str, of_file: _File) -> bytes | None:
    """`<name>-data` (base64) takes precedence over `<name>` (a file), as in kubectl."""
    where = of_file.where
    if inline := entry.get(f"{name}-data"):
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error:
            raise KubeconfigError(f"{where}: {name}-data: invalid base64") from None
    if file := entry.get(name):
        try:
            return (of_file.base / str(file)).read_bytes()
        except OSError as error:
            raise KubeconfigError(f"{where}: {name}: {error.filename}: {error.strerror}") from None
    return None


def _plugin(entry: Any, of_file: _File, field: str) -> ExecPlugin | None:
    """As client-go reads it: a command with a slash is relative to its kubeconfig, another one is searched in $PATH."""
    if entry is None:
        return None

    def refused(name: str, reason: str) -> KubeconfigError:
        return KubeconfigError(f"{of_file.where}: {field}{name}: {reason}")

    if not isinstance(entry, dict) or not entry.get("command"):
        raise refused(".command", "must be specified to use an exec plugin")
    command, version = str(entry["command"]), str(entry.get("apiVersion") or "")
    if version not in PLUGIN_VERSIONS:
        raise refused(".apiVersion", f"{version!r}: must be {' or '.join(PLUGIN_VERSIONS)}")
    mode = entry.get("interactiveMode")
    if mode is None and version == PLUGIN_VERSIONS[0]:
        raise refused(".interactiveMode", f"must be specified for {version}: {', '.join(INTERACTIVE_MODES)}")
    if mode is not None and mode not in INTERACTIVE_MODES:
        raise refused(".interactiveMode", f"{mode!r}: must be {', '.join(INTERACTIVE_MODES)}")
    env = entry.get("env") or ()
    if not all(isinstance(each, dict) and each.get("name") and "value" in each for each in env):
        raise refused(".env", "each variable needs a name and a value")
    return ExecPlugin(
        str(of_file.base / command) if "/" in command else command,
        tuple(map(str, entry.get("args") or ())),
        tuple((str(each["name"]), str(each["value"])) for each in env),
        version,
        str(entry.get("installHint") or ""),
        mode or "IfAvailable",
    )


def _cluster_info(access: Access, cluster: dict[str, Any]) -> dict[str, Any]:
    """`spec.cluster` of the ExecCredential."""
    info: dict[str, Any] = {"server": access.server}
    if access.server_name:
        info["tls-server-name"] = access.server_name
    if not access.verify:
        info["insecure-skip-tls-verify"] = True
    if access.ca is not None:
        info["certificate-authority-data"] = base64.b64encode(access.ca).decode()
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == _EXTENSION:
            info["config"] = extension.get("extension")
    return info
