"""The exposition text, read back by the Prometheus parser."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.metrics.exposition import Computed, Counter, Gauge, Histogram, Registry

Read = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _read(text: str) -> Read:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


_VALUES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e"), max_size=12
)


@given(st.dictionaries(st.tuples(_VALUES, _VALUES), st.floats(allow_nan=False), max_size=5))
def test_a_gauge_is_read_back_with_any_labels(values: dict[tuple[str, str], float]) -> None:
    gauge = Gauge("g", "help\nwith \\ lines", ("a", "b"))
    for (a, b), number in values.items():
        gauge.set(number, a, b)
    assert _read(gauge.text()) == {("g", (("a", a), ("b", b))): number for (a, b), number in values.items()}


@given(st.lists(st.floats(0, 20), max_size=30))
def test_a_histogram_counts_up_to_each_bound(numbers: list[float]) -> None:
    histogram = Histogram("h_seconds", "x", ("verb",), (0.5, 1, 10))
    for number in numbers:
        histogram.observe(number, "get")
    found = _read(histogram.text())
    if not numbers:
        assert not found
        return
    for bound in (0.5, 1.0, 10.0, math.inf):
        text = "+Inf" if bound == math.inf else f"{bound:g}"
        assert found["h_seconds_bucket", (("le", text), ("verb", "get"))] == sum(n <= bound for n in numbers)
    assert found["h_seconds_count", (("verb", "get"),)] == len(numbers)
    assert found["h_seconds_sum", (("verb", "get"),)] == pytest.approx(sum(numbers))


def test_a_registry_keeps_its_order_and_refuses_a_name_twice() -> None:
    registry, counter = Registry(), Counter("requests_total", "how many", ("code",))
    registry.add(counter, Computed("gauge", "up", "is it", (), lambda: [((), 1)]))
    counter.add("200")
    counter.add("200", amount=2)
    assert _read(registry.text()) == {("requests_total", (("code", "200"),)): 3, ("up", ()): 1}
    assert registry.text().index("requests_total") < registry.text().index("up")
    with pytest.raises(ValueError, match="exists already"):
        registry.add(Gauge("up", ""))
