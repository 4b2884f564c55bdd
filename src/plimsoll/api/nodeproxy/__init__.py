"""Requests that the API server passes on to a node: logs, exec, attach, port-forward, proxy, and metrics.k8s.io."""
