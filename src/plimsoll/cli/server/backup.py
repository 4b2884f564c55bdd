"""Backup and restore of a control plane: its objects, and with a passphrase also its keys, certificates and tokens.

Without a passphrase a backup is a copy of the store, in which secrets are encrypted, without their key. With one it is
an encrypted file that contains everything that a new machine needs: after a restore the old kubeconfigs, node
certificates and tokens work.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from plimsoll.api.auth.sealed_archive import read_passphrase, seal, unseal
from plimsoll.errors import PlimsollError
from plimsoll.store.sqlite.backup import backup, restore
from plimsoll.store.sqlite.files import ASIDE, put_in_place

STORE = "store/objects.db"
# Below the state directory. Kubeconfigs of administrators are written at each start, with the key in pki.
SECRETS = ("pki/ca.crt", "pki/ca.key", "pki/server.crt", "pki/server.key", "pki/client.crt", "pki/client.key")
# Keys that exist once they were used: of service account tokens, and of secrets at rest.
KEYS = ("pki/sa.key", "pki/secrets.key")
TOKENS = "tokens.json"


class BackupError(PlimsollError):
    """What is missing, and what to do."""


def back_up(state: Path, file: Path, passphrase_file: Path | None) -> None:
    """The server may be running."""
    if passphrase_file is None:
        backup(state / "store", file)
        return
    passphrase = read_passphrase(passphrase_file)
    secrets = {name: state / name for name in (*SECRETS, *KEYS, TOKENS) if (state / name).exists()}
    if SECRETS[1] not in secrets:
        raise BackupError(f"{state} has no CA: start `plimsoll api` once")
    new = file.with_name(f"{file.name}.part")
    with tempfile.TemporaryDirectory(dir=state, prefix=".backup-") as directory:
        copy = Path(directory) / "objects.db"
        backup(state / "store", copy)
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as target:
                seal(target, {STORE: copy, **secrets}, passphrase)
            put_in_place(new, file)
        finally:
            new.unlink(missing_ok=True)


def put_back(state: Path, file: Path, passphrase_file: Path) -> Path | None:
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
        aside = restore(directory / STORE, state / "store")
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
    return aside


def _aside(state: Path) -> Path:
    number = 1
    while (aside := state / f"{ASIDE}{number}").exists():
        number += 1
    aside.mkdir(mode=0o700)
    return aside
