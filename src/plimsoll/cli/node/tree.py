"""`plimsoll tree`: the live cgroups of this machine, read and never written, whoever made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from plimsoll.cgroups.drivers.detect import Hierarchies, open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.stats.live_tree import files_of, live_tree, sandboxes, task_states
from plimsoll.cli.node.tree_print import Picture, lines
from plimsoll.cli.terminal import Paint, colourful, inert, on_terminal, width
from plimsoll.errors import PlimsollError
from plimsoll.linux.machine import this_machine
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from plimsoll.rules.cgroups.desired import Cgroup
from plimsoll.rules.cgroups.drift import drift, expected
from plimsoll.rules.cgroups.view import Branch, Names, Standing, branches
from plimsoll.rules.model.cgroup_names import cgroup_path, root_name

MOST_SHOWN = 12
DEEPEST_MISPLACED = 4  # levels below the first one


class NoSuchCgroupError(PlimsollError):
    def __init__(self, path: str, siblings: list[str]) -> None:
        super().__init__(path, siblings)
        self.path = path
        self.siblings = siblings

    def __str__(self) -> str:
        there = ", ".join(f"/{name}" for name in self.siblings[:MOST_SHOWN]) or "none"
        more = ", …" if len(self.siblings) > MOST_SHOWN else ""
        return f"no cgroup {self.path} on this machine; at the top there are: {there}{more}"


class NoPodsError(PlimsollError):
    def __init__(self, looked: list[str]) -> None:
        super().__init__(looked)
        self.looked = looked

    def __str__(self) -> str:
        return (
            f"no pods on this machine ({' and '.join(self.looked)} are not there): `plimsoll node setup` makes a node, "
            "--cgroup-root finds one that stands elsewhere, `plimsoll tree /` shows any cgroup"
        )


@click.command("tree")
@click.argument("cgroup", required=False, metavar="[CGROUP]")
@click.option("--cgroup-root", default="/", metavar="PATH", help="Where kubepods stands. [default: /]")
@click.option("--depth", type=click.IntRange(0), metavar="N", help="So many levels below the first.")
@click.option("--tasks", "with_tasks", is_flag=True, help="What each cgroup's own tasks are doing.")
@click.option("--pods", "files", multiple=True, metavar="FILE", help="Names from `kubectl get pods -A -o json`.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="Of `plimsoll node`: the names of our own pods.")
@click.option("--against", metavar="FILE", help="Mark what differs from `plimsoll explain … -o json` (- for a pipe).")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def tree(
    cgroup: str | None,
    cgroup_root: str,
    depth: int | None,
    with_tasks: bool,
    files: tuple[str, ...],
    state_dir: Path | None,
    against: str | None,
    output: str,
) -> None:
    """Show the live cgroups of this machine: what each uses, what protects and limits it, where it stalls.

    Without CGROUP all pods, below kubepods or kubepods.slice; a real kubelet's as well as our own. Nothing is written.

    USED is the working set, CACHE what the kernel can take back. THROTTLED: of the periods in which the cgroup wanted
    to run, those in which its cpu limit stopped it. PRESSURE: part of the last 10 s in which some task stalled.
    """
    found = this_host()
    driver = open_cgroupfs(found)
    try:
        root = _chosen(driver, found, cgroup, cgroup_root)
        view = look(driver, root, _names(files, state_dir), depth=depth, with_tasks=with_tasks)
        if against is not None:
            view = msgspec.structs.replace(view, notes=differences(driver, view, _explained(against, driver)))
    finally:
        driver.close()
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document(view)), indent=2))
    else:
        _print(view)


class TreeSnapshot(msgspec.Struct, frozen=True):
    """Everything that was seen, before it is printed one way or another."""

    version: int
    root: str
    rows: list[Branch]
    standings: Mapping[str, Standing]
    pods: int
    containers: int  # without sandboxes
    machine_bytes: int
    with_tasks: bool
    missing: Mapping[str, str]  # file → why this machine has none
    misplaced: list[str]
    notes: Mapping[str, list[str]] = {}  # path → what was wanted of it and is not so


class NotAnExplanationError(PlimsollError):
    """A file given with --against that does not hold what `explain` prints."""


class _ExplainedNode(msgspec.Struct, frozen=True, rename="camel"):
    cgroup_version: int


class _Explained(msgspec.Struct, frozen=True):
    """Of an explanation, as much as is compared."""

    node: _ExplainedNode
    tree: Cgroup


def _explained(file: str, driver: CgroupDriver) -> Cgroup:
    with click.open_file(file, "rb") as stream:
        data = stream.read()
    try:
        found = msgspec.json.decode(data, type=_Explained)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "it must be what `plimsoll explain … -o json` prints"
        raise NotAnExplanationError(f"--against {file}: {hint} ({error})") from None
    if found.node.cgroup_version != driver.version:
        wants, has = found.node.cgroup_version, driver.version
        raise NotAnExplanationError(
            f"--against {file}: explained for cgroup v{wants}, this machine has v{has}: --cgroup v{has}"
        )
    return found.tree


def differences(driver: CgroupDriver, view: TreeSnapshot, wanted: Cgroup) -> dict[str, list[str]]:
    names = {row.path: row.name for row in view.rows if row.what == "container"}
    each = expected(wanted, view.standings, names)
    seen: dict[str, Mapping[str, str]] = {}
    for one in each:
        if one.path is not None and one.path in view.standings:
            found = driver.read(one.path, [file.name for file in one.cgroup.files])
            if found is not None:
                seen[one.path] = found.files
    return drift(each, seen, driver.has)


def _names(files: tuple[str, ...], state_dir: Path | None) -> Names:
    from plimsoll.cli.pod_names import every_pod_name

    found = every_pod_name(files, state_dir)
    return Names(found.pods, found.containers)


def look(
    driver: CgroupDriver, root: str, names: Names, *, depth: int | None = None, with_tasks: bool = False
) -> TreeSnapshot:
    standings = live_tree(driver, root, depth)
    owners = {path: owner_of(path) for path in standings}
    pause = sandboxes(driver, (path for path, owner in owners.items() if owner.kind == "container"), standings)
    rows = branches(standings, root, names=names, sandboxes=pause, depth=depth)
    if with_tasks:
        states = task_states(driver, (row.path for row in rows))
        standings |= {
            path: msgspec.structs.replace(standings[path], tasks=each)
            for path, each in states.items()
            if path in standings
        }
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
    )


def _misplaced(driver: CgroupDriver, below: str = "", depth: int = DEEPEST_MISPLACED) -> Iterator[str]:
    """Containers outside their pods: at the root, or where the runtime itself is (runc takes the name as relative)."""
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


def _chosen(driver: CgroupDriver, found: Hierarchies, cgroup: str | None, cgroup_root: str) -> str:
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
    """People write `kubepods`, `/kubepods/` or, from a shell's completion, /sys/fs/cgroup/memory/kubepods."""
    path = "/" + text.strip("/")
    mounted = [*found.v1.values(), *([found.unified] if found.unified else [])]
    for point in sorted({each.mount_point for each in mounted}, key=len, reverse=True):
        if path == point or path.startswith(f"{point}/"):
            return path.removeprefix(point) or "/"
    return path


def _print(view: TreeSnapshot) -> None:
    paint = Paint(colourful())
    picture = Picture(view.rows, view.standings, view.machine_bytes, view.notes, view.with_tasks)
    shown = [headline(view, paint), *lines(picture, paint, width() if on_terminal() else 0)]
    for path in view.misplaced:
        shown.append(f"{paint('misplaced', 'red')}  {inert(path)}  (no limit of pod, class or node applies)")
    for reason, files in _by_reason(view.missing).items():
        shown.append(paint(f"not here: {', '.join(files)} ({inert(reason)})", "dim"))
    click.echo("\n".join(shown))


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
    found: dict[str, list[str]] = {}
    for file, reason in missing.items():
        found.setdefault(reason.replace(f"no {file}", "none"), []).append(file)
    return found


def document(view: TreeSnapshot) -> dict[str, Any]:
    """The same as JSON: a cgroup's children stand inside it."""
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
