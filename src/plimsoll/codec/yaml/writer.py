"""Documents as YAML text in which nothing is invisible.

PyYAML escapes control characters, but not those that only format: a right-to-left override (U+202E) would show a name
in another order than a parser reads it. A text that contains one is printed in double quotes with escapes, so it is the
same to a parser and inert on a terminal.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

# All of Unicode's format characters are in these ranges, and others, so the category is checked where one occurs.
_SUSPECT = re.compile(
    "[\xad\u0600-\u061c\u06dd-\u08e2\u180e\u200b-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd-\U000e007f]"
)


def dumped(document: Any, *, sort_keys: bool) -> str:
    import yaml

    return yaml_escaped(yaml.dump(document, Dumper=_dumper(), sort_keys=sort_keys, allow_unicode=True))


def has_format(text: str) -> bool:
    """Whether it must be in double quotes, for `yaml_escaped`."""
    return not text.isascii() and any(map(_is_format, _SUSPECT.findall(text)))


def yaml_escaped(text: str) -> str:
    """YAML text with format characters as escapes, which occur only in double quotes (`has_format`)."""
    return text if text.isascii() else _SUSPECT.sub(lambda found: _escaped(found[0]), text)


def json_escaped(text: str) -> str:
    """JSON text with format characters as escapes; in valid JSON they occur only in strings."""
    return text if text.isascii() else _SUSPECT.sub(lambda found: _json_escaped(found[0]), text)


def _is_format(character: str) -> bool:
    return unicodedata.category(character) == "Cf"


def _escaped(character: str) -> str:
    if not _is_format(character):
        return character
    number = ord(character)
    return f"\\u{number:04X}" if number < 0x10000 else f"\\U{number:08X}"


def _json_escaped(character: str) -> str:
    if not _is_format(character):
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


@cache
def _dumper() -> type[yaml.CSafeDumper]:
    import yaml

    class Dumper(yaml.CSafeDumper):
        """Quotes what it must escape, also what libyaml would print as it is."""

    def text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if has_format(value) else None)

    Dumper.add_representer(str, text)
    return Dumper
