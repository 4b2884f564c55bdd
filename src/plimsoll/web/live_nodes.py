"""The live pages of the nodes, read through the API server's own connection to each (`/live`, `/history`).

The frame that a node sends goes to the browsers as it is; here it is only folded into the node's state, for a browser
that begins, and for the overview of all nodes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.status import StatusError
from plimsoll.api.nodeproxy.client import NodeCalls, node_endpoint
from plimsoll.codec.live_page import Frame, Mark, Orders, folded_orders
from plimsoll.kube.request import Request, UnreachableError

ANSWER_S = 5.0
MOST_S = 30.0  # between two readings of a page, whatever the node says
MOST_MARKS = 500
_frames = msgspec.json.Decoder(Frame)


class NodeUnreadableError(Exception):
    """A node does not answer, or does not serve the page; the text says why."""


async def node_page(calls: NodeCalls, cluster: Cluster, node: str, target: str) -> bytes:
    """Raises NodeUnreadableError."""
    try:
        transport = await calls.transport(node_endpoint(cluster, node))
        async with asyncio.timeout(ANSWER_S):
            answer = await transport.send(Request("GET", target))
    except StatusError as error:
        raise NodeUnreadableError(error.message) from None
    except UnreachableError as error:
        raise NodeUnreadableError(f"node {node} does not answer: {error}") from None
    except TimeoutError:
        raise NodeUnreadableError(f"node {node} did not answer within {ANSWER_S:g} s") from None
    if answer.status == 404:
        raise NodeUnreadableError(f"node {node} does not serve live data: it runs a kubelet or an older plimsoll")
    if answer.status != 200:
        raise NodeUnreadableError(f"node {node}: HTTP {answer.status}")
    return answer.body


class LiveNode:
    """The folded state of one node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.run, self.seq, self.at = "", 0, 0.0
        self.due_s = 0.0  # in the time of the event loop: before it the node has nothing new
        self.node: dict[str, Any] = {}
        self.vessels: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, list[int]] = {}
        self.orders: Orders = {}
        self.marks: list[Mark] = []
        self.problem = ""

    @property
    def target(self) -> str:
        """What to ask the node for."""
        return f"/live?run={self.run}&since={self.seq}" if self.seq else "/live"

    def apply(self, data: bytes) -> Frame:
        """Raises msgspec.DecodeError for a page of another version."""
        frame = _frames.decode(data)
        self.due_s = asyncio.get_running_loop().time() + min(frame.next_s, MOST_S)
        if not frame.since:
            self.vessels, self.rows, self.orders, self.node, self.marks = {}, {}, {}, {}, []
        self.run, self.seq, self.at, self.problem = frame.run, frame.seq, frame.at, ""
        for name in frame.gone:
            self.vessels.pop(name, None)
            self.rows.pop(name, None)
        for vessel in frame.vessels:
            self.vessels[vessel["id"]] = vessel
        self.rows |= frame.rows
        self.node = self.node if frame.node is None else frame.node
        self.orders = self.orders if frame.orders is None else folded_orders(self.orders, frame.orders)
        self.marks = [*self.marks, *frame.marks][-MOST_MARKS:]
        return frame

    def complete(self) -> Frame:
        """The whole state as one frame."""
        vessels = list(self.vessels.values())
        return Frame(self.run, self.seq, self.at, 0, self.node, vessels, self.rows, [], self.orders, self.marks)
