"""Cgroups: drivers for a kernel (v1, v2, systemd) or in memory (simulated), the cgroup manager, and statistics."""
