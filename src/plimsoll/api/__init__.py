"""The Kubernetes-compatible API server: requests in, Kubernetes' own answers out, everything kept in `store`."""
