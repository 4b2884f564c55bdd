"""Scheduling: filters, scores, preemption, and one scheduling cycle."""
