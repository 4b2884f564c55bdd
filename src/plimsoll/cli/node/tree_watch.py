"""`plimsoll tree --watch`: the tree as a live screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cli.node.tree import TreeSnapshot, snapshot, tree_lines
from plimsoll.cli.terminal import Paint, colourful
from plimsoll.codec.owners import Key, Owned
from plimsoll.rules.cgroups.view import Names

KEYS = "q leave  ↑ ↓ scroll"


class TreeView:
    def __init__(
        self,
        driver: CgroupDriver,
        root: str,
        names: Names,
        depth: int | None = None,
        with_tasks: bool = False,
        owned: Mapping[Key, Owned] | None = None,
    ) -> None:
        self._driver, self._root, self._names, self._owned = driver, root, names, owned
        self._depth, self._with_tasks = depth, with_tasks
        self._paint = Paint(colourful())
        self._shown: TreeSnapshot | None = None

    def refresh(self) -> None:
        self._shown = snapshot(
            self._driver,
            self._root,
            self._names,
            depth=self._depth,
            with_tasks=self._with_tasks,
            before=self._shown,
            owned=self._owned,
        )

    def head(self, width: int) -> Sequence[str]:
        return self._lines(width)[:2]

    def body(self, width: int) -> Sequence[str]:
        return self._lines(width)[2:]

    def _lines(self, width: int) -> list[str]:
        return [] if self._shown is None else tree_lines(self._shown, self._paint, width)

    def foot(self, width: int) -> Sequence[str]:
        return [self._paint(KEYS, "dim")]

    def key(self, name: str) -> bool:
        return name in ("q", "escape")
