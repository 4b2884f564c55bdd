"""Counters, gauges, histograms and their text (Prometheus exposition format 0.0.4).

A metric is a dict from label values to numbers, so counting costs one addition, and text is only built for a scrape.
The text of label sets is cached.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Labels = tuple[str, ...]
Sample = tuple[Labels, float]
TextSample = tuple[str, float]  # with `label_text`, where many metrics of a page have the same labels


class Metric:
    kind = "untyped"

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.name, self.help_text, self.labels = name, help_text, tuple(labels)

    def lines(self) -> Iterable[str]:
        raise NotImplementedError

    def text(self) -> str:
        head = f"# HELP {self.name} {_help(self.help_text)}\n# TYPE {self.name} {self.kind}\n"
        return head + "".join(self.lines())


class _Numbers(Metric):
    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help_text, labels)
        self.values: dict[Labels, float] = {}

    def lines(self) -> Iterable[str]:
        for values, number in self.values.items():
            yield f"{self.name}{_labelled(self.labels, values)} {_number(number)}\n"


class Counter(_Numbers):
    kind = "counter"

    def add(self, *values: str, amount: float = 1) -> None:
        self.values[values] = self.values.get(values, 0) + amount


class Gauge(_Numbers):
    kind = "gauge"

    def set(self, number: float, *values: str) -> None:
        self.values[values] = number

    def drop(self, *values: str) -> None:
        self.values.pop(values, None)


class Computed(Metric):
    """Computed on each scrape: `read` returns every label set with its number."""

    def __init__(
        self, kind: str, name: str, help_text: str, labels: Sequence[str], read: Callable[[], Iterable[Sample]]
    ) -> None:
        super().__init__(name, help_text, labels)
        self.kind = kind
        self._read = read

    def lines(self) -> Iterable[str]:
        for values, number in self._read():
            yield f"{self.name}{_labelled(self.labels, values)} {_number(number)}\n"


class Histogram(Metric):
    kind = "histogram"

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str] = (), buckets: Sequence[float] = LATENCY_BUCKETS_S
    ) -> None:
        super().__init__(name, help_text, labels)
        self._bounds = tuple(buckets)
        self._counts: dict[Labels, list[float]] = {}  # one per bucket, then +Inf, then the sum

    def observe(self, number: float, *values: str) -> None:
        counts = self._counts.get(values)
        if counts is None:
            counts = self._counts[values] = [0] * (len(self._bounds) + 2)
        counts[bisect_left(self._bounds, number)] += 1
        counts[-1] += number

    def lines(self) -> Iterable[str]:
        for values, counts in self._counts.items():
            total = 0.0
            for bound, count in zip((*map(_number, self._bounds), "+Inf"), counts, strict=False):
                total += count
                yield f"{self.name}_bucket{_labelled((*self.labels, 'le'), (*values, bound))} {_number(total)}\n"
            labelled = _labelled(self.labels, values)
            yield f"{self.name}_sum{labelled} {_number(counts[-1])}\n{self.name}_count{labelled} {_number(total)}\n"


def family(
    kind: str,
    name: str,
    help_text: str,
    labels: Sequence[str],
    samples: Iterable[Sample | TextSample],
    at_ms: int | None = None,
) -> str:
    """The text of one metric that was read at `at_ms`; empty without samples."""
    names, end = tuple(labels), "\n" if at_ms is None else f" {at_ms}\n"
    lines = [
        f"{name}{values if isinstance(values, str) else _labelled(names, values)} "
        f"{number if type(number) is int else _number(number)}{end}"
        for values, number in samples
    ]
    return f"# HELP {name} {_help(help_text)}\n# TYPE {name} {kind}\n{''.join(lines)}" if lines else ""


class Family(NamedTuple):
    """A metric whose samples are read for each scrape; `docs/metrics.md` lists it."""

    kind: str
    name: str
    text: str
    labels: Labels

    def written(self, samples: Iterable[Sample | TextSample], at_ms: int | None = None) -> str:
        return family(self.kind, self.name, self.text, self.labels, samples, at_ms)


class Registry:
    """The metrics of one process, in the order in which they were added."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, *metrics: Metric) -> None:
        for metric in metrics:
            if metric.name in self._metrics:
                raise ValueError(f"metric {metric.name} exists already")
            self._metrics[metric.name] = metric

    def text(self) -> str:
        return "".join(metric.text() for metric in self._metrics.values())

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return tuple(self._metrics.values())


def label_text(names: Sequence[str], values: Labels) -> str:
    """`{name="value",…}`"""
    return _labelled(tuple(names), values)


@lru_cache(maxsize=65536)
def _labelled(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(number: float) -> str:
    if isinstance(number, float):
        if math.isinf(number):
            return "+Inf" if number > 0 else "-Inf"
        if math.isnan(number):
            return "NaN"
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    return str(number)
