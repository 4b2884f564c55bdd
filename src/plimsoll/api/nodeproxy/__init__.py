"""Requests that the API server passes on to a node: logs, exec, attach, port-forward, proxy, and the metrics.k8s.io API."""
