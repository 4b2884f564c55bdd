"""Before any property is read: how many examples it gets."""

from __future__ import annotations

import tests.examples  # noqa: F401
