"""Columns and cells of every kind, and the forms of a Table (05 B7, 06 E3)."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from plimsoll.api.machinery.catalog import BUILT_IN
from plimsoll.api.machinery.negotiate import MediaType
from plimsoll.api.machinery.rounds import Pace, Rounds
from plimsoll.api.machinery.status import StatusError
from plimsoll.api.tables.printers import printer
from plimsoll.api.tables.views import Viewer

NOW_S = 1_000_000_000.0
CREATED = "2001-09-09T01:41:40Z"  # 5 m before
META = {"name": "x", "creationTimestamp": CREATED, "resourceVersion": "7"}

COLUMNS = [
    ("pods", "Name Ready Status Restarts Age | IP Node Nominated_Node Readiness_Gates"),
    ("nodes", "Name Status Roles Age Version | Internal-IP External-IP OS-Image Kernel-Version Container-Runtime"),
    ("events", "Last_Seen Type Reason Object |Subobject |Source Message |First_Seen |Count |Name"),
    ("namespaces", "Name Status Age"),
    ("configmaps", "Name Data Age"),
    ("resourcequotas", "Name Request Limit Age"),
    ("limitranges", "Name Created_At"),
    ("serviceaccounts", "Name Age"),
    ("leases", "Name Holder Age"),
    ("priorityclasses", "Name Value Global-Default Age PreemptionPolicy"),
    ("runtimeclasses", "Name Handler Age"),
    ("poddisruptionbudgets", "Name Min_Available Max_Unavailable Allowed_Disruptions Age"),
    ("deployments", "Name Ready Up-to-date Available Age | Containers Images Selector"),
    ("replicasets", "Name Desired Current Ready Age | Containers Images Selector"),
    ("jobs", "Name Status Completions Duration Age | Containers Images Selector"),
]


def expected(text: str) -> list[tuple[str, int]]:
    plain, _, wide = text.partition(" | ")
    found = [(word.lstrip("|").replace("_", " "), int(word.startswith("|"))) for word in plain.split()]
    return found + [(word.replace("_", " "), 1) for word in wide.split()]


@pytest.mark.parametrize(("storage", "text"), COLUMNS, ids=[row[0] for row in COLUMNS])
def test_columns(storage: str, text: str) -> None:
    columns = printer(storage, "1.36").columns
    assert [(column.name, column.priority) for column in columns] == expected(text)
    assert [column.name for column in columns if column.format == "name"] == ["Name"]


TEMPLATE = {"template": {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}}}
CELLS: list[Any] = [
    pytest.param("nodes", {}, ["x", "Unknown", "<none>", "5m", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"], id="bare node"),
    pytest.param(
        "nodes",
        {
            "metadata": {**META, "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "a"}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kernelVersion": "6.1", "architecture": "amd64", "osImage": "Foo OS", "kubeletVersion": "v1", "containerRuntimeVersion": "containerd://2.0"},
            },
        },
        ["x", "Ready,SchedulingDisabled", "a,worker", "5m", "v1", "10.0.0.1", "<none>", "Foo OS", "6.1 (amd64)", "containerd://2.0"],
        id="full node",
    ),
    pytest.param("nodes", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, ["x", "NotReady"], id="a node that stopped reporting"),
    pytest.param(
        "events",
        {
            "involvedObject": {"kind": "Pod", "name": "u", "fieldPath": "spec.containers{c}"}, "type": "Normal", "reason": "Started",
            "message": " Started container c\n", "source": {"component": "kubelet", "host": "n1"}, "count": 5,
            "firstTimestamp": "2001-09-09T01:22:40Z", "lastTimestamp": "2001-09-09T01:42:11Z",
        },
        ["4m29s", "Normal", "Started", "pod/u", "spec.containers{c}", "kubelet, n1", "Started container c", "24m", 5, "x"],
        id="event of the old style",
    ),
    pytest.param(
        "events",
        {
            "involvedObject": {"kind": "Pod", "name": "u"}, "eventTime": "2001-09-09T01:46:30.000000Z", "reportingComponent": "s", "reportingInstance": "s-1",
            "series": {"count": 3, "lastObservedTime": "2001-09-09T01:46:35.000000Z"},
        },
        ["5s", "", "", "pod/u", "", "s, s-1", "", "10s", 3, "x"],
        id="event of the new style",
    ),
    pytest.param("namespaces", {"status": {"phase": "Active"}}, ["x", "Active", "5m"], id="namespace"),
    pytest.param("configmaps", {"data": {"a": "1"}, "binaryData": {"b": "MQ=="}}, ["x", 2, "5m"], id="config map"),
    pytest.param(
        "resourcequotas",
        {"status": {"hard": {"pods": "10", "cpu": "1", "limits.cpu": "2", "requests.memory": "1Gi"}, "used": {"cpu": "100m", "pods": "2"}}},
        ["x", "cpu: 100m/1, pods: 2/10, requests.memory: 0/1Gi", "limits.cpu: 0/2", "5m"],
        id="quota",
    ),
    pytest.param("limitranges", {}, ["x", CREATED], id="kind without a printer"),
    pytest.param("leases", {"spec": {"holderIdentity": "me"}}, ["x", "me", "5m"], id="lease"),
    pytest.param("runtimeclasses", {"handler": "kata-qemu"}, ["x", "kata-qemu", "5m"], id="runtime class"),
    pytest.param("priorityclasses", {"value": 1000}, ["x", 1000, False, "5m", "PreemptLowerPriority"], id="priority class"),
    pytest.param("poddisruptionbudgets", {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}, ["x", "50%", "N/A", 1, "5m"], id="budget"),
    pytest.param(
        "deployments", {"spec": {"replicas": 3, "selector": {"matchLabels": {"b": "2", "a": "1"}}, **TEMPLATE}, "status": {"readyReplicas": 1, "updatedReplicas": 2}},
        ["x", "1/3", 2, 0, "5m", "a,b", "x,y", "a=1,b=2"], id="deployment",
    ),
    pytest.param(
        "replicasets", {"spec": {"selector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["w", "v"]}, {"key": "n", "operator": "DoesNotExist"}]}}, "status": {"replicas": 1}},
        ["x", 1, 1, 0, "5m", "", "", "k in (v,w),!n"], id="replica set",
    ),
    pytest.param("jobs", {"spec": {"parallelism": 2}, "status": {"startTime": CREATED}}, ["x", "Running", "0/1 of 2", "5m", "5m", "", "", "<none>"], id="job"),
    pytest.param(
        "jobs", {"spec": {"completions": 1}, "status": {"succeeded": 1, "startTime": CREATED, "completionTime": "2001-09-09T01:41:50Z", "conditions": [{"type": "Complete", "status": "True"}]}},
        ["x", "Complete", "1/1", "10s", "5m"], id="job that has ended",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("storage", "document", "cells"), CELLS)
def test_cells(storage: str, document: Any, cells: list[Any]) -> None:
    found = printer(storage, "1.36").cells({"metadata": META, **document}, NOW_S)
    assert found[: len(cells)] == cells


def test_the_cells_of_endpoints_are_made_of_those_that_are_shown() -> None:
    """Each address has each port: a document of 2 MB has 10⁸ of both, which a list of them would keep in memory."""
    subset = {"addresses": [{"ip": "10.0.0.1"}] * 1_000, "ports": [{"port": 80}] * 1_000}
    tracemalloc.start()
    try:
        found = printer("endpoints", "1.36").cells({"metadata": META, "subsets": [subset, {"addresses": [{}]}]}, NOW_S)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found[1] == "10.0.0.1:80,10.0.0.1:80,10.0.0.1:80 + 999998 more..."
    assert most_bytes < 1 << 20


def test_profile_documents_shows_the_kernel_without_its_architecture() -> None:
    node = {"metadata": META, "status": {"nodeInfo": {"kernelVersion": "6.1", "architecture": "amd64"}}}
    assert printer("nodes", "documents").cells(node, NOW_S)[8] == "6.1"


BODY = msgspec.json.encode({"metadata": META, "data": {"a": "<"}})
CONFIG_MAPS = BUILT_IN.at("", "v1", "configmaps")
assert CONFIG_MAPS is not None


def viewed(include: str = "", view: str = "Table", version: str = "v1") -> Any:
    assert CONFIG_MAPS is not None
    return json.loads(Viewer(CONFIG_MAPS, MediaType(view, version), include, "1.36").one(BODY, NOW_S))  # type: ignore[arg-type]


def test_a_table_of_one_object() -> None:
    table = viewed()
    assert (table["kind"], table["apiVersion"], table["metadata"]) == (
        "Table",
        "meta.k8s.io/v1",
        {"resourceVersion": "7"},
    )
    assert [sorted(column) for column in table["columnDefinitions"]] == [
        ["description", "format", "name", "priority", "type"]
    ] * 3
    shown = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": META}
    assert table["rows"] == [{"cells": ["x", 1, "5m"], "object": shown}]


def test_other_versions_and_inclusions() -> None:
    old = viewed(version="v1beta1")
    assert old["apiVersion"] == old["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"
    assert viewed("None")["rows"][0]["object"] is None
    full = viewed("Object")["rows"][0]["object"]
    assert full == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": META, "data": {"a": "<"}}
    assert viewed(view="PartialObjectMetadata") == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": META,
    }


def test_an_unknown_inclusion_is_refused() -> None:
    with pytest.raises(StatusError) as refusal:
        viewed("Foo")
    assert refusal.value.message == (
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None', or empty"
    )


def test_text_is_escaped_as_go_does() -> None:
    assert CONFIG_MAPS is not None
    assert b'"<' not in Viewer(CONFIG_MAPS, MediaType("Table"), "Object", "1.36").one(BODY, NOW_S)
    assert b"\\u003c" in Viewer(CONFIG_MAPS, MediaType("Table"), "Object", "1.36").one(BODY, NOW_S)


async def test_no_rows_is_an_empty_list() -> None:
    assert CONFIG_MAPS is not None
    pieces = Viewer(CONFIG_MAPS, MediaType("Table"), "", "1.36").many([], b"{}", NOW_S, Pace(Rounds()))
    table = json.loads(b"".join([piece async for piece in pieces]))
    assert table["rows"] == []


def test_a_bookmark_in_a_table_has_a_row_of_zero_cells() -> None:
    assert CONFIG_MAPS is not None
    text = Viewer(CONFIG_MAPS, MediaType("Table"), "", "1.36").bookmark(159, ends_initial=True, columns=False)
    table = json.loads(text)
    assert table["columnDefinitions"] is None
    assert table["rows"][0]["cells"] == ["", 0, "<unknown>"]
    assert table["rows"][0]["object"]["metadata"] == {
        "resourceVersion": "159",
        "annotations": {"k8s.io/initial-events-end": "true"},
    }
