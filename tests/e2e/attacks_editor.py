"""The attacks of a user who may edit one namespace; `attacks_api` has those of one who may only read, and runs them.

What is written is written as a dry run where it can be: the store has a limit of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

from tests.e2e.attacks_api import JSON, PODS, REFUSED, TABLE, Attack, Target, crowd_of, flood
from tests.e2e.raw_http import Connection, request_bytes

MAPS = "/api/v1/namespaces/default/configmaps"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
WHO = "editor"


def _patch(path: str, kind: str, change: Any) -> bytes:
    headers = (("Content-Type", f"application/{kind}"),)
    return request_bytes("PATCH", path, headers, json.dumps(change).encode())


def _post(path: str, document: Any) -> bytes:
    return request_bytes("POST", path, JSON, json.dumps(document).encode())


def _labels(path: str) -> list[bytes]:
    """Two requests that change an object and change it back."""
    return [_patch(path, "merge-patch+json", {"metadata": {"labels": {"n": str(n)}}}) for n in range(2)]


def first(requests: Sequence[bytes], attack: Attack) -> Attack:
    """These create objects, which may be there already, before the attack."""

    async def run(target: Target) -> None:
        connection = await target.connected(WHO)
        for data in requests:
            code, _ = await connection.discarded(data)
            assert code in (201, 409), code
        await connection.close()
        await attack(target)

    return run


def changing(requests: Sequence[bytes], watch: bytes = b"", watches: int = 0) -> Attack:
    """Changes without end of what many watches, which are read, show."""

    async def run(target: Target) -> None:
        async with crowd_of(target, 1 + watches, WHO) as crowd, asyncio.TaskGroup() as group:

            async def read(connection: Connection) -> None:
                with contextlib.suppress(*REFUSED):
                    connection.writer.write(watch)
                    while await connection.reader.read(1 << 18):
                        pass

            for connection in crowd[1:]:
                group.create_task(read(connection))
            while True:
                for data in requests:
                    await crowd[0].discarded(data)

    return run


def unfinished(path: str, size: int, count: int) -> Attack:
    """Many requests of which the last bytes are never sent, each on a connection that has a user."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"

    async def run(target: Target) -> None:
        async def one() -> None:
            with contextlib.suppress(*REFUSED):
                connection = await target.connected(WHO)
                await connection.discarded(request_bytes("GET", f"{PODS}/p1"))
                connection.writer.write(head.encode())
                for _ in range(size // (1 << 16)):
                    connection.writer.write(b" " * (1 << 16))
                    await connection.writer.drain()
                await connection.reader.read()

        await asyncio.gather(*(one() for _ in range(count)))

    return run


def attacks() -> dict[str, Attack]:
    """By name."""
    container = {"name": "c", "image": "i"}
    many = [{"name": f"c{n}", "image": "i"} for n in range(1_600)]
    env = [{"name": f"v{n}", "value": "x"} for n in range(1_700)]
    spread = [{"topologyKey": f"k{n}", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"} for n in range(9_000)]
    with_env = {"spec": {"containers": [{"name": "main", "env": env}]}}
    data = {f"k{n}": "v" for n in range(2_500)}
    copies = [{"op": "copy", "from": "/data", "path": f"/x{n}"} for n in range(75)]
    budget = {"minAvailable": 1, "selector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}
    wide = {f"k{n}": "" for n in range(60_000)}
    chunked = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    selector = ",".join(["a!=x"] * 12_000)
    return {
        "wide pods": flood(
            _post(f"{PODS}?dryRun=All", {"metadata": {"name": "w"}, "spec": {"containers": many}}), 32, WHO
        ),
        "spread pods": flood(
            _post(
                f"{PODS}?dryRun=All",
                {"metadata": {"name": "w"}, "spec": {"containers": [container], "topologySpreadConstraints": spread}},
            ),
            8,
            WHO,
        ),
        "strategic patches": flood(_patch(f"{PODS}/p1?dryRun=All", "strategic-merge-patch+json", with_env), 16, WHO),
        "applies": flood(
            _patch(
                f"{PODS}/p1?dryRun=All&fieldManager=x&force=true",
                "apply-patch+yaml",
                {"apiVersion": "v1", "kind": "Pod", **with_env},
            ),
            16,
            WHO,
        ),
        "copies": first(
            [_post(MAPS, {"metadata": {"name": "some"}, "data": data})],
            flood(_patch(f"{MAPS}/some?dryRun=All", "json-patch+json", copies), 16, WHO),
        ),
        "large objects": first(
            [_post(MAPS, {"metadata": {"name": "wide"}, "data": wide})],
            flood(_patch(f"{MAPS}/wide?dryRun=All", "merge-patch+json", {"data": {"k1": "x"}}), 200, WHO),
        ),
        "large bodies": flood(
            _post(f"{MAPS}?dryRun=All", {"metadata": {"name": "d"}, "data": {"k": "x" * 1_000_000}}), 100, WHO
        ),
        "unfinished bodies": unfinished(MAPS, 3_000_000, 300),
        "chunks of a byte": flood(chunked + b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n", 50, WHO),
        "watched selectors": changing(
            _labels(f"{PODS}/p1"),
            request_bytes("GET", f"{PODS}?watch=1&resourceVersion=0&labelSelector={selector}"),
            100,
        ),
        "watched tables": first(
            [_post(MAPS, {"metadata": {"name": "big"}, "data": {"k": "x" * 900_000}})],
            changing(_labels(f"{MAPS}/big"), request_bytes("GET", f"{MAPS}?watch=1&resourceVersion=0", TABLE), 250),
        ),
        # These leave objects behind that make every change of a pod cost more.
        "budgets": first(
            [_post(BUDGETS, {"metadata": {"name": f"b{n}"}, "spec": budget}) for n in range(20)],
            changing(_labels(f"{PODS}/p1")),
        ),
        "services": first(
            [
                _post(
                    "/api/v1/namespaces/default/services",
                    {"metadata": {"name": f"s{n}"}, "spec": {"selector": {"n": "1"}, "ports": [{"port": 80}]}},
                )
                for n in range(50)
            ],
            changing(_labels(f"{PODS}/p1")),
        ),
    }
