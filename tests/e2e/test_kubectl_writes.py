"""What real kubectl changes: create, apply, patch, edit, replace, delete, and what it says about it (05 B5, B6, B11)."""

from __future__ import annotations

import json
import re

from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import container, guaranteed, pod, together
from tests.e2e.waiting import until

KUBECTL_PAIRS_TESTED = 1

POLICY = """
apiVersion: v1
kind: LimitRange
metadata: {name: lr}
spec:
  limits:
  - type: Container
    default: {cpu: 200m, memory: 64Mi}
    defaultRequest: {cpu: 100m}
    max: {cpu: "1"}
"""


def field(kubectl: Kubectl, what: str, path: str) -> str:
    return kubectl("get", what, "-o", f"jsonpath={{{path}}}").out


def watches(kubectl: Kubectl) -> int:
    """How many watch pods at present."""
    (count,) = re.findall(
        r'apiserver_longrunning_requests\{verb="watch",resource="pods"\} (\d+)', kubectl("get", "--raw", "/metrics").out
    )
    return int(count)


def test_apply_and_diff(kubectl: Kubectl) -> None:
    first = pod("web", container("web", ports=[{"containerPort": 80}], env=[{"name": "A", "value": "1"}]))
    changed = first.replace("nginx:1.25", "nginx:1.26")
    assert kubectl("apply", "-f", "-", stdin=first).out == "pod/web created\n"
    assert kubectl("apply", "-f", "-", stdin=first).out == "pod/web unchanged\n"
    assert kubectl("diff", "-f", "-", stdin=first).out == ""
    said = kubectl.run("diff", "-f", "-", stdin=changed)
    assert said.code == 1 and re.search(r"(?m)^-  - image: nginx:1.25$|^-    image: nginx:1.25$", said.out), said.out
    assert kubectl("apply", "-f", "-", "--dry-run=server", stdin=changed).out == "pod/web configured (server dry run)\n"
    assert field(kubectl, "pod/web", ".spec.containers[0].image") == "nginx:1.25"
    assert kubectl("apply", "-f", "-", stdin=changed).out == "pod/web configured\n"
    assert field(kubectl, "pod/web", ".spec.containers[0].image") == "nginx:1.26"
    assert kubectl("delete", "-f", "-", "--now", stdin=first).out.startswith('pod "web" deleted')


def test_server_side_apply(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    settings = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}})
    assert kubectl(*apply, stdin=pod("web")).out == "pod/web serverside-applied\n"
    assert kubectl(*apply, stdin=pod("web")).out == "pod/web serverside-applied\n"
    kubectl("apply", "-f", "-", stdin=pod("old"))
    assert kubectl(*apply, stdin=pod("old")).out == "pod/old serverside-applied\n"
    managers = kubectl(
        "get", "pod", "old", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}"
    )
    assert "kubectl" in managers.out.split() and "kubectl-client-side-apply" not in managers.out.split()
    kubectl(*apply, stdin=settings)
    said = kubectl.refused(*apply, "--field-manager=other", stdin=settings.replace('"1"', '"2"'))
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .data.a' in said, said
    kubectl(*apply, "--field-manager=other", "--force-conflicts", stdin=settings.replace('"1"', '"2"'))
    assert field(kubectl, "configmap/c", ".data.a") == "2"


def test_create_and_replace(kubectl: Kubectl) -> None:
    assert kubectl("create", "-f", "-", stdin=pod("web")).out == "pod/web created\n"
    said = kubectl.refused("create", "-f", "-", stdin=pod("web"))
    assert said == 'Error from server (AlreadyExists): error when creating "STDIN": pods "web" already exists'
    assert (
        kubectl("create", "--dry-run=server", "-f", "-", stdin=pod("dry")).out == "pod/dry created (server dry run)\n"
    )
    assert kubectl.refused("get", "pod", "dry") == 'Error from server (NotFound): pods "dry" not found'
    kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=120s")
    live = kubectl("get", "pod", "web", "-o", "json").out
    newer = live.replace("nginx:1.25", "nginx:1.26")
    assert kubectl("replace", "-f", "-", stdin=newer).out == "pod/web replaced\n"
    assert field(kubectl, "pod/web", ".spec.containers[0].image") == "nginx:1.26"
    assert kubectl.refused("replace", "-f", "-", stdin=live) == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on pods "web": '
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    newer = pod("web", labels={"v": "2"})
    uid = field(kubectl, "pod/web", ".metadata.uid")
    out = kubectl("replace", "--force", "-f", "-", stdin=newer).lines
    assert out[0].startswith('pod "web" deleted') and out[-1] == "pod/web replaced"
    assert field(kubectl, "pod/web", ".metadata.uid") != uid
    assert kubectl("run", "quick", "--image=nginx:1.25").out == "pod/quick created\n"
    assert kubectl("set", "image", "pod/quick", "quick=nginx:1.26").out == "pod/quick image updated\n"


