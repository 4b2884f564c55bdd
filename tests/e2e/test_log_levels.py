"""The log of a real node at verbosity 4: the line `Task stats for …` of document 004 (004-78)."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.e2e.real_node import kubectl_for, pod_of, real_node, running
from tests.e2e.waiting import until

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "logged"},
    "spec": {"containers": [{"name": "c", "image": "busybox", "command": ["sleep", "1000"]}]},
}


def test_the_tasks_of_each_container_are_in_the_log(tmp_path: Path) -> None:
    with real_node(tmp_path / "cluster", options=("-v", "4")) as node, kubectl_for(node, tmp_path) as kubectl:
        kubectl("apply", "-f", "-", stdin=json.dumps(POD))
        running(kubectl, "logged")
        found = pod_of(kubectl, "logged")
        container_id = found["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        path = f"{node.cgroup_root}/kubepods/besteffort/pod{found['metadata']['uid']}/{container_id}"
        line = re.compile(
            rf'Task stats for "/sys/fs/cgroup/[a-z,]+{re.escape(path)}": '
            r"\{NrSleeping:1 NrRunning:0 NrStopped:0 NrUninterruptible:0 NrIoWait:0\}"
        )

        def entries() -> list[str]:
            texts = (node.directory / "node.log").read_text().splitlines()
            found = [json.loads(text) for text in texts if text.startswith("{")]
            return [each["level"] for each in found if line.fullmatch(each["message"])]

        assert set(until(entries)) == {"info"}
