"""An event loop that reads from connections in two lanes: all that are ready in the main one, a few in the slow one.

asyncio reads from every connection that is ready before it does anything else: a crowd of clients that send without
end keeps all others waiting for the whole crowd, again in every round. Connections in the slow lane are read a few at
a time; the kernel hands them out in turn. A connection is in the main lane until `slow_down`, and again after it was
paused, until the next call.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import ChainMap
from collections.abc import Callable, Coroutine, Mapping
from select import EPOLLIN, EPOLLOUT, epoll
from typing import Any, TypeVar

AT_ONCE = 4  # connections of the slow lane in one round: about a millisecond of decryption
_Result = TypeVar("_Result")
_Ready = list[tuple[selectors.SelectorKey, int]]


class Lanes(selectors.EpollSelector):
    def __init__(self) -> None:
        super().__init__()
        self._slow = epoll()
        self._slow_keys: dict[int, selectors.SelectorKey] = {}
        self._slow_fd = self._slow.fileno()  # is ready while one of them is
        super().register(self._slow_fd, selectors.EVENT_READ)

    def slow_down(self, descriptor: int) -> None:
        """Nothing to do for one that is not registered now."""
        if descriptor not in self._slow_keys and descriptor in super().get_map():
            key = super().unregister(descriptor)
            self._slow.register(descriptor, _mask(key.events))
            self._slow_keys[descriptor] = key

    def select(self, timeout: float | None = None) -> _Ready:
        ready = super().select(timeout)
        if any(key.fd == self._slow_fd for key, _ in ready):
            ready = [each for each in ready if each[0].fd != self._slow_fd]
            for descriptor, mask in self._slow.poll(0, AT_ONCE):
                key = self._slow_keys[descriptor]
                events = (mask & ~EPOLLIN and selectors.EVENT_WRITE) | (mask & ~EPOLLOUT and selectors.EVENT_READ)
                if events & key.events:
                    ready.append((key, events & key.events))
        return ready

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._slow_keys.get(fileobj)
        if key is None:
            return super().modify(fileobj, events, data)
        if events != key.events:
            self._slow.modify(key.fd, _mask(events))
        changed = self._slow_keys[key.fd] = key._replace(events=events, data=data)
        return changed

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = self._slow_keys.pop(fileobj, None)
        if key is None:
            return super().unregister(fileobj)
        self._slow.unregister(key.fd)
        return key

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        key = self._slow_keys.get(fileobj)
        return super().get_key(fileobj) if key is None else key

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return ChainMap(self._slow_keys, super().get_map())  # type: ignore[arg-type]  # it is only read

    def close(self) -> None:
        self._slow.close()
        self._slow_keys.clear()
        super().close()


def _mask(events: int) -> int:
    return (EPOLLIN if events & selectors.EVENT_READ else 0) | (EPOLLOUT if events & selectors.EVENT_WRITE else 0)


class LanedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.lanes = Lanes()
        super().__init__(self.lanes)


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """As `asyncio.run`, in a loop with two lanes."""
    with asyncio.Runner(loop_factory=LanedLoop) as runner:
        return runner.run(main)


def slowing_down(loop: asyncio.AbstractEventLoop) -> Callable[[int], None]:
    """Puts a descriptor into the slow lane; in another kind of loop it does nothing."""
    return loop.lanes.slow_down if isinstance(loop, LanedLoop) else lambda _: None
