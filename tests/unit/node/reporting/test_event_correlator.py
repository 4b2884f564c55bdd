"""What becomes of repeated events, by client-go's numbers."""

from __future__ import annotations

from plimsoll.node.reporting.event_correlator import (
    BURST,
    COMBINED,
    REFILL_S,
    SIMILAR_MAX,
    Correlation,
    EventKey,
    ObjectReference,
)

POD = ObjectReference("Pod", "web", "default", "u-1", "7")


def event(reason: str = "BackOff", message: str = "again", reference: ObjectReference = POD) -> EventKey:
    return EventKey(reference, "Warning", reason, message)


def test_the_same_event_is_counted_up_whatever_version_of_the_object_it_is_about() -> None:
    correlation = Correlation()
    first = correlation.correlate(event(), 10.0)
    newer = ObjectReference("Pod", "web", "default", "u-1", "8")
    second = correlation.correlate(event(reference=newer), 15.0)
    assert first is not None and second is not None
    assert (first.count, second.count) == (1, 2)
    assert (second.first_s, second.last_s) == (10.0, 15.0)
    assert first.key == second.key


def test_many_messages_of_one_reason_are_combined() -> None:
    correlation = Correlation()
    events = [
        correlation.correlate(event(message=f"pull {number}"), float(number)) for number in range(SIMILAR_MAX + 1)
    ]
    assert [each.message for each in events if each is not None][-2:] == [f"{COMBINED}pull 9", f"{COMBINED}pull 10"]
    assert events[-1] is not None and events[-1].count == 2


def test_messages_that_are_far_apart_are_not_combined() -> None:
    correlation = Correlation()
    events = [correlation.correlate(event(message=str(number)), number * 700.0) for number in range(15)]
    assert all(each is not None and COMBINED not in each.message for each in events)


def test_an_object_has_a_budget_that_comes_back_slowly() -> None:
    correlation = Correlation()
    events = [correlation.correlate(event(reason=f"R{number}"), 0.0) for number in range(BURST + 5)]
    assert [each is not None for each in events] == [True] * BURST + [False] * 5
    assert correlation.correlate(event(reason="late"), REFILL_S + 1) is not None
    assert correlation.correlate(event(reference=ObjectReference("Pod", "other", "default", "u-2")), 0.0) is not None


def test_an_event_that_is_gone_is_created_again() -> None:
    correlation = Correlation()
    events = correlation.correlate(event(), 0.0)
    assert events is not None
    correlation.forget(events.key)
    again = correlation.correlate(event(), 1.0)
    assert again is not None and again.count == 1
