"""The scheduling queue: order, back-off, and wake-ups (05 A4)."""

from __future__ import annotations

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Pod
from plimsoll.scheduler.queue import Queue


def _pod(name: str, priority: int = 0, cpu: str = "1") -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return from_document(
        {"metadata": {"name": name, "uid": name}, "spec": {"priority": priority, "containers": containers}}, Pod
    )


def _popped(queue: Queue, now_s: float) -> list[str]:
    found = []
    while (waiting := queue.pop(now_s)) is not None:
        found.append(waiting.pod.metadata.uid)
    return found


def test_higher_priority_first_then_the_longer_wait() -> None:
    queue = Queue()
    for moment, pod in enumerate((_pod("a"), _pod("b", 5), _pod("c"), _pod("d", 5))):
        queue.put(pod, moment)
    assert _popped(queue, 9) == ["b", "d", "a", "c"]


def test_a_failed_pod_waits_for_a_change_and_for_its_back_off() -> None:
    queue = Queue()
    queue.put(_pod("a"), 0)
    assert _popped(queue, 0) == ["a"]
    queue.failed("a", 0)
    assert _popped(queue, 100) == [] and queue.next_due_s() is None
    queue.wake()
    assert queue.next_due_s() == 1  # first back-off
    assert _popped(queue, 100) == ["a"]
    queue.failed("a", 100)
    queue.wake()
    assert _popped(queue, 101) == [] and _popped(queue, 102) == ["a"]  # doubled


def test_a_change_during_an_attempt_is_not_lost() -> None:
    queue = Queue()
    queue.put(_pod("a"), 0)
    assert _popped(queue, 0) == ["a"]
    queue.wake()
    queue.failed("a", 0)
    assert _popped(queue, 1) == ["a"]


def test_a_change_that_cannot_help_does_not_wake_it() -> None:
    queue = Queue()
    queue.put(_pod("a"), 0)
    queue.put(_pod("b"), 0)
    assert _popped(queue, 0) == ["a", "b"]
    queue.failed("a", 0)
    queue.failed("b", 0)
    queue.wake(lambda pod: pod.metadata.name == "b")
    assert _popped(queue, 50) == ["b"]


def test_an_unschedulable_pod_is_tried_again_after_five_minutes() -> None:
    queue = Queue()
    queue.put(_pod("a"), 0)
    _popped(queue, 0)
    queue.failed("a", 1000)  # the five minutes begin here
    queue.wake_leftover(1299)
    assert _popped(queue, 1299) == []
    queue.wake_leftover(1300)
    assert _popped(queue, 1300) == ["a"]


def test_a_failed_request_is_tried_again_after_the_back_off() -> None:
    queue = Queue()
    queue.put(_pod("a"), 0)
    _popped(queue, 0)
    queue.retry("a", 0)
    assert _popped(queue, 0.5) == [] and _popped(queue, 1) == ["a"]


def test_a_changed_spec_activates_an_unschedulable_pod_a_changed_status_does_not() -> None:
    queue = Queue()
    queue.put(_pod("a", cpu="100"), 0)
    _popped(queue, 0)
    queue.failed("a", 0)
    queue.put(_pod("a", cpu="100"), 1)
    assert _popped(queue, 1) == []
    queue.put(_pod("a", cpu="1"), 2)
    assert _popped(queue, 2) == ["a"]


def test_a_dropped_pod_never_comes_back() -> None:
    queue = Queue()
    queue.put(_pod("a"), 0)
    queue.drop("a")
    assert _popped(queue, 0) == [] and len(queue) == 0
    queue.put(_pod("b"), 0)
    _popped(queue, 0)
    queue.drop("b")
    queue.failed("b", 0)
    queue.retry("b", 0)
    queue.wake()
    assert _popped(queue, 1000) == []
