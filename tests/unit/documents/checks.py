"""What checks a row of the documents: functions without arguments, found by the id of the row.

Each module that checks rows fills a `Checks` of its own; tests/unit/test_documents.py puts them together. A function that
checks rows of several documents stands with the first of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

Check = Callable[[], None]


class Checks(defaultdict[str, list[Check]]):
    """Row id → what checks it."""

    def __init__(self) -> None:
        super().__init__(list)

    def row(self, *ids: str) -> Callable[[Check], Check]:
        """The decorated function checks these rows."""

        def registered(check: Check) -> Check:
            for each in ids:
                self[each].append(check)
            return check

        return registered