def test_create_by_words(kubectl: Kubectl) -> None:
    """The bodies of these are protobuf (05 B2)."""
    class_name = f"class-{kubectl.namespace}"
    assert kubectl("create", "namespace", f"{kubectl.namespace}-more").out.endswith("-more created\n")
    assert kubectl("create", "configmap", "c", "--from-literal=a=1").out == "configmap/c created\n"
    assert kubectl("create", "quota", "q", "--hard=cpu=1,pods=3").out == "resourcequota/q created\n"
    made = kubectl("create", "priorityclass", class_name, "--value=10", "--description=ten")
    assert made.out == f"priorityclass.scheduling.k8s.io/{class_name} created\n"
    assert kubectl("create", "serviceaccount", "sa").out == "serviceaccount/sa created\n"
    assert kubectl("get", "cm", "c").table[0][:2] == ["c", "1"]
    assert kubectl("get", "pc", class_name).table[0][:3] == [class_name, "10", "false"]
    until(lambda: "q      cpu: 0/1, pods: 0/3 " in kubectl("get", "quota", "q").out)
    rows = [line.split() for line in kubectl("describe", "quota", "q").lines]
    assert ["cpu", "0", "1"] in rows and ["pods", "0", "3"] in rows


def test_quota_and_limit_range(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "q", "--hard=cpu=500m,pods=3")
    assert kubectl("create", "-f", "-", stdin=POLICY).out == "limitrange/lr created\n"
    until(lambda: "pods: 0/3" in kubectl("get", "quota", "q").out)
    rows = [line.split() for line in kubectl("describe", "limits", "lr").lines]
    assert ["Container", "cpu", "-", "1", "100m", "200m", "-"] in rows
    kubectl("run", "small", "--image=nginx:1.25")
    assert field(kubectl, "pod/small", ".spec.containers[0].resources") == (
        '{"limits":{"cpu":"200m","memory":"64Mi"},"requests":{"cpu":"100m","memory":"64Mi"}}'
    )
    where = 'Error from server (Forbidden): error when creating "STDIN": pods "big" is forbidden:'
    said = kubectl.refused("create", "-f", "-", stdin=pod("big", guaranteed("c", "2", "1Gi")))
    assert said == f"{where} maximum cpu usage per Container is 1, but limit is 2"
    said = kubectl.refused("create", "-f", "-", stdin=pod("big", guaranteed("c", "600m", "1Gi")))
    assert said == f"{where} exceeded quota: q, requested: cpu=600m, used: cpu=100m, limited: cpu=500m"
    assert "cpu: 100m/500m, pods: 1/3" in kubectl("get", "quota", "q").out
    kubectl("delete", "pod", "small", "--now")
    until(lambda: "cpu: 0/500m, pods: 0/3" in kubectl("get", "quota", "q").out)


