"""Options of a log request, and which container's log is meant, with the kubelet's sentences."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.node.server.http import HttpError
from plimsoll.node.server.logs import (
    LogOptions,
    log_options,
    logged_container_id,
    running_container_id,
)

NOW_S = 1_000_000.0


@pytest.mark.parametrize(
    ("query", "options"),
    [
        pytest.param({}, LogOptions(), id="nothing"),
        pytest.param({"follow": ["true"], "timestamps": ["1"], "previous": ["false"]}, LogOptions(follow=True, timestamps=True), id="flags"),
        pytest.param({"tailLines": ["0"], "limitBytes": ["5"]}, LogOptions(tail_lines=0, limit_bytes=5), id="numbers"),
        pytest.param({"sinceSeconds": ["60"]}, LogOptions(since_ns=999_940 * 10**9), id="since seconds"),
        pytest.param({"sinceTime": ["1970-01-01T00:00:01.5Z"]}, LogOptions(since_ns=1_500_000_000), id="since time"),
        pytest.param({"stream": ["Stderr"]}, LogOptions(streams=(b"stderr",)), id="one stream"),
        pytest.param({"insecureSkipTLSVerifyBackend": ["true"]}, LogOptions(), id="not ours"),
    ],
)  # fmt: skip
def test_options(query: dict[str, list[str]], options: LogOptions) -> None:
    assert log_options(query, NOW_S) == options


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"follow": ["yes"]}, 'strconv.ParseBool: parsing "yes": invalid syntax'),
        ({"tailLines": ["-1"]}, 'tailLines: "-1" must be a whole number of at least 0'),
        ({"limitBytes": ["0"]}, 'limitBytes: "0" must be a whole number of at least 1'),
        ({"sinceTime": ["noon"]}, 'sinceTime: "noon" is not an RFC 3339 time (2006-01-02T15:04:05Z)'),
        ({"stream": ["both"]}, 'stream: "both" must be All, Stdout or Stderr'),
        ({"sinceTime": ["1970-01-01T00:00:01Z"], "sinceSeconds": ["1"]}, "at most one of `sinceTime` or `sinceSeconds` may be specified"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_read(query: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(HttpError) as refused:
        log_options(query, NOW_S)
    assert (refused.value.status, str(refused.value)) == (400, sentence)


def _pod(state: dict[str, Any], last: dict[str, Any] | None = None, own_id: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"name": "c", "state": state, "lastState": {"terminated": last} if last else {}}
    if own_id:
        status["containerID"] = own_id
    return {
        "metadata": {"name": "p"},
        "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]},
        "status": {"containerStatuses": [status]},
    }


RUNNING, ENDED = {"running": {"startedAt": "x"}}, {"exitCode": 1, "containerID": "plimsoll://old"}


@pytest.mark.parametrize(
    ("pod", "previous", "found"),
    [
        pytest.param(_pod(RUNNING, own_id="plimsoll://new"), False, "plimsoll://new", id="running"),
        pytest.param(_pod(RUNNING, ENDED, "plimsoll://new"), True, "plimsoll://old", id="previous"),
        pytest.param(_pod({"terminated": {"containerID": "plimsoll://e"}}, ENDED), False, "plimsoll://e", id="ended"),
        pytest.param(_pod({"terminated": {}}, ENDED), False, "plimsoll://old", id="ended before it began"),
        pytest.param(_pod({"waiting": {"reason": "CrashLoopBackOff"}}, ENDED), False, "plimsoll://old", id="back-off"),
    ],
)
def test_whose_log(pod: dict[str, Any], previous: bool, found: str) -> None:
    assert logged_container_id(pod, "c", previous=previous) == found


@pytest.mark.parametrize(
    ("pod", "name", "previous", "status", "sentence"),
    [
        pytest.param(_pod(RUNNING), "x", False, 404, 'container "x" not found in pod "p"', id="no such container"),
        pytest.param(_pod(RUNNING), "i", False, 400, 'container "i" in pod "p" is not available', id="no status yet"),
        pytest.param(_pod(RUNNING), "c", True, 400, 'previous terminated container "c" in pod "p" not found', id="no previous"),
        pytest.param(_pod({"terminated": {}}), "c", False, 400, 'container "c" in pod "p" is terminated', id="ended without an id"),
        pytest.param(_pod({"waiting": {"reason": "ContainerCreating"}}), "c", False, 400, 'container "c" in pod "p" is waiting to start: ContainerCreating', id="waiting"),
        pytest.param(_pod({"waiting": {"reason": "ErrImagePull"}}), "c", False, 400, 'container "c" in pod "p" is waiting to start: image can\'t be pulled', id="no image"),
        pytest.param(_pod({"waiting": {"reason": "ImagePullBackOff"}}), "c", False, 400, 'container "c" in pod "p" is waiting to start: trying and failing to pull image', id="image back-off"),
        pytest.param(_pod({}), "c", False, 400, 'container "c" in pod "p" is waiting to start - no logs yet', id="no state"),
    ],
)  # fmt: skip
def test_no_log(pod: dict[str, Any], name: str, previous: bool, status: int, sentence: str) -> None:
    with pytest.raises(HttpError) as refused:
        logged_container_id(pod, name, previous=previous)
    assert (refused.value.status, str(refused.value)) == (status, sentence)


def test_only_a_running_container_is_one_to_run_commands_in() -> None:
    assert running_container_id(_pod(RUNNING, own_id="plimsoll://new"), "c") == "plimsoll://new"
    assert running_container_id(_pod({"terminated": {}}, own_id="plimsoll://new"), "c") == ""
    assert running_container_id(_pod(RUNNING), "x") == ""
