"""What all API servers of one cluster must have in common: CA, signing keys, the key of secrets, bearer tokens.

They are one value in etcd, `meta/shared-keys`, encrypted with a key that the operator gives every server in a file; the
form is that of an encrypted backup (`sealed_archive`). The first server creates it, the others get their files from it.
`tokens.json` may change later on any server, also on several at once: changes are passed on within seconds.
"""

from __future__ import annotations

import asyncio
import io
import logging
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from plimsoll.aio import beside
from plimsoll.api.auth.account_tokens import AccountTokens
from plimsoll.api.auth.encryption import SecretSealing
from plimsoll.api.auth.sealed_archive import ArchiveError, read_passphrase, seal, unseal
from plimsoll.api.machinery.users import merged_tokens
from plimsoll.errors import PlimsollError
from plimsoll.linux.files.state_dir import private_directory, write_private
from plimsoll.store.errors import StoreError
from plimsoll.store.etcd.client import EtcdClient
from plimsoll.store.etcd.location import Location
from plimsoll.store.etcd.meta import Meta
from plimsoll.store.etcd.opening import checked_version, read_format
from plimsoll.store.etcd.values import Layout

CA, TOKENS = "pki/ca.crt", "tokens.json"
FILES = (CA, "pki/ca.key", "pki/sa.key", "pki/secrets.key")
NAME = "shared-keys"
CHECK_S = 2.0

log = logging.getLogger("plimsoll.api")


class SharedKeysError(PlimsollError):
    """Why this server cannot have the keys of the others; the message says what to do."""


class SharedKeys:
    def __init__(self, state: Path, location: Location, key_file: Path) -> None:
        self.location, self._state, self._key_file = location, state, key_file
        self._passphrase = read_passphrase(key_file)
        self._client = EtcdClient(location)
        self._meta = Meta(self._client, Layout(location.prefix))
        self._revision = 0
        self._tokens = b""  # as they are in etcd

    async def prepare(self, create: Callable[[], None], *, joins: bool) -> None:
        """Before the server starts: take over the keys of the cluster, or create them for it (`create` makes a CA)."""
        await checked_version(self._client)
        await read_format(self._client, Layout(self.location.prefix))
        is_new = not (self._state / CA).exists()
        while True:
            found = await self._meta.get(NAME)
            if found is not None:
                self._tokens = self._read_tokens()  # of an earlier run: what was revoked meanwhile must not come back
                await self._take(found.value, may_replace=is_new)
                self._revision = found.mod_revision
                return
            if joins:
                raise SharedKeysError(
                    f"{self.location} has no control plane yet: start the first server with `plimsoll api --store …`"
                )
            create()
            AccountTokens(self._state).prepare()
            SecretSealing(self._state).prepare()
            if await self._put(0):
                return

    @asynccontextmanager
    async def service(self, app: object) -> AsyncIterator[None]:
        """While the server runs."""
        try:
            async with beside(self._keep()):
                yield
        finally:
            self._client.close()

    def close(self) -> None:
        self._client.close()

    async def _keep(self) -> None:
        """Pass on tokens that were created or revoked here, and take over those of other servers."""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self._compare()
            except (StoreError, ArchiveError, OSError) as error:
                log.warning("the shared keys were not compared: %s", error)

    async def _compare(self) -> None:
        found = await self._meta.get(NAME)
        if found is None:
            log.error("%s was deleted from etcd: restore it from a backup", NAME)
        elif found.mod_revision != self._revision:
            await self._take(found.value, may_replace=False)
            self._revision = found.mod_revision
        elif self._read_tokens() != self._tokens:
            # Nothing is written if another server was first: the next comparison takes over its change, the one after
            # that writes both.
            await self._put(self._revision)

    async def _put(self, revision: int) -> bool:
        tokens = self._read_tokens()
        value = await asyncio.to_thread(self._sealed)
        written = await self._meta.put(NAME, value, revision)
        if written:
            self._revision, self._tokens = written, tokens
        return bool(written)

    def _sealed(self) -> bytes:
        target = io.BytesIO()
        present = {name: self._state / name for name in (*FILES, TOKENS) if (self._state / name).exists()}
        seal(target, present, self._passphrase)
        return target.getvalue()

    async def _take(self, value: bytes, *, may_replace: bool) -> None:
        self._tokens = await asyncio.to_thread(self._unsealed, value, may_replace)

    def _unsealed(self, value: bytes, may_replace: bool) -> bytes:
        """Write the files; returns the tokens that are in etcd. Those that were created or revoked here stay so."""
        with tempfile.TemporaryDirectory(dir=self._state, prefix=".shared-") as place:
            directory = Path(place)
            archive = directory / "archive"
            write_private(archive, value)
            try:
                names = unseal(archive, directory, self._passphrase)
            except ArchiveError:
                raise SharedKeysError(
                    f"the keys in {self.location} cannot be decrypted with {self._key_file}: use the file that the "
                    "first server was started with (--store-key-file)"
                ) from None
            if missing := set(FILES) - set(names):
                raise SharedKeysError(f"{NAME} in {self.location} does not contain {', '.join(sorted(missing))}")
            mine, theirs = self._state / CA, (directory / CA).read_bytes()
            if not may_replace and mine.exists() and mine.read_bytes() != theirs:
                raise SharedKeysError(
                    f"{self._state} belongs to another cluster: its CA is not that of {self.location}. Use an empty "
                    "--state-dir, or another prefix"
                )
            private_directory(self._state / "pki")
            for name in FILES:
                write_private(self._state / name, (directory / name).read_bytes())
            shared = (directory / TOKENS).read_bytes() if TOKENS in names else b""
            if tokens := merged_tokens(self._tokens, self._read_tokens(), shared):
                write_private(self._state / TOKENS, tokens)
            return shared

    def _read_tokens(self) -> bytes:
        try:
            return (self._state / TOKENS).read_bytes()
        except FileNotFoundError:
            return b""
