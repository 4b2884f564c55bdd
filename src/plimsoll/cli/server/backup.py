"""Backup and restore of a control plane: its objects, and with a passphrase also its keys, certificates and tokens.

Without a passphrase a backup is a copy of the store, in which secrets are encrypted, without their key. With one it is
an encrypted file that contains everything that a new machine needs: after a restore the old kubeconfigs, node
certificates and tokens work.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from plimsoll.api.auth.encryption import SecretSealing
from plimsoll.api.auth.sealed_archive import read_passphrase, seal, unseal
from plimsoll.api.auth.shared_keys import SharedKeys
from plimsoll.errors import PlimsollError
from plimsoll.store.etcd import restoring
from plimsoll.store.etcd.location import Location
from plimsoll.store.sqlite import snapshot
from plimsoll.store.sqlite.backup import backup, restore
from plimsoll.store.sqlite.files import ASIDE, put_in_place
from plimsoll.store.store import Store

STORE = "store/objects.db"
# Below the state directory. Kubeconfigs of administrators are written at each start, with the key in pki.
SECRETS = ("pki/ca.crt", "pki/ca.key", "pki/server.crt", "pki/server.key", "pki/client.crt", "pki/client.key")
# Keys that exist once they were used: of service account tokens, and of secrets at rest.
KEYS = ("pki/sa.key", "pki/secrets.key")
TOKENS = "tokens.json"


class EtcdStore(msgspec.Struct, frozen=True):
    """Where a backup is made from, or restored to, if not from SQLite."""

    location: Location
    key_file: Path


class BackupError(PlimsollError):
    """What is missing, and what to do."""


def back_up(state: Path, file: Path, passphrase_file: Path | None, etcd: EtcdStore | None = None) -> None:
    """The server may be running."""
    if passphrase_file is None:
        _copy_objects(state, file, etcd)
        return
    if etcd is not None:
        asyncio.run(_take_keys(state, etcd))
    passphrase = read_passphrase(passphrase_file)
    secrets = {name: state / name for name in (*SECRETS, *KEYS, TOKENS) if (state / name).exists()}
    if SECRETS[1] not in secrets:
        raise BackupError(f"{state} has no CA: start `plimsoll api` once")
    new = file.with_name(f"{file.name}.part")
    with tempfile.TemporaryDirectory(dir=state, prefix=".backup-") as directory:
        copy = Path(directory) / "objects.db"
        _copy_objects(state, copy, etcd)
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as target:
                seal(target, {STORE: copy, **secrets}, passphrase)
            put_in_place(new, file)
        finally:
            new.unlink(missing_ok=True)


def _copy_objects(state: Path, file: Path, etcd: EtcdStore | None) -> None:
    if etcd is None:
        backup(state / "store", file)
    else:
        asyncio.run(_copy_from_etcd(state, file, etcd))


async def _take_keys(state: Path, etcd: EtcdStore) -> None:
    shared = SharedKeys(state, etcd.location, etcd.key_file)
    try:
        await shared.prepare(lambda: None, joins=True)
    finally:
        shared.close()


async def _copy_from_etcd(state: Path, file: Path, etcd: EtcdStore) -> None:
    await _take_keys(state, etcd)
    store = await Store.open_etcd(etcd.location, sealing=SecretSealing(state))
    try:
        await store.backup(file)
    finally:
        await store.close()


async def restore_to_etcd(state: Path, file: Path, etcd: EtcdStore) -> int:
    """The objects of a backup, with the keys in the state directory, into an empty prefix; how many there are."""
    if not (state / SECRETS[1]).exists():
        raise BackupError(
            f"{state} has no CA: use the state directory of the server that the backup is from, or a backup with keys "
            "(--passphrase-file)"
        )
    shared = SharedKeys(state, etcd.location, etcd.key_file)
    sealing = SecretSealing(state)
    records, version = snapshot.read(file, sealing)
    try:
        await restoring.restore(etcd.location, records, version, sealing)
        await shared.prepare(lambda: None, joins=False)
    finally:
        shared.close()
    return len(records)


def put_back(state: Path, file: Path, passphrase_file: Path, etcd: EtcdStore | None = None) -> Path | None:
    """Restore an encrypted backup; no server may be running. Returns where what was replaced is now, if anything was.

    The file is decrypted and checked as a whole before anything is replaced.
    """
    with tempfile.TemporaryDirectory(dir=state, prefix=".restore-") as place:
        directory = Path(place)
        names = unseal(file, directory, read_passphrase(passphrase_file))
        if unknown := set(names) - {STORE, TOKENS, *SECRETS, *KEYS}:
            raise BackupError(f"{file} has parts that this version does not know: {', '.join(sorted(unknown))}")
        if STORE not in names or SECRETS[1] not in names:
            raise BackupError(f"{file} has no objects or no CA: it is not a backup of `plimsoll api backup`")
        aside = restore(directory / STORE, state / "store") if etcd is None else None
        kept = _aside(state)
        for name in (*SECRETS, *KEYS, TOKENS):
            old = state / name
            if old.exists():
                target = kept / name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.copy2(old, target)
            if name in names:
                old.parent.mkdir(mode=0o700, exist_ok=True)
                put_in_place(directory / name, old)
            else:
                old.unlink(missing_ok=True)  # a token that is not in the backup does not work afterwards
        if not any(kept.iterdir()):
            kept.rmdir()
        if etcd is not None:
            asyncio.run(restore_to_etcd(state, directory / STORE, etcd))
    return aside


def _aside(state: Path) -> Path:
    number = 1
    while (aside := state / f"{ASIDE}{number}").exists():
        number += 1
    aside.mkdir(mode=0o700)
    return aside
