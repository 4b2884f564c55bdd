"""What needs a node: logs, exec, cordon, drain, taints, pods that fit nowhere (05 B5, B6, B11)."""

from __future__ import annotations

import re
import ssl
import urllib.error
import urllib.request

import pytest

from plimsoll.kube.kubeconfig import load
from tests.e2e.fake_cluster import NODE, FakeCluster
from tests.e2e.kubectl import Kubectl, Result
from tests.e2e.manifests import container, pod, together
from tests.e2e.waiting import until


def started(kubectl: Kubectl, *manifests: str) -> None:
    kubectl("apply", "-f", "-", stdin=together(*manifests))
    kubectl("wait", "pods", "--all", "--for=condition=Ready", "--timeout=120s")


def test_logs(kubectl: Kubectl) -> None:
    started(kubectl, pod("demo"), pod("two", container("a"), container("b")))
    assert kubectl("logs", "demo").out == "demo started, attempt 0\n"
    assert kubectl.refused("logs", "demo", "--previous") == (
        'Error from server (BadRequest): previous terminated container "demo" in pod "demo" not found'
    )
    kubectl("exec", "demo", "--", "log", "hello", "there")
    assert kubectl("logs", "demo", "--tail=1").out == "hello there\n"
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT[0-9:.]+Z hello there\n", kubectl("logs", "demo", "--tail=1", "--timestamps").out
    )
    assert kubectl("logs", "two", "-c", "b").out == "b started, attempt 0\n"
    assert sorted(kubectl("logs", "two", "--all-containers", "--prefix").lines) == [
        "[pod/two/a] a started, attempt 0",
        "[pod/two/b] b started, attempt 0",
    ]
    assert "container zz is not valid for pod two" in kubectl.refused("logs", "two", "-c", "zz")
    kubectl("exec", "demo", "--", "kill", "1")
    until(lambda: kubectl("get", "pod", "demo").table[0][3] == "1")
    assert re.search(r"(?m)^demo +1/1 +Running +1 \(\d+s ago\) +\d+s$", kubectl("get", "pod", "demo").out)
    assert kubectl("logs", "demo", "--previous").lines == [
        "demo started, attempt 0",
        "hello there",
        "demo ended with 143",
    ]
    assert kubectl("logs", "demo").out == "demo started, attempt 1\n"
    described = re.sub(" +", " ", kubectl("describe", "pod", "demo").out)
    assert " Last State: Terminated\n Reason: Error\n Exit Code: 143\n" in described


def test_following_a_log(kubectl: Kubectl) -> None:
    started(kubectl, pod("demo"))
    with kubectl.background("logs", "-f", "demo") as log:
        log.wait_for(lambda lines: lines == ["demo started, attempt 0"])
        kubectl("exec", "demo", "--", "log", "one")
        log.wait_for(lambda lines: lines[-1] == "one")
        kubectl("delete", "pod", "demo", "--now")
        log.wait_for(lambda lines: lines[-1] == "demo ended with 0")
        assert log.process.wait(60) == 0, "it ends with the container"


def answered(kubectl: Kubectl, *command: str) -> Result:
    """A kubectl that is answered before it has opened its streams drops the data; no real process is that fast."""
    done = kubectl.run("exec", "demo", "--", *command)
    while "Unknown stream id" in done.err:
        done = kubectl.run("exec", "demo", "--", *command)
    return done


def test_exec(kubectl: Kubectl) -> None:
    started(kubectl, pod("demo"))
    assert answered(kubectl, "echo", "a", "b").out == "a b\n"
    seven = answered(kubectl, "sh", "-c", "exit 7")
    assert (seven.code, seven.err) == (7, "command terminated with exit code 7\n")
    none = answered(kubectl, "nonesuch")
    assert (none.code, none.err.splitlines()[0]) == (127, "sh: nonesuch: not found")
    text = "".join(f"line {number}\n" for number in range(2000))
    assert kubectl("exec", "-i", "demo", "--", "cat", stdin=text).out == text
    assert kubectl.on_a_terminal("exec", "-it", "demo", "--", "stty", "size", rows=33, columns=77).endswith("33 77\r\n")
    assert "container zz is not valid" in kubectl.refused("exec", "demo", "-c", "zz", "--", "echo")


