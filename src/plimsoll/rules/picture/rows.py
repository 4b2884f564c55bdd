"""The table beside a picture: one row for each value, for screen readers, `curl` and tests."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.rules.cgroups.reasons import human_bytes, human_cores
from plimsoll.rules.picture.model import CpuLines, Line, Picture, Vessel
from plimsoll.rules.picture.words import FILL_WORDS, LEVEL_WORDS, in_effect

HEADER = ("level", "name", "value of", "declared", "in effect", "formula", "from", "note")


class Row(msgspec.Struct, frozen=True):
    level: str
    name: str
    file: str
    declared: str
    effective: str = ""
    formula: str = ""
    source: str = ""
    note: str = ""


def table_rows(picture: Picture) -> list[Row]:
    rows = [Row("node", picture.title, part.name, _bytes(part.bytes), source=part.source) for part in picture.parts]
    for vessel in picture.vessels:
        rows += _rows(vessel, "")
    return rows


def _rows(vessel: Vessel, pod: str) -> Iterator[Row]:
    name = f"{pod} / {vessel.name}" if pod else vessel.name
    level = LEVEL_WORDS[vessel.level]
    for line in vessel.lines:
        yield _line(level, name, line)
    if vessel.usage_bytes is not None:
        yield Row(level, name, "in use", _bytes(vessel.usage_bytes))
    for fill in vessel.fills:
        yield Row(level, name, FILL_WORDS[fill.name], _bytes(fill.bytes))
    if vessel.cpu is not None:
        yield from _cpu(level, name, vessel.cpu)
    if vessel.oom_score_adj is not None:
        yield Row(level, name, "oom_score_adj", str(vessel.oom_score_adj), formula=vessel.oom_formula)
    if vessel.oom_kills:
        yield Row(level, name, "OOM kills", str(vessel.oom_kills))
    for resource, share in vessel.pressure.items():
        yield Row(level, name, f"{resource} pressure", f"{share:g} %")
    for child in vessel.children:
        yield from _rows(child, vessel.name if vessel.level == "pod" else "")


def _line(level: str, name: str, line: Line) -> Row:
    file = f"{line.file} of {line.of}" if line.of else line.file
    note = "; ".join(part for part in (in_effect(line), line.note) if part)
    return Row(
        level, name, file, _bytes(line.declared_bytes), _bytes(line.effective_bytes), line.formula, line.source, note
    )


def _cpu(level: str, name: str, cpu: CpuLines) -> Iterator[Row]:
    if cpu.weight is not None:
        least = "" if cpu.worst_case_milli is None else f"≥ {human_cores(cpu.worst_case_milli)}"
        yield Row(level, name, cpu.weight_file, str(cpu.weight), least, cpu.weight_formula, cpu.weight_source)
    if cpu.quota_file:
        most = "" if cpu.ceiling_milli is None else f"≤ {human_cores(cpu.ceiling_milli)}"
        note = f"from {cpu.ceiling_of}" if cpu.ceiling_of else ""
        yield Row(level, name, cpu.quota_file, cpu.quota_text, most, cpu.quota_formula, cpu.quota_source, note)
    if cpu.usage_milli is not None:
        throttled = f"throttled in {cpu.throttled_percent} % of its periods" if cpu.throttled_percent else ""
        yield Row(level, name, "CPU in use", human_cores(cpu.usage_milli), note=throttled)


def _bytes(amount: int) -> str:
    return f"{amount} ({human_bytes(amount)})"
