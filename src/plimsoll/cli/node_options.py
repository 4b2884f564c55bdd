"""The options that say for which node to answer, shared by every verb that explains; and how they become a Setting.

The kubelet's own flags come from the configuration table; a flag beats the file, the file beats the profile.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from plimsoll.codec.lean.lean import from_document, quantity_text
from plimsoll.codec.yaml.reader import YamlDocument, YamlError, read
from plimsoll.errors import InvalidConfigError, InvalidConfigsError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.config.extras import KIND as EXTRAS_KIND
from plimsoll.rules.config.extras import NodeExtras, extras_reading, is_extras
from plimsoll.rules.config.parse import ParsedConfig, reading
from plimsoll.rules.config.table import KIND, ROWS
from plimsoll.rules.model.objects import Node, ResourceList
from plimsoll.rules.node.node_config import Machine, NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import DEFAULT_PROFILE, PROFILES, Profile, profile_named
from plimsoll.rules.quantity import QUANTITIES

FIRST_MODERN_MINOR = 32  # /resize, sidecar and pod-level rules: from here on a node is nearer to 1.36 than to 1.27
_VERSION = re.compile(r"v1\.(\d+)")

Command = TypeVar("Command", bound=Callable[..., Any])

_FLAG = "kubelet_flag_"  # click wants identifiers; a row's name follows
_OWN_WORDS = {"--cgroup-driver"}  # the same question as `--driver`


def node_options(command: Command) -> Command:
    for row in reversed([row for row in ROWS if row.flag and row.flag not in _OWN_WORDS]):
        command = click.option(
            row.flag,
            _FLAG + row.name.replace(".", "__"),
            metavar="TEXT",
            multiple=True,
            help=row.description,
            hidden=row.flag not in _SHOWN,
        )(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_SHOWN = frozenset(
    {
        "--feature-gates",
        "--system-reserved",
        "--kube-reserved",
        "--eviction-hard",
        "--cgroup-root",
        "--cpu-manager-policy",
        "--container-runtime-endpoint",
    }
)
_OPTIONS = (
    click.option("--node", "node_file", metavar="FILE", help="A Node object: its capacity is the machine."),
    click.option("--capacity", metavar="LIST", help="cpu=48,memory=256Gi,pods=110,swap=8Gi,…  [default: this machine]"),
    click.option("--config", "config_file", metavar="FILE", help="A KubeletConfiguration file, as it is."),
    click.option(
        "--cgroup", type=click.Choice(["v1", "v2"]), help="cgroup version. [default: this machine's; v2 for others]"
    ),
    click.option(
        "--driver",
        "--cgroup-driver",
        "driver",
        type=click.Choice(["cgroupfs", "systemd"]),
        help="Who makes cgroups. [default: --config's]",
    ),
    click.option(
        "--runtime",
        type=click.Choice(["process", "containerd", "crio"]),
        default="containerd",
        show_default=True,
        help="Whose container names to show.",
    ),
    click.option(
        "--container-weight",
        type=click.Choice(["linear", "quadratic"]),
        help="cpu.weight of containers by old or by new runtimes. [default: the profile's time]",
    ),
    click.option(
        "--profile",
        type=click.Choice(list(PROFILES)),
        default=DEFAULT_PROFILE.name,
        show_default=True,
        help="Kubernetes as the 1.27 documents describe it, or as 1.36 answers.",
    ),
)


class NodeQuestion:
    """The options of one call; `setting` answers for them, with words changed for `--diff`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.config_document, self.extras = _config(options["config_file"])
        self.machine, self.node, self.own_version = _machine(
            options["node_file"], options["capacity"], self.extras.capacity
        )
        self.flags = {
            name.removeprefix(_FLAG).replace("__", "."): list(texts)
            for name, texts in options.items()
            if name.startswith(_FLAG) and texts
        }

    @property
    def describes_node(self) -> bool:
        """Does the call say anything of a node?"""
        return bool(self.flags) or any(self.options[name] for name in ("node_file", "capacity", "config_file"))

    @property
    def declared_capacity(self) -> str:
        """Where the node is said to be of another size than the machine: the words for it."""
        if self.options["capacity"] is not None:
            return str(self.options["capacity"])
        if self.options["node_file"]:
            return f"as in {self.options['node_file']}"
        return ",".join(f"{name}={amount}" for name, amount in self.extras.capacity.items())

    @property
    def runtime_endpoint(self) -> str:
        """Where containers are run by somebody else; "" for the embedded runtime."""
        return self._reading(profile_named(self.options["profile"])).config.container_runtime_endpoint

    @property
    def said_driver(self) -> str | None:
        """The cgroup driver, where anybody has said one."""
        if self.options["driver"]:
            return str(self.options["driver"])
        document = None if self.config_document is None else self.config_document.value
        said = document.get("cgroupDriver") if isinstance(document, dict) else None
        return str(said) if said else None

    def setting(self, **changed: str | None) -> tuple[NodeConfig, list[str]]:
        """The resolved node and what the user should know about its configuration."""
        words = {**self.options, **changed}
        profile = profile_named(words["profile"])
        found = self._reading(profile)
        setting = resolved(
            self.machine,
            found.config,
            profile,
            cgroup_version=1 if (words["cgroup"] or self.own_version) == "v1" else 2,
            driver=words["driver"],
            runtime=words["runtime"],
            weight=words["container_weight"],
            page_cache_safe=self.extras.page_cache_safe_min,
        )
        notes = list(found.notes)
        if found.without_effect:
            notes.append(f"settings without effect here: {', '.join(found.without_effect)}")
        return setting, notes + (_node_notes(self.node, setting) if self.node is not None else [])

    def _reading(self, profile: Profile) -> ParsedConfig:
        document = None if self.config_document is None else self.config_document.value
        if isinstance(document, dict) and document.keys() == {"kubeletconfig"}:
            document = document["kubeletconfig"]  # as a node's configz endpoint wraps it
        try:
            return reading(document, profile, self.flags)
        except InvalidConfigsError as error:
            lines = [self._located(each) for each in error.errors]
            raise click.ClickException(
                "the kubelet would refuse this configuration:\n  " + "\n  ".join(lines)
            ) from None

    def _located(self, error: InvalidConfigError) -> str:
        document = self.config_document
        if document is None or error.path.startswith("--") or not error.path:
            return str(error)
        return _at_line(self.options["config_file"], document, error)


