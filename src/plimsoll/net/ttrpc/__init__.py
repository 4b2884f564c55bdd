"""ttrpc, the small RPC protocol of containerd, and the multiplexer that puts two such connections on one socket."""
