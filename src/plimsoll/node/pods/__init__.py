"""The life of pods on the node: pod manager, pod workers, container start and stop, probes, garbage collection."""
