"""An API server on a file system that becomes full; run in a mount namespace of its own (`unshare --mount`).

python -m tests.e2e.full_disk DIRECTORY     mounts a small tmpfs there; prints what was seen, as JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from plimsoll.linux.libc import call
from tests.e2e.api_process import ApiProcess
from tests.e2e.raw_http import admin_tls

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
WAIT_S = 30.0


def config_map(name: str, size: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"x": "y" * size}}


def fill(path: Path) -> None:
    """Take all the space there is."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


async def until(condition: Any) -> bool:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if await condition():
            return True
        await asyncio.sleep(0.1)
    return False


async def seen_in(directory: Path, logs: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    filler = directory / "filler"
    async with serving(directory, logs / "first.log") as client:
        for number in range(4):
            assert (await client.post(MAPS, json=config_map(f"m{number}", 1_000))).status_code == 201
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        assert (await client.post(PODS, json=pod)).status_code == 201
        fill(filler)
        codes = [(await client.post(MAPS, json=config_map(f"big{n}", 500_000))).status_code for n in range(30)]
        seen["creates"] = [codes[0] in (201, 503), codes[-1]]
        ready = await client.get("/readyz?verbose")
        seen["readyz"] = [ready.status_code, ready.text]
        seen["full"] = await reads_and_deletes(client, "m0", "p")
        filler.unlink()

        async def is_ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        seen["ready when there is room"] = await until(is_ready)
        seen["create when there is room"] = (await client.post(MAPS, json=config_map("new", 1_000))).status_code
    fill(filler)
    async with serving(directory, logs / "second.log") as client:
        seen["started on a full disk"] = await reads_and_deletes(client, "m1", None)
        seen["its readyz"] = (await client.get("/readyz")).status_code
    fill(directory / "more")  # also what the reserve was
    async with serving(directory, logs / "third.log") as client:
        seen["started without any room"] = await reads_and_deletes(client, "m2", None)
        seen["and its readyz"] = (await client.get("/readyz")).status_code
    filler.unlink()
    async with serving(directory, logs / "fourth.log") as client:
        seen["started with room"] = (await client.post(MAPS, json=config_map("newer", 1_000))).status_code
    return seen


@contextlib.asynccontextmanager
async def serving(directory: Path, log: Path) -> AsyncIterator[httpx.AsyncClient]:
    server = ApiProcess(directory / "state", log, "--no-scheduler").ready()
    try:
        tls = admin_tls(server.kubeconfig)
        async with httpx.AsyncClient(base_url=server.url, verify=tls, timeout=60) as client:
            yield client
    finally:
        assert server.stop() == 0


async def reads_and_deletes(client: httpx.AsyncClient, name: str, pod: str | None) -> list[int]:
    codes = [(await client.get(f"{MAPS}/{name}")).status_code, (await client.delete(f"{MAPS}/{name}")).status_code]
    codes.append((await client.get(f"{MAPS}/{name}")).status_code)
    return [*codes, (await client.delete(f"{PODS}/{pod}")).status_code] if pod else codes


def main(directory: str) -> None:
    place, logs = Path(directory) / "small", Path(directory)
    place.mkdir()
    call("mount", b"none", os.fsencode(place), b"tmpfs", 0, b"size=24m,mode=0700")
    print(json.dumps(asyncio.run(seen_in(place, logs))))


if __name__ == "__main__":
    main(*sys.argv[1:])
