"""Finding pods in documents: kinds, lists, templates, and the way back to the user's field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.codec.manifests.manifests import FoundPod, Passed, found_pods, path_steps, written_path
from plimsoll.rules.model.objects import POD_TEMPLATES
from tests.examples import examples

SPEC = {"containers": [{"name": "c", "image": "i"}]}


def pod(name: str = "p", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": SPEC, **fields}


def templated(kind: str, name: str = "web", **spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": kind, "metadata": {"name": name, "namespace": "shop"}}
    holder = document
    for step in POD_TEMPLATES[kind]:
        holder = holder.setdefault(step, {})
    holder["spec"] = SPEC
    document.setdefault("spec", {}).update(spec)
    return document


def only(document: Any) -> FoundPod:
    (found,) = found_pods(document)
    assert isinstance(found, FoundPod)
    return found


BASES = [
    ("Deployment", "spec.template.spec"),
    ("ReplicaSet", "spec.template.spec"),
    ("StatefulSet", "spec.template.spec"),
    ("DaemonSet", "spec.template.spec"),
    ("ReplicationController", "spec.template.spec"),
    ("Job", "spec.template.spec"),
    ("CronJob", "spec.jobTemplate.spec.template.spec"),
    ("PodTemplate", "template.spec"),
]


@pytest.mark.parametrize(("kind", "base"), BASES, ids=[row[0] for row in BASES])
def test_templates(kind: str, base: str) -> None:
    found = only(templated(kind))
    assert (found.base, found.title) == (base, f"{kind.lower()}/web")
    assert found.document["spec"] == SPEC
    assert (found.document["kind"], found.document["metadata"]) == ("Pod", {"name": "web", "namespace": "shop"})
    assert found.written("spec.containers[0].name") == f"{base}.containers[0].name"


def test_every_known_kind_is_in_the_table() -> None:
    assert {row[0] for row in BASES} == set(POD_TEMPLATES)


def test_a_pod() -> None:
    found = only(pod("web"))
    assert (found.title, found.base, found.at) == ("web", "spec", ())
    assert found.written("spec.containers[0].name") == "spec.containers[0].name"
    assert only(pod(metadata={"generateName": "web-"})).title == "web-"
    assert only({"kind": "Pod"}).title == "pod"


def test_the_template_keeps_its_own_metadata() -> None:
    document = templated("Deployment")
    document["spec"]["template"]["metadata"] = {"labels": {"a": "b"}, "name": "own"}
    assert only(document).document["metadata"] == {"name": "own", "namespace": "shop", "labels": {"a": "b"}}


LISTS = [
    ("List", {"kind": "List", "items": [pod("a"), templated("Job", "b")]}, ["a", "job/b"]),
    ("kubectl get pods -o json", {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": ""}, "items": [pod("a"), pod("b")]}, ["a", "b"]),
    ("PodList, items without kind", {"kind": "PodList", "items": [{"metadata": {"name": "a"}, "spec": SPEC}]}, ["a"]),
    ("DeploymentList", {"kind": "DeploymentList", "items": [{k: v for k, v in templated("Deployment").items() if k != "kind"}]}, ["deployment/web"]),
    ("a List in a List", {"kind": "List", "items": [{"kind": "List", "items": [pod("a")]}]}, ["a"]),
    ("empty", {"kind": "List", "items": []}, []),
]  # fmt: skip


@pytest.mark.parametrize(("document", "titles"), [row[1:] for row in LISTS], ids=[row[0] for row in LISTS])
def test_lists(document: Any, titles: list[str]) -> None:
    assert [found.title for found in found_pods(document) if isinstance(found, FoundPod)] == titles
    assert not [found for found in found_pods(document) if isinstance(found, Passed)]


def test_paths_of_items() -> None:
    first, second = found_pods({"kind": "List", "items": [pod("a"), templated("CronJob", "b")]})
    assert (first.at, first.base) == (("items", 0), "items[0].spec")
    assert second.written("spec.containers[0]") == "items[1].spec.jobTemplate.spec.template.spec.containers[0]"


PASSED = [
    ("no object", 5, "not an object", True),
    ("a list", [pod()], "not an object", True),
    ("no kind", {"metadata": {}}, "Object 'Kind' is missing", True),
    ("an empty kind", {"kind": ""}, "Object 'Kind' is missing", True),
    ("a kind that is no text", {"kind": ["Pod"]}, "Object 'Kind' is missing", True),
    ("another kind", {"kind": "Service"}, "Service has no pod template", False),
    ("a Deployment without template", {"kind": "Deployment", "spec": {}}, "Deployment without a pod template", True),
    ("a Deployment without spec", {"kind": "Deployment"}, "Deployment without a pod template", True),
    ("a CronJob whose template is a text", {"kind": "CronJob", "spec": {"jobTemplate": "x"}}, "CronJob without a pod template", True),
    ("a List without items", {"kind": "List"}, "List has no pod template", False),
    ("a List whose items are no list", {"kind": "List", "items": {}}, "List has no pod template", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "reason", "is_error"), [row[1:] for row in PASSED], ids=[row[0] for row in PASSED]
)
def test_passed(document: Any, reason: str, is_error: bool) -> None:
    (found,) = found_pods(document)
    assert isinstance(found, Passed)
    assert (found.reason, found.is_error) == (reason, is_error)


REPLICAS = [(3, 3), (0, 0), (None, 1), ("3", 1), (True, 1), (-1, 1), (2.5, 1)]


@pytest.mark.parametrize(("replicas", "count"), REPLICAS, ids=[repr(row[0]) for row in REPLICAS])
def test_replicas(replicas: Any, count: int) -> None:
    assert only(templated("Deployment", replicas=replicas)).replicas == count


PATHS = [
    ("spec.containers[0].resources.limits[cpu]", ("spec", "containers", 0, "resources", "limits", "cpu")),
    ("spec", ("spec",)),
    ("items[12].spec", ("items", 12, "spec")),
    ("metadata.annotations[kubernetes.io/config.mirror]", ("metadata", "annotations", "kubernetes.io/config.mirror")),
    ("", ()),
]


@pytest.mark.parametrize(("field", "steps"), PATHS, ids=[row[0] or "empty" for row in PATHS])
def test_path_steps(field: str, steps: tuple[str | int, ...]) -> None:
    assert path_steps(field) == steps


def test_written_path() -> None:
    assert written_path(("spec", "containers", 0, "name")) == "spec.containers[0].name"
    assert written_path(()) == ""


def test_an_error_about_the_whole_template() -> None:
    found = only(templated("Deployment"))
    assert found.written("") == "spec.template"
    assert only(pod()).written("") == ""


def test_lists_in_lists_without_end() -> None:
    """The readers take a nesting of 10000, so this must be answered, whatever the answer."""
    document: Any = pod()
    for _ in range(4000):
        document = {"kind": "List", "items": [document]}
    assert len(list(found_pods(document))) == 1


names = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=6)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(names | st.integers(0, 99), max_size=6))
def test_paths_both_ways(steps: list[str | int]) -> None:
    if not steps or isinstance(steps[0], str):
        assert path_steps(written_path(tuple(steps))) == tuple(steps)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(("Pod", "List", "Deployment", "CronJob", "PodList")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("kind", "items", "metadata", "spec", "template", "jobTemplate", "name", "replicas")), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(values)
def test_any_document_is_answered(document: Any) -> None:
    for found in found_pods(document):
        if isinstance(found, FoundPod):
            assert isinstance(found.document, dict)
            assert isinstance(found.title, str)
            assert found.title
            assert found.replicas >= 0
        else:
            assert found.reason


VERSIONS = [
    # id, apiVersion, kind, the note
    ("Pod", "v1", "Pod", None),
    ("Deployment", "apps/v1", "Deployment", None),
    ("CronJob", "batch/v1", "CronJob", None),
    ("a Pod of v2", "v2", "Pod", "Pod web: no API server has this kind in apiVersion v2, but in v1"),
    ("a Pod of apps/v1", "apps/v1", "Pod", "Pod web: no API server has this kind in apiVersion apps/v1, but in v1"),
    ("an old Deployment", "extensions/v1beta1", "Deployment",
     "Deployment web: no API server has this kind in apiVersion extensions/v1beta1, but in apps/v1"),
    ("an old CronJob", "batch/v1beta1", "CronJob",
     "CronJob web: no API server has this kind in apiVersion batch/v1beta1, but in batch/v1"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "kind", "note"), [row[1:] for row in VERSIONS], ids=[row[0] for row in VERSIONS])
def test_an_api_version_that_no_release_serves_is_named(version: str, kind: str, note: str | None) -> None:
    document = {**(pod("web") if kind == "Pod" else templated(kind)), "apiVersion": version}
    *notes, found = found_pods(document)
    assert isinstance(found, FoundPod)
    assert notes == ([] if note is None else [Passed((), note)])


RESOURCES = {"limits": {"cpu": 1}}
MISPLACED = [
    # id, kind, the path that gets the field, field, the note
    ("template", "Deployment", ("spec", "template"), "resources",
     "spec.template.resources: unknown field; it is a field of spec.template.spec"),
    ("spec", "StatefulSet", ("spec",), "priorityClassName",
     "spec.priorityClassName: unknown field; it is a field of spec.template.spec"),
    ("job of a cron job", "CronJob", ("spec", "jobTemplate", "spec"), "resources",
     "spec.jobTemplate.spec.resources: unknown field; it is a field of spec.jobTemplate.spec.template.spec"),
    ("job template", "CronJob", ("spec", "jobTemplate"), "template", "spec.jobTemplate.template: unknown field"),
    ("a field of jobs", "Job", ("spec",), "activeDeadlineSeconds", None),
    ("a field of deployments", "Deployment", ("spec",), "replicas", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "path", "field", "note"), [row[1:] for row in MISPLACED], ids=[row[0] for row in MISPLACED]
)
def test_fields_of_a_pod_above_their_place_are_named(
    kind: str, path: tuple[str, ...], field: str, note: str | None
) -> None:
    document = templated(kind)
    holder = document
    for step in path:
        holder = holder[step]
    holder[field] = RESOURCES
    *notes, found = found_pods(document)
    assert isinstance(found, FoundPod)
    assert notes == ([] if note is None else [Passed((*path, field), note, is_field=True)])


def test_a_template_of_another_api_is_not_denied() -> None:
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "spec": {"template": {"spec": SPEC}}}
    (note,) = found_pods(rollout)
    assert note == Passed((), "Rollout is not a kind of Kubernetes itself: its spec.template is not read")
