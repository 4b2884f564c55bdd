"""The rows in which two profiles differ, and the release that each difference came with."""

from __future__ import annotations

import msgspec

from plimsoll.rules.profile import DOCUMENTS, Profile, minor, rows, value_in


class Difference(msgspec.Struct, frozen=True):
    """A row with different values in two profiles. `release`: the one that the later value came with; "" if one of the
    profiles is `documents`."""

    row: str
    clause: str
    about: str
    old: object
    new: object
    release: str


def differences(first: Profile, second: Profile) -> list[Difference]:
    found = []
    for row in rows():
        old, new = getattr(first, row.name), getattr(second, row.name)
        if old != new:
            since = ""
            if DOCUMENTS not in (first.name, second.name):
                since = value_in(row.releases, max(first.name, second.name, key=minor))[1]
            found.append(Difference(row.name, row.clause, row.about, old, new, since))
    return found
