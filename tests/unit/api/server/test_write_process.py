"""Large writes of limited users are handled in a process of their own, with the same answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from plimsoll.api.machinery.users import AUTHENTICATED, User
from tests.unit.api.api_client import ADMIN, APPLY, JSON_PATCH, MERGE, PODS, STRATEGIC, ApiClient, api
from tests.unit.api.test_large_objects import longest_pause_s

CONFIG_MAPS, QUOTAS = (f"/api/v1/namespaces/default/{plural}" for plural in ("configmaps", "resourcequotas"))
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
NED = User("ned", frozenset({AUTHENTICATED}))
DATA = {f"k{number}": "v" for number in range(4_000)}


def container(number: int) -> dict[str, str]:
    return {"name": f"c{number}", "image": "i"}


CONTAINERS = [*map(container, range(1_000))]
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
    spec = {"containers": CONTAINERS, **rest}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


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
    ("POST", f"{PODS}?dryRun=All", json.dumps(wide("y", containers=CONTAINERS[:200])).encode(), "application/yaml"),
    ("POST", PODS, wide("p")),
    ("POST", PODS, wide("q", priorityClassName="none")),  # 403
    ("POST", PODS, wide("q")),  # 403 by the quota
    ("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC),
    ("PATCH", f"{PODS}/p", {"spec": {"nodeName": "n"}}, STRATEGIC),  # 422
    ("DELETE", f"{PODS}/p"),
    ("POST", PODS, wide("q")),
]


async def test_the_event_loop_serves_others_meanwhile(tmp_path: Path) -> None:
    """In CPU time of the loop's thread; handled by the server itself it was 20 to 60 ms."""
    too_wide, document = (
        json.dumps({"metadata": {"name": "p"}, "spec": {"containers": [*map(container, range(count))]}}).encode()
        for count in (15_000, 4_000)
    )
    patch = b'{"metadata":{"labels":{"a":"b"}}}'
    async with api(tmp_path) as ask:
        await furnish(ask)
        ask.user = NED
        assert (await ask("POST", CONFIG_MAPS, config_map("first"))).code == 201  # the process has started
        for request, code in (
            (("POST", PODS, too_wide), 413),
            (("POST", f"{PODS}?dryRun=All", too_wide), 413),
            (("POST", PODS, document), 201),
            (("PATCH", f"{PODS}/p", patch, MERGE), 200),
            (("DELETE", f"{PODS}/p"), 200),
        ):
            found, longest_s = await longest_pause_s(ask, *request)
            assert (found, longest_s < 0.015) == (code, True), (request[:2], longest_s)


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
    assert codes[13:] == [201, 409, 200, 200, 200, 404, 201, 201, 403, 403, 200, 422, 200, 403]


async def test_a_change_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """The server compares versions; each patch is made on what the others have left."""
    async with api(tmp_path) as ask:
        await furnish(ask)
        ask.user = NED
        await ask.ok("POST", CONFIG_MAPS, config_map("a"))
        process = ask.app.write_process
        store, decided = ask.app.cluster.store, asyncio.Event()
        change_many, commits = store.change_many, 0

        async def slow(keys: Any, decide: Any) -> Any:
            nonlocal commits
            commits += 1
            if commits == 2:  # the first has read what the change is decided on
                decided.set()
                await change_many(keys, lambda records, versions: [_relabelled(records[0], versions[0])])
            return await change_many(keys, decide)

        store.change_many = slow  # type: ignore[method-assign]
        said = await ask("PATCH", f"{CONFIG_MAPS}/a", {"data": {"k1": "w"}}, MERGE)
        assert decided.is_set() and process.started == 1
        found = await ask.ok("GET", f"{CONFIG_MAPS}/a")
        assert said.code == 200 and found["data"]["k1"] == "w" and found["metadata"]["labels"] == {"by": "another"}


def _relabelled(record: Any, version: int) -> bytes:
    document = json.loads(record.body)
    document["metadata"] |= {"labels": {"by": "another"}, "resourceVersion": str(version)}
    return json.dumps(document, separators=(",", ":")).encode()


async def test_a_process_that_ends_fails_one_request_and_is_replaced(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await furnish(ask)
        ask.user = NED
        await ask.ok("POST", CONFIG_MAPS, config_map("a"))
        process = ask.app.write_process
        os.kill(process.pid, signal.SIGKILL)
        assert (await ask("POST", CONFIG_MAPS, config_map("b"))).code == 500
        await ask.ok("POST", CONFIG_MAPS, config_map("c"))
        assert process.started == 2
