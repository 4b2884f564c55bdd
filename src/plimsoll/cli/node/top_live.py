"""The live screen of `plimsoll top`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cli import console
from plimsoll.cli.live.frames import ascii_only
from plimsoll.cli.live.session import has_utf8, is_live, live
from plimsoll.cli.node.tree import TreeSnapshot, chosen, headline, known_names, snapshot
from plimsoll.cli.node.tree_print import Picture, lines
from plimsoll.cli.terminal import Paint, colourful, inert
from plimsoll.rules.cgroups.busiest import SORT_KEYS, Level, SortKey, listed, ranked, since
from plimsoll.rules.cgroups.view import Names, Standing

_LEVEL_KEYS: dict[str, Level] = {"p": "pods", "c": "containers", "k": "classes", "n": "node"}
KEYS = "q leave  p c k n level  s order  / filter  space pause  ↑ ↓ scroll"
SHORT_KEYS = "q  p c k n  s  /  space"


def show_live(
    by: str, sort_by: str, text: str, cgroup_root: str, interval_s: float, names: tuple[tuple[str, ...], Path | None]
) -> int:
    found = this_host()
    driver = open_cgroupfs(found)
    try:
        root = chosen(driver, found, None, cgroup_root)
        view = TopView(driver, root, known_names(*names), cast("Level", by), cast("SortKey", sort_by), text)
        if is_live():
            return live(view, interval_s)
        view.refresh()
        table = "\n".join(view.body(0))
        console.echo(table if has_utf8() else ascii_only(table))
        return 0
    finally:
        driver.close()


class TopView:
    def __init__(
        self, driver: CgroupDriver, root: str, names: Names, level: Level, order: SortKey, text: str = ""
    ) -> None:
        self._driver, self._root, self._names = driver, root, names
        self.level, self.order, self.text = level, order, text
        self.typing, self.paused = False, False
        self._paint = Paint(colourful())
        self._shown: TreeSnapshot | None = None
        self._standings: dict[str, Standing] = {}

    def refresh(self) -> None:
        if self.paused:
            return
        before = self._shown
        self._shown = snapshot(self._driver, self._root, self._names, before=before)
        after = self._shown.standings
        self._standings = dict(after) if before is None else since(before.standings, after)

    def head(self, width: int) -> Sequence[str]:
        if self._shown is None:
            return []
        words = [f"by {self.level}", f"order {self.order}"]
        if self.text or self.typing:
            words.append(f"filter {inert(self.text)}{'_' if self.typing else ''}")
        if self.paused:
            words.append("paused")
        return [headline(self._shown, self._paint), self._paint("  ".join(words), "bold"), *self._table(width)[:1]]

    def body(self, width: int) -> Sequence[str]:
        table = self._table(width)
        return table[1:] if width else table

    def _table(self, width: int) -> list[str]:
        shown = self._shown
        if shown is None:
            return []
        rows, standings = listed(shown.rows, self._standings, self.level, os.uname().nodename)
        rows = ranked(rows, standings, self.order, text=self.text, machine_bytes=shown.machine_bytes)
        if not rows:
            return ["", f"no {self.level} with {inert(self.text)!r}" if self.text else f"no {self.level}"]
        picture = Picture(rows, standings, shown.machine_bytes, version=shown.version)
        first, *others = lines(picture, self._paint, width)
        return [first.replace("CGROUP", "NAME  "), *others]

    def foot(self, width: int) -> Sequence[str]:
        return [self._paint(KEYS if width >= len(KEYS) else SHORT_KEYS, "dim")]

    def key(self, name: str) -> bool:
        if self.typing:
            self._typed(name)
            return False
        if name in _LEVEL_KEYS:
            self.level = _LEVEL_KEYS[name]
        elif name == "s":
            self.order = SORT_KEYS[(SORT_KEYS.index(self.order) + 1) % len(SORT_KEYS)]
        elif name == "/":
            self.typing = True
        elif name == " ":
            self.paused = not self.paused
        elif name == "escape" and self.text:
            self.text = ""
            return False
        return name in ("q", "escape")

    def _typed(self, name: str) -> None:
        if name in ("enter", "escape"):
            self.typing = False
            if name == "escape":
                self.text = ""
        elif name == "backspace":
            self.text = self.text[:-1]
        elif len(name) == 1:
            self.text += name
