"""Thin access to the kernel: system calls and /proc, no policy."""
