"""Commits that fail: every waiting caller gets the error, no reader sees them, and the store continues or says why not."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll.store.errors import WriteFailedError
from plimsoll.store.records import Record
from plimsoll.store.sqlite import writer
from plimsoll.store.store import Store
from tests.unit.store.bodies import body, delete, log_end, put, value_of

pytestmark = pytest.mark.asyncio
BIG = "x" * 400_000


async def test_a_full_database_refuses_what_does_not_fit_and_continues(tmp_path: Path) -> None:
    store = await Store.open(tmp_path, max_bytes=1_000_000)
    await store.change("/pods/default/small", put(1))
    version = store.version
    watch = store.watch("", version)
    refused = await asyncio.gather(
        store.change("/pods/default/small", put(2)),
        *(store.change(f"/pods/default/big{i}", put(BIG)) for i in range(5)),
        store.change("/pods/default/small", lambda current, new: None),
        return_exceptions=True,
    )
    assert all(isinstance(error, WriteFailedError) and not error.lasting for error in refused), refused
    assert "database or disk is full; later writes are attempted" in str(refused[0])
    assert (store.version, store.count(""), value_of(store.get("/pods/default/small"))) == (version, 1, 1)
    assert store.fault == "database or disk is full"
    assert store.meter.waiting == 0
    assert store.meter.failed_commits == 1

    record = await store.change("/pods/default/small", put(3))
    assert record is not None
    assert record.version > version + 6  # what was promised to the failed ones is not used again
    assert [change.version for change in await watch.changes()] == [record.version]
    assert store.fault == ""
    await store.change("/pods/default/small", delete)
    await store.close()
    store = await Store.open(tmp_path)
    assert store.count("") == 0
    assert store.version == record.version + 1
    await store.close()


async def test_changes_decided_on_a_failed_state_fail_with_it(tmp_path: Path) -> None:
    store = await Store.open(tmp_path, max_bytes=1_000_000)
    shown: list[object] = []

    def decide(current: Record | None, version: int) -> bytes:
        shown.append(len(str(value_of(current))))
        return body(version, "after")

    keys = ["/pods/default/web", *(f"/pods/default/p{i}" for i in range(300))]  # more than one transaction takes
    outcomes = await asyncio.gather(
        store.change("/pods/default/web", put(BIG * 3)),
        *(store.change(key, decide) for key in keys),
        return_exceptions=True,
    )
    assert shown == [len(BIG) * 3, *[len("None")] * 300]
    assert {type(outcome) for outcome in outcomes} == {WriteFailedError}
    assert store.meter.failed_commits == 1
    assert store.count("") == 0
    await store.change("/pods/default/web", decide)
    assert shown[301:] == [len("None")]
    await store.close()


async def _reached(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        for _ in iter(is_true, True):
            await asyncio.sleep(0.01)


async def test_a_failed_checkpoint_is_reported_until_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The database cannot be opened a second time; the connection that writes the log still has it."""
    monkeypatch.setattr(writer, "_CHECKPOINT_BYTES", 1)
    monkeypatch.setattr(writer, "_RETRY_S", 0.01)
    store = await Store.open(tmp_path)
    database, aside = tmp_path / "objects.db", tmp_path / "moved.db"
    database.rename(aside)
    await store.change("/pods/default/web", put(1))
    await _reached(lambda: store.meter.failed_checkpoints >= 3)
    cause = f"the write-ahead log cannot be moved into {database} and grows: unable to open database file"
    assert store.fault.startswith(cause)
    await store.change("/pods/default/web", put(2))  # is still accepted
    aside.rename(database)
    await _reached(lambda: not store.fault)
    failed = store.meter.failed_checkpoints
    assert store.meter.checkpoints > failed
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == ["ERROR", "WARNING"]  # once, however often it was tried
    assert said[0][1].startswith(cause)
    assert said[1][1] == f"the write-ahead log is moved into {database} again"
    await store.close()
    store = await Store.open(tmp_path)
    assert value_of(store.get("/pods/default/web")) == 2
    await store.close()


_IO_ERROR = """
import asyncio, json, pathlib, resource, signal, sys
from plimsoll.store.errors import WriteFailedError
from plimsoll.store.store import Store

async def main(directory):
    store = await Store.open(directory)
    await store.change("/pods/default/a", lambda current, version: b"{}")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))
    errors = []
    for size in (100_000, 10):
        try:
            await store.change("/pods/default/b", lambda current, version: b"x" * size)
        except WriteFailedError as error:
            errors.append([error.lasting, str(error)])
    seen = [store.count(""), store.version, store.fault]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.close()
    store = await Store.open(directory)
    again = await store.change("/pods/default/b", lambda current, version: b"{}")
    print(json.dumps({"errors": errors, "seen": seen, "count": store.count(""), "version": again.version}))
    await store.close()

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


async def test_after_an_input_output_error_writes_are_refused_until_a_restart(tmp_path: Path) -> None:
    """The kernel itself refuses the write: a file size limit, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _IO_ERROR, str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert not process.returncode, errors.decode()
    result = json.loads(output)
    assert [lasting for lasting, _ in result["errors"]] == [True, True]
    for _, text in result["errors"]:
        assert "I/O error; writes are refused until the server is restarted; reads continue" in text
    assert result["seen"] == [1, 2, "disk I/O error"]
    assert result["count"] == 2
    assert result["version"] > 3


async def test_no_room_for_a_store_at_all(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, resource, signal, sys; from plimsoll.store.store import Store\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "asyncio.run(Store.open(pathlib.Path(sys.argv[1])))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert (
        f"StoreUnavailableError: the store {tmp_path / 'objects.db'} can't be opened: disk I/O error" in errors.decode()
    )
    store = await Store.open(tmp_path)  # the next attempt starts from scratch
    await store.change("/pods/default/a", put(1))
    await store.close()


@pytest.mark.parametrize("kept", [0, 32, 0.5])
async def test_a_log_that_was_cut_off_is_noticed_at_the_start(tmp_path: Path, kept: float) -> None:
    directory = tmp_path / "store"
    store = await Store.open(directory)
    for number in range(20):
        await store.change(f"/pods/default/p{number}", put(number))
    version = store.version
    killed = tmp_path / "killed"
    shutil.copytree(directory, killed)  # as a kill leaves it
    await store.close()

    store = await Store.open(killed)
    assert (store.count(""), store.fault) == (20, ""), "nothing is lost by a kill"
    for number in range(20, 40):
        await store.change(f"/pods/default/p{number}", put(number))
    newest = store.version
    cut = tmp_path / "cut"
    shutil.copytree(killed, cut)
    await store.close()
    log = cut / "objects.db-wal"
    os.truncate(log, int(log_end(log) * kept) if kept < 1 else int(kept))
    (cut / "objects.db-shm").unlink()

    store = await Store.open(cut)
    assert 20 <= store.count("") < 40
    assert f"up to {newest} were committed and are lost" in store.fault
    assert "plimsoll api restore" in store.fault
    assert store.version > newest > version, "no version has two meanings"
    assert await store.change("/pods/default/new", put(1)) is not None
    await store.close()
    store = await Store.open(cut)
    assert store.fault == "", "a restart accepts the loss"
    await store.close()


async def test_the_reserve_is_allocated_while_there_is_room(tmp_path: Path) -> None:
    store = await Store.open(tmp_path, reserve_bytes=100_000)
    assert (tmp_path / "reserve").stat().st_size == 100_000
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 100_000
    await store.close()
