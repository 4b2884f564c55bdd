"""Updates of CustomResourceDefinitions."""

from __future__ import annotations

from typing import Any

from plimsoll.rules.admission.custom_resources.definitions import defaulted, definition_update_errors


def definition(**properties: Any) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    names = {"plural": "widgets", "kind": "Widget"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    return defaulted({"metadata": {"name": "widgets.example.com"}, "spec": spec})


WITHOUT_TYPE: dict[str, Any] = {}
PATH = "spec.validation.openAPIV3Schema.properties"


def test_what_is_wrong_already_may_stay() -> None:
    """Otherwise neither labels nor finalizers of such a definition could be changed."""
    stored = definition(a=WITHOUT_TYPE)
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"team": "a"}}}
    assert definition_update_errors(stored, labelled) == []


def test_what_becomes_wrong_is_refused() -> None:
    changed = definition(a=WITHOUT_TYPE, b=WITHOUT_TYPE)
    assert [error.field for error in definition_update_errors(definition(a=WITHOUT_TYPE), changed)] == [
        f"{PATH}[b].type"
    ]
