"""etcd that refuses, is full, is gone or does not answer: clear errors, nothing lost, nothing written twice."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.auth.ca import Authority
from plimsoll.codec.protobuf.structs import encode
from plimsoll.codec.protobuf.wire import bytes_field, varint_field
from plimsoll.linux.files.state_dir import private_directory, write_private
from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.status import PERMISSION_DENIED, GrpcError, GrpcUnavailableError
from plimsoll.store.errors import LogRefusedError, LogUnreachableError, OutcomeUnknownError, WriteFailedError
from plimsoll.store.etcd import client as client_module
from plimsoll.store.etcd.client import AmbiguousError, EtcdClient
from plimsoll.store.etcd.location import Location, location
from plimsoll.store.etcd.log import EtcdLog
from plimsoll.store.etcd.messages import RANGE, STATUS, RangeRequest, RangeResponse, StatusRequest, StatusResponse
from plimsoll.store.etcd.opening import checked_version, notifies_of_progress
from plimsoll.store.store import Store
from tests.e2e.etcd_process import EtcdProcess
from tests.unit.net.grpc.grpc_server import Server
from tests.unit.store.bodies import delete, put, value_of
from tests.unit.store.etcd.cut_connections import Cutter
from tests.unit.store.etcd.test_log import increased

POD = "/pods/default/web"


@asynccontextmanager
async def opened(where: Location | str) -> AsyncIterator[Store]:
    store = await Store.open_etcd(location(where) if isinstance(where, str) else where)
    try:
        yield store
    finally:
        await store.close()


def member(directory: Path, *options: str, scheme: str = "http") -> EtcdProcess:
    return EtcdProcess(directory, options=options, scheme=scheme).start()


@pytest.mark.usefixtures("where")
async def test_tls_with_client_certificates(tmp_path: Path) -> None:
    files: dict[str, Path] = {}
    for name in ("own", "other"):
        authority = Authority(private_directory(tmp_path / name))
        authority.prepare(["127.0.0.1"])
        files |= {f"{name}.ca": authority.ca_file}
        issued = authority.issue("plimsoll")
        for suffix, data in (("crt", issued.certificate), ("key", issued.key)):
            files[f"{name}.{suffix}"] = tmp_path / f"{name}.{suffix}"
            write_private(files[f"{name}.{suffix}"], data)
    pki = tmp_path / "own" / "pki"
    server = member(
        tmp_path, "--client-cert-auth", "--trusted-ca-file", str(files["own.ca"]),
        "--cert-file", str(pki / "server.crt"), "--key-file", str(pki / "server.key"), scheme="https",
    )  # fmt: skip
    try:
        pair = f"cert={files['own.crt']}&key={files['own.key']}"
        async with opened(f"{server.url}?ca={files['own.ca']}&{pair}") as store:
            assert await store.change(POD, put(1)) is not None
        foreign = f"cert={files['other.crt']}&key={files['other.key']}"
        refused = (
            (f"ca={files['own.ca']}", "client certificate"),
            (f"ca={files['own.ca']}&{foreign}", "client certificate"),
            (f"ca={files['other.ca']}&{pair}", "etcd's certificate is not trusted: ca=FILE has to be its CA"),
            ("tls=true", "etcd's certificate is not trusted: ca=FILE has to be its CA"),
            ("", "if etcd serves TLS, add ca=FILE"),
        )
        errors = await asyncio.gather(*(_unreachable(f"{server.url}?{query}") for query, _ in refused))
        assert [advice for (_, advice), error in zip(refused, errors, strict=True) if advice not in error] == [], errors
    finally:
        server.kill()


@pytest.mark.usefixtures("where")
async def test_users_and_tokens(tmp_path: Path) -> None:
    server = member(tmp_path)
    try:
        await _enable_users(server)
        password, wrong = tmp_path / "password", tmp_path / "wrong"
        password.write_text("p\n")
        wrong.write_text("q\n")
        login = f"&user=plimsoll&password-file={password}"
        async with opened(f"{server.url}?prefix=/plimsoll{login}") as store:
            assert await store.change(POD, put(1)) is not None
            assert isinstance(store._log, EtcdLog)
            store._log.client._token = "expired.1"
            assert await store.change(POD, put(2)) is not None
            assert value_of(store.get(POD)) == 2
        for query, reason in (
            ("prefix=/plimsoll", "requires a user"),
            (f"prefix=/plimsoll&user=plimsoll&password-file={wrong}", "does not accept the password of 'plimsoll'"),
            (f"prefix=/other{login}", "may not read and write /other/"),
        ):
            with pytest.raises(LogRefusedError, match=reason):
                await Store.open_etcd(location(f"{server.url}?{query}"))
    finally:
        server.kill()


async def test_tls_to_an_etcd_without_it(where: Location, tmp_path: Path) -> None:
    authority = Authority(private_directory(tmp_path))
    authority.prepare(["127.0.0.1"])
    error = await _unreachable(f"{str(where).partition('?')[0]}?ca={authority.ca_file}")
    assert "may serve without TLS" in error


async def _unreachable(text: str) -> str:
    """Why no connection is made."""
    client = EtcdClient(location(text))
    try:
        with pytest.raises(LogUnreachableError) as caught:
            await client.read(STATUS, StatusRequest(), StatusResponse, 2.0)
    finally:
        client.close()
    return str(caught.value)


async def test_an_etcd_without_users_says_so(where: Location, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("p")
    text = f"{str(where).partition('?')[0]}?user=x&password-file={password}"
    with pytest.raises(LogRefusedError, match="it has no users"):
        await Store.open_etcd(location(text))


@pytest.mark.usefixtures("where")
async def test_a_full_etcd_accepts_only_deletions(tmp_path: Path) -> None:
    server = member(tmp_path, "--quota-backend-bytes", str(600_000))
    try:
        async with opened(server.url) as store:
            # etcd notices its size when it commits a batch, which a busy machine delays.
            written, names = 0, [f"/pods/default/p{number}" for number in range(2_000)]
            with pytest.raises(WriteFailedError, match=r"NOSPACE.*alarm disarm"):
                for name in names:
                    # A disk that is busy for long leaves open what became of a write: then it is asked again.
                    while await _is_unknown(store, name):
                        pass
                    written += 1
            assert 0 < written < len(names)
            assert await _eventually_fresh(store)
            assert store.count("/pods/") in (written, written + 1)
            await store.change(names[0], delete)
            assert await _eventually_fresh(store)
            assert store.get(names[0]) is None and store.get(names[1]) is not None
    finally:
        server.kill()


async def _is_unknown(store: Store, name: str) -> bool:
    try:
        await store.change(name, put("x" * 50_000))
    except OutcomeUnknownError:
        return True
    return False


async def _eventually_fresh(store: Store) -> bool:
    async with asyncio.timeout(60):
        while not await store.fresh():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return True


async def test_a_refusal_after_an_unanswered_write_does_not_say_that_nothing_was_written(
    where: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, count = EtcdClient.write_once, 0

    async def write_once(self: EtcdClient, *words: Any) -> Any:
        nonlocal count
        count += 1
        if count > 1:
            raise WriteFailedError("etcd", "etcd is full (NOSPACE)", lasting=False)
        await send(self, *words)
        raise AmbiguousError("no answer")

    async with opened(where) as store:
        monkeypatch.setattr(EtcdClient, "write_once", write_once)
        with pytest.raises(OutcomeUnknownError, match="NOSPACE"):
            await store.change(POD, put(1))
        monkeypatch.undo()
        assert await _eventually_fresh(store)
        assert (value_of(store.get(POD)), count) == (1, 2)


@pytest.mark.parametrize("version", ["3.3.27", "2.3.8"])
async def test_an_etcd_that_is_too_old_is_refused(version: str) -> None:
    async def answer(_: Server, __: bytes) -> bytes:
        return encode(StatusResponse(version=version))

    async with Server(None) as server:
        server.handlers["Status"] = answer
        with pytest.raises(LogRefusedError, match=rf"its version is {version}.*etcd 3.4 or newer: upgrade it"):
            await Store.open_etcd(location(f"etcd://127.0.0.1:{server.port}"))
        assert server.calls == ["Status"]  # nothing else was asked or written


async def test_a_version_that_is_shown_to_root_only_is_new_enough() -> None:
    """etcd 3.5.28 to 3.5.30 and most of 3.6, with users (etcd 21663)."""

    async def forbidden(_: Server, __: bytes) -> bytes:
        raise GrpcError(PERMISSION_DENIED, "etcdserver: permission denied")

    async with Server(None) as server:
        server.handlers["Status"] = forbidden
        client = EtcdClient(location(f"etcd://127.0.0.1:{server.port}"))
        assert notifies_of_progress(await checked_version(client))
        client.close()


async def test_an_endpoint_that_answers_others_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that takes too long breaks neither the connection nor the calls of others, unless none is answered."""
    monkeypatch.setattr(client_module, "ATTEMPT_S", 0.5)
    is_slow, ended = True, asyncio.Event()

    async def status(_: Server, __: bytes) -> bytes:
        return encode(StatusResponse(version="3.5.0"))

    async def read(_: Server, __: bytes) -> bytes:
        if is_slow:
            await ended.wait()
        return encode(RangeResponse())

    async with Server(None) as server:
        server.handlers |= {"Status": status, "Range": read}
        client = EtcdClient(location(f"etcd://127.0.0.1:{server.port},127.0.0.1:1"))
        slow = asyncio.create_task(client.read(RANGE, RangeRequest(b"k"), RangeResponse, 60))
        for _ in range(40):
            await client.read(STATUS, StatusRequest(), StatusResponse)
            await asyncio.sleep(0.03)
        assert client.switches == 0
        assert server.calls.count("Range") > 1
        async with asyncio.timeout(30):  # no call is answered any more
            while not client.switches:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            is_slow = False
            assert await slow == RangeResponse()
        ended.set()
        client.close()


