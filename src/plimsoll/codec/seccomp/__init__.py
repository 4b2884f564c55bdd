"""Seccomp: profiles, system call numbers, and the BPF filter that the kernel runs for each call."""
