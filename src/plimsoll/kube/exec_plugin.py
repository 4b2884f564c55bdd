"""A kubeconfig's exec plugin: a command that prints an ExecCredential, as client-go runs it. No shell is used.

The credentials are used until they expire, or until the server refuses them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import msgspec

from plimsoll.aio import run_command
from plimsoll.kube.kubeconfig import ExecPlugin
from plimsoll.kube.request import UnreachableError
from plimsoll.rules.timestamps import epoch_seconds

TIMEOUT_S = 60.0
INFO = "KUBERNETES_EXEC_INFO"
_NOT_INSTALLED = (
    "the kubeconfig needs this credential plugin, which is not installed or not in $PATH; the documentation of the "
    "cluster says how to install it"
)


class CredentialsError(UnreachableError):
    """The plugin gave no credentials: daemons try again later."""


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class Credentials(msgspec.Struct, frozen=True):
    token: str = ""
    certificate: bytes | None = None
    key: bytes | None = None
    expires_s: float | None = None


class PluginCredentials:
    """The credentials of one plugin; it runs again when they have expired or `forget` was called."""

    def __init__(self, plugin: ExecPlugin, clock: Callable[[], float] = time.time) -> None:
        self._plugin, self._clock = plugin, clock
        self._current: Credentials | None = None

    async def current(self) -> Credentials:
        known = self._current
        if known is None or (known.expires_s is not None and self._clock() >= known.expires_s):
            known = self._current = await plugin_credentials(self._plugin)
        return known

    def forget(self) -> None:
        self._current = None


async def plugin_credentials(plugin: ExecPlugin) -> Credentials:
    def failed(reason: str) -> CredentialsError:
        return CredentialsError(f"exec plugin {plugin.command}: {reason}")

    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not is_terminal:
        raise failed("it needs interactive mode, and the standard input is not a terminal")
    is_interactive = is_terminal and plugin.interactive != "Never"
    spec = {"interactive": is_interactive, **({"cluster": plugin.cluster} if plugin.cluster is not None else {})}
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **dict(plugin.env), INFO: msgspec.json.encode(request).decode()}
    try:
        code, output, errors = await run_command(
            plugin.command,
            *plugin.args,
            timeout_s=TIMEOUT_S,
            environment=environment,
            is_interactive=is_interactive,
        )
    except TimeoutError:
        raise failed(f"no answer within {TIMEOUT_S:g} s") from None
    except FileNotFoundError:
        hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
        raise failed(f"executable not found: {_NOT_INSTALLED}{hint}") from None
    except OSError as error:
        raise failed(error.strerror or str(error)) from None
    if code:
        raise failed(f"exit code {code}: {errors.decode('utf-8', 'replace').strip()[-300:]}")
    try:
        answer = msgspec.json.decode(output, type=_Credential)
    except (msgspec.MsgspecError, ValueError) as error:
        raise failed(f"invalid ExecCredential: {error}") from None
    if (answer.api_version, answer.kind) != (plugin.api_version, "ExecCredential"):
        raise failed(f"it is configured to use {plugin.api_version}, and returned {answer.api_version} {answer.kind}")
    status = answer.status
    if status is None:
        raise failed("it returned no status")
    if not (status.token or status.client_certificate_data or status.client_key_data):
        raise failed("it returned neither a token nor a certificate with its key")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise failed("it returned only a certificate or a key, not both")
    return Credentials(
        status.token,
        status.client_certificate_data.encode() or None,
        status.client_key_data.encode() or None,
        epoch_seconds(status.expiration_timestamp) if status.expiration_timestamp else None,
    )
