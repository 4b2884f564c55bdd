"""`plimsoll reset`: ends what runs with a state directory and removes everything that Plimsoll has made with it.

Each thing is removed because a record says that Plimsoll made it: a process because it holds a lock of the directory, a
cgroup because the state file has its inode, a mount because it is below the directory, a file because of its name. What
has no such record stays, and so does the directory if something else is in it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from plimsoll.cli import console
from plimsoll.cli.server.lock import Holder, holders
from plimsoll.cli.terminal import inert
from plimsoll.errors import PlimsollError
from plimsoll.linux.files.state_dir import state_home

# What Plimsoll writes to its state directory.
NAMES = (
    "address", "admin.kubeconfig", "api.log", "containerd", "node", "node-identity.pem",
    "node-serving.pem", "node.kubeconfig", "node.log", "pki", "runs", "runtime", "store", "tokens.json", "up.lock",
)  # fmt: skip
PATIENCE_S, POLL_S = 30.0, 0.05


class Found(NamedTuple):
    state: Path
    processes: list[Holder]
    cgroups: dict[Path, str]  # home of a node → the cgroup of all its pods; empty if they have none
    files: list[Path]

    def lines(self) -> Iterator[str]:
        for holder in self.processes:
            yield f"end     {holder.name} (process {holder.pid}) and its pods"
        for path in filter(None, self.cgroups.values()):
            yield f"remove  cgroup {path} and all below it"
        for file in self.files:
            yield f"remove  {file}"


@console.command("reset")
@console.option(
    "--state-dir",
    type=console.Path(file_okay=False),
    help="The state directory. [default: $PLIMSOLL_HOME, /var/lib/plimsoll as root]",
)
@console.option("--yes", is_flag=True, help="Do not ask.")
def reset(state_dir: Path | None, yes: bool) -> int:
    """End the cluster of a state directory, and remove its cgroups, mounts, processes, objects and keys.

    Shows what will be removed, and asks. What Plimsoll did not make is not touched.
    """
    state = state_dir or state_home(dict(os.environ), os.geteuid())
    found = _found(state)
    if not (found.processes or found.cgroups or found.files):
        console.echo(f"nothing to remove: {state} has no state of plimsoll")
        return 0
    for line in found.lines():
        console.echo(inert(line))
    if not yes and not _agreed():
        return 1
    problems = asyncio.run(_removed(found))
    for problem in problems:
        console.echo(f"plimsoll: not removed: {inert(problem)}", err=True)
    if not problems:
        console.echo(f"{state}: removed{', except what plimsoll did not make' if state.exists() else ''}")
    return 2 if problems else 0


def _agreed() -> bool:
    try:
        agreed = console.confirm("Remove all this?")
    except KeyboardInterrupt:  # also at the end of standard input
        console.echo("\nnothing was changed; --yes removes it without a question", err=True)
        raise SystemExit(console.INTERRUPTED) from None
    if not agreed:
        console.echo("nothing was changed", err=True)
    return agreed


def _found(state: Path) -> Found:
    from plimsoll.cgroups.engine.ownership import decode_state, this_boot
    from plimsoll.linux.files.append_log import AppendLog

    homes = [state, *sorted(each for each in (state / "runs").glob("*") if each.is_dir())]
    cgroups = {}
    for home in homes:
        if (home / "runtime" / "socket").exists():
            cgroups[home] = ""
        try:
            known = decode_state(AppendLog(home / "node" / "node.jsonl").read())
        except FileNotFoundError:
            continue
        tops = [path for path, owned in known.owned.items() if owned.level == "pods"]
        if tops and known.boot_id == this_boot():
            cgroups[home] = tops[0]
    files = [state / name for name in NAMES if (state / name).exists()]
    return Found(state, list(holders(state)), cgroups, files)


async def _removed(found: Found) -> list[str]:
    """Messages about what could not be removed."""
    for holder in found.processes:
        await _ended(holder)
    problems = []
    for home, path in found.cgroups.items():
        problems += await _node_removed(home, path)
    if (found.state / "containerd").exists():
        from plimsoll.runtime.cri.private_containerd.daemon import OwnContainerd

        problems += await asyncio.to_thread(OwnContainerd(found.state / "containerd").end)
    return problems or _files_removed(found)


async def _ended(holder: Holder) -> None:
    """Send SIGTERM, and SIGKILL if that is not enough. A pidfd cannot mean a process that has reused the pid."""
    try:
        process = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if holder.pid not in {each.pid for each in holders(holder.state)}:
                return
            signal.pidfd_send_signal(process, number)
            deadline_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline_s:
                if holder.pid not in {each.pid for each in holders(holder.state)}:
                    return
                await asyncio.sleep(POLL_S)
    except ProcessLookupError:
        return
    finally:
        os.close(process)
    raise PlimsollError(f"{holder.name} (process {holder.pid}) does not end: stop it, and run the command again")


async def _node_removed(home: Path, path: str) -> list[str]:
    from plimsoll.cli.node.command import node
    from plimsoll.cli.node.machine import opened
    from plimsoll.node.embedded_runtime import remove_leftovers

    arguments = ["--state-dir", str(home), *(_place(path) if path else ["--simulate"])]
    options: dict[str, Any] = node.make_context("node", arguments, parent=console.get_current_context()).params
    return await remove_leftovers(opened(options), home)


def _place(path: str) -> list[str]:
    """The options of a node whose pods are all in the cgroup `path`."""
    from plimsoll.rules.model.cgroup_names import (
        KUBEPODS,
        cgroupfs_path,
        is_systemd_style,
        parse_cgroupfs,
        parse_systemd,
    )

    by_systemd = is_systemd_style(path)
    name = parse_systemd(path) if by_systemd else parse_cgroupfs(path)
    per_qos = name[-1:] == (KUBEPODS,)
    root = cgroupfs_path(name[:-1] if per_qos else name)
    options = ["--driver", "systemd" if by_systemd else "cgroupfs", "--cgroup-root", root]
    return options if per_qos else [*options, "--cgroups-per-qos", "false"]


def _files_removed(found: Found) -> list[str]:
    from plimsoll.linux.files.safe_tree import remove_tree
    from plimsoll.linux.mounts import detach
    from plimsoll.node.volumes.pod_dirs import mounts_below

    problems = []
    for file in found.files:
        for mount_point in mounts_below(file):
            detach(mount_point)
    directory = os.open(found.state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in NAMES:
            try:
                remove_tree(directory, name)
            except OSError as error:
                problems.append(f"{found.state / name}: {error.strerror}")
    finally:
        os.close(directory)
    if not problems and not any(found.state.iterdir()):
        found.state.rmdir()
    return problems
