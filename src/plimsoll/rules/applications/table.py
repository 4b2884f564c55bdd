"""All language runtimes by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.applications.answer import App, AppAnswer, AppLimits, version_of
from plimsoll.rules.applications.dotnet import dotnet
from plimsoll.rules.applications.golang import golang
from plimsoll.rules.applications.jvm import jvm
from plimsoll.rules.applications.nodejs import nodejs

APPS: dict[App, Callable[[str, AppLimits, dict[str, str]], AppAnswer]] = {
    "jvm": jvm,
    "go": golang,
    "node": nodejs,
    "dotnet": dotnet,
}
_WRITTEN: dict[App, str] = {"jvm": "17.0.8 or 8u372", "go": "1.24", "node": "22.1", "dotnet": "8.0"}


def app_named(text: str) -> tuple[App, str]:
    """`jvm` or `jvm=17.0.8` → the runtime and its version; empty: the newest known."""
    name, _, version = text.partition("=")
    for app in APPS:
        if name == app:
            if version and (not version_of(version) or re.search(r"\.(?!\d)", version)):
                raise InvalidConfigError("--app", f"{version!r} is no version of {app}; write it as {_WRITTEN[app]}")
            return app, version
    raise InvalidConfigError(
        "--app", f"unknown language runtime {name!r}; known: {', '.join(APPS)}, each with =VERSION"
    )


def answer(app: App, version: str, limits: AppLimits, settings: dict[str, str] | None = None) -> AppAnswer:
    return APPS[app](version, limits, settings or {})
