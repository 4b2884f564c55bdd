"""The report of `up` when the pods run: QoS class, score and cgroups of each pod, checked against `explain`.

It reads every cgroup file that `plimsoll explain` lists for the pods of this node from the kernel, not from the agent,
and prints what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.cli.terminal import CLASS_COLOURS, Paint, inert, table
from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.linux.capabilities import has_capability
from plimsoll.linux.processes import oom_score_adj
from plimsoll.node.machine import LiveNode
from plimsoll.rules.cgroups.desired import Cgroup, Workload, desired_tree, workload
from plimsoll.rules.cgroups.reconcile import Unmet
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.model.cgroup_names import container_component

KEY_FILES = (
    "cpu.shares", "cpu.weight", "cpu.cfs_quota_us", "cpu.max", "memory.limit_in_bytes", "memory.min", "memory.high",
    "memory.max",
)  # fmt: skip


_CLASSES = tuple(CLASS_COLOURS)  # the best protected class first


class Compared(msgspec.Struct, frozen=True):
    """One cgroup, compared with the kernel. `wrong`: file → (explained value, value in the kernel or None)."""

    path: str
    shown: str  # the most important files, as text
    files: int
    wrong: Mapping[str, tuple[str, str | None]]


class PodReport(msgspec.Struct, frozen=True):
    name: str
    qos: str
    score: str
    cgroups: tuple[Compared, ...]


class NodeReport(msgspec.Struct, frozen=True):
    pods: tuple[PodReport, ...]
    above: tuple[Compared, ...]  # kubepods and the QoS cgroups
    unmet: tuple[str, ...]

    @property
    def cgroups(self) -> list[Compared]:
        return [*self.above, *(each for pod in self.pods for each in pod.cgroups)]


def node_report(live: LiveNode, pods: Sequence[Mapping[str, Any]], pids: Mapping[str, int]) -> NodeReport:
    """`pods`: the objects of all pods of this node that have not ended. `pids`: container id → its first process."""
    # Sized as allocated: the object has what was requested last, which the node may have deferred or refused.
    sized = [live.tree.sized_for(pod["metadata"]["uid"]) or pod_from_json(msgspec.json.encode(pod)) for pod in pods]
    works = [workload(pod, live.setting) for pod in sized]
    works.sort(key=lambda work: (_CLASSES.index(work.qos), work.pod.metadata.name))
    tree = desired_tree(works, live.setting)
    above, found = [], {}
    for cgroup in _walked(tree):
        if cgroup.level in ("pods", "class"):
            above.append(_compared(live, cgroup, cgroup.path))
        elif cgroup.level == "pod":
            found[cgroup.path.rpartition("/")[2]] = cgroup
    ids = {pod["metadata"]["uid"]: _container_ids(pod) for pod in pods}
    reports = [_pod(live, work, found, ids[work.pod.metadata.uid], pids) for work in works]
    unmet = () if live.driver.simulated else tuple(_lacks(live.tree.status().unmet))
    return NodeReport(tuple(reports), tuple(above), unmet)


def _lacks(unmet: Iterable[Unmet]) -> Iterator[str]:
    """One line for each reason."""
    files: dict[str, dict[str, None]] = {}
    for each in unmet:
        files.setdefault(each.reason, {})[each.file] = None
    for reason, names in files.items():
        yield f"{', '.join(names)}: {reason}"


def _walked(cgroup: Cgroup) -> Iterator[Cgroup]:
    yield cgroup
    for child in cgroup.children:
        yield from _walked(child)


def _container_ids(pod: Mapping[str, Any]) -> dict[str, str]:
    """Container name → id, for containers that exist."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return {each["name"]: each["containerID"].rpartition("/")[2] for each in statuses if each.get("containerID")}


