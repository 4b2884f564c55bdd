"""Bytes ↔ documents: everything here is pure, and speaks of a file only by line numbers."""
