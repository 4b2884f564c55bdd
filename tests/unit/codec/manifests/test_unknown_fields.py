"""Names that no API server knows: errors where amounts stand, remarks elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.manifests.unknown_fields import unknown_fields


def spec(container: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i", **container}], **more}}


ROWS = [
    ("nothing", spec({"resources": {"limits": {"anything.io/x": "1"}}}), []),
    ("limit", spec({"resources": {"limit": {}}}), [("spec.containers[0].resources.limit", "limits", True)]),
    ("pod level", spec({}, resources={"request": {}}), [("spec.resources.request", "requests", True)]),
    ("resource", spec({"resource": {}}), [("spec.containers[0].resource", "resources", False)]),
    ("a stranger", spec({}, zzz=1), [("spec.zzz", "", False)]),
    ("policy", spec({"resizePolicy": [{"resource": "cpu"}]}), [("spec.containers[0].resizePolicy[0].resource", "resourceName", True)]),
    ("not even a spec", {"spec": 5}, []),
    ("not even a list", {"spec": {"containers": 5}}, []),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_unknown(pod: dict[str, Any], expected: list[tuple[str, str, bool]]) -> None:
    assert [(each.field, each.nearest, each.is_error) for each in unknown_fields(pod)] == expected
