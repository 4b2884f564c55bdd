"""The kubelet's HTTPS endpoint: logs, exec, attach, port-forward, statistics; the API server authorizes callers."""
