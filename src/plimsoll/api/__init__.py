"""The Kubernetes-compatible API server: requests in, Kubernetes' own responses out, every object in `store`."""
