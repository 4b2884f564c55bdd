"""Cgroup drivers: what `rules` has decided, made so on a kernel (v1, v2, systemd) or in memory (simulated)."""
