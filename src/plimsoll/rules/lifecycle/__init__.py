"""The life of a pod: pod actions, probes, termination, back-off, status, conditions and events."""
