"""A JSON object as Python has it: a Kubernetes object, or any part of one, before it is read into a type."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
