"""Secrets: types, stringData, immutability, quota, and encryption at rest."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.auth.encryption import SecretNotReadableError, SecretSealing
from tests.unit.api.api_client import APPLY, MERGE, TABLE, api

SECRETS = "/api/v1/namespaces/default/secrets"


def secret(name: str = "s", **fields: Any) -> dict[str, Any]:
    return {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}, **fields}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_string_data_is_written_to_data_and_never_read(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", SECRETS, secret(data={"a": encoded("1")}, stringData={"a": "2", "b": "ü"}))
        assert (made["type"], made["data"]) == ("Opaque", {"a": encoded("2"), "b": encoded("ü")})
        assert "stringData" not in made
        changed = await ask.ok("PATCH", f"{SECRETS}/s", {"stringData": {"c": "3"}}, MERGE)
        assert changed["data"] == {"a": encoded("2"), "b": encoded("ü"), "c": encoded("3")}
        applied = secret("t", stringData={"k": "v"})
        made = await ask.ok("PATCH", f"{SECRETS}/t?fieldManager=me", applied, APPLY)
        assert made["data"] == {"k": encoded("v")} and "stringData" not in made


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}, "data[tls.key]: Required value"),
        (
            {"type": "kubernetes.io/basic-auth"},
            "[data[username]: Required value, data[password]: Required value]",
        ),
        ({"type": "kubernetes.io/ssh-auth"}, "data[ssh-privatekey]: Required value"),
        ({"type": "kubernetes.io/dockerconfigjson"}, "data[.dockerconfigjson]: Required value"),
        (
            {"type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": "[]"}},
            'data[.dockercfg]: Invalid value: "<secret contents redacted>": Expected `object`, got `array`',
        ),
        (
            {"type": "kubernetes.io/service-account-token"},
            "metadata.annotations[kubernetes.io/service-account.name]: Required value",
        ),
        ({"stringData": {"a": "x" * (1024 * 1024 + 1)}}, "data: Too long: may not be more than 1048576 bytes"),
    ],
)
async def test_a_type_requires_its_members(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    async with api(tmp_path) as ask:
        refused = await ask("POST", SECRETS, secret(**fields))
        assert refused.code == 422
        assert refused.message == f'Secret "s" is invalid: {message}'


async def test_an_invalid_key_is_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        refused = await ask("POST", SECRETS, secret(stringData={"a/b": "x"}))
        assert refused.code == 422 and 'Secret "s" is invalid: data[a/b]: Invalid value: "a/b"' in refused.message


async def test_type_and_immutable_data_do_not_change(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", SECRETS, secret(stringData={"a": "1"}, immutable=True))
        refused = await ask("PATCH", f"{SECRETS}/s", {"stringData": {"a": "2"}}, MERGE)
        assert refused.message.endswith("data: Forbidden: field is immutable when `immutable` is set")
        refused = await ask("PATCH", f"{SECRETS}/s", {"immutable": False}, MERGE)
        assert refused.message.endswith("immutable: Forbidden: field is immutable when `immutable` is set")
        refused = await ask("PATCH", f"{SECRETS}/s", {"type": "other"}, MERGE)
        assert refused.message.endswith('type: Invalid value: "other": field is immutable')
        await ask.ok("PATCH", f"{SECRETS}/s", {"metadata": {"labels": {"a": "b"}}}, MERGE)


async def test_secrets_are_counted_printed_and_selected_by_type(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "1"}}}
        await ask.ok("POST", "/api/v1/namespaces/default/resourcequotas", quota)
        await ask.ok(
            "PATCH",
            "/api/v1/namespaces/default/resourcequotas/q/status",
            {"status": {"hard": {"secrets": "1"}, "used": {"secrets": "0"}}},
            MERGE,
        )
        await ask.ok("POST", SECRETS, secret(stringData={"a": "1", "b": "2"}))
        refused = await ask("POST", SECRETS, secret("t"))
        assert refused.code == 403 and "exceeded quota: q, requested: secrets=1" in refused.message
        table = await ask.ok("GET", SECRETS, accept=TABLE)
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
        assert table["rows"][0]["cells"][:3] == ["s", "Opaque", 2]
        found = await ask.ok("GET", f"{SECRETS}?fieldSelector=type=kubernetes.io/tls")
        assert found["items"] == []
        found = await ask.ok("GET", f"{SECRETS}?fieldSelector=type=Opaque")
        assert [each["metadata"]["name"] for each in found["items"]] == ["s"]


def files_with(directory: Path, text: bytes) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file() and text in path.read_bytes()]


@pytest.mark.skipif(os.environ.get("PLIMSOLL_TEST_STORE") == "etcd", reason="etcd has the files")
async def test_secrets_are_encrypted_on_the_disk(tmp_path: Path) -> None:
    plain, hidden = "a-plain-text-of-a-config-map", "the-text-of-a-secret"
    sealing = SecretSealing(tmp_path)
    async with api(tmp_path, sealing=sealing) as ask:
        config_map = {"metadata": {"name": "c"}, "data": {"k": plain}}
        await ask.ok("POST", "/api/v1/namespaces/default/configmaps", config_map)
        await ask.ok("POST", SECRETS, secret(stringData={"k": hidden}))
        await ask.ok("PATCH", f"{SECRETS}/s", {"metadata": {"labels": {"x": "y"}}}, MERGE)  # history has the old one
        await ask.ok("POST", SECRETS, secret("gone", stringData={"k": hidden}))
        await ask("DELETE", f"{SECRETS}/gone")
        assert files_with(tmp_path, plain.encode())
        assert not files_with(tmp_path, encoded(hidden).encode())
    assert not files_with(tmp_path, encoded(hidden).encode())
    assert (tmp_path / "pki/secrets.key").stat().st_mode & 0o777 == 0o600
    async with api(tmp_path, sealing=SecretSealing(tmp_path)) as ask:
        read = await ask.ok("GET", f"{SECRETS}/s")
        assert (read["data"], read["metadata"]["labels"]) == ({"k": encoded(hidden)}, {"x": "y"})
    (tmp_path / "pki/secrets.key").write_bytes(b"0" * 32)
    with pytest.raises(SecretNotReadableError, match="the object /secrets/default/s cannot be decrypted with"):
        async with api(tmp_path, sealing=SecretSealing(tmp_path)):
            pass


def test_a_sealed_body_belongs_to_its_name(tmp_path: Path) -> None:
    sealing = SecretSealing(tmp_path)
    body = json.dumps({"data": {}}).encode()
    sealed = sealing.sealed("/secrets/a/b", body)
    assert sealing.opened("/secrets/a/b", sealed) == body != sealed
    assert sealing.sealed("/configmaps/a/b", body) == body
    with pytest.raises(SecretNotReadableError):
        sealing.opened("/secrets/a/c", sealed)
