"""Validation of what a pod's spec says beside resources: volumes, environment, probes, hooks, placement, names."""
