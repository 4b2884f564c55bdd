"""The scheduler: the loop around `rules.scheduling.cycle`. It sees the cluster only through the Kubernetes API."""
