"""DELETE, row by row of 05 B6 Deletion: what is stored, what watchers see, what is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.rules.timestamps import rfc3339
from tests.unit.api.api_client import MERGE, PODS, START_S, ApiClient, api, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEMO = f"{PODS}/demo"


async def make(ask: ApiClient, **spec: Any) -> Any:
    finalizers = spec.pop("finalizers", None)
    sent = pod(**spec)
    if finalizers:
        sent["metadata"]["finalizers"] = finalizers
    return await ask.ok("POST", PODS, sent)


def deletion(found: Any) -> tuple[Any, ...]:
    metadata = found["metadata"]
    return metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds"), metadata["generation"]


async def test_a_bound_pod_is_deleted_in_two_steps(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await make(ask, nodeName="n1")
        version = made["metadata"]["resourceVersion"]
        async with ask.watching(f"{PODS}?watch=1&resourceVersion={version}") as watch:
            marked = await ask.ok("DELETE", DEMO)
            assert deletion(marked) == (rfc3339(START_S + 30), 30, 2)
            ask.now_s += 10
            gone = await ask.ok("DELETE", DEMO, {"gracePeriodSeconds": 0})
            assert deletion(gone) == (rfc3339(START_S + 10), 0, 2)
            events = await watch.events(3)
            assert [each["type"] for each in events] == ["MODIFIED", "MODIFIED", "DELETED"]
            assert [deletion(each["object"])[1] for each in events] == [30, 0, 0]
            versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in events]
            assert versions == sorted(set(versions))
            assert gone["metadata"]["resourceVersion"] == str(versions[-1])
        assert (await ask("GET", DEMO)).code == 404


@pytest.mark.parametrize(
    ("body", "due_s", "grace_s"),
    [
        pytest.param(None, 30, 30, id="no options"),
        pytest.param({"gracePeriodSeconds": 30}, 30, 30, id="the same"),
        pytest.param({"gracePeriodSeconds": 60}, 30, 30, id="longer"),
        pytest.param({"gracePeriodSeconds": 20}, 20, 20, id="shorter: counted from the first request"),
        pytest.param({"gracePeriodSeconds": 5}, 10, 1, id="not into the past"),
    ],
)
async def test_a_second_delete(tmp_path: Path, body: Any, due_s: int, grace_s: int) -> None:
    async with api(tmp_path) as ask:
        await make(ask, nodeName="n1")
        first = await ask.ok("DELETE", DEMO)
        ask.now_s += 10
        again = await ask.ok("DELETE", DEMO, body)
        assert deletion(again) == (rfc3339(START_S + due_s), grace_s, 2)
        same = grace_s == 30
        assert (again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]) is same


@pytest.mark.parametrize(
    ("spec", "status", "body", "grace_s"),
    [
        pytest.param({"nodeName": "n1", "terminationGracePeriodSeconds": 7}, {}, None, 7, id="the pod's own"),
        pytest.param({"nodeName": "n1"}, {}, {"gracePeriodSeconds": 3}, 3, id="the request's"),
        pytest.param({"nodeName": "n1"}, {}, {"gracePeriodSeconds": -5}, 1, id="negative"),
        pytest.param({}, {}, {"gracePeriodSeconds": 9}, 0, id="unbound"),
        pytest.param({"nodeName": "n1"}, {"phase": "Succeeded"}, None, 0, id="ended"),
        pytest.param({"nodeName": "n1"}, {"phase": "Failed"}, {"gracePeriodSeconds": 9}, 0, id="failed"),
    ],
)
async def test_grace_periods(tmp_path: Path, spec: Any, status: Any, body: Any, grace_s: int) -> None:
    async with api(tmp_path) as ask:
        await make(ask, **spec)
        if status:
            await ask.ok("PATCH", f"{DEMO}/status", {"status": status}, MERGE)
        assert deletion(await ask.ok("DELETE", DEMO, body)) == (rfc3339(START_S + grace_s), grace_s, 2)
        assert (await ask("GET", DEMO)).code == (200 if grace_s else 404)


async def test_finalizers_keep_a_pod(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await make(ask, finalizers=["a.io/b"])
        async with ask.watching(f"{PODS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}") as watch:
            marked = await ask.ok("DELETE", DEMO)
            assert deletion(marked)[1] == 0
            said = await ask("PATCH", DEMO, {"metadata": {"finalizers": ["a.io/b", "c.io/d"]}}, MERGE)
            assert said.message == (
                'Pod "demo" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is '
                'being deleted, found new finalizers []string{"c.io/d"}'
            )
            last = await ask.ok("PATCH", DEMO, {"metadata": {"finalizers": None}}, MERGE)
            assert "finalizers" not in last["metadata"]
            assert last["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
            events = await watch.events(2)
            assert [each["type"] for each in events] == ["MODIFIED", "DELETED"]
            assert events[1]["object"]["metadata"]["finalizers"] == ["a.io/b"]
        assert (await ask("GET", DEMO)).code == 404


async def test_the_last_finalizer_of_a_pod_that_still_runs(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await make(ask, finalizers=["a.io/b"], nodeName="n1")
        await ask.ok("DELETE", DEMO)
        await ask.ok("PATCH", DEMO, {"metadata": {"finalizers": None}}, MERGE)
        assert (await ask("GET", DEMO)).code == 200
        await ask.ok("DELETE", DEMO, {"gracePeriodSeconds": 0})
        assert (await ask("GET", DEMO)).code == 404


async def test_kinds_without_grace(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": "l0"}})
        said = await ask("DELETE", f"{CONFIG_MAPS}/l0", {"propagationPolicy": "Background"})
        assert said.json == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "l0", "kind": "configmaps", "uid": made["metadata"]["uid"]},
        }


@pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
async def test_propagation_policies_leave_a_finalizer(tmp_path: Path, policy: str, finalizer: str) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
        found = await ask.ok("DELETE", f"{CONFIG_MAPS}/a", {"propagationPolicy": policy})
        assert found["metadata"]["finalizers"] == [finalizer]
        assert found["metadata"]["deletionTimestamp"]
        await ask.ok("PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}}, MERGE)
        assert (await ask("GET", f"{CONFIG_MAPS}/a")).code == 404


async def test_preconditions(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made = await make(ask)
        uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
        said = await ask("DELETE", DEMO, {"preconditions": {"uid": "abc"}})
        assert (said.code, said.json["details"]) == (409, {"name": "demo", "kind": "Pod"})
        assert said.message == (
            f'Operation cannot be fulfilled on Pod "demo": the UID in the precondition (abc) does not match the UID in '
            f"record ({uid}). The object might have been deleted and then recreated"
        )
        said = await ask("DELETE", DEMO, {"preconditions": {"resourceVersion": "1"}})
        assert said.message == (
            'Operation cannot be fulfilled on Pod "demo": the ResourceVersion in the precondition (1) does not match the '
            f"ResourceVersion in record ({version}). The object might have been modified"
        )
        await ask.ok("DELETE", DEMO, {"preconditions": {"uid": uid, "resourceVersion": version}})


async def test_a_namespace_waits_for_its_finalizers(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        path = "/api/v1/namespaces/foo"
        await ask.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "foo"}})
        found = await ask.ok("DELETE", path)
        assert (found["kind"], found["status"]["phase"]) == ("Namespace", "Terminating")
        assert found["metadata"]["deletionTimestamp"]
        said = await ask("POST", f"{path}/configmaps", {"metadata": {"name": "x"}})
        assert (said.code, said.message) == (
            403,
            'configmaps "x" is forbidden: unable to create new content in namespace foo because it is being terminated',
        )
        assert said.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
        await ask.ok("PUT", f"{path}/finalize", {**found, "spec": {}})
        assert (await ask("GET", path)).code == 404


async def test_collection_deletes_return_what_was_deleted(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for name, label in (("a", "1"), ("b", "2"), ("c", "1")):
            sent = pod(name)
            sent["metadata"]["labels"] = {"k": label}
            await ask.ok("POST", PODS, sent)
        found = await ask.ok("DELETE", f"{PODS}?labelSelector=k%3D1")
        assert found["kind"] == "PodList"
        assert [each["metadata"]["name"] for each in found["items"]] == ["a", "c"]
        assert all("deletionTimestamp" not in each["metadata"] for each in found["items"])
        left = await ask.ok("GET", PODS)
        assert [each["metadata"]["name"] for each in left["items"]] == ["b"]


async def test_a_deletion_cut_by_a_crash_is_finished_at_the_next_start(tmp_path: Path) -> None:
    from plimsoll.api.machinery.cluster import decoded
    from plimsoll.api.machinery.metadata import body_of
    from plimsoll.store.records import Record

    async with api(tmp_path) as ask:
        await make(ask)

        def mark(record: Record | None, version: int) -> bytes:
            assert record is not None
            document = decoded(record)
            document["metadata"] |= {"deletionTimestamp": rfc3339(START_S), "deletionGracePeriodSeconds": 0}
            return body_of(document, version)

        await ask.app.cluster.store.change("/pods/default/demo", mark)
        assert (await ask("GET", DEMO)).code == 200
    async with api(tmp_path) as ask:
        assert (await ask("GET", DEMO)).code == 404
