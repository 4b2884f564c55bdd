"""Reports to the API server: node registration and lease, pod status, events, the client certificate."""
