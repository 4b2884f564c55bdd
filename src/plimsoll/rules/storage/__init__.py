"""Persistent storage: what volumes, claims and classes may contain, and which volume belongs to which claim."""
