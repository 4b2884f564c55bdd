"""Large objects: the event loop serves others meanwhile, and writers of one object see each other."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from pathlib import Path
from typing import Any

from tests.unit.api.api_client import APPLY, JSON_PATCH, MERGE, PODS, ApiClient, api, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def longest_pause_s(ask: ApiClient, *request: Any) -> tuple[int, float]:
    """The code of the response, and the longest time that the event loop was busy meanwhile."""
    longest_s, is_over = 0.0, False

    async def observe() -> None:
        nonlocal longest_s
        while not is_over:
            before_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - before_s)

    gc.collect()
    gc.freeze()  # a collection of what hundreds of other tests left in this process took 0.7 s
    try:
        observing = asyncio.create_task(observe())
        await asyncio.sleep(0)
        said = await ask(*request)
        is_over = True
        await observing
    finally:
        gc.unfreeze()
    return said.code, longest_s


async def test_large_documents_leave_the_event_loop_to_others(tmp_path: Path) -> None:
    """In CPU time of the loop's thread, which does not depend on other processes; it was seconds for each."""
    keys = [f"k{number}" for number in range(40_000)]
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": dict.fromkeys(keys, "v")}
    changed = {**document, "data": dict.fromkeys(keys, "w")}
    applied = {**document, "metadata": {"name": "applied"}}
    async with api(tmp_path) as ask:
        for request, code in (
            (("POST", CONFIG_MAPS, document), 201),
            (("PATCH", f"{CONFIG_MAPS}/big", {"data": changed["data"]}, MERGE), 200),
            (("PATCH", f"{CONFIG_MAPS}/big", {"data": {"one": "more"}}, MERGE), 200),
            (("PUT", f"{CONFIG_MAPS}/big", changed), 200),
            (("PATCH", f"{CONFIG_MAPS}/applied?fieldManager=m", applied, APPLY), 201),
            (("PATCH", f"{CONFIG_MAPS}/applied?fieldManager=m", changed | {"metadata": {}}, APPLY), 200),
            (("POST", CONFIG_MAPS, b'{"spec":[' + b"[]," * 300_000 + b"[]]}", "application/json"), 413),
        ):
            found, longest_s = await longest_pause_s(ask, *request)
            assert found == code
            assert longest_s < 0.5, request[:2]


async def test_documents_of_some_kilobytes_leave_the_event_loop_to_others(tmp_path: Path) -> None:
    """In CPU time, as above; without a limit it was 0.1 s for 50 KB of containers and 0.2 s for 4 KB of copies."""
    many = [{"name": f"c{number}", "image": "i"} for number in range(1_600)]
    wide = {"metadata": {"name": "many"}, "spec": {"containers": many}}
    data = {f"k{number}": "v" for number in range(1_500)}
    copies = [{"op": "copy", "from": "/data", "path": f"/x{number}"} for number in range(90)]
    escaped = json.dumps(copies).replace('"copy"', '"\\u0063opy"').encode()
    resized = [{"op": "copy", "from": "/spec", "path": f"/x{number}"} for number in range(5)]
    async with api(tmp_path) as ask:
        await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": "some"}, "data": data})
        for request, code in (
            (("POST", PODS, wide), 201),
            (("PATCH", f"{CONFIG_MAPS}/some", copies, JSON_PATCH), 200),
            (("PATCH", f"{CONFIG_MAPS}/some", escaped, JSON_PATCH), 200),
            (("PATCH", f"{PODS}/many/resize", resized, JSON_PATCH), 200),
        ):
            found, longest_s = await longest_pause_s(ask, *request)
            assert found == code
            assert longest_s < 0.06, request[:2]


async def test_an_eviction_reads_many_budgets_in_pieces(tmp_path: Path) -> None:
    """In CPU time, as above; in one piece it was 0.05 s."""
    path, selector = "/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"matchLabels": {"app": "none"}}
    async with api(tmp_path) as ask:
        for number in range(3_000):
            spec = {"minAvailable": 1, "selector": selector}
            await ask.ok("POST", path, {"metadata": {"name": f"b{number}"}, "spec": spec})
        await ask.ok("POST", PODS, pod("p", {"cpu": "1", "memory": "1Mi"}))
        await ask.ok("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, MERGE)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        code, longest_s = await longest_pause_s(ask, "POST", f"{PODS}/p/eviction?dryRun=All", eviction)
        assert code == 201
        assert longest_s < 0.02


async def test_rules_take_as_long_as_objects_are_large(tmp_path: Path) -> None:
    """0.3 s of CPU each. If each member was compared with each other one it was 7 s and more, and minutes at 3 MB."""
    container = {"name": "c", "image": "i"}
    spread = [
        {"topologyKey": f"k{number}", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"} for number in range(5_000)
    ]
    wide = {"metadata": {"name": "spread"}, "spec": {"containers": [container], "topologySpreadConstraints": spread}}
    codes = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": list(range(1, 20_000))}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"metadata": {"name": "j"}, "spec": {"podFailurePolicy": {"rules": [codes]}, "template": template}}
    async with api(tmp_path) as ask:
        for path, document, code in ((PODS, wide, 201), ("/apis/batch/v1/namespaces/default/jobs", job, 422)):
            before_s = time.process_time()
            assert (await ask("POST", path, document)).code == code
            assert time.process_time() - before_s < 3


async def test_writers_of_a_large_object_do_not_overwrite_each_other(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": "big"}, "data": {"x": "y" * 100_000}})
        patches = [ask("PATCH", f"{CONFIG_MAPS}/big", {"data": {f"k{n}": "1"}}, MERGE) for n in range(6)]
        said = await asyncio.gather(*patches)
        assert {each.code for each in said} <= {200, 409}
        written = sum(each.code == 200 for each in said)
        assert written >= 5
        assert len((await ask.ok("GET", f"{CONFIG_MAPS}/big"))["data"]) == 1 + written
