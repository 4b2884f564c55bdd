"""A kubeconfig's exec plugin: a command that prints an ExecCredential. No shell is used; the output is checked."""

from __future__ import annotations

import asyncio
import os

import msgspec

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
    asked = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(asked).decode()}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise KubeconfigError(f"exec plugin {plugin.command}: {error.strerror}") from None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, complaint = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise KubeconfigError(f"exec plugin {plugin.command}: no answer within {TIMEOUT_S:g} s") from None
    if process.returncode:
        text = complaint.decode("utf-8", "replace").strip()[-300:]
        raise KubeconfigError(f"exec plugin {plugin.command}: exit code {process.returncode}: {text}")
    try:
        status = msgspec.json.decode(output, type=_Credential).status
    except msgspec.DecodeError as error:
        raise KubeconfigError(f"exec plugin {plugin.command}: invalid ExecCredential: {error}") from None
    return Credentials(
        status.token,
        status.client_certificate_data.encode() or None,
        status.client_key_data.encode() or None,
    )
