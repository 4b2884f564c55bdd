"""`plimsoll explain … --app jvm=17.0.8`: what a language runtime makes of the limits of each container."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from plimsoll.cli import console
from plimsoll.cli.terminal import Paint, colourful, echo_json, echo_paragraphs, hanging, inert
from plimsoll.errors import InvalidConfigError
from plimsoll.rules.applications.answer import App, AppAnswer, AppLimits
from plimsoll.rules.applications.table import answer, app_named
from plimsoll.rules.cgroups.desired import Cgroup
from plimsoll.rules.explain.contention import memory_limit, quota_milli
from plimsoll.rules.explain.explanation import Explanation
from plimsoll.rules.node.node_config import NodeConfig


class ContainerAnswer(msgspec.Struct, frozen=True):
    pod: str
    container: str
    answer: AppAnswer


def named(text: str) -> tuple[App, str]:
    try:
        return app_named(text)
    except InvalidConfigError as error:
        raise console.BadParameterError(error.reason, param_hint="--app") from None


def kernel_named(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise console.BadParameterError(f"{text!r}: must be a version such as 6.12", param_hint="--kernel")
    return int(found[1]), int(found[2])


def answers(
    found: Explanation, setting: NodeConfig, app: App, version: str, kernel: tuple[int, int] | None
) -> list[ContainerAnswer]:
    return [
        ContainerAnswer(pod.name, container.name, answer(app, version, _limits(container, setting, kernel)))
        for pod in _pods(found.tree)
        for container in pod.children
    ]


def _pods(cgroup: Cgroup) -> Iterator[Cgroup]:
    if cgroup.level == "pod":
        yield cgroup
    else:
        for child in cgroup.children:
            yield from _pods(child)


def _limits(container: Cgroup, setting: NodeConfig, kernel: tuple[int, int] | None) -> AppLimits:
    milli, shares, effective = quota_milli(container), container.value("cpu.shares"), container.effective
    return AppLimits(
        setting.machine.cores,
        setting.machine.memory_bytes,
        memory_limit(container),
        None if milli is None else int(milli),
        shares if isinstance(shares, int) else None,
        setting.policy.cgroup_version,
        kernel,
        None,
        None if effective is None else effective.memory_limit_bytes,
        None if effective is None else effective.cpu_ceiling_milli,
    )


def show(found: list[ContainerAnswer], output: str) -> None:
    if output == "json":
        echo_json(found)
        return
    paint = Paint(colourful())
    echo_paragraphs(_lines(each, paint) for each in found)


def _lines(each: ContainerAnswer, paint: Paint) -> Iterator[str]:
    given = each.answer
    title = paint(f"{inert(each.pod)} / {inert(each.container)}", "bold")
    yield f"{title}  {paint(f'{given.app} {given.version}', 'dim')}"
    for fact in given.facts:
        formula = f"  {paint(inert(fact.formula), 'dim')}" if fact.formula else ""
        yield f"  {fact.name:<25} {paint(inert(fact.value), 'bold')}{formula}"
    for warning in given.warnings:
        mark = paint("warning", "yellow") if warning.severe else paint("note   ", "cyan")
        yield f"  {mark} {hanging(inert(warning.text), 10)}"
        yield f"          {hanging(inert(warning.advice), 10)}"
