"""Three etcd members and two API servers, each in a network namespace of its own, joined by a bridge in a sixth one.

The namespaces have a random name; only they are touched. Links are cut by routes into a black hole.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from plimsoll.codec.protobuf.structs import Unsigned
from plimsoll.store.errors import StoreError
from plimsoll.store.etcd.client import EtcdClient
from plimsoll.store.etcd.location import location
from plimsoll.store.etcd.messages import STATUS, Header, StatusRequest
from tests.e2e.api_process import ApiProcess
from tests.e2e.etcd_process import EtcdProcess

MEMBERS, SERVERS = ("m1", "m2", "m3"), ("a1", "a2")
HUB = "hub"
_NETWORK = "10.213.77"
HUB_ADDRESS = f"{_NETWORK}.254"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class _Leader(msgspec.Struct, frozen=True):
    """Of a StatusResponse, the leader's id."""

    header: Annotated[Header | None, 1] = None
    leader: Annotated[Unsigned, 4] = Unsigned(0)


class Network:
    def __init__(self, name: str = "") -> None:
        self.name = name or f"plimsoll-{secrets.token_hex(3)}"
        self.addresses = {each: f"{_NETWORK}.{number}" for number, each in enumerate((*MEMBERS, *SERVERS), 1)}
        self._made: list[str] = []

    def namespace(self, node: str) -> str:
        return f"{self.name}-{node}"

    def start(self) -> None:
        for node in (HUB, *self.addresses):
            _ip("netns", "add", self.namespace(node))
            self._made.append(node)
            _ip("-n", self.namespace(node), "link", "set", "lo", "up")
        hub = self.namespace(HUB)
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "addr", "add", f"{HUB_ADDRESS}/24", "dev", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for node, address in self.addresses.items():
            own = self.namespace(node)
            _ip("-n", hub, "link", "add", f"to-{node}", "type", "veth", "peer", "name", "eth0", "netns", own)
            _ip("-n", hub, "link", "set", f"to-{node}", "master", "bridge", "up")
            _ip("-n", own, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", own, "link", "set", "eth0", "up")

    def inside(self, node: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace(node)]

    def cut(self, one: str, two: str) -> None:
        for here, there in ((one, two), (two, one)):
            _ip("-n", self.namespace(here), "route", "add", "blackhole", f"{self.addresses[there]}/32")

    def join(self, one: str, two: str) -> None:
        for here, there in ((one, two), (two, one)):
            _ip("-n", self.namespace(here), "route", "del", "blackhole", f"{self.addresses[there]}/32")

    def close(self) -> None:
        while self._made:
            _ip("netns", "del", self.namespace(self._made.pop()))


class Cluster:
    """Use it in the namespace of the hub: all addresses are reachable from there."""

    def __init__(self, directory: Path, network: Network) -> None:
        self.directory, self.network = directory, network
        peers = ",".join(f"{each}=http://{network.addresses[each]}:2380" for each in MEMBERS)
        self.members = {
            each: EtcdProcess(
                directory, each, host=network.addresses[each], client_port=2379, peer_port=2380, cluster=peers,
                before=network.inside(each),
            )
            for each in MEMBERS
        }  # fmt: skip
        self.endpoints = "etcd://" + ",".join(f"{network.addresses[each]}:2379" for each in MEMBERS)
        self.url = f"{self.endpoints}?compact=off"
        self.key = directory / "store.key"
        self.key.write_text(secrets.token_hex(16))
        self.servers: dict[str, ApiProcess] = {}

    def start(self) -> None:
        self.start_members()
        for server in SERVERS:
            self.start_server(server)

    def start_members(self) -> None:
        for member in self.members.values():
            member.start(wait=False)
        for member in self.members.values():
            member.wait()

    def start_server(self, name: str, *, wait: bool = True) -> None:
        first = name == SERVERS[0] and name not in self.servers
        words = ("--store", self.url) if first or name in self.servers else ("join", self.url)
        server = ApiProcess(
            self.directory / name,
            self.directory / f"{name}.log",
            "--listen",
            f"{self.network.addresses[name]}:6443",
            *words,
            "--store-key-file",
            str(self.key),
            before=self.network.inside(name),
        )
        self.servers[name] = server.ready() if wait else server

    async def leader(self) -> str:
        """The member that leads etcd."""
        for name, address in self.network.addresses.items():
            if name not in MEMBERS:
                continue
            client = EtcdClient(location(f"etcd://{address}:2379"))
            try:
                status = await client.read(STATUS, StatusRequest(), _Leader, 2.0)
                if status.header is not None and status.header.member_id == status.leader:
                    return name
            except StoreError as error:
                print(f"{name}: {error}", file=sys.stderr)
            finally:
                client.close()
        return MEMBERS[0]

    def close(self) -> None:
        for server in self.servers.values():
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        for member in self.members.values():
            member.kill()


def reexecuted(network: Network, words: Sequence[str]) -> int:
    """Run this Python again inside the hub."""
    return subprocess.run([*network.inside(HUB), sys.executable, *words], check=False).returncode
