"""Resizes through real kubectl, as each profile does them, and the documents' errors to the letter (03 §4, 05 B11)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.fake_cluster import FakeCluster
from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import guaranteed, pod, resized
from tests.e2e.waiting import until

DOCUMENTS = Path(__file__).resolve().parents[2] / "examples" / "documents"
ALLOCATED, ACTUAL = "allocatedResources", "resources.requests"
NOT_CHANGEABLE = (
    'The Pod "demo" is invalid: spec: Forbidden: pod updates may not change fields other than '
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def demo(kubectl: Kubectl) -> None:
    """The pod of document 003."""
    kubectl("apply", "-f", str(DOCUMENTS / "003-demo.yaml"))
    kubectl("wait", "pod/demo", "--for=condition=Ready", "--timeout=120s")
    assert kubectl("get", "pod", "demo", "-o", "jsonpath={.status.qosClass}").out == "Guaranteed"


def asked(cluster: FakeCluster) -> tuple[str, ...]:
    """How the documents' reader asks for a resize: documents by a plain patch."""
    return ("patch", "pod", "demo", *(() if cluster.profile == "documents" else ("--subresource", "resize")))


def cpu(kubectl: Kubectl, where: str) -> str:
    return kubectl("get", "pod", "demo", "-o", f"jsonpath={{.status.containerStatuses[0].{where}.cpu}}").out


def wait_for_cpu(kubectl: Kubectl, amount: str) -> None:
    path = "{.status.containerStatuses[0].resources.requests.cpu}"
    said = kubectl("wait", "pod/demo", f"--for=jsonpath={path}={amount}", "--timeout=120s")
    assert said.out == "pod/demo condition met\n"


def test_resize_to_two_cpus(kubectl: Kubectl, cluster: FakeCluster) -> None:
    demo(kubectl)
    with kubectl.background(
        "get", "pod", "demo", "-w", "-o", "jsonpath={.status.resize},{.status.conditions[*].type}\n"
    ) as watch:
        watch.wait_for(bool)
        patch = (DOCUMENTS / "003-patch-cpu-2.json").read_text()
        assert kubectl(*asked(cluster), "-p", patch).out == "pod/demo patched\n"
        wait_for_cpu(kubectl, "2")
        assert cpu(kubectl, ALLOCATED) == "2"
        lines = watch.wait_for(lambda lines: "PodResizeInProgress" not in lines[-1] and len(lines) > 2)
    assert any("PodResizeInProgress" in line for line in lines), lines
    words = [line.partition(",")[0] for line in lines]
    seen = [word for index, word in enumerate(words) if index == 0 or words[index - 1] != word]
    assert seen == (["", "Proposed", "InProgress", ""] if cluster.profile == "documents" else [""]), lines
    assert kubectl("get", "pod", "demo", "-o", "jsonpath={.metadata.generation}").out == "2"
    shown = described(kubectl, "ResizeCompleted")
    assert re.search(r'Normal +ResizeStarted .*Pod resize started: \{"containers":\[\{"name":"demo"', shown)
    assert re.search(r"Normal +ResizeCompleted .*Pod resize completed: ", shown)


def described(kubectl: Kubectl, event: str) -> str:
    """With that event, which comes after the status."""
    return until(lambda: text if event in (text := kubectl("describe", "pod", "demo").out) else "")


def test_class_must_not_change(kubectl: Kubectl, cluster: FakeCluster) -> None:
    """Must hold: the very words of document 003 in documents, those of 1.36 there."""
    demo(kubectl)
    patch = (DOCUMENTS / "003-patch-qos-change.json").read_text()
    by_resize = kubectl.refused("patch", "pod", "demo", "--subresource", "resize", "-p", patch)
    plain = kubectl.refused("patch", "pod", "demo", "--patch", patch)
    if cluster.profile == "documents":
        said = 'The Pod "demo" is invalid: metadata: Invalid value: "Burstable": Pod QoS is immutable'
        assert (plain, by_resize) == (said, said)
    else:
        assert by_resize == (
            'The Pod "demo" is invalid: spec: Invalid value: "Guaranteed": '
            "Pod QOS Class may not change as a result of resizing"
        )
        assert plain == NOT_CHANGEABLE
    only_limits = resized("demo", {}, {"cpu": "3"})
    assert kubectl.refused("patch", "pod", "demo", "--subresource", "resize", "-p", only_limits) == by_resize
    assert cpu(kubectl, ALLOCATED) == "1"


