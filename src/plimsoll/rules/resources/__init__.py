"""Resources of a pod: defaulting, effective requests and limits, QoS class, OOM score, cgroup values."""
