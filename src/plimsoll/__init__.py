"""Plimsoll: Kubernetes' node-level resource management, explained and enforced."""

__version__ = "0.1.0"
