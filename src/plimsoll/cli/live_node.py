"""The node that this machine is, opened for work: cgroup driver, resolved setting and state, from the options."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from plimsoll.cli.node_options import NodeQuestion, node_options
from plimsoll.linux.state_dir import private_directory, state_home

if TYPE_CHECKING:
    from plimsoll.cgroups.driver import CgroupDriver
    from plimsoll.cgroups.node_tree import NodeTree
    from plimsoll.cgroups.v1 import CgroupsV1
    from plimsoll.cgroups.v2 import CgroupsV2
    from plimsoll.cli.runtime_asked import RuntimeTold
    from plimsoll.rules.setting import Machine, Setting

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")
INTERRUPTED = 130  # the exit code of shells for Ctrl-C

_OPTIONS = (
    click.option(
        "--state-dir",
        type=click.Path(path_type=Path),
        help="Where is kept what we made. [default: $PLIMSOLL_HOME, /var/lib/plimsoll as root]",
    ),
    click.option("--simulate", is_flag=True, help="On a kernel in memory: nothing on this machine is touched."),
    click.option(
        "--shrink",
        type=click.Choice(["safe", "kubernetes"]),
        default="safe",
        show_default=True,
        help="How a memory limit comes down: reclaim first and never kill, or Kubernetes' plain check.",
    ),
)


def live_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return node_options(command)


class LiveNode:
    """`tree` does the work; `notes` is what the user should know; `home` is the state directory."""

    def __init__(
        self,
        driver: CgroupDriver,
        setting: Setting,
        tree: NodeTree,
        notes: list[str],
        home: Path,
        question: NodeQuestion,
        files: CgroupsV1 | CgroupsV2 | None = None,
        told: RuntimeTold | None = None,
    ) -> None:
        """`files`: the cgroup file systems themselves, whoever makes cgroups in them. `told`: whose containers are not
        ours, what their runtime says of itself."""
        self.told = told
        self.driver, self.setting, self.tree, self.notes, self.files = driver, setting, tree, notes, files
        self.home, self.extras, self.declared_capacity = home, question.extras, question.declared_capacity


def opened(options: dict[str, Any]) -> LiveNode:
    """Raises where cgroups cannot be used, with what to do about it."""
    from plimsoll.cgroups.node_tree import NodeTree

    question = NodeQuestion({**options, "runtime": "process"})
    question.machine = with_storage(question.machine, options["state_dir"])
    endpoint = question.runtime_endpoint
    if options["simulate"]:
        if endpoint:
            raise click.UsageError(f"--simulate: the runtime at {endpoint} makes real cgroups; leave one of both out")
        return _simulated(question, options)
    from plimsoll.cgroups.detect import check_required, default_root, this_host, writable
    from plimsoll.cgroups.opening import open_cgroupfs

    found = this_host()
    check_required(found)
    asked = options["cgroup"]
    if asked and asked != f"v{found.version}":
        raise click.UsageError(
            f"--cgroup {asked}: this machine has cgroup v{found.version}; --simulate shows the other"
        )
    if not question.flags.get("cgroupRoot"):
        root = default_root(found, writable(found))
        if root != "/":
            question.flags["cgroupRoot"] = [root]
    changed: dict[str, str | None] = {"cgroup": f"v{found.version}"}
    told, warning = None, ""
    if endpoint:
        from plimsoll.cli.runtime_asked import asked as runtime_asked

        told = runtime_asked(endpoint)
        driver_name, warning = told.driver_for(question.said_driver)
        changed |= {"runtime": told.kind, "driver": driver_name}
    setting, notes = question.setting(**changed)
    notes += [warning] if warning else []
    files = open_cgroupfs(found)
    driver: CgroupDriver = files
    if setting.driver == "systemd":
        from plimsoll.cgroups.systemd import SystemdCgroups

        driver = SystemdCgroups(files)
    home = private_directory(options["state_dir"] or state_home(dict(os.environ), os.geteuid()))
    tree = NodeTree(driver, setting, home / "node", shrink=options["shrink"])
    return LiveNode(driver, setting, tree, notes, home, question, files, told)


def with_storage(machine: Machine, state_dir: Path | None) -> Machine:
    """A node of a declared size still has the disk that pods write to."""
    from plimsoll.linux.machine import this_machine
    from plimsoll.rules.objects import EPHEMERAL_STORAGE

    if EPHEMERAL_STORAGE in machine.others:
        return machine
    disk = {EPHEMERAL_STORAGE: this_machine(str(state_dir or "/var/lib")).others[EPHEMERAL_STORAGE]}
    return msgspec.structs.replace(machine, others={**machine.others, **disk})


def finished(live: LiveNode, turn: Coroutine[Any, Any, Result]) -> Result:
    """Run one turn; after Ctrl-C it is said how the node was left."""
    try:
        return asyncio.run(turn)
    except KeyboardInterrupt:
        left = live.tree.status().unfinished
        how = "nothing is left half done" if left is None else f"{left.subject} is half done, the next run undoes it"
        click.echo(f"plimsoll: interrupted; {how}", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def _simulated(question: NodeQuestion, options: dict[str, Any]) -> LiveNode:
    import tempfile

    from plimsoll.cgroups.node_tree import NodeTree
    from plimsoll.cgroups.simulated import SimulatedKernel

    setting, notes = question.setting()
    driver = SimulatedKernel(
        setting.policy.cgroup_version,
        setting.driver,
        page_size=setting.machine.page_size,
        hugepage_sizes=setting.policy.hugepage_sizes,
        cpus=setting.machine.cores,
    )
    state = Path(click.get_current_context().with_resource(tempfile.TemporaryDirectory(prefix="plimsoll-")))
    boot = state / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("simulated")
    tree = NodeTree(driver, setting, state / "node", shrink=options["shrink"], proc=state / "proc")
    notes.append("simulated: a kernel in memory, nothing on this machine is touched")
    return LiveNode(driver, setting, tree, notes, state, question)
