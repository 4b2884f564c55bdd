"""libyaml's parser through PyYAML, without the rest of PyYAML.

`import yaml` also imports PyYAML's own scanner, resolver, emitter and so on and compiles their patterns, a fifth of the
time that `plimsoll explain FILE` takes. Of all that, the extension module reads a few names while it is imported, so a
package object with these names takes the place of PyYAML's `__init__` for that moment. A later `import yaml` imports
the whole package as usual.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml._yaml import CParser
    from yaml.events import (
        AliasEvent,
        DocumentEndEvent,
        MappingEndEvent,
        MappingStartEvent,
        ScalarEvent,
        SequenceEndEvent,
        SequenceStartEvent,
        StreamEndEvent,
    )
    from yaml.parser import ParserError
    from yaml.reader import ReaderError
    from yaml.scanner import ScannerError

__all__ = [
    "AliasEvent",
    "CParser",
    "DocumentEndEvent",
    "MappingEndEvent",
    "MappingStartEvent",
    "ParserError",
    "ReaderError",
    "ScalarEvent",
    "ScannerError",
    "SequenceEndEvent",
    "SequenceStartEvent",
    "StreamEndEvent",
]

# Modules whose content PyYAML's __init__ re-exports; they contain only small classes.
_RE_EXPORTED = ("error", "tokens", "events", "nodes")
# Modules of which the extension reads only the exception.
_EXCEPTIONS = {
    "scanner": "ScannerError",
    "parser": "ParserError",
    "composer": "ComposerError",
    "constructor": "ConstructorError",
    "emitter": "EmitterError",
    "serializer": "SerializerError",
    "representer": "RepresenterError",
}


class _ReaderError(Exception):
    """A character that YAML does not allow, with the arguments of PyYAML's exception."""

    def __init__(self, name: str, position: int, character: int, encoding: str, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _extension() -> Any:
    if "yaml" in sys.modules:
        return importlib.import_module("yaml._yaml")
    # `importlib.util` has this too, and imports more than it.
    found = (finder.find_spec("yaml", None) for finder in sys.meta_path)
    spec = next((each for each in found if each is not None), None)
    if spec is None:
        raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
    package: Any = ModuleType("yaml")
    package.__path__ = spec.submodule_search_locations
    package.reader = SimpleNamespace(ReaderError=_ReaderError)
    sys.modules["yaml"] = package
    try:
        for name in _RE_EXPORTED:
            vars(package).update(vars(importlib.import_module(f"yaml.{name}")))
        for name, exception in _EXCEPTIONS.items():
            setattr(package, name, SimpleNamespace(**{exception: type(exception, (package.MarkedYAMLError,), {})}))
        return importlib.import_module("yaml._yaml")
    finally:
        del sys.modules["yaml"]


if not TYPE_CHECKING:
    globals().update({name: value for name, value in vars(_extension()).items() if name in __all__})
