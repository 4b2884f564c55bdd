"""The texts of a picture: labels, the formula beside a line, what a pointer shows."""

from __future__ import annotations

import re

from plimsoll.rules.cgroups.reasons import human_bytes, human_cores
from plimsoll.rules.inert import inert
from plimsoll.rules.picture.model import CpuLines, Line, Vessel

_CONTAINER_FIELD = re.compile(r"spec(?:\.template\.spec)?\.(?:init|ephemeral)?[cC]ontainers\[\d+\]\.resources\.")
LEVEL_WORDS = {
    "pods": "all pods",
    "reserved": "reserved",
    "class": "QoS class",
    "pod": "pod",
    "container": "container",
    "sandbox": "sandbox",
    "monitor": "monitor",
    "cgroup": "cgroup",
}
FILL_WORDS = {
    "anon": "anonymous",
    "shmem": "shared memory",
    "kernel": "kernel",
    "activeFile": "file, active",
    "inactiveFile": "file, inactive",
    "other": "other",
}


def line_title(line: Line) -> str:
    return f"{line.name} of {inert(line.of)}" if line.of else line.file


def in_effect(line: Line) -> str:
    """Why the declared value does not hold; empty where it does."""
    if not line.ineffective:
        return ""
    if line.binding:
        return f"in effect {human_bytes(line.effective_bytes)}: {inert(line.binding)} has less"
    if not line.effective_bytes:
        return "no effect: its ancestors protect nothing"
    return f"in effect {human_bytes(line.effective_bytes)}: its ancestors protect less"


def short_source(source: str) -> str:
    """Without the place of the container, which the picture shows: `requests.memory`."""
    return inert(_CONTAINER_FIELD.sub("", source))


def line_sentence(line: Line) -> str:
    """One line of the text alternative."""
    parts = [f"{line_title(line)} {human_bytes(line.declared_bytes)} ({line.declared_bytes} bytes)", in_effect(line)]
    if line.formula:
        parts.append(f"formula {inert(line.formula)}")
    if line.source:
        parts.append(f"from {inert(line.source)}")
    if line.note:
        parts.append(inert(line.note))
    return "; ".join(part for part in parts if part)


def cpu_sentence(cpu: CpuLines) -> str:
    parts = []
    if cpu.worst_case_milli is not None:
        parts.append(f"at least {human_cores(cpu.worst_case_milli)} if all contend")
    if cpu.ceiling_milli is not None:
        owner = f" (from {inert(cpu.ceiling_of)})" if cpu.ceiling_of else ""
        parts.append(f"at most {human_cores(cpu.ceiling_milli)}{owner}")
    if cpu.usage_milli is not None:
        parts.append(f"uses {human_cores(cpu.usage_milli)}")
    if cpu.throttled_percent:
        parts.append(f"throttled in {cpu.throttled_percent} % of its periods")
    return " · ".join(parts)


def vessel_title(vessel: Vessel) -> str:
    words = [LEVEL_WORDS[vessel.level], inert(vessel.name)]
    if vessel.level == "pods":
        words = [inert(vessel.name)]
    if vessel.qos_class and vessel.level == "pod":
        words.append(f"({vessel.qos_class})")
    if vessel.stage in ("init", "sidecar"):
        words.append(f"({vessel.stage})")
    return " ".join(words)


def vessel_sentences(vessel: Vessel) -> list[str]:
    """Everything that a vessel shows, in words."""
    sentences = [f"{vessel_title(vessel)}, {inert(vessel.path)}" if vessel.path else vessel_title(vessel)]
    sentences += [line_sentence(line) for line in vessel.lines]
    if vessel.usage_bytes is not None:
        fills = ", ".join(f"{FILL_WORDS[fill.name]} {human_bytes(fill.bytes)}" for fill in vessel.fills)
        sentences.append(f"uses {human_bytes(vessel.usage_bytes)}{f': {fills}' if fills else ''}")
    cpu = vessel.cpu
    if cpu is not None:
        if cpu.weight is not None:
            sentences.append(_file(cpu.weight_file, str(cpu.weight), cpu.weight_formula, cpu.weight_source))
        if cpu.quota_file:
            sentences.append(_file(cpu.quota_file, cpu.quota_text, cpu.quota_formula, cpu.quota_source))
        if text := cpu_sentence(cpu):
            sentences.append(f"cpu: {text}")
    if vessel.oom_score_adj is not None:
        sentences.append(_file("oom_score_adj", str(vessel.oom_score_adj), vessel.oom_formula, ""))
    if vessel.oom_kills:
        sentences.append(f"OOM kills: {vessel.oom_kills}")
    stalls = [f"{name} {share:g} %" for name, share in vessel.pressure.items() if share]
    if stalls:
        sentences.append(f"stalled in the last 10 s: {', '.join(stalls)}")
    return [*sentences, *map(inert, vessel.remarks)]


def _file(name: str, value: str, formula: str, source: str) -> str:
    parts = [f"{name} {inert(value)}"]
    if formula:
        parts.append(f"formula {inert(formula)}")
    if source:
        parts.append(f"from {inert(source)}")
    return "; ".join(parts)
