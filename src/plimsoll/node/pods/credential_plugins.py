"""Credential provider plugins: programs that a node runs to get credentials for a registry
(https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/).

A file names the plugins and the images each is for. A plugin gets a CredentialProviderRequest on its standard input and
prints a CredentialProviderResponse, which is cached as it says: for one image, one registry or all. A plugin that fails
gives no credentials, and the pull is tried without them. Plugins that need a token of the pod's service account
(`tokenAttributes`) are refused.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from plimsoll.aio import run_command
from plimsoll.codec.yaml.reader import YamlError, read_body
from plimsoll.errors import InvalidConfigError
from plimsoll.rules.gotext import duration_seconds
from plimsoll.rules.lifecycle.registry_auth import Keyring, RegistryAuth, matches, registry_of

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
VERSIONS = ("credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1")


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class CredentialProvider(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    match_images: tuple[str, ...]
    api_version: str
    default_cache_duration: str = "0s"
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()
    token_attributes: dict[str, object] | None = None


class _ProviderConfig(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    providers: tuple[CredentialProvider, ...] = ()


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    cache_key_type: str = ""
    cache_duration: str | None = None
    auth: dict[str, RegistryAuth] | None = None


def read_providers(path: Path) -> tuple[CredentialProvider, ...]:
    """Raises InvalidConfigError with the field that is wrong."""
    document = read_body(path.read_bytes())
    if document is None or isinstance(document, YamlError):
        raise _invalid(path, "", str(document) if document is not None else "the file is empty")
    try:
        config = msgspec.convert(document.value, _ProviderConfig)
    except msgspec.ValidationError as error:
        raise _invalid(path, "", str(error)) from None
    if config.kind != "CredentialProviderConfig":
        raise _invalid(path, "kind", f"must be CredentialProviderConfig, not {config.kind!r}")
    for index, provider in enumerate(config.providers):
        at = f"providers[{index}]"
        if not provider.name or "/" in provider.name or provider.name in (".", ".."):
            raise _invalid(path, f"{at}.name", "must be the name of a file in the directory of the plugins")
        if not provider.match_images:
            raise _invalid(path, f"{at}.matchImages", "must have an entry")
        if provider.api_version not in VERSIONS:
            raise _invalid(path, f"{at}.apiVersion", f"must be one of {', '.join(VERSIONS)}")
        if provider.token_attributes is not None:
            raise _invalid(path, f"{at}.tokenAttributes", "not supported by this node: no token is given to a plugin")
        duration_seconds(provider.default_cache_duration, f"{at}.defaultCacheDuration")
    return config.providers


def _invalid(path: Path, field: str, reason: str) -> InvalidConfigError:
    return InvalidConfigError(f"{path}: {field}".rstrip(": "), reason)


class CredentialPlugins:
    def __init__(self, providers: tuple[CredentialProvider, ...], directory: Path, clock: Callable[[], float]) -> None:
        self._providers, self._directory, self._clock = providers, directory, clock
        self._cached: dict[tuple[str, str], tuple[float, Keyring]] = {}  # plugin and what it is for

    async def keyring(self, image: str) -> Keyring:
        found: Keyring = {}
        for provider in self._providers:
            if any(matches(pattern, image) for pattern in provider.match_images):
                for key, auths in (await self._of(provider, image)).items():
                    found.setdefault(key, []).extend(auths)
        return found

    async def _of(self, provider: CredentialProvider, image: str) -> Keyring:
        now_s = self._clock()
        for scope in (image, registry_of(image), ""):
            expires_s, known = self._cached.get((provider.name, scope), (0.0, {}))
            if now_s < expires_s:
                return known
        try:
            response = await self._asked(provider, image)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("credential provider %s: %s", provider.name, str(error) or type(error).__name__)
            return {}
        scopes = {"Image": image, "Registry": registry_of(image), "Global": ""}
        if response.cache_key_type not in scopes:
            log.warning("credential provider %s: invalid cacheKeyType %r", provider.name, response.cache_key_type)
            return {}
        keyring = {key: [auth] for key, auth in (response.auth or {}).items()}
        lasts = provider.default_cache_duration if response.cache_duration is None else response.cache_duration
        if (lasts_s := duration_seconds(lasts)) > 0:
            self._cached[provider.name, scopes[response.cache_key_type]] = (now_s + lasts_s, keyring)
        return keyring

    async def _asked(self, provider: CredentialProvider, image: str) -> _Response:
        request = {"apiVersion": provider.api_version, "kind": "CredentialProviderRequest", "image": image}
        code, output, errors = await run_command(
            str(self._directory / provider.name),
            *provider.args,
            timeout_s=TIMEOUT_S,
            environment={**os.environ, **{each.name: each.value for each in provider.env}},
            given=msgspec.json.encode(request),
        )
        if code:
            raise ValueError(f"exit code {code}: {errors.decode('utf-8', 'replace').strip()[-300:]}")
        response = msgspec.json.decode(output, type=_Response)
        if response.kind != "CredentialProviderResponse":
            raise ValueError(f"it returned {response.kind!r}, not a CredentialProviderResponse")
        return response