def test_more_than_the_node_has(kubectl: Kubectl, cluster: FakeCluster) -> None:
    demo(kubectl)
    patch = resized("demo", {"cpu": "100"}, {"cpu": "100"})
    if cluster.profile == "1.36":
        assert kubectl.refused(*asked(cluster), "-p", patch) == (
            'Error from server (Forbidden): pods "demo" is forbidden: node didn\'t have enough allocatable resources: '
            "cpu, requested: 100000, allocatable: 15500"
        )
        return
    assert kubectl(*asked(cluster), "-p", patch).out == "pod/demo patched\n"
    until(lambda: kubectl("get", "pod", "demo", "-o", "jsonpath={.status.resize}").out == "Infeasible")
    assert (cpu(kubectl, ALLOCATED), cpu(kubectl, ACTUAL)) == ("1", "1")
    assert kubectl("get", "pod", "demo").table[0][1:4] == ["1/1", "Running", "0"]
    shown = described(kubectl, "ResizeInfeasible")
    assert re.search(r"(?m)^  PodResizePending +True", shown)
    assert re.search(r"Warning +ResizeInfeasible .*Pod resize Infeasible: ", shown)
    assert kubectl(*asked(cluster), "-p", resized("demo", {"cpu": "3"}, {"cpu": "3"})).out == "pod/demo patched\n"
    wait_for_cpu(kubectl, "3")
    assert kubectl("get", "pod", "demo", "-o", "jsonpath={.status.resize}").out == ""


def test_memory_restarts_the_container(kubectl: Kubectl, cluster: FakeCluster) -> None:
    demo(kubectl)
    assert (
        kubectl(*asked(cluster), "-p", (DOCUMENTS / "003-patch-memory-500mi.json").read_text()).out
        == "pod/demo patched\n"
    )
    until(lambda: kubectl("get", "pod", "demo").table[0][3] == "1")
    assert re.search(r"(?m)^demo +1/1 +Running +1 \(\d+s ago\) +\d+s$", kubectl("get", "pod", "demo").out)
    shown = kubectl("events", "--for", "pod/demo").out
    assert "Container demo resize requires restart" in shown
    assert kubectl("logs", "demo", "--previous").lines[0] == "demo started, attempt 0"


def test_edit_of_the_resources(kubectl: Kubectl) -> None:
    demo(kubectl)
    edit = {"EDITOR": 'sed -i "s/cpu: .*/cpu: 700m/"'}
    assert kubectl("edit", "pod", "demo", "--subresource=resize", env=edit).out == "pod/demo edited\n"
    wait_for_cpu(kubectl, "700m")
    row = kubectl("get", "pod", "demo", "--subresource=resize").table[0]
    assert row[:4] == ["demo", "1/1", "Running", "0"]


def test_refusals(kubectl: Kubectl, cluster: FakeCluster) -> None:
    kubectl("apply", "-f", "-", stdin=pod("demo", guaranteed("demo", "1", "200Mi")))
    kubectl("wait", "pod/demo", "--for=condition=Ready", "--timeout=120s")
    resize = ("patch", "pod", "demo", "--subresource", "resize", "-p")
    is_old = cluster.profile == "documents"
    said = kubectl.refused(*resize, resized("demo", {"cpu": "2"}))
    assert (
        '* spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'
        in said
    )
    said = kubectl.refused(*resize, resized("demo", {"ephemeral-storage": "1Gi"}))
    assert "only cpu and memory resources are mutable" in said if not is_old else "spec: Forbidden" in said
    burstable = pod("loose", guaranteed("a", "1", "200Mi"), {"name": "b", "image": "nginx:1.25"})
    kubectl("apply", "-f", "-", stdin=burstable)
    kubectl("wait", "pod/loose", "--for=condition=Ready", "--timeout=120s")
    removal = ("patch", "pod", "loose", "--subresource", "resize", "-p", resized("a", {}, {"cpu": None}))
    if is_old:
        assert kubectl(*removal).out == "pod/loose patched\n"
    else:
        assert kubectl.refused(*removal) == (
            'The Pod "loose" is invalid: spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed'
        )
    plain = kubectl.run("patch", "pod", "demo", "-p", resized("demo", {"cpu": "2"}, {"cpu": "2"}))
    assert (plain.code, plain.err.strip()) == ((0, "") if is_old else (1, NOT_CHANGEABLE))
    missing = kubectl.refused("patch", "pod", "zz", "--subresource", "resize", "-p", "{}")
    assert missing == 'Error from server (NotFound): pods "zz" not found'
