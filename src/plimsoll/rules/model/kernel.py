"""The kernel's cgroup versions and constants that the configuration, the rules and the drivers share."""

from __future__ import annotations

from typing import Literal

CgroupVersion = Literal[1, 2]
Weight = Literal["linear", "quadratic"]
DEFAULT_PERIOD_US = 100_000