def _pod(
    live: LiveNode, work: Workload, found: Mapping[str, Cgroup], ids: Mapping[str, str], pids: Mapping[str, int]
) -> PodReport:
    """`ids`: container name → id."""
    uid = work.pod.metadata.uid
    cgroup = next(each for name, each in found.items() if uid in name or uid.replace("-", "_") in name)
    paths = live.tree.paths(uid)
    for name, container_id in ids.items() if live.runtime is not None else ():  # the runtime creates their cgroups
        component = container_component(container_id, live.setting.driver, live.setting.runtime)
        paths[name] = f"{paths.get('', cgroup.path)}/{component}"
    parts = [(cgroup, paths.get("", cgroup.path))]
    real = not live.driver.simulated
    parts += [(child, paths.get(child.name, "")) for child in cgroup.children if not real or child.name in paths]
    scores = [_score(live, child, path, pids.get(ids.get(child.name, ""))) for child, path in parts[1:]]
    return PodReport(
        work.pod.metadata.name,
        work.qos,
        ", ".join(dict.fromkeys(scores)) or "?",
        tuple(_compared(live, each, path) for each, path in parts),
    )


def _score(live: LiveNode, container: Cgroup, path: str, pid: int | None) -> str:
    """What the process has; with the wanted value and the reason if that is another one."""
    want = container.oom_score_adj
    if pid is None and not live.driver.simulated:
        pid = next(iter(live.tree.processes(path, deep=True)), None)
    have = oom_score_adj(pid) if pid else None
    if have == want:
        return f"{want}"
    if have is None:
        return f"no process (wanted {want})"
    lowered = want is not None and want < have
    reason = "needs CAP_SYS_RESOURCE" if lowered and not has_capability("SYS_RESOURCE") else "differs"
    return f"{have} (wanted {want}: {reason})"


def _compared(live: LiveNode, cgroup: Cgroup, path: str) -> Compared:
    wanted = {file.name: str(file.value) for file in cgroup.files}
    seen = live.driver.read(path, wanted)
    have = dict(seen.files) if seen is not None else {}
    page_size = live.setting.machine.page_size
    wrong = {
        file: (text, have.get(file))
        for file, text in wanted.items()
        if not live.driver.has(file) and not (file in have and same_value(file, text, have[file], page_size))
    }
    if live.driver.simulated:
        wrong, have = {}, wanted
    shown = " ".join(f"{file}={have[file]}" for file in KEY_FILES if file in wanted and file in have)
    return Compared(path, shown, len(wanted), wrong)


def printed(report: NodeReport, simulated: bool, paint: Paint) -> Iterator[str]:
    places = ["none, limits are not enforced" if simulated else pod.cgroups[0].path for pod in report.pods]
    rows = [(inert(pod.name), pod.qos, pod.score, place) for pod, place in zip(report.pods, places, strict=True)]
    header, *lines = table(rows, ("POD", "CLASS", "OOM_SCORE_ADJ", "CGROUP"))
    yield paint(header, "dim")
    for pod, line in zip(report.pods, lines, strict=True):
        yield line.replace(pod.qos, paint(pod.qos, CLASS_COLOURS[pod.qos]), 1)
        for cgroup in pod.cgroups[:1]:
            would = "would be " if simulated else ""
            yield paint(f"    {would}{cgroup.shown or '(only the minimum CPU share)'}", "dim")
    every = report.cgroups
    files = sum(each.files for each in every)
    if simulated:
        yield f"not enforced: the {files} values in {len(every)} cgroups that plimsoll explain computes are not written"
        return
    wrong = [(each.path, file, *pair) for each in every for file, pair in each.wrong.items()]
    if wrong:
        for path, file, want, have in wrong:
            yield paint(f"{path} {file}: explained {want}, the kernel has {have or 'no value'}", "red")
    else:
        text = f"{files} files in {len(every)} cgroups: the kernel has the values of plimsoll explain"
        yield paint(text, "green")
    for lack in report.unmet:
        yield paint(f"not supported on this machine: {inert(lack)}", "yellow")
