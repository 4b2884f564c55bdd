"""Bytes ↔ documents. Everything here is pure and refers to a file only by line numbers."""
