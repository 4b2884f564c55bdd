"""`plimsoll tree`: shows the live cgroups of this machine; reads only, works with any kubelet."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.cgroups.drivers.detect import Hierarchies, open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.stats.live_tree import files_of, live_tree, sandboxes, task_states
from plimsoll.cli import console
from plimsoll.cli.node.owned import owned_here, with_owners
from plimsoll.cli.node.tree_print import Picture, lines
from plimsoll.cli.parameters import interval_option, names_state_option, pods_option
from plimsoll.cli.terminal import Paint, colourful, echo_json, hanging, inert, screen_width
from plimsoll.codec.owners import Key, Owned
from plimsoll.errors import PlimsollError, StructuredError
from plimsoll.linux.files.state_dir import state_home
from plimsoll.linux.machine import this_machine
from plimsoll.node.agent_lock import why_unenforced
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from plimsoll.rules.cgroups.desired import Cgroup
from plimsoll.rules.cgroups.drift import drift, expected
from plimsoll.rules.cgroups.view import Branch, Names, Standing, branches, with_cpu_rates
from plimsoll.rules.model.cgroup_names import cgroup_path, root_name

MOST_SHOWN = 12
CPU_SAMPLE_S = 0.1
DEEPEST_MISPLACED = 4  # levels below the root


class NoSuchCgroupError(StructuredError):
    path: str
    siblings: list[str]

    def __str__(self) -> str:
        names = ", ".join(f"/{name}" for name in self.siblings[:MOST_SHOWN]) or "none"
        more = ", …" if len(self.siblings) > MOST_SHOWN else ""
        return f"cgroup {self.path} not found; the top-level cgroups are: {names}{more}"


class NoPodsError(StructuredError):
    tried: list[str]

    def __str__(self) -> str:
        return (
            f"no pods found ({' and '.join(self.tried)} do not exist): start a cluster with `plimsoll up`, use "
            "--cgroup-root if its root is elsewhere, or show all cgroups with `plimsoll tree /`"
        )


@console.command("tree")
@console.argument("cgroup", required=False, metavar="[CGROUP]")
@console.option("--cgroup-root", default="/", metavar="PATH", help="The parent cgroup of kubepods. [default: /]")
@console.option("--depth", type=console.IntRange(0), metavar="N", help="Show only N levels below the first.")
@console.option("--tasks", "with_tasks", is_flag=True, help="Show the states of tasks.")
@pods_option
@names_state_option
@console.option("--against", metavar="FILE", help="Show differences from `plimsoll explain … -o json` (- for a pipe).")
@console.option("-o", "--output", type=console.Choice(["text", "json", "svg", "html"]), default="text")
@console.option("-w", "--watch", is_flag=True, help="Show it live; press q to quit.")
@interval_option
def tree(
    cgroup: str | None,
    cgroup_root: str,
    depth: int | None,
    with_tasks: bool,
    files: tuple[str, ...],
    state_dir: Path | None,
    against: str | None,
    output: str,
    watch: bool,
    interval: float,
) -> int:
    """Show the live cgroups of this machine: usage, protection, limits and stalls.

    Without CGROUP, shows all pods below kubepods or kubepods.slice, of a kubelet or of Plimsoll. Writes nothing.
    `-o svg` draws them as vessels, filled to their usage, with all their lines; `-o html` adds a table.

    USED is the working set, CACHE is memory that the kernel can reclaim. CPU USED is the number of CPUs in use now,
    measured for 0.1 s. THROTTLED is the share of CPU periods in which the CPU limit stopped the cgroup. PRESSURE is the
    share of the last 10 s in which some task stalled. OWNS are the exclusive CPUs, memory and devices of a container.
    IO WEIGHT and IO MAX are shown where they are not at the kernel's default.
    """
    if watch and output != "text":
        raise console.UsageError("--watch shows text: it cannot be combined with -o")
    found = this_host()
    driver = open_cgroupfs(found)
    home = state_dir or state_home(dict(os.environ), os.geteuid())
    try:
        root = chosen(driver, found, cgroup, cgroup_root)
        if watch:
            from plimsoll.cli.live.session import live
            from plimsoll.cli.node.tree_watch import TreeView

            shown = TreeView(driver, root, known_names(files, state_dir), depth, with_tasks, owned_here(state_dir))
            return live(shown, interval)
        names, owned = known_names(files, state_dir), owned_here(state_dir)
        view = snapshot(driver, root, names, depth=depth, with_tasks=with_tasks, owned=owned)
        if against is not None:
            view = msgspec.structs.replace(view, notes=differences(driver, view, _explained(against, driver)))
    except NoPodsError:
        if why := why_unenforced(home):
            raise PlimsollError(f"the pods of the node in {home} have no cgroups: {why}") from None
        raise
    finally:
        driver.close()
    if output == "json":
        echo_json(document(view))
    elif output in ("svg", "html"):
        _draw(view, output)
    else:
        console.echo("\n".join(tree_lines(view, Paint(colourful()), screen_width())))
    return 0


def _draw(view: TreeSnapshot, output: str) -> None:
    from plimsoll.cli.picture import write_picture
    from plimsoll.rules.picture.figure import drawing
    from plimsoll.rules.picture.observed import observed_picture

    machine = this_machine()
    remarks = [f"{path}: {note}" for path, notes in view.notes.items() for note in notes]
    remarks += [f"misplaced: {path} (limits of pod, class and node do not apply)" for path in view.misplaced]
    picture = observed_picture(
        view.rows,
        view.standings,
        title=machine.name or "this machine",
        facts=f"cgroup v{view.version} · {view.root}",
        memory_bytes=view.machine_bytes,
        cpu_milli=machine.cores * 1000,
        version=view.version,
        remarks=remarks,
    )
    write_picture(drawing(picture), output)


class TreeSnapshot(msgspec.Struct, frozen=True):
    """The observed cgroups, independent of the output format."""

    version: int
    root: str
    rows: list[Branch]
    standings: Mapping[str, Standing]
    pods: int
    containers: int  # sandboxes excluded
    machine_bytes: int
    with_tasks: bool
    missing: Mapping[str, str]  # file → why this machine lacks it
    misplaced: list[str]
    notes: Mapping[str, list[str]] = {}  # path → differences from the explanation
    read_s: float = 0.0  # by the monotonic clock


class NotAnExplanationError(PlimsollError):
    """The file of --against is not the output of `explain`."""


class _ExplainedNode(msgspec.Struct, frozen=True, rename="camel"):
    cgroup_version: int


class _Explained(msgspec.Struct, frozen=True):
    """The part of an explanation that is compared."""

    node: _ExplainedNode
    tree: Cgroup


def _explained(file: str, driver: CgroupDriver) -> Cgroup:
    with console.open_file(file, "rb") as stream:
        data = stream.read()
    try:
        found = msgspec.json.decode(data, type=_Explained)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "must be the output of `plimsoll explain … -o json`"
        raise NotAnExplanationError(f"--against {file}: {hint} ({error})") from None
    if found.node.cgroup_version != driver.version:
        wants, has = found.node.cgroup_version, driver.version
        raise NotAnExplanationError(
            f"--against {file}: explained for cgroup v{wants}, this machine has v{has}: explain with --cgroup v{has}"
        )
    return found.tree


def differences(driver: CgroupDriver, view: TreeSnapshot, desired: Cgroup) -> dict[str, list[str]]:
    names = {row.path: row.name for row in view.rows if row.what == "container"}
    cgroups = expected(desired, view.standings, names)
    observed: dict[str, Mapping[str, str]] = {}
    for cgroup in cgroups:
        if cgroup.path is not None and cgroup.path in view.standings:
            found = driver.read(cgroup.path, [file.name for file in cgroup.cgroup.files])
            if found is not None:
                observed[cgroup.path] = found.files
    return drift(cgroups, observed, driver.has)


def known_names(files: tuple[str, ...], state_dir: Path | None) -> Names:
    from plimsoll.cli.pod_names import every_pod_name

    found = every_pod_name(files, state_dir)
    return Names(found.pods, found.containers)


def snapshot(
    driver: CgroupDriver,
    root: str,
    names: Names,
    *,
    depth: int | None = None,
    with_tasks: bool = False,
    before: TreeSnapshot | None = None,
    owned: Mapping[Key, Owned] | None = None,
) -> TreeSnapshot:
    """CPU rates are those since `before`, or of a short sample. `owned`: what containers own exclusively."""
    if before is None:
        first, first_s = live_tree(driver, root, depth), time.monotonic()
        time.sleep(CPU_SAMPLE_S)
    else:
        first, first_s = dict(before.standings), before.read_s
    standings, read_s = live_tree(driver, root, depth), time.monotonic()
    standings = with_cpu_rates(first, standings, read_s - first_s)
    owners = {path: owner_of(path) for path in standings}
    pause = sandboxes(driver, (path for path, owner in owners.items() if owner.kind == "container"), standings)
    rows = branches(standings, root, names=names, sandboxes=pause, depth=depth)
    if with_tasks:
        states = task_states(driver, (row.path for row in rows))
        standings |= {
            path: msgspec.structs.replace(standings[path], tasks=tasks)
            for path, tasks in states.items()
            if path in standings
        }
    if owned:
        standings = with_owners(standings, rows, owned, names.containers)
    kinds = [owner.kind for owner in owners.values()]
    return TreeSnapshot(
        driver.version,
        root,
        rows,
        standings,
        kinds.count("pod"),
        kinds.count("container") - len(pause),
        this_machine().memory_bytes,
        with_tasks,
        _missing(driver),
        list(_misplaced(driver)),
        read_s=read_s,
    )


def _misplaced(driver: CgroupDriver, below: str = "", depth: int = DEEPEST_MISPLACED) -> Iterator[str]:
    """Containers outside the cgroups of their pods: at the root, or below the cgroup of the runtime itself."""
    for name in driver.children(below or "/"):
        path = f"{below}/{name}"
        owner = owner_of(path)
        if owner.misplaced:
            yield path
        elif depth and owner.kind == "other":
            yield from _misplaced(driver, path, depth - 1)


def _missing(driver: CgroupDriver) -> dict[str, str]:
    reasons = {file: driver.has(file) for file in files_of(driver)}
    return {file: reason for file, reason in reasons.items() if reason is not None}


def chosen(driver: CgroupDriver, found: Hierarchies, cgroup: str | None, cgroup_root: str) -> str:
    if cgroup is not None:
        path = below_mounts(cgroup, found)
        if driver.read(path, ()) is None and not driver.children(path):
            raise NoSuchCgroupError(path, driver.children("/"))
        return path
    name = root_name(below_mounts(cgroup_root, found))
    candidates = [cgroup_path(name, "cgroupfs"), cgroup_path(name, "systemd")]
    for path in candidates:
        if driver.read(path, ()) is not None:
            return path
    raise NoPodsError(candidates)


def below_mounts(text: str, found: Hierarchies) -> str:
    """The cgroup path of `kubepods`, `/kubepods/` or `/sys/fs/cgroup/memory/kubepods`, as a shell completes it."""
    path = "/" + text.strip("/")
    mounted = [*found.v1.values(), *([found.unified] if found.unified else [])]
    for point in sorted({mount.mount_point for mount in mounted}, key=len, reverse=True):
        if path == point or path.startswith(f"{point}/"):
            return path.removeprefix(point) or "/"
    return path


def tree_lines(view: TreeSnapshot, paint: Paint, screen: int) -> list[str]:
    picture = Picture(view.rows, view.standings, view.machine_bytes, view.notes, view.with_tasks, view.version)
    shown = [headline(view, paint), *lines(picture, paint, screen)]
    for path in view.misplaced:
        about = f"{inert(path)}  (limits of pod, class and node do not apply)"
        shown.append(f"{paint('misplaced', 'red')}  {hanging(about, 11)}")
    for reason, files in _by_reason(view.missing).items():
        about = f"{', '.join(files)} ({inert(reason)})"
        shown.append(paint(f"not available: {hanging(about, 15)}", "dim"))
    return shown


def headline(view: TreeSnapshot, paint: Paint) -> str:
    style = "systemd" if any(row.owner.driver == "systemd" for row in view.rows) else "cgroupfs"
    facts = [f"cgroup v{view.version}"]
    if view.pods or view.rows[0].what == "pods":
        facts += [style, _counted(view.pods, "pod"), _counted(view.containers, "container")]
    else:
        facts.append(_counted(len(view.standings), "cgroup"))
    return f"{paint(inert(view.root), 'bold')}  {paint(' · '.join(facts), 'dim')}"


def _counted(amount: int, word: str) -> str:
    return f"{amount} {word}{'' if amount == 1 else 's'}"


def _by_reason(missing: Mapping[str, str]) -> dict[str, list[str]]:
    by_reason: dict[str, list[str]] = {}
    for file, reason in missing.items():
        by_reason.setdefault(reason.replace(f"no {file}", "none"), []).append(file)
    return by_reason


def document(view: TreeSnapshot) -> dict[str, Any]:
    """The tree as JSON; children are nested in their cgroup."""
    below: dict[str, list[dict[str, Any]]] = {}
    first: dict[str, Any] = {}
    for row in view.rows:
        node = _node(row, view.standings.get(row.path, Standing()))
        if row.path in view.notes:
            node["differs"] = view.notes[row.path]
        below[row.path] = node["children"] = []
        if row.last:
            below[row.path.rpartition("/")[0] or "/"].append(node)
        else:
            first = node
    return {
        "cgroupVersion": view.version,
        "machineMemoryBytes": view.machine_bytes,
        "missing": dict(view.missing),
        "misplaced": view.misplaced,
        "tree": first,
    }


def _node(row: Branch, standing: Standing) -> dict[str, Any]:
    owner = row.owner
    known: Iterable[tuple[str, Any]] = (
        ("path", row.path),
        ("kind", row.what),
        ("name", row.name),
        ("qosClass", owner.qos_class),
        ("podUid", owner.pod_uid),
        ("containerId", owner.container_id),
        ("runtime", owner.runtime),
        ("hidden", row.hidden),
    )
    figures: dict[str, Any] = msgspec.to_builtins(standing)
    return {key: value for key, value in known if value} | figures
