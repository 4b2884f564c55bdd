"""The options of `plimsoll node`."""

from __future__ import annotations

import pytest

from plimsoll.cli import console
from plimsoll.cli.node.command import _labels


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", {}),
        ("disk=ssd", {"disk": "ssd"}),
        (" a=1 , b= ,", {"a": "1", "b": ""}),
        ("url=x=y", {"url": "x=y"}),
    ],
)
def test_node_labels(text: str, labels: dict[str, str]) -> None:
    assert _labels(text) == labels


def test_a_label_without_a_value_is_refused() -> None:
    with pytest.raises(console.UsageError, match="--node-labels: 'disk' is not name=value"):
        _labels("a=1,disk")
