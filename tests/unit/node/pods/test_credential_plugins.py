"""Credential provider plugins, which are real programs here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import InvalidConfigError
from plimsoll.node.pods.credential_plugins import CredentialPlugins, CredentialProvider, read_providers
from plimsoll.rules.lifecycle.registry_auth import RegistryAuth, credentials

V1 = "credentialprovider.kubelet.k8s.io/v1"
PROVIDER = {"name": "plug", "matchImages": ["*.example.com"], "apiVersion": V1, "defaultCacheDuration": "10m"}
IMAGE, OTHER = "r.example.com/a:1", "r.example.com/b:1"


def plugin(directory: Path, answer: str, name: str = "plug") -> None:
    """It notes every request, and prints the answer with its first argument and a variable as user and password."""
    file = directory / name
    file.write_text(f"#!/bin/sh\ncat >> {directory}/asked; echo >> {directory}/asked\n{answer}\n")
    file.chmod(0o755)


def response(kind: str = "Image", lasts: str = "", document: str = "CredentialProviderResponse") -> str:
    duration = f', "cacheDuration": "{lasts}"' if lasts else ""
    auth = '{"r.example.com": {"username": "\'$1\'", "password": "\'$WORD\'"}}'
    return f'echo \'{{"kind": "{document}", "cacheKeyType": "{kind}"{duration}, "auth": {auth}}}\''


def asked(directory: Path) -> list[Any]:
    file = directory / "asked"
    return [json.loads(line) for line in file.read_text().splitlines() if line] if file.exists() else []


def plugins(directory: Path, now: list[float]) -> CredentialPlugins:
    file = directory / "config.json"
    extra = {"args": ["user"], "env": [{"name": "WORD", "value": "secret"}]}
    file.write_text(json.dumps({"kind": "CredentialProviderConfig", "providers": [{**PROVIDER, **extra}]}))
    return CredentialPlugins(read_providers(file), directory, lambda: now[0])


@pytest.mark.parametrize(
    ("kind", "lasts", "requests"),
    [
        pytest.param("Image", "", [IMAGE, OTHER, IMAGE], id="each image, ten minutes"),
        pytest.param("Registry", "", [IMAGE, IMAGE], id="the registry"),
        pytest.param("Global", "20m", [IMAGE], id="all, longer"),
        pytest.param("Global", "0s", [IMAGE, IMAGE, OTHER, IMAGE], id="not cached"),
    ],
)
async def test_answers_are_cached_as_they_say(tmp_path: Path, kind: str, lasts: str, requests: list[str]) -> None:
    plugin(tmp_path, response(kind, lasts))
    now = [1000.0]
    known = plugins(tmp_path, now)
    for image in (IMAGE, IMAGE, OTHER):
        assert credentials(image, await known.keyring(image)) == [RegistryAuth("user", "secret")]
    now[0] += 601
    await known.keyring(IMAGE)
    assert [each["image"] for each in asked(tmp_path)] == requests
    assert asked(tmp_path)[0] == {"apiVersion": V1, "kind": "CredentialProviderRequest", "image": IMAGE}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("exit 3", id="it fails"),
        pytest.param("echo nothing", id="no JSON"),
        pytest.param(response("Often"), id="unknown scope"),
        pytest.param(response(document="Other"), id="another kind"),
    ],
)
async def test_a_plugin_that_fails_gives_no_credentials(tmp_path: Path, answer: str) -> None:
    plugin(tmp_path, answer)
    assert await plugins(tmp_path, [0.0]).keyring(IMAGE) == {}


async def test_a_plugin_is_asked_only_about_its_images(tmp_path: Path) -> None:
    plugin(tmp_path, response())
    assert await plugins(tmp_path, [0.0]).keyring("docker.io/library/nginx") == {}
    assert asked(tmp_path) == []
    missing = CredentialPlugins((CredentialProvider("none", ("r.example.com",), V1),), tmp_path, lambda: 0.0)
    assert await missing.keyring(IMAGE) == {}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "../sh"}, "providers[0].name"),
        ({"matchImages": []}, "providers[0].matchImages"),
        ({"apiVersion": "v9"}, "providers[0].apiVersion"),
        ({"tokenAttributes": {}}, "providers[0].tokenAttributes"),
    ],
)
def test_a_wrong_configuration_names_the_field(tmp_path: Path, change: dict[str, object], field: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"kind": "CredentialProviderConfig", "providers": [{**PROVIDER, **change}]}))
    with pytest.raises(InvalidConfigError) as error:
        read_providers(file)
    assert field in str(error.value)
