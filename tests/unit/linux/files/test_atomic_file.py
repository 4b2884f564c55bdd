"""Files that are replaced atomically: a shorter text after a longer one, a removed file, concurrent readers."""

from __future__ import annotations

import threading
from pathlib import Path

from plimsoll.linux.files.atomic_file import read_whole, replace_whole


def test_each_write_replaces_the_whole_text(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for text in (b"long " * 1000, b"", b"short", b"long again " * 500):
        replace_whole(path, text)
        assert path.read_bytes() == text
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_removed_file_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_whole(path, b"one")
    path.unlink()
    replace_whole(path, b"two")
    assert path.read_bytes() == b"two"


def test_readers_see_the_old_or_the_new_text(tmp_path: Path) -> None:
    path, texts = tmp_path / "state.json", (b"a" * 50_000, b"b" * 70_000)
    replace_whole(path, texts[0])
    ended = threading.Event()

    def write() -> None:
        for number in range(300):
            replace_whole(path, texts[number % 2])
        ended.set()

    writing = threading.Thread(target=write)
    writing.start()
    seen = set()
    while not ended.is_set():
        seen.add(read_whole(path))
    writing.join()
    assert seen <= set(texts)
