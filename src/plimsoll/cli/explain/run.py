"""One `explain` call: read the inputs, report invalid pods, explain the others; exit code 2 if anything is invalid."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import msgspec

from plimsoll.cli import console
from plimsoll.cli.manifests import GivenManifest, Inputs, ManifestProblem, on_node, read_inputs, refused
from plimsoll.cli.node_options import NodeQuestion
from plimsoll.cli.terminal import Paint, colourful, echo_json, inert
from plimsoll.rules.cgroups.desired import Workload, defaulted_on, defaulted_workload
from plimsoll.rules.explain.departures import dropped_notes
from plimsoll.rules.explain.explanation import Explanation, explanation
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import PROFILE_NAMES

# The option that each value of --diff belongs to.
DIFF_VALUES = {
    **dict.fromkeys(PROFILE_NAMES, "profile"),
    "cgroupfs": "driver",
    "systemd": "driver",
    "v1": "cgroup",
    "v2": "cgroup",
    "linear": "container_weight",
    "quadratic": "container_weight",
    "process": "runtime",
    "containerd": "runtime",
    "crio": "runtime",
}


PICTURES = ("svg", "html")


def run(
    files: Sequence[str], question: NodeQuestion, *, output: str, diff: str | None, advise: bool, brief: bool
) -> int:
    inputs = on_node(read_inputs(files, fragments=True), question.node)
    if diff is not None:
        return _run_diff(inputs, question, diff, output)
    setting, notes = question.setting()
    good, problems = sorted_out(inputs, setting)
    notes += [
        f"{given.found.title}: {note}"
        for given in inputs.pods
        for note in dropped_notes(given.pod, setting, given.found.base)
    ]
    found = explanation(workloads(good, setting), setting, advise=advise)
    if not question.declared_capacity:
        notes += _missing_on_this_machine(found)
    if good:
        _print(found, setting, output, brief=brief, advise=advise)
    return _finish(inputs, problems, notes, len(good))


def run_topology(files: Sequence[str], question: NodeQuestion, path: str, output: str) -> int:
    from plimsoll.cli.explain.topology import read_topology
    from plimsoll.cli.explain.topology import run as place

    machine = read_topology(path)
    inputs = on_node(read_inputs(files, fragments=True), question.node)
    setting, notes = question.setting()
    good, problems = sorted_out(inputs, setting)
    pods = [(work.pod, work.title) for work in workloads(good, setting)]
    is_placed = place(pods, setting, machine, output) if good else True
    return _finish(inputs, problems, [*notes, *machine.notes], len(good)) or (0 if is_placed else 1)


def run_app(files: Sequence[str], question: NodeQuestion, app: str, kernel: str | None, output: str) -> int:
    """What a language runtime makes of the limits of every container."""
    from plimsoll.cli.explain.applications import answers, kernel_named, named, show

    name, version = named(app)
    release = kernel_named(kernel)
    inputs = on_node(read_inputs(files, fragments=True), question.node)
    setting, notes = question.setting()
    good, problems = sorted_out(inputs, setting)
    found = explanation(workloads(good, setting), setting)
    if good:
        show(answers(found, setting, name, version, release), output)
    if good and not version:
        notes.append(f"no version is named: the newest known is assumed (--app {name}=VERSION)")
    return _finish(inputs, problems, notes, len(good))


def _missing_on_this_machine(found: Explanation) -> list[str]:
    if not any(cgroup.level == "reserved" for cgroup in found.tree.children):
        return []
    from plimsoll.cgroups.drivers.detect import this_host
    from plimsoll.cli.explain.reserved_cgroups import missing_cgroups

    return list(missing_cgroups(found.tree, this_host()))


def _run_diff(inputs: Inputs, question: NodeQuestion, diff: str, output: str) -> int:
    from plimsoll.cli.explain.diff import print_differences
    from plimsoll.rules.explain.differences import differences

    first, second = _diff_words(diff)
    sides = []
    for word in (first, second):
        setting, notes = question.setting(**{DIFF_VALUES[word]: word})
        good, problems = sorted_out(inputs, setting)
        sides.append((good, problems, notes, explanation(workloads(good, setting), setting), setting))
    (good, problems, notes, left, on_left), (_, other_problems, _, right, on_right) = sides
    if output in PICTURES:
        from plimsoll.cli.picture import write_picture
        from plimsoll.rules.picture.explained import explained_picture
        from plimsoll.rules.picture.figure import comparison

        pictures = explained_picture(left, on_left), explained_picture(right, on_right)
        write_picture(comparison(*pictures, (first, second)), output)
        return _finish(inputs, _merged(problems, other_problems), notes, len(good))
    rows = differences(left, right)
    if output == "json":
        echo_json(rows)
    elif output == "yaml":
        console.echo(_yaml(rows), nl=False)
    else:
        print_differences(rows, first, second, Paint(colourful()))
    return _finish(inputs, _merged(problems, other_problems), notes, len(good))


def _merged(problems: list[ManifestProblem], others: list[ManifestProblem]) -> list[ManifestProblem]:
    return problems + [each for each in others if each not in problems]


def _diff_words(diff: str) -> tuple[str, str]:
    words = [word.strip() for word in diff.split(",")]
    if len(words) != 2 or any(word not in DIFF_VALUES for word in words):
        raise console.BadParameterError(f"{diff!r}: must be two of {', '.join(DIFF_VALUES)}", param_hint="--diff")
    if DIFF_VALUES[words[0]] != DIFF_VALUES[words[1]] or words[0] == words[1]:
        raise console.BadParameterError(f"{diff!r}: must be two different values of one option", param_hint="--diff")
    return words[0], words[1]


def sorted_out(inputs: Inputs, setting: NodeConfig) -> tuple[list[GivenManifest], list[ManifestProblem]]:
    good, problems = [], list(inputs.problems)
    for given in inputs.pods:
        desired = defaulted_on(given.pod, setting)
        policy = setting.policy
        errors = []
        if policy.io is not None:
            from plimsoll.rules.blockio.policy import io_errors  # most nodes do not control I/O

            errors = io_errors(desired, policy.io, policy.cgroup_version)
        wrong = refused(given, desired, policy.gates, errors)
        problems += wrong
        if not wrong:
            good.append(msgspec.structs.replace(given, pod=desired))
    return good, problems


def workloads(given: Sequence[GivenManifest], setting: NodeConfig) -> list[Workload]:
    """Unique titles: with the namespace if there is one, with a number if that is not enough."""
    seen: Counter[str] = Counter()
    works = []
    for each in given:
        namespace = each.pod.metadata.namespace
        title = inert(f"{namespace}/{each.found.title}" if namespace not in ("", "default") else each.found.title)
        seen[title] += 1
        unique = title if seen[title] == 1 else f"{title} ({seen[title]})"
        works.append(defaulted_workload(each.pod, setting, base=each.found.base, title=unique))
    return works


def _print(found: Explanation, setting: NodeConfig, output: str, *, brief: bool, advise: bool) -> None:
    if output == "json":
        echo_json(found)
    elif output == "yaml":
        console.echo(_yaml(found), nl=False)
    elif output == "sh":
        from plimsoll.cli.explain.script import script

        console.echo(script(found, setting), nl=False)
    elif output in PICTURES:
        from plimsoll.cli.picture import write_picture
        from plimsoll.rules.picture.explained import explained_picture
        from plimsoll.rules.picture.figure import drawing

        write_picture(drawing(explained_picture(found, setting)), output)
    elif output == "table":
        from plimsoll.cli.explain.tree import table_lines

        console.echo("\n".join(table_lines(found)))
    else:
        from plimsoll.cli.explain.tree import tree_lines

        paint = Paint(colourful())
        console.echo("\n".join(tree_lines(found, paint, brief=brief, advise=advise)))


def _yaml(value: object) -> str:
    from plimsoll.codec.yaml.writer import dumped

    return dumped(msgspec.to_builtins(value), sort_keys=False)


def _finish(inputs: Inputs, problems: Sequence[ManifestProblem], notes: Sequence[str], good: int) -> int:
    for note in notes:
        console.echo(f"note: {inert(note)}", err=True)
    for line in inputs.passed:
        console.echo(f"note: {inert(line)}", err=True)
    for problem in sorted(problems, key=lambda each: (each.file, each.document or 0)):
        console.echo(inert(str(problem)), err=True)
    if not good and not problems:
        console.echo("plimsoll: the input contains no pods", err=True)
        return 2
    sys.stdout.flush()
    return 2 if problems else 0
