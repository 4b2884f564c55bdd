"""The reference of events lists every reason in the code, and nothing else."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from plimsoll.rules.lifecycle.event_reference import EVENTS

PACKAGE = Path(__file__).resolve().parents[4] / "src" / "plimsoll"
TABLE = "event_reference.py"
# Functions that record an event, or make one; among their arguments is the reason.
RECORDERS = {
    *("emit", "record", "normal", "warning", "event", "report", "_event", "_record", "_normal", "_warning"),
    *("_emit_event", "LifecycleEvent", "AdmissionRefusal", "Occurrence"),
}
# Types, actions, kinds, verdicts, and reasons of waiting containers under the name of a constant that others have, too.
OTHER = {
    *("Normal", "Warning", "Binding", "Scheduling", "Node", "Pod", "Deferred"),
    *("CrashLoopBackOff", "ImagePullBackOff"),
}


def trees() -> dict[Path, ast.Module]:
    rooms = ("node", "rules", "scheduler", "api/controllers")
    return {path: ast.parse(path.read_text()) for room in rooms for path in (PACKAGE / room).rglob("*.py")}


def constants(found: dict[Path, ast.Module]) -> dict[str, set[str]]:
    """Name of a module's constant → its texts, in any module."""
    texts: dict[str, set[str]] = {}
    for tree in found.values():
        for statement in (each for each in tree.body if isinstance(each, ast.Assign)):
            names, values = (
                [each] if not isinstance(each, ast.Tuple) else each.elts
                for each in (statement.targets[0], statement.value)
            )
            for name, value in zip(names, values, strict=False):
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    texts.setdefault(name.id, set()).add(value.value)
    return texts


def recorded(found: dict[Path, ast.Module], nodes: dict[Path, list[ast.AST]]) -> Iterator[str]:
    named = constants(found)
    for inside in nodes.values():
        for each in (node.elts for node in inside if isinstance(node, ast.Tuple) and len(node.elts) > 1):
            kind, reason = (getattr(part, "value", None) for part in each[:2])
            if kind in ("Normal", "Warning") and isinstance(reason, str) and reason not in OTHER:
                yield reason
        for call in (node for node in inside if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            if name not in RECORDERS:
                continue
            for argument in call.args:
                texts = (
                    {argument.value} if isinstance(argument, ast.Constant) else named.get(getattr(argument, "id", ""))
                )
                for text in texts or ():
                    if isinstance(text, str) and re.fullmatch(r"[A-Z]\w+[A-Za-z]", text) and text not in OTHER:
                        yield text


def test_every_recorded_reason_is_listed_and_every_listed_one_is_in_the_code() -> None:
    found = trees()
    nodes = {path: list(ast.walk(tree)) for path, tree in found.items()}
    listed = Counter(row.reason for rows in EVENTS.values() for row in rows)
    assert [reason for reason, times in listed.items() if times > 1] == []
    assert set(recorded(found, nodes)) - listed.keys() == set()
    texts = {
        node.value
        for path, inside in nodes.items()
        if path.name != TABLE
        for node in inside
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    composed = {"OutOfcpu": "OutOf", "ResizeDeferred": "Deferred", "ResizeInfeasible": "Infeasible"}
    assert [reason for reason in listed if composed.get(reason, reason) not in texts] == []


def test_each_row_is_a_sentence() -> None:
    rows = [row for group in EVENTS.values() for row in group]
    assert [row.reason for row in rows if not re.fullmatch(r"[A-Z].*\.", row.meaning)] == []
