"""A kubeconfig's exec plugin: a command that prints an ExecCredential. No shell is used; the output is checked."""

from __future__ import annotations

import os

import msgspec

from plimsoll.aio import run_command
from plimsoll.kube.kubeconfig import ExecPlugin, KubeconfigError

TIMEOUT_S = 60.0


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Credential(msgspec.Struct):
    status: _Status


class Credentials(msgspec.Struct, frozen=True):
    token: str = ""
    certificate: bytes | None = None
    key: bytes | None = None


async def plugin_credentials(plugin: ExecPlugin) -> Credentials:
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode()}
    try:
        code, output, errors = await run_command(
            plugin.command, *plugin.args, timeout_s=TIMEOUT_S, environment=environment
        )
    except TimeoutError:
        raise KubeconfigError(f"exec plugin {plugin.command}: no answer within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise KubeconfigError(f"exec plugin {plugin.command}: {error.strerror}") from None
    if code:
        text = errors.decode("utf-8", "replace").strip()[-300:]
        raise KubeconfigError(f"exec plugin {plugin.command}: exit code {code}: {text}")
    try:
        status = msgspec.json.decode(output, type=_Credential).status
    except msgspec.DecodeError as error:
        raise KubeconfigError(f"exec plugin {plugin.command}: invalid ExecCredential: {error}") from None
    return Credentials(
        status.token,
        status.client_certificate_data.encode() or None,
        status.client_key_data.encode() or None,
    )
