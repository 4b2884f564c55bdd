"""Decisions of the controllers: node lifecycle, pod GC, ReplicaSets, Deployments, Jobs, disruption budgets."""
