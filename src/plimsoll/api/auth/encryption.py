"""Secrets are encrypted at rest: AES-256-GCM with the key in `pki/secrets.key` (32 random bytes, 0600).

    0x01, nonce (12 random bytes), ciphertext and tag; the object's key in the store is authenticated with it

So a sealed body cannot be moved to another name. A stored JSON body begins with `{` and is never taken for a sealed
one. `cryptography` is imported only when there is a secret.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll.linux.files.state_dir import private_directory, write_private
from plimsoll.store.errors import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_FILE = "pki/secrets.key"
SEALED_PREFIX = "/secrets/"  # of the keys in the store
_VERSION = b"\x01"
_KEY_BYTES, _NONCE_BYTES = 32, 12


class SecretNotReadableError(StoreError):
    """A stored secret does not belong to the key of this machine."""

    key: str
    file: Path
    template = (
        "the object {key} cannot be decrypted with {file}: it was encrypted with another key. Copy the file from the "
        "server that wrote the objects, or restore a backup that contains it (`plimsoll api restore --passphrase-file`)"
    )


class SecretSealing:
    """Implements `store.sealing.Sealing`."""

    def __init__(self, state: Path) -> None:
        self._file = state / KEY_FILE

    @cached_property
    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not self._file.exists():
            private_directory(self._file.parent)
            write_private(self._file, os.urandom(_KEY_BYTES))
        return AESGCM(self._file.read_bytes())

    def prepare(self) -> None:
        """Create the key if there is none."""
        self._cipher  # noqa: B018

    def sealed(self, key: str, body: bytes) -> bytes:
        if not key.startswith(SEALED_PREFIX):
            return body
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, body, key.encode())

    def opened(self, key: str, stored: bytes) -> bytes:
        if not stored.startswith(_VERSION):
            return stored
        from cryptography.exceptions import InvalidTag

        nonce, rest = stored[1 : 1 + _NONCE_BYTES], stored[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, rest, key.encode())
        except (InvalidTag, ValueError):
            raise SecretNotReadableError(key, self._file) from None
