"""Defaults that the API server writes into objects."""
