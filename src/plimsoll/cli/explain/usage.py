"""Assumed usage from the command line or from a file, for the order of evictions and OOM kills.

`web=500Mi,shop/api=2Gi`; or a file: a mapping of the same, a node's /stats/summary, or what `kubectl get --raw
/apis/metrics.k8s.io/v1beta1/pods` prints, for all pods or for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.cli import console
from plimsoll.codec.kernel.usage_reports import PodKey, metrics_usage, summary_usage
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.config.thresholds import PID_AVAILABLE, FsLayout
from plimsoll.rules.eviction.usage import ContainerUsage, FsUsage, PodUsage, disk_parts
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.quantity import QUANTITIES

DEFAULT_NAMESPACE = "default"

usage_file_option = console.option(
    "--usage-file", metavar="FILE", help="The same as a mapping, a /stats/summary or a PodMetricsList."
)


def named_amounts(text: str, option: str, *, bare: bool = False) -> dict[str, int]:
    """`a=1Gi,b=2Gi` → bytes by name. With `bare`, a single amount is allowed, with the name `""`."""
    found: dict[str, int] = {}
    parts = [piece.strip() for piece in text.split(",") if piece.strip()]
    for part in parts:
        name, equals, amount = part.rpartition("=")
        if not name and (equals or not bare or len(parts) > 1):
            raise console.BadParameterError(f"{part!r} is not name=amount", param_hint=option)
        found[name.strip()] = _bytes(amount, option)
    return found


def _bytes(amount: object, option: str) -> int:
    try:
        value = QUANTITIES[str(amount).strip()].value
    except InvalidQuantityError as error:
        raise console.BadParameterError(f"{amount!r}: {error.reason}", param_hint=option) from None
    if value < 0:
        raise console.BadParameterError(f"{amount!r}: must be greater than or equal to 0", param_hint=option)
    return value


def assumed(text: str, file: str | None) -> tuple[dict[str, int], dict[PodKey, PodUsage]]:
    """Amounts by the names on the command line, and reported usage by pod."""
    amounts = named_amounts(text, "--usage")
    if file is None:
        return amounts, {}
    document = _document(file)
    if isinstance(document.get("pods"), list):
        return amounts, summary_usage(document)
    if document.get("kind") == "PodMetrics":
        return amounts, metrics_usage({"items": [document]})
    if isinstance(document.get("items"), list):
        return amounts, metrics_usage(document)
    return {**{str(name): _bytes(amount, "--usage-file") for name, amount in document.items()}, **amounts}, {}


def matched(amounts: Mapping[str, int], keys: Sequence[PodKey]) -> dict[PodKey, int]:
    """The amounts by pod, named as `name` or `namespace/name`; an unknown name is an error."""
    by_pod: dict[PodKey, int] = {}
    for name, amount in amounts.items():
        named = [key for key in keys if name in (key[1], "/".join(key), f"{key[0] or DEFAULT_NAMESPACE}/{key[1]}")]
        if not named:
            known = ", ".join(sorted({key[1] for key in keys}))
            raise console.BadParameterError(f"no pod {name!r}; the pods are: {known}", param_hint="--usage")
        by_pod.update(dict.fromkeys(named, amount))
    return by_pod


def usage_for(signal: str, amount: int, layout: FsLayout = "single") -> PodUsage:
    """A PodUsage with one amount, in the place that the signal reads."""
    if signal == PID_AVAILABLE:
        return PodUsage(processes=amount)
    if "memory" in signal:
        return PodUsage(memory_bytes=amount)
    used = FsUsage(inodes=amount) if signal.endswith(".inodesFree") else FsUsage(used_bytes=amount)
    in_layers = "rootfs" in disk_parts(signal, layout)
    assumed_one = ContainerUsage("assumed", rootfs=used) if in_layers else ContainerUsage("assumed", logs=used)
    return PodUsage(containers=(assumed_one,))


def _document(file: str) -> JsonObject:
    from plimsoll.codec.yaml.reader import YamlError, read

    try:
        with open(file, "rb") as stream:
            documents = list(read(stream.read()))
    except OSError as error:
        raise console.CommandError(f"--usage-file {file}: {error.strerror}") from None
    if len(documents) != 1 or isinstance(documents[0], YamlError):
        raise console.CommandError(f"--usage-file {file}: {documents[0] if documents else 'empty'}")
    value: JsonObject = documents[0].value
    return value
