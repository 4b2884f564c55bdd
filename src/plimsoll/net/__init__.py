"""Connections that several packages share: the HTTP/1.1 client, both sides of a WebSocket, gRPC, buffers of TLS."""
