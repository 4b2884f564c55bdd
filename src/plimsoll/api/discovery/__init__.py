"""Discovery (/api, /apis), /version, the health endpoints and the OpenAPI pages."""
