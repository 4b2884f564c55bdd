"""What an upgrade changes for the node itself: what the new kubelet refuses, reads otherwise, or no longer reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from plimsoll.errors import InvalidConfigError, InvalidConfigsError
from plimsoll.rules.config.gates import gate_in
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.config.parse import ParsedConfig, default_config, reading
from plimsoll.rules.config.table import BY_NAME, ROWS
from plimsoll.rules.explain.upgrade import Change
from plimsoll.rules.explain.upgrade_advice import REMOVED_FLAGS, REMOVED_METRICS, Removed
from plimsoll.rules.explain.upgrade_causes import Cause
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.profile import DOCUMENTS, Profile, minor

CGROUP_V1_REFUSED = "1.35"  # failCgroupV1 is true by default from then on; Plimsoll's own nodes keep false
EVENT_RATE_UNLIMITED = "1.37"
# Gate, what it needs, and the first release that refuses to start otherwise.
_GATE_NEEDS = (
    ("InPlacePodLevelResourcesVerticalScaling", "PodLevelResources", "1.36"),
    ("PodLevelResourcesFixDefaulting", "PodLevelResources", "1.37"),
    ("PodLevelResourcesFixKubeletQOSClass", "PodLevelResources", "1.37"),
    ("InPlacePodVerticalScalingMemoryBackedVolumes", "InPlacePodVerticalScaling", "1.37"),
)

CONFIGURATION = Cause(
    "configuration",
    "the new kubelet refuses its configuration",
    "a kubelet does not start with a field, feature gate or combination that it refuses",
    "correct the configuration before the new kubelet starts; both releases accept the corrected one",
)
CGROUP_V1 = Cause(
    "cgroup-v1",
    "cgroup v1 is refused",
    "failCgroupV1 is true by default: the kubelet does not start on cgroup v1",
    "move the node to cgroup v2; failCgroupV1: false only postpones that",
    CGROUP_V1_REFUSED,
)
EVENT_RATE = Cause(
    "eventRecordQPS",
    "eventRecordQPS: 0 no longer means the default",
    "0 is no limit on events from now on; it was the default, 50",
    "set it to 50 to keep the old limit (kubernetes#117119)",
    EVENT_RATE_UNLIMITED,
)
FLAGS = Cause(
    "flags",
    "the new kubelet does not know a flag",
    "a kubelet does not start with an unknown flag",
    "remove the flag from the unit or from kubeadm-flags.env before the upgrade",
)
METRICS = Cause(
    "metrics",
    "metrics disappear",
    "an alert on a metric that is gone never fires, and a panel is empty",
    "change these rules and dashboards before the upgrade",
)


Flags = Mapping[str, list[str]]  # by the name of the setting: the texts of its flag


class Read(msgspec.Struct, frozen=True):
    """A node's configuration as both releases read it. `notes`: what neither of them can use."""

    old: KubeletConfig
    new: KubeletConfig
    refused: tuple[InvalidConfigError, ...]  # by the new one only
    notes: tuple[str, ...] = ()


def read_both(document: JsonObject, old: Profile, new: Profile, flags: Flags) -> Read:
    before, own = readable(document, old, flags)
    after, refused = readable(document, new, flags)
    known = {str(error) for error in own}
    fresh = tuple(error for error in refused if str(error) not in known)
    notes = tuple(f"{error}: not used here" for error in own)
    return Read(_on_any_kernel(before.config), _on_any_kernel(after.config), fresh, notes)


def _on_any_kernel(config: KubeletConfig) -> KubeletConfig:
    """`start_changes` reports cgroup v1; values can be compared anyway."""
    return msgspec.structs.replace(config, fail_cgroup_v1=False)


def readable(document: JsonObject, profile: Profile, flags: Flags) -> tuple[ParsedConfig, list[InvalidConfigError]]:
    """The configuration without what is refused, and the errors."""
    refused: list[InvalidConfigError] = []
    while True:
        try:
            return reading(document, profile, flags), refused
        except InvalidConfigsError as error:
            refused += error.errors
            smaller, fewer = document, flags
            for each in error.errors:
                smaller, fewer = without(smaller, each.path), _without_flag(fewer, each.path)
            if (smaller, fewer) == (document, flags):
                raise
            document, flags = smaller, fewer


def _without_flag(flags: Flags, path: str) -> Flags:
    """`path`: a flag, a setting, or a feature gate."""
    if path.startswith("featureGates[") and "featureGates" in flags:
        gate = path.removeprefix("featureGates[").removesuffix("]")
        words = [word for text in flags["featureGates"] for word in text.split(",")]
        kept = [word for word in words if word.partition("=")[0].strip() != gate]
        return {**flags, "featureGates": [",".join(kept)] if kept else []}
    return {name: texts for name, texts in flags.items() if path not in (name, BY_NAME[name].flag)}


