"""Readers of one stream: a slow one loses what waits for it, the others do not notice; a lost one continues."""

from __future__ import annotations

import json
from typing import cast

from plimsoll.api.nodeproxy.client import NodeCalls
from plimsoll.web.hub import LOG_BYTES, TAB_BYTES, Hub, Tab


def hub() -> Hub:
    return Hub(cast(NodeCalls, None))  # which is asked only by reads of nodes


def taken(data: bytes) -> list[int]:
    return [json.loads(line)["seq"] for line in data.splitlines()]


async def test_a_slow_tab_is_bounded_and_the_others_get_everything() -> None:
    found = hub()
    slow, fast = Tab("n1"), Tab("n1")
    found._tabs |= {slow, fast}
    received: list[int] = []
    piece = b'{"x":"' + b"y" * 60_000 + b'"}'
    for _ in range(60):
        found._publish("node/n1", piece)
        received += taken(fast.taken())
    assert received == list(range(1, 61))
    assert slow.is_behind and slow._bytes <= TAB_BYTES
    assert slow.taken() == b"", "it begins with everything again"


async def test_a_tab_gets_its_own_node_only() -> None:
    found = hub()
    tab = Tab("n1")
    found._tabs.add(tab)
    for topic in ("objects", "node/n1", "node/n2", "fleet"):
        found._publish(topic, b"{}")
    topics = [json.loads(line)["topic"] for line in tab.taken().splitlines()]
    assert topics == ["objects", "node/n1", "fleet"]


async def test_a_lost_tab_gets_what_it_missed() -> None:
    found = hub()
    for topic in ("objects", "node/n1", "node/n2", "node/n1"):
        found._publish(topic, b"{}")
    assert taken(found._missed(Tab("n1"), 1) or b"") == [2, 4]
    assert found._missed(Tab("n1"), 4) == b""
    assert found._missed(Tab("n1"), 9) is None, "a number that this server has not given"


async def test_what_is_kept_for_lost_tabs_is_bounded() -> None:
    found = hub()
    for _ in range(100):
        found._publish("node/n1", b'{"x":"' + b"y" * 100_000 + b'"}')
    assert found._log_bytes <= LOG_BYTES
    assert found._missed(Tab("n1"), 1) is None
    assert found._missed(Tab("n1"), 99) is not None