@pytest.mark.usefixtures("where")
async def test_endpoints_of_two_clusters_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    one, two = member(tmp_path / "a"), member(tmp_path / "b")
    try:
        client = EtcdClient(location(f"etcd://127.0.0.1:{one.port},127.0.0.1:{two.port}"))
        await checked_version(client)
        one.kill()
        with pytest.raises(LogRefusedError, match="belongs to the cluster"):
            await checked_version(client)
        client.close()
    finally:
        one.kill()
        two.kill()


async def test_an_endpoint_that_is_gone_is_left(where: Location) -> None:
    text = str(where).replace("etcd://", "etcd://127.0.0.1:1,")
    async with opened(text) as store:
        assert await store.change(POD, put(1)) is not None


async def test_a_watch_that_cannot_connect_does_not_wait_for_long(where: Location) -> None:
    """A port whose queue of connections is full drops packets, as a cut link does: the next endpoint is used."""
    with socket.socket() as full, socket.socket() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting.connect(full.getsockname())
        text = str(where).replace("etcd://", f"etcd://127.0.0.1:{full.getsockname()[1]},")
        client = EtcdClient(location(text))
        with pytest.raises(GrpcUnavailableError, match="not connected within 1 s"):
            await client.open_watch()
        client.switch(client.switches)
        (await client.open_watch()).leave()
        client.close()


