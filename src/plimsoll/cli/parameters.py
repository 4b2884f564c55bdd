"""Types of command-line options: quantities, lists of quantities, factors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from plimsoll.cli import console
from plimsoll.errors import InvalidConfigError, InvalidQuantityError
from plimsoll.rules.gotext import duration_seconds
from plimsoll.rules.model.objects import ResourceList
from plimsoll.rules.quantity import MAX_INT64, QUANTITIES, Quantity


class QuantityParam(console.ParamType[Quantity]):
    name = "quantity"

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> Quantity:
        if isinstance(value, Quantity):
            return value
        try:
            quantity = QUANTITIES[str(value)]
        except InvalidQuantityError as error:
            self.fail(f"{value!r}: {error.reason}", param, ctx)
        if quantity.nanos < 0:
            self.fail(f"{value!r}: must be greater than or equal to 0", param, ctx)
        if quantity.milli > MAX_INT64:
            self.fail(f"{value!r}: too large", param, ctx)
        return quantity


class FactorParam(console.FloatRange):
    """A number above 0 and at most 1; `nan` is in no range and outside of none."""

    def __init__(self) -> None:
        super().__init__(0, 1, min_open=True)

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class DurationParam(console.ParamType[float]):
    """Seconds: a Go duration such as `1m30s`, or a number."""

    name = "duration"

    def __init__(self, *, positive: bool = False) -> None:
        self.positive = positive

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        try:
            number = re.fullmatch(r"-?\d+(\.\d+)?", str(value), re.ASCII)
            seconds = float(number[0]) if number is not None else duration_seconds(str(value))
        except InvalidConfigError:
            self.fail(f"{value!r} is not a duration such as 90s, 5m or 1h30m", param, ctx)
        if self.positive and seconds <= 0:
            self.fail(f"{value!r} is not more than 0", param, ctx)
        return seconds


class QuantitiesParam(console.ParamType[ResourceList]):
    name = "list"

    def convert(self, value: Any, param: console.Parameter | None, ctx: console.Context | None) -> ResourceList:
        if isinstance(value, dict):
            return value
        amounts: ResourceList = {}
        for part in filter(None, str(value).split(",")):
            name, equals, text = part.partition("=")
            if not equals:
                self.fail(f"{part!r} is not name=amount", param, ctx)
            amounts[name.strip()] = QuantityParam().convert(text.strip(), param, ctx)
        return amounts


pods_option = console.option(
    "--pods",
    "files",
    multiple=True,
    metavar="FILE",
    help="File with the output of `kubectl get pods -A -o json`, for names.",
)
names_state_option = console.option(
    "--state-dir", type=console.Path(), help="State directory of `plimsoll node`, for names of its pods."
)

interval_option = console.option(
    "--interval",
    type=console.FloatRange(0.2, 3600),
    default=2.0,
    metavar="SECONDS",
    help="Live: how often to read again. [default: 2]",
)


_LOG_LEVELS = ("error", "warning", "info", "debug")


def profile_option(name: str = "profile") -> Callable[[Any], Any]:
    return console.option(
        "--profile",
        name,
        default="documents",
        show_default=True,
        help="The Kubernetes release to follow, 1.27 to 1.37, or documents.",
    )


def log_options(command: Any) -> Any:
    """The options `-v` and `--log-level` of a daemon; `log_level` makes a level of them."""
    for option in (
        console.option(
            "--log-level",
            type=console.Choice(_LOG_LEVELS),
            help="The least severe messages in the log. [default: info]",
        ),
        console.option(
            "-v",
            "--v",
            "verbosity",
            type=console.IntRange(0, 10),
            metavar="N",
            help="Verbosity of Kubernetes' components, 0 to 10, in place of --log-level: 4 and more is debug.",
        ),
    ):
        command = option(command)
    return command


def log_level(options: dict[str, Any]) -> int:
    """Takes both options out of `options`."""
    from plimsoll.logs import level_of

    name, verbosity = options.pop("log_level"), options.pop("verbosity")
    if name is not None and verbosity is not None:
        raise console.UsageError("-v and --log-level exclude each other: use one of them")
    return level_of(name, verbosity)
