"""`plimsoll upgrade-check`: what an upgrade changes for a fleet, from manifests, from dumps, or from a live cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, answered, cluster_options
from plimsoll.cli.explain.run import DIFF_VALUES
from plimsoll.cli.explain.upgrade_inputs import Fleet, live_fleet, read_configs, read_fleet
from plimsoll.cli.explain.upgrade_output import PRINTERS
from plimsoll.cli.node_options import NodeQuestion, node_options
from plimsoll.cli.terminal import inert
from plimsoll.errors import InvalidConfigError, InvalidConfigsError
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.explain.upgrade import Change, Comparison
from plimsoll.rules.explain.upgrade_advice import REMOVED_METRICS
from plimsoll.rules.explain.upgrade_causes import Cause, Side
from plimsoll.rules.explain.upgrade_node import (
    FLAGS,
    METRICS,
    flag_changes,
    metric_changes,
    read_both,
    removed_between,
    start_changes,
    without_defaults,
)
from plimsoll.rules.explain.upgrade_report import QUOTA, Report, quota_changes, report
from plimsoll.rules.explain.upgrade_trials import NamedPod
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node
from plimsoll.rules.node.node_config import Machine, machine_from_capacity
from plimsoll.rules.profile import OWN_BUILD, RELEASES, UNKNOWN_VERSION, Profile, profile_named, profile_of

UNBOUND = "(not bound)"
LEFT_OUT = 5  # how many pods that cannot be compared are named
_RUNTIMES = {"runc": (1, 3, 2), "crun": (1, 23, 0)}  # the first with the quadratic cpu.weight (02 §4.2)
_RUNTIME = re.compile(r"(runc|crun) v?(\d+)\.(\d+)(?:\.(\d+))?")


class Word(msgspec.Struct, frozen=True):
    """One of the two words of the question: what it is called, and the option that it sets."""

    text: str
    option: str
    value: str


def word(text: str, hint: str) -> Word:
    if text in DIFF_VALUES:
        return Word(text, DIFF_VALUES[text], text)
    runtime = _RUNTIME.fullmatch(text)
    if runtime is not None:
        # `runc 1.3` is the newest 1.3.
        version = int(runtime[2]), int(runtime[3]), int(runtime[4]) if runtime[4] else 1 << 30
        return Word(text, "container_weight", "quadratic" if version >= _RUNTIMES[runtime[1]] else "linear")
    known = f"a release ({RELEASES[0]} … {RELEASES[-1]}), v1, v2, cgroupfs, systemd, runc VERSION or crun VERSION"
    raise console.BadParameterError(f"{text!r}: must be {known}", param_hint=hint)


class _Place(msgspec.Struct, frozen=True):
    """A node of the fleet, and what is known about it."""

    name: str
    machine: Machine
    pods: list[NamedPod]
    version: str = ""  # of its kubelet
    runtime: str = ""
    document: JsonObject = {}
    shown_by_node: bool = False
    cgroup_version: int = 2
    is_node: bool = True


@console.command("upgrade-check")
@console.argument("files", nargs=-1, metavar="[FILE|DIR|-...]")
@console.option("--from", "first", metavar="RELEASE", help="The release before. [default: that of each node]")
@console.option(
    "--to", "second", metavar="RELEASE", required=True, help="The release after, or v2, systemd, runc 1.3 …"
)
@console.option(
    "--configz", metavar="DIR", help="NODE.json or NODE.yaml: outputs of /configz or KubeletConfigurations."
)
@console.option(
    "--kubelet-flags",
    "flag_files",
    multiple=True,
    metavar="FILE",
    help="A unit or environment file with kubelet flags.",
)
@console.option("--rules", "rule_files", multiple=True, metavar="FILE", help="Prometheus rules and Grafana dashboards.")
@console.option("-o", "--output", type=console.Choice(["table", "json", "html", "sarif"]), default="table")
@cluster_options
@node_options
def upgrade_check(files: tuple[str, ...], first: str | None, second: str, output: str, **options: Any) -> int:
    """Show what an upgrade changes: values, classes, scores, protection, resizes, nodes that will not start, metrics.

    Reads manifests, or dumps of a cluster; without files, a live cluster: nodes, their /configz, pods, LimitRanges and
    ResourceQuotas.

    Exit code 0: nothing changes, 1: something changes, 2: something breaks.

    \b
    Examples:
      plimsoll upgrade-check --to 1.37
      plimsoll upgrade-check deploy/ --from 1.36 --to 1.37 --capacity cpu=8,memory=32Gi
      kubectl get nodes,pods,limitranges,resourcequotas -A -o json | plimsoll upgrade-check - --to 1.37
      plimsoll upgrade-check dump.json --to 1.37 --configz configz/ --rules alerts.yaml --rules dashboard.json
      plimsoll upgrade-check pods.yaml --from v1 --to v2
      plimsoll upgrade-check pods.yaml --from "runc 1.1" --to "runc 1.3"
    """
    words = _words(first, second, options["profile"])
    question = NodeQuestion(options)
    if files:
        fleet = read_fleet(files)
    else:
        fleet = answered(options, lambda cluster: _live(cluster, options["namespace"]))
    if options["configz"]:
        read_configs(fleet, options["configz"])
    found = checked(fleet, words, question, _texts(options["flag_files"]), _texts(options["rule_files"]))
    for line in PRINTERS[output](found):
        console.echo(line)
    for note in found.notes:
        console.echo(f"note: {inert(note)}", err=True)
    for problem in fleet.problems:
        console.echo(inert(str(problem)), err=True)
    return 2 if fleet.problems else found.exit_code


async def _live(cluster: ClusterClient, namespace: str) -> Fleet:
    return await live_fleet(cluster, namespace)


def _words(first: str | None, second: str, profile: str | None) -> tuple[Word | None, Word]:
    after = word(second, "--to")
    before = None if first is None else word(first, "--from")
    if before is None and after.option != "profile":
        raise console.UsageError(f"--to {second} needs --from")
    if before is not None and (before.option != after.option or before.text == after.text):
        raise console.UsageError("--from and --to must be two different values of one kind")
    if profile and after.option == "profile":
        raise console.UsageError("--profile: use --from and --to")
    return before, after


def _texts(files: Sequence[str]) -> list[tuple[str, str]]:
    texts = []
    for file in files:
        try:
            with open(file, encoding="utf-8", errors="replace") as stream:
                texts.append((file, stream.read()))
        except OSError as error:
            raise console.CommandError(f"{file}: {error.strerror}") from None
    return texts


def checked(
    fleet: Fleet,
    words: tuple[Word | None, Word],
    question: NodeQuestion,
    flags: Sequence[tuple[str, str]] = (),
    rules: Sequence[tuple[str, str]] = (),
) -> Report:
    before, after = words
    places = _places(fleet, question)
    comparison, notes = Comparison(), list(fleet.notes)
    changes: list[Change] = []
    pairs: dict[tuple[str, str], tuple[Profile, Profile]] = {}
    for place in places:
        old, new = _profiles(place, words, question)
        pairs.setdefault((old.name, new.name), (old, new))
        changes += _node_changes(place, old, new, words, question, comparison, notes)
        if place.is_node:
            for file, text in flags:
                changes += _with_cause(flag_changes(place.name, text, old, new), FLAGS, comparison, file)
    for old, new in pairs.values():
        for file, text in rules:
            found = metric_changes(file, enumerate(text.splitlines(), 1), old, new)
            changes += [each for each in _with_cause(found, METRICS, comparison) if each not in changes]
        for quota in fleet.quotas:
            members = [
                each.pod
                for each in fleet.pods
                if each.title not in comparison.left_out
                and (each.pod.metadata.namespace or "default") == (quota.metadata.namespace or "default")
            ]
            changes += _with_cause(quota_changes(quota, members, old, new), QUOTA, comparison)
        gone = removed_between(REMOVED_METRICS, old, new)
        if gone and not rules:
            notes.append(f"metrics that disappear: {', '.join(gone)}; --rules FILE finds where they are used")
    for title, reason in list(comparison.left_out.items())[:LEFT_OUT]:
        notes.append(f"{title} is left out: the old release refuses it: {reason}")
    if len(comparison.left_out) > LEFT_OUT:
        notes.append(
            f"{len(comparison.left_out) - LEFT_OUT} more pods are left out because the old release refuses them"
        )
    names = {old for old, _ in pairs}
    first = before.text if before else names.pop() if len(names) == 1 else "now"
    nodes = sum(place.is_node for place in places)
    return report(
        (first, after.text),
        changes,
        comparison.causes,
        pods=len(fleet.pods),
        nodes=nodes,
        notes=list(dict.fromkeys(notes)),
    )


def _with_cause(found: Iterator[Change], cause: Cause, comparison: Comparison, note: str = "") -> Iterator[Change]:
    for change in found:
        comparison.causes.setdefault(cause.id, cause)
        yield msgspec.structs.replace(change, note=note) if note else change


def _places(fleet: Fleet, question: NodeQuestion) -> list[_Place]:
    """The nodes with their pods; pods that are not bound, or all if no node is known, on the node of the options."""
    by_node: dict[str, list[NamedPod]] = {}
    for each in fleet.pods:
        by_node.setdefault(each.pod.spec.node_name, []).append(each)
    places = [_place(node, by_node.pop(node.metadata.name, []), fleet, question) for node in fleet.nodes]
    rest = [each for pods in by_node.values() for each in pods]
    own_version = 1 if (question.options["cgroup"] or question.own_version) == "v1" else 2
    if not places:
        name = question.machine.name or "node"
        version = question.node.status.node_info.kubelet_version if question.node is not None else ""
        document = question.document
        shown = question.is_configz
        return [_Place(name, question.machine, rest, version, "", document, shown, own_version)]
    if rest:
        model = places[0]
        places.append(msgspec.structs.replace(model, name=UNBOUND, pods=rest, is_node=False))
    return places


def _place(node: Node, pods: list[NamedPod], fleet: Fleet, question: NodeQuestion) -> _Place:
    name, info = node.metadata.name, node.status.node_info
    machine = machine_from_capacity(node.status.capacity or {}, name=name, swap_bytes=info.swap.capacity)
    chosen = question.options["cgroup"]
    known = name in fleet.configs
    return _Place(
        name,
        machine,
        pods,
        info.kubelet_version,
        {"containerd": "containerd", "cri-o": "crio"}.get(info.container_runtime_version.partition(":")[0], ""),
        fleet.configs[name] if known else question.document,
        name in fleet.shown_by_node if known else question.is_configz,
        int(chosen[1]) if chosen else fleet.cgroup_versions.get(name, 2),
    )


def _profiles(place: _Place, words: tuple[Word | None, Word], question: NodeQuestion) -> tuple[Profile, Profile]:
    before, after = words
    if after.option == "profile":
        new = profile_named(after.value)
        if before is not None:
            return profile_named(before.value), new
        chosen = profile_of(place.version, "")
        if chosen is UNKNOWN_VERSION:
            raise console.UsageError(f"{place.name}: the release is not known; specify --from")
        return chosen.profile, new
    explicit = question.options["profile"]
    same = profile_named(explicit) if explicit else profile_of(place.version, "").profile
    return same, same


def _node_changes(
    place: _Place,
    old: Profile,
    new: Profile,
    words: tuple[Word | None, Word],
    question: NodeQuestion,
    comparison: Comparison,
    notes: list[str],
) -> Iterator[Change]:
    document = place.document
    try:
        if place.shown_by_node:
            document = without_defaults(document, old, gates_too=OWN_BUILD in place.version)
        read = read_both(document, old, new, question.flags)
    except InvalidConfigsError as error:
        lines = "\n  ".join(map(str, error.errors))
        raise console.CommandError(f"{place.name}: the kubelet would reject this configuration:\n  {lines}") from None
    notes += [f"{place.name}: {note}" for note in read.notes]
    before = _side(place, read.old, old, words[0], question.options)
    after = _side(place, read.new, new, words[1], question.options)
    if place.is_node and old is not new:
        for change, cause in start_changes(place.name, document, read, old, new, after.cgroup_version):
            comparison.causes.setdefault(cause.id, cause)
            yield change
    try:
        yield from comparison.changes(place.name, before, after, place.pods)
    except InvalidConfigError as error:
        notes.append(f"{place.name}: values cannot be compared: {error}")


def _side(
    place: _Place, config: KubeletConfig, profile: Profile, chosen: Word | None, options: Mapping[str, Any]
) -> Side:
    """The node with the options of the call, and with the word that stands for this side."""
    named: dict[str, Any] = {chosen.option: chosen.value} if chosen is not None else {}
    version = int(named["cgroup"][1]) if "cgroup" in named else place.cgroup_version
    return Side(
        place.machine,
        config,
        profile,
        1 if version == 1 else 2,
        named.get("driver", options["driver"]),
        named.get("runtime", place.runtime or options["runtime"]),
        named.get("container_weight", options["container_weight"]),
    )
