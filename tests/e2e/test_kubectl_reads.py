"""What real kubectl shows: tables, descriptions, explanations, numbers (05 B5, B7, B11)."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.e2e.fake_cluster import NODE, FakeCluster
from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import container, guaranteed, pod, together
from tests.e2e.waiting import until

KUBECTL_PAIRS_TESTED = 1


def running(kubectl: Kubectl, *manifests: str) -> None:
    kubectl("apply", "-f", "-", stdin=together(*manifests))
    kubectl("wait", "pods", "--all", "--for=condition=Ready", "--timeout=120s")


def test_version_and_resources(kubectl: Kubectl, cluster: FakeCluster) -> None:
    assert f"Server Version: v{cluster.release}.0+plimsoll." in kubectl("version").out
    rows = {line.split()[0]: line.split() for line in kubectl("api-resources").lines}
    assert rows["NAME"] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert rows["pods"] == ["pods", "metrics.k8s.io/v1", "true", "PodMetrics"]  # the last of two
    assert rows["priorityclasses"] == ["priorityclasses", "pc", "scheduling.k8s.io/v1", "false", "PriorityClass"]
    core = kubectl("api-resources", "--api-group=", "--no-headers").table
    assert ["pods", "po", "v1", "true", "Pod"] in core
    assert ["nodes", "no", "v1", "false", "Node"] in core
    classes = [row[:2] for row in kubectl("get", "priorityclasses").table]
    assert ["system-cluster-critical", "2000000000"] in classes and ["system-node-critical", "2000001000"] in classes
    assert kubectl("api-versions").lines[-1] == "v1"
    names = [row[0] for row in kubectl("get", "ns").table]
    assert {"default", "kube-node-lease", "kube-public", "kube-system", kubectl.namespace} <= set(names)
    assert names == sorted(names)


def test_nodes(kubectl: Kubectl, cluster: FakeCluster) -> None:
    head, row = kubectl("get", "nodes", "-o", "wide").lines
    assert re.split(r"\s{2,}", head) == [
        "NAME", "STATUS", "ROLES", "AGE", "VERSION",
        "INTERNAL-IP", "EXTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME",
    ]  # fmt: skip
    cells = re.split(r"\s{2,}", row)
    kernel = "6.1.0-play" if cluster.profile == "documents" else "6.1.0-play (amd64)"
    assert cells[:3] == [NODE, "Ready", "<none>"]
    assert cells[4:] == [
        f"v{cluster.release}.0+play", "127.0.0.1", "<none>", "Plimsoll Playground", kernel, "fake://1.0",
    ]  # fmt: skip
    assert kubectl("get", "node", NODE, "-o", "name").out == f"node/{NODE}\n"
    assert kubectl("get", "leases", "-n", "kube-node-lease").table[0][:2] == [NODE, NODE]


def test_pod_tables(kubectl: Kubectl) -> None:
    assert kubectl("get", "pods").err.strip() == f"No resources found in {kubectl.namespace} namespace."
    running(
        kubectl, pod("a", labels={"app": "x"}), pod("b", guaranteed("b", "100m", "32Mi"), guaranteed("c", "1", "1Gi"))
    )
    head, first, second = kubectl("get", "pods", "-o", "wide").lines
    assert re.split(r"\s{2,}", head) == [
        "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES",
    ]  # fmt: skip
    assert first.split()[:4] == ["a", "1/1", "Running", "0"]
    assert second.split()[:4] == ["b", "2/2", "Running", "0"]
    assert second.split()[5:] == ["10.0.0.1", NODE, "<none>", "<none>"]
    assert kubectl("get", "pods", "--show-labels").table[0][-1] == "app=x"
    assert kubectl("get", "pods", "-L", "app").table[0][-1] == "x"
    assert [row[1] for row in kubectl("get", "pods", "-A").table if row[0] == kubectl.namespace] == ["a", "b"]
    classes = "{range .items[*]}{.metadata.name}={.status.qosClass} {end}"
    assert kubectl("get", "pods", "-o", f"jsonpath={classes}").out == "a=Burstable b=Guaranteed "
    assert kubectl("get", "pods", "-o", "custom-columns=N:.metadata.name,C:.status.qosClass").table[1] == [
        "b",
        "Guaranteed",
    ]


def test_selecting_and_sorting(kubectl: Kubectl) -> None:
    running(kubectl, pod("a", labels={"app": "x"}), pod("b", labels={"app": "y"}), pod("c"))

    def names(*words: str) -> list[str]:
        return kubectl("get", "pods", "-o", "name", *words).lines

    assert names("-l", "app=x") == ["pod/a"]
    assert names("-l", "app in (x,y)", "--field-selector", "status.phase=Running,metadata.name!=a") == ["pod/b"]
    assert names("-l", "!app") == ["pod/c"]
    assert names("--field-selector", f"spec.nodeName={NODE}") == ["pod/a", "pod/b", "pod/c"]
    assert names("--chunk-size=1") == ["pod/a", "pod/b", "pod/c"]
    assert [row[0] for row in kubectl("get", "pods", "--sort-by=.metadata.name").table] == ["a", "b", "c"]
    items = json.loads(kubectl("get", "pods", "-l", "app=x", "-o", "json").out)["items"]
    assert [(each["kind"], each["metadata"]["name"]) for each in items] == [("Pod", "a")]
    said = kubectl.refused("get", "pods", "--field-selector", "foo.bar=1")
    assert said == (
        'Error from server (BadRequest): Unable to find "/v1, Resource=pods" that match label selector "", '
        'field selector "foo.bar=1": field label not supported: foo.bar'
    )
    assert kubectl.refused("get", "pod", "zz") == 'Error from server (NotFound): pods "zz" not found'
    assert kubectl.refused("get", "zz") == 'error: the server doesn\'t have a resource type "zz"'


def test_describe_pod(kubectl: Kubectl) -> None:
    running(kubectl, pod("demo", guaranteed("demo", "500m", "64Mi", command=["sleep", "1000"])))
    text = kubectl("describe", "pod", "demo").out
    squeezed = re.sub(r"[ \t]+", " ", text)
    for line in (
        "Name: demo",
        f"Namespace: {kubectl.namespace}",
        f"Node: {NODE}/127.0.0.1",
        "Status: Running",
        "QoS Class: Guaranteed",
        " Limits:\n cpu: 500m\n memory: 64Mi\n Requests:\n cpu: 500m\n memory: 64Mi\n",
        " Ready True",
        " PodScheduled True",
        "Tolerations: node.kubernetes.io/not-ready:NoExecute op=Exists for 300s",
    ):
        assert line in squeezed, f"{line!r} is not in\n{text}"
    assert re.search(
        rf"Normal +Scheduled +\S+ +default-scheduler +Successfully assigned {kubectl.namespace}/demo to {NODE}", text
    )


def test_describe_node(kubectl: Kubectl) -> None:
    running(kubectl, pod("demo", guaranteed("demo", "3100m", "4Gi")))
    text = kubectl("describe", "node", NODE).out
    rows = {line.split()[0]: re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()}
    assert rows["cpu"][0] == "cpu"
    assert re.search(
        rf"(?m)^  {kubectl.namespace} +demo +3100m \(20%\) +3100m \(20%\) +4Gi \(12%\) +4Gi \(12%\) +\d+s$", text
    )
    allocated = text.partition("Allocated resources:")[2].partition("Events:")[0]
    assert "  Resource           Requests" in allocated
    cpu = re.search(r"(?m)^  cpu +(\S+) \((\d+)%\) +(\S+) \((\d+)%\)$", allocated)
    assert cpu is not None and int(cpu[2]) >= 20, allocated
    assert re.search(r"(?m)^  ephemeral-storage +0 \(0%\) +0 \(0%\)$", allocated)
    squeezed = re.sub(r"[ \t]+", " ", text)
    for line in (
        f"Lease:\n HolderIdentity: {NODE}\n",
        "Taints: <none>",
        " MemoryPressure False ",
        "KubeletReady kubelet is posting ready status",
        "Capacity:\n cpu: 16\n ephemeral-storage: 100Gi\n memory: 32Gi\n pods: 110\n",
        "Allocatable:\n cpu: 15500m\n",
        " Container Runtime Version: fake://1.0",
    ):
        assert line in squeezed, f"{line!r} is not in\n{text}"


def test_explain(kubectl: Kubectl) -> None:
    text = kubectl("explain", "pod.spec.containers.resources").out
    assert re.search(r"KIND: +Pod\nVERSION: +v1\n\nFIELD: resources <ResourceRequirements>\n", text), text
    assert re.search(r"  limits\t<map\[string\]Quantity>\n", text)
    assert re.search(r"  requests\t<map\[string\]Quantity>\n", text)
    assert "  containers\t<[]Container> -required-\n" in kubectl("explain", "pod.spec").out
    assert re.search(r"GROUP: +apps\nKIND: +Deployment\nVERSION: +v1\n", kubectl("explain", "deployments").out)
    assert 'field "zz" does not exist' in kubectl.refused("explain", "pod.zz")


def test_top(kubectl: Kubectl) -> None:
    running(kubectl, pod("demo", container("one"), container("two")))
    rows = until(lambda: kubectl.run("top", "pod", "demo", "--containers").table)
    assert [row[:2] for row in rows] == [["demo", "one"], ["demo", "two"]]
    assert all(re.fullmatch(r"2[4-7]m", row[2]) and row[3] == "10Mi" for row in rows), rows
    whole = kubectl("top", "pod").lines
    assert whole[0].split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert re.fullmatch(r"demo +5[0-3]m +20Mi", whole[1].strip()), whole
    head, node = kubectl("top", "node").lines
    assert head.split() == ["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]
    assert re.fullmatch(rf"{NODE} +12[45]\dm +8% +1536Mi +4%", node.strip()), node
    for version in ("metrics.k8s.io/v1", "metrics.k8s.io/v1beta1"):
        raw = kubectl("get", "--raw", f"/apis/{version}/namespaces/{kubectl.namespace}/pods/demo")
        metrics = json.loads(raw.out)
        assert (metrics["kind"], metrics["apiVersion"]) == ("PodMetrics", version)
        assert [each["name"] for each in metrics["containers"]] == ["one", "two"]
        assert metrics["containers"][0]["usage"]["memory"] == "10240Ki"
    assert json.loads(kubectl("get", "--raw", "/apis/metrics.k8s.io/v1/nodes").out)["apiVersion"] == "metrics.k8s.io/v1"


def test_raw_paths(kubectl: Kubectl) -> None:
    assert kubectl("get", "--raw", "/readyz").out == "ok"
    assert "[+]etcd ok" in kubectl("get", "--raw", "/readyz?verbose").out
    assert json.loads(kubectl("get", "--raw", "/api/v1/namespaces/default").out)["metadata"]["name"] == "default"
    summary = json.loads(kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/stats/summary").out)
    assert summary["node"]["cpu"]["usageNanoCores"] == 1_250_000_000
    assert "apiserver_request_total" in kubectl("get", "--raw", "/metrics").out


def test_who_am_i(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").out == "yes\n"
    assert kubectl("auth", "can-i", "*", "*", "--all-namespaces").out == "yes\n"
    listed = kubectl("auth", "can-i", "--list").out.splitlines()
    assert listed[0].split("  ")[0] == "Resources"
    assert [line.split() for line in listed[1:]] == [["*.*", "[]", "[]", "[*]"], ["[*]", "[]", "[*]"]]
    assert ["Username", "admin"] in kubectl("auth", "whoami").table


def test_a_viewer(kubectl: Kubectl, cluster: FakeCluster, tmp_path: Path) -> None:
    config = tmp_path / "viewer.kubeconfig"
    config.write_bytes(cluster.token("--user", kubectl.namespace, "--role", "viewer"))
    viewer = Kubectl(kubectl.binary, config, tmp_path)
    assert ["Username", kubectl.namespace] in viewer("auth", "whoami").table
    assert viewer("auth", "can-i", "get", "pods").out == "yes\n"
    assert viewer.run("auth", "can-i", "create", "pods").out == "no\n"
    assert viewer("get", "nodes", "-o", "name").out == f"node/{NODE}\n"
    assert viewer.refused("create", "configmap", "c").startswith(
        f'error: failed to create configmap: configmaps is forbidden: User "{kubectl.namespace}" cannot create '
        'resource "configmaps" in API group "" in the namespace "default"'
    )
    assert viewer.refused("label", "node", NODE, "a=b") == (
        f'Error from server (Forbidden): nodes "{NODE}" is forbidden: User "{kubectl.namespace}" cannot patch resource '
        '"nodes" in API group "" at the cluster scope'
    )


def test_events(kubectl: Kubectl) -> None:
    running(kubectl, pod("demo"))
    (row,) = kubectl("get", "events").lines[1:]
    assert re.fullmatch(
        rf"\S+ +Normal +Scheduled +pod/demo +Successfully assigned {kubectl.namespace}/demo to {NODE}", row
    )
    assert kubectl("events", "--for", "pod/demo").lines[-1].split()[1:4] == ["Normal", "Scheduled", "Pod/demo"]
    wide = kubectl("get", "events", "-o", "wide").lines[0]
    assert re.split(r"\s{2,}", wide) == [
        "LAST SEEN", "TYPE", "REASON", "OBJECT", "SUBOBJECT", "SOURCE", "MESSAGE", "FIRST SEEN", "COUNT", "NAME",
    ]  # fmt: skip


def test_watching(kubectl: Kubectl) -> None:
    running(kubectl, pod("before"))
    with kubectl.background("get", "pods", "-w") as watch:
        watch.wait_for(lambda lines: any(line.startswith("before ") for line in lines))  # it has listed
        running(kubectl, pod("demo"))
        watch.wait_for(lambda lines: any(" Running " in line for line in lines))
        kubectl("delete", "pod", "demo")
        kubectl("apply", "-f", "-", stdin=pod("other"))
        lines = watch.wait_for(lambda lines: any(re.match("other .* Running", line) for line in lines))
        assert watch.process.poll() is None, "the stream stays open"
    shown = [line.split()[2] for line in lines if line.startswith("demo ")]
    order = [status for index, status in enumerate(shown) if shown.index(status) == index]
    assert order[0] == "Pending"
    assert order[-3:] == ["Running", "Terminating", "Completed"], lines
