"""Large writes of limited users are handled in a process of their own, with the same answers."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.machinery.users import AUTHENTICATED, User
from tests.unit.api.api_client import ADMIN, APPLY, JSON_PATCH, MERGE, PODS, STRATEGIC, ApiClient, api

CONFIG_MAPS, QUOTAS = (f"/api/v1/namespaces/default/{plural}" for plural in ("configmaps", "resourcequotas"))
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
NED = User("ned", frozenset({AUTHENTICATED}))
DATA = {f"k{number}": "v" for number in range(4_000)}
CONTAINERS = [{"name": f"c{number}", "image": "i"} for number in range(1_000)]
RANDOM = re.compile(rb'"uid":"[0-9a-f-]{36}"|kube-api-access-[a-z0-9]{5}|"resourceVersion":"[0-9]+"')


async def furnish(ask: ApiClient) -> None:
    """Ned may do everything, and is limited, because he is not in `system:masters`."""
    ask.user = ADMIN
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ned"}
    await ask.ok("POST", BINDINGS, {"metadata": {"name": "ned"}, "roleRef": role, "subjects": [subject]})


def config_map(name: str, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": DATA, **rest}


def wide(name: str, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": CONTAINERS, **rest}}


REQUESTS: list[tuple[Any, ...]] = [
    ("POST", f"{CONFIG_MAPS}?dryRun=All", config_map("a")),
    ("POST", CONFIG_MAPS, config_map("a")),
    ("POST", CONFIG_MAPS, config_map("a")),  # 409
    ("POST", CONFIG_MAPS, config_map("b", unknown=1)),  # a warning
    ("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", config_map("c", unknown=1)),  # 400
    ("POST", CONFIG_MAPS, config_map("A")),  # 422
    ("POST", "/api/v1/namespaces/none/configmaps", config_map("a")),  # 404
    ("POST", CONFIG_MAPS, json.dumps(config_map("a")).encode()[:-1]),  # not JSON
    ("POST", CONFIG_MAPS, b'{"spec":[' + b"[]," * 300_000 + b"[]]}"),  # 413
    ("PUT", f"{CONFIG_MAPS}/a", config_map("a", data={**DATA, "k1": "w"})),
    ("PUT", f"{CONFIG_MAPS}/a", config_map("a", data={**DATA, "k1": "w"})),  # changes nothing
    ("PATCH", f"{CONFIG_MAPS}/a", {"data": {"k2": None}}, MERGE),
    ("PATCH", f"{CONFIG_MAPS}/a?dryRun=All", [{"op": "copy", "from": "/data", "path": "/more"}], JSON_PATCH),
    ("PATCH", f"{CONFIG_MAPS}/d?fieldManager=m", config_map("d"), APPLY),
    ("PATCH", f"{CONFIG_MAPS}/d?fieldManager=n", config_map("d", data={**DATA, "k1": "w"}), APPLY),  # 409
    ("PATCH", f"{CONFIG_MAPS}/d?fieldManager=n&force=true", config_map("d", data={**DATA, "k1": "w"}), APPLY),
    ("DELETE", f"{CONFIG_MAPS}/d?dryRun=All"),
    ("DELETE", f"{CONFIG_MAPS}/d"),
    ("DELETE", f"{CONFIG_MAPS}/d"),  # 404
    ("POST", PODS, wide("p")),
    ("POST", PODS, wide("q", priorityClassName="none")),  # 403
    ("POST", PODS, wide("q")),  # 403 by the quota
    ("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC),
    ("PATCH", f"{PODS}/p", {"spec": {"nodeName": "n"}}, STRATEGIC),  # 422
    ("DELETE", f"{PODS}/p"),
    ("POST", PODS, wide("q")),
]


async def answers(tmp_path: Path, user: User) -> tuple[list[tuple[int, bytes, list[str]]], int]:
    async with api(tmp_path) as ask:
        await furnish(ask)
        await ask.ok("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
        await ask.ok("PATCH", f"{QUOTAS}/q/status", {"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}, MERGE)
        ask.user = user
        said = [await ask(*request) for request in REQUESTS]
        return [(each.code, RANDOM.sub(b"", each.body), each.warnings) for each in said], ask.app.write_process.started


async def test_answers_are_those_of_the_server_itself(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here, none = await answers(tmp_path / "here", User("ned", ADMIN.groups))
    there, one = await answers(tmp_path / "there", NED)
    assert (none, one) == (0, 1)
    for request, expected, found in zip(REQUESTS, here, there, strict=True):
        assert found == expected, request[:2]
    codes = [code for code, _, _ in there]
    assert codes[:13] == [201, 201, 409, 201, 400, 422, 404, 400, 413, 200, 200, 200, 200]
    assert codes[13:] == [201, 409, 200, 200, 200, 404, 201, 403, 403, 200, 422, 200, 403]
