"""Paths of /proc and /sys that containers do not see, or only read: they show or change the whole machine.

The lists are those that Kubernetes sends to a container runtime. Stdlib only (the supervisor imports it).
"""

from __future__ import annotations

import functools
import glob

MASKED = (
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
    "/sys/devices/virtual/powercap",
)  # fmt: skip
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@functools.cache
def masked_paths() -> tuple[str, ...]:
    """Also what tells the temperature of this machine's CPUs. Listed once, as by a kubelet."""
    return (*MASKED, *sorted(glob.glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")))
