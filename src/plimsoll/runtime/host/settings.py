"""What the supervisor is told when it starts, and what it has found out about the machine."""

from __future__ import annotations

import os
from typing import NamedTuple


class Settings(NamedTuple):
    state: str
    isolation: bool = True
    overlay: bool = True
    limitations: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()  # paths no container may see: the state directories
    log_max_bytes: int = 10 << 20
    log_max_files: int = 5
    unified: bool = False  # /sys/fs/cgroup is cgroup v2
    files: tuple[int, int] = (1024, 1024)  # RLIMIT_NOFILE of containers: what we were started with

    @property
    def stage(self) -> str:
        """An empty directory: children mount on it in their own mount namespaces."""
        return os.path.join(self.state, "stage")
