"""Connections that several packages share: the HTTP/1.1 client connection and both sides of a WebSocket."""
