"""Pressure on the node: eviction manager, OOM watcher, throttle watchdog and what they observe."""
