"""The options that describe a node, shared by all verbs that compute for one, and how they become a NodeConfig.

The kubelet's own flags come from the configuration table. Flags override the file, the file overrides the profile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from plimsoll.cli import console
from plimsoll.codec.lean.lean import from_document, quantity_text
from plimsoll.codec.yaml.reader import YamlDocument, YamlError, read
from plimsoll.errors import InvalidConfigError, InvalidConfigsError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.config.extras import KIND as EXTRAS_KIND
from plimsoll.rules.config.extras import NodeExtras, extras_reading, is_extras
from plimsoll.rules.config.parse import ParsedConfig, reading
from plimsoll.rules.config.table import KIND, ROWS
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node, ResourceList
from plimsoll.rules.node.node_config import Machine, NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import (
    PROFILE_NAMES,
    UNKNOWN_VERSION,
    ChosenProfile,
    Profile,
    profile_named,
    profile_of,
)
from plimsoll.rules.quantity import QUANTITIES

if TYPE_CHECKING:
    from plimsoll.rules.blockio.policy import IoPolicy

Command = TypeVar("Command", bound=Callable[..., Any])

_FLAG = "kubelet_flag_"  # prefix of parameter names; the name of the row follows
_OWN_OPTIONS = {"--cgroup-driver"}  # an alias of --driver


def node_options(command: Command) -> Command:
    for row in reversed([row for row in ROWS if row.flag and row.flag not in _OWN_OPTIONS]):
        command = console.option(
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


def is_description(name: str) -> bool:
    """Whether a parameter of this name describes the node, and not the command."""
    return name.startswith(_FLAG) or name in _DESCRIBING


_DESCRIBING = frozenset({"node_file", "capacity", "config_file", "cgroup", "driver", "container_weight", "profile"})
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
    console.option("--node", "node_file", metavar="FILE", help="A Node object; its capacity is used."),
    console.option(
        "--capacity", metavar="LIST", help="cpu=48,memory=256Gi,pods=110,swap=8Gi,…  [default: this machine]"
    ),
    console.option("--config", "config_file", metavar="FILE", help="A KubeletConfiguration file."),
    console.option(
        "--cgroup",
        type=console.Choice(["v1", "v2"]),
        help="The cgroup version. [default: that of this machine; v2 with --node or --capacity]",
    ),
    console.option(
        "--driver",
        "--cgroup-driver",
        "driver",
        type=console.Choice(["cgroupfs", "systemd"]),
        help="The cgroup driver. [default: that of --config]",
    ),
    console.option(
        "--runtime",
        type=console.Choice(["process", "containerd", "crio"]),
        default="containerd",
        show_default=True,
        help="The runtime that names container cgroups.",
    ),
    console.option(
        "--container-weight",
        type=console.Choice(["linear", "quadratic"]),
        help="How runtimes convert CPU shares to cpu.weight. [default: that of the profile]",
    ),
    console.option(
        "--profile",
        type=console.Choice(PROFILE_NAMES),
        help="The Kubernetes release to follow. [default: that of --node or of the cluster, else documents]",
    ),
)


class NodeQuestion:
    """The node that the options of one call describe; `setting` resolves it, with options replaced for `--diff`."""

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
        """Whether any option describes a node."""
        return bool(self.flags) or any(self.options[name] for name in ("node_file", "capacity", "config_file"))

    @property
    def declared_capacity(self) -> str:
        """The declared capacity as text; empty if it is that of the machine."""
        if self.options["capacity"] is not None:
            return str(self.options["capacity"])
        if self.options["node_file"]:
            return f"as in {self.options['node_file']}"
        return ",".join(f"{name}={amount}" for name, amount in self.extras.capacity.items())

    @property
    def runtime_endpoint(self) -> str:
        """The endpoint of an external container runtime; "" for the embedded runtime."""
        return self._parsed(self.chosen().profile).config.container_runtime_endpoint

    def chosen(self, name: str | None = None) -> ChosenProfile:
        """The profile: `name`, that of --profile, that of the Node, or the default."""
        explicit = name or self.options["profile"]
        if explicit:
            return ChosenProfile(profile_named(explicit), "--diff" if name else "--profile")
        if self.node is None:
            return UNKNOWN_VERSION
        return profile_of(self.node.status.node_info.kubelet_version, f"kubeletVersion of node {self.machine.name}")

    @property
    def configured_driver(self) -> str | None:
        """The cgroup driver that an option or the configuration names, if any."""
        if self.options["driver"]:
            return str(self.options["driver"])
        document = self._document()
        driver = document.get("cgroupDriver") if isinstance(document, dict) else None
        return str(driver) if driver else None

    def configures(self, name: str) -> bool:
        """Whether the configuration file or a flag sets this field of a KubeletConfiguration."""
        document = self._document()
        return name in self.flags or (isinstance(document, dict) and name in document)

    def setting(self, **changed: str | None) -> tuple[NodeConfig, list[str]]:
        """The resolved node, and notes about its configuration for the user."""
        options = {**self.options, **changed}
        chosen = self.chosen(changed.get("profile"))
        profile = chosen.profile
        parsed = self._parsed(profile)
        setting = resolved(
            self.machine,
            parsed.config,
            profile,
            cgroup_version=1 if (options["cgroup"] or self.own_version) == "v1" else 2,
            driver=options["driver"],
            runtime=options["runtime"],
            weight=options["container_weight"],
            page_cache_safe=self.extras.page_cache_safe_min,
            io=self._io_policy(),
            profile_reason=chosen.reason,
        )
        notes = list(parsed.notes)
        if parsed.without_effect:
            notes.append(f"these settings have no effect: {', '.join(parsed.without_effect)}")
        return setting, notes + (_node_notes(self.node, setting) if self.node is not None else [])

    def _io_policy(self) -> IoPolicy | None:
        """With the numbers of the devices that this machine has, if it is this machine that is described."""
        if (policy := self.extras.io_control) is None or self.options["node_file"] or self.options["capacity"]:
            return policy
        from plimsoll.linux.block_devices import known_devices

        return known_devices(policy)

    @property
    def document(self) -> JsonObject:
        """The KubeletConfiguration of --config; empty without one."""
        return self._document() or {}

    @property
    def is_configz(self) -> bool:
        """Whether --config is what the /configz of a node shows: with every default written out."""
        document = None if self.config_document is None else self.config_document.value
        return isinstance(document, dict) and document.keys() == {"kubeletconfig"}

    def _document(self) -> Any:
        document = None if self.config_document is None else self.config_document.value
        return document["kubeletconfig"] if self.is_configz and document is not None else document

    def _parsed(self, profile: Profile) -> ParsedConfig:
        try:
            return reading(self._document(), profile, self.flags)
        except InvalidConfigsError as error:
            lines = [self._located(problem) for problem in error.errors]
            raise console.CommandError(
                "the kubelet would reject this configuration:\n  " + "\n  ".join(lines)
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
    """The KubeletConfiguration in a file and the NodeExtras beside it, each at most once."""
    if not file:
        return None, NodeExtras()
    documents = _documents(file, "--config")
    extras = [document for document in documents if is_extras(document.value)]
    configs = [document for document in documents if not is_extras(document.value)]
    if not documents or len(configs) > 1 or len(extras) > 1:
        expected = f"expected one {KIND} and at most one {EXTRAS_KIND}"
        raise console.CommandError(f"--config {file}: contains {len(documents)} documents, {expected}")
    if configs and not isinstance(configs[0].value, dict):
        raise console.CommandError(f"--config {file}: not a {KIND}")
    config = configs[0] if configs else None
    if not extras:
        return config, NodeExtras()
    try:
        return config, extras_reading(extras[0].value)
    except InvalidConfigsError as error:
        lines = [_at_line(file, extras[0], problem) for problem in error.errors]
        raise console.CommandError(f"{EXTRAS_KIND} is invalid:\n  " + "\n  ".join(lines)) from None


def _node_notes(node: Node, setting: NodeConfig) -> list[str]:
    """Where the Node object differs from the options."""
    notes = []
    for name in ("cpu", "memory"):
        have = (node.status.allocatable or {}).get(name)
        if have is not None and have != setting.allocatable[name]:
            notes.append(
                f"the Node has {name} allocatable {have}, this configuration results in {setting.allocatable[name]}: "
                "use the configuration of that node with --config"
            )
    info = node.status.node_info
    own = profile_of(info.kubelet_version, "")
    if own is not UNKNOWN_VERSION and own.profile is not setting.profile:
        notes.append(f"the Node runs kubelet {info.kubelet_version}: its profile is {own.profile.name}")
    runtime = {"containerd": "containerd", "cri-o": "crio"}.get(info.container_runtime_version.partition(":")[0])
    if runtime is not None and runtime != setting.runtime:
        notes.append(f"the Node runs {info.container_runtime_version}: use --runtime {runtime} for its cgroup names")
    return notes


def _machine(node_file: str | None, capacity: str | None, declared: ResourceList) -> tuple[Machine, Node | None, str]:
    """The machine, the Node object if there is one, and the cgroup version to assume.

    `declared`: the capacity in the configuration file; both options override it.
    """
    if node_file and capacity is not None:
        raise console.UsageError("--node and --capacity exclude each other: both describe the machine")
    if capacity is not None or (declared and not node_file):
        return machine_from_capacity(declared if capacity is None else _amounts(capacity)), None, "v2"
    if node_file:
        document = _one_document(node_file, "--node")
        try:
            node = from_document(_only_item(document.value), Node)
        except InvalidObjectError as error:
            raise console.CommandError(f"{node_file}: {error}") from None
        if not node.status.capacity:
            raise console.CommandError(f"{node_file}: status.capacity is missing: is this a Node?")
        swap_bytes = node.status.node_info.swap.capacity
        machine = machine_from_capacity(node.status.capacity, name=node.metadata.name, swap_bytes=swap_bytes)
        return machine, node, "v2"
    from plimsoll.linux.machine import cgroup_version, this_machine

    return this_machine(), None, f"v{cgroup_version()}"


def _only_item(document: Any) -> Any:
    """The item of a List with one item, which `kubectl get nodes -o yaml` prints for one node."""
    items = document.get("items") if isinstance(document, dict) else None
    return items[0] if isinstance(items, list) and len(items) == 1 else document


def _amounts(text: str) -> ResourceList:
    amounts: ResourceList = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, amount = part.partition("=")
        if not equals or not name.strip():
            raise console.BadParameterError(f"{part!r} is not name=amount", param_hint="--capacity")
        if name.strip() in amounts:
            raise console.BadParameterError(f"{name.strip()!r} is set twice", param_hint="--capacity")
        try:
            amounts[name.strip()] = QUANTITIES[quantity_text(amount) or ""]
        except InvalidQuantityError as error:
            raise console.BadParameterError(f"{name}: {error.reason}", param_hint="--capacity") from None
    return amounts


def _one_document(file: str, option: str) -> YamlDocument:
    documents = _documents(file, option)
    if len(documents) != 1:
        raise console.CommandError(f"{option} {file}: contains {len(documents)} documents, expected one")
    return documents[0]


def _documents(file: str, option: str) -> list[YamlDocument]:
    try:
        with open(file, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise console.CommandError(f"{option} {file}: {error.strerror}") from None
    documents = []
    for document in read(data):
        if isinstance(document, YamlError):
            raise console.CommandError(f"{option} {file}: {document}")
        documents.append(document)
    return documents
