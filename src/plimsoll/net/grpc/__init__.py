"""gRPC on HTTP/2: status codes, and the client that container runtimes, probes and etcd are called with."""
