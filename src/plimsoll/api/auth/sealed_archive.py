"""A backup in one encrypted file: named parts, each of any size, readable only with the operator's passphrase.

    "PLIMSOLL-BACKUP 1\n", salt (16 bytes), then chunks: length (4 bytes) and AES-256-GCM of it

The key is scrypt of the passphrase and the salt. Each chunk has its number as the nonce and as its authenticated data
whether it is the last one, so chunks cannot be changed, left out, added or moved. The text inside the chunks is, for
each part, its name and size as one line of JSON, and then its bytes. `cryptography` is imported only when used.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from plimsoll.errors import PlimsollError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"PLIMSOLL-BACKUP 1\n"
LEAST_PASSPHRASE = 12  # bytes
_SALT_BYTES, _CHUNK_BYTES, _TAG_BYTES = 16, 1 << 20, 16
_SCRYPT = {"n": 1 << 15, "r": 8, "p": 1, "maxmem": 1 << 26, "dklen": 32}  # 32 MiB and about 0.1 s
_LENGTH = struct.Struct(">I")


class ArchiveError(PlimsollError):
    """It is damaged, not complete, or the passphrase is another one."""


class _Head(msgspec.Struct):
    name: str
    size: int


def is_sealed(file: Path) -> bool:
    with file.open("rb") as source:
        return source.read(len(MAGIC)) == MAGIC


def read_passphrase(file: Path) -> bytes:
    """The content of a file without the line end; raises ArchiveError where it is too short to protect anything."""
    passphrase = file.read_bytes().rstrip(b"\r\n")
    if len(passphrase) < LEAST_PASSPHRASE:
        raise ArchiveError(f"{file}: a passphrase has at least {LEAST_PASSPHRASE} characters")
    return passphrase


def _cipher(passphrase: bytes, salt: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hashlib.scrypt(passphrase, salt=salt, **_SCRYPT))


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def seal(target: IO[bytes], parts: dict[str, Path], passphrase: bytes) -> None:
    """Write these files, by name, to `target`."""
    salt = os.urandom(_SALT_BYTES)
    cipher = _cipher(passphrase, salt)
    target.write(MAGIC + salt)
    pending, number = b"", 0

    def put(chunk: bytes, *, is_last: bool) -> None:
        nonlocal number
        sealed = cipher.encrypt(_nonce(number), chunk, b"last" if is_last else b"more")
        target.write(_LENGTH.pack(len(sealed)) + sealed)
        number += 1

    for piece in _pieces(parts):
        pending += piece
        while len(pending) > _CHUNK_BYTES:
            put(pending[:_CHUNK_BYTES], is_last=False)
            pending = pending[_CHUNK_BYTES:]
    put(pending, is_last=True)


def _pieces(parts: dict[str, Path]) -> Iterator[bytes]:
    for name, path in parts.items():
        with path.open("rb") as source:
            size = os.fstat(source.fileno()).st_size
            yield msgspec.json.encode(_Head(name, size)) + b"\n"
            while size:
                piece = source.read(min(size, _CHUNK_BYTES))
                if not piece:
                    raise ArchiveError(f"{path} became shorter while it was read: try again")
                size -= len(piece)
                yield piece


def unseal(file: Path, directory: Path, passphrase: bytes) -> list[str]:
    """Write the parts into `directory` (0600) and return their names. Raises ArchiveError; then some may be there."""
    names: list[str] = []
    text, part, left = b"", None, 0
    try:
        for chunk in _chunks(file, passphrase):
            text += chunk
            while text or (part is not None and not left):
                if part is None:
                    line, end, rest = text.partition(b"\n")
                    if not end:
                        break  # the rest of the line is in the next chunk
                    head, text = msgspec.json.decode(line, type=_Head), rest
                    part, left = _created(directory, head.name), head.size
                    names.append(head.name)
                part.write(text[:left])
                text, left = text[left:], left - min(left, len(text))
                if left:
                    break
                part.close()
                part = None
    finally:
        if part is not None:
            part.close()
    if text or left:
        raise ArchiveError(f"{file} ends in the middle of a part")
    return names


def _created(directory: Path, name: str) -> IO[bytes]:
    path = directory / name
    if not name or not path.resolve().is_relative_to(directory.resolve()):
        raise ArchiveError(f"a part of the backup has the name {name!r}, which is outside of its directory")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _chunks(file: Path, passphrase: bytes) -> Iterator[bytes]:
    from cryptography.exceptions import InvalidTag

    with file.open("rb") as source:
        if source.read(len(MAGIC)) != MAGIC:
            raise ArchiveError(f"{file} is not an encrypted backup")
        cipher = _cipher(passphrase, source.read(_SALT_BYTES))
        number, is_last = 0, False
        left = os.fstat(source.fileno()).st_size - len(MAGIC) - _SALT_BYTES
        while not is_last:
            head = source.read(_LENGTH.size)
            size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
            sealed = source.read(size) if _TAG_BYTES <= size <= _CHUNK_BYTES + _TAG_BYTES else b""
            if not size or len(sealed) != size:
                raise ArchiveError(f"{file} is not complete, or is damaged")
            left -= _LENGTH.size + size
            is_last = not left
            try:
                yield cipher.decrypt(_nonce(number), sealed, b"last" if is_last else b"more")
            except InvalidTag:
                what = "the passphrase is wrong, or it is damaged" if not number else "it is damaged or not complete"
                raise ArchiveError(f"{file} cannot be decrypted: {what}") from None
            number += 1
