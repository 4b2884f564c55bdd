"""Cgroup drivers for one file system each: v1, v2, systemd over D-Bus, and one in memory (simulated)."""