def test_cordon_drain_uncordon(kubectl: Kubectl) -> None:
    started(kubectl, pod("lonely"))
    kubectl("create", "deployment", "d", "--image=nginx:1.25")
    kubectl("wait", "deployment/d", "--for=condition=Available", "--timeout=120s")
    try:
        assert kubectl("cordon", NODE).out == f"node/{NODE} cordoned\n"
        assert kubectl("get", "nodes").table[0][1] == "Ready,SchedulingDisabled"
        assert kubectl("cordon", NODE).out == f"node/{NODE} already cordoned\n"
        said = kubectl.refused("drain", NODE, "--ignore-daemonsets")
        assert "cannot delete Pods that declare no controller (use --force to override)" in said
        drained = kubectl("drain", NODE, "--force", "--ignore-daemonsets", "--timeout=120s")
        assert f"evicting pod {kubectl.namespace}/lonely" in drained.out + drained.err
        assert "pod/lonely evicted" in drained.out
        assert drained.lines[-1] == f"node/{NODE} drained"
        ((name, ready, status, *_),) = until(
            lambda: [row for row in kubectl("get", "pods").table if row[2] == "Pending"]
        )
        assert (name.startswith("d-"), ready, status) == (True, "0/1", "Pending")
    finally:
        assert kubectl("uncordon", NODE).out == f"node/{NODE} uncordoned\n"
    assert kubectl("get", "nodes").table[0][1] == "Ready"
    kubectl("wait", "pods", "--all", "--for=condition=Ready", "--timeout=120s")


def test_taints(kubectl: Kubectl, cluster: FakeCluster) -> None:
    assert kubectl("taint", "nodes", NODE, "key=value:NoSchedule").out == f"node/{NODE} tainted\n"
    try:
        assert re.search(r"(?m)^Taints: +key=value:NoSchedule$", kubectl("describe", "node", NODE).out)
        kubectl("apply", "-f", "-", stdin=pod("fussy"))
        tolerant = [{"key": "key", "operator": "Exists", "effect": "NoSchedule"}]
        started_pod = pod("easy", tolerations=tolerant)
        kubectl("apply", "-f", "-", stdin=started_pod)
        kubectl("wait", "pod/easy", "--for=condition=Ready", "--timeout=120s")
        why = "{key: value}" if cluster.profile == "documents" else "(s)"
        until(lambda: f"1 node(s) had untolerated taint{' ' if why[0] == '{' else ''}{why}" in kubectl("events").out)
    finally:
        assert kubectl("taint", "nodes", NODE, "key-").out == f"node/{NODE} untainted\n"
    kubectl("wait", "pod/fussy", "--for=condition=Ready", "--timeout=120s")


def test_larger_than_any_node(kubectl: Kubectl, cluster: FakeCluster) -> None:
    kubectl("apply", "-f", "-", stdin=pod("huge", container("c", "100")))
    claims = "" if cluster.profile == "documents" else "no new claims to deallocate, "
    message = (
        f"0/1 nodes are available: 1 Insufficient cpu. {claims}preemption: 0/1 nodes are available: "
        "1 Preemption is not helpful for scheduling."
    )
    until(
        lambda: re.search(rf"Warning +FailedScheduling .*{re.escape(message)}", kubectl("describe", "pod", "huge").out)
    )
    assert kubectl("get", "pod", "huge").table[0][1:3] == ["0/1", "Pending"]
    reason = "{.status.conditions[?(@.type=='PodScheduled')].reason}"
    assert kubectl("get", "pod", "huge", "-o", f"jsonpath={reason}").out == "Unschedulable"
    assert kubectl("logs", "huge").out == ""


def test_only_the_api_server_may_ask_a_node(kubectl: Kubectl, cluster: FakeCluster) -> None:
    """The other side of the proxy, from outside: the fake node refuses the clients that an agent must refuse."""
    port = kubectl("get", "node", NODE, "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}").out
    access = load(cluster.kubeconfig)
    assert access.ca is not None
    context = ssl.create_default_context(cadata=access.ca.decode())
    context.check_hostname = False
    url = f"https://127.0.0.1:{port}/healthz"
    with pytest.raises((ssl.SSLError, urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(url, context=context, timeout=60)
    context.load_cert_chain(cluster.state / "pki" / "client.crt", cluster.state / "pki" / "client.key")
    with urllib.request.urlopen(url, context=context, timeout=60) as answer:
        assert answer.read() == b"ok"
