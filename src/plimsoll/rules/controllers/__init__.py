"""Decisions of the controllers: node lifecycle, pod GC, workloads, their revisions, endpoints, disruption budgets."""
