"""This machine as a node, opened from the options of a verb: cgroup driver, resolved configuration and state."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from plimsoll.cli.node_options import NodeQuestion, node_options
from plimsoll.errors import PlimsollError
from plimsoll.linux.state_dir import private_directory, state_home
from plimsoll.node.machine import LiveNode, query_runtime

if TYPE_CHECKING:
    from plimsoll.cgroups.drivers.interface import CgroupDriver
    from plimsoll.rules.node.node_config import Machine

NAMELESS = "(none)"  # what Linux calls a host that nobody has named
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


def node_name(given: str | None, host_name: str = "") -> str:
    """As a kubelet names its node: the host's name in lower case. Of one that is no name, what can be kept of it."""
    from plimsoll.rules.model.names import dns_subdomain_problems

    if given is None:
        host_name = (host_name or os.uname().nodename).strip().lower()
        given = re.sub(r"[^a-z0-9.-]+|\.(?=[.-])|(?<=-)\.", "-", host_name).strip("-.")
        given = given if given and host_name != NAMELESS else "node"
    for complaint in dns_subdomain_problems(given):
        raise PlimsollError(f"{given!r} cannot name a node: {complaint}; give --name NAME")
    return given


def live_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return node_options(command)


def opened(options: dict[str, Any]) -> LiveNode:
    """Raises where cgroups cannot be used, with what to do about it."""
    from plimsoll.cgroups.engine.manager import CgroupManager

    question = NodeQuestion({**options, "runtime": "process"})
    question.machine = with_storage(question.machine, options["state_dir"])
    endpoint = question.runtime_endpoint
    if options["simulate"]:
        if endpoint:
            raise click.UsageError(f"--simulate: the runtime at {endpoint} makes real cgroups; leave one of both out")
        return _simulated(question, options)
    from plimsoll.cgroups.drivers.detect import check_required, default_root, open_cgroupfs, this_host, writable

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
    runtime, warning = None, ""
    if endpoint:
        runtime = query_runtime(endpoint)
        driver_name, warning = runtime.driver_for(question.said_driver)
        changed |= {"runtime": runtime.kind, "driver": driver_name}
    setting, notes = question.setting(**changed)
    notes += [warning] if warning else []
    files = open_cgroupfs(found)
    driver: CgroupDriver = files
    if setting.driver == "systemd":
        from plimsoll.cgroups.drivers.systemd import SystemdCgroups

        driver = SystemdCgroups(files)
    home = private_directory(options["state_dir"] or state_home(dict(os.environ), os.geteuid()))
    tree = CgroupManager(driver, setting, home / "node", shrink=options["shrink"])
    return LiveNode(driver, setting, tree, notes, home, question.extras, question.declared_capacity, files, runtime)


def with_storage(machine: Machine, state_dir: Path | None) -> Machine:
    """A node of a declared size still has the disk that pods write to."""
    from plimsoll.linux.machine import this_machine
    from plimsoll.rules.model.objects import EPHEMERAL_STORAGE

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

    from plimsoll.cgroups.drivers.simulated import SimulatedKernel
    from plimsoll.cgroups.engine.manager import CgroupManager

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
    tree = CgroupManager(driver, setting, state / "node", shrink=options["shrink"], proc=state / "proc")
    notes.append("simulated: a kernel in memory, nothing on this machine is touched")
    return LiveNode(driver, setting, tree, notes, state, question.extras, question.declared_capacity)