def without(document: JsonObject, path: str) -> JsonObject:
    """The document without a field: `memorySwap.swapBehavior`, `featureGates[NodeSwap]`; nor with what gets empty."""
    name, _, rest = path.replace("[", ".").replace("]", "").partition(".")
    if name not in document:
        return document
    inner = document[name]
    if rest and isinstance(inner, dict) and rest.partition(".")[0] in inner:
        smaller = without(inner, rest)
        if smaller:
            return {**document, name: smaller}
    return {key: value for key, value in document.items() if key != name}


def without_defaults(document: JsonObject, profile: Profile, *, gates_too: bool) -> JsonObject:
    """A configuration as a file would have it. `/configz` also shows every default of the running release, and a newer
    kubelet has others. A kubelet shows only the gates that are set, Plimsoll's node all (`gates_too`)."""
    parsed, _ = readable(document, profile, {})
    default = default_config(profile)
    for row in ROWS:
        if not row.attribute or not row.in_file or row.name == "featureGates":
            continue
        if getattr(parsed.config, row.attribute) == getattr(default, row.attribute):
            document = without(document, row.name)
    gates = document.get("featureGates")
    if gates_too and isinstance(gates, dict) and profile.name != DOCUMENTS:
        for name, on in gates.items():
            stage = gate_in(name, profile.release)
            if stage is not None and stage.default == on:
                document = without(document, f"featureGates[{name}]")
    return document


def start_changes(
    node: str, document: JsonObject, read: Read, old: Profile, new: Profile, cgroup_version: CgroupVersion
) -> Iterator[tuple[Change, Cause]]:
    """What keeps the new kubelet from starting, and what it reads otherwise."""

    def refused(what: str, was: str, reason: str, cause: Cause) -> tuple[Change, Cause]:
        return Change("start", node, what, was, reason, (cause.id,), node, breaks=True), cause

    for error in read.refused:
        yield refused(error.path or "configuration", "accepted", error.reason, CONFIGURATION)
    if DOCUMENTS in (old.name, new.name):
        return
    for gate, needs, since in _GATE_NEEDS:
        crosses = minor(old.release) < minor(since) <= minor(new.release)
        if crosses and read.new.gate(gate) and not read.new.gate(needs):
            reason = f"{gate} is on by default and needs {needs}: turn both off or both on"
            yield refused(f"featureGates[{needs}]", "accepted", reason, CONFIGURATION)
    v1_refused = minor(old.release) < minor(CGROUP_V1_REFUSED) <= minor(new.release)
    if cgroup_version == 1 and v1_refused and document.get("failCgroupV1") is not False:
        yield refused("cgroup v1", "accepted", "refused: failCgroupV1 is true by default", CGROUP_V1)
    rate_changes = minor(old.release) < minor(EVENT_RATE_UNLIMITED) <= minor(new.release)
    if rate_changes and document.get("eventRecordQPS") == 0:
        change = Change("configuration", node, "eventRecordQPS: 0", "50", "no limit", (EVENT_RATE.id,), node)
        yield change, EVENT_RATE


_FLAG = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*")


def flag_changes(node: str, text: str, old: Profile, new: Profile) -> Iterator[Change]:
    """`text`: a command line, a unit or an environment file with the kubelet's flags."""
    gone = removed_between(REMOVED_FLAGS, old, new)
    for flag in dict.fromkeys(found.replace("_", "-") for found in _FLAG.findall(text)):
        if flag in gone:
            reason = f"unknown flag since {gone[flag].release}; {gone[flag].instead} ({gone[flag].source})"
            yield Change("start", node, flag, "accepted", reason, (FLAGS.id,), node, breaks=True)


def removed_between(known: Mapping[str, Removed], old: Profile, new: Profile) -> dict[str, Removed]:
    first, last = minor(old.release), minor(new.release)
    return {name: each for name, each in known.items() if first < minor(each.release) <= last}


_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def metric_changes(file: str, lines: Iterable[tuple[int, str]], old: Profile, new: Profile) -> Iterator[Change]:
    """Where a rule or dashboard names a metric that the new kubelet does not have. `lines`: numbered from 1."""
    gone = removed_between(REMOVED_METRICS, old, new)
    for number, line in lines:
        for token in dict.fromkeys(_METRIC.findall(line)):
            name = _removed_metric(token, gone)
            if name:
                reason = f"gone since {gone[name].release}; {gone[name].instead}"
                yield Change("metric", f"{file}:{number}", token, "reported", reason, (METRICS.id,), breaks=True)


def _removed_metric(token: str, gone: Mapping[str, Removed]) -> str:
    if token in gone:
        return token
    families = (name for name in gone if name.endswith("*") and token.startswith(name[:-1]))
    return next(families, "")
