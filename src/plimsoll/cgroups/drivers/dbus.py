"""The D-Bus client for systemd's manager: one connection, opened on first use and reopened when it is lost.

It uses the system bus. Socket activation may start the bus daemon with the first connection, which takes seconds on a
slow machine: the socket accepts at once, but the daemon does not answer the greeting yet, and after the greeting
systemd may not be on the bus yet. So connecting has one deadline for all steps, and waits for systemd's bus name.
Where there is no bus, root connects to systemd directly through its private socket.

Some calls start a job and return before it is done. `job` waits for the signal with the job's result, which may arrive
before the reply to the call.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
import sys
import termios
from functools import partial
from typing import Any

from dbus_fast import BusType, Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, DBusError, InvalidAddressError

from plimsoll.cgroups.drivers.write import until
from plimsoll.errors import PlimsollError, StructuredError

SYSTEMD = "org.freedesktop.systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
MANAGER_PATH = "/org/freedesktop/systemd1"
BUS = "org.freedesktop.DBus"
BUS_PATH = "/org/freedesktop/DBus"
PRIVATE_SOCKET = "/run/systemd/private"

CONNECT_S = 20.0
CALL_S = 30.0
JOB_S = 30.0
_RETRY_S = 0.1
_FIRST_ADDRESS_S = 2.0  # how long a refused connection is retried while there is another address to try
_POLL_S = 0.5  # how often a wait for a job checks the connection

_SIGNALS = (
    f"type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved'",
    f"type='signal',sender='{BUS}',interface='{BUS}',member='NameOwnerChanged',arg0='{SYSTEMD}'",
)
_NOT_YET = (ConnectionRefusedError, ConnectionResetError, BrokenPipeError, EOFError, AuthError)


class SystemdError(StructuredError):
    """systemd or the bus replied with an error: its D-Bus name and message."""

    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.message} ({self.name})" if self.message else self.name


class BusLostError(PlimsollError):
    """No reply: systemd could not be reached, or the connection was closed before the reply."""


class _DirectBus(MessageBus):
    """systemd's private socket, without a bus daemon.

    systemd replies to the `Hello` after the authentication with an error, which is enough: dbus-fast accepts any reply.
    But systemd does not process what it reads together with the end of the authentication until more data arrives; so
    systemd must have read that end before anything else is sent.
    """

    async def _authenticate(self) -> None:
        await super()._authenticate()
        if self._sock is not None:
            await until(partial(_all_read, self._sock), CONNECT_S)


def _all_read(connection: socket.socket) -> bool:
    """Whether the other end has read everything that was sent."""
    unread = fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(unread, sys.byteorder) == 0


class SystemdBus:
    def __init__(self, address: str | None = None, *, connect_s: float = CONNECT_S, call_s: float = CALL_S) -> None:
        """`address` instead of the system bus; the private socket's is `unix:path=/run/systemd/private`."""
        self.address = address
        self.connect_s = connect_s
        self.call_s = call_s
        self._bus: MessageBus | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._systemd_appeared = asyncio.Event()
        self._waiting = 0  # calls that wait for the result of their job
        self._ended: dict[str, str] = {}  # job → result, kept while a call waits
        self._jobs: dict[str, asyncio.Future[str]] = {}

    async def call(self, member: str, signature: str = "", body: list[Any] | None = None) -> list[Any]:
        """Call a method of the manager; retried once on a new connection if the connection is lost."""
        for last in (False, True):
            bus = await self._connected()
            try:
                return await self._call(bus, SYSTEMD, MANAGER_PATH, MANAGER, member, signature, body)
            except BusLostError:
                self._drop(bus)
                if last:
                    raise
        raise AssertionError("unreachable")

    async def job(self, member: str, signature: str, body: list[Any], timeout_s: float = JOB_S) -> str:
        """Call a method that starts a job; the job's result: `done`, `failed`, `canceled`, `timeout`, …"""
        self._waiting += 1
        try:
            (job,) = await self.call(member, signature, body)
            return await self._result_of(str(job), timeout_s)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._ended.clear()

    async def _result_of(self, job: str, timeout_s: float) -> str:
        if job in self._ended:
            return self._ended.pop(job)
        bus, loop = self._bus, asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        self._jobs[job] = future
        deadline = loop.time() + timeout_s
        try:
            while (left_s := deadline - loop.time()) > 0:
                done, _ = await asyncio.wait([future], timeout=min(left_s, _POLL_S))
                if done:
                    return future.result()
                if bus is None or not bus.connected:
                    raise BusLostError(f"the connection to systemd ended while {job} was running")
            raise BusLostError(f"{job} has not ended within {timeout_s:g} s")
        finally:
            del self._jobs[job]

    async def close(self) -> None:
        if self._bus is not None:
            self._drop(self._bus)

    # Connecting

    async def _connected(self) -> MessageBus:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a connection belongs to the loop it was made in
            self._loop, self._bus = loop, None
            self._lock, self._systemd_appeared = asyncio.Lock(), asyncio.Event()
        async with self._lock:
            # Two iterations of the loop, so that it notices a connection that the peer has closed.
            for _ in range(2):
                await asyncio.sleep(0)
            if self._bus is None or not self._bus.connected:
                self._bus = await self._connect()
            return self._bus

    async def _connect(self) -> MessageBus:
        problems = []
        *others, last = self._addresses()
        for address in (*others, last):
            retry_s = self.connect_s if address == last else _FIRST_ADDRESS_S
            try:
                async with asyncio.timeout(self.connect_s):
                    return await self._open_with_retries(address, retry_s)
            except TimeoutError:
                problems.append(f"{address or 'system bus'}: no answer within {self.connect_s:g} s")
            except (OSError, EOFError, AuthError, DBusError, InvalidAddressError, SystemdError, BusLostError) as error:
                problems.append(f"{address or 'system bus'}: {error}")
        raise BusLostError("systemd cannot be reached: " + "; ".join(problems))

    def _addresses(self) -> list[str | None]:
        if self.address is not None:
            return [self.address]
        private = [f"unix:path={PRIVATE_SOCKET}"] if os.geteuid() == 0 and _is_socket(PRIVATE_SOCKET) else []
        return [None, *private]

    async def _open_with_retries(self, address: str | None, retry_s: float) -> MessageBus:
        """A daemon that is starting refuses or closes the connection: retry for a while. One that accepts and does not
        answer is waited for until the caller's deadline.
        """
        deadline = asyncio.get_running_loop().time() + retry_s
        while True:
            try:
                return await self._open(address)
            except _NOT_YET:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(_RETRY_S)

    async def _open(self, address: str | None) -> MessageBus:
        kind = _DirectBus if _is_private(address) else MessageBus
        bus = kind(bus_address=address, bus_type=BusType.SYSTEM)
        bus.add_message_handler(self._on_message)
        await bus.connect()
        try:
            if not _is_private(address):
                for rule in _SIGNALS:
                    await self._call(bus, BUS, BUS_PATH, BUS, "AddMatch", "s", [rule])
                await self._await_systemd(bus)
            await self._call(bus, SYSTEMD, MANAGER_PATH, MANAGER, "Subscribe")
        except BaseException:
            bus.disconnect()
            raise
        return bus

    async def _await_systemd(self, bus: MessageBus) -> None:
        self._systemd_appeared.clear()
        try:
            await self._call(bus, BUS, BUS_PATH, BUS, "GetNameOwner", "s", [SYSTEMD])
        except SystemdError as refused:
            if not refused.name.endswith(".NameHasNoOwner"):
                raise
            await self._systemd_appeared.wait()

    def _drop(self, bus: MessageBus) -> None:
        if bus.connected:
            bus.disconnect()
        if self._bus is bus:
            self._bus = None

    # Messages

    async def _call(
        self,
        bus: MessageBus,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        body: list[Any] | None = None,
    ) -> list[Any]:
        message = Message(destination, path, interface, member, signature=signature, body=body or [])
        try:
            async with asyncio.timeout(self.call_s):
                reply = await bus.call(message)
        except TimeoutError:
            raise BusLostError(f"no answer to {member} within {self.call_s:g} s") from None
        except (OSError, EOFError) as error:
            raise BusLostError(f"the connection ended before {member} was answered: {error}") from error
        if reply is None:
            raise BusLostError(f"the connection ended before {member} was answered")
        if reply.message_type is MessageType.ERROR:
            text = reply.body[0] if reply.body and isinstance(reply.body[0], str) else ""
            raise SystemdError(reply.error_name or "unknown", text)
        return list(reply.body)

    def _on_message(self, message: Message) -> None:
        if message.message_type is not MessageType.SIGNAL:
            return
        if message.member == "JobRemoved" and message.interface == MANAGER and message.signature == "uoss":
            _, job, _, result = message.body
            if (future := self._jobs.get(job)) is not None and not future.done():
                future.set_result(result)
            elif self._waiting:
                self._ended[job] = result
        elif message.member == "NameOwnerChanged" and message.body[0] == SYSTEMD and message.body[2]:
            self._systemd_appeared.set()


def _is_private(address: str | None) -> bool:
    return address is not None and PRIVATE_SOCKET in address


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
