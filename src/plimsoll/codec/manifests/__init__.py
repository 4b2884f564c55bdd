"""Manifests: pods inside documents of any kind, unknown fields, static pod files."""
