"""memory.high, swap and page labels (spec 02 §5, §6.1, §7)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.resources.memory import memory_high, memory_high_1_22, page_label, swap_limit_bytes
from tests.examples import examples

MI, GI = 1 << 20, 1 << 30
A = 265214214144  # absolute allocatable of the seed's node (01 §10.5)

# 02 §6.1, factor 0.9, page 4096: request, limit, allocatable, with the documents' rule?, memory.high
HIGH = [
    ("300Mi / 400Mi", 300 * MI, 400 * MI, None, False, 408944640),
    ("1Gi / 2Gi", GI, 2 * GI, None, False, 2040107008),
    ("64Mi / 128Mi", 64 * MI, 128 * MI, None, False, 127504384),
    ("0 / 400Mi", 0, 400 * MI, None, False, 377487360),
    ("64Mi / 64Mi", 64 * MI, 64 * MI, None, False, None),
    ("64Mi / 64Mi as documented", 64 * MI, 64 * MI, None, True, None),
    ("300Mi / none, A", 300 * MI, 0, A, False, 238724247552),
    ("none / none 1.36", 0, 0, A, False, None),
    ("none / none KEP", 0, 0, A, True, 238692790272),
    ("A unknown", 300 * MI, 0, None, False, None),
    ("A zero", 300 * MI, 0, 0, False, None),
    ("none / none, A unknown", 0, 0, None, True, None),
    ("request above A", 4 * GI, 0, 2 * GI, False, None),
    ("below a page", 0, 4096, None, False, None),
    ("not above the request", 4096, 8191, None, False, None),
]


@pytest.mark.parametrize(
    ("request_bytes", "limit", "allocatable", "documented", "high"),
    [row[1:] for row in HIGH],
    ids=[f"02 §6.1 {row[0]}" for row in HIGH],
)
def test_memory_high(
    request_bytes: int, limit: int, allocatable: int | None, documented: bool, high: int | None
) -> None:
    assert memory_high(request_bytes, limit, allocatable, 0.9, without_request=documented) == high


SWAP = [
    ("§5 worked: 2Gi of 16Gi, 8Gi swap", 2 * GI, 16 * GI, 8 * GI, 1073741824),
    ("only a limit", 0, 16 * GI, 8 * GI, 0),
    ("request above capacity", 17 * GI, 16 * GI, 8 * GI, 0),
    ("whole node", 16 * GI, 16 * GI, 8 * GI, 8 * GI),
    ("no swap", 2 * GI, 16 * GI, 0, 0),
    ("capacity unknown", 2 * GI, 0, 8 * GI, 0),
    ("doubles, truncated", GI, 3 * GI, 10, 3),
]


@pytest.mark.parametrize(
    ("request_bytes", "capacity", "swap", "limit"), [row[1:] for row in SWAP], ids=[row[0] for row in SWAP]
)
def test_swap(request_bytes: int, capacity: int, swap: int, limit: int) -> None:
    assert swap_limit_bytes(request_bytes, capacity, swap) == limit


LABELS = [
    (2 * MI, "2MB"),
    (GI, "1GB"),
    (65536, "64KB"),
    (16 * GI, "16GB"),
    (512, "512B"),
    (1 << 50, "1PB"),
    (3 << 20, "3MB"),
]


@pytest.mark.parametrize(("size", "label"), LABELS, ids=[f"§7 {row[1]}" for row in LABELS])
def test_page_label(size: int, label: str) -> None:
    assert page_label(size) == label


sizes = st.integers(1, 1 << 45)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 1 << 45), sizes, st.floats(0.01, 1.0), st.sampled_from((4096, 16384, 65536)))
def test_high_lies_between_request_and_limit(request_bytes: int, more: int, factor: float, page: int) -> None:
    limit = request_bytes + more
    high = memory_high(request_bytes, limit, None, factor, page_size=page)
    if high is not None:
        assert high % page == 0
        assert request_bytes < high <= limit
        assert abs(high - (request_bytes + more * factor)) <= page + 1
    else:
        assert request_bytes + more * factor < request_bytes + page + 1


@settings(max_examples=examples(200), deadline=None)
@given(sizes, sizes, sizes, st.floats(0.01, 1.0))
def test_high_rises_with_the_limit(request_bytes: int, one: int, other: int, factor: float) -> None:
    low, large = sorted((one, other))
    lower = memory_high(request_bytes, request_bytes + low, None, factor)
    higher = memory_high(request_bytes, request_bytes + large, None, factor)
    assert (lower or 0) <= (higher or 0)


@settings(max_examples=examples(200), deadline=None)
@given(sizes, sizes, sizes, st.integers(0, 1 << 45))
def test_swap_is_monotone_and_bounded(one: int, other: int, capacity: int, swap: int) -> None:
    low, high = sorted((one, other))
    if high <= capacity:
        assert 0 <= swap_limit_bytes(low, capacity, swap) <= swap_limit_bytes(high, capacity, swap) <= swap


FIRST_ROWS = [
    ("300Mi / 400Mi", 300 << 20, 400 << 20, None, 0.8, 335544320),
    ("none / none", 0, 0, 265214214144, 0.8, 212171371315),
    ("close to the limit", 350 << 20, 400 << 20, None, 0.8, None),
    ("far below it", 500 << 20, 1000 << 20, None, 0.6, 600 << 20),
    ("nothing known", 1 << 20, 0, None, 0.8, None),
]


@pytest.mark.parametrize(
    ("request_bytes", "limit", "allocatable", "factor", "high"),
    [row[1:] for row in FIRST_ROWS],
    ids=[f"02 §6.1 1.22: {row[0]}" for row in FIRST_ROWS],
)
def test_memory_high_of_1_22(
    request_bytes: int, limit: int, allocatable: int | None, factor: float, high: int | None
) -> None:
    assert memory_high_1_22(request_bytes, limit, allocatable, factor) == high
