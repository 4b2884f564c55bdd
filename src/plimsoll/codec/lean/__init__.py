"""Lean views of pods and nodes: the fields that the rules read, decoded straight from JSON."""
