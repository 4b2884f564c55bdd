"""The ring of frames: bounded, and always readable from its beginning."""

from __future__ import annotations

import os

from plimsoll.codec.live_page import Frame
from plimsoll.node.live.history import History


def frame(at: float, *, complete: bool, noise: int = 0) -> Frame:
    rows = {os.urandom(8).hex(): [1] * 22 for _ in range(noise)}
    return Frame("run", int(at) + 1, at, 0 if complete else int(at), rows=rows)


def filled(history: History, count: int, noise: int = 0) -> None:
    for at in range(count):
        history.add(frame(float(at), complete=history.wants_complete, noise=noise))


def test_a_page_begins_with_a_complete_frame() -> None:
    history = History(group=10)
    filled(history, 35)
    page = history.page(from_s=27.0)
    assert [each.at for each in page.frames] == [float(at) for at in range(20, 35)]
    assert page.frames[0].since == 0 and all(each.since for each in page.frames[1:10])
    assert (page.oldest, page.newest, page.more) == (0.0, 34.0, False)
    assert [each.at for each in history.page(27.0, to_s=29.0).frames][-1] == 29.0


def test_it_is_bounded_and_drops_whole_groups() -> None:
    history = History(most_bytes=40_000, group=5)
    filled(history, 200, noise=20)
    assert history.bytes <= 40_000
    page = history.page()
    assert page.frames[0].since == 0
    assert 5 <= len(page.frames) < 200
    assert page.newest == 199.0


def test_a_long_history_comes_in_pages() -> None:
    history = History(group=5)
    filled(history, 40, noise=50)
    first = history.page(most_bytes=10_000)
    assert first.more and len(first.frames) < 40
    seen = [each.at for each in first.frames]
    while True:
        page = history.page(seen[-1], most_bytes=10_000)
        new = [each.at for each in page.frames if each.at > seen[-1]]
        assert new or not page.more
        seen += new
        if not page.more:
            break
    assert seen == [float(at) for at in range(40)]


def test_an_empty_history_is_an_empty_page() -> None:
    assert History().page().frames == []