def _at_line(file: str, document: YamlDocument, error: InvalidConfigError) -> str:
    from plimsoll.codec.manifests.manifests import path_steps

    return f"{file}:{document.line_of(path_steps(error.path))}: {error}"


def _config(file: str | None) -> tuple[YamlDocument | None, NodeExtras]:
    """The KubeletConfiguration in a file, and beside it our own extras, each at most once."""
    if not file:
        return None, NodeExtras()
    found = _documents(file, "--config")
    extras = [each for each in found if is_extras(each.value)]
    configs = [each for each in found if not is_extras(each.value)]
    if not found or len(configs) > 1 or len(extras) > 1:
        wanted = f"wants one {KIND} and at most one {EXTRAS_KIND}"
        raise click.ClickException(f"--config {file}: holds {len(found)} documents, {wanted}")
    if configs and not isinstance(configs[0].value, dict):
        raise click.ClickException(f"--config {file}: not a {KIND}")
    config = configs[0] if configs else None
    if not extras:
        return config, NodeExtras()
    try:
        return config, extras_reading(extras[0].value)
    except InvalidConfigsError as error:
        lines = [_at_line(file, extras[0], each) for each in error.errors]
        raise click.ClickException(f"{EXTRAS_KIND} is not right:\n  " + "\n  ".join(lines)) from None


def _node_notes(node: Node, setting: NodeConfig) -> list[str]:
    """Where the Node itself says something else than these options."""
    notes = []
    for name in ("cpu", "memory"):
        have = (node.status.allocatable or {}).get(name)
        if have is not None and have != setting.allocatable[name]:
            notes.append(
                f"the Node says {name} allocatable {have}, this configuration gives {setting.allocatable[name]}: "
                "pass that node's --config"
            )
    info = node.status.node_info
    found = _VERSION.match(info.kubelet_version)
    if found is not None:
        nearer = "1.36" if int(found[1]) >= FIRST_MODERN_MINOR else "1.27"
        if nearer != setting.profile.name:
            notes.append(f"the Node runs kubelet {info.kubelet_version}: --profile {nearer} is nearer to it")
    runtime = {"containerd": "containerd", "cri-o": "crio"}.get(info.container_runtime_version.partition(":")[0])
    if runtime is not None and runtime != setting.runtime:
        notes.append(f"the Node runs {info.container_runtime_version}: --runtime {runtime} shows its names")
    return notes


def _machine(node_file: str | None, capacity: str | None, declared: ResourceList) -> tuple[Machine, Node | None, str]:
    """The machine, the Node that describes it if one does, and the cgroup version to assume.

    `declared`: capacity as a configuration file gives it; both options count before it.
    """
    if node_file and capacity is not None:
        raise click.UsageError("--node and --capacity both describe the machine; give one")
    if capacity is not None or (declared and not node_file):
        return machine_from_capacity(declared if capacity is None else _amounts(capacity)), None, "v2"
    if node_file:
        document = _one_document(node_file, "--node")
        try:
            node = from_document(_only_item(document.value), Node)
        except InvalidObjectError as error:
            raise click.ClickException(f"{node_file}: {error}") from None
        if not node.status.capacity:
            raise click.ClickException(f"{node_file}: status.capacity is missing; is it a Node?")
        swap_bytes = node.status.node_info.swap.capacity
        machine = machine_from_capacity(node.status.capacity, name=node.metadata.name, swap_bytes=swap_bytes)
        return machine, node, "v2"
    from plimsoll.linux.machine import cgroup_version, this_machine

    return this_machine(), None, f"v{cgroup_version()}"


def _only_item(document: Any) -> Any:
    """`kubectl get nodes -o yaml` of a cluster with one node is a List with one item."""
    items = document.get("items") if isinstance(document, dict) else None
    return items[0] if isinstance(items, list) and len(items) == 1 else document


def _amounts(text: str) -> ResourceList:
    found: ResourceList = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, amount = part.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{part!r} is not name=amount", param_hint="--capacity")
        if name.strip() in found:
            raise click.BadParameter(f"{name.strip()!r} is given twice", param_hint="--capacity")
        try:
            found[name.strip()] = QUANTITIES[quantity_text(amount) or ""]
        except InvalidQuantityError as error:
            raise click.BadParameter(f"{name}: {error.reason}", param_hint="--capacity") from None
    return found


def _one_document(file: str, option: str) -> YamlDocument:
    documents = _documents(file, option)
    if len(documents) != 1:
        raise click.ClickException(f"{option} {file}: holds {len(documents)} documents, wants one")
    return documents[0]


def _documents(file: str, option: str) -> list[YamlDocument]:
    try:
        with open(file, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise click.ClickException(f"{option} {file}: {error.strerror}") from None
    documents = []
    for found in read(data):
        if isinstance(found, YamlError):
            raise click.ClickException(f"{option} {file}: {found}")
        documents.append(found)
    return documents
