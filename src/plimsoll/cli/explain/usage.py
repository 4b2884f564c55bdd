"""Usage that somebody assumes, on the command line or in a file, for questions about who goes first.

`web=500Mi,shop/api=2Gi`; or a file: a mapping of the same, a node's /stats/summary, or `kubectl get --raw
/apis/metrics.k8s.io/v1beta1/pods`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from plimsoll.codec.kernel.usage_reports import PodKey, metrics_usage, summary_usage
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.config.thresholds import PID_AVAILABLE, FsLayout
from plimsoll.rules.eviction.usage import ContainerUsage, FsUsage, PodUsage, disk_parts
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.quantity import QUANTITIES

DEFAULT_NAMESPACE = "default"


def named_amounts(text: str, option: str, *, bare: bool = False) -> dict[str, int]:
    """`a=1Gi,b=2Gi` → bytes by name. `bare`: one amount alone will do, and has the name `""`."""
    found: dict[str, int] = {}
    parts = [piece.strip() for piece in text.split(",") if piece.strip()]
    for part in parts:
        name, equals, amount = part.rpartition("=")
        if not name and (equals or not bare or len(parts) > 1):
            raise click.BadParameter(f"{part!r} is not name=amount", param_hint=option)
        found[name.strip()] = _bytes(amount, option)
    return found


def _bytes(amount: object, option: str) -> int:
    try:
        value = QUANTITIES[str(amount).strip()].value
    except InvalidQuantityError as error:
        raise click.BadParameter(f"{amount!r}: {error.reason}", param_hint=option) from None
    if value < 0:
        raise click.BadParameter(f"{amount!r}: must be greater than or equal to 0", param_hint=option)
    return value


def assumed(text: str, file: str | None) -> tuple[dict[str, int], dict[PodKey, PodUsage]]:
    """Amounts by the names that somebody wrote, and reports by pod."""
    amounts = named_amounts(text, "--usage")
    if file is None:
        return amounts, {}
    document = _document(file)
    if isinstance(document.get("pods"), list):
        return amounts, summary_usage(document)
    if isinstance(document.get("items"), list):
        return amounts, metrics_usage(document)
    return {**{str(name): _bytes(amount, "--usage-file") for name, amount in document.items()}, **amounts}, {}


def matched(amounts: Mapping[str, int], keys: Sequence[PodKey]) -> dict[PodKey, int]:
    """Whose each amount is: `name` or `namespace/name`. A name that nobody has is a mistake worth saying."""
    found: dict[PodKey, int] = {}
    for name, amount in amounts.items():
        meant = [key for key in keys if name in (key[1], "/".join(key), f"{key[0] or DEFAULT_NAMESPACE}/{key[1]}")]
        if not meant:
            there = ", ".join(sorted({key[1] for key in keys}))
            raise click.BadParameter(f"no pod {name!r}; there are: {there}", param_hint="--usage")
        found.update(dict.fromkeys(meant, amount))
    return found


def usage_for(signal: str, amount: int, layout: FsLayout = "single") -> PodUsage:
    """One assumed figure, where the signal looks for it."""
    if signal == PID_AVAILABLE:
        return PodUsage(processes=amount)
    if "memory" in signal:
        return PodUsage(memory_bytes=amount)
    held = FsUsage(inodes=amount) if signal.endswith(".inodesFree") else FsUsage(used_bytes=amount)
    in_layers = "rootfs" in disk_parts(signal, layout)
    assumed_one = ContainerUsage("assumed", rootfs=held) if in_layers else ContainerUsage("assumed", logs=held)
    return PodUsage(containers=(assumed_one,))


def _document(file: str) -> JsonObject:
    from plimsoll.codec.yaml.reader import YamlError, read

    try:
        with open(file, "rb") as stream:
            found = list(read(stream.read()))
    except OSError as error:
        raise click.ClickException(f"--usage-file {file}: {error.strerror}") from None
    if len(found) != 1 or isinstance(found[0], YamlError):
        raise click.ClickException(f"--usage-file {file}: {found[0] if found else 'empty'}")
    value: JsonObject = found[0].value
    return value