@pytest.mark.usefixtures("where")
async def test_writes_fail_clearly_and_reads_continue_while_etcd_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.store.etcd.transactions.WRITE_S", 0.5)
    monkeypatch.setattr("plimsoll.store.etcd.log.FRESH_S", 0.5)
    server = member(tmp_path)
    try:
        async with opened(server.url) as store:
            assert await store.change(POD, put(1)) is not None
            version = store.version
            server.kill()
            with pytest.raises((WriteFailedError, OutcomeUnknownError)):
                await store.change(POD, put(2))
            assert not await store.fresh()
            assert "does not answer" in store.fault
            assert value_of(store.get(POD)) == 1
            watch = store.watch("/pods/", version)
            server.start()
            async with asyncio.timeout(60):
                while not await store.fresh():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                record = await store.change(POD, put(3))
                (change,) = [each for each in await watch.changes() if value_of(each.record_after()) == 3]
            assert record is not None and change.version == record.version
            assert store.fault == ""
    finally:
        server.kill()


async def test_an_unanswered_write_is_made_once(where: Location) -> None:
    """Connections break while requests and answers are on their way: each increase counts once."""
    seed = random.randrange(1 << 30)
    async with Cutter(*where.endpoints[0]) as cutter:
        through = location(str(where).replace(f":{where.endpoints[0][1]}", f":{cutter.port}"))
        async with opened(through) as store, opened(where) as beside:
            cutter.start(random.Random(seed))
            results = await asyncio.gather(
                *((store, beside)[each % 2].change(POD, increased) for each in range(80)), return_exceptions=True
            )
            cutter.stop()
            errors = [each for each in results if isinstance(each, BaseException)]
            assert errors == [], f"seed {seed}"
            assert await beside.fresh()
            assert (value_of(beside.get(POD)), cutter.cuts > 0) == (80, True), f"seed {seed}"


async def _enable_users(server: EtcdProcess) -> None:
    """A user root, as etcd requires, and one that may use /plimsoll/ only."""
    client, auth = GrpcClient(address=(server.host, server.port)), "/etcdserverpb.Auth/"
    permission = varint_field(1, 2) + bytes_field(2, b"/plimsoll/") + bytes_field(3, b"/plimsoll0")
    for call, request in (
        ("UserAdd", bytes_field(1, b"root") + bytes_field(2, b"r")),
        ("UserAdd", bytes_field(1, b"plimsoll") + bytes_field(2, b"p")),
        ("RoleAdd", bytes_field(1, b"root")),
        ("RoleAdd", bytes_field(1, b"store")),
        ("RoleGrantPermission", bytes_field(1, b"store") + bytes_field(2, permission)),
        ("UserGrantRole", bytes_field(1, b"root") + bytes_field(2, b"root")),
        ("UserGrantRole", bytes_field(1, b"plimsoll") + bytes_field(2, b"store")),
        ("AuthEnable", b""),
    ):
        await client.unary(auth + call, request, 10)
    client.close()
