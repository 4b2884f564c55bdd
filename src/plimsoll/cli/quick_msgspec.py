"""msgspec, imported without three modules that it has little use for: a tenth of the time of `plimsoll explain FILE`.

`typing_extensions`, if it is installed, because Python's own `typing` has all of it. `platform`, of which `uuid` asks
only for the name of the system. `textwrap`, for documentation in JSON schemas. Placeholders take their places in
`sys.modules` for the moment of the import; afterwards, `import platform` imports the real module as usual.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """Imports the module when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module

        return getattr(import_module(self.__name__), name)


def import_msgspec() -> None:
    platform: Any = _Later("platform")
    platform.system = lambda: os.uname().sysname
    placeholders: dict[str, Any] = {"platform": platform, "textwrap": _Later("textwrap"), "typing_extensions": None}
    absent = [name for name in placeholders if name not in sys.modules]
    for name in absent:
        sys.modules[name] = placeholders[name]
    try:
        import msgspec  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]
