"""The OpenAPI documents that kubectl reads, versions 2 and 3."""
