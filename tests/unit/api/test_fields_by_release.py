"""Fields and kinds that came with a later release: unknown to the server, to its OpenAPI documents and to discovery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.codec.schema.releases import FIELDS, KINDS_SINCE
from plimsoll.codec.schema.schema import KINDS, struct
from plimsoll.rules.profile import DOCUMENTS
from tests.unit.api.api_client import APPLY, JSON_PATCH, MERGE, STRATEGIC, api, pod

PODS = "/api/v1/namespaces/default/pods"
DEMO = f"{PODS}/demo"
HOOK = {"name": "c", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}
NAME = 'unknown field "spec.hostnameOverride"'


async def test_a_field_of_a_later_release_is_unknown(tmp_path: Path) -> None:
    async with api(tmp_path, "1.28") as ask:
        sent = pod(hostnameOverride="x", initContainers=[{**HOOK, "name": "i"}])
        refused = await ask("POST", f"{PODS}?fieldValidation=Strict", sent)
        assert refused.code == 400
        unknown = 'unknown field "spec.initContainers[0].lifecycle.preStop.sleep"'
        text = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        assert sorted(refused.message.removeprefix(text).split(", ")) == sorted([NAME, unknown])
        sent = pod(hostnameOverride="x")
        answer = await ask("POST", PODS, sent)
        assert answer.code == 201 and "hostnameOverride" not in answer.json["spec"]
        assert [each for each in answer.warnings if "unknown" in each] == [
            '299 - "unknown field \\"spec.hostnameOverride\\""'
        ]
        silent = await ask("POST", f"{PODS}?fieldValidation=Ignore", {**sent, "metadata": {"name": "other"}})
        assert silent.code == 201 and not silent.warnings


@pytest.mark.parametrize(("release", "unknown"), [("1.33", True), ("1.34", False), (DOCUMENTS, False)])
async def test_a_release_with_the_field_knows_it(tmp_path: Path, release: str, unknown: bool) -> None:
    """1.34 has it and drops it, its gate being off."""
    async with api(tmp_path, release) as ask:
        said = await ask("POST", f"{PODS}?fieldValidation=Strict&dryRun=All", pod(hostnameOverride="x"))
        assert said.code == (400 if unknown else 201)


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (MERGE, {"spec": {"hostnameOverride": "x"}}),
        (STRATEGIC, {"spec": {"hostnameOverride": "x"}}),
        (JSON_PATCH, [{"op": "add", "path": "/spec/hostnameOverride", "value": "x"}]),
    ],
)
async def test_a_patch(tmp_path: Path, type_: str, body: Any) -> None:
    async with api(tmp_path, "1.30") as ask:
        await ask.ok("POST", PODS, pod())
        refused = await ask("PATCH", f"{DEMO}?fieldValidation=Strict", body, type_)
        assert refused.code == 422 and refused.message.endswith(f"strict decoding error: {NAME}")
        answer = await ask("PATCH", DEMO, body, type_)
        assert answer.code == 200 and "hostnameOverride" not in answer.json["spec"]
        assert answer.json["metadata"]["generation"] == 1
        assert answer.warnings == ['299 - "unknown field \\"spec.hostnameOverride\\""']


async def test_an_applied_document(tmp_path: Path) -> None:
    sent = {"apiVersion": "v1", "kind": "Pod", **pod(containers=[HOOK])}
    async with api(tmp_path, "1.28") as ask:
        refused = await ask("PATCH", f"{DEMO}?fieldManager=a", sent, APPLY)
    assert refused.code == 500
    assert refused.message == (
        "failed to create typed patch object (/demo; /v1, Kind=Pod): "
        '.spec.containers[name="c"].lifecycle.preStop.sleep: field not declared in schema'
    )


# release, whether it has VolumeAttributesClass, ValidatingAdmissionPolicy, ClusterTrustBundle, SelfSubjectReview in v1
SERVED = [
    ("1.27", False, False, False, False),
    ("1.28", False, False, False, True),
    ("1.30", False, True, False, True),
    ("1.34", True, True, False, True),
    ("1.37", True, True, True, True),
    (DOCUMENTS, True, True, True, True),
]
CLASSES = "/apis/storage.k8s.io/v1/volumeattributesclasses"


@pytest.mark.parametrize(("release", "classes", "policies", "bundles", "reviews"), SERVED)
async def test_kinds(tmp_path: Path, release: str, classes: bool, policies: bool, bundles: bool, reviews: bool) -> None:
    async with api(tmp_path, release) as ask:
        listed = set()
        for group in ("storage", "admissionregistration", "certificates", "authentication"):
            found = await ask.ok("GET", f"/apis/{group}.k8s.io/v1")
            listed |= {each["name"] for each in found["resources"]}
        names = ("volumeattributesclasses", "validatingadmissionpolicies", "clustertrustbundles", "selfsubjectreviews")
        assert [name in listed for name in names] == [classes, policies, bundles, reviews]
        assert "volumeattributesclasses/status" not in listed and "tokenreviews" in listed
        said = await ask("GET", CLASSES)
        assert said.code == (200 if classes else 404)
        if not classes:
            assert said.message == "the server could not find the requested resource"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        said = await ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        assert said.code == (201 if reviews else 404)
        document = await ask.ok("GET", "/openapi/v3/apis/storage.k8s.io/v1")
        assert (CLASSES in document["paths"]) == classes


async def test_openapi_has_the_fields_of_the_release(tmp_path: Path) -> None:
    found, hashes = {}, set()
    for release in ("1.27", "1.31", "1.34", DOCUMENTS):
        directory = tmp_path / release
        directory.mkdir()
        async with api(directory, release) as ask:
            document = await ask.ok("GET", "/openapi/v3/api/v1")
            schemas = document["components"]["schemas"]
            fields = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
            found[release] = [name in fields for name in ("containers", "resources", "hostnameOverride")]
            assert ("io.k8s.api.core.v1.SleepAction" in schemas) == (release != "1.27")
            index = await ask.ok("GET", "/openapi/v3")
            hashes.add(index["paths"]["api/v1"]["serverRelativeURL"])
            older = (await ask.ok("GET", "/openapi/v2"))["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]
            assert older.keys() == fields.keys()
    assert found == {
        "1.27": [True, False, False],
        "1.31": [True, False, False],
        "1.34": [True, True, True],
        DOCUMENTS: [True, True, True],
    }
    assert len(hashes) == 4


def test_the_tables_name_what_there_is() -> None:
    for line in FIELDS.splitlines():
        table, *fields = line.split()
        assert {each.partition("=")[0] for each in fields} <= struct(table).fields.keys(), table
    assert {(each.group, each.version, each.plural) for each in KINDS} >= KINDS_SINCE.keys()
