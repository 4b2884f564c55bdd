"""Exec plugins: real programs, found and run as client-go does, and their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.kube.exec_plugin import CredentialsError, PluginCredentials, plugin_credentials
from plimsoll.kube.kubeconfig import ExecPlugin, KubeconfigError, load, load_merged

V1, BETA = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


def config(**plugin: Any) -> dict[str, Any]:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"server": "https://h:1", "tls-server-name": "x", "extensions": [extension]}
    return {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": {"apiVersion": V1, "interactiveMode": "Never", **plugin}}}],
    }


def written(directory: Path, **plugin: Any) -> Path:
    directory.mkdir(exist_ok=True, parents=True)
    file = directory / "config"
    file.write_text(json.dumps(config(**plugin)))
    return file


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def answer(version: str = V1, **status: Any) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def found(file: Path) -> ExecPlugin:
    plugin = load(file).plugin
    assert plugin is not None
    return plugin


async def test_a_path_is_relative_to_its_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "k/bin/token", f"echo '{answer(token='right')}'")
    program(tmp_path / "elsewhere/bin/token", f"echo '{answer(token='wrong')}'")
    file = written(tmp_path / "k", command="bin/token")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (await plugin_credentials(found(file))).token == "right"
    monkeypatch.chdir(tmp_path)
    assert (await plugin_credentials(found(Path("k/config")))).token == "right", "also of a relative kubeconfig"


async def test_a_name_is_searched_in_path_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "k/token", f"echo '{answer(token='beside')}'")
    program(tmp_path / "path/token", f"echo '{answer(token='in path')}'")
    monkeypatch.setenv("PATH", f"{tmp_path}/path:/bin:/usr/bin")
    monkeypatch.chdir(tmp_path / "k")
    assert (await plugin_credentials(found(written(tmp_path / "k", command="token")))).token == "in path"
    missing = found(written(tmp_path / "k", command="no-such-plugin", installHint="Get it at example.com."))
    with pytest.raises(CredentialsError, match=r"(?s)no-such-plugin: executable not found.*\nGet it at example.com"):
        await plugin_credentials(missing)


@pytest.mark.parametrize("version", [V1, BETA])
async def test_what_the_plugin_gets(version: str, tmp_path: Path) -> None:
    program(
        tmp_path / "token",
        f"""echo "$KUBERNETES_EXEC_INFO $A $1" > {tmp_path}/given; echo '{answer(version, token="t")}'""",
    )
    file = written(
        tmp_path,
        command="./token",
        args=["--x"],
        env=[{"name": "A", "value": "b"}],
        apiVersion=version,
        provideClusterInfo=True,
    )
    assert (await plugin_credentials(found(file))).token == "t"
    given, variable, argument = (tmp_path / "given").read_text().rsplit(maxsplit=2)
    assert (variable, argument) == ("b", "--x")
    cluster = {"server": "https://h:1", "tls-server-name": "x", "config": {"audience": "a"}}
    spec = {"interactive": False, "cluster": cluster}
    assert json.loads(given) == {"apiVersion": version, "kind": "ExecCredential", "spec": spec}


async def test_credentials_are_used_until_they_expire(tmp_path: Path) -> None:
    body = answer(token="T", expirationTimestamp="2026-01-01T00:00:00Z").replace('"T"', "\"'$(wc -l < calls)'\"")
    program(tmp_path / "token", f"cd {tmp_path}; echo >> calls; echo '{body}'")
    now_s = [1767225000.0]  # ten minutes before
    credentials = PluginCredentials(found(written(tmp_path, command="./token")), lambda: now_s[0])
    assert [(await credentials.current()).token for _ in range(3)] == ["1", "1", "1"]
    now_s[0] += 600
    assert (await credentials.current()).token == "2", "expired"
    now_s[0] -= 600
    credentials.forget()
    assert (await credentials.current()).token == "3", "refused by the server"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo nonsense", "invalid ExecCredential"),
        (f"echo '{answer(BETA, token='t')}'", f"configured to use {V1}, and returned {BETA}"),
        (f"echo '{answer()}'", "neither a token nor a certificate"),
        (f"echo '{answer(clientKeyData='k')}'", "only a certificate or a key"),
        ("echo no entry >&2; exit 3", "exit code 3: no entry"),
    ],
)
async def test_wrong_answers(script: str, reason: str, tmp_path: Path) -> None:
    program(tmp_path / "token", script)
    with pytest.raises(CredentialsError, match=reason):
        await plugin_credentials(found(written(tmp_path, command="./token")))


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        ({}, r"users\[u\].user.exec.command: must be specified"),
        ({"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}, "apiVersion: .*v1alpha1.*must be"),
        ({"command": "x", "interactiveMode": None}, "interactiveMode: must be specified for"),
        ({"command": "x", "interactiveMode": "Maybe"}, "interactiveMode: 'Maybe': must be Never, IfAvailable, Always"),
        ({"command": "x", "env": [{"name": "A"}]}, "env: each variable needs a name and a value"),
    ],
)
def test_wrong_settings(plugin: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=reason):
        load(written(tmp_path, **plugin))


async def test_a_plugin_that_needs_a_terminal(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="not a terminal"):
        await plugin_credentials(found(written(tmp_path, command="./x", interactiveMode="Always")))


def test_files_are_merged(tmp_path: Path) -> None:
    """The first that has an entry decides, and relative paths belong to the file that has them."""
    one, two = tmp_path / "one/config", tmp_path / "two/config"
    for file in (one, two):
        file.parent.mkdir()
    one.write_text("current-context: b\ncontexts: [{name: a, context: {cluster: a}}]\n")
    context = "{name: b, context: {cluster: b, user: u}}"
    two.write_text(
        f"current-context: a\ncontexts: [{context}]\nclusters: [{{name: b, cluster: {{server: 'https://b'}}}}]\n"
        "users: [{name: u, user: {tokenFile: token}}]\n"
    )
    found = load_merged([tmp_path / "none", one, two])
    assert (found.server, found.token_file) == ("https://b", str(tmp_path / "two/token"))
