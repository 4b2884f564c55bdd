"""This machine as a node, opened from the options of a verb: cgroup driver, resolved configuration and state."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from plimsoll.cli import console
from plimsoll.cli.node_options import NodeQuestion, is_description, node_options
from plimsoll.errors import PlimsollError
from plimsoll.linux.files.state_dir import private_directory, state_home
from plimsoll.node.machine import LiveNode, query_runtime

if TYPE_CHECKING:
    from plimsoll.cgroups.drivers.interface import CgroupDriver
    from plimsoll.rules.node.node_config import Machine

NAMELESS = "(none)"  # the name of a host without a name in Linux
Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")

_OPTIONS = (
    console.option(
        "--state-dir",
        type=console.Path(),
        help="State directory. [default: $PLIMSOLL_HOME, /var/lib/plimsoll as root]",
    ),
    console.option("--simulate", is_flag=True, help="Use a simulated kernel: this machine is not changed."),
    console.option(
        "--shrink",
        type=console.Choice(["safe", "kubernetes"]),
        default="safe",
        show_default=True,
        help="How to lower a memory limit: reclaim first and never kill, or only check as Kubernetes does.",
    ),
)


def node_name(name: str | None, host_name: str = "") -> str:
    """The name of the node; by default, as with a kubelet, the host name in lower case without invalid characters."""
    from plimsoll.rules.model.names import dns_subdomain_problems

    if name is None:
        host_name = (host_name or os.uname().nodename).strip().lower()
        name = re.sub(r"[^a-z0-9.-]+|\.(?=[.-])|(?<=-)\.", "-", host_name).strip("-.")
        name = name if name and host_name != NAMELESS else "node"
    for complaint in dns_subdomain_problems(name):
        raise PlimsollError(f"{name!r} is not a valid node name: {complaint}; set another with --name")
    return name


def live_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return node_options(command)


def described(options: dict[str, Any], given: frozenset[str]) -> dict[str, Any]:
    """The options that describe the node and were given, in a form that another command can read."""
    return {
        name: os.path.abspath(value) if name.endswith("_file") else value
        for name, value in options.items()
        if name in given and is_description(name)
    }


def opened(options: dict[str, Any]) -> LiveNode:
    """Open the node that the options describe. Raises if cgroups cannot be used, with what to do."""
    from plimsoll.cgroups.engine.manager import CgroupManager

    question = NodeQuestion({**options, "runtime": "process"})
    question.machine = with_storage(question.machine, options["state_dir"])
    endpoint = question.runtime_endpoint
    if options["simulate"]:
        if endpoint:
            raise console.UsageError(
                f"--simulate cannot be combined with the runtime at {endpoint}, which creates real cgroups"
            )
        return _simulated(question, options)
    from plimsoll.cgroups.drivers.detect import check_required, default_root, open_cgroupfs, this_host, writable

    found = this_host()
    check_required(found)
    version = options["cgroup"]
    if version and version != f"v{found.version}":
        raise console.UsageError(
            f"--cgroup {version}: this machine has cgroup v{found.version}; use --simulate for the other version"
        )
    if not question.flags.get("cgroupRoot"):
        root = default_root(found, writable(found))
        if root != "/":
            question.flags["cgroupRoot"] = [root]
    changed: dict[str, str | None] = {"cgroup": f"v{found.version}"}
    runtime, warning = None, ""
    if endpoint:
        runtime = query_runtime(endpoint)
        driver_name, warning = runtime.driver_for(question.configured_driver)
        changed |= {"runtime": runtime.kind, "driver": driver_name}
    setting, notes = question.setting(**changed)
    notes += [warning] if warning else []
    files = open_cgroupfs(found)
    if setting.policy.io is not None:
        from plimsoll.cgroups.drivers.block_io import on_this_machine

        setting, io_notes = on_this_machine(setting, files, by_runtime=runtime is not None)
        notes += io_notes
    driver: CgroupDriver = files
    if setting.driver == "systemd":
        from plimsoll.cgroups.drivers.systemd import SystemdCgroups

        driver = SystemdCgroups(files)
    home = private_directory(options["state_dir"] or state_home(dict(os.environ), os.geteuid()))
    tree = CgroupManager(driver, setting, home / "node", shrink=options["shrink"])
    return LiveNode(driver, setting, tree, notes, home, question.extras, question.declared_capacity, files, runtime)


def configures(options: dict[str, Any], name: str) -> bool:
    """Whether these options set this field of a KubeletConfiguration."""
    return NodeQuestion({**options, "runtime": "process"}).configures(name)


def driver_of(options: dict[str, Any]) -> str:
    """The cgroup driver of the node that the options describe, where no runtime reports another."""
    setting, _ = NodeQuestion({**options, "runtime": "process"}).setting()
    return setting.driver


def with_storage(machine: Machine, state_dir: Path | None) -> Machine:
    """The machine with the size of its disk, which a declared capacity need not contain."""
    from plimsoll.linux.machine import this_machine
    from plimsoll.rules.model.objects import EPHEMERAL_STORAGE

    if EPHEMERAL_STORAGE in machine.others:
        return machine
    disk = {EPHEMERAL_STORAGE: this_machine(str(state_dir or "/var/lib")).others[EPHEMERAL_STORAGE]}
    return msgspec.structs.replace(machine, others={**machine.others, **disk})


def finished(live: LiveNode, transaction: Coroutine[Any, Any, Result]) -> Result:
    """Run one transaction; after Ctrl-C print in which state it left the node."""
    try:
        return asyncio.run(transaction)
    except KeyboardInterrupt:
        left = live.tree.status().unfinished
        state = (
            "no changes are pending" if left is None else f"{left.subject} is incomplete, the next run rolls it back"
        )
        console.echo(f"plimsoll: interrupted; {state}", err=True)
        raise SystemExit(console.INTERRUPTED) from None


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
    state = Path(console.get_current_context().with_resource(tempfile.TemporaryDirectory(prefix="plimsoll-")))
    boot = state / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("simulated")
    tree = CgroupManager(driver, setting, state / "node", shrink=options["shrink"], proc=state / "proc")
    notes.append("simulated kernel: this machine is not changed")
    return LiveNode(driver, setting, tree, notes, state, question.extras, question.declared_capacity)
