"""The scheduler: the loop around `rules.scheduling`. It sees the cluster only through the Kubernetes API."""
