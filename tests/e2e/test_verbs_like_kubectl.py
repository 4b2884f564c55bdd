"""Plimsoll's verbs beside kubectl's, on the same objects: the same text and the same exit code."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.fake_cluster import FakeCluster, fake_cluster
from tests.e2e.kubectl import Kubectl, Result
from tests.e2e.manifests import container, pod, together
from tests.e2e.verbs import Verbs
from tests.e2e.waiting import until
from tests.unit.console import run

KUBECTL_PAIRS_TESTED = 1


@pytest.fixture
def verbs(cluster: FakeCluster, kubectl: Kubectl) -> Verbs:
    """In the namespace of `kubectl`."""
    return Verbs(cluster, kubectl.namespace)


def same(verbs: Verbs, kubectl: Kubectl, *words: str) -> Result:
    """Both must print the same, up to blanks at the ends of lines."""
    theirs, ours = kubectl.run(*words), verbs.ran(*words)
    expected = Result(theirs.code, _trimmed(theirs.out), _trimmed(theirs.err))
    assert Result(ours.code, _trimmed(ours.out), _trimmed(ours.err)) == expected, words
    return theirs


def newest(kubectl: Kubectl) -> None:
    """Older ones word some lines differently, such as those of delete before 1.34."""
    if kubectl.binary.minor < (1, 36):
        pytest.skip("compares with the texts of kubectl 1.36")


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


TEMPLATES = [
    "{.metadata.name}",
    "name={.metadata.name} {.spec.nodeName}",
    ".metadata.name",
    "{@.kind}{$.kind}{['kind']}",
    "{.metadata.labels}",
    "{.metadata.labels.app}",
    "{.metadata.annotations.example\\.com/role}",
    "{.metadata.annotations['example\\.com/role']}",
    "{.spec.containers[*].name}",
    "{.spec.containers[0].name}",
    "{.spec.containers[-1].name}",
    "{.spec.containers[-2:].name}",
    "{.spec.containers[0:2].name}",
    "{.spec.containers[0:3:2].name}",
    "{.spec.containers[:2].name}",
    "{.spec.containers[1:].name}",
    "{.spec.containers[0,2].name}",
    "{.spec.containers[*]['name', 'image']}",
    "{.spec.containers[9].name}",
    "{.spec.containers[2:1].name}",
    "{.spec.containers[0:0].name}",
    "{.spec.containers[x].name}",
    "{.spec.containers[0:2:0].name}",
    '{.spec.containers[?(@.name=="b")].image}',
    '{.spec.containers[?(@.name!="b")].name}',
    "{.spec.containers[?(@.name>'a')].name}",
    "{.spec.containers[?(@.name<='b')].name}",
    "{.spec.containers[?(@.ports)].name}",
    "{.spec.containers[?(@.ports[0].containerPort>=8080)].name}",
    "{.spec.containers[?(@.ports[0].containerPort<8080)].name}",
    "{.spec.containers[?(@.name==1)].name}",
    "{.spec.containers[?(@.name==@.image)].name}",
    '{.spec.containers[?(@.name=="a" && @.image=="x")].name}',
    "{.spec.containers[?(@.name=~'a')].name}",
    "{..containerPort}",
    "{.spec..image}",
    "{range .spec.containers[*]}{.name}={.image}{\"\\n\"}{end}",
    "{range .spec.containers[*]}{.name}:{range .ports[*]}{.containerPort},{end};{end}done",
    "{range .spec.nothing[*]}{.name}{end}after",
    "{range .spec.containers[*]}{.name} ",
    "{'quoted \\' text'}{\"\\u00e9\\t\"}",
    "{.spec.terminationGracePeriodSeconds}{.status.containerStatuses[0].ready}",
    "{.status.conditions[0].lastProbeTime}",
    "{.nothing.at.all}",
    "{.metadata.name[0]}",
    "{.metadata[?(@.a)]}",
    "{.metadata.name",
    "{nothing}",
    "{end}",
    "{.a....b}",
    "{1}{2.5}{true}",
    "{^}",
    "{'unclosed}",
    "{.spec.containers[?(@.name=='a']}",
]  # fmt: skip


def three_containers() -> str:
    made = json.loads(
        pod(
            "three",
            container("a", ports=[{"containerPort": 80}]),
            container("b", ports=[{"containerPort": 8080}, {"containerPort": 9090}]),
            container("c"),
            labels={"app": "three", "tier": "front"},
        )
    )
    made["metadata"]["annotations"] = {"example.com/role": "a <b> & c"}
    return json.dumps(made)


def test_jsonpath(verbs: Verbs, kubectl: Kubectl) -> None:
    newest(kubectl)  # many templates, for which kubectl has not changed
    verbs.apply(three_containers())
    verbs.running("three")
    differ = []
    for template in TEMPLATES:
        words = ("get", "pod", "three", "-o", f"jsonpath={template}")
        theirs, ours = kubectl.run(*words), verbs.ran(*words)
        # kubectl appends the whole object to an error of execution.
        about = theirs.err.replace("Error executing template: ", "").partition(". Printing more information")[0].strip()
        if (ours.out, ours.err.strip(), ours.code) != (theirs.out, about, theirs.code):
            differ.append((template, ours, (theirs.code, theirs.out, about)))
    assert not differ, "\n".join(map(str, differ))


GETS = [
    ("-o", "custom-columns=NAME:.metadata.name,C:.spec.containers[*].name,N:.nothing"),
    ("-o", "custom-columns=A:{.metadata.labels},PORT:.spec.containers[1].ports", "--no-headers"),
    ("-o", "custom-columns=NAME"),
    ("-o", "name"),
    ("--show-labels", "-L", "app,tier"),
    ("-L", "example.com/none", "-l", "app=three"),
    ("--sort-by", ".metadata.name", "-o", "name"),
    ("--sort-by", "{.spec.containers[0].resources.requests.memory}", "-o", "custom-columns=NAME:.metadata.name"),
    ("--field-selector", "metadata.name=three", "--no-headers"),
    ("-o", "wide", "-l", "app!=three"),
    ("-o", "jsonpath={.items[*].metadata.name}"),
    ("-o=jsonpath={.items[*].metadata.name}", "-l=app=three"),
    ("-o", "jsonpath-as-json={.items[*].metadata.name}"),
    ("nothing",),
    ("nothing", "three", "none-either"),
    ("three", "pod-9", "--no-headers=false"),
    ("nothing", "--ignore-not-found"),
    ("-l", "no=such"),
]  # fmt: skip


def test_get(verbs: Verbs, kubectl: Kubectl, tmp_path: Path) -> None:
    verbs.apply(
        three_containers(),
        pod("pod-10", container("c", memory="1Gi")),
        pod("pod-9", container("c", memory="900Mi")),
    )
    for name in ("three", "pod-10", "pod-9"):
        verbs.running(name)
    for words in GETS:
        # An age may change between the two.
        until(lambda words=words: _both_same(verbs, kubectl, "get", "pods", *words))
    same(verbs, kubectl, "get", "pod/three", "node/n1", "-o", "name")
    (tmp_path / "pods.json").write_text(together(three_containers(), pod("pod-9")))
    for words in ("get -o name", "label --dry-run=client a=b", "wait --for=condition=Ready", "annotate --list"):
        same(verbs, kubectl, *words.split(), "-f", str(tmp_path / "pods.json"))
    for text in ("NAME  KIND\n.metadata.name  {.kind}\n", "", "A B\n.kind\n"):
        (tmp_path / "columns").write_text(text)
        same(verbs, kubectl, "get", "pods", "-o", f"custom-columns-file={tmp_path / 'columns'}")
    (tmp_path / "template").write_text("{.metadata.name}")
    same(verbs, kubectl, "get", "pod", "three", "-o", f"jsonpath-file={tmp_path / 'template'}")
    for words in (["three"], []):
        ours, theirs = (each("get", "pods", *words, "-o", "json") for each in (verbs, kubectl))
        assert json.loads(ours) == json.loads(theirs.out)


def _both_same(verbs: Verbs, kubectl: Kubectl, *words: str) -> bool:
    try:
        same(verbs, kubectl, *words)
    except AssertionError:
        if verbs.ran(*words).out == verbs.ran(*words).out:  # no age changes
            same(verbs, kubectl, *words)
        return False
    return True


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "d"}}},
}

# What does not change anything, so that both clients find the same.
READS = [
    "wait --for=condition=Ready pod/three --timeout=60s",
    "wait --for=condition=Nothing pod/three --timeout=1s",
    "wait --for=condition=Ready=false pod/three --timeout=1s",
    "wait --for=jsonpath={.status.phase}=Running pod/three",
    "wait --for=jsonpath={.status.phase}=Failed pod/three --timeout=1s",
    "wait --for=delete pod/nothing",
    "wait --for=delete pod/three --timeout=1s",
    "wait --for=create pod/three",
    "wait --for=condition=Ready pod/nothing",
    "wait --for=condition=Ready pod -l no=such",
    "wait --for=nothing pod/three",
    "label pod three a=b --dry-run=client",
    "label pod three app=x",
    "label pod three app=x --overwrite --dry-run=server",
    "label pod three app- --dry-run=client",
    "label pod three nothing- --dry-run=server",
    "label pod nothing a=b",
    "label pods --all a=b --dry-run=server",
    "label pod three a_=b",
    "label pod three",
    "label pod three a=b --dry-run=server -o name",
    "annotate pod three a=b --dry-run=server",
    "annotate pod three example.com/role=x",
    "annotate pod three example.com/role- --dry-run=client",
    "annotate pod three --list",
    "scale deployment/d --replicas=2 --dry-run=server",
    "scale deployment nothing --replicas=1",
    "scale --current-replicas=5 --replicas=2 deployment d",
    "top pods --containers --no-headers -l app=none",
    "top pod nothing",
    "cordon n1 --dry-run=client",
    "uncordon n1",
    "cordon nothing",
    "logs nothing",
    "logs three",
    "logs three -c nothing",
    "logs three b --timestamps",
    "logs three --all-containers --prefix",
    "logs -l app=three --all-containers=true --tail=1",
    "logs -l app=none",
    "logs deployment/d",
    "logs three --since=1h --tail=-1",
    "logs three -c a --since-time=then",
    "logs three -c a --since-time=2020-01-01T00:00:00Z --limit-bytes=3",
    "logs three --since=1s --since-time=2020-01-01T00:00:00Z",
    "logs three --previous",
    "create namespace other --dry-run=client",
    "create namespace default",
    "delete pod three --dry-run=server",
    "delete pod three --dry-run=client -o name",
    "delete pod nothing",
    "delete pod nothing --ignore-not-found",
    "describe pod nothing",
    "describe pods -l no=such",
    "get pads/x",
]  # fmt: skip


@pytest.fixture
def workloads(verbs: Verbs) -> None:
    verbs.apply(three_containers(), json.dumps(DEPLOYMENT))
    verbs.running("three")
    until(lambda: "1/1" in verbs("get", "deployment", "d", "--no-headers"))


@pytest.mark.usefixtures("workloads")
def test_verbs(verbs: Verbs, kubectl: Kubectl) -> None:
    newest(kubectl)
    differ = []
    for line in READS:
        theirs, ours = kubectl.run(*line.split()), verbs.ran(*line.split())
        text = ours.err.partition("; did you mean")[0]
        found = (ours.code, _trimmed(ours.out), _trimmed(text))
        # It logs some of its own difficulties, and reads containers in any order.
        about = "\n".join(each for each in theirs.err.splitlines() if not re.match(r"[IWE]\d{4} ", each))
        order = sorted if "--all-containers" in line else list
        same = order(found[1].splitlines()) == order(_trimmed(theirs.out).splitlines())
        if not same or (found[0], found[2]) != (theirs.code, _trimmed(about)):
            differ.append(f"{line}\n  {found}\n  {(theirs.code, theirs.out, theirs.err)}")
    assert not differ, "\n".join(differ)


@pytest.mark.usefixtures("workloads")
def test_top(verbs: Verbs, kubectl: Kubectl) -> None:
    """The figures change with every sample; names, columns and order do not."""
    newest(kubectl)

    def columns(text: str) -> list[list[str]]:
        return [[word for word in line.split() if not word[0].isdigit()] for line in text.splitlines()]

    for words in (["pods"], ["pods", "--containers"], ["pods", "--sum"], ["nodes"], ["node", "n1", "--no-headers"]):
        until(lambda words=words: kubectl.run("top", *words).code == 0)
        assert columns(verbs("top", *words)) == columns(kubectl("top", *words).out), words
    lines = [line.split() for line in verbs("top", "pods", "--sum", "--no-headers").splitlines()]
    *pods, rule, total = lines
    assert rule == ["________", "________"]
    shown = sum(int(each[1].removesuffix("m")) for each in pods)
    assert 0 <= shown - int(total[0].removesuffix("m")) < len(pods)  # each pod is rounded up, the sum once
    assert {each["metadata"]["name"] for each in json.loads(verbs("top", "pods", "-o", "json"))["items"]} >= {"three"}


@pytest.mark.usefixtures("workloads")
def test_changes(verbs: Verbs, kubectl: Kubectl) -> None:
    """Plimsoll changes what kubectl then reads."""
    assert verbs("label", "pod", "three", "tier=back", "--overwrite") == "pod/three labeled\n"
    assert verbs("label", "pod", "three", "tier-") == "pod/three unlabeled\n"
    assert verbs("annotate", "pod/three", "note=a b") == "pod/three annotated\n"
    read = kubectl("get", "pod", "three", "-o", "jsonpath={.metadata.labels} {.metadata.annotations.note}").out
    assert read == '{"app":"three"} a b'
    assert verbs("scale", "deployment/d", "--replicas", "2") == "deployment.apps/d scaled\n"
    assert kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}").out == "2"
    ran = verbs.ran("create", "-f", "-", stdin=pod("three"))
    assert (ran.code, ran.err) == (
        1,
        'Error from server (AlreadyExists): error when creating "<stdin>": pods "three" already exists\n',
    )
    ran = verbs.ran("delete", "pod", "three", "--force", "--grace-period=0")
    assert ran.out == f'pod "three" force deleted from {verbs.namespace} namespace\n'
    assert ran.err.startswith("Warning: Immediate deletion does not wait")
    assert kubectl.run("get", "pod", "three").code == 1
    assert verbs("apply", "-f", "-", "--wait", stdin=pod("new")) == "pod/new created\npod/new condition met\n"


@pytest.mark.parametrize("output", [[], ["-o", "json"]], ids=["table", "json"])
def test_a_watch(verbs: Verbs, output: list[str]) -> None:
    """With the type of each change; one document for each where documents are asked for."""
    verbs.apply(pod("web"))
    verbs.running("web")
    words = verbs.words("get", "pod", "web", "--watch-only", "--output-watch-events", *output)
    stop = threading.Event()

    def change() -> None:
        """Again and again: the watch begins at some time."""
        number = itertools.count()
        while not stop.wait(0.5):
            verbs("label", "pod", "web", f"n={next(number)}", "--overwrite")

    writer = threading.Thread(target=change)
    command = [str(Path(sys.executable).with_name("plimsoll")), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        writer.start()
        try:
            text = process.stdout.readline()
            while output and not text.endswith("\n}\n"):
                text += process.stdout.readline()
        finally:
            stop.set()
            writer.join()
            process.terminate()
    if output:
        event = json.loads(text)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", "web")
    else:
        assert text.split()[:2] == ["MODIFIED", "web"]


def test_get_names_for_a_shell(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs.apply(pod("web-1"), pod("web-2"), pod("other"))
    monkeypatch.setenv("_PLIMSOLL_COMPLETE", "bash_complete")

    def completed(*words: str) -> list[str]:
        line = ["plimsoll", *verbs.words(*words)]
        monkeypatch.setenv("COMP_WORDS", " ".join(line))
        monkeypatch.setenv("COMP_CWORD", str(len(line) - 1))
        return [each.removeprefix("plain,") for each in run().out.splitlines()]

    assert completed("logs", "we") == ["web-1", "web-2"]
    assert completed("exec", "we") == ["web-1", "web-2"]
    assert completed("resize", "we") == ["web-1", "web-2"]
    assert completed("get", "pod", "we") == ["web-1", "web-2"]
    assert completed("delete", "pod/we") == ["pod/web-1", "pod/web-2"]
    assert completed("describe", "po") == ["poddisruptionbudgets", "pods", "podtemplates"]
    assert completed("drain", "n") == ["n1"]


@pytest.fixture
def drained(cluster: FakeCluster, tmp_path: Path) -> Iterator[Verbs]:
    """A cluster of its own: the node is emptied."""
    with fake_cluster(tmp_path / "cluster", cluster.profile) as made:
        yield Verbs(made, "default")


@pytest.mark.parametrize("cluster", ["1.36"], indirect=True)
def test_drain(drained: Verbs) -> None:
    """A budget delays an eviction until it allows it; the node is cordoned first."""
    drained.apply(json.dumps(DEPLOYMENT), json.dumps(BUDGET), pod("web"))
    drained.running("web")
    until(lambda: "1/1" in drained("get", "deployment", "d", "--no-headers"))
    name = drained("get", "pods", "-l", "app=d", "-o", "name").strip().removeprefix("pod/")
    ran = drained.ran("drain", "n1")
    forbidden = "cannot delete Pods that declare no controller (use --force to override): default/web"
    assert (ran.code, ran.out) == (1, "node/n1 cordoned\n")
    assert ran.err == (
        f'error: unable to drain node "n1" due to error: {forbidden}, continuing command...\n'
        f"There are pending nodes to be drained:\n n1\n{forbidden}\n"
    )
    ran = drained.ran("drain", "n1", "--force", "--dry-run=server")  # no eviction is repeated
    assert (ran.code, "(will retry" in ran.err, "web evicted" in ran.out) == (1, False, False)
    ran = drained.ran("drain", "n1", "--force", "--timeout=3s")
    late = f'error when evicting pods/"{name}" -n "default": global timeout reached: 3s'
    assert ran.code == 1
    assert "pod/web evicted\n" in ran.out
    assert f'pods/"{name}" -n "default" (will retry after 5s): Cannot evict pod as it would violate' in ran.err
    assert ran.err.endswith(f"There are pending nodes to be drained:\n n1\n{late}\n")
    drained("delete", "pdb", "b")
    ran = drained.ran("drain", "n1", "--force", "--timeout=60s")
    assert (ran.code, ran.out) == (
        0,
        f"node/n1 already cordoned\nevicting pod default/{name}\npod/{name} evicted\nnode/n1 drained\n",
    )
    assert drained("uncordon", "n1") == "node/n1 uncordoned\n"