def test_patches(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=pod("web"))
    image = '{"spec":{"containers":[{"name":"web","image":"nginx:1.27"}]}}'
    assert kubectl("patch", "pod", "web", "-p", image).out == "pod/web patched\n"
    assert kubectl("patch", "pod", "web", "-p", image).out == "pod/web patched (no change)\n"
    assert field(kubectl, "pod/web", ".metadata.generation") == "2"
    merge = '{"metadata":{"labels":{"a":"1","b":"2"}}}'
    assert kubectl("patch", "pod", "web", "--type=merge", "-p", merge).out == "pod/web patched\n"
    steps = '[{"op":"test","path":"/metadata/labels/a","value":"1"},{"op":"remove","path":"/metadata/labels/b"}]'
    assert kubectl("patch", "pod", "web", "--type=json", "-p", steps).out == "pod/web patched\n"
    assert field(kubectl, "pod/web", ".metadata.labels") == '{"a":"1"}'
    said = kubectl.refused("patch", "pod", "web", "--type=json", "-p", steps)
    assert said == "The request is invalid: the server rejected our request due to an error in our request"
    said = kubectl.refused("patch", "pod", "web", "-p", '{"metadata":{"resourceVersion":"1"}}')
    assert said == (
        'Error from server (Conflict): Operation cannot be fulfilled on pods "web": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    status = '{"status":{"message":"hello"}}'
    assert (
        kubectl("patch", "pod", "web", "--subresource=status", "--type=merge", "-p", status).out == "pod/web patched\n"
    )
    assert kubectl("get", "pod", "web", "--subresource=status", "-o", "jsonpath={.status.message}").out == "hello"
    said = kubectl.refused("patch", "pod", "web", "-p", '{"spec":{"nodeName":"other"}}')
    assert said.startswith(
        'The Pod "web" is invalid: spec: Forbidden: pod updates may not change fields other than '
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`"
    )


def test_edit(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=pod("web"))
    edit = {"EDITOR": "sed -i s/nginx:1.25/nginx:1.26/"}
    assert kubectl("edit", "pod", "web", env=edit).out == "pod/web edited\n"
    assert field(kubectl, "pod/web", ".spec.containers[0].image") == "nginx:1.26"
    unchanged = kubectl("edit", "pod", "web", env={"EDITOR": "true"})
    assert "Edit cancelled, no changes made." in unchanged.out + unchanged.err


def test_labels_and_annotations(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=pod("web"))
    assert kubectl("label", "pod", "web", "tier=front").out == "pod/web labeled\n"
    assert kubectl.refused("label", "pod", "web", "tier=back") == (
        "error: 'tier' already has a value (front), and --overwrite is false"
    )
    assert kubectl("label", "pod", "web", "tier=back", "--overwrite").out == "pod/web labeled\n"
    assert kubectl("get", "pods", "-l", "tier=back", "-o", "name").out == "pod/web\n"
    assert kubectl("label", "pod", "web", "tier-").out == "pod/web unlabeled\n"
    assert kubectl("annotate", "pod", "web", "note=hello").out == "pod/web annotated\n"
    assert field(kubectl, "pod/web", ".metadata.annotations.note") == "hello"
    assert kubectl.refused("label", "pod", "web", "x=a b").startswith("error: invalid label value")


def test_deployment(kubectl: Kubectl) -> None:
    assert (
        kubectl("create", "deployment", "d", "--image=nginx:1.25", "--replicas=2").out == "deployment.apps/d created\n"
    )
    kubectl("wait", "deployment/d", "--for=condition=Available", "--timeout=120s")
    until(lambda: kubectl("get", "deploy", "d").table[0][1:4] == ["2/2", "2", "2"])
    assert kubectl("get", "rs").table[0][1:4] == ["2", "2", "2"]
    assert kubectl("scale", "deploy", "d", "--replicas=3").out == "deployment.apps/d scaled\n"
    until(lambda: kubectl("get", "deploy", "d").table[0][1] == "3/3")
    victim = kubectl("get", "pods", "-l", "app=d", "-o", "name").lines[0]
    kubectl("delete", victim, "--now")
    until(lambda: kubectl("get", "deploy", "d").table[0][1] == "3/3")
    assert victim not in kubectl("get", "pods", "-o", "name").lines
    assert kubectl("set", "image", "deploy/d", "nginx=nginx:1.26").out == "deployment.apps/d image updated\n"
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/d", "--timeout=120s").out
    assert re.search(
        r"Replicas: +3 desired \| 3 updated \| 3 total \| 3 available", kubectl("describe", "deploy", "d").out
    )
    assert kubectl("scale", "deploy", "d", "--replicas=0", "--current-replicas=3").out == "deployment.apps/d scaled\n"
    assert kubectl("delete", "deploy", "d").out.startswith('deployment.apps "d" deleted')
    until(lambda: kubectl("get", "rs,pods", "-o", "name").out == "")


def test_job(kubectl: Kubectl) -> None:
    assert kubectl("create", "job", "j", "--image=busybox:1", "--", "true").out == "job.batch/j created\n"
    assert kubectl("wait", "job/j", "--for=condition=Complete", "--timeout=120s").out == "job.batch/j condition met\n"
    row = kubectl("get", "jobs").table[0]
    assert (row[0], row[-3]) == ("j", "1/1")
    assert kubectl("get", "pods").table[0][1:3] == ["0/1", "Completed"]


def test_deleting(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=together(*map(pod, ("a", "b", "c", "d"))))
    kubectl("wait", "pods", "--all", "--for=condition=Ready", "--timeout=120s")
    before = watches(kubectl)
    with kubectl.background("wait", "pod/a", "--for=delete", "--timeout=120s") as waiting:
        until(lambda: watches(kubectl) > before)
        assert re.fullmatch(r'pod "a" deleted( from \S+ namespace)?\n', kubectl("delete", "pod", "a").out)
        waiting.wait_for(lambda lines: lines == ["pod/a condition met"])
    forced = kubectl("delete", "pod", "b", "--force", "--grace-period=0")
    assert re.fullmatch(r'pod "b" force deleted( from \S+ namespace)?\n', forced.out)
    assert forced.err.startswith("Warning: Immediate deletion does not wait for confirmation")
    assert kubectl("delete", "pod", "c", "--wait=false").out.startswith('pod "c" deleted')
    assert kubectl("delete", "pods", "--all").out.splitlines()[-1].startswith('pod "d" deleted')
    until(lambda: kubectl("get", "pods", "-o", "name").out == "")
    assert kubectl.refused("delete", "pod", "a") == 'Error from server (NotFound): pods "a" not found'
    assert kubectl("delete", "pod", "a", "--ignore-not-found").out == ""
    other = f"{kubectl.namespace}-x"
    kubectl("create", "ns", other)
    kubectl("run", "p", "--image=nginx:1.25", "-n", other)
    assert kubectl("delete", "ns", other).out.startswith(f'namespace "{other}" deleted')
    assert kubectl.refused("get", "ns", other) == f'Error from server (NotFound): namespaces "{other}" not found'
    assert kubectl.refused("delete", "ns", "default") == (
        'Error from server (Forbidden): namespaces "default" is forbidden: this namespace may not be deleted'
    )


def test_bad_manifests(kubectl: Kubectl) -> None:
    bogus = pod("x", container("c", bogus=1))
    said = kubectl.refused("create", "-f", "-", stdin=bogus)
    assert said == (
        'Error from server (BadRequest): error when creating "STDIN": Pod in version "v1" cannot be handled as a Pod: '
        'strict decoding error: unknown field "spec.containers[0].bogus"'
    )
    warned = kubectl("create", "--validate=warn", "-f", "-", stdin=bogus)
    assert warned.err.strip() == 'Warning: unknown field "spec.containers[0].bogus"'
    assert kubectl("create", "--validate=ignore", "-f", "-", stdin=bogus.replace('"x"', '"y"')).err == ""
    over = pod("z", container("c", "2", limits={"cpu": "1"}))
    assert kubectl.refused("create", "-f", "-", stdin=over) == (
        'The Pod "z" is invalid: spec.containers[0].resources.requests: Invalid value: "2": '
        "must be less than or equal to cpu limit of 1"
    )
    policy = pod("z", container("c", resizePolicy=[{"resourceName": "cpu", "restartPolicy": "Sometimes"}]))
    assert kubectl.refused("create", "-f", "-", stdin=policy) == (
        'The Pod "z" is invalid: spec.containers[0].resizePolicy: Unsupported value: "Sometimes": '
        'supported values: "NotRequired", "RestartContainer"'
    )
    lost = kubectl.refused("create", "-n", "nowhere", "-f", "-", stdin=pod("z"))
    assert lost == 'Error from server (NotFound): error when creating "STDIN": namespaces "nowhere" not found'
