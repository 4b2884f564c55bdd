"""The way back from a plan that was refused, or that a kill −9 has left half made: the same steps backwards.

Which of the steps were made is not remembered but seen: `now` is how things stand. So every moment on the way back is
one that the way there has had too, and going back twice is the same as going back once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from plimsoll.rules.cgroups.desired_files import is_below
from plimsoll.rules.cgroups.reconcile import RESETS, amount, fresh_writes, quota_given_up
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.cgroups.steps import Make, Remove, Snapshot, Step, Write


def undo(steps: Iterable[Step], before: Snapshot, now: Snapshot, page_size: int = 4096) -> tuple[Step, ...]:
    """Everything as it was; `before` has the files of the cgroups that the steps remove."""
    back: list[Step] = []
    for step in reversed(tuple(steps)):
        match step:
            case Make(path) if path in now:
                back += (*quota_given_up(path, now[path].files), Remove(path))
            case Remove(path) if path not in now:
                back += (Make(path), *fresh_writes(path, _not_default(before[path].files)))
            case Write(path, name, _, was) if was is not None and path in now and name in now[path].files:
                if not same_value(name, was, now[path].files[name], page_size):
                    back.append(Write(path, name, was, now[path].files[name]))
    return tuple(back)


def undo_halves(
    steps: Iterable[Step], containers: Collection[str], before: Snapshot, now: Snapshot, page_size: int = 4096
) -> tuple[Step, ...]:
    """Of a resize: a container becomes all old or stays all new, and those that are done stay (03 §10).

    A cgroup above that was lowered for one that goes back is given its old limit again; what was raised stays raised.
    """
    steps = tuple(steps)
    whole = completed(steps, containers, now, page_size)
    begun = {step.path for step in steps if _is_done(step, now, page_size)}
    half = [path for path in containers if path in begun and path not in whole]

    def goes_back(step: Step) -> bool:
        if step.path in containers:
            return step.path in half
        lowers = (
            isinstance(step, Write)
            and step.was is not None
            and amount(step.file, step.value, page_size) < amount(step.file, step.was, page_size)
        )
        return lowers and any(is_below(path, step.path) for path in half)

    return undo(filter(goes_back, steps), before, now, page_size)


def completed(
    steps: Iterable[Step], containers: Collection[str], now: Snapshot, page_size: int = 4096
) -> tuple[str, ...]:
    """Those of the containers that the steps are about and for which every step has been made."""
    steps = tuple(steps)
    begun = {step.path for step in steps}
    missing = {step.path for step in steps if not _is_done(step, now, page_size)}
    return tuple(path for path in containers if path in begun and path not in missing)


def _is_done(step: Step, now: Snapshot, page_size: int) -> bool:
    match step:
        case Make(path):
            return path in now
        case Remove(path):
            return path not in now
        case Write(path, name, value):
            return path in now and same_value(name, value, now[path].files.get(name, ""), page_size)


def _not_default(files: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in files.items()
        if text and (name == "cpu.max" or name not in RESETS or not same_value(name, RESETS[name], text))
    }
