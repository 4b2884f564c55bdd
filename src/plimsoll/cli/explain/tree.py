"""An Explanation as a tree or a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from plimsoll.cli.terminal import CLASS_COLOURS, Paint, display_width, inert, on_terminal, table, width
from plimsoll.rules.cgroups.desired import Cgroup, DesiredFile
from plimsoll.rules.cgroups.reasons import human_bytes, human_cores
from plimsoll.rules.explain.explanation import Explanation, PodExplanation
from plimsoll.rules.profile import DOCUMENTED

INDENT = "    "
HUGETLB = "hugetlb."
NAME_WIDTH, VALUE_WIDTH = 18, 16


def tree_lines(found: Explanation, paint: Paint, *, brief: bool = False, advise: bool = False) -> Iterator[str]:
    node = found.node
    yield paint(f"profile {node.profile}: {inert(node.profile_reason)}", "dim")
    title = f"node {inert(node.name)}".rstrip()
    facts = f"cgroup v{node.cgroup_version} · {node.driver} · {node.runtime}"
    yield f"{paint(title, 'bold')}  {paint(facts, 'dim')}"
    yield f"{INDENT}capacity     {_listed(node.capacity)}"
    yield f"{INDENT}allocatable  {_listed(node.allocatable)}"
    if not brief:
        for name, steps in node.steps.items():
            yield paint(f"{INDENT}             {name}: {steps}", "dim")
    if node.shared_cpus is not None:
        yield f"{INDENT}shared CPUs  {node.shared_cpus} for containers without exclusive CPUs"
    for warning in node.warnings:
        yield f"{INDENT}{paint('warning', 'yellow')}: {inert(warning)}"
    name_width = max((len(name) for name in _names(found.tree)), default=0)
    writer = _TreeWriter({pod.name: pod for pod in found.pods}, paint, name_width, brief=brief, advise=advise)
    for index, child in enumerate(found.tree.children):
        yield from writer.lines(child, "", index == len(found.tree.children) - 1)


def _names(cgroup: Cgroup) -> Iterator[str]:
    """Names of files that set the width of their column. Those of huge pages, which are long, do not."""
    yield from (file.name for file in cgroup.files if not file.name.startswith(HUGETLB))
    for child in cgroup.children:
        yield from _names(child)


def _listed(resources: dict[str, str]) -> str:
    return " · ".join(f"{inert(name)} {text}" for name, text in resources.items()) or "none"


def _limit(name: str) -> str:
    return f"the {name} limit"


class _TreeWriter:
    def __init__(
        self, pods: dict[str, PodExplanation], paint: Paint, name_width: int, *, brief: bool, advise: bool
    ) -> None:
        self.pods, self.paint = pods, paint
        self.value_end = max(NAME_WIDTH, name_width) + 1 + VALUE_WIDTH
        self.brief, self.advise = brief, advise
        self.screen = width() if on_terminal() else 0

    def lines(self, cgroup: Cgroup, prefix: str, last: bool) -> Iterator[str]:
        yield prefix + self.paint("└── " if last else "├── ", "dim") + self._title(cgroup)
        inner = prefix + ("    " if last else self.paint("│   ", "dim"))
        bar = self.paint("│   ", "dim") if cgroup.children else "    "
        if cgroup.level == "pod":
            for line in self._pod_lines(self.pods[cgroup.name]):
                yield inner + bar + line
        if cgroup.oom_score_adj is not None:
            steps = "" if self.brief else cgroup.oom_steps
            yield inner + bar + self._row("oom_score_adj", str(cgroup.oom_score_adj), "", steps, "")
        for file in _merged(cgroup.files):
            yield from self._file_lines(file, inner + bar)
        for line in self._effective_lines(cgroup):
            yield inner + bar + line
        for index, child in enumerate(cgroup.children):
            yield from self.lines(child, inner, index == len(cgroup.children) - 1)

    def _title(self, cgroup: Cgroup) -> str:
        path = self.paint(inert(cgroup.path), "dim")
        name = inert(cgroup.name)
        if cgroup.level == "pod":
            qos = self.pods[cgroup.name].qos_class
            return f"{self.paint(name, 'bold')} {self.paint(qos, CLASS_COLOURS[qos])}  {path}"
        if cgroup.level == "container":
            return f"{self.paint(name, 'bold', 'cyan')}  {path}"
        return f"{self.paint(name, 'bold')}  {path}"

    def _pod_lines(self, pod: PodExplanation) -> Iterator[str]:
        paint = self.paint
        yield f"{pod.qos_class} because {inert(pod.because)}"
        for change in pod.advice if self.advise else ():
            wanted = f"= {change.value}" if change.value else "(any amount; the request is set to it)"
            yield f"{paint('advice', 'green')}: set {change.field} {wanted}"
        yield f"effective requests: {_listed(pod.requests)}"
        if pod.limits:
            yield f"effective limits: {_listed(pod.limits)}"
        if pod.overhead:
            owner = f" (RuntimeClass {inert(pod.runtime_class)})" if pod.runtime_class else ""
            limited = [name for name in pod.overhead if name in pod.limits]  # E-1: no limit comes from overhead alone
            where = "both" if len(limited) == len(pod.overhead) else " and ".join(["requests", *map(_limit, limited)])
            yield f"overhead, counted in {where}: {_listed(pod.overhead)}{owner}"
        yield f"eviction for memory: {pod.eviction.sentence()}"
        if pod.exclusive_cpus:
            yield f"exclusive CPUs: {pod.exclusive_cpus}"
        for warning in pod.warnings:
            yield f"{paint('warning', 'yellow')}: {inert(warning)}"
        for note in () if self.brief else pod.notes:
            yield f"note: {inert(note)}"

    def _file_lines(self, file: DesiredFile, lead: str) -> Iterator[str]:
        reason = file.reason
        formula = "" if self.brief else reason.formula
        source = "" if self.brief else reason.source
        row = self._row(file.name, str(file.value), file.human, formula, source)
        if self.screen and display_width(_plain(lead + row)) > self.screen:
            yield lead + self._row(file.name, str(file.value), file.human, "", "")
            for part in filter(None, (formula, f"← {source}" if source else "")):
                yield lead + "      " + self.paint(part, "dim")
        else:
            yield lead + row
        if reason.note and (not self.brief or reason.note.startswith(DOCUMENTED)):
            yield lead + "      " + self.paint(f"({reason.note})", "dim")

    def _row(self, name: str, value: str, human: str, formula: str, source: str) -> str:
        paint = self.paint
        text = f"{name} {paint(f'{value:>{self.value_end - len(name) - 1}}', 'bold')}  {human:<12}"
        tail = "  ".join(part for part in (formula, f"← {source}" if source else "") if part)
        return (text + "  " + paint(tail, "dim") if tail else text).rstrip()

    def _effective_lines(self, cgroup: Cgroup) -> Iterator[str]:
        effective = cgroup.effective
        if effective is None or self.brief or cgroup.level not in ("pod", "container"):
            return
        words = [f"at least {human_cores(effective.cpu_floor_milli)} if all pods of this node contend"]
        if effective.cpu_ceiling_milli is not None:
            words.append(f"at most {human_cores(effective.cpu_ceiling_milli)}{_by(effective.cpu_ceiling_from, cgroup)}")
        if effective.memory_limit_bytes is not None:
            limit = human_bytes(effective.memory_limit_bytes)
            words.append(f"memory limit {limit}{_by(effective.memory_limit_from, cgroup)}")
        for kind, amount in (("kept", effective.memory_min_bytes), ("preferred", effective.memory_low_bytes)):
            if amount:
                words.append(f"{human_bytes(amount)} {kind} from reclaim")
        yield self.paint("in effect: ", "green") + " · ".join(words)


def _merged(files: Sequence[DesiredFile]) -> Iterator[DesiredFile]:
    """One line for huge pages of several sizes that have the same value for the same reason."""
    for key, same in itertools.groupby(files, lambda file: (file.name.startswith(HUGETLB), file.value, file.reason)):
        some = list(same)
        if key[0] and len(some) > 1:
            (first, *_), sizes = some, ",".join(file.name.split(".")[1] for file in some)
            _, _, limit = first.name.split(".", 2)
            yield msgspec.structs.replace(first, name=f"{HUGETLB}{{{sizes}}}.{limit}")
        else:
            yield from some


def _by(name: str, cgroup: Cgroup) -> str:
    return "" if name == cgroup.name else f" (from {inert(name)})"


def _plain(text: str) -> str:
    """The text without colour codes."""
    out, skip = [], False
    for character in text:
        if character == "\x1b":
            skip = True
        elif not skip:
            out.append(character)
        elif character == "m":
            skip = False
    return "".join(out)


def table_lines(found: Explanation) -> Iterator[str]:
    """One row per file, for grep and awk; the value is last, because cpu.max has two words."""
    rows: list[tuple[str, ...]] = []
    _collect(found.tree, "", rows)
    yield from table(rows, ("LEVEL", "POD", "NAME", "CGROUP", "FILE", "VALUE"))


def _collect(cgroup: Cgroup, pod: str, rows: list[tuple[str, ...]]) -> None:
    pod = inert(cgroup.name) if cgroup.level == "pod" else pod
    name = inert(cgroup.name) if cgroup.level != "pod" else "-"
    where = (cgroup.level, pod or "-", name.replace(" ", "-"))
    if cgroup.oom_score_adj is not None:
        rows.append((*where, inert(cgroup.path), "oom_score_adj", str(cgroup.oom_score_adj)))
    for file in cgroup.files:
        rows.append((*where, inert(cgroup.path), file.name, str(file.value)))
    for child in cgroup.children:
        _collect(child, pod, rows)
