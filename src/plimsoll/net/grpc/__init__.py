"""gRPC on HTTP/2: status codes, the client for runtimes, probes, plugins and etcd, and a small server."""
