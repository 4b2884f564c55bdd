"""plimsoll.codec.protobuf.json_schema against bytes that client-go wrote for a CustomResourceDefinition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll.codec.protobuf.json_schema import MAX_DEPTH, schema_from_protobuf
from plimsoll.codec.protobuf.kube import ProtobufError, from_protobuf
from plimsoll.codec.protobuf.wire import bytes_field

HERE = Path(__file__).parent


def test_a_schema_is_read_as_its_json_form() -> None:
    found = from_protobuf(bytes.fromhex((HERE / "widgets.hex").read_text()))
    expected = json.loads((HERE / "widgets.json").read_text())
    (version,), (expected_version,) = found["spec"]["versions"], expected["spec"]["versions"]
    assert version["schema"] == expected_version["schema"]
    assert version["subresources"] == expected_version["subresources"]
    assert found["spec"]["names"]["kind"] == "Widget"


def nested(levels: int) -> bytes:
    schema = b""
    for _ in range(levels):
        schema = bytes_field(28, schema)  # not
    return schema


def test_levels_are_limited() -> None:
    assert schema_from_protobuf(nested(MAX_DEPTH))
    with pytest.raises(ProtobufError, match=f"at most {MAX_DEPTH} levels"):
        schema_from_protobuf(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize("data", [b"\x48\x01", bytes_field(9, b"123"), bytes_field(8, bytes_field(1, b"{"))])
def test_invalid_members_are_refused(data: bytes) -> None:
    with pytest.raises(ProtobufError):
        schema_from_protobuf(data)
