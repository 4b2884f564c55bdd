"""The kubelet's HTTPS endpoint: logs, exec, statistics, metrics, with authentication by the API server."""
