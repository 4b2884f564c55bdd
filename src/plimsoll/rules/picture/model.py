"""What a picture of a node shows, before anything is placed: vessels, each with its lines, its fills and its CPU.

A vessel is a cgroup. Memory fills it from the bottom. A line is a memory file at the height of its value: below `min`
the kernel reclaims nothing, below `low` only under severe pressure, above `high` it throttles and reclaims, above
`max` it kills. The lines of a vessel are its own and those of the nearest ancestor that binds it.

`declared_bytes` is the value of the file, `effective_bytes` what holds when ancestors and siblings count as well
(`rules.explain.contention`): where they differ, the declared value has no effect beyond the effective one. The
dashboard, the SVG writer and the table beside each picture read this model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

LineName = Literal["min", "low", "high", "max"]
FillName = Literal["anon", "shmem", "kernel", "activeFile", "inactiveFile", "other"]
VesselLevel = Literal["pods", "reserved", "class", "pod", "container", "sandbox", "monitor", "cgroup"]


class Line(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    name: LineName
    file: str  # as the kernel names it
    declared_bytes: int
    effective_bytes: int
    of: str = ""  # the ancestor whose line it is; empty: the vessel's own
    binding: str = ""  # of an own limit that an ancestor undercuts: that ancestor
    formula: str = ""
    source: str = ""  # the field of the manifest or configuration
    note: str = ""

    @property
    def ineffective(self) -> bool:
        """The kernel acts at another value than the declared one."""
        return self.effective_bytes != self.declared_bytes


class Fill(msgspec.Struct, frozen=True):
    name: FillName
    bytes: int


class CpuLines(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The CPU of a vessel. `worst_case_milli`: what its weight gives it when all others contend."""

    scale_milli: int  # the CPUs of the node
    weight_file: str = ""
    weight: int | None = None
    weight_formula: str = ""
    weight_source: str = ""
    quota_milli: int | None = None
    quota_file: str = ""
    quota_text: str = ""  # the file's value
    quota_formula: str = ""
    quota_source: str = ""
    worst_case_milli: int | None = None
    ceiling_milli: int | None = None  # the lowest quota of the vessel and its ancestors
    ceiling_of: str = ""  # the cgroup whose quota that is; empty: its own
    exclusive_cpus: int = 0
    usage_milli: int | None = None
    throttled_percent: int | None = None
    throttled_us: int | None = None


class Vessel(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    level: VesselLevel
    name: str
    path: str
    scale_bytes: int  # what a full vessel holds
    qos_class: str = ""
    stage: Literal["", "init", "sidecar", "app"] = ""
    lines: tuple[Line, ...] = ()  # own lines from the bottom up, then those of ancestors
    fills: tuple[Fill, ...] = ()  # from the bottom up
    usage_bytes: int | None = None
    working_set_bytes: int | None = None
    cpu: CpuLines | None = None
    oom_score_adj: int | None = None
    oom_formula: str = ""
    oom_kills: int | None = None
    pressure: Mapping[str, float] = {}  # resource → percent of the last 10 s in which some task stalled
    remarks: tuple[str, ...] = ()
    children: tuple[Vessel, ...] = ()

    def own(self, name: LineName) -> Line | None:
        return next((line for line in self.lines if line.name == name and not line.of), None)

    def everything(self) -> Iterator[Vessel]:
        """The vessel and all below it, in the order of the tree."""
        yield self
        for child in self.children:
            yield from child.everything()


class Part(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A part of the machine's memory that is withheld from pods, or what is left for them."""

    name: str
    bytes: int
    source: str = ""


class Picture(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    title: str
    facts: str  # release, cgroup version, driver, runtime
    memory_bytes: int
    cpu_milli: int
    vessels: tuple[Vessel, ...]
    parts: tuple[Part, ...] = ()  # of the memory, allocatable first
    allocated_bytes: int | None = None  # the sum of the pods' requests
    steps: Mapping[str, str] = {}  # resource → how allocatable is computed
    observed: bool = False  # has fills
    remarks: tuple[str, ...] = ()

    def everything(self) -> Iterator[Vessel]:
        for vessel in self.vessels:
            yield from vessel.everything()
