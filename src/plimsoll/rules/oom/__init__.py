"""OOM: the order in which the kernel kills, the report of a kill, and memory.high throttling."""
