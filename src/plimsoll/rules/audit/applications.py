"""A20: what the language runtime inside a container makes of its limits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from plimsoll.rules.applications.answer import AppLimits
from plimsoll.rules.applications.table import answer
from plimsoll.rules.audit.differences import ComparedNode
from plimsoll.rules.audit.finding import Finding, Rule, Unknown
from plimsoll.rules.audit.view import Place
from plimsoll.rules.cgroups.rounding import kept
from plimsoll.rules.explain.contention import quota_milli

_NAMES = {"jvm": "JVM", "go": "Go", "node": "Node.js", "dotnet": ".NET"}


def _applications(view: ComparedNode) -> Iterator[Finding | Unknown]:
    for place in view.places:
        if place.level != "container" or place.observed is None:
            continue
        for process in view.processes_in.get(place.path, ()):
            found = process.application
            if found is None:
                continue
            name = f"{place.subject} / {process.name} (pid {process.pid})"
            if not found.version:
                yield Unknown(name, f"the version of {_NAMES[found.app]} cannot be found")
                continue
            result = answer(found.app, found.version, app_limits(view, place), found.settings)
            for warning in result.warnings:
                yield Finding(
                    "A20",
                    "warning" if warning.severe else "note",
                    "process",
                    name,
                    f"{_NAMES[found.app]} {found.version}",
                    declared=_declared(place),
                    expected="memory and threads within the limits",
                    effective=", ".join(f"{fact.name} {fact.value}" for fact in result.facts),
                    observed=warning.text,
                    path=place.path,
                    owner="application",
                    next_overwrite="when the process starts again",
                    advice=warning.advice,
                    node=view.evidence.name,
                )


def _declared(place: Place) -> str:
    files = place.observed or {}
    memory = files.get("memory.max") or files.get("memory.limit_in_bytes", "")
    cpu = files.get("cpu.max") or files.get("cpu.cfs_quota_us", "")
    return f"memory {kept('memory.limit_in_bytes', memory) or 'max'}, cpu {cpu or 'max'}"


def app_limits(view: ComparedNode, place: Place) -> AppLimits:
    """The limits that a process in this container sees, and those that the kernel enforces."""
    kernel = view.record.kernel
    files, effective = place.observed or {}, place.effective
    own = kept("memory.limit_in_bytes", files.get("memory.max") or files.get("memory.limit_in_bytes") or "max")
    milli = quota_milli(view.observed_cgroup(place.path))
    shares = files.get("cpu.shares")
    return AppLimits(
        kernel.cpus if kernel is not None else 1,
        kernel.memory_bytes if kernel is not None else 0,
        int(own) if own.isdecimal() else None,
        int(milli) if milli is not None else None,
        int(shares) if shares is not None and shares.isdecimal() else None,
        view.version,
        _release(kernel.release) if kernel is not None else None,
        kernel.listed_in_proc if kernel is not None else None,
        effective.memory_limit_bytes if effective is not None else None,
        effective.cpu_ceiling_milli if effective is not None else None,
    )


def _release(text: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found is not None else None


RULES = (
    Rule(
        "A20",
        "warning",
        ("process",),
        "the language runtime inside misreads its limits",
        "JVM, Go, Node.js and .NET choose heap and threads by the limits they see. Old releases do not know cgroup "
        "v2 and "
        "take the machine for theirs, Go does not read the memory limit at all, and limits of the pod are seen by "
        "none. "
        "The result is an OOM kill at the limit, or throttling by far too many threads.",
        "Use a newer release, or set heap and threads by hand. `plimsoll explain FILE --app jvm=17.0.8` shows the "
        "numbers "
        "before anything runs.",
        ("AKS#3729", "golang/go#81180", "kubernetes#118916", "JDK-8349988"),
        ("pods", "configuration", "kernel", "cgroups", "applications"),
        _applications,
    ),
)
