"""Connections that wait for their TLS handshake, in the order in which they get it."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Collection, Iterator


class Callers:
    """Addresses alternate, so that a crowd at one of them delays only itself.

    Of one address the newest and the oldest alternate: behind a crowd a new one would wait for all of them, and
    behind new ones an old one forever.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[socket.socket]] = {}  # the first address is next; of each, the oldest first
        self._oldest_next: set[str] = set()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[socket.socket]:
        return (connection for waiting in self._waiting.values() for connection in waiting)

    def add(self, address: str, connection: socket.socket) -> None:
        self._waiting.setdefault(address, deque()).append(connection)

    def take(self, busy: Collection[str] = ()) -> tuple[str, socket.socket] | None:
        """The next connection, of an address that is not busy."""
        address = next((each for each in self._waiting if each not in busy), None)
        if address is None:
            return None
        waiting = self._waiting.pop(address)
        if address in self._oldest_next:
            self._oldest_next.discard(address)
            connection = waiting.popleft()
        else:
            connection = waiting.pop()
            if waiting:
                self._oldest_next.add(address)
        if waiting:
            self._waiting[address] = waiting  # behind the others
        else:
            self._oldest_next.discard(address)
        return address, connection

    def take_surplus(self) -> socket.socket:
        """The oldest of the address with the most."""
        address = max(self._waiting, key=lambda each: len(self._waiting[each]))
        connection = self._waiting[address].popleft()
        if not self._waiting[address]:
            del self._waiting[address]
            self._oldest_next.discard(address)
        return connection
