"""Nothing in a pod's spec is silently ignored: every field of the schema is honoured, refused or documented."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.codec.manifests.pod_fields import EXCEPTIONS, PodField, pod_fields
from plimsoll.codec.schema.schema import struct
from plimsoll.errors import PlimsollError
from plimsoll.rules.lifecycle.api_objects import PodObjects
from plimsoll.rules.lifecycle.environment import Surroundings, environment
from plimsoll.rules.lifecycle.security_context import security_values
from plimsoll.rules.lifecycle.volumes import check_kind, volume_files
from plimsoll.rules.model.runnable import RunSpec

SOURCE = Path(__file__).parents[4] / "src" / "plimsoll"
FIELDS = pod_fields()
# Where structs are only declared, or copied as a whole.
DECLARATIONS = ("rules/model/objects.py", "rules/model/runnable.py", "rules/model/run_volumes.py")
CODE = "\n".join(
    path.read_text() for path in sorted(SOURCE.rglob("*.py")) if str(path.relative_to(SOURCE)) not in DECLARATIONS
)


def test_every_field_has_a_treatment() -> None:
    unknown = [field.key for field in FIELDS if field.treatment == "unknown"]
    assert unknown == [], "decode it in rules/model and use it, refuse it, or list it in EXCEPTIONS"
    assert len(FIELDS) > 200


def test_every_exception_is_a_field() -> None:
    assert set(EXCEPTIONS) <= {field.key for field in FIELDS}
    for field in FIELDS:
        assert field.name in struct(field.struct).fields


@pytest.mark.parametrize("dropped", [field.name for field in msgspec.structs.fields(RunSpec)])
def test_a_field_that_is_no_longer_decoded_is_noticed(dropped: str) -> None:
    kept = [field for field in msgspec.structs.fields(RunSpec) if field.name != dropped]
    (name,) = [field.encode_name for field in msgspec.structs.fields(RunSpec) if field.name == dropped]
    columns = [(field.name, field.type, msgspec.field(default=None, name=field.encode_name)) for field in kept]
    unknown = [field.name for field in pod_fields(msgspec.defstruct("Less", columns)) if field.treatment == "unknown"]
    assert unknown == ([] if f"core.PodSpec.{name}" in EXCEPTIONS else [name])


def test_what_has_no_effect_is_not_read() -> None:
    """A field that the node reads has an effect: the page would tell people otherwise."""
    named = [field for field in FIELDS if field.treatment == "no effect" and field.attribute not in ("", "api_version")]
    assert named, "api_version is the name of other things, too"
    assert [field.key for field in named if re.search(rf"\.{field.attribute}\b", CODE)] == []


@given(
    st.sampled_from(
        [field for field in FIELDS if field.attribute and field.treatment == "honoured" and field.key not in EXCEPTIONS]
    )
)
def test_what_is_honoured_is_read(field: PodField) -> None:
    assert re.search(rf"\.{field.attribute}\b", CODE), f"{field.key} is decoded, and then never read"


REFUSED = {
    "resourceClaims": {"resourceClaims": [{"name": "gpu"}]},
    "claims": {"resourceClaims": [{"name": "gpu"}]},
    "podCertificate": {"volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": {"signerName": "s"}}]}}]},
    "fileKeyRef": {"container": {"env": [{"name": "V", "valueFrom": {"fileKeyRef": {"path": "x"}}}]}},
}


@pytest.mark.parametrize(
    "field", [field for field in FIELDS if field.treatment == "refused"], ids=lambda each: each.key
)
def test_what_is_refused_has_a_message(field: PodField) -> None:
    """By one of the rules that a container passes before it starts; block devices by `Volumes.mounts`."""
    if field.name == "volumeDevices" or field.struct == "core.EphemeralContainer":
        assert field.about
        return
    if field.struct == "core.Volume":
        spec = {"volumes": [{"name": "v", field.name: {}}]}
    else:
        spec = dict(REFUSED[field.name])
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}], **spec.pop("container", {})}
    pod = run_pod({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container], **spec}})
    with pytest.raises(PlimsollError) as refused:
        for volume in pod.spec.volumes:
            check_kind(volume)
            volume_files(volume, pod, PodObjects(), Surroundings())
        environment(pod, pod.spec.containers[0], PodObjects(), Surroundings())
        security_values(pod, pod.spec.containers[0])
    assert str(refused.value)
