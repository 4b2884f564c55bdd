"""Encrypted backups: parts come back as they were; anything changed, cut or added is refused."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.auth import sealed_archive
from plimsoll.api.auth.sealed_archive import ArchiveError, is_sealed, read_passphrase, seal, unseal

PASSPHRASE = b"correct horse battery"


@pytest.fixture(scope="module", autouse=True)
def _cheap_keys() -> Iterator[None]:
    """scrypt is slow on purpose."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sealed_archive._SCRYPT, "n", 2)
        yield


def sealed(tmp_path: Path, parts: dict[str, bytes]) -> Path:
    paths = {}
    for number, (name, data) in enumerate(parts.items()):
        paths[name] = tmp_path / f"part{number}"
        paths[name].write_bytes(data)
    target = io.BytesIO()
    seal(target, paths, PASSPHRASE)
    file = tmp_path / "backup"
    file.write_bytes(target.getvalue())
    return file


@pytest.mark.parametrize("chunk", [7, 64, 1 << 20])
def test_parts_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(sealed_archive, "_CHUNK_BYTES", chunk)
    parts = {"a": b"", "pki/ca.key": b"secret" * 50, "b\u00e9": bytes(range(256)), "end": b"x"}
    file = sealed(tmp_path, parts)
    assert is_sealed(file)
    assert b"secret" not in file.read_bytes()
    out = tmp_path / "out"
    assert unseal(file, out, PASSPHRASE) == list(parts)
    for name, data in parts.items():
        assert (out / name).read_bytes() == data
        assert (out / name).stat().st_mode & 0o777 == 0o600


@given(data=st.data())
def test_a_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    directory = tmp_path_factory.mktemp("sealed")
    file = sealed(directory, {"a": b"x" * 100})
    whole = file.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    file.write_bytes(whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :])
    with pytest.raises(ArchiveError):
        unseal(file, directory / "out", PASSPHRASE)


def test_missing_and_exchanged_chunks_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_archive, "_CHUNK_BYTES", 64)
    whole = sealed(tmp_path, {"a": b"x" * 300}).read_bytes()
    head, size = len(sealed_archive.MAGIC) + 16, 4 + 64 + 16
    first, second = whole[head : head + size], whole[head + size : head + 2 * size]
    rest = whole[head + 2 * size :]
    changed = [
        whole[: head + 2 * size],  # cut at the end of a chunk
        whole[:-1],
        whole + whole[-20:],
        whole[:head] + second + first + rest,
        whole[:head] + second + rest,
    ]
    for number, text in enumerate(changed):
        file = tmp_path / f"changed{number}"
        file.write_bytes(text)
        with pytest.raises(ArchiveError):
            unseal(file, tmp_path / f"out{number}", PASSPHRASE)


def test_another_passphrase_and_names_outside_are_refused(tmp_path: Path) -> None:
    file = sealed(tmp_path, {"a": b"x"})
    with pytest.raises(ArchiveError, match="the passphrase is wrong"):
        unseal(file, tmp_path / "out", b"another passphrase")
    outside = sealed(tmp_path, {"../outside": b"x"})
    with pytest.raises(ArchiveError, match="outside of its directory"):
        unseal(outside, tmp_path / "out", PASSPHRASE)
    assert not (tmp_path / "outside").exists()
    short = tmp_path / "short"
    short.write_text("eleven char\n")
    with pytest.raises(ArchiveError, match="at least 12"):
        read_passphrase(short)
