"""Plimsoll's verbs beside kubectl's, on the same objects: the same text and the same exit code."""

from __future__ import annotations

import json

import pytest

from tests.e2e.fake_cluster import FakeCluster
from tests.e2e.kubectl import Kubectl, Result
from tests.e2e.manifests import container, pod
from tests.e2e.verbs import Verbs
from tests.e2e.waiting import until


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
    ("-o", "jsonpath-as-json={.items[*].metadata.name}"),
    ("nothing",),
    ("nothing", "three", "none-either"),
    ("nothing", "--ignore-not-found"),
    ("-l", "no=such"),
]  # fmt: skip


def test_get(verbs: Verbs, kubectl: Kubectl) -> None:
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
