"""Values that upper cgroups cannot have at this moment, and values that their ancestors lack.

A memory limit of kubepods, of a class or of a reserved cgroup is not set below current usage: it is set to the usage,
and the next sync tries again (02 §8.5). Memory protection is capped by every ancestor. An ancestor that Plimsoll does
not own is not changed; the value that it would need is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from plimsoll.rules.cgroups.desired_files import PROTECTIONS, DesiredCgroup, DesiredFiles
from plimsoll.rules.cgroups.reconcile import MEMORY_LIMITS, Unmet, amount
from plimsoll.rules.cgroups.steps import Snapshot

UPPER = ("pods", "class", "reserved")  # levels above pods


class Fitted(msgspec.Struct, frozen=True):
    plan: DesiredFiles
    unmet: tuple[Unmet, ...]


def fitted(
    plan: DesiredFiles, snapshot: Snapshot, usage_bytes: Mapping[str, int] | None = None, page_size: int = 4096
) -> Fitted:
    """`usage_bytes`: of the upper cgroups, by path.

    If pods request more memory than the node has, qosReserved gives a negative limit; the current limit is kept.
    """
    result: dict[str, DesiredCgroup] = dict(plan)
    unmet: list[Unmet] = []
    for path, cgroup in plan.items():
        for file in sorted(MEMORY_LIMITS & cgroup.files.keys()) if cgroup.level in UPPER else ():
            want, seen = cgroup.files[file], snapshot.get(path)
            found = seen.files.get(file) if seen is not None else None
            used = -(-(usage_bytes or {}).get(path, 0) // page_size) * page_size
            if int(want) >= 0 and (found is None or used <= int(want) or int(want) >= amount(file, found, page_size)):
                continue
            have = str(used) if used and (found is None or used < amount(file, found, page_size)) else found
            files = {name: text for name, text in cgroup.files.items() if name != file}
            result[path] = msgspec.structs.replace(cgroup, files=files if have is None else {**files, file: have})
            reason = f"{used} bytes are in use: retried with the next change"
            unmet.append(Unmet(path, file, want, have, reason if used else "pods request more memory than there is"))
    return Fitted(result, tuple(unmet))


def capped_protection(plan: DesiredFiles, snapshot: Snapshot, own_roots: Collection[str]) -> list[Unmet]:
    """Cgroups above kubepods that Plimsoll does not own and that protect less than kubepods does."""
    pods = next((each for each in plan.values() if each.level == "pods"), None)
    found = []
    for path, cgroup in plan.items():
        if pods is None or cgroup.level != "root" or path in own_roots:
            continue
        for file in PROTECTIONS:
            want, have = pods.files.get(file, "0"), snapshot[path].files.get(file) if path in snapshot else None
            if have is not None and amount(file, have) < amount(file, want):
                reason = "this cgroup is not owned by Plimsoll, and it caps the protection of all pods"
                found.append(Unmet(path, file, want, have, reason))
    return found
