"""Pods that differ in nothing but their names: the next ones get what the first got, as long as that is right."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.machinery.alike import READ, Key, decoded_alike
from plimsoll.api.machinery.audit import Audit, AuditFile
from plimsoll.api.machinery.cluster import prefix
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.users import AUTHENTICATED, MASTERS, User
from plimsoll.codec.schema.decode import DecodeError, decode
from plimsoll.codec.schema.schema import schema
from plimsoll.store.index import bucket_of
from tests.unit.api.api_client import MERGE, PODS, ApiClient, api, pod

ROOT_CA = "-----CA-----\n"
NAMESPACE = "/api/v1/namespaces/default"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "blockOwnerDeletion": True}
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Outcomes:
    """How many pods were prepared, and how many of them got the outcome of another one."""

    def __init__(self, ask: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = self.found = 0
        alike = ask.app.cluster.alike_pods
        find = alike.find

        def counted(key: Key) -> Any:
            outcome = find(key)
            self.asked += 1
            self.found += outcome is not None
            return outcome

        monkeypatch.setattr(alike, "find", counted)


def body(name: str, limits: Any = None, **spec: Any) -> str:
    return json.dumps({"kind": "Pod", "apiVersion": "v1", **pod(name, {"cpu": "0.1"}, limits, **spec)})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(body("NAME"), id="pod"),
        pytest.param(body("NAME", hostname="NAME"), id="name in another place"),
        pytest.param(body("NAME", hostname="NAME2"), id="another name that begins like it"),
        pytest.param(body("N").replace('"N"', '"\\u004eAME"'), id="escaped"),
        pytest.param(body("N", nodeSelector={"NAME": "x"}).replace('"N"', '"\\u004eAME"'), id="escaped, also a key"),
        pytest.param(
            body("NAME", hostname="x").replace('"hostname": "x"', '"hostname": "NA\\u004dE"'), id="once escaped"
        ),
        pytest.param(body("NAME").replace('"name": "N', '"name": "other", "name": "N', 1), id="two names"),
        pytest.param(body("NAME").replace('"metadata": {', '"metadata": {"name": "x"}, "metadata": {'), id="twice"),
        pytest.param(body("NAME").replace('"metadata": {', '"metadata": {"Name": "x", '), id="another case"),
        pytest.param(body("NAME", unknown="x"), id="unknown member"),
        pytest.param(body("NAME", hostNetwork="x"), id="wrong type"),
        pytest.param(body("NAME", containers=[{"resources": {"limits": {"cpu": "x"}}}]), id="no quantity"),
        pytest.param(body("NAME")[:-1], id="no JSON"),
        pytest.param("NAME", id="no JSON at all"),
        pytest.param(body("NAME", x="\ud800"), id="half a surrogate pair"),
        pytest.param(body("\ud800"), id="half a surrogate pair in the name"),
        pytest.param('{"spec": {"hostname": "NAME"}, "metadata": {"name": "NAME"}}', id="first in another place"),
        pytest.param('{"metadata": {"name": "NAME"}, "kind": 5}', id="no kind"),
        pytest.param(body("NAME").replace("nginx", "\udcff"), id="no text"),
        pytest.param(body("N").replace('"N"', '"\udcff"'), id="no text in the name"),
        pytest.param(body("NAME", x=1).replace('"x": 1', '"x": ' + "[" * 5000), id="deep"),
        pytest.param(body("NAME").replace('"NAME"', "5"), id="number"),
        pytest.param(body("NAME").replace('"NAME"', "null"), id="null"),
        pytest.param(body(""), id="empty name"),
        pytest.param('{"metadata": null}', id="metadata null"),
        pytest.param('{"metadata": {"generateName": "NAME"}}', id="generated"),
        pytest.param("{}", id="nothing"),
        pytest.param(body("NAME").replace('"v1"', '"v2"'), id="another version"),
    ],
)
def test_bodies_are_decoded_as_each_by_itself(text: str) -> None:
    kind = schema("v1", "Pod")
    for name in ("first", "second-ü", "first", "Pod", "c", "NAME", ""):
        data = text.replace("NAME", name).encode(errors="surrogateescape")
        both = []
        for read in (decode, decoded_alike):
            try:
                decoded = read(kind, data)
                both.append((json.dumps(decoded.document), decoded.problems))  # with the order of members
            except DecodeError as error:
                both.append((error.message, error.detail))
        assert both[0] == both[1]


async def test_a_document_that_is_shared_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = schema("v1", "Pod")
    text = body("NAME", {"memory": "64Mi"}, schedulingGates=[{"name": "g"}], volumes=[{"name": "v"}])
    read = partial(decoded_alike, kind, text.replace("NAME", "x").encode())
    fresh = json.dumps(decode(kind, text.replace("NAME", "x").encode()).document)
    async with api(tmp_path, root_ca=ROOT_CA) as ask:
        await _limit_range(ask)
        monkeypatch.setattr(ask.app.cluster.alike_pods, "find", lambda _: None)
        for name in ("a", "b"):
            await ask.ok("POST", PODS, text.replace("NAME", name).encode())
    assert read().document["spec"] is read().document["spec"], "it is shared"
    assert json.dumps(read().document) == fresh


def volume(made: Any) -> str:
    """The name of the volume with the token."""
    name: str = made["spec"]["volumes"][-1]["name"]
    return name


async def test_an_alike_pod_has_a_name_a_uid_and_times_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api(tmp_path, root_ca=ROOT_CA) as ask:
        outcomes = Outcomes(ask, monkeypatch)
        sent = pod("a", {"cpu": "0.1"}, {"memory": "64Mi"}, nodeSelector={"disk": "ssd"})
        sent["metadata"]["labels"] = {"app": "web"}
        first = await ask.ok("POST", PODS, sent)
        ask.now_s += 90
        second = await ask.ok("POST", PODS, {**sent, "metadata": {**sent["metadata"], "name": "b"}})
        assert (outcomes.asked, outcomes.found) == (2, 1)
        assert second == await ask.ok("GET", f"{PODS}/b")
        differ = {"name", "uid", "resourceVersion", "creationTimestamp"}
        for name in differ:
            assert first["metadata"].pop(name) != second["metadata"].pop(name), name
        (one,), (other,) = (each["metadata"].pop("managedFields") for each in (first, second))
        assert (one.pop("time"), other.pop("time")) == ("2026-11-16T00:00:00Z", "2026-11-16T00:01:30Z")
        assert (one, first) == (other, second)
        ask.now_s += 1
        third = await ask.ok("POST", PODS, {**sent, "metadata": {**sent["metadata"], "name": "c"}})
        assert third["metadata"]["creationTimestamp"] == "2026-11-16T00:01:31Z"


async def test_generated_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with api(tmp_path) as ask:
        outcomes = Outcomes(ask, monkeypatch)
        sent = {**pod(), "metadata": {"generateName": "web-"}}
        names = {(await ask.ok("POST", PODS, sent))["metadata"]["name"] for _ in range(3)}
        assert (len(names), outcomes.found) == (3, 2)
        assert all(name.startswith("web-") for name in names)


async def _limit_range(ask: ApiClient) -> None:
    limits = [{"type": "Container", "defaultRequest": {"cpu": "7m"}}]
    await ask.ok("POST", f"{NAMESPACE}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})


async def _account(ask: ApiClient) -> None:
    await ask.ok("PATCH", f"{NAMESPACE}/serviceaccounts/default", {"imagePullSecrets": [{"name": "s"}]}, MERGE)


async def _priority(ask: ApiClient) -> None:
    await ask.ok("POST", CLASSES, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        pytest.param(_limit_range, lambda made: made["spec"]["containers"][0]["resources"]["requests"], id="range"),
        pytest.param(_account, lambda made: made["spec"].get("imagePullSecrets"), id="account"),
        pytest.param(_priority, lambda made: made["spec"]["priority"], id="priority"),
    ],
)
async def test_what_the_cluster_adds_is_always_that_of_now(tmp_path: Path, change: Any, seen: Any) -> None:
    async with api(tmp_path) as ask:
        before = seen(await ask.ok("POST", PODS, pod("a", {"memory": "1Mi"})))
        await change(ask)
        assert seen(await ask.ok("POST", PODS, pod("b", {"memory": "1Mi"}))) != before


async def test_runtime_classes_are_those_of_now(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        made: Any = {"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "250m"}}}
        await ask.ok("POST", RUNTIME_CLASSES, made)
        sent = pod("a", runtimeClassName="kata")
        assert (await ask.ok("POST", PODS, sent))["spec"]["overhead"] == {"cpu": "250m"}
        await ask.ok("DELETE", f"{RUNTIME_CLASSES}/kata")
        assert (await ask("POST", PODS, pod("b", runtimeClassName="kata"))).code == 403


async def test_refusals_are_those_of_now(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod("a", hostPID=True))
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        await ask.ok("PATCH", NAMESPACE, {"metadata": {"labels": labels}}, MERGE)
        for _ in range(2):
            assert (await ask("POST", PODS, pod("b", hostPID=True))).code == 403
        await ask.ok("PATCH", NAMESPACE, {"metadata": {"labels": dict.fromkeys(labels)}}, MERGE)
        await ask.ok("POST", PODS, pod("b", hostPID=True))


async def test_warnings_and_annotations_of_the_audit_event_are_repeated(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.log")
    async with api(tmp_path / "state", audit=Audit(file)) as ask:
        labels = {f"pod-security.kubernetes.io/{level}": "baseline" for level in ("warn", "audit")}
        await ask.ok("PATCH", NAMESPACE, {"metadata": {"labels": labels}}, MERGE)
        ports = [{"containerPort": 80, "hostPort": 80}]
        sent = pod("a", hostPID=True)
        sent["spec"]["containers"][0]["ports"] = ports  # no effect without hostNetwork
        twice = [await ask("POST", PODS, {**sent, "metadata": {"name": name}}) for name in ("a", "b")]
        assert [len(each.warnings) for each in twice] == [2, 2]
        assert twice[0].warnings == twice[1].warnings
    events = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    noted = [each["annotations"] for each in events if each["objectRef"]["resource"] == "pods"]
    assert len(noted) == 2
    assert all(any("audit-violations" in key for key in each) for each in noted)


async def test_warnings_about_one_body_are_not_those_of_another(tmp_path: Path) -> None:
    """Members that no pod has, or has twice, are in the body and not in the document."""
    async with api(tmp_path) as ask:
        doubled = json.dumps(pod("a", dnsPolicy="Default")).replace('"spec": {', '"spec": {"dnsPolicy": "Default", ')
        assert (await ask("POST", PODS, doubled.encode())).warnings == ['299 - "duplicate field \\"spec.dnsPolicy\\""']
        assert not (await ask("POST", PODS, pod("b", dnsPolicy="Default"))).warnings


async def test_the_outcome_is_that_of_the_same_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        outcomes = Outcomes(ask, monkeypatch)
        made = [await ask.ok("POST", PODS, pod(agent), agent=agent) for agent in ("one", "other")]
        assert [each["metadata"]["managedFields"][0]["manager"] for each in made] == ["one", "other"]
        made.append(await ask.ok("POST", "/api/v1/namespaces/team/pods", pod("one"), agent="one"))
        assert [each["metadata"]["namespace"] for each in made] == ["default", "default", "team"]
        ask.user = User("second", frozenset({MASTERS, AUTHENTICATED}))  # Pod Security may exempt users
        await ask.ok("POST", PODS, pod("again"), agent="one")
        assert (outcomes.asked, outcomes.found) == (4, 0)


@pytest.mark.parametrize("name", ["A", "a" * 254, "-"])
async def test_each_name_is_checked(tmp_path: Path, name: str) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod("a"))
        said = await ask("POST", PODS, pod(name))
        assert (said.code, said.json["reason"]) == (422, "Invalid")
        assert [each["field"] for each in said.json["details"]["causes"]] == ["metadata.name"]


async def test_each_unusual_name_has_a_warning(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        found = [(await ask("POST", PODS, pod(name))).warnings for name in ("a", "b.c", "d", "e" * 64, "f")]
        assert [len(each) for each in found] == [0, 1, 0, 1, 0]
    async with api(tmp_path / "other") as ask:
        found = [(await ask("POST", PODS, pod(name))).warnings for name in ("b.c", "d", "d.e")]
        assert [len(each) for each in found] == [1, 0, 1]


async def test_a_name_that_decides_about_volumes_is_checked(tmp_path: Path) -> None:
    """The claim of an ephemeral volume is named after the pod: at most 253 characters in all."""
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim}}]
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod("a", volumes=volumes))
        said = await ask("POST", PODS, pod("a" * 250, volumes=volumes))
        assert said.code == 422
        assert "spec.volumes[0]" in said.json["details"]["causes"][0]["field"]


async def test_a_dry_run_has_no_version_and_leaves_none(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for name in ("a", "b"):
            await ask.ok("POST", PODS, pod(name))
            tried = await ask.ok("POST", f"{PODS}?dryRun=All", pod(f"{name}-tried"))
            assert "resourceVersion" not in tried["metadata"]


async def test_webhooks_are_asked_about_each_pod(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        await ask.ok("POST", PODS, pod("a"))
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        hook = {
            "name": "all.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
        }
        await ask.ok("POST", HOOKS, {"metadata": {"name": "all"}, "webhooks": [hook]})
        for _ in range(2):
            said = await ask("POST", PODS, pod("b"))
            assert (said.code, "failed calling webhook" in said.message) == (500, True)


async def test_as_many_documents_are_kept_as_are_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with api(tmp_path, root_ca=ROOT_CA) as ask:
        outcomes = Outcomes(ask, monkeypatch)
        first = await ask.ok("POST", PODS, pod("a"))
        for number in range(64):
            await ask.ok("POST", PODS, pod(f"b{number}", nodeSelector={"n": str(number)}))
            if number == 40:
                assert volume(await ask.ok("POST", PODS, pod("again"))) == volume(first)
        assert volume(await ask.ok("POST", PODS, pod("last"))) == volume(first)
        assert outcomes.found == 2
        await ask.ok("POST", PODS, pod("c", nodeSelector={"n": "0"}))  # the oldest has gone
        assert outcomes.found == 2


async def test_a_create_reads_no_other_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it reads of stored objects decides about the outcome, so their changes must be in the key."""
    async with api(tmp_path) as ask:
        await ask.ok("POST", CLASSES, {"metadata": {"name": "high"}, "value": 1})
        await ask.ok("POST", RUNTIME_CLASSES, {"metadata": {"name": "rc"}, "handler": "rc"})
        await ask.ok("POST", f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "robot"}})
        store, read = ask.app.cluster.store, set[str]()

        def recording(name: str) -> None:
            method = getattr(store, name)

            def recorded(key: str = "", *rest: Any, **options: Any) -> Any:
                read.add(bucket_of(key))  # "": how many objects there are at all
                return method(key, *rest, **options)

            monkeypatch.setattr(store, name, recorded)

        for name in ("get", "list", "list_part", "count"):
            recording(name)
        given: dict[str, Any] = {"priorityClassName": "high", "runtimeClassName": "rc", "serviceAccountName": "robot"}
        claim: dict[str, Any] = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
        given |= {"volumes": [claim, {"name": "m", "configMap": {"name": "m"}}], "imagePullSecrets": [{"name": "s"}]}
        document = json.loads(body("first", **given))
        document["metadata"]["ownerReferences"] = [OWNER]
        await ask.ok("POST", PODS, document)
        decides, others = (
            {bucket_of(prefix(stored_resource(each))) for each in kinds} for kinds in (READ, ("pods", "resourcequotas"))
        )
        assert read - others - {""} == decides


@pytest.mark.parametrize("name", ["metadata", "name", "labels", "spec"])
async def test_a_pod_with_the_name_of_a_field(tmp_path: Path, name: str) -> None:
    """The first text that is its name is no value."""
    async with api(tmp_path) as ask:
        document = {"metadata": {"labels": {"a": "b"}, "name": name}, "spec": pod()["spec"]}
        made = await ask.ok("POST", f"{PODS}?fieldValidation=Strict", document)
        assert (made["metadata"]["name"], made["metadata"]["labels"]) == (name, {"a": "b"})
