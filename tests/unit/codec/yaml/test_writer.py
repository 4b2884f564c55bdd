"""YAML and JSON that hide nothing: format characters are escapes, and a parser reads the same text."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.yaml.writer import dumped, json_escaped

PLANES = (range(0x20000), range(0xE0000, 0xF0000))  # the others have ideographs or are private
FORMAT = "".join(chr(number) for plane in PLANES for number in plane if unicodedata.category(chr(number)) == "Cf")


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\u200b", "\ufeff", "\xad", "\U000e0041"])
def test_a_format_character_is_an_escape(character: str) -> None:
    document: dict[str, Any] = {f"key{character}": [f"user{character}nimda", "plain", "\xe9t\xe9 \u4e2d"]}
    text = dumped(document, sort_keys=True)
    assert character not in text
    assert yaml.safe_load(text) == document
    assert "\xe9t\xe9 \u4e2d" in text, "other letters stay as they are"
    line = json_escaped(json.dumps(document, ensure_ascii=False))
    assert character not in line
    assert json.loads(line) == document


def test_every_format_character_is_known() -> None:
    assert not set(FORMAT) & set(dumped([FORMAT], sort_keys=True))
    assert not set(FORMAT) & set(json_escaped(json.dumps(FORMAT, ensure_ascii=False)))


LETTERS = st.one_of(st.sampled_from(FORMAT), st.characters(codec="utf-8"))


@given(st.dictionaries(st.text(LETTERS, max_size=5), st.text(LETTERS)))
def test_a_parser_reads_what_was_written(document: dict[str, str]) -> None:
    assert yaml.safe_load(dumped(document, sort_keys=True)) == document
