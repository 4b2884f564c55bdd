"""Admission before a write: namespaces, Pod Security, LimitRange, ResourceQuota, webhooks, policies, node identity."""
