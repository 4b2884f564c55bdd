"""Compiled expressions of policies, kept while a policy does not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from plimsoll.codec.cel.syntax import CompilationError
from plimsoll.rules.model.json_object import JsonObject

_KEPT = 256
_Program = TypeVar("_Program")


class Programs(Generic[_Program]):
    """Of one kind of policy, by uid, each with the version it was compiled from."""

    def __init__(self, compiled: Callable[[JsonObject], _Program]) -> None:
        """`compiled`: from a policy's spec."""
        self._compiled = compiled
        self._known: dict[str, tuple[str, _Program | None]] = {}

    def of(self, policy: JsonObject) -> _Program | None:
        """None: it cannot be compiled, because an older server has stored it."""
        uid, version = policy["metadata"]["uid"], policy["metadata"]["resourceVersion"]
        known = self._known.get(uid)
        if known is None or known[0] != version:
            try:
                program = self._compiled(policy.get("spec") or {})
            except CompilationError:
                program = None
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = self._known[uid] = version, program
        return known[1]
