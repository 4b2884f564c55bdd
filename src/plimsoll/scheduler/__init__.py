"""The scheduler: the loop around `rules.scheduling.cycle`. It uses only the Kubernetes API."""
