"""`plimsoll plan`: reads pods as JSON lines or from a manifest and writes one result per line; `explain` for many.

A line that cannot be planned gives `{"line": N, "errors": [...]}` in its place, so that results and input still match.
Lines are processed in blocks; with `-j N` by N processes, and the results are in order.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from plimsoll.cli import console
from plimsoll.cli.node_options import NodeQuestion, node_options
from plimsoll.cli.terminal import inert
from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.codec.lean.plan_pod import quick_decode
from plimsoll.errors import FieldError, InvalidNameError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.admission.validation import create_errors
from plimsoll.rules.explain.batch import block_plans
from plimsoll.rules.explain.plan import Placement, PodPlan, placement, pod_plan
from plimsoll.rules.model.cgroup_names import uid_errors
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.resources.defaulting import admitted, defaulted
from plimsoll.rules.resources.node_policy import NodePolicy

BLOCK_BYTES = 1 << 16  # some hundred pods: small enough for the CPU cache


class RefusedLine(msgspec.Struct, frozen=True):
    line: int
    errors: list[FieldError]


_ENCODER = msgspec.json.Encoder()
_NOT_QUICK = (msgspec.MsgspecError, InvalidQuantityError, RecursionError, UnicodeDecodeError)
_PODS = {"", "Pod"}


def planned_block(
    lines: list[bytes], first: int, policy: NodePolicy, place: Placement, check: bool = False
) -> tuple[bytes, int]:
    """The joined results of a block of lines, and how many are errors. `first` is the number of its first line."""
    refused: list[tuple[int, RefusedLine]] = []
    pods = [] if check else _quickly_read(lines)
    if not pods:
        for number, line in enumerate(lines, first):
            if line and not line.isspace():
                try:
                    pods.append(_read(line, policy, check))
                except InvalidObjectError as error:
                    refused.append((len(pods) + len(refused), RefusedLine(number, list(error.errors))))
    try:
        results: list[PodPlan | RefusedLine] = [*block_plans(pods, policy, place)]
    except (InvalidObjectError, InvalidNameError):  # some pod cannot be planned: process them one by one
        return _one_by_one(lines, first, policy, place, check)
    for index, each in refused:
        results.insert(index, each)
    return _ENCODER.encode_lines(results), len(refused)


def _quickly_read(lines: list[bytes]) -> list[Pod]:
    """The results of a whole block; None if a pod is invalid or needs the general form."""
    try:
        pods = list(map(quick_decode(), lines))
        specs = [pod.spec for pod in pods]
        # Lists, not generators: they cost a third for a block of pods.
        if {pod.kind for pod in pods} <= _PODS and all([spec.containers for spec in specs]):  # noqa: C419
            if not any([spec.priority_class_name for spec in specs]):  # noqa: C419
                return pods
            return [admitted(pod) if pod.spec.priority_class_name else pod for pod in pods]
    except (*_NOT_QUICK, InvalidObjectError):
        pass
    return []


def _one_by_one(lines: list[bytes], first: int, policy: NodePolicy, place: Placement, check: bool) -> tuple[bytes, int]:
    results = [_planned(line, number, policy, place, check) for number, line in enumerate(lines, first) if line.strip()]
    return _ENCODER.encode_lines(results), sum(isinstance(each, RefusedLine) for each in results)


def _planned(line: bytes, number: int, policy: NodePolicy, place: Placement, check: bool) -> PodPlan | RefusedLine:
    try:
        pod = _read(line, policy, check)
        return pod_plan(pod, policy, place)
    except InvalidObjectError as error:
        return RefusedLine(number, list(error.errors))
    except InvalidNameError:
        return RefusedLine(number, uid_errors(pod.metadata.uid))


def _read(line: bytes, policy: NodePolicy, check: bool) -> Pod:
    """One pod after admission. Raises InvalidObjectError."""
    pod = pod_from_json(line) if check else _decoded(line)
    if pod.kind not in _PODS:
        detail = "one Pod per line: jq -c '.items[]' unpacks a list"
        raise InvalidObjectError([FieldError("FieldValueNotSupported", "kind", detail, pod.kind)])
    if not pod.spec.containers:
        raise InvalidObjectError([FieldError("FieldValueRequired", "spec.containers")])
    if check:
        errors = create_errors(defaulted(pod, gates=policy.gates), gates=policy.gates)
        if errors:
            raise InvalidObjectError(errors)
    return admitted(pod) if pod.spec.priority_class_name else pod


def _decoded(line: bytes) -> Pod:
    try:
        return quick_decode()(line)
    except _NOT_QUICK:
        return pod_from_json(line)


def blocks(stream: BinaryIO, file: str = "-") -> Iterator[tuple[list[bytes], int]]:
    """Blocks of lines, each with the number of its first line. A manifest gives one block with a line for each pod."""
    first = [stream.readline()]
    while first[-1].isspace():
        first.append(stream.readline())
    start = first[-1].strip()
    if start and (not start.startswith(b"{") or start == b"{"):  # YAML, or JSON with line breaks
        yield manifest_lines(file, b"".join(first) + stream.read()), 1
        return
    yield first, 1
    number = 1 + len(first)
    while lines := stream.readlines(BLOCK_BYTES):
        yield lines, number
        number += len(lines)


def manifest_lines(file: str, data: bytes) -> list[bytes]:
    """The pods of a manifest, as `explain` reads it, as JSON lines."""
    from plimsoll.cli.manifests import Inputs, ManifestsError, add_inputs

    inputs = Inputs([], [], [])
    add_inputs(inputs, [("<stdin>" if file == "-" else file, data)])
    if inputs.problems:
        raise ManifestsError(inputs.problems, "no pod was planned")
    for note in inputs.passed:
        console.echo(f"note: {inert(note)}", err=True)
    return [msgspec.json.encode(each.found.document) + b"\n" for each in inputs.pods]


def tuned_collector() -> None:
    """Collect garbage rarely: results are short-lived and have no cycles."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)


