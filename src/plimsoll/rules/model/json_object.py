"""A JSON object in Python: a Kubernetes object, or a part of one, before it is decoded into a type."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
