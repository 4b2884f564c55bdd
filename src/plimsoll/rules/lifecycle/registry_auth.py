"""Credentials for registries from the Secrets in `imagePullSecrets`, and which of them an image is pulled with.

A Secret has a Docker configuration: registries, each with a user and a password. A key is a host, possibly with a port
and a path; each label of the host may be a pattern (`*.example.com`). Every key that matches the image is tried, the
more specific ones first (https://kubernetes.io/docs/concepts/containers/images/#config-json). What cannot be read is
left out, as by a kubelet: the pull then says that access was denied.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec

from plimsoll.rules.model.runnable import Secret

DEFAULT_REGISTRY = "index.docker.io"
_CONFIG_JSON, _CONFIG = ".dockerconfigjson", ".dockercfg"


class RegistryAuth(msgspec.Struct, frozen=True):
    username: str
    password: str


Keyring = dict[str, list[RegistryAuth]]  # by host and path


def keyring(secrets: Iterable[Secret]) -> Keyring:
    found: Keyring = {}
    for secret in secrets:
        for location, entry in _registries(secret.data or {}).items():
            auth = _auth(entry) if isinstance(entry, Mapping) else None
            if auth is not None:
                found.setdefault(_key(location), []).append(auth)
    return found


def credentials(image: str, known: Keyring) -> list[RegistryAuth]:
    """In the order in which they are tried; empty: pull without."""
    name = image.partition("@")[0]
    fitting = [auth for key in sorted(known, reverse=True) if matches(key, name) for auth in known[key]]
    return fitting or (known.get(DEFAULT_REGISTRY, []) if _is_default(name) else [])


def _registries(data: Mapping[str, str]) -> Mapping[str, object]:
    for key in (_CONFIG_JSON, _CONFIG):
        if key not in data:
            continue
        try:
            document = json.loads(base64.b64decode(data[key], validate=True))
        except (ValueError, binascii.Error):
            continue
        registries = document.get("auths") if key == _CONFIG_JSON and isinstance(document, dict) else document
        if isinstance(registries, dict):
            return registries
    return {}


def _auth(entry: Mapping[str, object]) -> RegistryAuth | None:
    username, password, combined = (str(entry.get(name) or "") for name in ("username", "password", "auth"))
    if combined:
        try:
            username, _, password = base64.b64decode(combined, validate=True).decode().partition(":")
        except (ValueError, binascii.Error):
            return None
    return RegistryAuth(username, password) if username or password else None


def _key(location: str) -> str:
    """The host, and a path unless it only names the version of the API."""
    parts = urlsplit(location if "://" in location else f"https://{location}")
    path = parts.path[3:] if parts.path.startswith(("/v1/", "/v2/")) else parts.path
    return parts.netloc + (path if path not in ("", "/") else "")


def matches(key: str, image: str) -> bool:
    """Whether a key of a configuration, which may have patterns, is for this image."""
    pattern, target = urlsplit(f"https://{key}"), urlsplit(f"https://{image}")
    patterns, labels = _labels(pattern.netloc), _labels(target.netloc)
    is_same_port = _port(pattern.netloc) == _port(target.netloc)
    fits = len(patterns) == len(labels) and all(map(fnmatchcase, labels, patterns))
    return is_same_port and fits and target.path.startswith(pattern.path)


def registry_of(image: str) -> str:
    return image.partition("/")[0]


def _labels(host: str) -> list[str]:
    return host.partition(":")[0].split(".")


def _port(host: str) -> str:
    return host.partition(":")[2]


def _is_default(image: str) -> bool:
    first, has_path, _ = image.partition("/")
    if not has_path or first in ("docker.io", DEFAULT_REGISTRY):
        return True
    return not any(character in first for character in ".:")
