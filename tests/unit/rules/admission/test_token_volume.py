"""The volume with a token is not validated, as it is always the same: it must be valid, and only it is left out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.rules.admission.pod_spec.spec import spec_errors
from plimsoll.rules.admission.pod_spec.warnings import pod_warnings
from plimsoll.rules.admission.service_account import TOKEN_SOURCE, with_account

ACCOUNT = {"metadata": {"name": "default"}}


def spec(source: Any) -> dict[str, Any]:
    made = with_account({"containers": [{"name": "c", "image": "i"}]}, ACCOUNT, "kube-api-access-x")
    assert made["volumes"] == [{"name": "kube-api-access-x", "projected": TOKEN_SOURCE}]
    return {**made, "volumes": [{"name": "kube-api-access-x", "projected": source}]}


def copied(**fields: Any) -> Any:
    return {**msgspec.json.decode(msgspec.json.encode(TOKEN_SOURCE)), **fields}


def test_it_is_valid() -> None:
    for source in (TOKEN_SOURCE, copied(), copied(defaultMode=0o600)):  # the last one is looked into
        made = spec(source)
        assert not spec_errors(made)
        assert not pod_warnings({"metadata": {"name": "p"}, "spec": made})


@pytest.mark.parametrize(
    ("place", "change", "field"),
    [
        (0, {"serviceAccountToken": {"expirationSeconds": 1, "path": "token"}}, "serviceAccountToken.expirationSeconds"),
        (1, {"configMap": {"name": "", "items": []}}, "configMap.name"),
        (2, {"downwardAPI": {"items": [{"path": "../x", "fieldRef": {"fieldPath": "metadata.name"}}]}}, "downwardAPI"),
    ],
)  # fmt: skip
def test_another_one_is_validated(place: int, change: dict[str, Any], field: str) -> None:
    source = copied()
    source["sources"][place] = change
    assert [each.field for each in spec_errors(spec(source)) if field in each.field]


def test_another_one_is_warned_about() -> None:
    source = copied()
    source["sources"][1]["configMap"]["items"][0]["path"] = "token"
    assert pod_warnings({"metadata": {"name": "p"}, "spec": spec(source)})
