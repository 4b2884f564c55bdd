"""The output of the verbs without a live server: tables, events, descriptions, exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.cli.objects.describe import described
from plimsoll.cli.objects.exec import exit_code
from plimsoll.cli.printers import Columns, TableForm, as_table, event_order, header, last_seen, print_unmet, row, rows
from plimsoll.cli.terminal import Paint
from plimsoll.rules.cgroups.reconcile import Unmet

NOW_S = 1_000_000.0
STAMPS = {"firstTimestamp": "1970-01-12T13:44:40Z", "lastTimestamp": "1970-01-12T13:46:30Z"}  # 120 s and 10 s before
TABLE = {
    "kind": "Table",
    "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Ready"}, {"name": "Node", "priority": 1}],
    "rows": [
        {"cells": ["web\x1b[2J", True, "n1"], "object": {"metadata": {"name": "web", "namespace": "shop"}}},
        {"cells": ["a", None, ""], "object": {"metadata": {"name": "a", "namespace": "shop"}}},
    ],
}


def test_a_table_as_kubectl_prints_it() -> None:
    cells = [header(TABLE, TableForm()), *rows(TABLE, TableForm())]
    assert list(Columns().lines(cells)) == ["NAME         READY", "web\\x1b[2J   true", "a            <none>"]
    form = TableForm(wide=True, namespaces=True, prefix="pod/")
    wide = [header(TABLE, form), *rows(TABLE, form)]
    assert wide[0] == ["NAMESPACE", "NAME", "READY", "NODE"]
    assert wide[2] == ["shop", "pod/a", "<none>", ""]


def test_columns_grow_with_a_watch() -> None:
    """kubectl's columns have at least six characters with the gap."""
    columns = Columns()
    assert list(columns.lines([["a", "b"]])) == ["a     b"]
    assert list(columns.lines([["longer", "b"]])) == ["longer   b"]
    assert list(columns.lines([["a", "b"]])) == ["a        b"]


def test_a_server_without_tables() -> None:
    listed = {"kind": "PodList", "items": [{"metadata": {"name": "web", "creationTimestamp": "then"}}]}
    assert list(rows(as_table(listed), TableForm())) == [["web", "then"]]
    assert list(rows(as_table({"metadata": {"name": "one"}}), TableForm())) == [["one", ""]]


EVENTS: list[tuple[str, dict[str, Any], str]] = [
    ("once", {**STAMPS, "count": 1}, "10s"),
    ("several times", {**STAMPS, "count": 3}, "10s (x3 over 2m)"),
    ("a series", {"eventTime": STAMPS["firstTimestamp"], "series": {"count": 2, "lastObservedTime": STAMPS["lastTimestamp"]}}, "10s (x2 over 2m)"),
    ("no time", {}, "<unknown>"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "seen"), [line[1:] for line in EVENTS], ids=[line[0] for line in EVENTS])
def test_event_times(event: dict[str, Any], seen: str) -> None:
    about = {"kind": "Pod", "name": "web"}
    cells = row({**event, "involvedObject": about, "message": "a\n b\x1b"}, NOW_S, namespace=True)
    assert cells == ["", seen, "", "", "pod/web", "a b\\x1b"]
    assert last_seen(event) == (0.0 if not event else NOW_S - 10)


def test_events_of_one_second_are_in_the_order_of_their_names() -> None:
    """Times have whole seconds, except that of the scheduler; the name has the nanoseconds, as client-go writes it."""

    def event(reason: str, at_ns: int, **times: object) -> dict[str, Any]:
        return {"metadata": {"name": f"web.{at_ns:x}"}, "reason": reason, **times}

    second, last = 1_700_000_000, {"lastTimestamp": "2023-11-14T22:13:20Z"}
    base = second * 1_000_000_000
    events = [
        event("Again", base - 5_000_000_000, **last, count=2),  # first seen earlier: somewhere in this second
        event("Started", base + 900_000_000, **last),
        event("Scheduled", base + 700_000_000, eventTime="2023-11-14T22:13:20.700000Z"),
        event("Created", base + 800_000_000, **last),
        event("Earlier", base - 1, lastTimestamp="2023-11-14T22:13:19Z"),
    ]
    assert [each["reason"] for each in sorted(events, key=event_order)] == [
        "Earlier", "Scheduled", "Created", "Started", "Again",
    ]  # fmt: skip


