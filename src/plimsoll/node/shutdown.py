"""Graceful node shutdown: a lock of systemd-logind delays the shutdown of the machine until the pods have ended.

logind announces a shutdown by the signal PrepareForShutdown (org.freedesktop.login1.Manager) and then waits for those
who hold an inhibitor lock. The lock is a file descriptor; closing it is the consent. A shutdown that is cancelled makes
the node ready again, and the lock is taken again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from dbus_fast import BusType, Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, DBusError, InvalidAddressError

from plimsoll.aio import ExponentialBackoff
from plimsoll.errors import PlimsollError
from plimsoll.node.pods.manager import Pods
from plimsoll.rules.lifecycle.shutdown import ShutdownPeriods, delay_warning, shutdown_groups, shutdown_verdict

log = logging.getLogger(__name__)

LOGIND, MANAGER, PATH = "org.freedesktop.login1", "org.freedesktop.login1.Manager", "/org/freedesktop/login1"
BUS = "org.freedesktop.DBus"
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 60.0
WHY = ("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")
_RETRIED = (OSError, EOFError, DBusError, AuthError, InvalidAddressError, TimeoutError)


class LogindError(PlimsollError):
    """logind has refused a call."""


class NodeShutdown:
    """`is_active`: the machine shuts down. `changed` is called when that begins or is cancelled."""

    def __init__(
        self,
        periods: ShutdownPeriods,
        pods: Pods,
        event: Callable[[str, str, str], None],
        changed: Callable[[], None],
        address: str | None = None,
    ) -> None:
        """`address`: of another bus than the system's."""
        self._periods, self._pods, self._event, self._changed = periods, pods, event, changed
        self._address = address
        self._signals: asyncio.Queue[bool] = asyncio.Queue()
        self._lock = -1
        self.is_active = False
        self.ready = asyncio.Event()  # the lock is held

    async def run(self) -> None:
        """Until cancelled."""
        backoff, logged = ExponentialBackoff(RETRY_FIRST_S, RETRY_MOST_S), ""
        while True:
            try:
                await self._follow(backoff)
            except (*_RETRIED, LogindError) as error:
                if (message := str(error) or type(error).__name__) != logged:
                    logged = message
                    log.warning("graceful node shutdown: systemd-logind cannot be reached: %s; retrying", message)
                await asyncio.sleep(backoff.next_s())

    async def _follow(self, backoff: ExponentialBackoff) -> None:
        bus = MessageBus(bus_address=self._address, bus_type=BusType.SYSTEM, negotiate_unix_fd=True)
        await bus.connect()
        try:
            bus.add_message_handler(self._heard)
            match = f"type='signal',interface='{MANAGER}',member='PrepareForShutdown',path='{PATH}'"
            await _call(bus, BUS, "/org/freedesktop/DBus", BUS, "AddMatch", "s", match)
            await self._inhibit(bus)
            backoff.reset()
            lost = asyncio.ensure_future(bus.wait_for_disconnect())  # type: ignore[no-untyped-call]
            try:
                while not lost.done():
                    heard = asyncio.ensure_future(self._signals.get())
                    await asyncio.wait((heard, lost), return_when=asyncio.FIRST_COMPLETED)
                    if not heard.done():
                        heard.cancel()
                    elif heard.result():
                        await self._shut_down()
                    else:
                        await self._cancelled(bus)
            finally:
                lost.cancel()
            raise ConnectionResetError("the bus was closed")
        finally:
            self._release()
            bus.disconnect()

    def _heard(self, message: Message) -> None:
        if message.message_type is MessageType.SIGNAL and message.member == "PrepareForShutdown":
            self._signals.put_nowait(bool(message.body[0]))

    async def _inhibit(self, bus: MessageBus) -> None:
        answer = await _call(bus, LOGIND, PATH, MANAGER, "Inhibit", "ssss", *WHY)
        self._lock = answer.unix_fds[answer.body[0]]
        found = await _call(
            bus, LOGIND, PATH, "org.freedesktop.DBus.Properties", "Get", "ss", MANAGER, "InhibitDelayMaxUSec"
        )
        if warning := delay_warning(found.body[0].value / 1e6, self._periods):
            log.warning("%s", warning)
            self._event("Warning", "ShutdownDelayTooShort", warning)
        self.ready.set()

    async def _shut_down(self) -> None:
        if self.is_active:
            return
        self.is_active = True
        self._event("Normal", "NodeShutdown", "Shutdown manager detected shutdown event")
        self._changed()
        try:
            for group in shutdown_groups((worker.pod for worker in self._pods), self._periods):
                ending = [
                    self._pods.terminate(pod.metadata.uid, shutdown_verdict(pod, group))
                    or self._pods.workers.get(pod.metadata.uid)
                    for pod in group.pods
                ]
                waits = [worker.released.wait() for worker in ending if worker is not None]
                try:
                    async with asyncio.timeout(group.grace_s):
                        await asyncio.gather(*waits)
                except TimeoutError:
                    log.warning("not every pod has ended within %d s before the shutdown", group.grace_s)
        finally:
            self._release()

    async def _cancelled(self, bus: MessageBus) -> None:
        if self.is_active:
            self.is_active = False
            self._changed()
        if self._lock < 0:
            await self._inhibit(bus)

    def _release(self) -> None:
        self.ready.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


async def _call(
    bus: MessageBus, name: str, path: str, interface: str, member: str, signature: str, *body: Any
) -> Message:
    call = Message(name, path, interface, member, signature=signature, body=list(body))
    async with asyncio.timeout(30.0):
        answer = await bus.call(call)
    if answer.message_type is MessageType.ERROR:
        raise LogindError(f"{member}: {answer.body[0] if answer.body else answer.error_name}")
    return answer
