"""Before any property is read: how many examples it gets."""

from __future__ import annotations

from hypothesis import settings

import tests.examples  # noqa: F401

settings.load_profile("plimsoll")