def test_one_line_for_each_reason_that_a_value_is_not_set(capsys: pytest.CaptureFixture[str]) -> None:
    missing = "controller hugetlb is not mounted"
    unmet = [
        Unmet(path, f"hugetlb.{size}.max", "max", None, missing)
        for path in ("/a", "/b", "/c")
        for size in ("2MB", "1GB")
    ]
    print_unmet([*unmet, Unmet("/a", "pids.max", "5", "6", "refused")], Paint(False))
    assert capsys.readouterr().out.splitlines() == [
        f"hugetlb.2MB.max, hugetlb.1GB.max: not set ({missing}): /a and 2 more",
        "pids.max: want 5, have 6 (refused): /a",
    ]


def test_an_unknown_kind_is_printed_as_a_listing() -> None:
    document = {
        "kind": "ConfigMap",
        "metadata": {"name": "cm", "creationTimestamp": STAMPS["lastTimestamp"]},
        "data": {"key": "a\nb", "list": [1, {"x": None}], "none": {}},
    }
    assert list(described("ConfigMap", document, [], [], NOW_S)) == [
        "Name:              cm",
        "Labels:            <none>",
        "Annotations:       <none>",
        "Created:           1970-01-12T13:46:30Z (10s ago)",
        "Kind:              ConfigMap",
        "data:",
        "  key: a\\nb",
        "  list:",
        "    - 1",
        "    -",
        "      x: <none>",
        "  none: <none>",
        "Events:            <none>",
    ]


def test_a_failing_pod() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "generation": 2, "creationTimestamp": STAMPS["firstTimestamp"]},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
            "initContainers": [{"name": "init", "image": "i"}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no room"}],
            "containerStatuses": [
                {
                    "name": "c",
                    "restartCount": 3,
                    "ready": False,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                    "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": STAMPS["lastTimestamp"]}},
                    "allocatedResources": {"cpu": "1", "memory": "1Gi"},
                }
            ],
        },
    }  # fmt: skip
    lines = list(described("Pod", pod, [], [], NOW_S))
    for line in (
        "Resize:            deferred: no room",
        "    State:         Waiting, CrashLoopBackOff",
        "                   back-off 10s",
        "    Last State:    Terminated, OOMKilled, exit code 137, ended 10s ago",
        "    Allocated:     cpu 1, memory 1Gi",
        "Requests:          2 CPU, 1.0 GiB",
        "Init Containers:",
    ):
        assert line in lines, "\n".join(lines)


def test_amounts_are_readable() -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"capacity": {"cpu": "4", "memory": "16318480Ki", "ephemeral-storage": "1073741824", "pods": "110"}},
    }
    text = "\n".join(described("Node", node, None, [], NOW_S))
    amounts = (
        "cpu                4",
        "memory             15.5 GiB",
        "ephemeral-storage  1.0 GiB",
        "pods               110",
    )
    assert all(f"  {each}" in text.splitlines() for each in amounts), text
    resources = {"limits": {"memory": "1073741824", "cpu": "2"}, "requests": {"memory": "64Mi"}}
    pod = {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}
    lines = list(described("Pod", pod, None, [], NOW_S))
    assert "    Limits:        memory 1.0 GiB, cpu 2" in lines
    assert "    Requests:      memory 64Mi" in lines


STATUSES = [
    ("success", {"status": "Success"}, 0, ""),
    ("an exit code", {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "42"}]}}, 42, ""),
    ("something else", {"status": "Failure", "message": "no such \x1bfile"}, 1, "no such \\x1bfile"),
    ("no exit code", {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "x"}]}}, 1, "could not"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "text"), [line[1:] for line in STATUSES], ids=[line[0] for line in STATUSES]
)
def test_the_exit_code_of_a_session(status: Any, code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(json.dumps(status).encode()) == code
    assert text in capsys.readouterr().err


def test_a_session_without_an_exit_code_prints_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(b"not json") == 1
    assert "not json" in capsys.readouterr().err