@console.command("plan")
@console.argument("file", default="-", metavar="[FILE|-]")
@node_options
@console.option(
    "--check", is_flag=True, help="Also validate as an API server does; pods from a cluster do not need it."
)
@console.option(
    "-j", "--jobs", type=console.IntRange(1, 256), default=1, show_default=True, help="Number of processes."
)
def plan(file: str, check: bool, jobs: int, **options: Any) -> None:
    """Read pods as JSON lines and print one JSON result per line: QoS class, requests, limits, scores, cgroup files.

    A manifest (YAML, or JSON with line breaks) is read as `explain` reads it, and gives one line for each pod.

    \b
      plimsoll plan pod.yaml
      kubectl get pods -A -o json | jq -c '.items[]' | plimsoll plan -j 2 --node node.yaml
    """
    setting, notes = NodeQuestion(options).setting()
    console.echo(f"profile {setting.profile.name}: {inert(setting.profile_reason)}", err=True)
    for note in notes:
        console.echo(f"note: {inert(note)}", err=True)
    if setting.policy.memory_qos and "memory_high_without_request" in setting.profile.notes:
        note = setting.profile.notes["memory_high_without_request"]
        console.echo(f"note: memory.high of containers without memory settings: {note}", err=True)
    place = placement(setting.pods_root, setting.driver)
    tuned_collector()
    output, refused = sys.stdout.buffer, 0
    with _opened(file) as stream:
        for text, count in _results(stream, file, jobs, setting.policy, place, check):
            output.write(text)
            refused += count
    output.flush()
    if refused:
        console.echo(f'plimsoll: {refused} invalid; see the lines with "errors"', err=True)
    raise SystemExit(2 if refused else 0)


def _opened(file: str) -> BinaryIO:
    if file == "-":
        return sys.stdin.buffer
    try:
        return open(file, "rb")
    except OSError as error:
        raise console.CommandError(f"{file}: {error.strerror}") from None


def _results(
    stream: BinaryIO, file: str, jobs: int, policy: NodePolicy, place: Placement, check: bool
) -> Iterator[tuple[bytes, int]]:
    if jobs == 1:
        for lines, first in blocks(stream, file):
            yield planned_block(lines, first, policy, place, check)
        return
    from concurrent.futures import Future, ProcessPoolExecutor

    # Twice as many blocks in flight as processes: no process idles, and memory is bounded.
    waiting: deque[Future[tuple[bytes, int]]] = deque()
    with ProcessPoolExecutor(jobs) as pool:
        for lines, first in blocks(stream, file):
            waiting.append(pool.submit(planned_block, lines, first, policy, place, check))
            if len(waiting) >= 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
