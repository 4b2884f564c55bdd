"""Block I/O by weights, limits and latency targets: the texts of settings and annotations, and the kernel's files."""
