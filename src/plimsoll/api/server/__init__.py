"""The ASGI application and its server: connections, limits, metrics, bootstrap and shutdown."""
