"""Which credentials of `imagePullSecrets` an image is pulled with."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from plimsoll.rules.lifecycle.registry_auth import RegistryAuth, credentials, keyring
from plimsoll.rules.model.runnable import Secret


def encoded(document: Any) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


def secret(**users: str) -> Secret:
    """Registry → user; the password is the user's name again."""
    auths = {name: {"auth": base64.b64encode(f"{user}:{user}".encode()).decode()} for name, user in users.items()}
    return Secret(data={".dockerconfigjson": encoded({"auths": auths})})


KNOWN = secret(
    **{
        "registry.example.com": "host",
        "registry.example.com/team": "path",
        "*.apps.example.com": "glob",
        "registry.example.com:5000": "port",
        "https://index.docker.io/v1/": "hub",
    }
)


@pytest.mark.parametrize(
    ("image", "users"),
    [
        ("registry.example.com/a:1", ["host"]),
        ("registry.example.com/team/a@sha256:11", ["path", "host"]),
        ("registry.example.com:5000/a", ["port"]),
        ("one.apps.example.com/a", ["glob"]),
        ("two.one.apps.example.com/a", []),
        ("registry.example.org/a", []),
        ("nginx", ["hub"]),
        ("library/nginx:1", ["hub"]),
        ("docker.io/library/nginx", ["hub"]),
        ("localhost:5000/nginx", []),
    ],
)
def test_which_credentials_fit(image: str, users: list[str]) -> None:
    assert credentials(image, keyring([KNOWN])) == [RegistryAuth(user, user) for user in users]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param({".dockercfg": encoded({"r.io": {"username": "u", "password": "p"}})}, True, id="the old form"),
        pytest.param({".dockerconfigjson": encoded({"auths": {"r.io": {"username": "u", "password": "p"}}})}, True, id="names"),
        pytest.param({".dockerconfigjson": "%%%"}, False, id="no base64"),
        pytest.param({".dockerconfigjson": base64.b64encode(b"[").decode()}, False, id="no JSON"),
        pytest.param({".dockerconfigjson": encoded(["auths"])}, False, id="a list"),
        pytest.param({".dockerconfigjson": encoded({"auths": {"r.io": {"auth": "%"}}})}, False, id="a broken entry"),
        pytest.param({".dockerconfigjson": encoded({"auths": {"r.io": "x"}})}, False, id="a text"),
        pytest.param(None, False, id="empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_left_out(data: dict[str, str] | None, found: bool) -> None:
    assert credentials("r.io/a", keyring([Secret(data=data)])) == ([RegistryAuth("u", "p")] if found else [])


def test_two_secrets_are_tried_in_their_order() -> None:
    both = keyring([secret(**{"r.io": "first"}), secret(**{"r.io": "second"})])
    assert [each.username for each in credentials("r.io/a", both)] == ["first", "second"]
