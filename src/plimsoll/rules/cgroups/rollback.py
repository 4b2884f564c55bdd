"""Roll back a plan that was refused or interrupted (kill −9): the same steps in reverse order.

Which steps were done is not recorded but observed: `now` is the current state. So every state during a rollback is one
that the plan has passed through, and a second rollback changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from plimsoll.rules.cgroups.desired_files import is_below
from plimsoll.rules.cgroups.reconcile import RESETS, amount, fresh_writes, quota_reset
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.cgroups.steps import Make, Remove, Snapshot, Step, Write


def undo(steps: Iterable[Step], before: Snapshot, now: Snapshot, page_size: int = 4096) -> tuple[Step, ...]:
    """The steps back to the old state; `before` has the files of the cgroups that the plan removes."""
    back: list[Step] = []
    for step in reversed(tuple(steps)):
        match step:
            case Make(path) if path in now:
                back += (*quota_reset(path, now[path].files), Remove(path))
            case Remove(path) if path not in now:
                back += (Make(path), *fresh_writes(path, _not_default(before[path].files)))
            case Write(path, name, _, was) if was is not None and path in now and name in now[path].files:
                if not same_value(name, was, now[path].files[name], page_size):
                    back.append(Write(path, name, was, now[path].files[name]))
    return tuple(back)


def undo_halves(
    steps: Iterable[Step], containers: Collection[str], before: Snapshot, now: Snapshot, page_size: int = 4096
) -> tuple[Step, ...]:
    """For a resize: roll back containers that are half done; finished containers keep their new values (03 §10).

    An ancestor that was lowered for a rolled-back container gets its old limit again; an increase is kept.
    """
    steps = tuple(steps)
    whole = completed(steps, containers, now, page_size)
    begun = {step.path for step in steps if _is_done(step, now, page_size)}
    half = [path for path in containers if path in begun and path not in whole]

    def is_rolled_back(step: Step) -> bool:
        if step.path in containers:
            return step.path in half
        lowers = (
            isinstance(step, Write)
            and step.was is not None
            and amount(step.file, step.value, page_size) < amount(step.file, step.was, page_size)
        )
        return lowers and any(is_below(path, step.path) for path in half)

    return undo(filter(is_rolled_back, steps), before, now, page_size)


def completed(
    steps: Iterable[Step], containers: Collection[str], now: Snapshot, page_size: int = 4096
) -> tuple[str, ...]:
    """The containers of the plan with every step done."""
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
