"""What changes between two ways to run a node, part by part: behaviours, feature gates, settings, options.

A part can be taken alone from one side to the other (`taken`). So the cause of a changed value is found by trying, and
no list says which part changes which value.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.rules.config.gates import GATES, KNOWN_GATES, gate_in
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.config.table import ROWS
from plimsoll.rules.explain.upgrade_advice import ADVICE
from plimsoll.rules.model.cgroup_names import Driver, Runtime
from plimsoll.rules.model.kernel import CgroupVersion, Weight
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import DOCUMENTS, RELEASES, Profile, minor, profile_named
from plimsoll.rules.profile_differences import differences

_OPTIONS = {
    "cgroup_version": ("cgroup version", "the files have other names and units, and v2 can do more"),
    "driver": (
        "cgroup driver",
        "systemd has units for cgroups: other paths, and quotas in steps of 10 ms per second",
    ),
    "runtime": ("container runtime", "the runtime names the cgroups of containers"),
    "weight": (
        "cpu.weight of containers",
        "runc 1.3.2, crun 1.23 and newer convert CPU shares so that 1024 shares are about weight 100",
    ),
}


class Side(msgspec.Struct, frozen=True):
    """A node as it runs before or after the upgrade."""

    machine: Machine
    config: KubeletConfig
    profile: Profile
    cgroup_version: CgroupVersion = 2
    driver: Driver | None = None
    runtime: Runtime = "containerd"
    weight: Weight | None = None

    def setting(self) -> NodeConfig:
        """Raises InvalidConfigError if a kubelet would not start."""
        return resolved(
            self.machine,
            self.config,
            self.profile,
            cgroup_version=self.cgroup_version,
            driver=self.driver,
            runtime=self.runtime,
            weight=self.weight,
        )


class Part(msgspec.Struct, frozen=True):
    kind: Literal["behaviour", "gate", "setting", "option"]
    name: str


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something changes: the fact of the release, and what to do. `id` is stable."""

    id: str
    title: str
    fact: str = ""
    advice: str = ""
    release: str = ""  # that it came with
    clause: str = ""


SEVERAL = Cause("several", "several changes together", "no single change gives the new value", ADVICE[""])


def parts(old: Side, new: Side) -> list[Part]:
    """Everything that differs between the two."""
    gates, others = old.config.feature_gates, new.config.feature_gates
    return [
        *(Part("behaviour", row.row) for row in differences(old.profile, new.profile)),
        *(Part("gate", gate.name) for gate in GATES if gates[gate.name] != others[gate.name]),
        *(
            Part("setting", name)
            for name in KubeletConfig.__struct_fields__
            if name != "feature_gates" and getattr(old.config, name) != getattr(new.config, name)
        ),
        *(Part("option", name) for name in _OPTIONS if getattr(old, name) != getattr(new, name)),
    ]


def taken(side: Side, part: Part, other: Side) -> Side:
    """`side` with this part of `other`."""
    replace = msgspec.structs.replace
    match part.kind:
        case "behaviour":
            row = {part.name: getattr(other.profile, part.name)}
            return replace(side, profile=replace(side.profile, **row))
        case "gate":
            gates = side.config.feature_gates | {part.name: other.config.feature_gates[part.name]}
            return replace(side, config=replace(side.config, feature_gates=gates))
        case "setting":
            value = {part.name: getattr(other.config, part.name)}
            return replace(side, config=replace(side.config, **value))
        case "option":
            return replace(side, **{part.name: getattr(other, part.name)})


def cause_of(part: Part, old: Side, new: Side) -> Cause:
    advice = _advice(part.name, old, new)
    match part.kind:
        case "behaviour":
            found = next(each for each in differences(old.profile, new.profile) if each.row == part.name)
            title = f"{found.row}: {_shown(found.old)} → {_shown(found.new)}"
            return Cause(part.name, title, found.about, advice, found.release, found.clause)
        case "gate":
            title = f"feature gate {part.name}: {_stage(part.name, old)} → {_stage(part.name, new)}"
            return Cause(part.name, title, KNOWN_GATES[part.name].description, advice, _release(part, old, new))
        case "setting":
            row = next(row for row in ROWS if row.attribute == part.name)
            before, after = getattr(old.config, part.name), getattr(new.config, part.name)
            title = f"default of {row.name}: {_shown(before)} → {_shown(after)}"
            advice = _advice(row.name, old, new)
            return Cause(row.name, title, row.description, advice, _release(part, old, new))
        case "option":
            before, after = _option(old, part.name), _option(new, part.name)
            title, fact = _OPTIONS[part.name]
            return Cause(part.name, f"{title}: {before} → {after}", fact, advice)


def _advice(name: str, old: Side, new: Side) -> str:
    """Most is about the way up: a downgrade takes away what it says is new."""
    releases = [side.profile for side in (old, new) if side.profile.name != DOCUMENTS]
    is_down = len(releases) == 2 and minor(releases[1].release) < minor(releases[0].release)
    return ADVICE[""] if is_down else ADVICE.get(name, ADVICE[""])


def _release(part: Part, old: Side, new: Side) -> str:
    """The release that the default of a gate or a setting came with, as `differences` tells it for a behaviour."""
    if DOCUMENTS in (old.profile.name, new.profile.name):
        return ""
    before, after = sorted((old.profile.release, new.profile.release), key=minor)
    if before == after or _default(part, before) == _default(part, after):
        return ""  # not by a release: it is configured
    came = [each for each in RELEASES if minor(before) < minor(each) <= minor(after)]
    return next(
        each for each in reversed(came) if _default(part, each) != _default(part, RELEASES[RELEASES.index(each) - 1])
    )


def _default(part: Part, release: str) -> object:
    if part.kind == "setting":
        return next(row for row in ROWS if row.attribute == part.name).default_in(release)
    return KNOWN_GATES[part.name].default(profile_named(release))


def _option(side: Side, name: str) -> str:
    value = getattr(side, name)
    if name == "driver":
        return str(value or side.config.cgroup_driver)
    return f"v{value}" if name == "cgroup_version" else _shown(value)


def _stage(name: str, side: Side) -> str:
    on = side.config.feature_gates[name]
    stage = None if side.profile.name == DOCUMENTS else gate_in(name, side.profile.release)
    if stage is None:
        return "on" if on else "off"
    return f"{'on' if on else 'off'} {stage.stage}{'' if on == stage.default else ', configured'}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not set" if value in (None, "", ()) else str(value)
